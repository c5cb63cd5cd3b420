package checkout_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Revenue is what orders say: paid ones in their hour, by currency, and what went back of them, also after it is counted anew.
func TestRevenue(t *testing.T) {
	eachRail(t, func(s *shop) {
		p, refunded, _ := s.bought(s.cardDelegation(1000), 0, nil)
		_, disputed, _ := s.bought(s.cardDelegation(1000), 0, nil)
		began := s.clock().Truncate(time.Hour)
		s.now.Add(time.Hour.Microseconds())
		coin := s.plan(usdc(100))
		var undone, redone string
		for i := range 3 {
			o := must.Get(s.order(i, holder, coin))(s)
			undone, redone = redone, o.OrderID
		}
		free := s.plan(nil)
		must.Get(s.order(0, holder, free))(s)
		must.Get(s.refund(refunded, ptr(toll.Cents(250))))(s)
		must.Do(s, s.rail.Dispute(disputed, store.DisputeOpen))
		s.undo(0, undone)
		s.undo(0, redone)
		s.redo(0, redone)
		price := s.state(redone).Amount
		check := func(q checkout.UsageQuery, want ...string) {
			t.Helper()
			s.audit() // counts
			q.Until = s.clock().Add(time.Hour)
			q.Page = store.Page{Ascending: true, Size: 100}
			list, r, err := s.at(0).Reports.Revenue(s.ctx, owner, q)
			must.Do(s, err)
			if !r.Counted.Equal(s.clock()) || int(list.Total) != len(want) || len(list.Items) != len(want) {
				s.Fatalf("%v: %d of %d, counted to %v", q.By, len(list.Items), list.Total, r.Counted)
			}
			for i, got := range list.Items {
				if text, _ := json.Marshal(got); string(text) != want[i] {
					s.Errorf("%s, not %s", text, want[i])
				}
			}
		}
		at := func(t time.Time) string { text, _ := toll.At(t).MarshalJSON(); return string(text) }
		card := `"currency":"USD","orders":2,"amount":"10000000","returnedOrders":2,"returned":"7500000"}`
		coins := `"currency":"USDC","orders":3,"amount":"` + toll.SumOf(nil).Add(price.Int()).Add(price.Int()).Add(price.Int()).String() +
			`","returnedOrders":1,"returned":"` + price.String() + `"}`
		for range 2 {
			check(checkout.UsageQuery{By: store.ByHour}, `{"start":`+at(began)+`,`+card, `{"start":`+at(began.Add(time.Hour))+`,`+coins)
			check(checkout.UsageQuery{By: store.ByPlan, Plan: coin.ID}, `{"planId":"`+string(coin.ID)+`",`+coins)
			check(checkout.UsageQuery{Plan: free.ID})
			must.Do(s, s.ledgers[0].RecountUsage(s.ctx))
		}
		s.adjust(disputed, rail.Adjustment{Dispute: store.DisputeOpen, DisputedCents: 100}) // of a part, after all
		list, _, err := s.at(0).Reports.Revenue(s.ctx, owner, checkout.UsageQuery{By: store.ByHour, Until: began.Add(time.Hour), Page: store.Page{Size: 9}})
		if must.Do(s, err); len(list.Items) != 1 || list.Items[0].Returned.String() != "3500000" {
			s.Errorf("%+v", list.Items)
		}
		if list, _, err := s.at(0).Reports.Revenue(s.ctx, holder, checkout.UsageQuery{}); err != nil || list.Total != 0 {
			s.Errorf("somebody else has revenue: %v, %v", list, err)
		}
		_, _, err = s.at(0).Reports.Revenue(s.ctx, holder, checkout.UsageQuery{Plan: p.ID})
		s.code(err, toll.CodeNotPlanOwner)
		_, _, err = s.at(0).Reports.Revenue(s.ctx, owner, checkout.UsageQuery{By: store.ByHour, Since: s.clock().Add(-32 * 24 * time.Hour)})
		s.code(err, toll.CodeBadRequest)
		s.audit()
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(s.ctx, "UPDATE revenue_hours SET amount = '1' WHERE plan_id = $1", string(coin.ID))
			return err
		}))
		if found, err := store.AuditUsage(s.ctx, s.store); err != nil || len(found) != 1 {
			s.Errorf("the audit sees %v, %v", found, err)
		}
		must.Do(s, s.ledgers[0].RecountUsage(s.ctx))
	})
}
