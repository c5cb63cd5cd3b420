package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// copier is a server that repeats the 402 of an honest one, as it changes it, and spends there what
// it is paid.
type copier struct {
	*testing.T
	svc    *tolltest.Service
	honest string // url of the honest server
	worked atomic.Int64
	url    string
	change func(required map[string]any)
}

// newCopier returns a copier of a server whose 402 names its agent, or does not.
func newCopier(t *testing.T, agent bool) *copier {
	t.Helper()
	c := &copier{T: t, svc: tolltest.New(t)}
	var h http.Handler
	honest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(honest.Close)
	opts := []paid.Option{paid.Plan(c.svc.Plan()), paid.Credits(5), paid.PublicURL(honest.URL)}
	if agent {
		opts = append(opts, paid.Agent(c.svc.Agent()))
	}
	ask := func(http.ResponseWriter, *http.Request) { c.worked.Add(1) }
	h = paid.Handler(c.svc.Facilitator(), http.HandlerFunc(ask), opts...)
	copying := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(copying.Close)
	c.honest, c.url = honest.URL, copying.URL
	return c
}

func (c *copier) serve(w http.ResponseWriter, r *http.Request) {
	payment := r.Header.Get(x402.HeaderSignature)
	res := c.call(payment)
	if payment != "" {
		// The access token alone, too: nothing of the object around it is signed.
		if t, err := x402.DecodeToken(payment); err == nil {
			c.call(t.JWS)
		}
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	var required map[string]any
	must.Check(c, x402.DecodeHeader(res.Header.Get(x402.HeaderRequired), &required))
	c.change(required)
	value, err := x402.EncodeHeader(required)
	must.Check(c, err)
	w.Header().Set(x402.HeaderRequired, value)
	w.WriteHeader(http.StatusPaymentRequired)
}

// call makes a request of its own to the honest server.
func (c *copier) call(payment string) *http.Response {
	question := strings.NewReader("my own question")
	req, err := http.NewRequest(http.MethodPost, c.honest+"/ask", question)
	if err != nil {
		c.Error(err)
		return nil
	}
	if payment != "" {
		req.Header.Set(x402.HeaderSignature, payment)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Error(err)
		return nil
	}
	_ = res.Body.Close()
	return res
}

func (c *copier) register(urls ...string) {
	c.Helper()
	s := &seller{T: c.T, svc: c.svc}
	s.endpoints(urls...)
}

// limits let both servers be paid.
func (c *copier) limits() client.Limits {
	l := client.Limits{CreditsPerCall: 5, Credits: 500}
	for _, address := range []string{c.honest, c.url} {
		l.Hosts = append(l.Hosts, hostOf(c.T, address))
	}
	return l
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u := must.Get(url.Parse(address))(t)
	return client.HostOf(u)
}

// pay calls a url with a payer.
func (c *copier) pay(address string, payer client.Payer) (*http.Response, error) {
	res, err := (&http.Client{Transport: client.NewTransport(client.NewPurse(c.limits()), payer)}).
		Post(address+"/ask", "text/plain", strings.NewReader("the question of the buyer"))
	if err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	return res, err
}

// payHonest pays the honest server, which takes 5 of 100 credits.
func (c *copier) payHonest(who *tolltest.Subscriber, payer client.Payer) {
	c.Helper()
	res, err := c.pay(c.honest, payer)
	if err != nil || res.StatusCode != http.StatusOK || who.Balance() != 95 {
		c.Errorf("the honest server was not paid: %v, %v", res, err)
	}
}

// unsent reports whether err is a refusal to pay that says so.
func unsent(err error, want string) bool {
	e, ok := errors.AsType[*client.PaymentError](err)
	return ok && !e.Sent && strings.Contains(err.Error(), want)
}

func resourceOf(required map[string]any) map[string]any { return required["resource"].(map[string]any) }

func extraOf(required map[string]any) map[string]any {
	return required["accepts"].([]any)[0].(map[string]any)["extra"].(map[string]any)
}

// TestTransport_RepeatedChallenge: a server that asks for what another builder asks for gets no
// payment that it could spend there, however it changes the 402, and whatever the buyer has named.
func TestTransport_RepeatedChallenge(t *testing.T) {
	tricks := map[string]func(c *copier, required map[string]any){
		"verbatim":          func(*copier, map[string]any) {},
		"its own resource":  func(c *copier, r map[string]any) { resourceOf(r)["url"] = c.url + "/ask" },
		"a path":            func(_ *copier, r map[string]any) { resourceOf(r)["url"] = "/ask" },
		"no resource":       func(_ *copier, r map[string]any) { delete(r, "resource") },
		"a resource of mcp": func(_ *copier, r map[string]any) { resourceOf(r)["url"] = "mcp://ask/tools/ask" },
		"no agent": func(c *copier, r map[string]any) {
			resourceOf(r)["url"] = c.url + "/ask"
			delete(extraOf(r), "agentId")
		},
		"no agent and no resource": func(_ *copier, r map[string]any) {
			delete(r, "resource")
			delete(extraOf(r), "agentId")
		},
		"an agent of its own": func(c *copier, r map[string]any) {
			resourceOf(r)["url"] = c.url + "/ask"
			key, err := c.svc.NewKey("the copier")
			if err != nil {
				c.Error(err)
				return
			}
			own := toll.EndpointList{{Verb: "POST", URL: c.url + "/ask"}}
			api := client.New(key.Key, client.WithURL(c.svc.URL()))
			registered, err := api.RegisterAgent(c.Context(), client.AgentParams{
				Metadata: toll.Metadata{Name: "Copier"}, API: toll.AgentAPI{Endpoints: own},
			})
			if err != nil {
				c.Error(err)
				return
			}
			extraOf(r)["agentId"] = registered.AgentID
		},
		"an agent that is none": func(c *copier, r map[string]any) {
			resourceOf(r)["url"] = c.url + "/ask"
			extraOf(r)["agentId"] = "../plans"
		},
	}
	for name, change := range tricks {
		t.Run(name, func(t *testing.T) {
			c := newCopier(t, true)
			c.register(c.honest + "/ask")
			c.change = func(required map[string]any) { change(c, required) }
			who := c.svc.Subscriber(100)
			for payers, payer := range map[string]*client.CreditsPayer{
				"any plan":   who.Client.Payer(),
				"named":      who.Client.Payer(c.svc.Plan()),
				"vouched at": who.Client.Payer(c.svc.Plan()).At(hostOf(t, c.url)),
			} {
				res, err := c.pay(c.url, payer)
				if !unsent(err, "") {
					t.Errorf("%s: got %v, %v", payers, res, err)
				}
			}
			if n := c.worked.Load(); n != 0 || who.Balance() != 100 {
				t.Errorf("the honest server worked %d times, and the buyer has %d credits", n, who.Balance())
			}
			c.payHonest(who, who.Client.Payer())
		})
	}
}

// TestTransport_AgentsWithoutHosts: where the records of agents name no host, the buyer has to.
func TestTransport_AgentsWithoutHosts(t *testing.T) {
	for name, urls := range map[string][]string{
		"no endpoint": nil,
		"a path":      {"/ask", "/tasks/:id"},
	} {
		for _, agent := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				c := newCopier(t, agent)
				c.register(urls...)
				c.change = func(r map[string]any) { resourceOf(r)["url"] = c.url + "/ask" }
				who := c.svc.Subscriber(100)
				named := who.Client.Payer(c.svc.Plan())
				for _, payer := range []*client.CreditsPayer{
					who.Client.Payer(), named, who.Client.Payer().At(hostOf(t, c.honest)),
				} {
					if res, err := c.pay(c.honest, payer); !unsent(err, "") {
						t.Errorf("got %v, %v", res, err)
					}
				}
				vouched := named.At(hostOf(t, c.honest))
				if _, err := c.pay(c.url, vouched); !unsent(err, "cannot verify that") {
					t.Errorf("the copier: %v", err)
				}
				c.payHonest(who, vouched)
			})
		}
	}
}

// TestTransport_EntryWithoutAgent: one agent of the plan that is registered at the server is
// enough.
func TestTransport_EntryWithoutAgent(t *testing.T) {
	c := newCopier(t, false)
	c.register("https://agent.example.com/ask")
	must.Get(c.svc.Client().RegisterAgent(t.Context(), client.AgentParams{
		Metadata: toll.Metadata{Name: "Second"}, Plans: []toll.PlanID{c.svc.Plan()},
		API: toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "GET", URL: c.honest + "/{item}/*"}}},
	}))(t)
	who := c.svc.Subscriber(100)
	c.payHonest(who, who.Client.Payer())
}

// TestTransport_Redirect: where a request ends up decides whose resource is paid for.
func TestTransport_Redirect(t *testing.T) {
	c := newCopier(t, true)
	c.register(c.honest + "/ask")
	c.change = func(map[string]any) {}
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, c.url+"/ask", http.StatusTemporaryRedirect)
	}))
	defer first.Close()
	who := c.svc.Subscriber(100)
	if res, err := c.pay(first.URL, who.Client.Payer()); !unsent(err, "which is not at") {
		t.Errorf("got %v, %v", res, err)
	}
	if n := c.worked.Load(); n != 0 || who.Balance() != 100 {
		t.Errorf("the honest server worked %d times", n)
	}
}

// TestTransport_Resource: what resource.url may be for a request, compared by scheme, host and
// port.
func TestTransport_Resource(t *testing.T) {
	for _, c := range []struct {
		called, resource string
		paid             bool
	}{
		{"https://a.example/ask", "https://a.example/ask", true},
		{"https://a.example/ask", "https://a.example/other?q=1", true},
		{"https://a.example/ask", "https://A.EXAMPLE:443/ask", true},
		{"https://a.example:443/ask", "https://a.example/ask", true},
		{"http://a.example/ask", "http://a.example:80", true},
		{"https://a.example:8443/ask", "https://a.example:8443/ask", true},
		{"https://a.example/ask", "", true},
		{"https://a.example/ask", "/ask", true},
		{"https://a.example/ask", "../other", true},
		{"https://a.example/ask", "?q", true},
		{"https://a.example/ask", "//a.example/ask", true},
		{"https://a.example/ask", "http://a.example/ask", true},
		{"https://a.example/ask", "http://a.example:80/ask", true},
		{"https://a.example:8443/ask", "http://a.example:8443/ask", true},
		{"http://127.0.0.1:8403/ask", "http://localhost:8403/ask", true},
		{"http://localhost:8403/ask", "http://[::1]:8403/ask", true},
		{"http://[::1]:8403/ask", "http://[0:0:0:0:0:0:0:1]:8403/ask", true},
		{"http://[::ffff:10.0.0.1]/ask", "http://10.0.0.1/ask", true},

		{"https://a.example/ask", "https://b.example/ask", false},
		{"http://a.example:443/ask", "https://a.example/ask", false},
		{"http://a.example/ask", "https://a.example/ask", false},
		{"https://a.example:80/ask", "http://a.example/ask", false},
		{"https://a.example/ask", "http://a.example:8080/ask", false},
		{"https://a.example/ask", "https://a.example:8443/ask", false},
		{"https://a.example:8443/ask", "https://a.example/ask", false},
		{"https://a.example/ask", "//b.example/ask", false},
		{"https://a.example/ask", "https://a.example@b.example/ask", false},
		{"https://a.example/ask", "https://a.example.b.example/ask", false},
		{"https://a.example/ask", "https://sub.a.example/ask", false},
		{"https://a.example/ask", "https:a.example/ask", false},
		{"https://a.example/ask", "https:///ask", false},
		{"https://a.example/ask", "mcp://a.example/tools/ask", false},
		{"https://a.example/ask", "urn:a.example", false},
		{"https://a.example/ask", "https://a.example:port/ask", false},
		{"https://a.example/ask", "https://%61.example/%zz", false},
		{"http://127.0.0.1:8403/ask", "http://127.0.0.1:8404/ask", false},
		{"http://127.0.0.1:8403/ask", "http://127.0.0.2:8403/ask", false},
		{"http://127.0.0.1:8403/ask", "https://localhost:8403/ask", false},
		{"http://127.0.0.1:8403/ask", "http://localhost.example:8403/ask", false},
	} {
		u := must.Get(url.Parse(c.called))(t)
		paid := false
		base := roundTripper(func(r *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			if r.Header.Get(x402.HeaderSignature) != "" {
				paid = true
				settle(rec, `{"success":true,"transaction":"0x1","network":"n:1"}`)
				return rec.Result(), nil
			}
			value, err := x402.EncodeHeader(map[string]any{
				"x402Version": 2, "resource": map[string]any{"url": c.resource},
				"accepts": []any{json.RawMessage(`{"scheme":"coins","network":"n:1","amount":"1"}`)},
			})
			must.Check(t, err)
			rec.Header().Set(x402.HeaderRequired, value)
			rec.WriteHeader(http.StatusPaymentRequired)
			return rec.Result(), nil
		})
		purse := client.NewPurse(limitsFor(t, c.called, 1, 1))
		h := &http.Client{Transport: client.NewTransport(purse, new(coins)).Over(base)}
		res, err := h.Get(c.called)
		if err == nil {
			_ = res.Body.Close()
		}
		if paid != c.paid || paid != (err == nil) || !paid && !unsent(err, "") {
			t.Errorf("%s asks at %s for payment of %q: paid is %v, %v",
				client.HostOf(u), c.called, c.resource, paid, err)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
