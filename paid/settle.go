package paid

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// settle burns the amount under the id of the request. known is false when nobody can say whether it was burned; the
// answer then is settlement_pending.
func (x *exchange) settle(amount toll.Credits, tries int) (s *x402.SettleResponse, known bool) {
	s, known = x.hold.Settle(x.r.Context(), amount, tries)
	x.settled(s)
	return s, known
}

func (x *exchange) settled(s *x402.SettleResponse) {
	if x.c.afterSettle != nil {
		x.c.afterSettle(x.r, s)
	}
}

// release gives the hold back, where the route takes one.
func (x *exchange) release() {
	if x.c.hold {
		x.hold.Release(x.r.Context())
	}
}
