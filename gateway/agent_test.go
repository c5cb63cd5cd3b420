package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// agent is a server that is registered for the plan of a service and answers as a test likes.
type agent struct {
	t   *testing.T
	svc *tolltest.Service
	url string

	mu       sync.Mutex
	answer   http.HandlerFunc
	payments []string // values of payment-signature that came
	requests int
}

func newAgent(t *testing.T, svc *tolltest.Service) *agent {
	t.Helper()
	a := &agent{t: t, svc: svc}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.requests++
		if p := r.Header.Get(x402.HeaderSignature); p != "" {
			a.payments = append(a.payments, p)
		}
		answer := a.answer
		a.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	a.url = s.URL + "/ask"
	list := toll.EndpointList{{Verb: "POST", URL: a.url}, {Verb: "GET", URL: a.url}, {Verb: "POST", URL: s.URL + "/other"}}
	must.Get(svc.Client().UpdateAgent(t.Context(), svc.Agent(),
		toll.AgentUpdate{API: toll.AgentAPIUpdate{Endpoints: toll.SetTo(list)}}))(t)
	return a
}

func (a *agent) set(f http.HandlerFunc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer, a.payments, a.requests = f, nil, 0
}

// seen returns how many requests came, and how many of them with a payment.
func (a *agent) seen() (requests, payments int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests, len(a.payments)
}

// sells puts the price of 2 credits on an answer.
func (a *agent) sells(f http.HandlerFunc, opts ...paid.Option) http.HandlerFunc {
	opts = append([]paid.Option{
		paid.Plan(a.svc.Plan()), paid.Agent(a.svc.Agent()), paid.Credits(2),
		paid.PublicURL(strings.TrimSuffix(a.url, "/ask")),
	}, opts...)
	return paid.Handler(a.svc.Facilitator(), f, opts...).ServeHTTP
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// challenge is a 402 of 2 credits, as edited.
func (a *agent) challenge(edit func(*x402.PaymentRequired)) http.HandlerFunc {
	terms := must.Get(a.svc.Client().Terms(a.t.Context(), a.svc.Plan()))(a.t)
	p := x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{
		Endpoint: a.url, AgentID: a.svc.Agent(), HTTPVerb: http.MethodPost, Amount: toll.Credits(2).Ptr(),
	})
	edit(p)
	value := must.Get(x402.EncodeHeader(p))(a.t)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(x402.HeaderRequired, value)
		w.WriteHeader(http.StatusPaymentRequired)
	}
}

// newQuery is a rig whose account has credits, and an agent.
func newQuery(t *testing.T, credits toll.Credits, set func(*gateway.Config), opts ...tolltest.Option) (*rig, *agent) {
	t.Helper()
	r := newRig(t, set, opts...)
	if credits > 0 {
		r.svc.Mint(r.address, credits)
	}
	return r, newAgent(t, r.svc)
}

func (r *rig) balance() toll.Credits {
	r.t.Helper()
	b := must.Get(r.client().Balance(r.t.Context(), r.svc.Plan()))(r.t)
	return b.Balance
}

// tokens returns what the access tokens of the account may spend, the newest first.
func (r *rig) tokens() (all []*toll.Permission) {
	r.t.Helper()
	for p, err := range r.client().Permissions(r.t.Context()) {
		must.Do(r.t, err)
		all = append(all, p)
	}
	return all
}

func ask(a *agent, more string) string {
	return fmt.Sprintf(`{"agentUrl":%q,"prompt":"hi"%s}`, a.url, more)
}
