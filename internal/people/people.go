// Package people knows the persons who use a service: how they sign in, which workspaces they are in with which role, and the links
// that let others in. A workspace is a principal; what its people may do is what their role gives (docs/PEOPLE.md).
// Pages and the API call this room; it serves nothing itself.
package people

import (
	"cmp"
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

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// FreshTime is how long a proof of a credential counts: for step-up, and for consent.
const FreshTime = 10 * time.Minute

const (
	// mostWorkspaces bounds the workspaces that one person owns or is in, and mostMembers the people of one.
	mostWorkspaces = 100
	mostMembers    = 1000
	// mostCredentials bounds the credentials of one person, recovery codes aside.
	mostCredentials = 50
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
	Deps
	hashing chan struct{} // bounds the memory of password hashes
	limits  limits

	passkeys *webauthn.WebAuthn // nil: browsers take none at the public address
	mailer   *mailer            // nil: no mails
	oidc     *provider          // nil: none
}

// errPasswordsOff refuses a password where the service takes none.
var errPasswordsOff = toll.NewError(toll.CodePasswordsOff)

// New returns the room. Errors: a public address that is no address; no way to sign in.
func New(d Deps) (*People, error) {
	if d.Registration == "" {
		d.Registration = Open
		if d.Auth.Environment() == toll.Live {
			d.Registration = Invited
		}
	}
	passkeys, err1 := newPasskeys(d.PublicURL)
	mailer, err2 := newMailer(d.Mail)
	oidc, err3 := newProvider(d.OIDC, d.PublicURL)
	if d.NoPasswords && passkeys == nil && mailer == nil && oidc == nil {
		return nil, errors.Join(err1, err2, err3, errors.New(
			"without passwords people need another way to sign in: an https address with a name, for passkeys, a mail server or a provider of accounts"))
	}
	return &People{
		Deps: d, hashing: make(chan struct{}, hashesAtOnce), limits: newLimits(), passkeys: passkeys, mailer: mailer, oidc: oidc,
	}, errors.Join(err1, err2, err3)
}

// Records that the API shows.
type (
	User       = toll.Person
	Member     = toll.Member
	Invitation = toll.Invitation
	Credential = toll.Credential
	Session    = toll.Session
)

// Workspace is a workspace of a person.
type Workspace struct {
	Address toll.Address
	Name    string
	Role    toll.Role
	Custody toll.Custody

	member store.Membership
}

// Admits reports whether a session that began at a moment has access to the workspace.
func (w Workspace) Admits(since time.Time) bool { return w.member.Admits(since) }

func userOf(u store.User) User { return User{ID: u.ID, Name: u.Name, Operator: u.Operator} }

// User returns a person. [store.ErrNotFound] for one who is unknown or disabled.
func (p *People) User(ctx context.Context, id toll.UUID) (User, error) {
	u, err := store.UserByID(ctx, p.Store, id)
	if err == nil && !u.DisabledAt.IsZero() {
		err = store.ErrNotFound
	}
	return userOf(u), err
}

// Workspaces lists the workspaces of a person, the oldest first.
func (p *People) Workspaces(ctx context.Context, user toll.UUID) ([]Workspace, error) {
	rows, err := store.MembershipsOf(ctx, p.Store, user)
	if err != nil {
		return nil, err
	}
	out := make([]Workspace, 0, len(rows))
	for _, m := range rows {
		row, err := store.PrincipalByAddress(ctx, p.Store, m.Workspace)
		if err != nil {
			return nil, err
		}
		out = append(out, Workspace{Address: m.Workspace, Name: row.Shown(), Role: m.Role, Custody: CustodyOf(row), member: m})
	}
	return out, nil
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

// Caller returns a person as a caller in a workspace, with the rights of the present role. [store.ErrNotFound] for who is not in.
func (p *People) Caller(ctx context.Context, workspace toll.Address, user toll.UUID) (auth.Caller, error) {
	role, err := p.Auth.RoleOf(ctx, p.Store, workspace, user)
	return auth.Caller{Address: workspace, UserID: user, Rights: role.Rights(), MadeBy: toll.MadeByUser}, err
}

// SignUp is what a person gives to sign up.
type SignUp struct {
	Name   string // shown to others; at most 100 printable characters
	Login  string // with which the person signs in by password
	Secret string // the password
	Link   string // secret of a link that lets the person in; may be empty where registration is open
}

// errClosed says that nobody signs up without a link.
var errClosed = toll.Errorf(toll.CodeForbidden, "Sign-up is by invitation here.").
	WithHint("Ask the operator of this service, or the owner of a workspace, for a link.")

// MaySignUp returns nil when a person with this link ("" for none) may sign up. The error is safe to show.
func (p *People) MaySignUp(ctx context.Context, secret string) error {
	if secret == "" {
		if p.Registration != Open {
			return errClosed
		}
		return nil
	}
	l, err := store.LinkByHash(ctx, p.Store, sumOf(secret))
	return p.usable(l, err, linkSignUp, linkOperator, linkJoin)
}

// SignUp makes a person with a password and a workspace of their own, of which the person is the owner; with a link to a workspace,
// also a membership there. The first workspace is the one to show. Errors are safe to show: [toll.CodeBadRequest],
// [toll.CodeForbidden], [toll.CodeExists] for a login name that is taken, [toll.CodeRateLimited], [toll.CodePasswordsOff].
func (p *People) SignUp(ctx context.Context, source string, in SignUp) (User, toll.Address, error) {
	if p.NoPasswords {
		return User{}, toll.Address{}, errPasswordsOff
	}
	login, err := parseLogin(in.Login)
	if err == nil {
		err = checkPassword(in.Secret, login)
	}
	if err == nil {
		err = p.MaySignUp(ctx, in.Link)
	}
	if err == nil {
		err = p.limits.signUp(source)
	}
	if err != nil {
		return User{}, toll.Address{}, err
	}
	hash, err := p.hash(ctx, in.Secret)
	if err != nil {
		return User{}, toll.Address{}, err
	}
	first := store.Credential{Kind: Password, Subject: login, Name: login, Secret: hash}
	return p.insert(ctx, newPerson{name: cleanName(in.Name, login), link: in.Link, first: first})
}

// newPerson is who signs up, with the first credential.
type newPerson struct {
	id         toll.UUID // zero: a new one
	name, link string
	first      store.Credential
	state      string // with which the person came, which is used up; "" for none
	ends       time.Time
}

// insert stores a new person with the first credential and the workspaces.
func (p *People) insert(ctx context.Context, n newPerson) (User, toll.Address, error) {
	link, first := n.link, n.first
	now := p.Clock()
	u := store.User{ID: cmp.Or(n.id, toll.NewTimeUUID(now)), Name: n.name, CreatedAt: now}
	var w store.Principal
	var err error
	if first.Kind == Wallet { // its address is the workspace
		w.Address, err = toll.ParseAddress(first.Subject)
	} else {
		w, err = p.Auth.NewPrincipal("")
	}
	if err != nil {
		return User{}, toll.Address{}, err
	}
	first.ID, first.UserID, first.CreatedAt, first.UsedAt = toll.NewTimeUUID(now), u.ID, now, now
	at := w.Address
	ctx = p.as(ctx, u.ID)
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		if n.state != "" {
			if err := p.claimState(ctx, tx, n.state, n.ends); err != nil {
				return err
			}
		}
		u.Operator, at = false, w.Address
		var acts []store.Act
		if link != "" {
			l, err := store.LockLink(ctx, tx, sumOf(link))
			if err := p.usable(l, err, linkSignUp, linkOperator, linkJoin); err != nil {
				return err
			}
			u.Operator = l.Kind == linkOperator
			l.UsedAt, l.UsedBy = now, u.ID
			if err := store.UpdateLink(ctx, tx, l); err != nil {
				return err
			}
			if l.Kind == linkJoin {
				act, err := p.join(ctx, tx, l, u.ID)
				if err != nil {
					return err
				}
				acts = append(acts, act)
				at, _ = toll.ParseAddress(l.Workspace)
			}
		}
		if err := store.InsertUser(ctx, tx, u); err != nil {
			return err
		}
		if err := store.InsertCredential(ctx, tx, first); err != nil {
			return err
		}
		made, err := p.ownWorkspace(ctx, tx, w, u)
		if err != nil {
			return err
		}
		acts = append(acts, made...)
		return p.audit(ctx, tx, acts...)
	})
	if store.IsUnique(err) {
		return User{}, toll.Address{}, errTaken
	}
	return userOf(u), at, err
}

// ownWorkspace makes the workspace of a new person.
func (p *People) ownWorkspace(ctx context.Context, tx *store.Tx, w store.Principal, u store.User) ([]store.Act, error) {
	if len(w.SealedKey) == 0 {
		return p.ownWallet(ctx, tx, u.ID, w.Address, u.Operator)
	}
	w.Operator = u.Operator
	if err := store.InsertPrincipal(ctx, tx, w); err != nil {
		return nil, err
	}
	own := store.Membership{Workspace: w.Address, UserID: u.ID, Role: toll.RoleOwner, CreatedAt: u.CreatedAt}
	return []store.Act{{Workspace: w.Address.Lower(), Act: "workspace.created", Object: w.Address.Lower()}}, store.InsertMembership(ctx, tx, own)
}

var errTaken = toll.Errorf(toll.CodeExists, "This login name is taken.").WithHint("Choose another one, or sign in.")

// as returns a context whose acts are those of a person, from where the context says already.
func (p *People) as(ctx context.Context, user toll.UUID) context.Context {
	who := store.ActorOf(ctx)
	who.Kind, who.ID = "user", user.String()
	return store.WithActor(ctx, who)
}

// audit notes acts in the order in which all transactions lock the logs.
func (p *People) audit(ctx context.Context, tx *store.Tx, acts ...store.Act) error {
	return store.AuditAll(ctx, tx, p.Clock(), acts...)
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
