package api_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/store"
)

// TestSuspend: a suspended workspace or plan gets no orders and holds, also of other processes within a second, and what was open
// settles. A suspended key is refused. Everything works again after it is resumed, and both logs say so.
func TestSuspend(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan, other := s.plan(s.b1, freePlan), s.plan(s.b2, freePlan)
		order := func(plan string) answer { return s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "") }
		s.want(order(plan), 200, "")
		token, _ := s.token(s.s1, plan)
		verify := func(more string) answer {
			return s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, more))
		}
		settle := func(more string) answer {
			return s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, more))
		}
		suspend := func(id string, suspended bool) {
			t.Helper()
			if out, err := s.auth.Suspend(t.Context(), id, suspended); err != nil || out.Suspended != suspended {
				t.Fatalf("%+v, %v", out, err)
			}
			s.clock.advance(2 * time.Second) // as for another process
		}
		for _, id := range []string{s.b1.address.String(), plan} {
			held := verify(`,"hold":true`)
			if held.member(t, "isValid") != true {
				t.Fatalf("%s", held.body)
			}
			suspend(id, true)
			for what, a := range map[string]answer{
				"order": order(plan), "verify": verify(""), "hold": verify(`,"hold":true`), "settle without a hold": settle(""),
			} {
				if a.status != 403 || a.code() != string(toll.CodeSuspended) {
					t.Errorf("%s of %s: %d %s", what, id, a.status, a.body)
				}
			}
			s.want(settle(`,"agentRequestId":"`+held.text(t, "agentRequestId")+`"`), 200, "")
			s.want(order(other), 200, "")
			for _, path := range []string{"/protocol/plans", "/protocol/holdings", "/protocol/orders?format=csv"} {
				if a := s.do(s.b1, "GET", base+path, ""); a.status != 200 {
					t.Errorf("%s: %d %s", path, a.status, a.body)
				}
			}
			suspend(id, false)
			s.want(order(plan), 200, "")
			if a := verify(""); a.member(t, "isValid") != true {
				t.Errorf("after %s was resumed: %s", id, a.body)
			}
		}
		suspend(s.b1.keyID.String(), true)
		if a := verify(""); a.status != 401 || a.code() != string(toll.CodeNotAuthenticated) {
			t.Errorf("a suspended key: %d %s", a.status, a.body)
		}
		suspend(s.b1.keyID.String(), false)
		s.want(verify(""), 200, "")
		for _, workspace := range []string{"", s.b1.address.Lower()} {
			var acts int
			must.Do(t, s.store.QueryRow(t.Context(), "SELECT COUNT(*) FROM audit_log WHERE workspace = $1 AND (act LIKE '%.suspended' OR act LIKE '%.resumed')", workspace).Scan(&acts))
			if acts != 6 {
				t.Errorf("the log of %q has %d acts", workspace, acts)
			}
		}
		for _, id := range []string{"0x" + "11111111111111111111" + "11111111111111111111", toll.NewHash().String(), "12345"} {
			if _, err := s.auth.Suspend(t.Context(), id, true); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: %v", id, err)
			}
		}
		for _, id := range []string{"", "0x12", "plan"} {
			if e := toll.AsError(func() error { _, err := s.auth.Suspend(t.Context(), id, true); return err }()); e == nil || e.HTTPStatus() != 400 {
				t.Errorf("%q: %v", id, e)
			}
		}
	})
}

// TestSuspend_Wallets: wallets pay a suspended workspace nothing, neither for its plans nor for calls of its servers. What they paid
// before is answered.
func TestSuspend_Wallets(t *testing.T) {
	s, rail, plan := shop(t)
	s = s.again(func(d *purchases.Deps) { d.Policy = purchases.ExactOpen })
	w := s.wallet(rail, 5_000_000)
	entry := entryFor(s.b1.address, "1000")
	asked := s.asks(orderRoute(plan))
	bought := w.pays(asked, w.authorization(asked), "")
	s.want(s.pay(orderRoute(plan), bought), 200, "")
	verified, body := w.stockBody(entry), w.stockBody(entry)
	call := func(path, body string) answer { return s.do(s.b1, "POST", base+"/x402/"+path, body) }
	if a := call("verify", verified); a.member(t, "isValid") != true {
		t.Fatalf("%s", a.body)
	}
	must.Get(s.auth.Suspend(t.Context(), s.b1.address.String(), true))(t)
	s.clock.advance(2 * time.Second)
	if a := s.pay(orderRoute(plan), bought); a.status != 200 || a.member(t, "replayed") != true {
		t.Errorf("a purchase from before: %d %s", a.status, a.body)
	}
	if a := call("settle", verified); a.member(t, "success") != true {
		t.Errorf("a call that was verified before: %d %s", a.status, a.body)
	}
	before := rail.Transfers()
	for what, a := range map[string]answer{
		"the price": s.do(actor{}, "POST", orderRoute(plan), ""), "a purchase": s.pay(orderRoute(plan), w.pays(asked, w.authorization(asked), "")),
	} {
		if a.status != 403 || a.code() != string(toll.CodeSuspended) {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	for _, path := range []string{"verify", "settle"} {
		if a := call(path, body); a.status != 200 || a.code() != string(toll.CodeSuspended) || a.member(t, "isValid") == true || a.member(t, "success") == true {
			t.Errorf("%s of a call: %d %s", path, a.status, a.body)
		}
	}
	if n := rail.Transfers() - before; n != 0 {
		t.Errorf("%d transfers to a suspended workspace", n)
	}
}
