package people

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// Kinds of links.
const (
	linkJoin     = "join"     // a workspace
	linkSignUp   = "sign_up"  // where registration is by invitation
	linkOperator = "operator" // the first person, who is an operator
	linkRecover  = "recover"  // a person who lost all credentials
)

const (
	invitationLife = 7 * 24 * time.Hour
	operatorLife   = 24 * time.Hour
	recoverLife    = time.Hour
	// mostInvitations bounds the open invitations of a workspace.
	mostInvitations = 100
)

// errLink is the one answer to a link that is unknown, used or over.
var errLink = toll.Errorf(toll.CodePersonNotFound, "This link was used, has ended, or is not one of this service.").WithHint("Ask for a new one.")

// usable returns nil for a link of one of these kinds that can be used now; err is that of reading it.
func (p *People) usable(l store.Link, err error, kinds ...string) error {
	if errors.Is(err, store.ErrNotFound) {
		return errLink
	}
	if err == nil && (!l.UsedAt.IsZero() || !p.Clock().Before(l.EndsAt) || !slices.Contains(kinds, l.Kind)) {
		return errLink
	}
	return err
}

func invitationOf(l store.Link) toll.Invitation {
	i := toll.Invitation{
		ID: toll.Hash(l.Hash).String(), Role: l.Role, Note: l.Note, CreatedAt: toll.At(l.CreatedAt), EndsAt: toll.At(l.EndsAt),
	}
	if !l.MadeBy.IsZero() {
		i.InvitedBy = &l.MadeBy
	}
	return i
}

// manages returns nil when a caller may give, change or end a role: a person, or the operator's key while the workspace has no people.
func (p *People) manages(ctx context.Context, tx *store.Tx, c auth.Caller, role toll.Role) error {
	if !c.Rights.Has(toll.RightMembers) {
		return auth.Lacks(toll.RightMembers)
	}
	if c.UserID.IsZero() {
		manned, err := p.Manned(ctx, tx, c.Address)
		if err == nil && (manned || c.MadeBy != toll.MadeLocally) {
			err = toll.NewError(toll.CodePersonNeeded)
		}
		if err != nil {
			return err
		}
		return p.Auth.Lock(ctx, tx, c)
	}
	m, err := store.ShareMembership(ctx, tx, c.Address, c.UserID)
	if errors.Is(err, store.ErrNotFound) {
		return auth.Lacks(toll.RightMembers)
	}
	if err == nil && !m.Role.Rights().Has(toll.RightMembers) {
		return auth.Lacks(toll.RightMembers)
	}
	if err == nil && !m.Role.Manages(role) {
		return toll.Errorf(toll.CodeForbidden, "Only an owner manages owners.")
	}
	return err
}

// Invite makes a link with which one person joins a workspace, within 7 days. The link is there once. once
// may be nil. Errors: [toll.CodeRightMissing], [toll.CodeForbidden], [toll.CodeBadRequest], [toll.CodeRateLimited] for too many open ones.
func (p *People) Invite(ctx context.Context, c auth.Caller, role toll.Role, note string, once *store.Once) (toll.Invitation, error) {
	if role.Rights() == nil {
		_, err := toll.ParseRole(string(role))
		return toll.Invitation{}, err
	}
	secret, hash := newSecret()
	now := p.Clock()
	l := store.Link{
		Hash: hash, Kind: linkJoin, Workspace: c.Address.Lower(), Role: role, MadeBy: c.UserID, Note: cleanName(note, ""),
		CreatedAt: now, EndsAt: now.Add(invitationLife),
	}
	out := invitationOf(l)
	out.Link = strings.TrimRight(p.PublicURL, "/") + "/join?link=" + secret
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := p.manages(ctx, tx, c, role); err != nil {
			return err
		}
		if err := store.DropLinks(ctx, tx, now.Add(-invitationLife)); err != nil {
			return err
		}
		open, err := store.LinksOf(ctx, tx, l.Workspace, now)
		if err != nil {
			return err
		}
		if len(open) >= mostInvitations {
			return toll.Errorf(toll.CodeRateLimited, "A workspace has at most 100 open invitations.").WithHint("Withdraw some first.")
		}
		if err := store.InsertLink(ctx, tx, l); err != nil {
			return err
		}
		if err := store.PutAnswer(ctx, tx, once, &out); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{Workspace: l.Workspace, Act: "member.invited", Object: toll.Hash(hash).String(), Detail: store.Changed{After: role}})
	})
	return out, err
}

// Invitations lists the open invitations of a workspace.
func (p *People) Invitations(ctx context.Context, workspace toll.Address) ([]toll.Invitation, error) {
	rows, err := store.LinksOf(ctx, p.Store, workspace.Lower(), p.Clock())
	return store.Mapped(rows, invitationOf), err
}

// Withdraw ends an open invitation. Errors: [toll.CodePersonNotFound], those of [People.Invite].
func (p *People) Withdraw(ctx context.Context, c auth.Caller, id toll.Hash) error {
	return p.Store.Tx(ctx, func(tx *store.Tx) error {
		l, err := store.LockLink(ctx, tx, id[:])
		if err := p.usable(l, err, linkJoin); err != nil {
			return err
		}
		if l.Workspace != c.Address.Lower() {
			return errLink
		}
		if err := p.manages(ctx, tx, c, l.Role); err != nil {
			return err
		}
		l.EndsAt = p.Clock()
		if err := store.UpdateLink(ctx, tx, l); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{Workspace: l.Workspace, Act: "invitation.withdrawn", Object: id.String()})
	})
}

// OperatorLink is the kind of the link of the first person.
const OperatorLink = linkOperator

// ReadLink returns what a link is for, without using it: its kind, and for an invitation the workspace. The error is safe to show.
func (p *People) ReadLink(ctx context.Context, source, secret string) (kind string, to Workspace, err error) {
	if err := p.limits.link(source); err != nil {
		return "", to, err
	}
	l, err := store.LinkByHash(ctx, p.Store, sumOf(secret))
	if err := p.usable(l, err, linkJoin, linkSignUp, linkOperator); err != nil || l.Workspace == "" {
		return l.Kind, to, err
	}
	at, err := toll.ParseAddress(l.Workspace)
	if err != nil {
		return "", to, err
	}
	row, err := store.PrincipalByAddress(ctx, p.Store, at)
	return l.Kind, Workspace{Address: at, Name: row.Shown(), Role: l.Role, Custody: CustodyOf(row)}, err
}

// Join makes a person who signed in a member of the workspace of an invitation, once. Errors: [toll.CodePersonNotFound],
// [toll.CodeExists] for who is in already, whose invitation stays open for somebody else.
func (p *People) Join(ctx context.Context, source string, user toll.UUID, secret string) (toll.Address, error) {
	if err := p.limits.link(source); err != nil {
		return toll.Address{}, err
	}
	var at toll.Address
	ctx = p.as(ctx, user)
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		l, err := store.LockLink(ctx, tx, sumOf(secret))
		if err := p.usable(l, err, linkJoin); err != nil {
			return err
		}
		l.UsedAt, l.UsedBy = p.Clock(), user
		if err := store.UpdateLink(ctx, tx, l); err != nil {
			return err
		}
		act, err := p.join(ctx, tx, l, user)
		if err != nil {
			return err
		}
		if at, err = toll.ParseAddress(l.Workspace); err != nil {
			return err
		}
		return p.audit(ctx, tx, act)
	})
	if store.IsUnique(err) {
		err = toll.Errorf(toll.CodeExists, "You are a member of this workspace already.")
	}
	return at, err
}

// join adds the membership of an invitation. Whoever invited must still be allowed to.
func (p *People) join(ctx context.Context, tx *store.Tx, l store.Link, user toll.UUID) (store.Act, error) {
	at, err := toll.ParseAddress(l.Workspace)
	if err != nil {
		return store.Act{}, err
	}
	people, err := store.LockMembers(ctx, tx, at)
	if err != nil {
		return store.Act{}, err
	}
	if !l.MadeBy.IsZero() && !slices.ContainsFunc(people, func(m store.Membership) bool {
		return m.UserID == l.MadeBy && m.Role.Rights().Has(toll.RightMembers) && m.Role.Manages(l.Role)
	}) {
		return store.Act{}, errLink
	}
	if len(people) >= mostMembers {
		return store.Act{}, toll.Errorf(toll.CodeForbidden, "This workspace has as many members as it may have.")
	}
	act := store.Act{Workspace: l.Workspace, Act: "member.joined", Object: user.String(), Detail: store.Changed{After: l.Role}}
	return act, store.InsertMembership(ctx, tx, store.Membership{Workspace: at, UserID: user, Role: l.Role, CreatedAt: p.Clock()})
}

// FirstLink makes the link with which the first person signs up, who is an operator. "" when somebody has signed up. Links of earlier
// starts end.
func (p *People) FirstLink(ctx context.Context) (secret string, err error) {
	secret, hash := newSecret()
	now := p.Clock()
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		if any, err := store.AnyUser(ctx, tx); err != nil || any {
			secret = ""
			return err
		}
		if err := store.EndLinks(ctx, tx, linkOperator, now); err != nil {
			return err
		}
		return store.InsertLink(ctx, tx, store.Link{Hash: hash, Kind: linkOperator, CreatedAt: now, EndsAt: now.Add(operatorLife)})
	})
	return secret, err
}

// LocalLink makes a link on the database itself: for a sign-up, or, with the login name or the id of a person, to recover access.
// Errors: [store.ErrNotFound] for a person who is unknown.
func (p *People) LocalLink(ctx context.Context, who string) (path string, ends time.Time, err error) {
	secret, hash := newSecret()
	now := p.Clock()
	l := store.Link{Hash: hash, Kind: linkSignUp, CreatedAt: now, EndsAt: now.Add(invitationLife)}
	path = "/sign-up?link=" + secret
	if who != "" {
		l.Kind, l.EndsAt = linkRecover, now.Add(recoverLife)
		if l.UserID, err = p.userNamed(ctx, who); err != nil {
			return "", ends, err
		}
		path = "/recover?link=" + secret
	}
	act := store.Act{Act: "link.made", Object: l.Kind, Detail: map[string]string{"login": who}}
	return path, l.EndsAt, p.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.InsertLink(ctx, tx, l); err != nil {
			return err
		}
		return p.audit(ctx, tx, act)
	})
}

// Disable keeps a person out, or lets them in again, on the database itself. who is a login name or an id. Nobody signs in as a person
// who is disabled; their sessions end, and so do, in every workspace, the API keys and consents under their membership, with the
// access tokens of those. Webhooks whose address they chose are paused. A call that failed is made again. Errors: [store.ErrNotFound] for a person who is unknown.
func (p *People) Disable(ctx context.Context, who string, disabled bool) (User, error) {
	id, err := p.userNamed(ctx, who)
	if err != nil {
		return User{}, err
	}
	var u store.User
	var in []store.Membership
	err = p.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		if u, err = store.LockUser(ctx, tx, id); err != nil {
			return err
		}
		act := store.Act{Act: "person.enabled", Object: id.String()}
		if u.DisabledAt, in = (time.Time{}), nil; disabled {
			act.Act, u.DisabledAt = "person.disabled", p.Clock()
			if _, err := store.DeleteBrowserSessions(ctx, tx, id, "", ""); err != nil {
				return err
			}
			if in, err = store.MembershipsOf(ctx, tx, id); err != nil {
				return err
			}
		}
		return errors.Join(store.UpdateUser(ctx, tx, u), p.audit(ctx, tx, act))
	})
	for _, m := range in { // jobs end their access tokens
		if err == nil {
			err = p.Store.Tx(ctx, func(tx *store.Tx) error {
				_, err := p.Auth.EndOf(ctx, tx, m.Workspace, id)
				return err
			})
		}
	}
	return userOf(u), err
}

// userNamed returns the person of an id or a login name. An id comes first: a login name can look like one.
func (p *People) userNamed(ctx context.Context, who string) (id toll.UUID, err error) {
	if id.UnmarshalText([]byte(who)) == nil {
		u, err := store.UserByID(ctx, p.Store, id)
		return u.ID, err
	}
	c, err := store.CredentialBySubject(ctx, p.Store, Password, strings.ToLower(who))
	return c.UserID, err
}
