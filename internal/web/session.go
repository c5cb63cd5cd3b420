package web

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

const (
	// idleTime ends a session that is not used, and longestTime every session.
	idleTime    = 12 * time.Hour
	longestTime = 7 * 24 * time.Hour
	// freshTime is how long after a proof of a credential a person may give access to others without another one.
	freshTime = people.FreshTime
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

// person is who signed in: a person with the rights of a role in a workspace, or, in a key session, who has an API key, with the
// rights of that.
type person struct {
	auth.Caller
	Since      time.Time // of the last proof of a credential
	Proof      string    // its kind; "" for an API key
	User       *toll.Person
	Workspaces []people.Workspace
	Workspace  people.Workspace
	session    string // id of the session
}

// HasName reports whether a person signed in, and not an API key.
func (p *person) HasName() bool { return p.User != nil }

// External reports whether the workspace is a wallet whose key the service never had.
func (p *person) External() bool { return p.User != nil && p.Workspace.Custody == toll.CustodyExternal }

func newSessions(d Deps, origin *url.URL) *scs.SessionManager {
	// scs.New would start a sweeper of a store in memory, which nobody can end.
	m := &scs.SessionManager{
		Store: sessionStore{store: d.Store, clock: d.Clock}, HashTokenInStore: true, Codec: scs.GobCodec{}, IdleTimeout: idleTime, Lifetime: longestTime,
		Cookie: scs.SessionCookie{Name: "session", HttpOnly: true, Path: "/", SameSite: http.SameSiteLaxMode},
		ErrorFunc: func(w http.ResponseWriter, r *http.Request, err error) {
			d.Log.ErrorContext(r.Context(), "session of a browser", slog.Any("err", err))
			http.Error(w, "The service cannot answer now. Try again.", http.StatusServiceUnavailable)
		},
	}
	m.Cookie.Secure, m.Cookie.Name = origin.Scheme == "https", people.CookieName(origin)
	return m
}

// person returns who signed in, nil for nobody; wanted is the workspace in which the request acts, "" for the one used last. A session
// ends with the API key of its sign-in, or with the person. Errors: [errNotMember].
func (w *Web) person(ctx context.Context, wanted string) (*person, error) {
	if w.sessions.GetString(ctx, sessionUser) != "" {
		return w.user(ctx, wanted)
	}
	text := w.sessions.GetString(ctx, sessionAddress)
	if text != "" && wanted != "" && !names(wanted, text) {
		return nil, errNotMember
	}
	if text == "" {
		return nil, nil
	}
	address, err1 := toll.ParseAddress(text)
	id, err2 := toll.ParseHash(w.sessions.GetString(ctx, sessionKey))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	caller, err := w.Auth.CallerOf(ctx, address, id)
	if errors.Is(err, toll.NewError(toll.CodeNotAuthenticated)) {
		return nil, w.sessions.Destroy(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &person{Caller: caller, Since: store.FromMicros(w.sessions.GetInt64(ctx, sessionSince))}, nil
}

// shortestName is how many characters of an address name a workspace at least, among those of one person.
const shortestName = 6

// names reports whether a text names a workspace: its address in any case, or the beginning of it.
func names(text, address string) bool {
	return len(text) >= shortestName && len(text) <= len(address) && strings.EqualFold(text, address[:len(text)])
}

// errNotMember is the answer for a workspace that the person is not in, the same as for one that does not exist.
var errNotMember = errors.New("web: not a member of this workspace")

// user is person for the session of a person.
func (w *Web) user(ctx context.Context, wanted string) (*person, error) {
	var id toll.UUID
	if err := id.UnmarshalText([]byte(w.sessions.GetString(ctx, sessionUser))); err != nil {
		return nil, err
	}
	u, err := w.People.User(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, w.sessions.Destroy(ctx)
	}
	if err != nil {
		return nil, err
	}
	p := &person{
		User: &u, Since: store.FromMicros(w.sessions.GetInt64(ctx, sessionAt)), Proof: w.sessions.GetString(ctx, sessionProof),
		session: w.sessions.GetString(ctx, sessionID),
	}
	if p.Workspaces, err = w.People.Workspaces(ctx, id); err != nil {
		return nil, err
	}
	since := store.FromMicros(w.sessions.GetInt64(ctx, sessionSince))
	p.Workspaces = slices.DeleteFunc(p.Workspaces, func(o people.Workspace) bool { return !o.Admits(since) })
	used := cmp.Or(wanted, w.sessions.GetString(ctx, sessionAddress))
	at := slices.IndexFunc(p.Workspaces, func(o people.Workspace) bool { return names(used, o.Address.String()) })
	if at >= 0 && slices.ContainsFunc(p.Workspaces[at+1:], func(o people.Workspace) bool { return names(used, o.Address.String()) }) {
		at = -1 // a prefix of several
	}
	switch {
	case at < 0 && wanted != "":
		return nil, errNotMember
	case len(p.Workspaces) == 0:
		p.Caller = auth.Caller{UserID: id, MadeBy: toll.MadeByUser}
		return p, nil
	}
	p.Workspace = p.Workspaces[max(at, 0)]
	p.Caller = auth.Caller{Address: p.Workspace.Address, UserID: id, Rights: p.Workspace.Role.Rights(), MadeBy: toll.MadeByUser}
	if text := p.Address.String(); text != w.sessions.GetString(ctx, sessionAddress) {
		w.sessions.Put(ctx, sessionAddress, text)
	}
	w.People.Sessions.NoteUse(ctx, p.session, p.Address)
	return p, nil
}

// admitUser begins a session for a person who proved a credential, in a workspace (zero: the first one). The session that the
// browser had before is over.
func (w *Web) admitUser(v *visit, u toll.Person, proof string, at toll.Address) error {
	ctx := v.ctx()
	if err := w.sessions.RenewToken(ctx); err != nil {
		return err
	}
	w.sessions.Remove(ctx, sessionKey)
	w.sessions.Remove(ctx, sessionEnds)
	w.sessions.Put(ctx, sessionAddress, "")
	if !at.IsZero() {
		w.sessions.Put(ctx, sessionAddress, at.String())
	}
	w.sessions.Put(ctx, sessionUser, u.ID.String())
	w.sessions.Put(ctx, sessionID, toll.NewUUID())
	agent := plain.Name(v.r.UserAgent())
	w.sessions.Put(ctx, sessionAgent, agent[:min(len(agent), mostAgent)])
	w.sessions.Put(ctx, sessionSince, store.Micros(w.Clock()))
	w.proved(ctx, proof, w.Clock())
	browser, err := w.People.Sessions.RememberBrowser(u.ID)
	if err != nil {
		return err
	}
	cookie := w.browserCookie()
	cookie.Value, cookie.MaxAge = browser, int(people.Remembered.Seconds())
	http.SetCookie(v.rw, cookie)
	v.person, err = w.user(ctx, "")
	return err
}

// browserCookie marks a browser in which a person signed in, so that other callers cannot lock the person out. It outlives the session.
func (w *Web) browserCookie() *http.Cookie {
	name := strings.Replace(w.sessions.Cookie.Name, "session", "browser", 1)
	return &http.Cookie{Name: name, Path: "/", HttpOnly: true, Secure: w.sessions.Cookie.Secure, SameSite: http.SameSiteLaxMode}
}

// proved notes when a person proved a credential of a kind.
func (w *Web) proved(ctx context.Context, kind string, at time.Time) {
	w.sessions.Put(ctx, sessionProof, kind)
	w.sessions.Put(ctx, sessionAt, store.Micros(at))
}

// endsSoon bounds a session that code of an account opened.
func (w *Web) endsSoon(ctx context.Context, pr people.Proof) {
	if pr.Contract {
		w.sessions.Put(ctx, sessionEnds, store.Micros(w.Clock().Add(people.ContractLife)))
	}
}

// admit begins a session for the owner of an API key. The session that the browser had before is over.
func (w *Web) admit(ctx context.Context, key string) (*person, error) {
	if key = strings.TrimSpace(key); key == "" {
		return nil, toll.Errorf(toll.CodeNotAuthenticated, "Paste an API key.")
	}
	caller, err := w.Auth.Authenticate(ctx, []string{"Bearer " + key})
	if err != nil {
		return nil, err
	}
	if !caller.Rights.Has(toll.RightRead) {
		return nil, auth.Lacks(toll.RightRead)
	}
	if e := w.signIns.Take(caller.Address, 1); e != nil {
		return nil, e
	}
	if err := w.sessions.RenewToken(ctx); err != nil {
		return nil, err
	}
	now := w.Clock().UTC().Truncate(time.Microsecond)
	w.sessions.Remove(ctx, sessionUser)
	w.sessions.Remove(ctx, sessionEnds)
	w.sessions.Put(ctx, sessionAddress, caller.Address.String())
	w.sessions.Put(ctx, sessionKey, caller.KeyID.String())
	w.sessions.Put(ctx, sessionSince, store.Micros(now))
	return &person{Caller: caller, Since: now}, nil
}

// fresh reports whether the person proved a credential a short time ago. A code by mail is no such proof.
func (w *Web) fresh(p *person) bool { return p != nil && w.People.Sessions.Recent(p.Proof, p.Since) == nil }

// ticket is [Web.ticket] for a form that acts in the workspace in which it is shown, also when another tab has gone to another
// workspace since.
func (v *visit) ticket(says ...string) string {
	return v.w.ticket(v.ctx(), append(says, v.person.Address.Lower())...)
}

// holds is [Web.holds] for a form of [visit.ticket].
func (v *visit) holds(ticket string, says ...string) bool {
	return v.w.holds(v.ctx(), ticket, append(says, v.person.Address.Lower())...)
}

// ticket names a form that is shown in the session of the context, with all that the form says. Nobody else can make it:
// its key is what only the cookie of the browser holds.
func (w *Web) ticket(ctx context.Context, says ...string) string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails since Go 1.24
	nonce := base64.RawURLEncoding.EncodeToString(b)
	return nonce + "." + w.proof(ctx, nonce, says)
}

// holds reports whether a form was shown in this session, and said this.
func (w *Web) holds(ctx context.Context, ticket string, says ...string) bool {
	nonce, proof, _ := strings.Cut(ticket, ".")
	return w.sessions.Token(ctx) != "" && hmac.Equal([]byte(proof), []byte(w.proof(ctx, nonce, says)))
}

func (w *Web) proof(ctx context.Context, nonce string, says []string) string {
	mac := hmac.New(sha256.New, []byte(w.sessions.Token(ctx)))
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

// visited is, in the context of one request, the token of the session that it came with. That session is changed and not made again, so that a request that is under way while the person signs out does not bring it back.
type visited struct{ token string }

type visitKey struct{}

func withVisited(ctx context.Context) context.Context {
	return context.WithValue(ctx, visitKey{}, &visited{})
}

func (s sessionStore) FindCtx(ctx context.Context, token string) ([]byte, bool, error) {
	row, err := store.BrowserSessionByToken(ctx, s.store, token)
	if errors.Is(err, store.ErrNotFound) || err == nil && !s.clock().Before(row.ExpiresAt) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if f, ok := ctx.Value(visitKey{}).(*visited); ok {
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
		row.Since, row.ProvedAt, row.UsedAt = store.FromMicros(since), store.FromMicros(at), now
	}
	return s.store.Tx(ctx, func(tx *store.Tx) error {
		if f, ok := ctx.Value(visitKey{}).(*visited); ok && f.token == token {
			return store.UpdateBrowserSession(ctx, tx, row)
		}
		return store.InsertBrowserSession(ctx, tx, row, now)
	})
}

func (s sessionStore) DeleteCtx(ctx context.Context, token string) error {
	return s.store.Tx(ctx, func(tx *store.Tx) error { return store.DeleteBrowserSession(ctx, tx, token) })
}
