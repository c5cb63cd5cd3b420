package server_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/rounds"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// withoutCards is the last commit without a card rail.
const withoutCards = "bc77a3a7e3ae24771b57e2715f546c86b0e85f11"

// F24: the release without a card rail and this one serve a database at the same time. Card orders
// are placed at this one; the other one meets their jobs, spends their credits, and meets what a
// refund left of them. Both read each other, and the books agree.
func TestF24_CardOrdersBesideARelease(t *testing.T) {
	if rounds.Deferred(t) {
		return // it builds an earlier release and waits for jobs: make test-all
	}
	t.Parallel()
	before := releaseOf(t, withoutCards)
	o := servertest.Options{Database: storetest.Empty(t, storetest.Postgres).Database, MasterKeyFile: freshMasterKey(t)}
	first := keyBy(t, before, o, "first")
	old := servertest.StartProgram(t, before, o)
	works(t, servertest.Program(t), o, "migrate", "--online")
	c := newCashier(t, o, 1, "--order-wait", "1s")
	ctx := t.Context()
	k, method := c.shops("buyer", plainCard)
	limit := c.limit(k, method, 100_000)
	aside := func(key toll.APIKey) *client.Client { return old.Client(key.Key, servertest.Patient) }
	eventually(t, "the earlier release refuses a checkout", func() bool { // it knows the new key after a while
		_, err := old.Client(k.Key, client.WithRetries(0)).Checkout(ctx, c.plan, client.CheckoutParams{})
		return toll.AsError(err).HTTPStatus() == http.StatusFailedDependency
	})
	if _, err := aside(first).Plan(ctx, c.plan); err != nil {
		t.Error(err)
	}

	// Orders of this release, whose process dies meanwhile: the earlier release finds their jobs
	// and gives them back.
	var orders []string
	for i := range 6 {
		once := client.WithIdempotencyKey(ctx, fmt.Sprint("order-", i))
		if i%2 == 0 {
			id, link := c.checkout(once, k)
			p := newShopper(t)
			eventually(t, "the page is paid", func() bool { return p.pays(link, plainCard) == nil })
			orders = append(orders, id)
		} else {
			o, err := c.as(k).OrderPlan(once, c.plan, client.PaidBy(limit))
			if err != nil {
				t.Fatal(err)
			}
			orders = append(orders, o.OrderID)
		}
		if i%3 == 1 {
			c.services[0].Kill()
			c.start(0)
		}
	}
	c.settled()
	for _, id := range orders {
		if o, err := aside(k).Order(ctx, id); err != nil || !isPaid(o.Status) {
			t.Errorf("%+v, %v", o, err)
		}
	}
	spend := func(n toll.Credits, id string, by *client.Client) bool {
		t.Helper()
		token, err := aside(k).AccessToken(ctx, c.plan)
		if err != nil {
			t.Fatal(err)
		}
		r, err := by.Settle(ctx, cardRequest(c.plan, token.AccessToken, id, n))
		if err != nil {
			t.Fatal(err)
		}
		return r.Success
	}
	if !spend(100, "request-at-the-earlier", aside(c.builder)) || !spend(100, "request-at-this-one", c.as(c.builder)) {
		t.Error("credits that were paid by card cannot be spent")
	}
	// Half of an order goes back, which the earlier release reads as credits that have ended.
	last := orders[len(orders)-1]
	if _, err := c.as(c.builder).RefundOrder(ctx, last, 250); err != nil {
		t.Fatal(err)
	}
	eventually(t, "half of an order is taken back", func() bool {
		b, err := aside(k).Balance(ctx, c.plan)
		return err == nil && b.Balance == 350
	})
	for i := range 3 {
		if !spend(100, fmt.Sprint("request-of-the-rest-", i), aside(c.builder)) {
			t.Error("the rest cannot be spent")
		}
	}
	if spend(51, "request-of-too-much", aside(c.builder)) || !spend(50, "request-of-all", aside(c.builder)) {
		t.Error("credits of a refund were spent, or others were not")
	}
	old.Kill()
}
