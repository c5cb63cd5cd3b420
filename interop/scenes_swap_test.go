package interop

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/tollhq/toll/x402"
)

func settlesFirst(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E(func(a *serverArgs) { a.Upfront = true })
	for range 5 {
		o := c.C(e)
		c.refused(o)
		if r := c.receipt(o.Headers["payment-response"]); r.Success || r.ErrorReason != x402.ReasonInvalidRequirements {
			t.Errorf("%+v", r)
		}
	}
	if len(e.of("verify")) != 0 || len(e.of("settle")) != 5 {
		t.Errorf("%d calls of verify, %d of settle", len(e.of("verify")), len(e.of("settle")))
	}
	c.ends(0, nil, 100)
}

func swappedPlan(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, g := c.E(), c.G()
	other, _ := c.register(resource + "/other")
	swap := func(p map[string]any) { member(member(p, "accepted"), "extra")["planId"] = other }
	if r := c.send(e, edited(t, c.pay(e), swap)); r.status != 402 || r.error() != "No matching payment requirements" || len(e.of("verify")) != 0 {
		t.Errorf("Express: %d %q", r.status, r.error())
	}
	if r := c.send(g, edited(t, c.pay(g), swap)); r.status != 402 || r.error() != x402.Default.ReasonPlanMismatch() {
		t.Errorf("Go: %d %q", r.status, r.error())
	}
	c.ends(0, nil, 100)
}

func otherPlan(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	other, agent := c.register(resource)
	e := c.E(func(a *serverArgs) { a.PlanID, a.AgentID = other, agent })
	if o := c.C(e); !strings.Contains(o.Thrown, "the server requires plan "+string(other)) || len(o.Trips) != 1 {
		t.Errorf("the plug-in lets an access token go to another plan: %+v", o)
	}
	c.begins(c.refused(c.C(e, func(a *clientArgs) { a.AnyPlan = true })), x402.Default.ReasonPlanMismatch())
	c.ends(0, nil, 100)
}

func otherResource(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	c.register("https://other.example.com/ask")
	e := c.E()
	swap := func(p map[string]any) { member(p, "resource")["url"] = "https://other.example.com/ask" }
	if r := c.send(e, edited(t, c.pay(e), swap)); r.status != 402 || r.error() != x402.Default.ReasonResourceMismatch() {
		t.Errorf("%d %q", r.status, r.error())
	}
	c.ends(0, nil, 100)
}

func numbersForTexts(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	amount := func(p map[string]any) { member(p, "accepted")["amount"] = 5 }
	plan := func(p map[string]any) { member(member(p, "accepted"), "extra")["planId"] = json.Number(c.plan) }
	for i, change := range []func(map[string]any){amount, plan} {
		if r := c.send(e, edited(t, c.pay(e), change)); r.status != 402 {
			t.Errorf("Express: %d %s", r.status, r.body)
		}
		r := c.send(o, edited(t, c.pay(o), change))
		if i == 0 && r.status != 200 {
			t.Errorf("ours: %d %s", r.status, r.body)
		} else if i == 1 && r.status != 402 {
			t.Errorf("ours: %d %s", r.status, r.body)
		} else if i == 1 {
			c.begins(r.error(), x402.ReasonInvalidPayload)
		}
	}
	c.ends(1, []int{5}, 95)
}

func twoPayments(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	if r := c.send(e, c.pay(e), c.pay(e)); r.status != 402 {
		t.Errorf("Express: %d", r.status)
	}
	if r := c.send(o, c.pay(o), c.pay(o)); r.status != 400 {
		t.Errorf("ours: %d", r.status)
	}
	c.ends(0, nil, 100)
}

func largePayments(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	for _, tt := range []struct{ size, express, ours int }{{7 << 10, 200, 200}, {12 << 10, 200, 431}, {20 << 10, 431, 431}} {
		for p, want := range map[*party]int{e: tt.express, o: tt.ours} {
			payment := c.pay(p)
			padding := strings.Repeat("p", (tt.size-len(payment))*3/4-60)
			payment = edited(t, payment, func(p map[string]any) { p["extensions"] = map[string]any{"padding": map[string]any{"info": padding}} })
			r, err := post(t.Context(), p.ask, payment)
			for tries := 1; want == http.StatusRequestHeaderFieldsTooLarge && errors.Is(err, syscall.ECONNRESET) && tries < 20; tries++ {
				r, err = post(t.Context(), p.ask, payment) // who does not read on may be gone before its answer is read
			}
			if err != nil || r.status != want {
				t.Errorf("%d bytes: %+v, want %d: %v", len(payment), r, want, err)
			}
		}
	}
	c.ends(3, []int{5, 5, 5}, 85)
}
