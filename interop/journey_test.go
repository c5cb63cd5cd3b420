package interop

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
)

// TestJourney: two persons have a browser and the address of an empty service, and nothing else. One sells an agent, the other
// buys its plan by card and calls it, and the seller sees that within two seconds, on a page that was open before.
func TestJourney(t *testing.T) {
	inBrowser(t, func(b *browser) {
		o := servertest.Options{Data: b.TempDir(), Listen: servertest.FreeAddress(b.T), Args: []string{"--loopback-webhooks"}}
		s := &service{owner: b.T, options: o, process: servertest.Start(b.T, o)}
		s.url = strings.Replace(s.process.URL, "127.0.0.1", "localhost", 1) // browsers take no passkey on an IP address
		w := &town{browser: b, service: s}
		var handler http.Handler
		agent := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler.ServeHTTP(rw, r) }))
		b.Cleanup(agent.Close)

		w.open("seller", true, "")
		w.visit(s.url+"/sign-up", http.StatusOK)
		w.look("journey sign-up")
		w.signUp("Sally")
		w.seller = w.workspace()
		w.look("journey first page")
		agentID := toll.AgentID(w.registerByForm(agent.URL + "/count"))
		planID := toll.PlanID(w.makePlanByForm())
		w.visit(w.sells("/agents/"+string(agentID)), http.StatusOK)
		w.press("Attach plan")
		w.typeInto("Plan", "Words for five dollars")
		w.look("journey dialog")
		w.press("Attach plan")
		w.read("Plan attached.")
		w.look("journey agent")
		var runs, answered atomic.Int64
		work := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			content(&runs).ServeHTTP(rw, r)
			answered.Store(time.Now().UnixNano())
		})
		server := client.New(w.keyByForm(), client.WithURL(s.url), servertest.Patient)
		handler = paid.Handler(server, work, paid.PublicURL(agent.URL), paid.Plan(planID), paid.Agent(agentID), paid.Credits(2))
		w.visit(w.sells("/plans/"+string(planID)), http.StatusOK)
		w.look("journey plan")
		w.press("Public page")
		public := w.read("Credits per order")
		w.visit(w.sells(""), http.StatusOK)
		w.textOf(".live-mark")
		// A page that nobody sees waits for nothing, and goes on when somebody does.
		w.must("hide", map[string]any{"hidden": true, "waits": 0}, nil)
		w.must("hide", map[string]any{"hidden": false, "waits": 1}, nil)
		w.must("key", map[string]any{"key": "?"}, nil)
		w.read("Search or jump to")
		w.look("journey keys")
		w.must("key", map[string]any{"key": "Escape"}, nil)

		w.open("buyer", true, "")
		w.visit(public, http.StatusOK)
		w.look("journey plan for strangers")
		w.press("Sign up to buy")
		w.signUpAs("Stan")
		w.read("100 credits")
		w.look("journey plan before the purchase")
		w.press("Pay 5.00 USD by card")
		w.read("TEST PAGE: NO MONEY MOVES")
		w.look("journey card")
		w.fillCard("4242 4242 4242 4242", "Pay")
		w.read("Order paid")
		w.look("journey order paid")
		w.press("How to call it")
		w.read("You have this plan. 100 credits left")
		w.look("journey plan after the purchase")
		w.press("Try it")
		w.read("You pay with your credits")
		w.look("journey call")
		w.press("Send request")
		w.turn("seller")
		row := w.textOf("#latest tbody tr")
		took := time.Since(time.Unix(0, answered.Load()))
		if took > 2*time.Second || runs.Load() != 1 {
			b.Errorf("the settlement of %d calls was there after %s", runs.Load(), took)
		}
		b.Logf("the settlement was there after %s", took)
		for _, want := range []string{"Counts words", agent.URL + "/count", "Words for five dollars", "98"} {
			if !strings.Contains(row, want) {
				b.Errorf("the overview of the seller has no %q: %q", want, row)
			}
		}
		w.look("journey overview")
		w.turn("buyer")
		w.read("Burned 2 credits.")
		if left := w.textOf("select[name=plan]"); !strings.Contains(left, "98 credits left") {
			b.Errorf("the page of the call says of the plan: %q", left)
		}
		w.look("journey answer")
	})
}

// sells is the address of a page of the seller.
func (w *town) sells(path string) string { return w.url + "/w/" + w.seller + path }

// made returns the id at the end of the address of the page that says what a form did.
func (w *town) made(text string) string {
	w.Helper()
	at, _, _ := strings.Cut(w.read(text), "?")
	return at[strings.LastIndex(at, "/")+1:]
}

// registerByForm registers an agent with one endpoint.
func (w *town) registerByForm(endpoint string) string {
	w.Helper()
	w.visit(w.sells("/agents"), http.StatusOK)
	w.look("journey no agents")
	w.press("Create agent")
	w.typeInto("Paid endpoints", "POST "+endpoint)
	w.typeInto("Name", "Counts words")
	w.typeInto("Description", "Counts the words in a text.")
	w.look("journey agent form")
	w.press("Create agent")
	return w.made("Agent created.")
}

// makePlanByForm makes a plan of 100 credits for 5.00 USD, after the page has shown what buyers see.
func (w *town) makePlanByForm() string {
	w.Helper()
	w.visit(w.sells("/plans"), http.StatusOK)
	w.look("journey no plans")
	w.press("Create plan")
	w.typeInto("Payment method", "Card, in USD")
	w.typeInto("Price", "5.00")
	w.typeInto("Credits per request: maximum", "5")
	w.typeInto("Name", "Words for five dollars")
	w.read("USD · 100 credits")
	w.look("journey plan form")
	w.press("Create plan")
	return w.made("Plan created.")
}

// keyByForm makes an API key with which a server takes payments.
func (w *town) keyByForm() string {
	w.Helper()
	w.visit(w.sells("/keys/new"), http.StatusOK)
	w.typeInto("Name", "server")
	w.press("Accept payments for your agents")
	w.look("journey key form")
	w.press("Create API key")
	w.read("API key created.")
	w.look("journey key")
	return w.textOf(".once code")
}
