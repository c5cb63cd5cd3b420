package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// wire is the way to the service: it records the calls and may answer in place of the service.
type wire struct {
	mu      sync.Mutex
	calls   []string // "POST /api/v1/x402/verify"
	bodies  []string
	instead func(*http.Request) *http.Response // nil, or nil result: the service answers
}

func (l *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	l.mu.Lock()
	l.calls = append(l.calls, r.Method+" "+r.URL.Path)
	l.bodies = append(l.bodies, string(body))
	instead := l.instead
	l.mu.Unlock()
	if instead != nil {
		if res := instead(r); res != nil {
			return res, nil
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// count returns how many calls hold a text, and forgets all calls.
func (l *wire) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if strings.Contains(c, part) {
			n++
		}
	}
	l.calls, l.bodies = nil, nil
	return n
}

// set has calls whose path ends so answered with a status and a body.
func (l *wire) set(end string, status int, body string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.instead = func(r *http.Request) *http.Response {
		if !strings.HasSuffix(r.URL.Path, end) {
			return nil
		}
		return &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(body)),
		}
	}
}

// seller is a service, and a core whose account is the builder, with the paid endpoint on.
type seller struct {
	*controlled
	svc  *tolltest.Service
	wire *wire
}

func newSeller(t *testing.T, svc *tolltest.Service, edit func(*gateway.Options)) seller {
	t.Helper()
	key := must.Get(svc.NewKey("builder"))(t)
	on, l := true, &wire{}
	opts := gateway.Options{
		CoreToken:     testToken,
		ServiceClient: &http.Client{Transport: l},
		Config: gateway.Config{
			APIKey: key.Key, BaseURL: svc.URL(), PlanID: svc.Plan(), AgentID: svc.Agent(),
			EnablePaidEndpoint: &on, CreditsPerRequest: 2, PublicURL: "https://agent.example.com",
		},
	}
	if edit != nil {
		edit(&opts)
	}
	return seller{newControlled(t, opts), svc, l}
}

type paidAnswer struct {
	status int
	header http.Header
	body   string
}

// receipt is what subscribers read of payment-response.
type receipt struct {
	Success          bool   `json:"success"`
	ErrorReason      string `json:"errorReason"`
	CreditsRedeemed  string `json:"creditsRedeemed"`
	RemainingBalance string `json:"remainingBalance"`
}

func (a *paidAnswer) receipt(t *testing.T) (s receipt) {
	t.Helper()
	must.Check(t, x402.DecodeHeader(a.header.Get(x402.HeaderResponse), &s), "no receipt")
	return s
}

const paidPath = "/service/agent"

func (s seller) ask(token, body string, edit ...func(*http.Request)) paidAnswer {
	s.t.Helper()
	req := must.Get(http.NewRequestWithContext(s.t.Context(), "POST", s.url+paidPath, strings.NewReader(body)))(s.t)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set(x402.HeaderSignature, token)
	}
	for _, e := range edit {
		e(req)
	}
	res := must.Get(http.DefaultClient.Do(req))(s.t)
	defer res.Body.Close()
	b := must.Get(io.ReadAll(res.Body))(s.t)
	return paidAnswer{res.StatusCode, res.Header, string(b)}
}

const hi = `{"prompt":"hi"}`
