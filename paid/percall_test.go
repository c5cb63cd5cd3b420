package paid_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// A 402 lists the entries of wallets behind that of the plan, in header and body, and stays short.
func TestPerCall_Challenge(t *testing.T) {
	f := newTill()
	s := callServer(t, f, &work{}, paid.HoldSecs(90), paid.PerCall(
		paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(20_000)},
		paid.Exact{Currency: toll.CurrencyEURC, Amount: toll.UnitsOf(1), PayTo: toll.MustAddress(payer), TimeoutSecs: 300},
	))
	r := send(t, "POST", s.URL+"/ask")
	c, err := x402.ReadChallenge(r.header, nil)
	if err != nil || len(r.header.Get("payment-required")) > 2<<10 {
		t.Fatalf("%d characters: %v", len(r.header.Get("payment-required")), err)
	}
	body, err := x402.ReadChallenge(http.Header{}, []byte(r.body))
	if err != nil || len(c.Entries) != 3 || len(body.Entries) != 3 {
		t.Fatalf("%d and %d entries, %v", len(c.Entries), len(body.Entries), err)
	}
	for i, want := range []string{
		`"scheme":"svc:erc4337"`,
		`{"scheme":"exact","network":"eip155:84532","amount":"20000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","payTo":"` + receiver +
			`","maxTimeoutSeconds":150,"extra":{"name":"USDC","version":"2","assetTransferMethod":"eip3009"}}`,
		`{"scheme":"exact","network":"eip155:84532","amount":"1","asset":"0x808456652fdb597867f38412077A9182bf77359F","payTo":"` + payer +
			`","maxTimeoutSeconds":300,"extra":{"name":"EURC","version":"2","assetTransferMethod":"eip3009"}}`,
	} {
		if got := string(c.Entries[i].Raw); !strings.Contains(got, want) || got != string(body.Entries[i].Raw) {
			t.Errorf("entry %d is %s in the header and %s in the body, want %s", i, got, body.Entries[i].Raw, want)
		}
	}
	if string(c.Extensions[x402.ExtensionPaymentIdentifier]) != string(x402.PaymentIdentifier(false)) || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %v", c.Extensions, r.header)
	}
}

// A wallet pays, and its answer leaves with the receipt; what is settled is the route's own entry.
func TestPerCall_Paid(t *testing.T) {
	f := newTill()
	var told []*x402.SettleResponse
	var seen paid.Payment
	h := &work{f: func(w http.ResponseWriter, r *http.Request) {
		seen, _ = paid.FromContext(r.Context())
		f.has(t, 0, 1, 0)
		w.Header().Set("Cache-Control", "public, max-age=60")
		fmt.Fprint(w, content)
	}}
	s := callServer(t, f, h, paid.AfterSettle(func(_ *http.Request, s *x402.SettleResponse) { told = append(told, s) }))
	r := send(t, "POST", s.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 1, ""))
	if r.status != 200 || r.body != content || r.header.Get("Cache-Control") != "private, max-age=60" || !strings.Contains(r.header.Get("Vary"), sig) {
		t.Fatalf("%+v", r)
	}
	f.has(t, 20_000, 1, 1)
	s1 := f.settled[toll.Hash{31: 1}]
	if r.header.Get("payment-response") != base64.StdEncoding.EncodeToString(s1.Raw) || len(told) != 1 || told[0] != s1 {
		t.Errorf("receipt %s, told %+v", r.header.Get("payment-response"), told)
	}
	if seen.Payer != payer || seen.Exact == nil || seen.Exact.Amount != "20000" || seen.PlanID != "" || seen.AgentRequestID != "" || seen.AgentID != agent {
		t.Errorf("the handler sees %+v", seen)
	}
	want := x402.Requirements{
		Scheme: "exact", Network: "eip155:84532", Amount: "20000", Asset: toll.USDCSandbox.String(), PayTo: receiver, MaxTimeoutSeconds: 120,
		Extra: x402.RequirementsExtra{Version: "2", AgentID: string(agent), HTTPVerb: "POST"},
	}
	if got := f.opened[toll.Hash{31: 1}]; got != want {
		t.Errorf("verified %+v, want %+v", got, want)
	}
	// The plan pays as ever.
	h.f = nil
	if r := send(t, "POST", s.URL+"/ask", sig, token); r.status != 200 || f.spent() != 5 {
		t.Errorf("the plan: %d %s", r.status, r.body)
	}
	plain := askServer(t, f, &work{t: t})
	if got := send(t, "POST", plain.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 2, "")).refusal(t); !strings.HasPrefix(got, "402 "+x402.ReasonInvalidPayload) {
		t.Errorf("a route without PerCall: %s", got)
	}
}

// What the client says of the entry is compared with the route's own, and nothing else of it counts.
func TestPerCall_Swapped(t *testing.T) {
	f := newTill()
	h := &work{}
	s := callServer(t, f, h)
	good := walletOf(t, asks(t, s.URL), 1, 1, "")
	accepted := func(name string, value any) func(map[string]any) {
		return func(p map[string]any) { p["accepted"].(map[string]any)[name] = value }
	}
	for name, c := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"amount":   {accepted("amount", "1"), x402.ReasonInvalidRequirements},
		"payTo":    {accepted("payTo", payer), x402.ReasonInvalidRequirements},
		"asset":    {accepted("asset", toll.EURCSandbox.String()), x402.ReasonInvalidRequirements},
		"network":  {accepted("network", "eip155:8453"), x402.ReasonInvalidRequirements},
		"timeout":  {accepted("maxTimeoutSeconds", 3600), x402.ReasonInvalidRequirements},
		"name":     {accepted("extra", map[string]any{"name": "USD Coin"}), x402.ReasonInvalidRequirements},
		"plan":     {accepted("extra", map[string]any{"planId": string(plan)}), x402.ReasonInvalidRequirements},
		"resource": {func(p map[string]any) { p["resource"] = map[string]any{"url": "https://agent.example.com/other"} }, x402.ReasonInvalidRequirements},
		"echo": {func(p map[string]any) {
			p["extensions"] = map[string]any{"payment-identifier": map[string]any{"info": map[string]any{}}}
		}, x402.ReasonEchoMismatch},
		"version": {func(p map[string]any) { p["x402Version"] = 1 }, x402.ReasonInvalidVersion},
		"nothing": {func(p map[string]any) { delete(p, "payload") }, x402.ReasonInvalidPayload},
		"scheme":  {accepted("scheme", "svc:erc4337"), x402.ReasonInvalidPayload},
	} {
		if got := send(t, "POST", s.URL+"/ask", sig, rewritten(t, good, c.change)).refusal(t); !strings.HasPrefix(got, "402 "+c.want+": ") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if f.has(t, 0, 0, 0); h.count() != 0 {
		t.Errorf("%d runs", h.count())
	}
	// Clients that keep only what they know pay, and so do those that pay the plan whatever they accept.
	kept := rewritten(t, good, func(p map[string]any) {
		delete(p, "resource")
		delete(p, "extensions")
		accepted("extra", map[string]any{})(p)
		accepted("asset", strings.ToLower(toll.USDCSandbox.String()))(p)
	})
	if r := send(t, "POST", s.URL+"/ask", sig, kept); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// One authorization is one served call: the facilitator lets one verify of many pass.
func TestPerCall_AtOnce(t *testing.T) {
	f := newTill()
	h := &work{}
	servers := []string{callServer(t, f, h).URL, callServer(t, f, h).URL}
	value := walletOf(t, asks(t, servers[0]), 1, 1, "")
	var mu sync.Mutex
	var wg sync.WaitGroup
	answers := map[string]int{}
	for i := range 20 {
		wg.Go(func() {
			word, _, _ := strings.Cut(send(t, "POST", servers[i%2]+"/ask", sig, value).refusal(t), ":")
			mu.Lock()
			defer mu.Unlock()
			answers[word]++
		})
	}
	wg.Wait()
	if h.count() != 1 || answers["200 "] != 1 || answers["402 "+x402.ReasonInFlight]+answers["402 "+x402.ReasonDuplicate] != 19 {
		t.Errorf("%v, %d runs", answers, h.count())
	}
	f.has(t, 20_000, 20, 1)
}

// An answer that is an error is not paid, and its authorization serves nothing else.
func TestPerCall_Fails(t *testing.T) {
	for name, fail := range map[string]http.HandlerFunc{
		"status": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) },
		"stream": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.(http.Flusher).Flush()
			fmt.Fprintln(w, "no")
		},
		"panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			fmt.Fprint(w, "no")
		},
	} {
		f := newTill()
		h := &work{f: fail}
		s := callServer(t, f, h)
		value := walletOf(t, asks(t, s.URL), 1, 1, "")
		r := send(t, "POST", s.URL+"/ask", sig, value)
		switch name {
		case "panic":
			if r.err == nil {
				t.Errorf("%s: %+v", name, r)
			}
		case "length":
			if r.status != 500 {
				t.Errorf("%s: %+v", name, r)
			}
		default:
			if r.status != http.StatusTeapot || r.body != "no\n" || r.header.Get("payment-response") != "" {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if got := send(t, "POST", s.URL+"/ask", sig, value).refusal(t); !strings.HasPrefix(got, "402 "+x402.ReasonInFlight) {
			t.Errorf("%s: again %s", name, got)
		}
		if f.has(t, 0, 2, 0); h.count() != 1 {
			t.Errorf("%s: %d runs", name, h.count())
		}
	}
}

// answer is what a settlement can say.
func answer(change func(*x402.SettleResponse)) *x402.SettleResponse {
	s := &x402.SettleResponse{Success: true, Transaction: "0x01", Network: "eip155:84532", Payer: payer, Amount: toll.Credits(20_000).Ptr()}
	change(s)
	return s
}

// Without a settlement of this payment nothing of the answer leaves, of a stream neither; a 402 only when it is sure that nothing was
// paid.
func TestPerCall_Unsettled(t *testing.T) {
	refused := func(reason string) *x402.SettleResponse {
		return &x402.SettleResponse{ErrorReason: reason, Network: "eip155:84532", Code: toll.CodePaymentRequired, ErrorMessage: "It is not carried out."}
	}
	pending := &x402.SettleResponse{ErrorReason: x402.ReasonPending, Transaction: "0x02", Network: "eip155:84532", Code: toll.CodeSettlementPending}
	ways := map[string]http.HandlerFunc{
		"kept": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, content) },
		"events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, content)
		},
		"long": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(content, 100)) },
		"gives up": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, content)
			if http.NewResponseController(w).Flush() != nil {
				panic(http.ErrAbortHandler)
			}
		},
	}
	for name, c := range map[string]struct {
		answers []*x402.SettleResponse
		status  int
		reason  string
		settles int
	}{
		"refused":             {[]*x402.SettleResponse{refused(x402.ReasonExactBalance)}, 402, x402.ReasonExactBalance, 1},
		"refused, later":      {[]*x402.SettleResponse{pending, refused(x402.ReasonExactNonceUsed)}, 402, x402.ReasonExactNonceUsed, 2},
		"pending":             {[]*x402.SettleResponse{pending}, 503, x402.ReasonPending, 3},
		"refused by the way":  {[]*x402.SettleResponse{pending, refused(x402.ReasonUnauthorizedServer)}, 503, x402.ReasonPending, 2},
		"the route":           {[]*x402.SettleResponse{refused(x402.ReasonInvalidRequirements)}, 503, x402.ReasonInvalidRequirements, 1},
		"without transaction": {[]*x402.SettleResponse{answer(func(s *x402.SettleResponse) { s.Transaction = "" })}, 503, x402.ReasonPending, 3},
		"another payer":       {[]*x402.SettleResponse{answer(func(s *x402.SettleResponse) { s.Payer = receiver })}, 503, x402.ReasonPending, 3},
		"another network":     {[]*x402.SettleResponse{answer(func(s *x402.SettleResponse) { s.Network = "eip155:8453" })}, 503, x402.ReasonPending, 3},
		"another amount":      {[]*x402.SettleResponse{answer(func(s *x402.SettleResponse) { s.Amount = toll.Credits(2).Ptr() })}, 503, x402.ReasonPending, 3},
		"no amount":           {[]*x402.SettleResponse{answer(func(s *x402.SettleResponse) { s.Amount = nil })}, 503, x402.ReasonPending, 3},
	} {
		for way, write := range ways {
			synctest.Test(t, func(t *testing.T) {
				f := newTill()
				f.answers = c.answers
				log, _ := logs(t)
				h := paid.Handler(f, &work{t: t, f: write}, paid.Plan(plan), cents, paid.MaxBuffer(1<<10), log)
				ask := func(value string) reply {
					r := httptest.NewRequest("POST", "/ask", nil)
					if value != "" {
						r.Header.Set(sig, value)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return reply{w.Code, w.Header(), w.Body.String(), nil}
				}
				r := ask(walletOf(t, challenge(t, ask("")), 1, 1, ""))
				if r.status != c.status || strings.Contains(r.body, content) {
					t.Fatalf("%s, %s: %+v", name, way, r)
				}
				if got := r.receipt(t); got.Success || got.ErrorReason != c.reason || (r.header.Get("payment-required") != "") != (c.status == 402) {
					t.Errorf("%s, %s: %+v %v", name, way, got, r.header)
				}
				if c.status == 503 && r.header.Get("Retry-After") == "" {
					t.Errorf("%s, %s: %v", name, way, r.header)
				}
				f.has(t, 0, 1, c.settles)
			})
		}
	}
}

// A stream is settled before its first byte, and has its receipt at its head.
func TestPerCall_Stream(t *testing.T) {
	f := newTill()
	h := &work{f: func(w http.ResponseWriter, _ *http.Request) {
		f.has(t, 0, 1, 0)
		w.Header().Set("PAYMENT-RESPONSE", "forged")
		fmt.Fprint(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		f.has(t, 20_000, 1, 1)
		fmt.Fprint(w, "data: 2\n\n")
	}}
	s := callServer(t, f, h, paid.OnUnsettled(func(paid.Unsettled) { t.Error("an alarm") }))
	r := send(t, "POST", s.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 1, ""))
	if r.status != 200 || r.body != "data: 1\n\ndata: 2\n\n" || !r.receipt(t).Success || r.header.Get("Service-Request-Id") != "" ||
		!strings.HasPrefix(r.header.Get("Cache-Control"), "private") {
		t.Errorf("%+v", r)
	}
	f.has(t, 20_000, 1, 1)
	// Without holds nothing streams, as everywhere.
	kept := callServer(t, f, &work{f: func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, content)
		w.(http.Flusher).Flush()
		f.has(t, 20_000, 2, 1)
	}}, paid.Hold(false))
	if r := send(t, "POST", kept.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 2, "")); r.status != 200 || r.body != content {
		t.Errorf("%+v", r)
	}
}

// A reverse proxy gives up when a stream cannot begin, and the client gets to know why.
func TestPerCall_Proxy(t *testing.T) {
	f := newTill()
	upstream := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, content)
	}))
	to := must.Get(url.Parse(upstream.URL))(t)
	log, _ := logs(t)
	s := serve(t, paid.Proxy(f, to, paid.Default(paid.Plan(plan), cents), paid.With(log)))
	value := walletOf(t, asks(t, s.URL), 1, 1, "")
	f.answers = []*x402.SettleResponse{{ErrorReason: x402.ReasonTransactionState, Network: "eip155:84532"}}
	if got := send(t, "POST", s.URL+"/ask", sig, value).refusal(t); !strings.HasPrefix(got, "402 "+x402.ReasonTransactionState) {
		t.Error(got)
	}
	f.answers = nil
	if r := send(t, "POST", s.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 2, "")); r.status != 200 || r.body != content || !r.receipt(t).Success {
		t.Errorf("%+v", r)
	}
}

// What the service would not settle is not asked for: the builder reads why, and a payment that comes nevertheless is not refused as
// if another one would do.
func TestPerCall_NotOpen(t *testing.T) {
	now := time.Unix(1_795_226_400, 0)
	f := newTill()
	log, lines := logs(t)
	h := &work{t: t}
	s := askServer(t, f, h, cents, log, paid.Clock(func() time.Time { return now }))
	value := walletOf(t, asks(t, s.URL), 1, 1, "")
	step := func(d time.Duration, refuses *toll.Error, entries, asked int) {
		t.Helper()
		now = now.Add(d)
		f.change(func() { f.refuses = refuses })
		if got := len(asks(t, s.URL).Entries); got != entries || len(f.offered) != asked {
			t.Errorf("%d entries after %d questions, want %d after %d", got, len(f.offered), entries, asked)
		}
	}
	closed := &toll.Error{Code: toll.CodeUnsupportedScheme, Message: "This service settles wallet payments only for its own plans."}
	step(4*time.Minute, closed, 2, 1)
	step(2*time.Minute, toll.NewError(toll.CodeUnavailable), 2, 2) // older knowledge serves
	step(4*time.Second, closed, 2, 2)
	step(2*time.Second, closed, 1, 3)
	if !strings.Contains(lines.String(), "paid: the service rejected the PerCall prices") ||
		!strings.Contains(lines.String(), closed.Message) {
		t.Errorf("the log says %s", lines)
	}
	for _, reason := range []string{x402.ReasonUnsupportedScheme, x402.ReasonUnauthorizedServer, x402.ReasonInvalidNetwork, x402.ReasonInvalidRequirements} {
		f.verdict = &x402.VerifyResponse{InvalidReason: reason, InvalidMessage: "payTo is not a receiver of any of your plans."}
		if r := send(t, "POST", s.URL+"/ask", sig, value); r.status != 503 || r.header.Get("payment-required") != "" {
			t.Errorf("%s: %d %s", reason, r.status, r.body)
		}
		if !strings.Contains(lines.String(), reason+" payTo is not a receiver of any of your plans.") {
			t.Errorf("%s: the log says %s", reason, lines)
		}
	}
	f.verdict = nil
	step(9*time.Second, nil, 1, 3)
	step(2*time.Second, nil, 2, 4)
	if asked := f.offered[3].PaymentRequired.Accepts; len(asked) != 1 || asked[0].Scheme != "exact" || asked[0].Amount != "20000" {
		t.Errorf("asked about %+v", asked)
	}
	if h.count() != 0 {
		t.Errorf("%d runs", h.count())
	}
}

// A verdict about something else runs no handler, and neither does a service that is away.
func TestPerCall_Verdict(t *testing.T) {
	for name, v := range map[string]*x402.VerifyResponse{
		"another payer":   {IsValid: true, Payer: receiver, Network: "eip155:84532"},
		"no payer":        {IsValid: true, Network: "eip155:84532"},
		"another network": {IsValid: true, Payer: payer, Network: "eip155:8453"},
		"away":            nil,
	} {
		f := newTill()
		f.verdict = v
		if v == nil {
			f.before = func(op string, _ int) error {
				if op == "verify" {
					return toll.NewError(toll.CodeUnavailable)
				}
				return nil
			}
		}
		h := &work{}
		s := callServer(t, f, h)
		if r := send(t, "POST", s.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 1, "")); r.status != 503 || h.count() != 0 {
			t.Errorf("%s: %d %s, %d runs", name, r.status, r.body, h.count())
		}
	}
	f := newTill()
	s := callServer(t, f, &work{})
	for reason, status := range map[string]int{
		x402.ReasonExactBalance: 402, x402.ReasonExactSignature: 402, x402.ReasonIdentifierConflict: 409, x402.ReasonPending: 503, x402.ReasonRateLimited: 429,
	} {
		f.verdict = &x402.VerifyResponse{InvalidReason: reason}
		if r := send(t, "POST", s.URL+"/ask", sig, walletOf(t, asks(t, s.URL), 1, 1, "")); r.status != status {
			t.Errorf("%s: %d %s", reason, r.status, r.body)
		}
	}
}

// Names of requests, sizes and lines are as for access tokens.
func TestPerCall_Identifier(t *testing.T) {
	f := newTill()
	s := callServer(t, f, &work{}, paid.RequirePaymentIdentifier())
	c := asks(t, s.URL)
	if r := send(t, "POST", s.URL+"/ask", sig, walletOf(t, c, 1, 1, "")); r.status != 400 || r.header.Get("payment-required") != "" {
		t.Errorf("without a name: %d %s", r.status, r.body)
	}
	named := walletOf(t, c, 1, 1, "pay_0123456789abcdef")
	if r := send(t, "POST", s.URL+"/ask", sig, named, sig, named); r.status != 400 {
		t.Errorf("twice: %d %s", r.status, r.body)
	}
	long := rewritten(t, named, func(p map[string]any) { p["extensions"].(map[string]any)["x"] = strings.Repeat("x", 9<<10) })
	if r := send(t, "POST", s.URL+"/ask", sig, long); r.status != 431 {
		t.Errorf("long: %d %s", r.status, r.body)
	}
	f.has(t, 0, 0, 0)
	if r := send(t, "POST", s.URL+"/ask", sig, named); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// With offers each entry has one.
func TestPerCall_Offers(t *testing.T) {
	f := newTill()
	s := callServer(t, f, &work{}, paid.Offers(true))
	var got []string
	for _, o := range x402.Offers(asks(t, s.URL).Extensions) {
		got = append(got, fmt.Sprint(o.AcceptIndex, " ", o.Signature))
	}
	if want := []string{"0 svc:erc4337 5", "1 exact 20000"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// What can never be paid is a fault of the program that asks for it.
func TestPerCall_Malformed(t *testing.T) {
	price := func(change func(*paid.Exact)) func() {
		p := paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(1)}
		change(&p)
		return func() { paid.PerCall(p) }
	}
	for name, f := range map[string]func(){
		"currency":  price(func(p *paid.Exact) { p.Currency = "USD" }),
		"no amount": price(func(p *paid.Exact) { p.Amount = toll.Units{} }),
		"too much":  price(func(p *paid.Exact) { p.Amount, _ = toll.ParseUnits("9223372036854775808") }),
		"too short": price(func(p *paid.Exact) { p.TimeoutSecs = 29 }),
		"too long":  price(func(p *paid.Exact) { p.TimeoutSecs = 1801 }),
		"desk":      func() { paid.Handler(newDesk(1), http.NotFoundHandler(), paid.Plan(plan), cents) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "paid: ") {
					t.Errorf("%s: %q", name, s)
				}
			}()
			f()
		}()
	}
	price(func(p *paid.Exact) { p.Amount, _ = toll.ParseUnits("9223372036854775807") })()
}

// The tokens of the networks, under which wallets know them.
func TestPerCall_Networks(t *testing.T) {
	var got []string
	for _, network := range []string{"eip155:8453", "stripe:live", "stripe:sandbox", "eip155:1"} {
		f := newTill()
		f.network = network
		log, lines := logs(t)
		s := askServer(t, f, &work{t: t}, log, paid.PerCall(
			paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(1)}, paid.Exact{Currency: toll.CurrencyEURC, Amount: toll.UnitsOf(1)}))
		for _, e := range asks(t, s.URL).Entries[1:] {
			var extra x402.ExactExtra
			must.Do(t, x402.Decode(e.Extra, &extra))
			got = append(got, network+" "+e.Network+" "+e.Asset+" "+extra.Name+" "+extra.Version)
		}
		if strings.Contains(lines.String(), "the PerCall prices cannot be offered") != (network == "eip155:1") {
			t.Errorf("%s: the log says %s", network, lines)
		}
	}
	want := []string{
		"eip155:8453 eip155:8453 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 USD Coin 2",
		"eip155:8453 eip155:8453 0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42 EURC 2",
		"stripe:live eip155:8453 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913 USD Coin 2",
		"stripe:live eip155:8453 0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42 EURC 2",
		"stripe:sandbox eip155:84532 0x036CbD53842c5426634e7929541eC2318f3dCF7e USDC 2",
		"stripe:sandbox eip155:84532 0x808456652fdb597867f38412077A9182bf77359F EURC 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
