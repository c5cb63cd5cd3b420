package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// TestOrder: a quote, then the order, with every member of both.
func TestOrder(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	quote := r.run("orderPlan", `{}`)
	for name, want := range map[string]any{
		"planId": string(r.svc.Plan()), "name": "Test plan", "price": "1.00", "priceUnits": "1000000", "currency": "USDC",
		"credits": "100", "accessLimit": "credits", "paymentType": "crypto", "environment": "sandbox", "requiresConfirmation": true,
	} {
		if quote[name] != want {
			t.Errorf("%s is %v, want %v", name, quote[name], want)
		}
	}
	if !strings.Contains(quote.text(t, "message"), "1.00 USDC") || quote["success"] != nil || quote["priceChanged"] != nil {
		t.Error(quote)
	}
	if acts := r.wire.acts(); acts != nil {
		t.Errorf("a quote called %v", acts)
	}
	order := r.run("orderPlan", `{"confirm":true}`)
	if order["success"] != true || order["balance"] != "100" || order["status"] == "" || order["planId"] != string(r.svc.Plan()) ||
		order.text(t, "orderId") == "" || order["requiresConfirmation"] != nil || order["repeated"] != nil {
		t.Error(order)
	}
	if orders, sum := r.svc.Paid(); orders != 1 || sum.String() != "1000000" {
		t.Errorf("%d orders, %s", orders, sum)
	}
}

// TestNoOrderWithoutConsent: nothing but true and "true" orders, and only after a quote of the
// last ten minutes in the same conversation. One quote is one order.
// T138
func TestNoOrderWithoutConsent(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	asked := func(caller gateway.Caller, id, params string) {
		t.Helper()
		got, err := r.try(caller, id, "orderPlan", params)
		if err != nil || got["requiresConfirmation"] != true || got["orderId"] != nil {
			t.Errorf("%s: %v, %v", params, got, err)
		}
		if acts := r.wire.acts(); acts != nil {
			t.Errorf("%s called %v", params, acts)
		}
	}
	ordered := func(caller gateway.Caller, id, params string) result {
		t.Helper()
		got, err := r.try(caller, id, "orderPlan", params)
		if acts := r.wire.acts(); err != nil || got["success"] != true || len(acts) != 1 {
			t.Errorf("%s: %v, %v, %v", params, got, err, acts)
		}
		return got
	}
	for _, confirm := range []string{
		`false`, `"false"`, `"yes"`, `1`, `"1"`, `"TRUE"`, `"true "`, `"True"`, `"t"`, `null`, `{}`, `[true]`, `[]`, `""`, `0`, `1.0`, `"banana"`,
	} {
		asked(owner, "", `{"confirm":`+confirm+`}`)
		asked(owner, "call-"+confirm, `{"confirm":`+confirm+`}`)
	}
	asked(owner, "", `{"Confirm":true}`)
	asked(owner, "", `{"confirmed":true}`)

	// The quotes above count here, and in no other conversation.
	other := gateway.Caller{SessionKey: "another chat", SenderIsOwner: true}
	asked(other, "", `{"confirm":true}`)
	r.wait(10*time.Minute + time.Second)
	asked(owner, "", `{"confirm":true}`) // too late, which is a new quote
	r.wait(10 * time.Minute)
	ordered(owner, "a", `{"confirm":"true"}`)
	r.wait(time.Minute)
	asked(owner, "b", `{"confirm":true}`) // the quote is spent
	r.wait(29 * time.Second)
	asked(owner, "b", `{"confirm":true}`) // the same call again is no answer of a person to it
	r.wait(2 * time.Second)
	if got := ordered(owner, "b", `{"confirm":true}`); got["repeated"] != nil {
		t.Error(got)
	}
	if orders, _ := r.svc.Paid(); orders != 2 {
		t.Errorf("%d orders", orders)
	}

	// Others in the chat cannot order at all.
	stranger := gateway.Caller{SessionKey: owner.SessionKey, SenderID: "bob"}
	if _, err := r.try(stranger, "", "orderPlan", `{"confirm":true}`); !isWord(err, gateway.NotOwner) {
		t.Error(err)
	}
	// Without a service there is an error, and no quote without a price.
	r.refused("BCK.PROTOCOL.0003", "orderPlan", `{"planId":"12345"}`)
}

func isWord(err error, code gateway.Word) bool {
	e, ok := errors.AsType[*gateway.Error](err)
	return ok && e.Code == code
}

// TestChangedPrice: what was confirmed is what was shown. Another price, receiver or credits
// are a new quote.
// T139
func TestChangedPrice(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	plan := "/protocol/plans/" + string(r.svc.Plan())
	for _, change := range [][2]string{
		{`"1000000"`, `"2000000"`},
		{`"amount":"100"`, `"amount":"10"`},
		{r.svc.Builder().String(), r.address.String()},
	} {
		r.wire.alter(nil)
		if q := r.run("orderPlan", `{}`); q["priceChanged"] != nil {
			t.Error(q)
		}
		altered := false
		r.wire.alter(func(req *http.Request, b []byte) ([]byte, error) {
			if strings.HasSuffix(req.URL.Path, plan) {
				changed := bytes.ReplaceAll(b, []byte(change[0]), []byte(change[1]))
				altered = !bytes.Equal(b, changed)
				return changed, nil
			}
			return b, nil
		})
		got := r.run("orderPlan", `{"confirm":true}`)
		if !altered || got["priceChanged"] != true || got["requiresConfirmation"] != true || r.wire.acts() != nil {
			t.Errorf("%v: %v", change, got)
		}
		r.wait(time.Hour)
	}
	// The new quote can be confirmed like any other.
	r.run("orderPlan", `{}`)
	if got := r.run("orderPlan", `{"confirm":true}`); got["success"] != true {
		t.Error(got)
	}
}

// TestOrder_Repeated: a repeated call of the host, or one without an id within half a minute, is the
// same order.
func TestOrder_Repeated(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	for _, ids := range [][2]string{{"call-1", "call-1"}, {"", ""}} {
		r.run("orderPlan", `{}`)
		first := must.Get(r.try(owner, ids[0], "orderPlan", `{"confirm":true}`))(t)
		r.wait(29 * time.Second)
		again, err := r.try(owner, ids[1], "orderPlan", `{"confirm":true}`)
		if err != nil || again["repeated"] != true || again["orderId"] != first["orderId"] || first["repeated"] != nil {
			t.Errorf("%v: %v, then %v, %v", ids, first, again, err)
		}
		r.wait(time.Minute)
	}
	if orders, _ := r.svc.Paid(); orders != 2 {
		t.Errorf("%d orders", orders)
	}
	// The window is over.
	if got := r.run("orderPlan", `{"confirm":true}`); got["requiresConfirmation"] != true {
		t.Error(got)
	}
}

// readTime is how long a person needs at least to read a quote.
const readTime = 3 * time.Second

// TestOrder_ParallelConfirmations: two confirmations in one turn, without a quote before them, are a
// quote each; a model can make several calls at once.
func TestOrder_ParallelConfirmations(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	for _, id := range []string{"a", "b", "", "", "c"} {
		got, err := r.try(owner, id, "orderPlan", `{"confirm":true}`)
		if err != nil || got["requiresConfirmation"] != true {
			t.Error(got, err)
		}
	}
	if orders, _ := r.svc.Paid(); orders != 0 {
		t.Errorf("%d orders", orders)
	}
	r.wait(readTime)
	if got := r.run("orderPlan", `{"confirm":true}`); got["success"] != true {
		t.Error(got)
	}
}

// TestOrder_RepeatSpendsQuote: a confirmation that finds the order before it is the answer to the
// quote before itself: that quote buys nothing later.
func TestOrder_RepeatSpendsQuote(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	for range 2 {
		r.run("orderPlan", `{}`)
		r.run("orderPlan", `{"confirm":true}`)
	}
	r.wait(time.Minute)
	if got := r.run("orderPlan", `{"confirm":true}`); got["requiresConfirmation"] != true {
		t.Error(got)
	}
	if orders, _ := r.svc.Paid(); orders != 1 {
		t.Errorf("%d orders", orders)
	}
}

// TestOrder_ReusedID: a host that uses the id of a call again can order again, after another quote.
func TestOrder_ReusedID(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	seen := map[any]bool{}
	for range 3 {
		r.run("orderPlan", `{}`)
		got, err := r.try(owner, "call_1", "orderPlan", `{"confirm":true}`)
		if err != nil || got["repeated"] != nil || seen[got["orderId"]] {
			t.Errorf("%v, %v", got, err)
		}
		seen[got["orderId"]] = true
		r.wait(31 * time.Second)
	}
	if orders, _ := r.svc.Paid(); orders != 3 {
		t.Errorf("%d orders", orders)
	}
}

// TestOrder_Concurrent: twenty confirmations at once are one order, with equal and with different
// ids of calls.
func TestOrder_Concurrent(t *testing.T) {
	for name, id := range map[string]func(int) string{
		"no id":     func(int) string { return "" },
		"one id":    func(int) string { return "call" },
		"other ids": func(i int) string { return fmt.Sprint("call ", i) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, tolltest.WithPayments())
			r.run("orderPlan", `{}`)
			var wg sync.WaitGroup
			got := make([]result, 20)
			for i := range got {
				wg.Go(func() {
					var err error
					if got[i], err = r.try(owner, id(i), "orderPlan", `{"confirm":true}`); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if orders, _ := r.svc.Paid(); orders != 1 {
				t.Errorf("%d orders", orders)
			}
			ids := map[any]bool{}
			first := 0
			for _, g := range got {
				if g["requiresConfirmation"] == true {
					continue // it came after the first one was done
				}
				ids[g["orderId"]] = true
				if g["repeated"] == nil {
					first++
				}
			}
			if len(ids) != 1 || first != 1 {
				t.Errorf("orders %v, %d of them the first", ids, first)
			}
		})
	}
}

// TestOrder_Cap: a dearer plan is refused with and without confirm, and so is a price without cents.
func TestOrder_Cap(t *testing.T) {
	limit := toll.Cents(99)
	r := newRig(t, func(c *gateway.Config) { c.MaxOrderCents = &limit }, tolltest.WithPayments())
	native := must.Get(toll.PriceNative(toll.UnitsOf(1), r.svc.Builder()))(t)
	made := must.Get(r.svc.Client().RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Native"}, Price: native}))(t)
	for _, params := range []string{`{}`, `{"confirm":true}`, `{"planId":"` + string(made.PlanID) + `"}`} {
		r.refused(gateway.OverCap, "orderPlan", params)
	}
	if acts := r.wire.acts(); acts != nil {
		t.Error(acts)
	}
	odd := must.Get(toll.PriceERC20(toll.UnitsOf(990_001), toll.Sandbox.USDC(), r.svc.Builder()))(t)
	made = must.Get(r.svc.Client().RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Odd"}, Price: odd}))(t)
	r.refused(gateway.OverCap, "orderPlan", `{"planId":"`+string(made.PlanID)+`"}`) // 99.0001 cents
	r.refused(gateway.OverCap, "getAccessToken", `{"spendingLimitCents":500,"confirm":true}`)
	limit = 100
	s := rigOf(t, r.svc, "bob", func(c *gateway.Config) { c.MaxOrderCents = &limit })
	s.run("orderPlan", `{}`)
	if got := s.run("orderPlan", `{"confirm":true}`); got["success"] != true {
		t.Error(got)
	}
}

// TestOrder_Card: a confirmed order of a card plan is a page that a person can pay.
func TestOrder_Card(t *testing.T) {
	r := newRig(t, nil, tolltest.WithCards())
	r.refused(gateway.InvalidParams, "orderPlan", `{"confirm":true}`)
	q := r.run("orderFiatPlan", `{}`)
	if q["fiatPaymentProvider"] != "stripe" || q["paymentType"] != "fiat" || q["price"] != "5.00" || q["currency"] != "USD" || q["requiresConfirmation"] != true {
		t.Error(q)
	}
	if acts := r.wire.acts(); acts != nil {
		t.Error(acts)
	}
	page := r.run("orderFiatPlan", `{"confirm":true}`)
	again := r.run("orderFiatPlan", `{"confirm":true}`)
	if again["orderId"] != page["orderId"] || again["repeated"] != true || page["requiresConfirmation"] != nil {
		t.Errorf("%v, then %v", page, again)
	}
	inner, _ := page["result"].(map[string]any)
	if inner["checkoutLink"] != page["checkoutUrl"] || inner["checkoutUrl"] != page["checkoutUrl"] || inner["expiresAt"] == nil {
		t.Error(page)
	}
	if o := r.svc.PayPage(page.text(t, "checkoutUrl"), "4242 4242 4242 4242"); o.Status != toll.OrderConfirmed {
		t.Errorf("the order is %s", o.Status)
	}
	if got := r.run("checkBalance", `{}`); got["available"] != "100" || got["isSubscriber"] != true {
		t.Error(got)
	}
}

// TestConfirmationOfOtherAccount: what one account was shown does not count for the next one of the
// same core and conversation.
// T145
func TestConfirmationOfOtherAccount(t *testing.T) {
	r := newRig(t, nil, tolltest.WithPayments())
	r.run("orderPlan", `{}`)
	bob := must.Get(r.svc.NewKey("bob"))(t)
	s := httptest.NewServer(r.core.Handler())
	t.Cleanup(s.Close)
	c := &controlled{t, r.core, s.URL}
	if status, body := c.hello(`{"apiKey":"` + bob.Key + `"}`); status != http.StatusOK {
		t.Fatal(status, body)
	}
	if got := r.run("orderPlan", `{"confirm":true}`); got["requiresConfirmation"] != true {
		t.Error(got)
	}
	if acts := r.wire.acts(); acts != nil {
		t.Error(acts)
	}
}
