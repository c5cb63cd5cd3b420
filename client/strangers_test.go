package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// seller is a builder who runs its server as it likes.
type seller struct {
	*testing.T
	svc  *tolltest.Service
	url  string
	took func(w http.ResponseWriter, payment string) // answers a paid request
	// asking is called before a call of the buyer reaches the service.
	asking func(r *http.Request)
}

// newSeller returns a seller whose agent is registered at the address of its server.
func newSeller(t *testing.T) *seller {
	t.Helper()
	s := &seller{T: t, svc: tolltest.New(t)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if payment := r.Header.Get(x402.HeaderSignature); payment != "" {
			s.took(w, payment)
			return
		}
		s.ask(w, s.required())
	}))
	t.Cleanup(server.Close)
	s.url = server.URL
	s.endpoints(server.URL + "/ask")
	return s
}

// endpoints registers the urls for the agent of the seller, in place of those that it had.
func (s *seller) endpoints(urls ...string) {
	s.Helper()
	list := toll.EndpointList{}
	for _, u := range urls {
		list = append(list, toll.Endpoint{Verb: "POST", URL: u})
	}
	must.Get(s.svc.Client().UpdateAgent(s.Context(), s.svc.Agent(),
		toll.AgentUpdate{API: toll.AgentAPIUpdate{Endpoints: toll.SetTo(list)}}))(s)
}

// required asks for 5 credits.
func (s *seller) required() *x402.PaymentRequired {
	s.Helper()
	terms := must.Get(s.svc.Client().Terms(s.Context(), s.svc.Plan()))(s)
	return x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{
		Endpoint: s.url + "/ask", AgentID: s.svc.Agent(), HTTPVerb: http.MethodPost,
		Amount: toll.Credits(5).Ptr(),
	})
}

func (s *seller) ask(w http.ResponseWriter, p *x402.PaymentRequired) {
	value, err := x402.EncodeHeader(p)
	must.Check(s, err)
	w.Header().Set(x402.HeaderRequired, value)
	w.WriteHeader(http.StatusPaymentRequired)
}

// hold sets credits aside with the payment of a buyer, and returns the id of the request.
func (s *seller) hold(payment string, n toll.Credits, secs int) string {
	v, err := s.svc.Client().Verify(s.Context(), &x402.VerifyRequest{
		PaymentRequired: *s.required(), AccessToken: payment,
		MaxAmount: &n, Hold: true, HoldSecs: secs,
	})
	if err != nil || !v.IsValid {
		s.Errorf("the hold is refused: %+v, %v", v, err)
		return ""
	}
	return v.AgentRequestID
}

// settle tries to burn 5 credits; id may be "".
func (s *seller) settle(payment, id string) {
	if _, err := s.svc.Client().Settle(s.Context(), &x402.SettleRequest{
		PaymentRequired: *s.required(), AccessToken: payment,
		AgentRequestID: id, MaxAmount: toll.Credits(5).Ptr(),
	}); err != nil {
		s.Error(err)
	}
}

// buyer returns a client of a new account with 100 credits, whose calls s.asking sees.
func (s *seller) buyer() (*tolltest.Subscriber, *client.Client) {
	s.Helper()
	who := s.svc.Subscriber(100)
	to := must.Get(url.Parse(s.svc.URL()))(s)
	proxy := httputil.NewSingleHostReverseProxy(to)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.asking != nil {
			s.asking(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	s.Cleanup(between.Close)
	key := must.Get(who.Client.CreateKey(s.Context(), client.KeyParams{Name: "buyer"}))(s)
	return who, client.New(key.Key, client.WithURL(between.URL))
}

func (s *seller) purse(credits toll.Credits) *client.Spending {
	s.Helper()
	u := must.Get(url.Parse(s.url))(s)
	return client.NewPurse(client.Limits{
		Hosts: []string{client.HostOf(u)}, CreditsPerCall: 5, Credits: credits,
	})
}

func counted(purse *client.Spending) (sum int64) {
	for _, p := range purse.Payments() {
		c := p.Counts()
		sum += c.Int().Int64()
	}
	return sum
}

func receipt(burned int) string {
	return fmt.Sprintf(`{"success":%v,"transaction":"0x1","network":"eip155:84532",`+
		`"creditsRedeemed":"%d","amount":"%d"}`, burned > 0, burned, burned)
}

// trick is what a seller does with a payment, and what it does after it has answered.
type trick func(s *seller, w http.ResponseWriter, payment string) (later func())

// TestTransport_SettlesLater: whatever the server of the plan's own builder does with a payment,
// and however late, the purse counts at least what is burned, and the limit holds.
func TestTransport_SettlesLater(t *testing.T) {
	for name, play := range map[string]trick{
		"lets the hold lapse": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 5, 1)
			s.svc.Advance(2 * time.Second)
			w.WriteHeader(http.StatusInternalServerError)
			return func() { s.settle(payment, id) }
		},
		"lets the hold lapse when the token has ended": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 5, 1)
			w.WriteHeader(http.StatusInternalServerError)
			return func() {
				s.svc.Advance(2 * time.Second)
				s.settle(payment, id)
			}
		},
		"keeps the hold": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 5, 900)
			w.WriteHeader(http.StatusInternalServerError)
			return func() { s.settle(payment, id) }
		},
		"holds nothing": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 0, 900)
			w.WriteHeader(http.StatusInternalServerError)
			return func() { s.settle(payment, id) }
		},
		"holds one": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 1, 900)
			w.WriteHeader(http.StatusInternalServerError)
			return func() { s.settle(payment, id) }
		},
		"holds nothing of what it asked for": func(s *seller, w http.ResponseWriter, payment string) func() {
			w.WriteHeader(http.StatusInternalServerError)
			return func() { s.settle(payment, "") }
		},
		"says that it took less": func(s *seller, w http.ResponseWriter, payment string) func() {
			s.settle(payment, "")
			settle(w, receipt(1))
			return func() {}
		},
		"takes less, and the rest later": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 4, 900)
			settle(w, receipt(1))
			return func() { s.settle(payment, id) }
		},
		"says that it failed": func(s *seller, w http.ResponseWriter, payment string) func() {
			s.settle(payment, "")
			settle(w, receipt(0))
			w.WriteHeader(http.StatusPaymentRequired)
			return func() {}
		},
		"gives no receipt": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 5, 900)
			w.WriteHeader(http.StatusOK)
			return func() { s.settle(payment, id) }
		},
		"settles while the buyer asks": func(s *seller, w http.ResponseWriter, payment string) func() {
			id := s.hold(payment, 5, 900)
			s.asking = func(r *http.Request) {
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/permissions/") {
					s.settle(payment, id)
				}
			}
			w.WriteHeader(http.StatusInternalServerError)
			return func() { s.asking = nil }
		},
		"ends the connection": func(s *seller, _ http.ResponseWriter, payment string) func() {
			s.settle(payment, "")
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeller(t)
			who, c := s.buyer()
			var later []func()
			s.took = func(w http.ResponseWriter, payment string) {
				later = append(later, play(s, w, payment))
			}
			purse := s.purse(10)
			h := &http.Client{Transport: client.NewTransport(purse, c.Payer())}
			for range 8 {
				if res, err := h.Post(s.url+"/ask", "", strings.NewReader("x")); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				for _, do := range later {
					do()
				}
				later = nil
			}
			burned := int64(100 - who.Balance())
			if n := counted(purse); burned > n || n > 10 {
				t.Errorf("%d credits were burned, and the purse counts %d of 10: %+v",
					burned, n, purse.Payments())
			}
		})
	}
}

// TestTransport_NothingTaken: a payment that can no longer be settled costs nothing, also when the
// account has holds of others.
func TestTransport_NothingTaken(t *testing.T) {
	s := newSeller(t)
	who, c := s.buyer()
	s.hold(who.AccessToken, 5, 900)
	s.took = func(w http.ResponseWriter, payment string) {
		id := s.hold(payment, 5, 900)
		_, err := s.svc.Client().Release(t.Context(), &x402.ReleaseRequest{AgentRequestID: id})
		must.Check(t, err)
		w.WriteHeader(http.StatusInternalServerError)
	}
	purse := s.purse(10)
	h := &http.Client{Transport: client.NewTransport(purse, c.Payer())}
	res := must.Get(h.Post(s.url+"/ask", "", strings.NewReader("x")))(s)
	res.Body.Close()
	p := purse.Payments()
	if len(p) != 1 || p[0].State != client.PaymentRefused || counted(purse) != 0 {
		t.Errorf("recorded %+v", p)
	}
}

// TestCheck: what became of a payment says the service, as soon as nothing of it can be settled any
// more and not before. A request that may be under way is left alone.
func TestCheck(t *testing.T) {
	const life = 6 * time.Minute // longer than the access token of a payment
	for name, c := range map[string]struct {
		took     func(s *seller, w http.ResponseWriter, payment string) (id string)
		later    func(s *seller, payment, id string)
		want     client.PaymentState
		spent    string
		underWay bool
	}{
		"a stream that was settled": {
			func(s *seller, w http.ResponseWriter, payment string) string { return s.hold(payment, 5, 900) },
			func(s *seller, payment, id string) { s.settle(payment, id) },
			client.PaymentPaid, "5", false,
		},
		"a stream that is under way": {
			func(s *seller, w http.ResponseWriter, payment string) string { return s.hold(payment, 5, 900) },
			func(*seller, string, string) {},
			client.PaymentUnknown, "0", true,
		},
		"a stream that ended when its hold had lapsed, which is settled late": {
			func(s *seller, w http.ResponseWriter, payment string) string { return s.hold(payment, 4, 60) },
			func(s *seller, payment, id string) {
				s.svc.Advance(2 * time.Minute)
				s.settle(payment, id)
			},
			client.PaymentPaid, "5", false,
		},
		"nothing asked for yet": {
			func(*seller, http.ResponseWriter, string) string { return "" },
			func(*seller, string, string) {},
			client.PaymentUnknown, "0", true,
		},
		"nothing asked for until the token has expired": {
			func(*seller, http.ResponseWriter, string) string { return "" },
			func(s *seller, _, _ string) { s.svc.Advance(life) },
			client.PaymentRefused, "0", false,
		},
		"a lapsed hold of a token that has expired": {
			func(s *seller, w http.ResponseWriter, payment string) string { return s.hold(payment, 5, 1) },
			func(s *seller, _, _ string) { s.svc.Advance(life) },
			client.PaymentRefused, "0", false,
		},
		"an open hold of a token that has expired": {
			func(s *seller, w http.ResponseWriter, payment string) string { return s.hold(payment, 5, 900) },
			func(s *seller, _, _ string) { s.svc.Advance(life) },
			client.PaymentUnknown, "0", false,
		},
		"a failure, and a hold that was kept": {
			func(s *seller, w http.ResponseWriter, payment string) string {
				id := s.hold(payment, 5, 900)
				w.WriteHeader(http.StatusInternalServerError)
				return id
			},
			func(*seller, string, string) {},
			client.PaymentUnknown, "0", true,
		},
		"a failure, and a hold that has lapsed since": {
			func(s *seller, w http.ResponseWriter, payment string) string {
				id := s.hold(payment, 5, 60)
				w.WriteHeader(http.StatusInternalServerError)
				return id
			},
			func(s *seller, _, _ string) { s.svc.Advance(2 * time.Minute) },
			client.PaymentRefused, "0", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeller(t)
			who, api := s.buyer()
			var payment, id string
			s.took = func(w http.ResponseWriter, p string) { payment, id = p, c.took(s, w, p) }
			purse, payer := s.purse(100), api.Payer()
			h := &http.Client{Transport: client.NewTransport(purse, payer)}
			res, err := h.Post(s.url+"/ask", "", strings.NewReader("x"))
			must.Do(s, err)
			res.Body.Close()
			p := purse.Payments()
			if len(p) != 1 || p[0].State != client.PaymentUnknown || counted(purse) != 5 || p[0].Permission == nil {
				t.Fatalf("recorded %+v", p)
			}
			c.later(s, payment, id)
			left := purse.Payments()[0]
			now := must.Get(payer.Check(t.Context(), left))(s)
			if now.State != c.want || now.Spent.String() != c.spent {
				t.Fatalf("it stands now at %s, %s", now.State, now.Spent)
			}
			must.Do(s, purse.Close(t.Context(), now))
			_, err = s.svc.Subscriber(0).Client.Payer().Check(t.Context(), left)
			if toll.AsError(err).Code != toll.CodePermissionNotFound {
				t.Errorf("another account is told of it: %v", err)
			}
			// Whatever the server tries now is in the sum.
			s.settle(payment, id)
			if c.underWay && who.Balance() != 95 {
				t.Error("the request that was under way can no longer be settled")
			}
			s.settle(payment, "")
			if burned := int64(100 - who.Balance()); burned > counted(purse) {
				t.Errorf("%d credits were burned, and %d are counted", burned, counted(purse))
			}
		})
	}
	nowhere := client.New("key", client.WithURL("http://127.0.0.1:1")).Payer()
	for _, p := range []client.Payment{
		{State: client.PaymentUnknown},
		{State: client.PaymentPaid, Permission: new(toll.Hash)},
		{State: client.PaymentRefused, Permission: new(toll.Hash)},
	} {
		if now, err := nowhere.Check(t.Context(), p); err != nil || now.State != p.State {
			t.Errorf("%+v: %+v, %v", p, now, err)
		}
	}
}

// TestCreditsPayer_Directory: a server chooses which agents are looked up, so that is remembered
// for a while, and bounded.
func TestCreditsPayer_Directory(t *testing.T) {
	var reads atomic.Int64
	made := ""
	base := planService(t, &made)
	answer := base.reply
	base.reply = func(n int, s sent) (int, map[string]string, string) {
		if _, id, ok := strings.Cut(s.target, "/protocol/agents/"); ok {
			reads.Add(1)
			b, err := x402.Encode(agentAt(toll.AgentID(id), "https://a.example/ask"))
			must.Check(t, err)
			return http.StatusOK, nil, string(b)
		}
		return answer(n, s)
	}
	p := base.client().Payer()
	quote := func(agent int) {
		t.Helper()
		e := &x402.Entry{
			Scheme: "svc:erc4337", Network: "eip155:84532", Amount: "1", PlanID: string(plan),
			Extra: fmt.Appendf(nil, `{"agentId":"%d"}`, agent),
		}
		if _, err := p.Quote(t.Context(), called, e); err != nil {
			t.Error(err)
		}
	}
	quote(1)
	quote(1)
	if n := reads.Load(); n != 1 {
		t.Errorf("the record of an agent was read %d times", n)
	}
	for agent := range 300 {
		quote(agent + 1)
	}
	if n := p.Remembered(); n != 256 {
		t.Errorf("%d agents are remembered", n)
	}

	// However many ways to pay a server names, sixteen are looked at.
	entries := []any{}
	for i := range 100 {
		entries = append(entries, map[string]any{
			"scheme": "svc:erc4337", "network": "eip155:84532", "amount": "100", "planId": plan,
			"extra": map[string]any{"agentId": fmt.Sprint(1000 + i)},
		})
	}
	value := must.Get(x402.EncodeHeader(map[string]any{"x402Version": 2, "accepts": entries}))(t)
	reads.Store(0)
	asking := roundTripper(func(*http.Request) (*http.Response, error) {
		rec := httptest.NewRecorder()
		rec.Header().Set(x402.HeaderRequired, value)
		rec.WriteHeader(http.StatusPaymentRequired)
		return rec.Result(), nil
	})
	purse := client.NewPurse(client.Limits{Hosts: []string{"a.example"}})
	h := &http.Client{Transport: client.NewTransport(purse, p).Over(asking)}
	if _, err := h.Get("https://a.example/ask"); !unsent(err, "100 credits") {
		t.Error(err)
	}
	if n := reads.Load(); n > 16 {
		t.Errorf("%d records were read for one request", n)
	}
}

// A payer of one agent pays no other one, and an entry that names none is paid for that agent alone,
// with the access token of the caller's making.
func TestCreditsPayer_ForOneAgent(t *testing.T) {
	s := newSeller(t)
	buyer := s.svc.Subscriber(20)
	called := must.Get(url.Parse(s.url + "/ask"))(s)
	other := toll.AgentID("7")
	entry := func(agent toll.AgentID) *x402.Entry {
		p := s.required()
		p.Accepts[0].Extra.AgentID = string(agent)
		value := must.Get(x402.EncodeHeader(p))(s)
		ask := must.Get(x402.ReadChallenge(http.Header{"Payment-Required": {value}}, nil))(s)
		return &ask.Entries[0]
	}
	payer := buyer.Client.Payer(s.svc.Plan()).For(s.svc.Agent())
	if _, err := payer.Quote(t.Context(), called, entry(other)); err == nil || !strings.Contains(err.Error(), "only agent") {
		t.Errorf("another agent: %v", err)
	}
	if _, err := buyer.Client.Payer().For(other).Quote(t.Context(), called, entry("")); err == nil {
		t.Error("an agent that does not exist")
	}
	for _, named := range []toll.AgentID{s.svc.Agent(), ""} {
		e := entry(named)
		q := must.Get(payer.Quote(t.Context(), called, e))(s)
		made := 0
		maker := func(
			ctx context.Context, plan toll.PlanID, agent toll.AgentID, most toll.Credits,
		) (*toll.AccessToken, error) {
			made++
			if plan != s.svc.Plan() || agent != s.svc.Agent() || most != 5 {
				t.Errorf("%q: a token for %s at %s, %d credits", named, plan, agent, most)
			}
			return buyer.Client.AccessToken(ctx, plan, client.WithAgent(agent))
		}
		if _, err := payer.Using(maker).Pay(t.Context(), e, q); err != nil || made != 1 {
			t.Errorf("%q: %v, %d tokens", named, err, made)
		}
	}
}
