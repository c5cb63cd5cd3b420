package interop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/x402"
)

// scenes run one after the other on one service, each with a plan and an access token of its own.
var scenes = []struct {
	id, what string
	play     func(t *testing.T, s *service, a *actors)
}{
	{"S01", "every client at every server", everyPair},
	{"S03", "a plug-in without a default asset", withoutDefaultAsset},
	{"S04", "the spend cap of a client", spendCap},
	{"S05", "a plan beside extra", topLevelPlan},
	{"S06", "our entry has all members", superset},
	{"S07", "the smallest entry", smallestEntry},
	{"S08", "a bare JWS", bareJWS},
	{"S09", "other encodings", otherEncodings},
	{"S10", "short of credits", shortOfCredits},
	{"S11", "an API key that was revoked", revokedKey},
	{"S13", "a settlement that is refused", refusedSettlement},
	{"S15", "less than the price", func(t *testing.T, s *service, a *actors) { override(t, s, a, "3", "3") }},
	{"S16", "a part of the price", func(t *testing.T, s *service, a *actors) { override(t, s, a, "50%", "2") }},
	{"S17", "more than the price", overrideAbove},
	{"S18", "a handler that fails", failingHandler},
	{"S19", "twenty at once with one nonce", twentyAtOnce},
	{"S20", "one nonce again, and after a restart", oneNonceAgain},
	{"S22", "more requests than credits", moreThanCredits},
	{"S23", "no nonce", noNonce},
	{"S24", "a payment identifier", paymentIdentifier},
	{"S25", "a server that settles first", settlesFirst},
	{"S26", "the plan is swapped in the payment", swappedPlan},
	{"S27", "the server asks for another plan", otherPlan},
	{"S28", "another resource", otherResource},
	{"S29", "numbers for texts", numbersForTexts},
	{"S30", "two payments in one request", twoPayments},
	{"S31", "large payments", largePayments},
	{"S32", "paths with too many slashes", slashes},
	{"S33", "an answer that gets lost", lostAnswer},
	{"S34", "the service dies after its commit", diesAfterCommit},
	{"S36", "a free plan that nobody ordered", freePlan},
}

func TestScenes(t *testing.T) {
	a := cast(t)
	s := run(t, servertest.Options{})
	for _, scene := range scenes {
		t.Run(scene.id, func(t *testing.T) { scene.play(t, s, a) })
	}
	s.process.Kill()
	audit(t, s)
}

func everyPair(t *testing.T, s *service, a *actors) {
	servers := map[string]func(*scene) *party{
		"express": func(c *scene) *party { return c.E() }, "paid": func(c *scene) *party { return c.O() }, "go": (*scene).G,
	}
	clients := map[string]func(*scene, *party) *outcome{
		"fetch": func(c *scene, p *party) *outcome { return c.C(p) }, "axios": func(c *scene, p *party) *outcome { return c.axios(p) },
		"go": (*scene).goClient,
	}
	for server, open := range servers {
		for client, ask := range clients {
			t.Run(client+" at "+server, func(t *testing.T) {
				c := newScene(t, s, a)
				p := open(c)
				c.paid(ask(c, p), 5)
				if verify := p.of("verify"); len(verify) != 1 || verify[0].status != 200 || verify[0].text("isValid") != "true" {
					t.Errorf("%d calls of verify", len(verify))
				}
				if settle := p.of("settle"); len(settle) != 1 || settle[0].status != 200 {
					t.Errorf("%d calls of settle", len(settle))
				}
				c.ends(1, []int{5}, 95)
			})
		}
	}
}

func withoutDefaultAsset(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.C(c.E(), func(a *clientArgs) { a.NoDefaultAsset = true })
	if !strings.Contains(o.Thrown, "spendControls") || len(o.Trips) != 1 || o.Trips[0].Status != 402 {
		t.Errorf("%+v", o)
	}
	c.ends(0, nil, 100)
}

func spendCap(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.credits, s.max = 3_000_000, 2_000_000 })
	e := c.E(func(a *serverArgs) { a.Price = 2_000_000 })
	if o := c.C(e); !strings.Contains(o.Thrown, "maxAmountPerPayment ($1, including credits)") {
		t.Errorf("%+v", o)
	}
	c.paid(c.C(e, func(a *clientArgs) { a.SpendControls = map[string]string{"maxAmountPerPayment": "$10"} }), 2_000_000)
	c.ends(1, []int{2_000_000}, 1_000_000)
}

func topLevelPlan(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E(func(a *serverArgs) { a.TopLevelPlan = true })
	c.paid(c.C(e), 5)
	if text := c.refused(c.goClient(e)); text != "No matching payment requirements" {
		t.Errorf("402 says %q", text)
	}
	c.ends(1, []int{5}, 95)
}

func superset(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.O()
	entry := required(c.send(o).header.Get("Payment-Required")).Accepts[0]
	if entry.PlanID != string(c.plan) || entry.Extra.PlanID != string(c.plan) || entry.Amount != "5" || entry.PayTo != c.builder.Address.String() {
		t.Errorf("%+v", entry)
	}
	c.paid(c.C(o), 5)
	c.paid(c.goClient(o), 5)
	c.ends(2, []int{5, 5}, 90)
}

func smallestEntry(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	o := c.ours(minimal)
	var failed outcome
	if err := c.clients.do("fetch", c.args(o, nil), &failed); err != nil || failed.Thrown == "" {
		t.Errorf("%+v %v", failed, err)
	}
	var done outcome
	if err := c.clients.do("fetch", c.args(o, []func(*clientArgs){func(a *clientArgs) { a.SpendControls = false }}), &done); err != nil {
		t.Fatal(err)
	}
	c.paid(&done, 5)
	c.paid(c.goClient(o), 5)
	c.ends(2, []int{5, 5}, 90)
}

func bareJWS(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	if r := c.send(e, c.token); r.status != 402 || len(e.of("verify")) != 0 {
		t.Errorf("Express: %d, %d calls of verify", r.status, len(e.of("verify")))
	}
	if r := c.send(o, c.token); r.status != 200 {
		t.Errorf("ours: %d %s", r.status, r.body)
	}
	c.ends(1, []int{5}, 95)
}

// edited returns a payment with changes.
func edited(t *testing.T, payment string, change func(map[string]any)) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(editedJSON(t, payment, change))
}

func editedJSON(t *testing.T, payment string, change func(map[string]any)) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(payment)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(b, &object); err != nil {
		t.Fatal(err)
	}
	change(object)
	if b, err = json.Marshal(object); err != nil {
		t.Fatal(err)
	}
	return b
}

func member(object map[string]any, name string) map[string]any { return object[name].(map[string]any) }

func otherEncodings(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	for what, encode := range map[string]func([]byte) string{
		"URL alphabet": base64.URLEncoding.EncodeToString, "JSON": func(b []byte) string { return string(b) },
	} {
		for _, p := range []*party{e, o} {
			text := editedJSON(t, c.pay(p), func(p map[string]any) { p["note"] = "<<<???>>>~~~" })
			value := encode(text)
			if what == "URL alphabet" && !(strings.Contains(value, "-") && strings.Contains(value, "_")) {
				t.Fatalf("%s has no other letters", value)
			}
			want := 200
			if p == e {
				want = 402
			}
			if r := c.send(p, value); r.status != want {
				t.Errorf("%s: %d %s", what, r.status, r.body)
			}
		}
	}
	if n := len(e.of("verify")); n != 0 {
		t.Errorf("%d calls of verify", n)
	}
	c.ends(2, []int{5, 5}, 90)
}

func shortOfCredits(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.credits = 3 })
	e := c.E()
	c.begins(c.refused(c.C(e)), "insufficient_funds")
	if v := e.of("verify"); len(v) != 1 || v[0].status != 200 || v[0].text("invalidReason") != "insufficient_funds" {
		t.Errorf("%s", v[0].answer)
	}
	c.ends(0, nil, 3)
}

func revokedKey(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	b := s.client(s.builder)
	key, err := b.CreateKey(t.Context(), client.KeyParams{Name: "revoked"})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.RevokeKey(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}
	e := c.E(func(a *serverArgs) { a.Key = key.Key })
	text := c.refused(c.C(e))
	c.begins(text, "unauthorized_server")
	if strings.Contains(text, key.Key) || strings.Contains(text, "BCK") {
		t.Errorf("402 says %q", text)
	}
	if v := e.of("verify"); len(v) != 1 || v[0].status != 401 || v[0].text("isValid") != "false" {
		t.Errorf("%+v", v)
	}
	c.ends(0, nil, 100)
}

func refusedSettlement(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.max = 100 })
	e := c.E(func(a *serverArgs) { a.Pause = true })
	done := make(chan *outcome, 1)
	go func() { done <- c.C(e) }()
	c.reached(e)
	c.advance(76 * time.Second)
	c.burnElsewhere()
	c.pass(e)
	o := <-done
	c.refused(o)
	if r := c.receipt(o.Headers["payment-response"]); r.Success || r.ErrorReason != "insufficient_funds" || r.Network != network || o.Body != "{}" {
		t.Errorf("%+v %s", r, o.Body)
	}
	if v := e.of("settle"); len(v) != 1 || v[0].status != 200 || v[0].text("success") != "false" {
		t.Errorf("%+v", v)
	}
	c.ends(1, nil, 0)
}

func override(t *testing.T, s *service, a *actors, override, amount string) {
	c := newScene(t, s, a)
	e := c.E(func(a *serverArgs) { a.Override = override })
	n, err := toll.ParseCredits(amount)
	if err != nil {
		t.Fatal(err)
	}
	o := c.C(e)
	c.paid(o, n)
	if o.Headers["settlement-overrides"] != "" {
		t.Error("the override left the server")
	}
	if v := e.of("settle"); len(v) != 1 || v[0].text("amount") != amount || !strings.Contains(string(v[0].sent), `"amount":"`+amount+`"`) {
		t.Errorf("%s", v[0].sent)
	}
	c.ends(1, []int{int(n)}, 100-n)
}

func overrideAbove(t *testing.T, s *service, a *actors) {
	for _, amount := range []string{"50", "6"} { // above the plan and above the hold
		c := newScene(t, s, a)
		e := c.E(func(a *serverArgs) { a.Override = amount })
		o := c.C(e)
		c.refused(o)
		if r := c.receipt(o.Headers["payment-response"]); r.Success || r.ErrorReason != "settlement_exceeds_amount" {
			t.Errorf("%s: %+v", amount, r)
		}
		// The stock server tells nobody that the work is lost, so its hold ends by itself.
		c.advance(76 * time.Second)
		c.ends(1, nil, 100)
	}
}

func failingHandler(t *testing.T, s *service, a *actors) {
	t.Run("with the hook", func(t *testing.T) {
		c := newScene(t, s, a)
		e := c.E(func(a *serverArgs) { a.Status = 500 })
		if o := c.C(e); o.Status != 500 {
			t.Errorf("%+v", o)
		}
		if r := e.of("release"); len(r) != 1 || r[0].status != 200 || r[0].text("status") != "released" {
			t.Errorf("%+v", r)
		}
		c.ends(1, nil, 100)
	})
	t.Run("without it", func(t *testing.T) {
		c := newScene(t, s, a)
		e := c.E(func(a *serverArgs) { a.Status, a.NoCancelHook = 500, true })
		if o := c.C(e); o.Status != 500 {
			t.Errorf("%+v", o)
		}
		if b := c.balance(); b.Available != 95 || b.Balance != 100 {
			t.Errorf("%+v", b)
		}
		c.advance(74 * time.Second)
		if b := c.balance(); b.Available != 95 {
			t.Errorf("the hold ended before its time: %+v", b)
		}
		c.advance(2 * time.Second)
		c.ends(1, nil, 100)
	})
	t.Run("in Go", func(t *testing.T) {
		c := newScene(t, s, a)
		g := c.G()
		header, err := c.goPay(c.send(g).header.Get("Payment-Required"))
		if err != nil {
			t.Fatal(err)
		}
		g.ask += "?fail"
		if r := c.send(g, header); r.status != 500 {
			t.Errorf("%d %s", r.status, r.body)
		}
		c.ends(1, nil, 100)
	})
}

// refusals makes sure that payments that were sent again were refused as such.
func (c *scene) refusals(answers []*answer, want int) {
	c.Helper()
	n := 0
	for _, a := range answers {
		if a.status == 402 {
			n++
			if word, _, _ := strings.Cut(a.error(), ":"); word != x402.ReasonInFlight && word != x402.ReasonDuplicate {
				c.Errorf("402 says %q", a.error())
			}
		}
	}
	if got := counted(answers); n != want || got[200] != len(answers)-want {
		c.Errorf("%v", got)
	}
}

func twentyAtOnce(t *testing.T, s *service, a *actors) {
	for what, open := range map[string]func(*scene) *party{"express": func(c *scene) *party { return c.E() }, "paid": func(c *scene) *party { return c.O() }} {
		t.Run(what, func(t *testing.T) {
			c := newScene(t, s, a)
			p := open(c)
			c.refusals(c.sendAll(p, slices.Repeat([]string{c.pay(p)}, 20)), 19)
			c.ends(1, []int{5}, 95)
		})
	}
}

func oneNonceAgain(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e, o := c.E(), c.O()
	payment := c.pay(e)
	var answers []*answer
	for range 5 {
		answers = append(answers, c.send(e, payment))
	}
	c.refusals(answers, 4)
	c.refusals([]*answer{c.send(o, payment)}, 1)
	s.restart()
	c.refusals([]*answer{c.send(e, payment), c.send(o, payment)}, 2)
	c.ends(1, []int{5}, 95)
}

func moreThanCredits(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	payments := make([]string, 30)
	for i := range payments {
		payments[i] = c.pay(e)
	}
	answers := c.sendAll(e, payments)
	if n := counted(answers); n[200] != 20 || n[402] != 10 {
		t.Errorf("%v", n)
	}
	for _, a := range answers {
		if a.status == 402 {
			c.begins(a.error(), "insufficient_funds")
		}
	}
	c.ends(20, slices.Repeat([]int{5}, 20), 0)
}

func noNonce(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	none := func(a *clientArgs) { a.Nonce = new(json.RawMessage); *a.Nonce = json.RawMessage("null") }
	c.paid(c.C(e, none), 5)
	c.begins(c.refused(c.C(e, none)), x402.ReasonDuplicate)
	c.ends(1, []int{5}, 95)
}

func paymentIdentifier(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	offers := func(a *serverArgs) {
		a.Extensions = map[string]any{x402.ExtensionPaymentIdentifier: map[string]any{"info": map[string]any{"required": false}, "schema": map[string]any{"type": "object"}}}
	}
	e, dearer := c.E(offers), c.E(offers, func(a *serverArgs) { a.Price = 6 })
	named := func(a *clientArgs) { a.PaymentIdentifier = "pay_" + strings.TrimPrefix(string(c.plan), "0")[:32] }
	c.paid(c.C(e, named), 5)
	c.begins(c.refused(c.C(e, named)), x402.ReasonDuplicate)
	c.begins(c.refused(c.C(dearer, named)), x402.ReasonIdentifierConflict)
	c.ends(1, []int{5}, 95)
}

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
	if o := c.C(e); !strings.Contains(o.Thrown, "the server asks for plan "+string(other)) || len(o.Trips) != 1 {
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
			if r := c.send(p, payment); r.status != want {
				t.Errorf("%d bytes: %d, want %d: %s", len(payment), r.status, want, r.body)
			}
		}
	}
	c.ends(3, []int{5, 5, 5}, 85)
}

func slashes(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	c.paid(c.C(e), 5)
	body := string(e.of("verify")[0].sent)
	plain := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, path := range []string{"//api/v1/x402/verify", "/api/v1/x402/verify/", "/api/v1//x402/verify", "/api/v1/x402//verify"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.builder.Key)
		req.Header.Set("Content-Type", "application/json")
		res, err := plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var verdict struct{ InvalidReason string }
		err = json.NewDecoder(res.Body).Decode(&verdict)
		_ = res.Body.Close()
		if res.StatusCode != 200 || err != nil || verdict.InvalidReason != x402.ReasonDuplicate {
			t.Errorf("%s: %d %+v %v", path, res.StatusCode, verdict, err)
		}
	}
	c.ends(1, []int{5}, 95)
}

// settledOnce makes sure that a settlement whose answer was lost can be asked for again, and gives the same bytes.
func (c *scene) settledOnce(lost *call) {
	c.Helper()
	for range 2 {
		req, err := http.NewRequestWithContext(c.Context(), "POST", c.url+"/api/v1/x402/settle", strings.NewReader(string(lost.sent)))
		if err != nil {
			c.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.builder.Key)
		req.Header.Set("Content-Type", "application/json")
		a, err := read(req)
		if err != nil || a.status != 200 || string(a.body) != string(lost.answer) || a.header.Get("Idempotency-Replayed") != "true" {
			c.Errorf("%+v %v, want %s", a, err, lost.answer)
		}
	}
	var receipt x402.SettleResponse
	if err := x402.Decode(lost.answer, &receipt); err != nil || receipt.Extra == nil {
		c.Fatalf("%s %v", lost.answer, err)
	}
	found, err := c.service.client(c.subscriber).Settlement(c.Context(), receipt.Extra.AgentRequestID)
	if err != nil || found.Status != "settled" || found.Transaction == nil || fmt.Sprint(*found.Transaction) != receipt.Transaction {
		c.Errorf("%+v %v", found, err)
	}
}

func lostAnswer(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	e.intercept(func(c *call) bool { return c.operation != "settle" })
	o := c.C(e)
	c.refused(o)
	if r := c.receipt(o.Headers["payment-response"]); r.Success {
		t.Errorf("%+v", r)
	}
	c.settledOnce(e.of("settle")[0])
	c.ends(1, []int{5}, 95)
}

func diesAfterCommit(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a)
	e := c.E()
	e.intercept(func(c *call) bool {
		if c.operation == "settle" {
			s.process.Kill()
		}
		return c.operation != "settle"
	})
	c.refused(c.C(e))
	s.restart()
	c.settledOnce(e.of("settle")[0])
	c.ends(1, []int{5}, 95)
}

func freePlan(t *testing.T, s *service, a *actors) {
	c := newScene(t, s, a, func(s *setting) { s.price, s.unordered = toll.PriceFree(), true })
	e := c.E()
	c.paid(c.C(e), 5)
	c.ends(1, []int{5}, 95)
}

// Cards have no rail in the program, so that of the stand-in is used.
func TestScenes_S02(t *testing.T) {
	a := cast(t)
	s := inside(t, server.Config{})
	c := newScene(t, s, a, func(set *setting) {
		price, err := toll.PriceFiat(toll.UnitsOf(1_000_000), s.builder.Address, toll.CurrencyUSD)
		if err != nil {
			t.Fatal(err)
		}
		set.price, set.scheme, set.network = price, x402.Default.SchemeCard(), toll.Sandbox.CardNetwork()
	})
	c.paid(c.C(c.E()), 5)
	c.ends(1, []int{5}, 95)
}
