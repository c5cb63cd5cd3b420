package people

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// Members manages the people of a workspace and their roles.
type Members struct {
	store  *store.Store
	auth   *auth.Auth
	clock  func() time.Time
	limits *limits
}

func (ms *Members) render(ctx context.Context, rows []store.Membership) ([]toll.Member, error) {
	out := make([]toll.Member, len(rows))
	for i, m := range rows {
		u, err := store.UserByID(ctx, ms.store, m.UserID)
		if err != nil {
			return nil, err
		}
		out[i] = toll.Member{UserID: m.UserID, Name: u.Name, Role: m.Role, Since: toll.At(m.CreatedAt), SpendLimitCents: m.SpendLimit}
		if m.SpendLimit != nil {
			spent, err := store.SpentBy(ctx, ms.store, m.Workspace, m.UserID, ms.clock())
			if err != nil {
				return nil, err
			}
			out[i].SpentCents = &spent
		}
	}
	return out, nil
}

// Page lists the people of a workspace.
func (ms *Members) Page(ctx context.Context, workspace toll.Address, page store.Page) (out store.List[toll.Member], err error) {
	rows, err := store.MemberList(ctx, ms.store, workspace, page)
	if err != nil {
		return out, err
	}
	out.Total, out.Next = rows.Total, rows.Next
	out.Items, err = ms.render(ctx, rows.Items)
	return out, err
}

var (
	errLastOwner = toll.NewError(toll.CodeLastOwner)
	errNoMember  = toll.Errorf(toll.CodePersonNotFound, "This person is not a member of the workspace.")
)

// member returns a person of a workspace whose people are locked, and whether it is the last owner.
func member(ctx context.Context, tx *store.Tx, workspace toll.Address, user toll.UUID) (m store.Membership, last bool, err error) {
	all, err := store.LockMembers(ctx, tx, workspace)
	if err != nil {
		return m, false, err
	}
	owners := 0
	for _, one := range all {
		if one.Role == toll.RoleOwner {
			owners++
		}
	}
	at := slices.IndexFunc(all, func(one store.Membership) bool { return one.UserID == user })
	if at < 0 {
		return m, false, errNoMember
	}
	return all[at], all[at].Role == toll.RoleOwner && owners == 1, nil
}

// MemberChange is what becomes of a membership.
type MemberChange struct {
	Role       *toll.Role // nil: it stays
	SpendLimit toll.Change[toll.Cents]
}

// Change sets the role of a member, the spending limit, or both. Keys and consents of the member lose rights within a second. Only a
// developer has a limit, which counts what the month has counted before, and ends nothing. Errors: [toll.CodeBadRequest],
// [toll.CodePersonNotFound], [toll.CodeLastOwner], [toll.CodeForbidden], [toll.CodeRightMissing].
func (ms *Members) Change(ctx context.Context, c auth.Caller, user toll.UUID, in MemberChange) (toll.Member, error) {
	if in.Role == nil && !in.SpendLimit.IsSet {
		return toll.Member{}, toll.Faults([]toll.Fault{{Path: "role", Message: "is required if spendLimitCents is missing"}})
	}
	if in.Role != nil && in.Role.Rights() == nil {
		_, err := toll.ParseRole(string(*in.Role))
		return toll.Member{}, err
	}
	var m store.Membership
	err := ms.store.Tx(ctx, func(tx *store.Tx) (err error) {
		var last bool
		if m, last, err = member(ctx, tx, c.Address, user); err != nil {
			return err
		}
		before := m
		if in.Role != nil {
			m.Role = *in.Role
		}
		if err := errors.Join(ms.manages(ctx, tx, c, before.Role), ms.manages(ctx, tx, c, m.Role)); err != nil {
			return err
		}
		if last && m.Role != toll.RoleOwner {
			return errLastOwner
		}
		switch {
		case m.Role != toll.RoleDeveloper && in.SpendLimit.Value != nil:
			return toll.Faults([]toll.Fault{{Path: "spendLimitCents", Message: "is only for the role developer"}})
		case m.Role != toll.RoleDeveloper, in.SpendLimit.IsSet:
			m.SpendLimit = in.SpendLimit.Value
		}
		if err := store.UpdateMembership(ctx, tx, m); err != nil {
			return err
		}
		var acts []store.Act
		note := func(act string, was, is any) {
			acts = append(acts, store.Act{Workspace: c.Address.Lower(), Act: act, Object: user.String(), Detail: store.Changed{Before: was, After: is}})
		}
		if in.Role != nil {
			note("member.role", before.Role, m.Role)
		}
		if !same(before.SpendLimit, m.SpendLimit) {
			note("member.limit", before.SpendLimit, m.SpendLimit)
		}
		return store.AuditAll(ctx, tx, ms.clock(), acts...)
	})
	if err != nil {
		return toll.Member{}, err
	}
	out, err := ms.render(ctx, []store.Membership{m})
	if err != nil {
		return toll.Member{}, err
	}
	return out[0], nil
}

// same reports whether two limits are equal, or both none.
func same(a, b *toll.Cents) bool { return a == b || a != nil && b != nil && *a == *b }

// Remove ends a membership with its API keys, access tokens and consents, and pauses webhooks with an address of the member. keep moves
// them, with their rights, to the membership of the caller. Members may always leave. Errors: those of [Members.Change]; with keep
// [toll.CodeRightMissing] when the caller lacks one of these rights, and [toll.CodeForbidden] for a member who leaves.
func (ms *Members) Remove(ctx context.Context, c auth.Caller, user toll.UUID, keep bool) (toll.Removed, error) {
	var all *auth.Ending
	out := toll.Removed{Success: true, UserID: user}
	leaves := user == c.UserID && c.KeyID.IsZero()
	if keep && (leaves || c.UserID.IsZero()) {
		return out, toll.Errorf(toll.CodeForbidden, "To keep the API keys, access tokens, and apps of a member, "+
			"another member must remove that member.").
			WithHint("Ask an owner or admin to remove you and keep them.")
	}
	err := ms.store.Tx(ctx, func(tx *store.Tx) error {
		m, last, err := member(ctx, tx, c.Address, user)
		if err != nil {
			return err
		}
		if !leaves {
			if err := ms.manages(ctx, tx, c, m.Role); err != nil {
				return err
			}
		}
		if last {
			return errLastOwner
		}
		if err := store.DeleteMembership(ctx, tx, c.Address, user); err != nil {
			return err
		}
		if keep {
			all, err = ms.auth.GiveOf(ctx, tx, c, user, m.Role.Rights())
		} else {
			all, err = ms.auth.EndOf(ctx, tx, c.Address, user)
		}
		if err != nil {
			return err
		}
		out.Webhooks = all.Webhooks()
		detail := store.Changed{Before: m.Role}
		if len(out.Webhooks) > 0 {
			detail.After = map[string]any{"webhooks": out.Webhooks}
		}
		return store.AuditAll(ctx, tx, ms.clock(), store.Act{Workspace: c.Address.Lower(), Act: "member.removed", Object: user.String(), Detail: detail})
	})
	if err != nil {
		return out, err
	}
	if keep {
		kept := ms.auth.Given(ctx, all)
		out.Kept = &kept
		return out, nil
	}
	out.Ended, err = ms.auth.Finish(ctx, all)
	return out, err
}

// Delete ends every access to the workspace of an owner: members, invitations, API keys, access tokens, and consents. It unlists plans
// and agents and deletes webhooks. The ledger, orders, the audit log, and the sealed key stay. The caller checked, from the moment
// checked on, that no order is open and subscribers have nothing left. Errors: [toll.CodeRightMissing] unless the caller is an owner,
// [toll.CodeWorkspaceOwes] for an order since checked or in the minute before it, because clocks differ.
func (ms *Members) Delete(ctx context.Context, c auth.Caller, checked time.Time) (toll.WorkspaceDeleted, error) {
	out := toll.WorkspaceDeleted{Success: true, ID: c.Address.Lower()}
	var all *auth.Ending
	now := ms.clock()
	err := ms.store.Tx(ctx, func(tx *store.Tx) error {
		in, err := store.LockMembers(ctx, tx, c.Address)
		if err != nil {
			return err
		}
		owner := slices.ContainsFunc(in, func(m store.Membership) bool { return m.UserID == c.UserID && m.Role.Rights().Has(toll.RightExport) })
		if !owner {
			return auth.MissingRight(toll.RightExport)
		}
		if err := store.Unlist(ctx, tx, c.Address, now); err != nil { // first, so that no order begins behind the count of them
			return err
		}
		placed, err := store.OrdersSince(ctx, tx, c.Address, checked.Add(-time.Minute))
		if err != nil {
			return err
		}
		if placed > 0 {
			return toll.Errorf(toll.CodeWorkspaceOwes, "The workspace cannot be deleted yet. Orders placed within the last minute: %d.", placed).
				WithHint("Try again in a minute.")
		}
		for _, m := range in {
			if err := store.DeleteMembership(ctx, tx, c.Address, m.UserID); err != nil {
				return err
			}
		}
		out.Members = int64(len(in))
		if out.Invitations, err = store.EndLinksOf(ctx, tx, out.ID, now); err != nil {
			return err
		}
		if err := store.DeleteWebhooks(ctx, tx, c.Address); err != nil {
			return err
		}
		if all, err = ms.auth.EndAll(ctx, tx, c.Address); err != nil {
			return err
		}
		return store.AuditAll(ctx, tx, ms.clock(), store.Act{Workspace: out.ID, Act: "workspace.deleted", Object: out.ID, Detail: store.Changed{
			Before: map[string]int64{"members": out.Members, "invitations": out.Invitations},
		}})
	})
	if err != nil {
		return out, err
	}
	out.Ended, err = ms.auth.Finish(ctx, all)
	return out, err
}

// maxTitle bounds the name of a workspace, in characters.
const maxTitle = 100

// checkTitle returns the name of a workspace without blanks around it, or [toll.CodeBadRequest] for the member path.
func checkTitle(path, name string) (string, error) {
	name = strings.TrimSpace(name)
	if name != cleanName(name, "") {
		return "", toll.Faults([]toll.Fault{{Path: path, Message: "must be at most " + strconv.Itoa(maxTitle) + " printable characters"}})
	}
	return name, nil
}

// Rename gives the workspace of the caller another name, "" for none, which only its members see. Errors: [toll.CodeBadRequest].
func (ms *Members) Rename(ctx context.Context, c auth.Caller, name string) error {
	name, err := checkTitle("name", name)
	if err != nil {
		return err
	}
	return ms.store.Tx(ctx, func(tx *store.Tx) error {
		before, err := store.PrincipalByAddress(ctx, tx, c.Address)
		if err != nil {
			return err
		}
		at := c.Address.Lower()
		act := store.Act{Workspace: at, Act: "workspace.renamed", Object: at, Detail: store.Changed{Before: before.Title, After: name}}
		return errors.Join(store.SetTitle(ctx, tx, c.Address, name), store.AuditAll(ctx, tx, ms.clock(), act))
	})
}

// Claim makes a person the owner of a workspace without people, by an API key that the operator made. Errors are safe to show.
func (ms *Members) Claim(ctx context.Context, source string, user toll.UUID, key string) (toll.Address, error) {
	if err := ms.limits.attempt(source); err != nil {
		return toll.Address{}, err
	}
	c, err := ms.auth.Authenticate(ctx, []string{"Bearer " + key})
	if err != nil {
		return toll.Address{}, err
	}
	if c.MadeBy != toll.MadeLocally || c.Rights.Missing(toll.AllRights()) != "" || len(c.Rights) != len(toll.AllRights()) {
		return toll.Address{}, toll.Errorf(toll.CodeForbidden, "To claim a workspace, use an API key that the operator created with every right.").
			WithHint("Create the key with toll keys create --local.")
	}
	err = ms.store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.LockPrincipal(ctx, tx, c.Address); err != nil { // of two who claim it one does
			return err
		}
		if err := ms.auth.Lock(ctx, tx, auth.Caller{KeyID: c.KeyID}); err != nil {
			return err
		}
		in, err := store.LockMembers(ctx, tx, c.Address)
		if err != nil {
			return err
		}
		if len(in) > 0 {
			return toll.Errorf(toll.CodeExists, "This workspace already has members.").WithHint("Ask an owner for an invitation.")
		}
		m := store.Membership{Workspace: c.Address, UserID: user, Role: toll.RoleOwner, CreatedAt: ms.clock()}
		return errors.Join(addMember(ctx, tx, m), store.AuditAll(ctx, tx, ms.clock(), store.Act{Workspace: c.Address.Lower(), Act: "workspace.claimed", Object: c.KeyID.String()}))
	})
	return c.Address, err
}

// manages returns nil when a caller may give, change or end a role: a person, or the operator's key while the workspace has no people.
func (ms *Members) manages(ctx context.Context, tx *store.Tx, c auth.Caller, role toll.Role) error {
	if !c.Rights.Has(toll.RightMembers) {
		return auth.MissingRight(toll.RightMembers)
	}
	if c.UserID.IsZero() {
		manned, err := store.AnyMember(ctx, tx, c.Address)
		if err == nil && (manned || c.MadeBy != toll.MadeLocally) {
			err = toll.NewError(toll.CodePersonNeeded)
		}
		if err != nil {
			return err
		}
		return ms.auth.Lock(ctx, tx, c)
	}
	m, err := store.ShareMembership(ctx, tx, c.Address, c.UserID)
	if errors.Is(err, store.ErrNotFound) || err == nil && !m.Role.Rights().Has(toll.RightMembers) {
		return auth.MissingRight(toll.RightMembers)
	}
	if err == nil && !m.Role.Manages(role) {
		return toll.Errorf(toll.CodeForbidden, "Only an owner can manage owners.")
	}
	return err
}

// Sessions lists the sessions in which a member, managed by the caller, used the workspace, with the last use there. Errors:
// [toll.CodePersonNotFound], [toll.CodeForbidden], [toll.CodeRightMissing].
func (ms *Members) Sessions(ctx context.Context, c auth.Caller, user toll.UUID, page store.Page) (all store.List[toll.Session], err error) {
	var m store.Membership
	err = ms.store.Tx(ctx, func(tx *store.Tx) error {
		m, err = ms.managesMember(ctx, tx, c, user)
		return err
	})
	if err != nil {
		return all, err
	}
	rows, err := store.MemberSessionList(ctx, ms.store, m, ms.clock(), page)
	if err != nil {
		return all, err
	}
	for i := range rows.Items {
		use, err := store.SessionUseOf(ctx, ms.store, rows.Items[i].ID, c.Address)
		if err != nil {
			return all, err
		}
		rows.Items[i].UsedAt = use.UsedAt
	}
	return store.Map(rows, sessionOf), nil
}

// EndSessions ends the access of all sessions of a member to the workspace of the caller, not elsewhere, and returns how many were used
// there. Errors: those of [Members.Sessions].
func (ms *Members) EndSessions(ctx context.Context, c auth.Caller, user toll.UUID) (n int64, err error) {
	err = ms.store.Tx(ctx, func(tx *store.Tx) error {
		m, err := ms.managesMember(ctx, tx, c, user)
		if err != nil {
			return err
		}
		ended, err := store.MemberSessionList(ctx, tx, m, ms.clock(), store.Page{Number: 1, Size: 1})
		if err != nil {
			return err
		}
		n, m.SessionsFrom = ended.Total, ms.clock()
		return errors.Join(store.UpdateMembership(ctx, tx, m), store.AuditAll(ctx, tx, ms.clock(), store.Act{Workspace: c.Address.Lower(), Act: "session.ended", Object: user.String()}))
	})
	return n, err
}

// managesMember returns a member, locked, whom a caller may change.
func (ms *Members) managesMember(ctx context.Context, tx *store.Tx, c auth.Caller, user toll.UUID) (store.Membership, error) {
	m, err := store.LockMembership(ctx, tx, c.Address, user)
	if err != nil {
		return m, store.NotFoundAs(err, errNoMember)
	}
	return m, ms.manages(ctx, tx, c, m.Role)
}

// personal returns the acts that note something about a person: one in each workspace of theirs.
func personal(ctx context.Context, tx *store.Tx, user toll.UUID, act, kind string) []store.Act {
	all, err := store.MembershipsOf(ctx, tx, user)
	if err != nil {
		return nil // the transaction fails at its next statement
	}
	return store.Mapped(all, func(m store.Membership) store.Act {
		return store.Act{Workspace: m.Workspace.Lower(), Act: act, Object: user.String(), Detail: map[string]string{"kind": kind}}
	})
}
