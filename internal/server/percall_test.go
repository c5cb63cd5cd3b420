package server_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// counter is an agent behind a price: 5 credits, or 2 cents of a wallet.
type counter struct {
	*httptest.Server
	runs atomic.Int64
}

func (m *bazaar) counter(plan toll.PlanID, answer http.HandlerFunc, opts ...paid.Option) *counter {
	m.Helper()
	c := &counter{}
	c.Server = httptest.NewServer(paid.Handler(m.builder, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.runs.Add(1)
		answer(w, r)
	}), append([]paid.Option{paid.Plan(plan), paid.Credits(5), paid.Timeout(patience), paid.PerCall(
		paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(20_000)}, paid.Exact{Currency: toll.CurrencyEURC, Amount: toll.UnitsOf(10_000)},
	)}, opts...)...))
	m.Cleanup(c.Close)
	return c
}

func answers42(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "42") }

// calls has a wallet call an agent as any program does.
func (p *pocket) calls(url string) (status int, body string, purse *client.Spending) {
	p.Helper()
	purse = client.NewPurse(client.Limits{Hosts: []string{strings.TrimPrefix(url, "http://")}, MoneyPerCall: toll.UnitsOf(50_000), Money: toll.UnitsOf(100_000)})
	h := &http.Client{Transport: client.NewTransport(purse, evm.NewWallet(p.Key)), Timeout: patience}
	res := must.Get(h.Post(url+"/ask", "text/plain", strings.NewReader("how many?")))(p)
	defer func() { _ = res.Body.Close() }()
	text := must.Get(io.ReadAll(res.Body))(p)
	return res.StatusCode, string(text), purse
}

// pays sends a payment to an agent, and returns the status and the first word of the refusal.
func (p *pocket) pays(url, payment string) string {
	p.Helper()
	req := must.Get(http.NewRequestWithContext(p.Context(), http.MethodPost, url+"/ask", nil))(p)
	if payment != "" {
		req.Header.Set("PAYMENT-SIGNATURE", payment)
	}
	res := must.Get(http.DefaultClient.Do(req))(p)
	defer func() { _ = res.Body.Close() }()
	text := must.Get(io.ReadAll(res.Body))(p)
	if res.StatusCode != http.StatusPaymentRequired {
		return fmt.Sprint(res.StatusCode, " ", string(text))
	}
	c := must.Get(x402.ReadChallenge(res.Header, text))(p)
	word, _, _ := strings.Cut(c.Error, ":")
	return "402 " + word
}

// Wallets that nobody knows pay for one call, on the embedded chain.
func TestWalletsPayPerCall(t *testing.T) {
	t.Parallel()
	all := embeddedBazaar(t, func(c *server.Config) { c.Exact = "open" })

	t.Run("USDC, and the plan beside it", func(t *testing.T) {
		m := all.in(t)
		to := receiver(1)
		plan, p := m.dollar(to), m.pocket(50_000)
		c := m.counter(plan, answers42)
		status, body, purse := p.calls(c.URL)
		if made := purse.Payments(); status != 200 || body != "42" || len(made) != 1 || made[0].State != client.PaymentPaid || made[0].Spent.String() != "20000" {
			t.Fatalf("%d %s %+v", status, body, made)
		} else if n, sum := m.transfers(usdc, p.Address(), to); n != 1 || sum != 20_000 {
			t.Errorf("%d transfers of %d", n, sum)
		} else {
			m.ran(made[0].Transaction, m.service)
		}
		b := m.buyer("per call", 1_000_000)
		b.buys(plan)
		token := must.Get(b.AccessToken(m.Context(), plan))(t)
		if got := p.pays(c.URL, token.AccessToken); got != "200 42" || c.runs.Load() != 2 {
			t.Errorf("the plan: %s after %d runs", got, c.runs.Load())
		}
	})

	t.Run("EURC", func(t *testing.T) {
		m := all.in(t)
		to := receiver(2)
		plan, p := m.dollar(to), m.pocket(0)
		m.give(p.Address(), eurc, 10_000)
		c := m.counter(plan, answers42, paid.PerCall(paid.Exact{Currency: toll.CurrencyEURC, Amount: toll.UnitsOf(10_000)}))
		if status, body, _ := p.calls(c.URL); status != 200 || body != "42" {
			t.Fatalf("%d %s", status, body)
		}
		if n, sum := m.transfers(eurc, p.Address(), to); n != 1 || sum != 10_000 {
			t.Errorf("%d transfers of %d", n, sum)
		}
	})

	t.Run("one authorization twenty times at two agents", func(t *testing.T) {
		m := all.in(t)
		to := receiver(3)
		plan, p := m.dollar(to), m.pocket(50_000)
		agents := []*counter{m.counter(plan, answers42), m.counter(plan, answers42)}
		payment := p.payment(p.asksFor(agents[0].URL))
		var mu sync.Mutex
		var group sync.WaitGroup
		got := map[string]int{}
		for i := range 20 {
			group.Go(func() {
				answer := p.pays(agents[i%2].URL, payment)
				mu.Lock()
				defer mu.Unlock()
				got[answer]++
			})
		}
		group.Wait()
		if got["200 42"] != 1 || got["402 "+x402.ReasonInFlight]+got["402 "+x402.ReasonDuplicate] != 19 || agents[0].runs.Load()+agents[1].runs.Load() != 1 {
			t.Errorf("%v", got)
		}
		if n, sum := m.transfers(usdc, p.Address(), to); n != 1 || sum != 20_000 {
			t.Errorf("%d transfers of %d", n, sum)
		}
	})

	t.Run("an error is free, and uses the authorization up", func(t *testing.T) {
		m := all.in(t)
		to := receiver(4)
		plan, p := m.dollar(to), m.pocket(50_000)
		c := m.counter(plan, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) })
		payment := p.payment(p.asksFor(c.URL))
		for i, want := range []string{"418 no\n", "402 " + x402.ReasonInFlight} {
			if got := p.pays(c.URL, payment); got != want {
				t.Errorf("call %d: %s", i, got)
			}
		}
		if n, _ := m.transfers(usdc, p.Address(), to); n != 0 || c.runs.Load() != 1 {
			t.Errorf("%d transfers, %d runs", n, c.runs.Load())
		}
	})

	t.Run("a stream, and money that is gone when it begins", func(t *testing.T) {
		m := all.in(t)
		to := receiver(5)
		plan, p := m.dollar(to), m.pocket(20_000)
		var spends func()
		c := m.counter(plan, func(w http.ResponseWriter, _ *http.Request) {
			if spends != nil {
				spends()
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 42\n\n")
			if n, _ := m.transfers(usdc, p.Address(), to); n != 1 {
				t.Errorf("%d transfers behind the first event", n)
			}
			fmt.Fprint(w, "data: 43\n\n")
		})
		if got := p.pays(c.URL, p.payment(p.asksFor(c.URL))); got != "200 data: 42\n\ndata: 43\n\n" {
			t.Errorf("%s", got)
		}
		m.give(p.Address(), usdc, 20_000)
		spends = func() {
			a, signature := p.signs(&x402.Challenge{Entries: []x402.Entry{{Amount: "20000", PayTo: receiver(6).String()}}}, -time.Minute, 10*time.Minute)
			m.submits(a, signature)
		}
		if got := p.pays(c.URL, p.payment(p.asksFor(c.URL))); got != "402 "+x402.ReasonExactBalance {
			t.Errorf("%s", got)
		}
		if n, _ := m.transfers(usdc, p.Address(), to); n != 1 {
			t.Errorf("%d transfers", n)
		}
	})

	t.Run("a wrong receiver is not listed, and the log names it", func(t *testing.T) {
		m := all.in(t)
		p := m.pocket(0)
		var log syncBuffer
		c := m.counter(m.dollar(receiver(7)), answers42, paid.Log(slog.New(slog.NewTextHandler(&log, nil))),
			paid.PerCall(paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(1), PayTo: toll.Address(common.HexToAddress("0x07"))}))
		req := must.Get(http.Post(c.URL+"/ask", "text/plain", nil))(t)
		_ = req.Body.Close()
		if ask, err := x402.ReadChallenge(req.Header, nil); err != nil || len(ask.Entries) != 1 || p.pays(c.URL, "") != "402 Payment required" {
			t.Errorf("%+v %v", ask, err)
		}
		if !strings.Contains(log.String(), "payTo is not a receiver of any of your plans.") {
			t.Errorf("the log of the seller says %s", log.String())
		}
	})
	all.audited()
}

// terms is a facilitator of a plan on a network, which signs every offer.
type terms struct {
	x402.Facilitator
	network string
}

func (f terms) Terms(context.Context, toll.PlanID) (*x402.Terms, error) {
	return &x402.Terms{Network: f.network, PayTo: receiver(1).String(), MaxAmount: 1}, nil
}

func (f terms) Offers(context.Context, *x402.OffersRequest) (*x402.OffersResponse, error) {
	return &x402.OffersResponse{}, nil
}

// Wallets sign with the names that tokens have on their chains.
func TestPerCallNamesOfTokens(t *testing.T) {
	for network, id := range map[string]uint64{toll.Sandbox.Network(): contracts.BaseSepolia, toll.Live.Network(): contracts.Base} {
		w := httptest.NewRecorder()
		paid.Handler(terms{network: network}, http.NotFoundHandler(), paid.Plan("1"), paid.PerCall(
			paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(1)}, paid.Exact{Currency: toll.CurrencyEURC, Amount: toll.UnitsOf(1)},
		)).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		c, err := x402.ReadChallenge(w.Header(), nil)
		if err != nil || len(c.Entries) != 3 {
			t.Fatalf("%s: %d %s %v", network, w.Code, w.Body, err)
		}
		for i, token := range []common.Address{contracts.USDC(id), contracts.EURC(id)} {
			e := &c.Entries[i+1]
			var extra x402.ExactExtra
			name, version, ok := contracts.TokenDomain(id, token)
			if err := x402.Decode(e.Extra, &extra); err != nil || !ok || common.HexToAddress(e.Asset) != token || extra.Name != name || extra.Version != version {
				t.Errorf("%s: %s %s, want %s of %s, version %s: %v", network, e.Asset, e.Extra, name, token, version, err)
			}
		}
	}
}

// asksFor is what an agent asks of a wallet in USDC.
func (p *pocket) asksFor(url string) *x402.Challenge {
	p.Helper()
	res := must.Get(http.Post(url+"/ask", "text/plain", nil))(p)
	defer func() { _ = res.Body.Close() }()
	c, err := x402.ReadChallenge(res.Header, nil)
	if err != nil || len(c.Entries) < 2 {
		p.Fatalf("%d %+v %v", res.StatusCode, c, err)
	}
	c.Entries = c.Entries[1:]
	return c
}
