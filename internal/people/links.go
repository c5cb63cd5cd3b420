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

// errLink is returned for every link that is unknown, used, or expired.
var errLink = toll.Errorf(toll.CodePersonNotFound, "This link was already used, has expired, or does not belong to this service.").WithHint("Request a new link.")

// usable returns nil for a link of one of these kinds that can be used now; err is that of reading it.
func usable(l store.Link, err error, now time.Time, kinds ...string) error {
	if errors.Is(err, store.ErrNotFound) {
		return errLink
	}
	if err == nil && (!l.UsedAt.IsZero() || !now.Before(l.EndsAt) || !slices.Contains(kinds, l.Kind)) {
		return errLink
	}
	return err
}

func invitationOf(l store.Link) toll.Invitation {
	return toll.Invitation{
		ID: toll.Hash(l.Hash).String(), Role: l.Role, Note: l.Note, CreatedAt: toll.At(l.CreatedAt), EndsAt: toll.At(l.EndsAt),
		InvitedBy: store.NonZero(l.MadeBy),
	}
}

// Links makes and reads links: invitations, sign-ups, and recovery.
type Links struct {
	store     *store.Store
	clock     func() time.Time
	limits    *limits
	members   *Members
	publicURL string
}

// Invite makes a link, returned only now, with which one person joins a workspace within 7 days. once may be nil. Errors:
// [toll.CodeRightMissing], [toll.CodeForbidden], [toll.CodeBadRequest], [toll.CodeRateLimited] for too many open invitations.
func (ls *Links) Invite(ctx context.Context, c auth.Caller, role toll.Role, note string, once *store.Once) (toll.Invitation, error) {
	if role.Rights() == nil {
		_, err := toll.ParseRole(string(role))
		return toll.Invitation{}, err
	}
	secret, hash := newSecret()
	now := ls.clock()
	l := store.Link{
		Hash: hash, Kind: linkJoin, Workspace: c.Address.Lower(), Role: role, MadeBy: c.UserID, Note: cleanName(note, ""),
		CreatedAt: now, EndsAt: now.Add(invitationLife),
	}
	out := invitationOf(l)
	out.Link = strings.TrimRight(ls.publicURL, "/") + "/join?link=" + secret
	err := ls.store.Tx(ctx, func(tx *store.Tx) error {
		if err := ls.members.manages(ctx, tx, c, role); err != nil {
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
			return toll.Errorf(toll.CodeRateLimited, "A workspace has at most 100 open invitations.").WithHint("Withdraw an invitation first.")
		}
		act := store.Act{Workspace: l.Workspace, Act: "member.invited", Object: toll.Hash(hash).String(), Detail: store.Changed{After: role}}
		return errors.Join(store.InsertLink(ctx, tx, l), store.PutAnswer(ctx, tx, once, &out), store.AuditAll(ctx, tx, ls.clock(), act))
	})
	return out, err
}

func (ls *Links) Invitations(ctx context.Context, workspace toll.Address) ([]toll.Invitation, error) {
	rows, err := store.LinksOf(ctx, ls.store, workspace.Lower(), ls.clock())
	return store.Mapped(rows, invitationOf), err
}

// Withdraw ends an open invitation. Errors: [toll.CodePersonNotFound], those of [Links.Invite].
func (ls *Links) Withdraw(ctx context.Context, c auth.Caller, id toll.Hash) error {
	return ls.store.Tx(ctx, func(tx *store.Tx) error {
		l, err := store.LockLink(ctx, tx, id[:])
		if err := usable(l, err, ls.clock(), linkJoin); err != nil {
			return err
		}
		if l.Workspace != c.Address.Lower() {
			return errLink
		}
		if err := ls.members.manages(ctx, tx, c, l.Role); err != nil {
			return err
		}
		l.EndsAt = ls.clock()
		return errors.Join(store.UpdateLink(ctx, tx, l), store.AuditAll(ctx, tx, ls.clock(), store.Act{Workspace: l.Workspace, Act: "invitation.withdrawn", Object: id.String()}))
	})
}

// OperatorLink is the kind of the link of the first person.
const OperatorLink = linkOperator

// Read returns what a link is for, without using it: its kind, and for an invitation the workspace. The error is safe to show.
func (ls *Links) Read(ctx context.Context, source, secret string) (kind string, to Workspace, err error) {
	if err := ls.limits.link(source); err != nil {
		return "", to, err
	}
	l, err := store.LinkByHash(ctx, ls.store, sumOf(secret))
	if err := usable(l, err, ls.clock(), linkJoin, linkSignUp, linkOperator); err != nil || l.Workspace == "" {
		return l.Kind, to, err
	}
	at, err := toll.ParseAddress(l.Workspace)
	if err != nil {
		return "", to, err
	}
	row, err := store.PrincipalByAddress(ctx, ls.store, at)
	return l.Kind, Workspace{Address: at, Name: row.Shown(), Role: l.Role, Custody: CustodyOf(row)}, err
}

// Join uses an invitation for a person who signed in. Errors: [toll.CodePersonNotFound]; [toll.CodeExists] for a member, which uses nothing.
func (ls *Links) Join(ctx context.Context, source string, user toll.UUID, secret string) (toll.Address, error) {
	if err := ls.limits.link(source); err != nil {
		return toll.Address{}, err
	}
	var at toll.Address
	ctx = as(ctx, user)
	err := ls.store.Tx(ctx, func(tx *store.Tx) error {
		l, err := store.LockLink(ctx, tx, sumOf(secret))
		if err := usable(l, err, ls.clock(), linkJoin); err != nil {
			return err
		}
		l.UsedAt, l.UsedBy = ls.clock(), user
		if err := store.UpdateLink(ctx, tx, l); err != nil {
			return err
		}
		act, err := join(ctx, tx, ls.clock(), l, user)
		if err != nil {
			return err
		}
		if at, err = toll.ParseAddress(l.Workspace); err != nil {
			return err
		}
		return store.AuditAll(ctx, tx, ls.clock(), act)
	})
	if store.IsUnique(err) {
		err = toll.Errorf(toll.CodeExists, "You are already a member of this workspace.")
	}
	return at, err
}

// join adds the membership of an invitation. Whoever invited must still be allowed to.
func join(ctx context.Context, tx *store.Tx, now time.Time, l store.Link, user toll.UUID) (store.Act, error) {
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
		return store.Act{}, toll.Errorf(toll.CodeForbidden, "This workspace has reached its limit of members.")
	}
	act := store.Act{Workspace: l.Workspace, Act: "member.joined", Object: user.String(), Detail: store.Changed{After: l.Role}}
	return act, addMember(ctx, tx, store.Membership{Workspace: at, UserID: user, Role: l.Role, CreatedAt: now})
}

// addMember stores a membership. The error has the code [toll.CodeForbidden] for a person with as many workspaces as allowed.
func addMember(ctx context.Context, tx *store.Tx, m store.Membership) error {
	in, err := store.MembershipsOf(ctx, tx, m.UserID)
	if err == nil && len(in) >= mostWorkspaces {
		err = toll.Errorf(toll.CodeForbidden, "You are a member of %d workspaces, which is the limit.", len(in)).WithHint("Leave a workspace first.")
	}
	if err != nil {
		return err
	}
	return store.InsertMembership(ctx, tx, m)
}

// First returns the link with which the first person, an operator, signs up, and "" once there is a person. Earlier links end.
func (ls *Links) First(ctx context.Context) (secret string, err error) {
	secret, hash := newSecret()
	now := ls.clock()
	err = ls.store.Tx(ctx, func(tx *store.Tx) error {
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

// Local makes a sign-up link or, with a login name or id, a recovery link. Errors: [store.ErrNotFound] for an unknown person.
func (ls *Links) Local(ctx context.Context, who string) (path string, ends time.Time, err error) {
	secret, hash := newSecret()
	now := ls.clock()
	l := store.Link{Hash: hash, Kind: linkSignUp, CreatedAt: now, EndsAt: now.Add(invitationLife)}
	path = "/sign-up?link=" + secret
	if who != "" {
		l.Kind, l.EndsAt = linkRecover, now.Add(recoverLife)
		if l.UserID, err = userNamed(ctx, ls.store, who); err != nil {
			return "", ends, err
		}
		path = "/recover?link=" + secret
	}
	act := store.Act{Act: "link.made", Object: l.Kind, Detail: map[string]string{"login": who}}
	return path, l.EndsAt, ls.store.Tx(ctx, func(tx *store.Tx) error {
		return errors.Join(store.InsertLink(ctx, tx, l), store.AuditAll(ctx, tx, ls.clock(), act))
	})
}
