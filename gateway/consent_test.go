package gateway_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// TestAnyOrderOfCalls: for all calls of a model, in any order, with lost answers and changed
// prices, each payment follows from a quote of its own: of the same conversation, plan and price,
// shown in the last ten minutes.
// T138
func TestAnyOrderOfCalls(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPayments())
	price := must.Get(toll.PriceERC20(toll.UnitsOf(2_000_000), toll.Sandbox.USDC(), svc.Builder()))(t)
	other := must.Get(svc.Client().RegisterPlan(t.Context(), client.PlanParams{Metadata: toll.Metadata{Name: "Other"}, Price: price}))(t)
	plans := []toll.PlanID{svc.Plan(), other.PlanID}
	// The same few sequences every time; -rapid.seed=N -rapid.checks=N makes others.
	for name, value := range map[string]string{"rapid.seed": "7", "rapid.checks": "25", "rapid.steps": "40", "rapid.nofailfile": "true"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			must.Do(t, flag.Set(name, value))
			t.Cleanup(func() { _ = flag.Set(name, f.DefValue) })
		}
	}
	account, paid := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		account++
		r := rigOf(t, svc, fmt.Sprint("person ", account), nil)
		m := model{r: r, shown: map[string]seenQuote{}}
		rt.Repeat(map[string]func(*rapid.T){
			"call": func(rt *rapid.T) {
				m.call(rt,
					rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "session"),
					rapid.SampledFrom([]string{"", "", "a", "b", "c"}).Draw(rt, "id"),
					rapid.SampledFrom(plans).Draw(rt, "plan"),
					rapid.SampledFrom([]string{`true`, `"true"`, `true`, `false`, `"yes"`, `1`}).Draw(rt, "confirm"))
			},
			"wait": func(rt *rapid.T) {
				r.wait(time.Duration(rapid.SampledFrom([]int{1, 20, 40, 300, 700, 100_000}).Draw(rt, "secs")) * time.Second)
			},
			"wire": func(rt *rapid.T) {
				m.dear = rapid.Bool().Draw(rt, "dear")
				m.lost = rapid.IntRange(0, 25).Draw(rt, "lost") == 0
				r.wire.alter(m.answer)
			},
		})
		orders, _ := svc.Paid()
		paid = orders
	})
	if paid == 0 {
		t.Error("no sequence of calls paid anything")
	}
}

// seenQuote is a quote that no payment followed.
type seenQuote struct {
	at    time.Time
	dear  bool
	asked bool // by a call that asked for the order already: a person needs time to read it
}

type model struct {
	r          *rig
	shown      map[string]seenQuote
	dear, lost bool
}

// answer raises prices and loses answers of changes.
func (m *model) answer(req *http.Request, b []byte) ([]byte, error) {
	switch {
	case m.lost && req.Method != http.MethodGet:
		return nil, errors.New("lost")
	case m.dear:
		return bytes.ReplaceAll(b, []byte(`000000"`), []byte(`000001"`)), nil
	}
	return b, nil
}

func (m *model) call(rt *rapid.T, session, id string, plan toll.PlanID, confirm string) {
	before, _ := m.r.svc.Paid()
	caller := gateway.Caller{SessionKey: session, SenderIsOwner: true}
	got, err := m.r.try(caller, id, "orderPlan", `{"planId":"`+string(plan)+`","confirm":`+confirm+`}`)
	after, _ := m.r.svc.Paid()
	now, key := m.r.clock.now(), session+string(plan)
	confirms := confirm == `true` || confirm == `"true"`
	quote, known := m.shown[key]
	switch paid := after - before; {
	case paid > 1:
		rt.Fatalf("%d payments of one call", paid)
	case paid == 1:
		since := now.Sub(quote.at)
		if !confirms || !known || since > 10*time.Minute || quote.dear != m.dear || quote.asked && since < readTime {
			rt.Fatalf("a payment with confirm %s; quote %v %+v, %s ago, dear %t: %v, %v", confirm, known, quote, since, m.dear, got, err)
		}
		delete(m.shown, key)
	}
	if err == nil && got["requiresConfirmation"] == true {
		// A confirmation that came too soon gets the quote before it again.
		if again := known && quote.dear == m.dear && now.Sub(quote.at) <= 10*time.Minute; !confirms || !again {
			m.shown[key] = seenQuote{now, m.dear, confirms}
		}
		if after != before {
			rt.Fatal("a quote that paid")
		}
	}
	if err != nil && !m.lost && !isWord(err, gateway.ServiceUnavailable) {
		rt.Fatal(err)
	}
}
