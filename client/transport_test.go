package client_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// coins is a payer of a scheme of its own, which has no limit but that of the purse.
type coins struct{ made atomic.Int64 }

func (c *coins) Quote(_ context.Context, _ *url.URL, e *x402.Entry) (x402.Quote, error) {
	if e.Scheme != "coins" {
		return x402.Quote{}, fmt.Errorf("no coins for %s", e.Scheme)
	}
	amount, err := toll.ParseUnits(e.Amount)
	return x402.Quote{Unit: "USDC", Amount: amount}, err
}

func (c *coins) Pay(_ context.Context, _ *x402.Entry, q x402.Quote) (*x402.Payment, error) {
	n := c.made.Add(1)
	return &x402.Payment{
		Payload:       map[string]any{"coin": n},
		Spent:         func(_ context.Context, r *x402.Settlement) (toll.Units, bool) { return q.Amount, r.Success },
		Authorization: &x402.ExactAuthorization{ValidBefore: toll.UnitsOf(n)},
	}, nil
}

const ask = `{"x402Version":2,"error":"Payment required","resource":{"url":"/x","description":"d"},
"accepts":[{"scheme":"other","network":"eip155:1","amount":"1","asset":"a","payTo":"p","maxTimeoutSeconds":60},
{"scheme":"coins","network":"n:1","amount":"%s","asset":"a","payTo":"p","maxTimeoutSeconds":60,"extra":{"z":1,"a":[2]}}],
"extensions":{"payment-identifier":{"info":{"required":false},"schema":{"type":"object"}},"x":{"info":{"k":"v"}}}}`

// shop sells for coins; what it does with a payment is up to the test.
func shop(t *testing.T, price string, paid func(w http.ResponseWriter, r *http.Request)) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("payment-signature") != "" {
			paid(w, r)
			return
		}
		asked.Add(1)
		w.Header().Set("payment-required", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, ask, price)))
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	t.Cleanup(s.Close)
	return s, &asked
}

func settle(w http.ResponseWriter, receipt string) {
	w.Header().Set("payment-response", base64.StdEncoding.EncodeToString([]byte(receipt)))
}

func limitsFor(t *testing.T, address string, call, all int64) client.Limits {
	t.Helper()
	u := must.Get(url.Parse(address))(t)
	return client.Limits{Hosts: []string{client.HostOf(u)}, MoneyPerCall: toll.UnitsOf(call), Money: toll.UnitsOf(all)}
}

func TestTransport_Pays(t *testing.T) {
	var payload struct {
		X402Version int             `json:"x402Version"`
		Resource    json.RawMessage `json:"resource"`
		Accepted    map[string]any  `json:"accepted"`
		Payload     map[string]any  `json:"payload"`
		Extensions  map[string]struct {
			Info map[string]any `json:"info"`
		} `json:"extensions"`
	}
	s, _ := shop(t, "40", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		text, err := base64.StdEncoding.DecodeString(r.Header.Get("payment-signature"))
		if err != nil || json.Unmarshal(text, &payload) != nil {
			t.Errorf("the payment cannot be read: %s", text)
		}
		settle(w, `{"success":true,"transaction":"0xabc","network":"n:1","payer":"p"}`)
		fmt.Fprintf(w, "echo %s", b)
	})
	purse := client.NewPurse(limitsFor(t, s.URL, 50, 100))
	payer := new(coins)
	h := &http.Client{Transport: client.NewTransport(purse, payer)}
	for _, body := range []io.Reader{strings.NewReader("hello"), io.NopCloser(strings.NewReader("hello"))} {
		res := must.Get(h.Post(s.URL+"/x?secret=1", "text/plain", body))(t)
		got, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK || string(got) != "echo hello" {
			t.Fatalf("got %d %q", res.StatusCode, got)
		}
	}
	if payload.X402Version != 2 || payload.Payload["coin"] == nil || fmt.Sprint(payload.Accepted["extra"]) != "map[a:[2] z:1]" ||
		string(payload.Resource) != `{"url":"/x","description":"d"}` || payload.Extensions["x"].Info["k"] != "v" {
		t.Errorf("the payment does not repeat what was offered: %+v", payload)
	}
	p := purse.Payments()[1]
	if payload.Extensions["payment-identifier"].Info["id"] != p.ID || payload.Extensions["payment-identifier"].Info["required"] != false {
		t.Errorf("the payment identifier is %v", payload.Extensions)
	}
	if p.State != client.PaymentPaid || p.Spent.String() != "40" || p.Transaction != "0xabc" || p.Path != "/x" || p.Unit != "USDC" {
		t.Errorf("recorded %+v", p)
	}
	_, err := h.Post(s.URL, "text/plain", strings.NewReader("one too many"))
	unpaid, ok := errors.AsType[*client.PaymentError](err)
	if !ok || unpaid.Sent || !strings.Contains(err.Error(), "but only 0.00002 USDC of 0.0001 USDC remain") {
		t.Errorf("above the total: %v", err)
	}
	if n := payer.made.Load(); n != 2 {
		t.Errorf("%d payments were made", n)
	}
}

// The server asks for what it should not get.
func TestTransport_Refuses(t *testing.T) {
	for name, change := range map[string]func(*client.Limits){
		"host":     func(l *client.Limits) { l.Hosts = []string{"agent.example.com"} },
		"per call": func(l *client.Limits) { l.MoneyPerCall = toll.UnitsOf(39) },
		"total":    func(l *client.Limits) { l.Money = toll.UnitsOf(39) },
		"nothing":  func(l *client.Limits) { *l = client.Limits{} },
	} {
		t.Run(name, func(t *testing.T) {
			s, asked := shop(t, "40", func(http.ResponseWriter, *http.Request) { t.Error("a payment left") })
			l := limitsFor(t, s.URL, 50, 100)
			change(&l)
			payer := new(coins)
			_, err := (&http.Client{Transport: client.NewTransport(client.NewPurse(l), payer)}).Get(s.URL)
			unpaid, ok := errors.AsType[*client.PaymentError](err)
			if !ok || unpaid.Sent || len(unpaid.Challenge.Entries) != 2 {
				t.Fatalf("got %v", err)
			}
			if payer.made.Load() != 0 || asked.Load() != 1 {
				t.Errorf("%d payments, %d requests", payer.made.Load(), asked.Load())
			}
		})
	}
}

// A server that asks again and again is paid once, and what it may have counts.
func TestTransport_AsksForEver(t *testing.T) {
	s, _ := shop(t, "40", func(w http.ResponseWriter, _ *http.Request) {
		settle(w, `{"success":false,"errorReason":"insufficient_funds","transaction":"","network":"n:1"}`)
		w.Header().Set("payment-required", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, ask, "40")))
		w.WriteHeader(http.StatusPaymentRequired)
	})
	purse, payer := client.NewPurse(limitsFor(t, s.URL, 50, 100)), new(coins)
	res, err := (&http.Client{Transport: client.NewTransport(purse, payer)}).Get(s.URL)
	if err != nil || res.StatusCode != http.StatusPaymentRequired {
		t.Fatalf("%v %v", res, err)
	}
	res.Body.Close()
	p := purse.Payments()
	if len(p) != 1 || p[0].State != client.PaymentUnknown || p[0].Counts().String() != "40" || payer.made.Load() != 1 {
		t.Errorf("recorded %+v", p)
	}
	if a := p[0].Authorization; a == nil || a.ValidBefore.String() != "1" {
		t.Errorf("nobody can ask what became of the authorization: %+v", a)
	}
}

func TestTransport_LostAnswer(t *testing.T) {
	s, _ := shop(t, "40", func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) })
	purse := client.NewPurse(limitsFor(t, s.URL, 50, 100))
	_, err := (&http.Client{Transport: client.NewTransport(purse, new(coins))}).Post(s.URL, "", strings.NewReader("x"))
	unpaid, ok := errors.AsType[*client.PaymentError](err)
	if !ok || !unpaid.Sent || unpaid.Payment.State != client.PaymentUnknown {
		t.Fatalf("got %v", err)
	}
	if p := purse.Payments(); len(p) != 1 || p[0].Counts().String() != "40" {
		t.Errorf("recorded %+v", p)
	}
}

// Who finds the record after a crash can ask the chain: what a wallet has signed is there before the server has it.
func TestTransport_RecordsWhatItSigned(t *testing.T) {
	var purse *client.Spending
	var found []client.Payment
	s, _ := shop(t, "40", func(w http.ResponseWriter, _ *http.Request) {
		found = purse.Payments()
		settle(w, `{"success":true,"transaction":"0x1","network":"n:1"}`)
	})
	purse = client.NewPurse(limitsFor(t, s.URL, 50, 100))
	res := must.Get((&http.Client{Transport: client.NewTransport(purse, new(coins))}).Get(s.URL))(t)
	res.Body.Close()
	if len(found) != 1 || found[0].State != client.PaymentSent || found[0].Authorization == nil || found[0].Counts().String() != "40" {
		t.Errorf("while the payment was under way, the record was %+v", found)
	}
	if p := purse.Payments(); len(p) != 1 || p[0].State != client.PaymentPaid || p[0].Counts().String() != "40" {
		t.Errorf("recorded %+v", p)
	}
}

// fullDisk is a purse that cannot record what a wallet has signed.
type fullDisk struct{ *client.Spending }

func (f fullDisk) Close(ctx context.Context, p client.Payment) error {
	if p.State == client.PaymentSent {
		return errors.New("no space left")
	}
	return f.Spending.Close(ctx, p)
}

func TestTransport_UnrecordedDoesNotLeave(t *testing.T) {
	s, _ := shop(t, "40", func(http.ResponseWriter, *http.Request) { t.Error("a payment left") })
	purse := client.NewPurse(limitsFor(t, s.URL, 50, 100))
	_, err := (&http.Client{Transport: client.NewTransport(fullDisk{purse}, new(coins))}).Get(s.URL)
	if unpaid, ok := errors.AsType[*client.PaymentError](err); !ok || unpaid.Sent || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("got %v", err)
	}
	if p := purse.Payments(); len(p) != 1 || p[0].State != client.PaymentRefused {
		t.Errorf("recorded %+v", p)
	}
}

// What is left is never less than nothing, also when more was spent under a higher limit.
func TestLimits_Left(t *testing.T) {
	l := client.Limits{Hosts: []string{"a.example"}, CreditsPerCall: 5, Credits: 2}
	p := client.Payment{Host: "a.example", Unit: x402.UnitCredits, Most: toll.UnitsOf(2)}
	for spent, want := range map[int64]string{1: "but only 1 credit of 2 credits remain", 3: "but only 0 credits of 2 credits remain"} {
		if err := l.Allows(&p, toll.UnitsOf(spent)); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d spent: %v", spent, err)
		}
	}
}

// An answer 402 that is not x402, and a request that brings its own payment, pass.
func TestTransport_Passes(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		fmt.Fprint(w, "pay at the desk "+r.Header.Get("payment-signature"))
	}))
	defer s.Close()
	h := &http.Client{Transport: client.NewTransport(client.NewPurse(client.Limits{}), new(coins))}
	for _, own := range []string{"", "mine"} {
		req := must.Get(http.NewRequest(http.MethodGet, s.URL, nil))(t)
		if own != "" {
			req.Header.Set("payment-signature", own)
		}
		res := must.Get(h.Do(req))(t)
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusPaymentRequired || string(b) != "pay at the desk "+own {
			t.Errorf("got %d %q", res.StatusCode, b)
		}
	}
}

// Many requests at once spend no more than all together may.
func TestTransport_Concurrent(t *testing.T) {
	var served atomic.Int64
	s, _ := shop(t, "40", func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		settle(w, `{"success":true,"transaction":"0x1","network":"n:1"}`)
	})
	h := &http.Client{Transport: client.NewTransport(client.NewPurse(limitsFor(t, s.URL, 50, 200)), new(coins))}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if res, err := h.Get(s.URL); err == nil {
				res.Body.Close()
			}
		})
	}
	wg.Wait()
	if n := served.Load(); n != 5 {
		t.Errorf("%d requests were paid, and there was money for 5", n)
	}
}

func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"https://A.example/x": "a.example", "https://a.example:443": "a.example", "http://a.example": "a.example:80",
		"http://a.example:443": "a.example:443", "https://a.example:8443": "a.example:8443", "http://[::1]:80": "[::1]:80",
		"https://[::1]/": "[::1]",
	} {
		u := must.Get(url.Parse(address))(t)
		if got := client.HostOf(u); got != want {
			t.Errorf("%s: %s, not %s", address, got, want)
		}
	}
}

// A server that accepts a sign-in of the wallet for an earlier purchase gets no second payment.
func TestTransport_SignInIsNotAPayment(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("payment-signature") != "" {
			t.Error("a payment left")
		}
		text := strings.NewReplacer("coins", "exact", `"x":{`, `"sign-in-with-x":{`).Replace(fmt.Sprintf(ask, "40"))
		w.Header().Set("payment-required", base64.StdEncoding.EncodeToString([]byte(text)))
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	defer s.Close()
	_, err := (&http.Client{Transport: client.NewTransport(client.NewPurse(limitsFor(t, s.URL, 50, 100)), exactCoins{new(coins)})}).Get(s.URL)
	if unpaid, ok := errors.AsType[*client.PaymentError](err); !ok || unpaid.Sent || !strings.Contains(err.Error(), "sign-in") {
		t.Fatalf("got %v", err)
	}
}

// exactCoins pays entries of scheme exact, whatever they ask.
type exactCoins struct{ *coins }

func (c exactCoins) Quote(_ context.Context, _ *url.URL, e *x402.Entry) (x402.Quote, error) {
	if e.Scheme != x402.SchemeExact {
		return x402.Quote{}, errors.New("no coins")
	}
	return x402.Quote{Unit: "USDC", Amount: toll.UnitsOf(40)}, nil
}
