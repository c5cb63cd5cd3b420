package pay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Refusals are counted by reason without a write, and one write adds them all. Callers who do not own the plan count for nobody.
// T175
func TestRefusalsAreCounted(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(func(p *toll.Plan) { p.Owner = b2 })
		a := s.agent(nil, p)
		good := s.call(p, a, s.token(p, s1, nil))
		i := s.one()
		refusals := func(by store.UsageBy, owner toll.Address) string {
			t.Helper()
			list := must.Get(store.Refusals(s.ctx, i.store, store.UsageFilter{
				By: by, Owner: owner, Since: start.Add(-time.Hour), Until: start.Add(24 * time.Hour),
			}, "", store.Page{Ascending: true}))(s)
			out := ""
			for _, r := range list.Items {
				out += fmt.Sprintf("%s%s%s %d;", r.PlanID, r.AgentID, r.Reason, r.Refused)
			}
			return out
		}
		for range 1000 {
			v, err := good.verify(i, nil) // it never ordered the plan
			s.invalid(v, err, x402.ReasonInsufficientFunds)
		}
		foreign := s.call(q, a, s.token(q, s1, nil))
		foreign.caller = b1 // who does not own the plan
		for range 3 {
			_, _ = foreign.verify(i, nil)
		}
		if got := refusals(store.ByReason, b1); got != "" {
			s.Errorf("before a write there are %s", got)
		}
		for range 2 {
			must.Do(s, i.WriteRefusals(s.ctx))
		}
		if got := refusals(store.ByReason, b1); got != "insufficient_funds 1000;" {
			s.Errorf("by reason: %s", got)
		}
		v, err := good.verify(i, nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
		s.clock.add(time.Hour)
		must.Do(s, i.WriteRefusals(s.ctx))
		if got, want := refusals(store.ByPlan, b1), fmt.Sprintf("%s 1001;", p.ID); got != want {
			s.Errorf("by plan: %s, not %s", got, want)
		}
		if got, want := refusals(store.ByAgent, b1), fmt.Sprintf("%s 1001;", a.ID); got != want {
			s.Errorf("by agent: %s, not %s", got, want)
		}
		if got := refusals(store.ByReason, b2); got != "" {
			s.Errorf("a stranger made numbers of the owner: %s", got)
		}
	})
}

// Between two writes a process counts 16,384 rows and 64 reasons at most; what comes beyond is not counted. A row that is known counts
// on, and after the write there is room again.
// T175
func TestRefusalsAreBounded(t *testing.T) {
	each(t, func(s *scene) {
		i := s.one()
		write := func() (rows, refused int64) {
			t.Helper()
			must.Do(s, i.WriteRefusals(s.ctx))
			must.Do(s, i.store.QueryRow(s.ctx, "SELECT COUNT(*), COALESCE(CAST(SUM(refused) AS BIGINT), 0) FROM refusal_hours").Scan(&rows, &refused))
			return rows, refused
		}
		plan := func(n int) *toll.Plan { return &toll.Plan{ID: toll.PlanID(fmt.Sprint(n + 1)), Owner: b1} }
		for n := range pay.MaxReasons + 10 {
			i.Count(plan(0), fmt.Sprint("reason-", n))
		}
		i.Count(plan(1), "reason-0") // a reason that is known
		if rows, refused := write(); rows != pay.MaxReasons+1 || refused != rows {
			s.Errorf("%d rows of %d refusals, want %d", rows, refused, pay.MaxReasons+1)
		}
		i.Count(plan(0), "reason-70") // there is room again
		before, _ := write()
		if before != pay.MaxReasons+2 {
			s.Errorf("%d rows after the next write", before)
		}
		for n := range pay.MaxRefusals + 100 {
			i.Count(plan(100+n), "reason")
		}
		i.Count(plan(100), "reason") // a row that is known
		if rows, refused := write(); rows-before != pay.MaxRefusals || refused-before != pay.MaxRefusals+1 {
			s.Errorf("%d rows of %d refusals more, want %d", rows-before, refused-before, pay.MaxRefusals)
		}
	})
}
