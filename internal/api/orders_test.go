package api_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
)

// An order that is not decided in time is 202 and says where to look; it is never a failure.
func TestOrderAccepted(t *testing.T) {
	s, crypto, _ := newPaidStack(t)
	id := s.plan(s.b1, pricedPlan)
	crypto.Behave(railtest.Behaviour{Hang: true})
	hasty := s.hasty()
	a := hasty.do(s.s1, "POST", base+"/protocol/plans/"+id+"/order", "")
	order := a.text(t, "orderId")
	if a.status != 202 || a.header.Get("Location") != api.Base+"/protocol/orders/"+order || a.header.Get("Retry-After") != "2" ||
		a.member(t, "success") != true || a.text(t, "status") != "created" || a.text(t, "txHash") != "" || a.member(t, "balance") != nil {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	if again := hasty.do(s.s1, "POST", base+"/protocol/plans/"+id+"/order", ""); again.status != 202 || again.text(t, "orderId") != order {
		t.Fatalf("%d %s", again.status, again.body)
	}
	crypto.Behave(railtest.Behaviour{})
	for until := time.Now().Add(long); ; time.Sleep(10 * time.Millisecond) {
		a = s.do(s.s1, "GET", base+"/protocol/orders/"+order, "")
		if a.text(t, "status") == "confirmed" {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%s", a.body)
		}
	}
	if a.text(t, "balance.balance") != "100" || a.text(t, "creditsGranted") != "100" || a.text(t, "amount") != "1000000" {
		t.Fatalf("%s", a.body)
	}
	if n, _ := crypto.Charges(); n != 1 {
		t.Fatalf("%d charges", n)
	}
	// The owner of the plan may look too, nobody else.
	if a := s.do(s.b1, "GET", base+"/protocol/orders/"+order, ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do(s.b2, "GET", base+"/protocol/orders/"+order, ""); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Fifty calls with one Idempotency-Key, while answers of the rail get lost, pay once; and so does the key when all is over.
// T40
func TestPaidOrderRaced(t *testing.T) {
	s, crypto, _ := newPaidStack(t)
	id := s.plan(s.b1, pricedPlan)
	crypto.Behave(railtest.Behaviour{LoseAnswers: 1})
	orders := map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	buy := func() {
		a := s.do(s.s1, "POST", base+"/protocol/plans/"+id+"/order", "", "Idempotency-Key", "k")
		mu.Lock()
		defer mu.Unlock()
		if a.status == 409 && a.code() == "BCK.COMMON.0902" {
			return // another call with the key is at it
		}
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		orders[a.text(t, "orderId")]++
	}
	for range 50 {
		wg.Go(buy)
	}
	wg.Wait()
	buy()
	if n, _ := crypto.Charges(); n != 1 || len(orders) != 1 {
		t.Fatalf("%d charges, %v", n, orders)
	}
	if a := s.do(s.s1, "POST", base+"/protocol/plans/"+id+"/order", "", "Idempotency-Key", "other"); a.status != 200 || orders[a.text(t, "orderId")] != 0 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n, _ := crypto.Charges(); n != 2 {
		t.Fatalf("%d charges", n)
	}
}

// A page is opened once under a key, and the credits come when the person has paid.
// T40
func TestCheckoutRepeated(t *testing.T) {
	s, _, card := newPaidStack(t)
	id := s.plan(s.b1, cardPlan)
	path := base + "/protocol/plans/" + id + "/checkout"
	first := s.do(s.s1, "POST", path, `{"sessionType":"hosted"}`, "Idempotency-Key", "k")
	again := s.do(s.s1, "POST", path, `{"sessionType":"hosted"}`, "Idempotency-Key", "k")
	if first.status != 200 || again.status != 200 || again.text(t, "orderId") != first.text(t, "orderId") ||
		again.text(t, "result.checkoutUrl") != first.text(t, "result.checkoutLink") || again.header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("%s\n%s", first.body, again.body)
	}
	must.Do(t, card.Complete(first.text(t, "orderId")))
	if a := s.do(s.s1, "POST", path, `{"sessionType":"hosted"}`, "Idempotency-Key", "k"); a.text(t, "result.paymentStatus") != "paid" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do(s.s1, "GET", base+"/protocol/plans/"+id+"/balance", ""); a.text(t, "balance") != "100" {
		t.Errorf("%s", a.body)
	}
}

// An order that was paid on a public chain has a link to its transaction; what cost nothing has none.
func TestOrderLinksItsTransaction(t *testing.T) {
	s, _, _ := newPaidStack(t)
	explored := api.New(s.deps(func(d *api.Deps) { d.Rails.Chain = &api.Chain{Explorer: "https://explorer.example"} }))
	for body, want := range map[string]bool{pricedPlan: true, freePlan: false} {
		plan := s.plan(s.b1, body)
		a := s.through(explored, s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		b := s.through(explored, s.s1, "GET", base+"/protocol/orders/"+a.text(t, "orderId"), "")
		for _, a := range []answer{a, b} {
			link := "https://explorer.example/tx/" + a.text(t, "txHash")
			if has := strings.Contains(string(a.body), `"transactionUrl":"`+link+`"`); has != want {
				t.Errorf("link of %s: %v", a.body, has)
			}
		}
	}
}
