// Package session keeps the sessions of browsers, and proves the forms that were shown in them. It alone of the pages reads and
// writes the database: a session is a row there, and so is the answer to a form that must act once.
//
// Begin with [Sessions.Handler], which loads the session of a request, and [Sessions.Person], which says whose it is. Tickets bind
// forms to sessions ([Sessions.Ticket], [Sessions.Holds]); [Sessions.Once] runs the act of a form at most once.
package session

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

const (
	// idleTime ends a session that is not used, and longestTime every session.
	idleTime    = 12 * time.Hour
	longestTime = 7 * 24 * time.Hour
	// RecentTime is how long after a proof of a credential a person may give access to others without another one.
	RecentTime = people.FreshTime
	// mostAgent bounds in bytes what is kept of the name of a browser.
	mostAgent = 200
)

// Members of a session.
const (
	sessionAddress = "address"
	sessionKey     = "key" // id of the API key of the sign-in
	sessionSince   = "since"

	// Of a person instead of a key. The address is the workspace that was used last.
	sessionUser  = "user"
	sessionID    = "id" // names the session on pages
	sessionAgent = "agent"
	sessionProof = "proof" // kind of the credential that was proved last
	sessionAt    = "proved"
	sessionEnds  = "ends" // before the others, in microseconds; absent: with them
)

// Person is the signed-in user of a page: a person with the rights of a role in a workspace or, in a session of an API key, the owner
// of that key with its rights.
type Person struct {
	auth.Caller
	Since      time.Time // of the last proof of a credential
	Proof      string    // its kind; "" for an API key
	User       *toll.Person
	Workspaces []people.Workspace
	Workspace  people.Workspace
	ID         string // of the session; "" for an API key
}

// HasName reports whether a person signed in, and not an API key.
func (p *Person) HasName() bool { return p.User != nil }

// External reports whether the workspace is a wallet whose key the service never had.
func (p *Person) External() bool { return p.User != nil && p.Workspace.Custody == toll.CustodyExternal }

// Config has what sessions need.
type Config struct {
	Store     *store.Store
	Auth      *auth.Auth
	People    *people.People
	Seal      func(plain, aad []byte) ([]byte, error) // answers to forms, which may hold secrets
	Open      func(sealed, aad []byte) ([]byte, error)
	PublicURL string
	Clock     func() time.Time
}

// Sessions are the sessions of browsers.
type Sessions struct {
	Config
	sessions *scs.SessionManager
	signIns  *meter.Quota
}

// maxSignIns is how often an account may sign in within an hour: each sign-in is a session that stays for days.
const maxSignIns = 600

// New returns the sessions. fail answers a request whose session could not be read or written. Errors: a public address that cannot
// be parsed.
func New(d Config, fail func(http.ResponseWriter, *http.Request, error)) (*Sessions, error) {
	origin, err := url.Parse(d.PublicURL)
	if err != nil {
		return nil, err
	}

	// scs.New would start a sweeper of a store in memory, which nobody can end.
	m := &scs.SessionManager{
		Store: sessionStore{store: d.Store, clock: d.Clock}, HashTokenInStore: true, Codec: scs.GobCodec{}, IdleTimeout: idleTime, Lifetime: longestTime,
		Cookie:    scs.SessionCookie{Name: "session", HttpOnly: true, Path: "/", SameSite: http.SameSiteLaxMode},
		ErrorFunc: fail,
	}
	m.Cookie.Secure, m.Cookie.Name = origin.Scheme == "https", people.CookieName(origin)
	return &Sessions{Config: d, sessions: m, signIns: meter.NewQuota("sign-ins", 0, maxSignIns)}, nil
}

// Handler loads the session of a request for h, and stores what h changes in it.
func (s *Sessions) Handler(h http.Handler) http.Handler {
	load := s.sessions.LoadAndSave(h)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		load.ServeHTTP(rw, r.WithContext(withLoaded(r.Context())))
	})
}

// Load returns the context of a request with its session, which is only read, and the token of that. Errors: no cookie.
func (s *Sessions) Load(r *http.Request) (ctx context.Context, token string, err error) {
	c, err := r.Cookie(s.sessions.Cookie.Name)
	if err != nil {
		return nil, "", toll.NewError(toll.CodeNotAuthenticated)
	}
	ctx, err = s.sessions.Load(withLoaded(r.Context()), c.Value)
	return ctx, c.Value, err
}

// Acting returns the context of a request with the person and the browser, for the audit log and limits.
func (s *Sessions) Acting(r *http.Request, p *Person, source string) context.Context {
	actor := store.Actor{Kind: "local", Source: source, Agent: r.UserAgent()}
	if p != nil {
		actor.Kind, actor.ID = "key", p.KeyID.String()
		if p.User != nil {
			actor.Kind, actor.ID = "user", p.User.ID.String()
		}
	}
	ctx := store.WithActor(r.Context(), actor)
	if c, err := r.Cookie(s.browserCookie().Name); err == nil {
		ctx = people.WithBrowser(ctx, c.Value)
	}
	return ctx
}

// Renew gives the session of the context a new token, after a change of rights.
func (s *Sessions) Renew(ctx context.Context) error { return s.sessions.RenewToken(ctx) }

// IsUnknown reports whether an error says that a record does not exist.
func IsUnknown(err error) bool { return errors.Is(err, store.ErrNotFound) }

// End deletes the session of the context.
func (s *Sessions) End(ctx context.Context) error { return s.sessions.Destroy(ctx) }

// Person returns the signed-in person, or nil; wanted is the workspace of the request, "" for the one used last. A session ends with
// the API key of its sign-in, or with the person. Errors: [ErrNotMember].
func (s *Sessions) Person(ctx context.Context, wanted string) (*Person, error) {
	if s.sessions.GetString(ctx, sessionUser) != "" {
		return s.user(ctx, wanted)
	}
	text := s.sessions.GetString(ctx, sessionAddress)
	if text != "" && wanted != "" && !names(wanted, text) {
		return nil, ErrNotMember
	}
	if text == "" {
		return nil, nil
	}
	address, err1 := toll.ParseAddress(text)
	id, err2 := toll.ParseHash(s.sessions.GetString(ctx, sessionKey))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	caller, err := s.Auth.CallerOf(ctx, address, id)
	if errors.Is(err, toll.NewError(toll.CodeNotAuthenticated)) {
		return nil, s.sessions.Destroy(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &Person{Caller: caller, Since: store.FromMicros(s.sessions.GetInt64(ctx, sessionSince))}, nil
}

// shortestName is how many characters of an address name a workspace at least, among those of one person.
const shortestName = 6

// names reports whether a text names a workspace: its address in any case, or the beginning of it.
func names(text, address string) bool {
	return len(text) >= shortestName && len(text) <= len(address) && strings.EqualFold(text, address[:len(text)])
}

// ErrNotMember is the answer for a workspace that the person is not in, the same as for one that does not exist.
var ErrNotMember = errors.New("session: not a member of this workspace")

// user is person for the session of a person.
func (s *Sessions) user(ctx context.Context, wanted string) (*Person, error) {
	var id toll.UUID
	if err := id.UnmarshalText([]byte(s.sessions.GetString(ctx, sessionUser))); err != nil {
		return nil, err
	}
	u, err := s.People.User(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, s.sessions.Destroy(ctx)
	}
	if err != nil {
		return nil, err
	}
	p := &Person{
		User: &u, Since: store.FromMicros(s.sessions.GetInt64(ctx, sessionAt)), Proof: s.sessions.GetString(ctx, sessionProof),
		ID: s.sessions.GetString(ctx, sessionID),
	}
	if p.Workspaces, err = s.People.Workspaces(ctx, id); err != nil {
		return nil, err
	}
	since := store.FromMicros(s.sessions.GetInt64(ctx, sessionSince))
	p.Workspaces = slices.DeleteFunc(p.Workspaces, func(o people.Workspace) bool { return !o.Admits(since) })
	used := cmp.Or(wanted, s.sessions.GetString(ctx, sessionAddress))
	at := slices.IndexFunc(p.Workspaces, func(o people.Workspace) bool { return names(used, o.Address.String()) })
	if at >= 0 && slices.ContainsFunc(p.Workspaces[at+1:], func(o people.Workspace) bool { return names(used, o.Address.String()) }) {
		at = -1 // a prefix of several
	}
	switch {
	case at < 0 && wanted != "":
		return nil, ErrNotMember
	case len(p.Workspaces) == 0:
		p.Caller = auth.Caller{UserID: id, MadeBy: toll.MadeByUser}
		return p, nil
	}
	p.Workspace = p.Workspaces[max(at, 0)]
	p.Caller = auth.Caller{Address: p.Workspace.Address, UserID: id, Rights: p.Workspace.Role.Rights(), MadeBy: toll.MadeByUser}
	if text := p.Address.String(); text != s.sessions.GetString(ctx, sessionAddress) {
		s.sessions.Put(ctx, sessionAddress, text)
	}
	s.People.Sessions.NoteUse(ctx, p.ID, p.Address)
	return p, nil
}

// AdmitPerson begins a session for a person who proved a credential, in a workspace (zero: the first one). The session that the
// browser had before is over.
func (s *Sessions) AdmitPerson(rw http.ResponseWriter, r *http.Request, u toll.Person, proof string, at toll.Address) (*Person, error) {
	ctx := r.Context()
	if err := s.sessions.RenewToken(ctx); err != nil {
		return nil, err
	}
	s.sessions.Remove(ctx, sessionKey)
	s.sessions.Remove(ctx, sessionEnds)
	s.sessions.Put(ctx, sessionAddress, "")
	if !at.IsZero() {
		s.sessions.Put(ctx, sessionAddress, at.String())
	}
	s.sessions.Put(ctx, sessionUser, u.ID.String())
	s.sessions.Put(ctx, sessionID, toll.NewUUID())
	agent := plain.Name(r.UserAgent())
	s.sessions.Put(ctx, sessionAgent, agent[:min(len(agent), mostAgent)])
	s.sessions.Put(ctx, sessionSince, store.Micros(s.Clock()))
	s.NoteProof(ctx, proof, s.Clock())
	browser, err := s.People.Sessions.RememberBrowser(u.ID)
	if err != nil {
		return nil, err
	}
	cookie := s.browserCookie()
	cookie.Value, cookie.MaxAge = browser, int(people.Remembered.Seconds())
	http.SetCookie(rw, cookie)
	return s.user(ctx, "")
}

// browserCookie is the cookie of a browser in which a person signed in, which keeps strangers from locking the person out there. It
// outlives the session, and is named after its cookie.
func (s *Sessions) browserCookie() *http.Cookie { return s.CookieBeside("browser") }

// CookieBeside returns an empty cookie with the settings of that of the session, and a word in its name.
func (s *Sessions) CookieBeside(word string) *http.Cookie {
	name := strings.Replace(s.sessions.Cookie.Name, "session", word, 1)
	return &http.Cookie{Name: name, Path: "/", HttpOnly: true, Secure: s.sessions.Cookie.Secure, SameSite: http.SameSiteLaxMode}
}

// NoteProof stores when a person proved a credential of a kind.
func (s *Sessions) NoteProof(ctx context.Context, kind string, at time.Time) {
	s.sessions.Put(ctx, sessionProof, kind)
	s.sessions.Put(ctx, sessionAt, store.Micros(at))
}

// Shorten bounds a session that code of an account opened.
func (s *Sessions) Shorten(ctx context.Context, pr people.Proof) {
	if pr.Contract {
		s.sessions.Put(ctx, sessionEnds, store.Micros(s.Clock().Add(people.ContractLife)))
	}
}

// AdmitKey begins a session for the owner of an API key. The session that the browser had before is over.
func (s *Sessions) AdmitKey(ctx context.Context, key string) (*Person, error) {
	if key = strings.TrimSpace(key); key == "" {
		return nil, toll.Errorf(toll.CodeNotAuthenticated, "Paste an API key.")
	}
	caller, err := s.Auth.Authenticate(ctx, []string{"Bearer " + key})
	if err != nil {
		return nil, err
	}
	if !caller.Rights.Has(toll.RightRead) {
		return nil, auth.MissingRight(toll.RightRead)
	}
	if e := s.signIns.Take(caller.Address, 1); e != nil {
		return nil, e
	}
	if err := s.sessions.RenewToken(ctx); err != nil {
		return nil, err
	}
	now := s.Clock().UTC().Truncate(time.Microsecond)
	s.sessions.Remove(ctx, sessionUser)
	s.sessions.Remove(ctx, sessionEnds)
	s.sessions.Put(ctx, sessionAddress, caller.Address.String())
	s.sessions.Put(ctx, sessionKey, caller.KeyID.String())
	s.sessions.Put(ctx, sessionSince, store.Micros(now))
	return &Person{Caller: caller, Since: now}, nil
}

// Recent reports whether the person proved a credential a short time ago. A code by mail is no such proof.
func (s *Sessions) Recent(p *Person) bool {
	return p != nil && s.People.Sessions.Recent(p.Proof, p.Since) == nil
}

// Ticket names a form that is shown in the session of the context, with all that the form says. Nobody else can make it:
// its key is what only the cookie of the browser holds.
func (s *Sessions) Ticket(ctx context.Context, says ...string) string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails since Go 1.24
	nonce := base64.RawURLEncoding.EncodeToString(b)
	return nonce + "." + s.proof(ctx, nonce, says)
}

// Holds reports whether a form was shown in this session, and said this.
func (s *Sessions) Holds(ctx context.Context, ticket string, says ...string) bool {
	nonce, proof, _ := strings.Cut(ticket, ".")
	return s.sessions.Token(ctx) != "" && hmac.Equal([]byte(proof), []byte(s.proof(ctx, nonce, says)))
}

func (s *Sessions) proof(ctx context.Context, nonce string, says []string) string {
	mac := hmac.New(sha256.New, []byte(s.sessions.Token(ctx)))
	for _, s := range append([]string{nonce}, says...) {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		mac.Write([]byte(s))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sessionStore keeps sessions in the database. The library calls the methods with a context alone, so those without are nil.
type sessionStore struct {
	scs.Store
	store *store.Store
	clock func() time.Time
}

var _ scs.CtxStore = sessionStore{}

// loaded is, in the context of one request, the token of the session that it came with. That session is updated and never inserted,
// so that a request in flight during a sign-out does not restore it.
type loaded struct{ token string }

type loadedKey struct{}

func withLoaded(ctx context.Context) context.Context {
	return context.WithValue(ctx, loadedKey{}, &loaded{})
}

// Stored returns the stored token of the session with which the request came.
func Stored(ctx context.Context) string { return ctx.Value(loadedKey{}).(*loaded).token }

func (s sessionStore) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	row, err := store.BrowserSessionByToken(ctx, s.store, token)
	if errors.Is(err, store.ErrNotFound) || err == nil && !s.clock().Before(row.ExpiresAt) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if f, ok := ctx.Value(loadedKey{}).(*loaded); ok {
		f.token = token
	}
	return row.Data, true, nil
}

func (s sessionStore) CommitCtx(ctx context.Context, token string, data []byte, expiry time.Time) error {
	// The library goes by the time of this machine, which a sandbox may have left behind.
	now := s.clock()
	row := store.BrowserSession{Token: token, Data: data, ExpiresAt: now.Add(time.Until(expiry))}
	_, values, err := scs.GobCodec{}.Decode(data)
	if err != nil {
		return err
	}
	ends, ok := values[sessionEnds].(int64)
	if ok && store.FromMicros(ends).Before(row.ExpiresAt) {
		row.ExpiresAt = store.FromMicros(ends)
	}
	since, ok := values[sessionSince].(int64)
	if end := store.FromMicros(since).Add(longestTime); ok && end.Before(row.ExpiresAt) {
		row.ExpiresAt = end
	}
	if user, ok := values[sessionUser].(string); ok {
		if err := row.UserID.UnmarshalText([]byte(user)); err != nil {
			return err
		}
		row.ID, _ = values[sessionID].(string)
		row.Agent, _ = values[sessionAgent].(string)
		row.Proof, _ = values[sessionProof].(string)
		at, _ := values[sessionAt].(int64)
		row.Since, row.AuthenticatedAt, row.UsedAt = store.FromMicros(since), store.FromMicros(at), now
	}
	return s.store.Tx(ctx, func(tx *store.Tx) error {
		if f, ok := ctx.Value(loadedKey{}).(*loaded); ok && f.token == token {
			return store.UpdateBrowserSession(ctx, tx, row)
		}
		return store.InsertBrowserSession(ctx, tx, row, now)
	})
}

func (s sessionStore) DeleteCtx(ctx context.Context, token string) error {
	return s.store.Tx(ctx, func(tx *store.Tx) error { return store.DeleteBrowserSession(ctx, tx, token) })
}
