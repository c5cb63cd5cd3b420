package people

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

const (
	// TokenPrefix is before the secret of a session in a terminal: the whole text stands where an API key does.
	TokenPrefix = "session:"
	// terminalLife ends a session in a terminal, as long as one in a browser may be idle.
	terminalLife = 12 * time.Hour
	// useLife is how long the use of a session in a workspace is kept: longer than any session lasts.
	useLife = 8 * 24 * time.Hour
	// mostAgent bounds in bytes what is kept of the name of a program.
	mostAgent = 200
)

// Signed is the session of a person, as a call carries it.
type Signed struct {
	Person  toll.Person
	Session toll.Session
	row     store.BrowserSession
}

// InTerminal reports whether the session was made for a terminal: its person proves a credential by a call, and not on a page.
func (s *Signed) InTerminal() bool { return len(s.row.Data) == 0 }

// Keep names the session among those of its person, for [Credentials.Remove].
func (s *Signed) Keep() string { return s.row.Token }

// errSession is returned for an unknown or ended session, and for a person who may not sign in.
var errSession = toll.Errorf(toll.CodeNotAuthenticated, "This session has ended or does not belong to this service.").WithHint("Sign in again.")

// CookieName returns the name of the session cookie. It has the port: all ports of a host share cookies.
func CookieName(public *url.URL) string {
	switch {
	case public.Scheme == "https":
		return "__Host-session"
	case public.Port() != "":
		return "session-" + public.Port()
	}
	return "session"
}

// Sessions opens, lists and ends sessions of people.
type Sessions struct {
	store     *store.Store
	clock     func() time.Time
	log       *slog.Logger
	limits    *limits
	passwords *Passwords
}

// OpenToken returns the session of a text that begins with [TokenPrefix]. Errors: [toll.CodeNotAuthenticated].
func (ss *Sessions) OpenToken(ctx context.Context, text string) (*Signed, error) {
	return ss.open(ctx, terminalToken(text), true)
}

// OpenCookie returns the session of a cookie of a browser. Errors: [toll.CodeNotAuthenticated], also for a session in a terminal.
func (ss *Sessions) OpenCookie(ctx context.Context, value string) (*Signed, error) {
	return ss.open(ctx, Hashed(value), false)
}

// Hashed is how the library of browser sessions stores a token.
func Hashed(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// terminalToken is [Hashed] for a terminal: a token of one kind never opens a session of the other.
func terminalToken(text string) string { return Hashed("terminal " + text) }

func (ss *Sessions) open(ctx context.Context, token string, inTerminal bool) (*Signed, error) {
	row, err := store.BrowserSessionByToken(ctx, ss.store, token)
	if err == nil && (row.UserID.IsZero() || !ss.clock().Before(row.ExpiresAt) || inTerminal != (len(row.Data) == 0)) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, store.NotFoundAs(err, errSession)
	}
	u, err := readUser(ctx, ss.store, row.UserID)
	if err != nil {
		return nil, store.NotFoundAs(err, errSession)
	}
	return signed(u, row), nil
}

func signed(u toll.Person, row store.BrowserSession) *Signed {
	s := &Signed{Person: u, Session: sessionOf(row), row: row}
	s.Session.Current = true
	return s
}

func sessionOf(s store.BrowserSession) toll.Session {
	return toll.Session{
		ID: s.ID, Agent: s.Agent, Since: toll.At(s.Since), UsedAt: toll.At(s.UsedAt), ProvedAt: toll.At(s.AuthenticatedAt), Proof: s.Proof,
		EndsAt: toll.At(s.ExpiresAt),
	}
}

// Begin begins a session in a terminal after a password was proved, and returns its token. agent is the name of the program.
func (ss *Sessions) Begin(ctx context.Context, u toll.Person, agent string) (text string, s *Signed, err error) {
	secret, _ := newSecret()
	text = TokenPrefix + secret
	now := ss.clock()
	agent = plain.Name(agent)
	agent = strings.ToValidUTF8(agent[:min(len(agent), mostAgent)], "")
	row := store.BrowserSession{
		Token: terminalToken(text), Data: []byte{}, ExpiresAt: now.Add(terminalLife), UserID: u.ID, ID: toll.NewUUID(), Agent: agent,
		Since: now, UsedAt: now, Proof: Password, AuthenticatedAt: now,
	}
	err = ss.store.Tx(ctx, func(tx *store.Tx) error { return store.InsertBrowserSession(ctx, tx, row, now) })
	return text, signed(u, row), err
}

// Prove checks the password in a session in a terminal. Errors: those of [Passwords.Prove], [toll.CodeBadRequest] for a browser.
func (ss *Sessions) Prove(ctx context.Context, s *Signed, password string) error {
	if !s.InTerminal() {
		return toll.Errorf(toll.CodeBadRequest, "In a browser, confirm your sign-in on the page /confirm.")
	}
	if err := ss.passwords.Prove(ctx, s.Person.ID, password); err != nil {
		return err
	}
	s.row.Proof, s.row.AuthenticatedAt = Password, ss.clock()
	err := ss.store.Tx(ctx, func(tx *store.Tx) error { return store.UpdateBrowserSession(ctx, tx, s.row) })
	*s = *signed(s.Person, s.row)
	return err
}

// Recent returns nil for a proof within [FreshTime], other than a code by mail. Errors: [toll.CodeProofNeeded].
func (ss *Sessions) Recent(proof string, at time.Time) error {
	if proof == Mail || ss.clock().Sub(at) >= FreshTime {
		return toll.NewError(toll.CodeProofNeeded)
	}
	return nil
}

// In returns the person of a session as a caller in a workspace. Errors: [toll.CodeWrongWorkspace], also for an unknown workspace.
func (ss *Sessions) In(ctx context.Context, s *Signed, workspace string) (auth.Caller, error) {
	at, err := toll.ParseAddress(workspace)
	if err != nil {
		return auth.Caller{}, errWorkspace
	}
	m, err := store.MembershipOf(ctx, ss.store, at, s.Person.ID)
	if err != nil {
		return auth.Caller{}, store.NotFoundAs(err, errWorkspace)
	}
	if !m.Admits(s.row.Since) {
		return auth.Caller{}, errEnded
	}
	c := auth.Caller{Address: at, UserID: s.Person.ID, Rights: m.Role.Rights(), MadeBy: toll.MadeByUser}
	ss.NoteUse(ctx, s.row.ID, at)
	return c, nil
}

// NoteUse notes a use of a session in a workspace once a minute. It only logs a failure: [Members.EndSessions] does not need the note.
func (ss *Sessions) NoteUse(ctx context.Context, session string, workspace toll.Address) {
	if !ss.limits.uses.Take(session+workspace.Lower(), 1, time.Since(ss.limits.began)).OK {
		return
	}
	err := ss.store.Tx(ctx, func(tx *store.Tx) error {
		return store.PutSessionUse(ctx, tx, store.SessionUse{Session: session, Workspace: workspace, UsedAt: ss.clock()})
	})
	if err != nil {
		ss.log.WarnContext(ctx, "cannot record that a session was used in a workspace", "workspace", workspace, "error", err.Error())
	}
}

var errEnded = toll.Errorf(toll.CodeWrongWorkspace, "An owner or admin ended the access of this session to the workspace.").WithHint("Sign in again.")

var errWorkspace = toll.Errorf(toll.CodeWrongWorkspace, "X-Current-Org-Id must name a workspace that you are a member of.").
	WithHint("GET /api/v1/organizations lists your workspaces.")

// List returns the sessions of a person that go on, newest first.
func (ss *Sessions) List(ctx context.Context, user toll.UUID) ([]toll.Session, error) {
	rows, err := store.BrowserSessionsOf(ctx, ss.store, user, ss.clock())
	return store.Mapped(rows, sessionOf), err
}

// Page is a part of [Sessions.List].
func (ss *Sessions) Page(ctx context.Context, user toll.UUID, page store.Page) (store.List[toll.Session], error) {
	rows, err := store.BrowserSessionList(ctx, ss.store, user, ss.clock(), page)
	return store.Map(rows, sessionOf), err
}

// End ends one session of a person. Errors: [toll.CodePersonNotFound].
func (ss *Sessions) End(ctx context.Context, user toll.UUID, id string) error {
	if id == "" {
		return toll.NewError(toll.CodePersonNotFound)
	}
	return ss.store.Tx(ctx, func(tx *store.Tx) error {
		n, err := store.DeleteBrowserSessions(ctx, tx, user, id, "")
		if err == nil && n == 0 {
			err = toll.NewError(toll.CodePersonNotFound)
		}
		return err
	})
}
