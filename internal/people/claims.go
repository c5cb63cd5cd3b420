package people

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
)

// Claim makes a person the owner of a workspace that no person is in, by an API key of it that the operator made. It happens once: from
// then on the owner lets others in. Errors are safe to show.
func (p *People) Claim(ctx context.Context, source string, user toll.UUID, key string) (toll.Address, error) {
	if err := take(p.limits.tries, p.limits.began, source); err != nil {
		return toll.Address{}, err
	}
	c, err := p.Auth.Authenticate(ctx, []string{"Bearer " + key})
	if err != nil {
		return toll.Address{}, err
	}
	if c.MadeBy != toll.MadeLocally || c.Rights.Missing(toll.AllRights()) != "" || len(c.Rights) != len(toll.AllRights()) {
		return toll.Address{}, toll.Errorf(toll.CodeForbidden, "An account is claimed with an API key that has every right and that the operator made.").
			WithHint("Make one with toll keys create --local.")
	}
	err = p.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := store.LockPrincipal(ctx, tx, c.Address); err != nil { // of two who claim it one does
			return err
		}
		if err := p.Auth.Lock(ctx, tx, auth.Caller{KeyID: c.KeyID}); err != nil {
			return err
		}
		in, err := store.LockMembers(ctx, tx, c.Address)
		if err != nil {
			return err
		}
		if len(in) > 0 {
			return toll.Errorf(toll.CodeExists, "This account has people already.").WithHint("Ask one of its owners for an invitation.")
		}
		m := store.Membership{Workspace: c.Address, UserID: user, Role: toll.RoleOwner, CreatedAt: p.Clock()}
		if err := store.InsertMembership(ctx, tx, m); err != nil {
			return err
		}
		return p.audit(ctx, tx, store.Act{Workspace: c.Address.Lower(), Act: "workspace.claimed", Object: c.KeyID.String()})
	})
	return c.Address, err
}
