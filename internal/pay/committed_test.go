package pay_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
)

// What a hold, a settlement or a release has written is kept, so that the next verify of the account reads nothing.
func TestCommitted(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 5))
		a := s.agent(nil, p)
		s.mint(p, s1, 20)
		token := s.token(p, s1, limit(10))
		c := s.call(p, a, token)
		id := ledger.NewAccountID(p.ID, s1)
		kept := func(balance, held, redeemed toll.Credits) {
			s.Helper()
			at := s.one()
			a, perm, ok := pay.Kept(at.Facilitator, id, token.PermissionHash)
			if !ok || a.Balance != balance || a.Held != held || perm.Redeemed != redeemed || perm.Held != held {
				s.Fatalf("kept (%v): balance %d, held %d and %d, redeemed %d; want %d, %d, %d",
					ok, a.Balance, a.Held, perm.Held, perm.Redeemed, balance, held, redeemed)
			}
			now, permission, err := at.ledger.Snapshot(s.ctx, id, token.PermissionHash)
			must.Do(s, err)
			if now.Seq != a.Seq || permission.OpenHolds != perm.OpenHolds || permission.ExpiresAt != perm.ExpiresAt {
				s.Fatalf("kept %+v and %+v, want %+v and %+v", a, perm, now, permission)
			}
		}
		v := c.hold(heldFor(5))
		kept(20, 5, 0)
		c.burn(v.AgentRequestID, amount(3))
		kept(17, 0, 3)
		c.burn("", amount(1))
		kept(16, 0, 4)
		s.clock.add(2 * time.Second)
		if _, _, ok := pay.Kept(s.one().Facilitator, id, token.PermissionHash); ok {
			s.Error("what another process may have changed since is kept for a second")
		}
	})
}
