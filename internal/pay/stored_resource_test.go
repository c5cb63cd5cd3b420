package pay_test

import (
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// TestResourceThatCannotBeStored: a url with a NUL or bytes that are not UTF-8 is refused on both engines before it comes
// to the ledger, where PostgreSQL would fail the batch of everybody else with it.
func TestResourceThatCannotBeStored(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		for _, url := range []string{"https://a.example/\x00", "/a\x00b", "https://a.example/\xff"} {
			c.required.Resource.URL = url
			_, err := c.verify(s.one(), held)
			s.code(err, toll.CodeBadRequest)
			r, err := s.one().Settle(s.ctx, c.caller, &x402.SettleRequest{PaymentRequired: c.required, AccessToken: c.token})
			if err != nil || r.Success || r.Code != toll.CodeBadRequest {
				s.Errorf("%q: settle got %+v, %v", url, r, err)
			}
		}
	})
}
