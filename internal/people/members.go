package people

import (
	"context"
	"errors"
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// Members lists the people of a workspace, the oldest membership first.
func (p *People) Members(ctx context.Context, workspace toll.Address) ([]Member, error) {
	rows, err := store.MembersOf(ctx, p.Store, workspace)
	if err != nil {
		return nil, err
	}
	out := make([]Member, len(rows))
	for i, m := range rows {
		u, err := store.UserByID(ctx, p.Store, m.UserID)
		if err != nil {
			return nil, err
		}
		out[i] = Member{UserID: m.UserID, Name: u.Name, Role: m.Role, Since: toll.At(m.CreatedAt)}
	}
	return out, nil
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

// SetRole gives a member another role. Keys and consents of the person have at most the rights of the new one within a second.
// Errors: [toll.CodePersonNotFound], [toll.CodeLastOwner], [toll.CodeForbidden], [toll.CodeRightMissing].
func (p *People) SetRole(ctx context.Context, c auth.Caller, user toll.UUID, role toll.Role) (Member, error) {
	if role.Rights() == nil {
		_, err := toll.ParseRole(string(role))
		return Member{}, err
	}
	var m store.Membership
	err := p.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		var last bool
		if m, last, err = member(ctx, tx, c.Address, user); err != nil {
			return err
		}
		if err := errors.Join(p.manages(ctx, tx, c, m.Role), p.manages(ctx, tx, c, role)); err != nil {
			return err
		}
		if last && role != toll.RoleOwner {
			return errLastOwner
		}
		before := m.Role
		m.Role = role
		if err := store.UpdateMembership(ctx, tx, m); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{
			Workspace: c.Address.Lower(), Act: "member.role", Object: user.String(), Detail: store.Changed{Before: before, After: role},
		})
	})
	if err != nil {
		return Member{}, err
	}
	u, err := store.UserByID(ctx, p.Store, user)
	return Member{UserID: user, Name: u.Name, Role: m.Role, Since: toll.At(m.CreatedAt)}, err
}

// Remove ends a membership with the API keys, access tokens and consents that stand under it. A person may leave without the right
// to manage others. Errors: those of [People.SetRole].
func (p *People) Remove(ctx context.Context, c auth.Caller, user toll.UUID) (toll.Ended, error) {
	var all *auth.Ending
	err := p.Store.Tx(ctx, func(tx *store.Tx) error {
		m, last, err := member(ctx, tx, c.Address, user)
		if err != nil {
			return err
		}
		if leaves := user == c.UserID && c.KeyID.IsZero(); !leaves {
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
		if all, err = p.Auth.EndOf(ctx, tx, c.Address, user); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{
			Workspace: c.Address.Lower(), Act: "member.removed", Object: user.String(), Detail: store.Changed{Before: m.Role},
		})
	})
	if err != nil {
		return toll.Ended{}, err
	}
	return p.Auth.Finish(ctx, all)
}

// personal returns the acts that note something about a person: one in each workspace of theirs.
func (p *People) personal(ctx context.Context, tx *store.Tx, user toll.UUID, act, kind string) []store.Act {
	all, err := store.MembershipsOf(ctx, tx, user)
	if err != nil {
		return nil // the transaction fails at its next statement
	}
	acts := make([]store.Act, 0, len(all))
	for _, m := range all {
		acts = append(acts, store.Act{Workspace: m.Workspace.Lower(), Act: act, Object: user.String(), Detail: map[string]string{"kind": kind}})
	}
	return acts
}
