package pay_test

import (
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// A refusal counts in words that are right for one, too.
func TestRefusal_Text(t *testing.T) {
	each(t, func(s *scene) {
		for _, c := range []struct {
			least, most  toll.Credits
			amount, want string
		}{
			{1, 1, "", "1 credit needed, 0 available. The subscriber has never ordered this plan."},
			{1, 1, "2", "A request of this plan costs 1 credit."},
			{5, 5, "2", "A request of this plan costs 5 credits."},
			{1, 10, "11", "A request of this plan costs 1 to 10 credits."},
		} {
			p := s.plan(dynamic(c.least, c.most))
			v := must.Get(s.call(p, nil, s.token(p, s1, nil)).stock(c.amount).verify(s.one()))(s)
			if v.IsValid || v.InvalidMessage != c.want {
				s.Errorf("valid %v, %q; want %q", v.IsValid, v.InvalidMessage, c.want)
			}
		}
	})
}
