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

// Members lists the people of a workspace, the oldest membership first.
func (p *People) Members(ctx context.Context, workspace toll.Address) ([]toll.Member, error) {
	rows, err := store.MembersOf(ctx, p.Store, workspace)
	if err != nil {
		return nil, err
	}
	return p.members(ctx, rows)
}

func (p *People) members(ctx context.Context, rows []store.Membership) ([]toll.Member, error) {
	out := make([]toll.Member, len(rows))
	for i, m := range rows {
		u, err := store.UserByID(ctx, p.Store, m.UserID)
		if err != nil {
			return nil, err
		}
		out[i] = toll.Member{UserID: m.UserID, Name: u.Name, Role: m.Role, Since: toll.At(m.CreatedAt), SpendLimitCents: m.SpendLimit}
		if m.SpendLimit != nil {
			spent, err := store.SpentBy(ctx, p.Store, m.Workspace, m.UserID, p.Clock())
			if err != nil {
				return nil, err
			}
			out[i].SpentCents = &spent
		}
	}
	return out, nil
}

// MemberList is a part of [People.Members].
func (p *People) MemberList(ctx context.Context, workspace toll.Address, page store.Page) (out store.List[toll.Member], err error) {
	rows, err := store.MemberList(ctx, p.Store, workspace, page)
	if err != nil {
		return out, err
	}
	out.Total, out.Next = rows.Total, rows.Next
	out.Items, err = p.members(ctx, rows.Items)
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

// ChangeMember gives a member another role, a spending limit, or both. Keys and consents of the person have at most the rights of the new
// role within a second. A limit is a developer's: it ends with that role. It counts what is ordered and delegated from then on, with
// what the month has counted before, and ends nothing that was made before.
// Errors: [toll.CodeBadRequest], [toll.CodePersonNotFound], [toll.CodeLastOwner], [toll.CodeForbidden], [toll.CodeRightMissing].
func (p *People) ChangeMember(ctx context.Context, c auth.Caller, user toll.UUID, in MemberChange) (toll.Member, error) {
	if in.Role == nil && !in.SpendLimit.IsSet {
		return toll.Member{}, toll.Faults([]toll.Fault{{Path: "role", Message: "this or spendLimitCents is required"}})
	}
	if in.Role != nil && in.Role.Rights() == nil {
		_, err := toll.ParseRole(string(*in.Role))
		return toll.Member{}, err
	}
	var m store.Membership
	err := p.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		var last bool
		if m, last, err = member(ctx, tx, c.Address, user); err != nil {
			return err
		}
		before := m
		if in.Role != nil {
			m.Role = *in.Role
		}
		if err := errors.Join(p.manages(ctx, tx, c, before.Role), p.manages(ctx, tx, c, m.Role)); err != nil {
			return err
		}
		if last && m.Role != toll.RoleOwner {
			return errLastOwner
		}
		switch {
		case m.Role != toll.RoleDeveloper && in.SpendLimit.Value != nil:
			return toll.Faults([]toll.Fault{{Path: "spendLimitCents", Message: "is for the role developer alone"}})
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
		return p.audit(ctx, tx, acts...)
	})
	if err != nil {
		return toll.Member{}, err
	}
	out, err := p.members(ctx, []store.Membership{m})
	if err != nil {
		return toll.Member{}, err
	}
	return out[0], nil
}

// same reports whether two limits are equal, or both none.
func same(a, b *toll.Cents) bool { return a == b || a != nil && b != nil && *a == *b }

// Remove ends a membership with the API keys, access tokens and consents that stand under it, and pauses the webhooks whose address the
// member chose; with keep they stand under the membership of the caller, a person, from then on, with the rights that they had. A person may leave without the right to manage
// others. Errors: those of [People.ChangeMember]; with keep [toll.CodeRightMissing] when the caller lacks a right of what stays, and
// [toll.CodeForbidden] for who leaves.
func (p *People) Remove(ctx context.Context, c auth.Caller, user toll.UUID, keep bool) (toll.Removed, error) {
	var all *auth.Ending
	out := toll.Removed{Success: true, UserID: user}
	leaves := user == c.UserID && c.KeyID.IsZero()
	if keep && (leaves || c.UserID.IsZero()) {
		return out, toll.Errorf(toll.CodeForbidden, "What stands under a membership is kept by another member.").
			WithHint("Let an owner or an admin remove you, and keep it.")
	}
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		m, last, err := member(ctx, tx, c.Address, user)
		if err != nil {
			return err
		}
		if !leaves {
			if err := p.manages(ctx, tx, c, m.Role); err != nil {
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
			all, err = p.Auth.GiveOf(ctx, tx, c, user, m.Role.Rights())
		} else {
			all, err = p.Auth.EndOf(ctx, tx, c.Address, user)
		}
		if err != nil {
			return err
		}
		out.Webhooks = all.Webhooks()
		detail := store.Changed{Before: m.Role}
		if len(out.Webhooks) > 0 {
			detail.After = map[string]any{"webhooks": out.Webhooks}
		}
		return p.audit(ctx, tx, store.Act{Workspace: c.Address.Lower(), Act: "member.removed", Object: user.String(), Detail: detail})
	})
	if err != nil {
		return out, err
	}
	if keep {
		kept := p.Auth.Given(ctx, all)
		out.Kept = &kept
		return out, nil
	}
	out.Ended, err = p.Auth.Finish(ctx, all)
	return out, err
}

// Delete ends everything that lets anybody into the workspace of a person, who owns it: members, invitations, API keys, access tokens and
// consents. Its plans and agents are not listed any more, and its webhooks are gone. What was recorded stays: the ledger, orders,
// the audit log, and the sealed key of the wallet. The caller has found, beginning at the moment checked, that no order is open and no
// subscriber has anything left. Errors: [toll.CodeRightMissing] for who is no owner, also for an API key, and [toll.CodeWorkspaceOwes]
// when an order was placed since, or in the minute before: other machines may have a slower clock.
func (p *People) Delete(ctx context.Context, c auth.Caller, checked time.Time) (toll.WorkspaceDeleted, error) {
	out := toll.WorkspaceDeleted{Success: true, ID: c.Address.Lower()}
	var all *auth.Ending
	now := p.Clock()
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		in, err := store.LockMembers(ctx, tx, c.Address)
		if err != nil {
			return err
		}
		owner := slices.ContainsFunc(in, func(m store.Membership) bool { return m.UserID == c.UserID && m.Role.Rights().Has(toll.RightExport) })
		if !owner {
			return auth.Lacks(toll.RightExport)
		}
		if err := store.Unlist(ctx, tx, c.Address, now); err != nil { // first, so that no order begins behind the count of them
			return err
		}
		placed, err := store.OrdersSince(ctx, tx, c.Address, checked.Add(-time.Minute))
		if err != nil {
			return err
		}
		if placed > 0 {
			return toll.Errorf(toll.CodeWorkspaceOwes, "Orders of this workspace were placed within the last minute: %d.", placed).
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
		if all, err = p.Auth.EndAll(ctx, tx, c.Address); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{Workspace: out.ID, Act: "workspace.deleted", Object: out.ID, Detail: store.Changed{
			Before: map[string]int64{"members": out.Members, "invitations": out.Invitations},
		}})
	})
	if err != nil {
		return out, err
	}
	out.Ended, err = p.Auth.Finish(ctx, all)
	return out, err
}

// maxTitle bounds the name of a workspace, in characters.
const maxTitle = 100

// Rename gives the workspace of the caller another name, "" for none, which only its members see. Errors: [toll.CodeBadRequest].
func (p *People) Rename(ctx context.Context, c auth.Caller, name string) error {
	name = strings.TrimSpace(name)
	if name != cleanName(name, "") {
		return toll.Faults([]toll.Fault{{Path: "name", Message: "must be at most " + strconv.Itoa(maxTitle) + " printable characters"}})
	}
	return p.Store.Tx(ctx, func(tx *store.Tx) error {
		before, err := store.PrincipalByAddress(ctx, tx, c.Address)
		if err != nil {
			return err
		}
		if err := store.SetTitle(ctx, tx, c.Address, name); err != nil {
			return err
		}
		at := c.Address.Lower()
		return p.audit(ctx, tx, store.Act{Workspace: at, Act: "workspace.renamed", Object: at, Detail: store.Changed{Before: before.Title, After: name}})
	})
}

// personal returns the acts that note something about a person: one in each workspace of theirs.
func (p *People) personal(ctx context.Context, tx *store.Tx, user toll.UUID, act, kind string) []store.Act {
	all, err := store.MembershipsOf(ctx, tx, user)
	if err != nil {
		return nil // the transaction fails at its next statement
	}
	return store.Mapped(all, func(m store.Membership) store.Act {
		return store.Act{Workspace: m.Workspace.Lower(), Act: act, Object: user.String(), Detail: map[string]string{"kind": kind}}
	})
}
