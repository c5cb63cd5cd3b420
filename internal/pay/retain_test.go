package pay_test

import (
	"context"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const horizon = 400 * 24 * time.Hour

// Up to the horizon a repeat has the first answer, byte for byte. Behind it the repeat is refused by the end of its access token, a
// look-up names the horizon to those whose request it was, and for others nothing was ever there.
func TestRetained(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		token := s.token(p, s1, nil)
		ends := token.ExpiresAt.Time
		c := s.call(p, nil, token)
		h := c.hold(nil).AgentRequestID
		first := c.burn(h, nil)
		named := c.nonce("n1")
		second := named.burn("", nil)
		released := c.hold(nil).AgentRequestID
		must.Get(s.one().Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: released}))(s)
		retain := func() {
			t.Helper()
			for {
				more, err := s.one().ledger.Follow(s.ctx, ledger.Consumer{Rows: func(context.Context, *store.Tx, []store.JournalRow) error { return nil }})
				must.Do(s, err)
				if !more {
					break
				}
			}
			for more := true; more; {
				var err error
				more, err = s.one().ledger.CountUsage(s.ctx)
				must.Do(s, err)
			}
			for more := true; more; {
				var err error
				_, more, err = s.one().ledger.Retain(s.ctx, s.clock.now().Add(-horizon))
				must.Do(s, err)
			}
		}
		s.clock.set(ends.Add(horizon + time.Hour))
		retain()
		again, err := c.settle(s.at(1), h, nil)
		if err != nil || !again.Replayed || string(again.Raw) != string(first.Raw) {
			t.Fatalf("a repeat at the horizon: %v, %s", err, again.Raw)
		}
		if again, err = named.settle(s.at(1), "", nil); err != nil || string(again.Raw) != string(second.Raw) {
			t.Fatalf("a repeat by its nonce at the horizon: %v, %+v", err, again)
		}
		s.clock.set(ends.Add(horizon + time.Hour + time.Second))
		retain()
		for _, repeat := range []func(i *instance) (*x402.SettleResponse, error){
			func(i *instance) (*x402.SettleResponse, error) { return c.settle(i, h, nil) },
			func(i *instance) (*x402.SettleResponse, error) { return named.settle(i, "", nil) },
			func(i *instance) (*x402.SettleResponse, error) { return c.settle(i, released, nil) },
		} {
			r, err := repeat(s.at(1))
			if err != nil || r.Success || r.Code != toll.CodePermissionExpired {
				t.Errorf("a repeat behind the horizon: %v, %+v", err, r)
			}
		}
		tx := must.Get(toll.ParseHash(first.Transaction))(s)
		for _, party := range []toll.Address{b1, s1} {
			for _, id := range []string{h, released} {
				_, err = s.at(1).Requests.Settlement(s.ctx, party, id)
				s.code(err, toll.CodeSettlementGone)
				if days := toll.AsError(err).Params["keptDays"]; days != 400 {
					t.Errorf("the horizon is %v days", days)
				}
			}
			_, err = s.at(1).Requests.SettlementByTransaction(s.ctx, party, tx)
			s.code(err, toll.CodeSettlementGone)
		}
		for _, id := range []string{h, released} {
			_, err = s.at(1).Requests.Settlement(s.ctx, b2, id)
			s.code(err, toll.CodeSettlementNotFound)
		}
		_, err = s.at(1).Requests.SettlementByTransaction(s.ctx, b2, tx)
		s.code(err, toll.CodeSettlementNotFound)
		_, err = s.at(1).Release(s.ctx, b1, &x402.ReleaseRequest{AgentRequestID: h})
		s.code(err, toll.CodeReleaseOfSettled)
		balance, err := s.at(1).checkout.Balance(s.ctx, p, s1, false)
		if err != nil || balance.Balance != 90 {
			t.Errorf("the balance is %+v, %v", balance, err)
		}
	})
}
