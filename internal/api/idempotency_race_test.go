package api_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Calls at the same time under one Idempotency-Key all get the answer of the first, also where the first one took the last that
// there was: a trial, the last place of a plan, what a delegation had left.
// T40
func TestRacedForTheLast(t *testing.T) {
	for _, engine := range []store.Engine{store.SQLite, store.Postgres} {
		st, _ := storetest.Open(t, engine)
		card := railtest.New()
		card.Behave(railtest.Behaviour{Person: true})
		rails := rail.Rails{rail.Crypto: railtest.New(), rail.Card: card}
		s := newStackWith(t, st, rails)
		instances := []*stack{s, s}
		if engine == store.Postgres {
			instances[1] = newStackWith(t, st, rails)
		}
		trial := s.plan(s.b1, strings.Replace(freePlan, `{"name"`, `{"isTrialPlan":true,"name"`, 1))
		last := s.plan(s.b1, strings.Replace(freePlan, `{"name"`, `{"maxOrders":1,"name"`, 1))
		page := s.plan(s.b1, strings.Replace(cardPlan, `{"name"`, `{"maxOrders":1,"name"`, 1))
		paid := s.plan(s.b1, pricedPlan)
		delegation := s.do(s.s1, "POST", base+"/delegation/create", `{"provider":"erc4337","currency":"usdc","spendingLimitCents":100,"durationSecs":3600}`).
			text(t, "delegationId")
		for name, call := range map[string]struct{ path, body string }{
			"trial":      {"/protocol/plans/" + trial + "/order", ""},
			"last place": {"/protocol/plans/" + last + "/order", ""},
			"last page":  {"/protocol/plans/" + page + "/checkout", `{"sessionType":"hosted"}`},
			"last cents": {"/protocol/plans/" + paid + "/order", `{"delegationId":"` + delegation + `"}`},
		} {
			t.Run(string(engine)+"/"+name, func(t *testing.T) {
				answers := make([]answer, 30)
				var wait sync.WaitGroup
				for i := range answers {
					wait.Go(func() {
						answers[i] = instances[i%2].do(s.s1, "POST", base+call.path, call.body, "Idempotency-Key", "raced")
					})
				}
				wait.Wait()
				ids, first := map[string]int{}, 0
				for _, a := range answers {
					if a.status == 409 && a.code() == "BCK.COMMON.0902" {
						continue // the page is not open yet
					}
					if a.status != 200 {
						t.Fatalf("%d %s", a.status, a.body)
					}
					ids[a.text(t, "orderId")]++
					if a.header.Get("Idempotency-Replayed") == "" {
						first++
					}
				}
				if len(ids) != 1 || first != 1 {
					t.Errorf("%v, %d calls created", ids, first)
				}
			})
		}
	}
}
