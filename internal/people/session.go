package people

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
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

// Keep names the session among those of its person, for [People.RemoveCredential].
func (s *Signed) Keep() string { return s.row.Token }

// errSession is the one answer to a session that is unknown, over, or of a person who may not sign in.
var errSession = toll.Errorf(toll.CodeNotAuthenticated, "This session has ended, or is not one of this service.").WithHint("Sign in again.")

// CookieName is how browsers name the cookie with the session of a person on a service at a public address. The cookies of one port
// go to all ports of a host, so the name has the port.
func CookieName(public *url.URL) string {
	switch {
	case public.Scheme == "https":
		return "__Host-session"
	case public.Port() != "":
		return "session-" + public.Port()
	}
	return "session"
}

// OpenToken returns the session of a text that begins with [TokenPrefix]. Errors: [toll.CodeNotAuthenticated].
func (p *People) OpenToken(ctx context.Context, text string) (*Signed, error) {
	s, err := p.openSession(ctx, terminalToken(text))
	if err == nil && !s.InTerminal() {
		err = errSession
	}
	return s, err
}

// OpenCookie returns the session of the value of the cookie of a browser. Errors: [toll.CodeNotAuthenticated], for the session of an
// API key as well.
func (p *People) OpenCookie(ctx context.Context, value string) (*Signed, error) {
	s, err := p.openSession(ctx, Hashed(value))
	if err == nil && s.InTerminal() {
		err = errSession
	}
	return s, err
}

// Hashed is how the library of browser sessions stores a token.
func Hashed(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// terminalToken is [Hashed] for a terminal: a token of one kind never opens a session of the other.
func terminalToken(text string) string { return Hashed("terminal " + text) }

func (p *People) openSession(ctx context.Context, token string) (*Signed, error) {
	row, err := store.BrowserSessionByToken(ctx, p.Store, token)
	if err == nil && (row.UserID.IsZero() || !p.Clock().Before(row.ExpiresAt)) {
		err = store.ErrNotFound
	}
	if err != nil {
		return nil, store.NotFoundAs(err, errSession)
	}
	u, err := p.User(ctx, row.UserID)
	if err != nil {
		return nil, store.NotFoundAs(err, errSession)
	}
	s := &Signed{Person: u, Session: sessionOf(row), row: row}
	s.Session.Current = true
	return s, nil
}

func sessionOf(s store.BrowserSession) toll.Session {
	return toll.Session{
		ID: s.ID, Agent: s.Agent, Since: toll.At(s.Since), UsedAt: toll.At(s.UsedAt), ProvedAt: toll.At(s.ProvedAt), Proof: s.Proof,
		EndsAt: toll.At(s.ExpiresAt),
	}
}

// Begin begins a session in a terminal for a person who proved a password; agent is what the program says it is. The text is there
// once.
func (p *People) Begin(ctx context.Context, u toll.Person, agent string) (text string, s *Signed, err error) {
	secret, _ := newSecret()
	text = TokenPrefix + secret
	now := p.Clock()
	agent = plain.Name(agent)
	agent = strings.ToValidUTF8(agent[:min(len(agent), mostAgent)], "")
	row := store.BrowserSession{
		Token: terminalToken(text), Data: []byte{}, ExpiresAt: now.Add(terminalLife), UserID: u.ID, ID: toll.NewUUID(), Agent: agent,
		Since: now, UsedAt: now, Proof: Password, ProvedAt: now,
	}
	err = p.Store.Tx(ctx, func(tx *store.Tx) error { return store.InsertBrowserSession(ctx, tx, row, now) })
	s = &Signed{Person: u, Session: sessionOf(row), row: row}
	s.Session.Current = true
	return text, s, err
}

// ProveSession notes in a session in a terminal that its person proved the password once more. Errors: those of [People.Prove],
// [toll.CodeBadRequest] for the session of a browser.
func (p *People) ProveSession(ctx context.Context, s *Signed, password string) error {
	if !s.InTerminal() {
		return toll.Errorf(toll.CodeBadRequest, "A browser proves a credential on the page /confirm.")
	}
	if err := p.Prove(ctx, s.Person.ID, password); err != nil {
		return err
	}
	s.row.Proof, s.row.ProvedAt = Password, p.Clock()
	err := p.Store.Tx(ctx, func(tx *store.Tx) error { return store.UpdateBrowserSession(ctx, tx, s.row) })
	s.Session = sessionOf(s.row)
	s.Session.Current = true
	return err
}

// Fresh returns nil when a person proved a credential a short time ago. A code by mail is no such proof. Errors:
// [toll.CodeProofNeeded].
func (p *People) Fresh(proof string, at time.Time) error {
	if proof == Mail || p.Clock().Sub(at) >= FreshTime {
		return toll.NewError(toll.CodeProofNeeded)
	}
	return nil
}

// In returns the person of a session as a caller in a workspace. Errors: [toll.CodeWrongWorkspace] for one that the person is not in,
// the same as for one that does not exist.
func (p *People) In(ctx context.Context, s *Signed, workspace string) (auth.Caller, error) {
	at, err := toll.ParseAddress(workspace)
	if err != nil {
		return auth.Caller{}, errWorkspace
	}
	m, err := store.MembershipOf(ctx, p.Store, at, s.Person.ID)
	if err != nil {
		return auth.Caller{}, store.NotFoundAs(err, errWorkspace)
	}
	if !m.Admits(s.row.Since) {
		return auth.Caller{}, errEnded
	}
	c := auth.Caller{Address: at, UserID: s.Person.ID, Rights: m.Role.Rights(), MadeBy: toll.MadeByUser}
	p.NoteUse(ctx, s.row.ID, at)
	return c, nil
}

// NoteUse notes that a session was used in a workspace, once a minute. A use that cannot be written is in the log alone: the call may be
// one that only reads, and [People.EndSessionsOf] ends the access of sessions without a note too.
func (p *People) NoteUse(ctx context.Context, session string, workspace toll.Address) {
	if !p.limits.uses.Take(session+workspace.Lower(), 1, time.Since(p.limits.began)).OK {
		return
	}
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		return store.PutSessionUse(ctx, tx, store.SessionUse{Session: session, Workspace: workspace, UsedAt: p.Clock()})
	})
	if err != nil {
		p.Log.WarnContext(ctx, "the use of a session in a workspace was not noted", "workspace", workspace, "error", err.Error())
	}
}

var errEnded = toll.Errorf(toll.CodeWrongWorkspace, "An owner or an admin of the workspace has ended the access of this session to it.").WithHint("Sign in again.")

var errWorkspace = toll.Errorf(toll.CodeWrongWorkspace, "X-Current-Org-Id must name a workspace that you are a member of.").
	WithHint("GET /api/v1/organizations lists yours.")

// Organizations lists the workspaces of a person, the oldest membership first.
func (p *People) Organizations(ctx context.Context, user toll.UUID) ([]toll.Organization, error) {
	all, err := p.Workspaces(ctx, user)
	return store.Mapped(all, func(w Workspace) toll.Organization {
		return toll.Organization{ID: w.Address.Lower(), Name: w.Name, Role: string(w.Role)}
	}), err
}

// Manned reports whether a workspace has people. One without is managed by its operator, with API keys.
func (p *People) Manned(ctx context.Context, q store.Querier, workspace toll.Address) (bool, error) {
	return store.AnyMember(ctx, q, workspace)
}

// SessionsOf lists the sessions in which a member used the workspace of the caller, who manages that member, with the last use there.
// Errors: [toll.CodePersonNotFound], [toll.CodeForbidden], [toll.CodeRightMissing].
func (p *People) SessionsOf(ctx context.Context, c auth.Caller, user toll.UUID, page store.Page) (all store.List[toll.Session], err error) {
	var m store.Membership
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		m, err = p.managesMember(ctx, tx, c, user)
		return err
	})
	if err != nil {
		return all, err
	}
	rows, err := store.MemberSessionList(ctx, p.Store, m, p.Clock(), page)
	if err != nil {
		return all, err
	}
	for i := range rows.Items {
		use, err := store.SessionUseOf(ctx, p.Store, rows.Items[i].ID, c.Address)
		if err != nil {
			return all, err
		}
		rows.Items[i].UsedAt = use.UsedAt
	}
	return store.Map(rows, sessionOf), nil
}

// EndSessionsOf ends the access of all sessions of a member to the workspace of the caller, and returns how many were used there. The
// person signs in again, and stays signed in elsewhere. Errors: those of [People.SessionsOf].
func (p *People) EndSessionsOf(ctx context.Context, c auth.Caller, user toll.UUID) (n int64, err error) {
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		m, err := p.managesMember(ctx, tx, c, user)
		if err != nil {
			return err
		}
		ended, err := store.MemberSessionList(ctx, tx, m, p.Clock(), store.Page{Number: 1, Size: 1})
		if err != nil {
			return err
		}
		n, m.SessionsFrom = ended.Total, p.Clock()
		if err := store.UpdateMembership(ctx, tx, m); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{Workspace: c.Address.Lower(), Act: "session.ended", Object: user.String()})
	})
	return n, err
}

// managesMember returns a member, locked, whom a caller may change.
func (p *People) managesMember(ctx context.Context, tx *store.Tx, c auth.Caller, user toll.UUID) (store.Membership, error) {
	m, err := store.LockMembership(ctx, tx, c.Address, user)
	if err != nil {
		return m, store.NotFoundAs(err, errNoMember)
	}
	return m, p.manages(ctx, tx, c, m.Role)
}
