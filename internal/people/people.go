// Package people knows the people who use a service: how they sign in, their workspaces and roles, and the links that let new people in
// (docs/PEOPLE.md). Each concept is a type, from [SignUps] to [Notices], and [People] has one of each. Pages and the API call it.
package people

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// FreshTime is how long a proof of a credential counts: for step-up, and for consent.
const FreshTime = 10 * time.Minute

const (
	mostMembers     = 1000 // of one workspace
	mostWorkspaces  = 100  // of one person
	mostCredentials = 50   // of one person, with recovery codes
)

// Registration says who may sign up.
type Registration string

// Registrations.
const (
	Open    Registration = "open"    // everybody
	Invited Registration = "invited" // who has a link
)

// Kinds of credentials.
const (
	Password = "password"
	Passkey  = "passkey"
	Recovery = "recovery"
	Mail     = "mail"
	OIDC     = "oidc"
	Wallet   = "wallet"
)

// Deps is what the room is built on.
type Deps struct {
	Store        *store.Store
	Auth         *auth.Auth
	Registration Registration // "" is open in a sandbox, invited on live
	NoPasswords  bool         // people sign in by everything else
	PublicURL    string       // whose host passkeys are of
	Mail         MailConfig   // zero: no mails
	OIDC         OIDCConfig   // zero: no provider
	// Accepts asks the chain whether code of an account takes a signature (ERC-1271); nil where there is no chain. Errors have status 503.
	Accepts func(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error)
	Seal    func(plain, aad []byte) ([]byte, error)
	Open    func(sealed, aad []byte) ([]byte, error)
	Clock   func() time.Time
	Log     *slog.Logger
}

// People is the room: one per process, safe for concurrent use.
type People struct {
	SignUps     *SignUps
	Credentials *Credentials
	Passwords   *Passwords
	Passkeys    *Passkeys
	Wallets     *Wallets
	Codes       *Codes
	Provider    *Provider
	Proofs      *Proofs
	Sessions    *Sessions
	Members     *Members
	Links       *Links
	Notices     *Notices

	store *store.Store
	auth  *auth.Auth
	clock func() time.Time
}

// New returns the room. Errors: a public address that is no address; no way to sign in.
func New(d Deps) (*People, error) {
	if d.Registration == "" {
		d.Registration = Open
		if d.Auth.Environment() == toll.Live {
			d.Registration = Invited
		}
	}
	passkeys, err1 := newPasskeys(d.PublicURL)
	mailer, err2 := newMailer(d.Mail, d.Log)
	oidc, err3 := newProvider(d.OIDC, d.PublicURL)
	if d.NoPasswords && passkeys == nil && mailer == nil && oidc == nil {
		return nil, errors.Join(err1, err2, err3, errors.New(
			"without passwords, people need another way to sign in: a public https address with a host name (for passkeys), a mail server, or a sign-in provider"))
	}
	states := &states{d.Seal, d.Open, d.Clock}
	limits := newLimits(d.Store, states)
	notices := newNotices(d, limits, mailer)
	signUps := &SignUps{d.Store, d.Auth, d.Clock, states, limits, d.Registration}
	credentials := &Credentials{d.Store, d.Clock, limits, notices, d.NoPasswords}
	passwords := &Passwords{d.Store, d.Clock, limits, signUps, credentials, make(chan struct{}, hashesAtOnce)}
	members := &Members{d.Store, d.Auth, d.Clock, limits}
	return &People{
		store: d.Store, auth: d.Auth, clock: d.Clock,
		SignUps: signUps, Credentials: credentials, Passwords: passwords, Members: members, Notices: notices,
		Passkeys: &Passkeys{d.Store, states, limits, signUps, credentials, passkeys},
		Wallets:  &Wallets{d.Store, d.Auth, states, limits, d.PublicURL, d.Accepts},
		Codes:    &Codes{d.Store, states, limits, signUps, mailer, d.PublicURL},
		Provider: &Provider{d.Store, d.Log, states, limits, oidc},
		Proofs:   &Proofs{d.Store, states, signUps, credentials},
		Sessions: &Sessions{d.Store, d.Clock, d.Log, limits, passwords},
		Links:    &Links{d.Store, d.Clock, limits, members, d.PublicURL},
	}, errors.Join(err1, err2, err3)
}

type Workspace struct {
	Address toll.Address
	Name    string
	Role    toll.Role
	Custody toll.Custody

	member store.Membership
}

// Admits reports whether a session that began at a moment has access to the workspace.
func (w Workspace) Admits(since time.Time) bool { return w.member.Admits(since) }

func userOf(u store.User) toll.Person {
	return toll.Person{ID: u.ID, Name: u.Name, Operator: u.Operator}
}

// User returns a person. [store.ErrNotFound] for an unknown or disabled person.
func (p *People) User(ctx context.Context, id toll.UUID) (toll.Person, error) {
	return readUser(ctx, p.store, id)
}

func readUser(ctx context.Context, q store.Querier, id toll.UUID) (toll.Person, error) {
	u, err := store.UserByID(ctx, q, id)
	if err == nil && !u.DisabledAt.IsZero() {
		err = store.ErrNotFound
	}
	return userOf(u), err
}

// Workspaces lists the workspaces of a person, the oldest first.
func (p *People) Workspaces(ctx context.Context, user toll.UUID) ([]Workspace, error) {
	rows, err := store.MembershipsOf(ctx, p.store, user)
	if err != nil {
		return nil, err
	}
	out := make([]Workspace, 0, len(rows))
	for _, m := range rows {
		row, err := store.PrincipalByAddress(ctx, p.store, m.Workspace)
		if err != nil {
			return nil, err
		}
		out = append(out, Workspace{Address: m.Workspace, Name: row.Shown(), Role: m.Role, Custody: CustodyOf(row), member: m})
	}
	return out, nil
}

// Organizations lists the workspaces of a person, the oldest membership first.
func (p *People) Organizations(ctx context.Context, user toll.UUID) ([]toll.Organization, error) {
	all, err := p.Workspaces(ctx, user)
	return store.Mapped(all, func(w Workspace) toll.Organization {
		return toll.Organization{ID: w.Address.Lower(), Name: w.Name, Role: string(w.Role)}
	}), err
}

// CustodyOf says who has the key of a workspace.
func CustodyOf(p store.Principal) toll.Custody {
	switch {
	case len(p.SealedKey) == 0:
		return toll.CustodyExternal
	case !p.ExportedAt.IsZero():
		return toll.CustodyShared
	}
	return toll.CustodyService
}

// Disable disables or enables the person of a login name or an id. It ends the sessions of the person and, in every workspace, the API
// keys, consents, and access tokens, and pauses webhooks. After an error, call it again. [store.ErrNotFound] for an unknown person.
func (p *People) Disable(ctx context.Context, who string, disabled bool) (toll.Person, error) {
	id, err := userNamed(ctx, p.store, who)
	if err != nil {
		return toll.Person{}, err
	}
	var u store.User
	var in []store.Membership
	err = p.store.Tx(ctx, func(tx *store.Tx) (err error) {
		if u, err = store.LockUser(ctx, tx, id); err != nil {
			return err
		}
		act := store.Act{Act: "person.enabled", Object: id.String()}
		if u.DisabledAt, in = (time.Time{}), nil; disabled {
			act.Act, u.DisabledAt = "person.disabled", p.clock()
			if _, err := store.DeleteBrowserSessions(ctx, tx, id, "", ""); err != nil {
				return err
			}
			if in, err = store.MembershipsOf(ctx, tx, id); err != nil {
				return err
			}
		}
		return errors.Join(store.UpdateUser(ctx, tx, u), store.AuditAll(ctx, tx, p.clock(), act))
	})
	for _, m := range in { // jobs end their access tokens
		if err == nil {
			err = p.store.Tx(ctx, func(tx *store.Tx) error {
				_, err := p.auth.EndOf(ctx, tx, m.Workspace, id)
				return err
			})
		}
	}
	return userOf(u), err
}

// userNamed returns the person of an id or a login name. An id comes first: a login name can look like one.
func userNamed(ctx context.Context, q store.Querier, who string) (id toll.UUID, err error) {
	if id.UnmarshalText([]byte(who)) == nil {
		u, err := store.UserByID(ctx, q, id)
		return u.ID, err
	}
	c, err := store.CredentialBySubject(ctx, q, Password, strings.ToLower(who))
	return c.UserID, err
}

// Sweep deletes codes after a day, links a month after their end, and addresses in the audit log after 90 days. true: there may be more.
func (p *People) Sweep(ctx context.Context) (bool, error) {
	const slice = 500
	now := p.clock()
	if err := p.store.Tx(ctx, func(tx *store.Tx) error {
		return errors.Join(store.DropMailCodes(ctx, tx, now.Add(-mailDay)), store.DropLinks(ctx, tx, now.Add(-30*24*time.Hour)),
			store.DropSessionUses(ctx, tx, now.Add(-useLife)))
	}); err != nil {
		return false, err
	}
	n, err := store.DropAuditSources(ctx, p.store, now.Add(-90*24*time.Hour), slice)
	return n == slice, err
}

// as returns a context whose acts are those of a person, from where the context says already.
func as(ctx context.Context, user toll.UUID) context.Context {
	who := store.ActorOf(ctx)
	who.Kind, who.ID = "user", user.String()
	return store.WithActor(ctx, who)
}

// cleanName returns a name as it is shown, or one that is not empty in its place.
func cleanName(name, instead string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.TrimSpace(name))
	if name == "" || !utf8.ValidString(name) {
		name = instead
	}
	if r := []rune(name); len(r) > maxTitle {
		name = string(r[:maxTitle])
	}
	return name
}

// newSecret returns a secret of 32 random bytes as text, and its hash.
func newSecret() (secret string, hash []byte) {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails since Go 1.24
	secret = base64.RawURLEncoding.EncodeToString(b)
	return secret, sumOf(secret)
}

func sumOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
