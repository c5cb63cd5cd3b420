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
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/x402"
)

// market is a service that sells plans to wallets on its chain.
type market struct {
	*service
	*actors
	chain string // where the chain answers
}

func openMarket(t *testing.T, a *actors) *market {
	chain := servertest.FreeAddress(t)
	m := &market{run(t, servertest.Options{Args: []string{"--chain-http", chain, "--x402-exact", "open"}}), a, "http://" + chain}
	m.fund(t)
	return m
}

// sale is a plan that is sold, and a wallet with money.
type sale struct {
	*scene
	market  *market
	key     string
	address toll.Address
	order   *party // the route that sells the plan
	route   string // of access tokens
}

// sell offers a plan of 100 credits for a number of cents to a new wallet with $20.
func sell(t *testing.T, m *market, cents int64) *sale {
	t.Helper()
	c := newScene(t, m.service, m.actors, func(s *setting) {
		price := must.Get(toll.PriceERC20(toll.UnitsOf(cents*10_000), toll.Sandbox.USDC(), m.builder.Address))(t)
		s.price, s.unordered = price, true
	})
	s := &sale{scene: c, market: m, key: toll.NewHash().String()}
	must.Do(t, m.wallets.do("address", map[string]any{"key": s.key}, &s.address))
	s.faucet(t, fmt.Sprintf(`{"address":%q,"usdc":"20","eth":"1"}`, s.address))
	at := m.url + "/api/v1/x402/plans/" + string(c.plan)
	s.order, s.route = &party{ask: at + "/order"}, at+"/token"
	return s
}

// wallet plays the wallet of the sale.
func (s *sale) wallet(command string, args map[string]any) *outcome {
	s.Helper()
	o := new(outcome)
	args["key"] = s.key
	must.Do(s, s.market.wallets.do(command, args, o))
	s.understood(o)
	return o
}

// bought is the answer to a purchase or to a sign-in.
type bought struct {
	Success, Replayed    bool
	OrderID, AccessToken string
	PlanID               toll.PlanID
	SubscriberAddress    toll.Address
	Balance              toll.Credits
}

func (s *sale) bought(status int, body string) *bought {
	s.Helper()
	b := new(bought)
	if err := json.Unmarshal([]byte(body), b); status != http.StatusOK || err != nil || !b.Success || b.PlanID != s.plan || b.SubscriberAddress != s.address {
		s.Fatalf("%d %s %v", status, body, err)
	}
	return b
}

// ends makes sure what the wallet has of the plan, and that the chain moved its money once for each order.
func (s *sale) ends(orders int, balance toll.Credits) {
	s.Helper()
	b, err := s.service.client(s.builder).BalanceOf(s.Context(), s.plan, s.address)
	if err != nil || b.Balance != balance {
		s.Errorf("balance %+v %v, want %d", b, err, balance)
	}
	if n := s.transfers(); n != orders {
		s.Errorf("%d transfers, want %d", n, orders)
	}
}

// transfer is an event of the token on the chain.
type transfer struct{ Data, TransactionHash string }

// transfers counts the transfers of the wallet's money to the builder.
func (s *sale) transfers() int { s.Helper(); return len(s.moved()) }

// moved returns the transfers of the wallet's money to the builder, as the chain has them.
func (s *sale) moved() []transfer {
	s.Helper()
	topic := func(a toll.Address) string { return "0x" + strings.Repeat("0", 24) + strings.ToLower(a.String()[2:]) }
	body := must.Get(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": []any{map[string]any{
		"fromBlock": "0x0", "address": toll.Sandbox.USDC(),
		"topics": []any{"0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef", topic(s.address), topic(s.builder.Address)},
	}}}))(s)
	req := must.Get(http.NewRequestWithContext(s.Context(), "POST", s.market.chain, strings.NewReader(string(body))))(s)
	req.Header.Set("Content-Type", "application/json")
	a := must.Get(read(req))(s)
	var logs struct{ Result []transfer }
	if err := json.Unmarshal(a.body, &logs); err != nil {
		s.Fatalf("%s %v", a.body, err)
	}
	return logs.Result
}

func walletBuys(t *testing.T, m *market) {
	s := sell(t, m, 100)
	o := s.wallet("buy", map[string]any{"url": s.order.ask})
	b := s.bought(o.Status, o.Body)
	if len(o.Trips) != 2 || o.Trips[0].Status != 402 || b.AccessToken == "" || b.Balance != 100 || b.Replayed {
		t.Errorf("%+v %+v", o, b)
	}
	var receipt struct {
		Success                             bool
		Transaction, Network, Payer, Amount string
	}
	if err := json.Unmarshal(decoded(t, o.Headers["payment-response"]), &receipt); err != nil || !receipt.Success || len(receipt.Transaction) != 66 ||
		receipt.Network != network || receipt.Payer != s.address.String() || receipt.Amount != "1000000" {
		t.Errorf("%+v %v", receipt, err)
	}
	s.ends(1, 100)
	s.token = b.AccessToken
	e := s.E()
	s.paid(s.C(e), 5)
	s.ends(1, 95)
}

func decoded(t *testing.T, header string) []byte {
	t.Helper()
	return must.Get(base64.StdEncoding.DecodeString(header))(t)
}

func aboveTheCap(t *testing.T, m *market) {
	s := sell(t, m, 500)
	if o := s.wallet("buy", map[string]any{"url": s.order.ask}); !strings.Contains(o.Thrown, "maxAmountPerPayment ($1, including USDC)") {
		t.Errorf("%+v", o)
	}
	s.ends(0, 0)
	o := s.wallet("buy", map[string]any{"url": s.order.ask, "spendControls": map[string]string{"maxAmountPerPayment": "$10"}})
	s.bought(o.Status, o.Body)
	s.ends(1, 100)
}

// signed makes a payment of the wallet for what a route asks for, and sends nothing.
func (s *sale) signed(command string, args map[string]any) string {
	s.Helper()
	var header string
	args["key"], args["required"] = s.key, s.send(s.order).header.Get("Payment-Required")
	must.Do(s, s.market.wallets.do(command, args, &header))
	return header
}

func saleAgain(t *testing.T, m *market) {
	s := sell(t, m, 100)
	payment := s.signed("pay", map[string]any{})
	var answers []*answer
	for range 5 {
		answers = append(answers, s.send(s.order, payment))
	}
	answers = append(answers, s.sendAll(s.order, slices.Repeat([]string{payment}, 20))...)
	first := s.bought(answers[0].status, string(answers[0].body))
	if first.AccessToken == "" || first.Replayed {
		t.Errorf("%+v", first)
	}
	for _, a := range answers[1:] {
		b := s.bought(a.status, string(a.body))
		if b.AccessToken != "" || !b.Replayed || b.OrderID != first.OrderID || a.header.Get("Payment-Response") != answers[0].header.Get("Payment-Response") {
			t.Fatalf("%+v", b)
		}
	}
	s.ends(1, 100)
	at20 := sell(t, m, 100)
	payment = at20.signed("pay", map[string]any{})
	tokens := 0
	for _, a := range at20.sendAll(at20.order, slices.Repeat([]string{payment}, 20)) {
		if at20.bought(a.status, string(a.body)).AccessToken != "" {
			tokens++
		}
	}
	if tokens != 1 {
		t.Errorf("%d access tokens", tokens)
	}
	at20.ends(1, 100)
}

func twoPlans(t *testing.T, m *market) {
	s := sell(t, m, 100)
	payment := s.signed("pay", map[string]any{})
	a := s.send(s.order, payment)
	s.bought(a.status, string(a.body))
	other, _ := s.register(resource)
	second := &party{ask: m.url + "/api/v1/x402/plans/" + string(other) + "/order"}
	r := s.send(second, edited(t, payment, func(p map[string]any) { member(member(p, "accepted"), "extra")["planId"] = other }))
	if r.status != 402 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	s.begins(r.error(), x402.ReasonExactNonceUsed)
	s.ends(1, 100)
}

func badAuthorizations(t *testing.T, m *market) {
	s := sell(t, m, 100)
	for _, tt := range []struct {
		what   string
		args   map[string]any
		reason string
	}{
		{"less", map[string]any{"change": map[string]any{"value": "999999"}}, x402.ReasonExactValue},
		{"more", map[string]any{"change": map[string]any{"value": "1000001"}}, x402.ReasonExactValue},
		{"another receiver", map[string]any{"change": map[string]any{"to": s.address}}, x402.ReasonExactRecipient},
		{"too short", map[string]any{"change": map[string]any{"lasts": 3}}, x402.ReasonExactValidBefore},
		{"too long", map[string]any{"change": map[string]any{"lasts": 4000}}, x402.ReasonExactValidBefore},
		{"not yet", map[string]any{"change": map[string]any{"validAfter": fmt.Sprint(time.Now().Unix() + 50)}}, x402.ReasonExactValidAfter},
		{"high s", map[string]any{"form": "high-s"}, x402.ReasonExactSignature},
		{"v 0", map[string]any{"form": "v 0"}, x402.ReasonExactSignature},
		{"another chain", map[string]any{"domain": map[string]any{"chainId": 8453}}, x402.ReasonExactSignature},
		{"another name", map[string]any{"domain": map[string]any{"name": "USD Coin"}}, x402.ReasonExactSignature},
	} {
		a := s.send(s.order, s.signed("authorize", tt.args))
		if a.status != 402 {
			t.Errorf("%s: %d %s", tt.what, a.status, a.body)
			continue
		}
		if word, _, _ := strings.Cut(a.error(), ":"); word != tt.reason {
			t.Errorf("%s: 402 says %q", tt.what, a.error())
		}
	}
	s.ends(0, 0)
	a := s.send(s.order, s.signed("authorize", map[string]any{}))
	s.bought(a.status, string(a.body))
	s.ends(1, 100)
}

func submittedElsewhere(t *testing.T, m *market) {
	s := sell(t, m, 100)
	payment := s.signed("pay", map[string]any{})
	var p struct {
		Payload struct {
			Authorization json.RawMessage `json:"authorization"`
			Signature     string          `json:"signature"`
		}
	}
	must.Do(t, json.Unmarshal(decoded(t, payment), &p))
	must.Do(t, m.wallets.do("submit", map[string]any{
		"key": s.key, "chain": m.chain, "asset": toll.Sandbox.USDC(), "authorization": p.Payload.Authorization, "signature": p.Payload.Signature,
	}, nil))
	for end := time.Now().Add(3 * time.Minute); s.transfers() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the chain did not carry the authorization out")
		}
	}
	a := s.send(s.order, payment)
	if b := s.bought(a.status, string(a.body)); b.AccessToken != "" {
		t.Error("an authorization that everybody can read was answered with an access token")
	}
	s.ends(1, 100)
}

// exactForOthers takes payments of wallets for a server that knows nothing of plans, whose receiver is one of the builder's.
func exactForOthers(t *testing.T, m *market) {
	for what, upfront := range map[string]bool{"before the work": true, "after the work": false} {
		t.Run(what, func(t *testing.T) {
			s := sell(t, m, 100)
			e := s.E(func(a *serverArgs) { a.Scheme, a.Price, a.Upfront = x402.SchemeExact, "$0.10", upfront })
			s.order = e
			payment := s.signed("pay", map[string]any{})
			for i := range 5 {
				a := s.send(e, payment)
				var receipt struct {
					Success             bool
					Amount, ErrorReason string
				}
				if header := a.header.Get("Payment-Response"); header != "" {
					must.Do(t, json.Unmarshal(decoded(t, header), &receipt))
				}
				switch {
				case i == 0 && (a.status != 200 || !receipt.Success || receipt.Amount != "100000"):
					t.Errorf("%d %s %+v", a.status, a.body, receipt)
				case i > 0 && a.status != 402:
					t.Errorf("again: %d %s", a.status, a.body)
				case i > 0 && upfront && receipt.ErrorReason != x402.ReasonDuplicate:
					t.Errorf("again: %+v", receipt)
				case i > 0 && !upfront:
					s.begins(a.error(), x402.ReasonDuplicate)
				}
			}
			if n := e.runs(); n != 1 {
				t.Errorf("%d runs", n)
			}
			s.ends(1, 0)
		})
	}
}

func signsIn(t *testing.T, m *market) {
	s := sell(t, m, 100)
	o := s.wallet("buy", map[string]any{"url": s.order.ask})
	s.bought(o.Status, o.Body)
	o = s.wallet("signIn", map[string]any{"url": s.route})
	b := s.bought(o.Status, o.Body)
	if len(o.Trips) != 2 || o.Trips[0].Status != 402 || b.AccessToken == "" || b.Balance != 100 {
		t.Errorf("%+v", o)
	}
	s.token = b.AccessToken
	s.paid(s.C(s.E()), 5)
	s.ends(1, 95)
}

func signsInOrPays(t *testing.T, m *market) {
	s := sell(t, m, 100)
	o := s.wallet("signInOrPay", map[string]any{"url": s.route})
	b := s.bought(o.Status, o.Body)
	if len(o.Trips) != 3 || o.Trips[0].Status != 402 || o.Trips[1].Status != 402 || o.Trips[1].Proof == "" || o.Trips[2].Payment == "" || b.AccessToken == "" {
		t.Errorf("%+v", o)
	}
	s.ends(1, 100)
}

func badProofs(t *testing.T, m *market) {
	s := sell(t, m, 100)
	o := s.wallet("buy", map[string]any{"url": s.order.ask})
	s.bought(o.Status, o.Body)
	prove := func() string {
		o := s.wallet("signIn", map[string]any{"url": s.route})
		s.bought(o.Status, o.Body)
		return o.Trips[1].Proof
	}
	refused := func(what, proof string) {
		t.Helper()
		req := must.Get(http.NewRequestWithContext(t.Context(), "POST", s.route, nil))(t)
		req.Header.Set("SIGN-IN-WITH-X", proof)
		a, err := read(req)
		if err != nil || a.status != 402 || strings.Contains(string(a.body), "accessToken") {
			t.Errorf("%s: %d %s %v", what, a.status, a.body, err)
		}
	}
	used := prove()
	refused("replayed", used)
	fresh := func(change func(map[string]any)) string {
		var proof string
		args := map[string]any{"key": s.key, "required": s.send(&party{ask: s.route}).header.Get("Payment-Required"), "url": s.route}
		must.Do(t, m.wallets.do("prove", args, &proof))
		return edited(t, proof, change)
	}
	set := func(name, value string) func(map[string]any) { return func(p map[string]any) { p[name] = value } }
	refused("another domain", fresh(set("domain", "pay.example.com")))
	refused("another address", fresh(set("uri", s.url+"/api/v1/x402/plans/1/token")))
	refused("old", fresh(set("issuedAt", time.Now().Add(-6*time.Minute).UTC().Format("2006-01-02T15:04:05.000Z"))))
	refused("unknown nonce", fresh(set("nonce", strings.Repeat("0", 32))))
	refused("flipped signature", fresh(func(p map[string]any) {
		sig := []byte(p["signature"].(string))
		sig[10] ^= 1
		p["signature"] = string(sig)
	}))
	o = s.wallet("signIn", map[string]any{"url": s.route})
	s.bought(o.Status, o.Body)
	s.ends(1, 100)
}
