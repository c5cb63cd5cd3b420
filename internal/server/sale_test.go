package server_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	gethtypes "github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/x402"
)

// pocket is a key with money on the chain, and without an account at the service.
type pocket struct {
	*evm.Key
	testing.TB
	url string // of the service
}

func newPocket(t testing.TB, url string) *pocket {
	t.Helper()
	k := must.Get(evm.NewKey())(t)
	return &pocket{k, t, url}
}

// saleAnswer is what a wallet gets.
type saleAnswer struct {
	status int
	header http.Header
	body   []byte
	walletAnswer
}

type walletAnswer struct {
	Code, Error, OrderID, TxHash, AccessToken, SubscriberAddress, Balance string
	Replayed                                                              bool
}

// post calls a route without an API key, again while the service says that this may succeed later. An answer that does not come has
// status 0.
func (p *pocket) post(route string, headers ...string) (a saleAnswer) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	for {
		if a = p.once(ctx, route, headers...); a.status != http.StatusServiceUnavailable || ctx.Err() != nil {
			return a
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (p *pocket) once(ctx context.Context, route string, headers ...string) saleAnswer {
	p.Helper()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, p.url+route, nil))(p)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return saleAnswer{}
	}
	defer func() { _ = res.Body.Close() }()
	a := saleAnswer{status: res.StatusCode, header: res.Header}
	if a.body, err = io.ReadAll(res.Body); err != nil {
		return saleAnswer{}
	}
	if err := json.Unmarshal(a.body, &a.walletAnswer); err != nil {
		p.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return a
}

func (p *pocket) asks(route string) *x402.Challenge {
	p.Helper()
	a := p.post(route)
	c, err := x402.ReadChallenge(a.header, a.body)
	if err != nil || a.status != http.StatusPaymentRequired {
		p.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return c
}

// signs makes an authorization that pays the first entry, and its signature.
func (p *pocket) signs(c *x402.Challenge, from, to time.Duration) (*evm.Authorization, []byte) {
	p.Helper()
	e := c.Entries[0]
	amount := must.Get(toll.ParseUnits(e.Amount))(p)
	now := time.Now()
	a := &evm.Authorization{
		From: p.Address(), To: toll.MustAddress(e.PayTo), Value: amount.Int(), ValidAfter: uint64(now.Add(from).Unix()), ValidBefore: uint64(now.Add(to).Unix()),
	}
	_, _ = rand.Read(a.Nonce[:])
	signature := must.Get(a.Sign(p.Key, evm.Domain{Name: "USDC", Version: "2", ChainID: big.NewInt(84532), Contract: toll.USDCSandbox}))(p)
	return a, signature
}

// header is the payment of a challenge with an authorization.
func (p *pocket) header(c *x402.Challenge, a *evm.Authorization, signature []byte) string {
	p.Helper()
	value := must.Get(toll.ParseUnits(a.Value.String()))(p)
	h, err := c.Answer(&c.Entries[0], &x402.ExactPayload{
		Authorization: x402.ExactAuthorization{
			From: a.From, To: a.To, Value: value, ValidAfter: toll.UnitsOf(int64(a.ValidAfter)), ValidBefore: toll.UnitsOf(int64(a.ValidBefore)), Nonce: a.Nonce,
		},
		Signature: "0x" + hex.EncodeToString(signature),
	}, "")
	must.Do(p, err)
	return h
}

// payment is one that is good for a while.
func (p *pocket) payment(c *x402.Challenge) string {
	p.Helper()
	a, signature := p.signs(c, -time.Minute, 50*time.Minute)
	return p.header(c, a, signature)
}

func saleRoute(plan toll.PlanID) string   { return "/api/v1/x402/plans/" + string(plan) + "/order" }
func signInRoute(plan toll.PlanID) string { return "/api/v1/x402/plans/" + string(plan) + "/token" }

func (p *pocket) buys(plan toll.PlanID, payment string) saleAnswer {
	p.Helper()
	return p.post(saleRoute(plan), "PAYMENT-SIGNATURE", payment)
}

// signsIn gets an access token for the credits of the wallet.
func (p *pocket) signsIn(plan toll.PlanID) saleAnswer {
	p.Helper()
	c := p.asks(signInRoute(plan))
	var e x402.SignInExtension
	must.Do(p, json.Unmarshal(c.Extensions[x402.ExtensionSignIn], &e))
	proof := x402.NewSignIn(e.Info, e.SupportedChains[0], p.Address())
	signature := must.Get(p.Sign(evm.PersonalDigest(proof.Text())))(p)
	proof.Signature = "0x" + hex.EncodeToString(signature)
	header := must.Get(proof.Encode())(p)
	return p.post(signInRoute(plan), "SIGN-IN-WITH-X", header)
}

// pocket is a wallet with base units of USDC.
func (m *bazaar) pocket(units int64) *pocket {
	m.Helper()
	p := newPocket(m.T, m.url)
	m.give(p.Address(), usdc, units)
	return p
}

// submits has somebody send an authorization to its token, and waits until it is carried out.
func (m *bazaar) submits(a *evm.Authorization, signature []byte) {
	m.Helper()
	data := must.Get(userop.AuthorizedTransfer(a, signature))(m)
	m.sends(common.Address(toll.USDCSandbox), data)
}

// sends has somebody send calldata, and waits until it has run.
func (m *bazaar) sends(to common.Address, data []byte) {
	m.Helper()
	key := must.Get(crypto.GenerateKey())(m)
	stranger := crypto.PubkeyToAddress(key.PublicKey)
	m.give(toll.Address(stranger), common.Address{}, 1_000_000_000_000_000_000)
	tx, err := gethtypes.SignNewTx(key, gethtypes.LatestSignerForChainID(big.NewInt(84532)), &gethtypes.DynamicFeeTx{
		ChainID: big.NewInt(84532), To: &to, Gas: 300_000, GasFeeCap: big.NewInt(10_000_000_000), GasTipCap: big.NewInt(1_000_000_000), Data: data,
	})
	must.Do(m, err)
	eventually(m.T, "the pool knows of the money of a stranger", func() bool {
		err := m.node.SendTransaction(m.Context(), tx)
		if err != nil && !strings.Contains(err.Error(), "insufficient funds") {
			m.Fatal(err)
		}
		return err == nil
	})
	eventually(m.T, "the transaction of a stranger is mined", func() bool {
		r, err := m.node.TransactionReceipt(m.Context(), tx.Hash())
		if err != nil || r.Status != gethtypes.ReceiptStatusSuccessful {
			return false
		}
		head, err := m.node.BlockNumber(m.Context()) // a receipt can be seen before its block is the latest
		return err == nil && head >= r.BlockNumber.Uint64()
	})
}

// A wallet that nobody knows buys on the embedded chain. (Scenes S40, S42 to S45, S50.)
func TestWalletsBuyOnTheChain(t *testing.T) {
	t.Parallel()
	all := embeddedBazaar(t, func(c *server.Config) { c.Exact = "open" })

	t.Run("buys, and its payment is replayed", func(t *testing.T) {
		m := all.in(t)
		to := receiver(1)
		plan, p := m.dollar(to), m.pocket(1_500_000)
		c := p.asks(saleRoute(plan))
		payment := p.payment(c)
		var mu sync.Mutex
		var group sync.WaitGroup
		token, answers, receipts := "", map[int]int{}, map[string]bool{}
		for range 10 {
			group.Go(func() {
				a := p.buys(plan, payment)
				mu.Lock()
				defer mu.Unlock()
				answers[a.status]++
				receipts[a.header.Get("payment-response")] = true
				if a.AccessToken != "" && token != "" || (a.AccessToken == "") != a.Replayed {
					t.Errorf("%d %s", a.status, a.body)
				}
				token += a.AccessToken
				if a.TxHash != "" {
					m.ran(a.TxHash, m.service)
				}
			})
		}
		group.Wait()
		if answers[200] != 10 || len(receipts) != 1 || token == "" {
			t.Fatalf("answers %v, %d receipts", answers, len(receipts))
		}
		if n, sum := m.transfers(usdc, p.Address(), to); n != 1 || sum != 1_000_000 || m.has(p.Address(), usdc) != 500_000 {
			t.Errorf("%d transfers of %d", n, sum)
		}
		settled(t, m.builder, settlement(plan, token, "", 5))
		if in := p.signsIn(plan); in.status != 200 || in.AccessToken == "" || in.Balance != "95" {
			t.Errorf("sign-in: %d %s", in.status, in.body)
		}
		if poor := p.buys(plan, p.payment(c)); poor.status != 402 || word(poor) != x402.ReasonExactBalance || poor.header.Get("payment-response") != "" {
			t.Errorf("without the money: %d %s", poor.status, poor.body)
		}
	})

	t.Run("T58 somebody else submits it first", func(t *testing.T) {
		m := all.in(t)
		to := receiver(2)
		plan, p := m.dollar(to), m.pocket(1_000_000)
		c := p.asks(saleRoute(plan))
		a, signature := p.signs(c, -time.Minute, 50*time.Minute)
		m.submits(a, signature)
		// Whoever reads the calldata may be the first to send it here.
		thief := newPocket(t, m.url)
		bought := thief.buys(plan, thief.header(c, a, signature))
		if bought.status != 200 || bought.SubscriberAddress != p.Address().String() || bought.Balance != "100" || bought.AccessToken != "" {
			t.Errorf("%d %s", bought.status, bought.body)
		}
		if n, sum := m.transfers(usdc, p.Address(), to); n != 1 || sum != 1_000_000 {
			t.Errorf("%d transfers of %d", n, sum)
		}
		if in := thief.signsIn(plan); in.status != 402 {
			t.Errorf("the thief: %d %s", in.status, in.body)
		}
		if in := p.signsIn(plan); in.status != 200 || in.AccessToken == "" {
			t.Errorf("the wallet: %d %s", in.status, in.body)
		}
	})

	t.Run("T60 one authorization, two plans", func(t *testing.T) {
		m := all.in(t)
		to := receiver(3)
		one, two, p := m.dollar(to), m.dollar(to), m.pocket(5_000_000)
		c, d := p.asks(saleRoute(one)), p.asks(saleRoute(two))
		a, signature := p.signs(c, -time.Minute, 50*time.Minute)
		var first, second saleAnswer
		var group sync.WaitGroup
		group.Go(func() { first = p.buys(one, p.header(c, a, signature)) })
		group.Go(func() { second = p.buys(two, p.header(d, a, signature)) })
		group.Wait()
		if first.status > second.status {
			first, second = second, first
		}
		if first.status != 200 || second.status != 402 || word(second) != x402.ReasonExactNonceUsed {
			t.Errorf("%d %s and %d %s", first.status, first.body, second.status, second.body)
		}
		if n, _ := m.transfers(usdc, p.Address(), to); n != 1 {
			t.Errorf("%d transfers", n)
		}
	})

	t.Run("T61 T62 what the token would refuse", func(t *testing.T) {
		m := all.in(t)
		to := receiver(4)
		plan, p := m.dollar(to), m.pocket(1_000_000)
		c := p.asks(saleRoute(plan))
		calls := m.nonces(m.store)
		for name, test := range map[string]struct {
			from, to time.Duration
			change   func(signature []byte)
			want     string
		}{
			"ends in 3 s":   {-time.Minute, 3 * time.Second, nil, x402.ReasonExactValidBefore},
			"ends too late": {-time.Minute, 2 * time.Hour, nil, x402.ReasonExactValidBefore},
			"begins later":  {time.Minute, 10 * time.Minute, nil, x402.ReasonExactValidAfter},
			"v 0":           {-time.Minute, time.Minute, func(b []byte) { b[64] -= 27 }, x402.ReasonExactSignature},
			"a flipped bit": {-time.Minute, time.Minute, func(b []byte) { b[40] ^= 1 }, x402.ReasonExactSignature},
		} {
			a, signature := p.signs(c, test.from, test.to)
			if test.change != nil {
				test.change(signature)
			}
			if got := p.buys(plan, p.header(c, a, signature)); got.status != 402 || word(got) != test.want {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		}
		if n, _ := m.transfers(usdc, p.Address(), to); n != 0 || m.nonces(m.store) != calls {
			t.Errorf("%d transfers, or a relayer sent something", n)
		}
	})

	t.Run("S46 pays another server", func(t *testing.T) {
		m := all.in(t)
		to := receiver(5)
		m.dollar(to) // which makes it a receiver of the builder
		p := m.pocket(1_000_000)
		entry := `{"scheme":"exact","network":"eip155:84532","amount":"1500","asset":"` + toll.USDCSandbox.String() + `","payTo":"` + to.String() +
			`","maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`
		c, err := x402.ReadChallenge(nil, []byte(`{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[`+entry+`]}`))
		must.Do(t, err)
		body := map[string]json.RawMessage{"x402Version": json.RawMessage("2"), "paymentRequirements": json.RawMessage(entry)}
		var payload json.RawMessage
		must.Do(t, x402.DecodeHeader(p.payment(c), &payload))
		body["paymentPayload"] = payload
		type settlement struct {
			Success                                 bool
			ErrorReason, Transaction, Payer, Amount string
		}
		settle := func() (out settlement) {
			var raw json.RawMessage
			must.Do(t, m.builder.Call(t.Context(), http.MethodPost, "/api/v1/x402/settle", nil, body, &raw))
			must.Do(t, json.Unmarshal(raw, &out))
			return out
		}
		first, second := settle(), settle()
		if !first.Success || first.Payer != p.Address().String() || first.Amount != "1500" || second.Success || second.ErrorReason != x402.ReasonDuplicate {
			t.Errorf("%+v and %+v", first, second)
		}
		m.ran(first.Transaction, m.service)
		if n, sum := m.transfers(usdc, p.Address(), to); n != 1 || sum != 1500 {
			t.Errorf("%d transfers of %d", n, sum)
		}
	})
	all.audited()
}

func word(a saleAnswer) string {
	w := a.Error
	for i := range w {
		if w[i] == ':' {
			return w[:i]
		}
	}
	return w
}

// The process ends at a step of a sale. After the next start the order is decided although nobody asks, the money has moved once
// and the credits came once; who sends the payment again gets the receipt, and the wallet its access token by signing in.
// F13
func TestSaleKilledAtEachStep(t *testing.T) {
	t.Parallel()
	eachAmbush(t, func(a *ambush) {
		steps := []string{"created", "transaction sent"} // the authorization is stored; the transaction is out
		if a.public == nil {
			steps = []string{"event stored", "deciding"} // it is included; the answer is next
		}
		for i, step := range steps {
			to := receiver(byte(i + 1))
			plan, p := a.plan(to), newPocket(a.T, a.url)
			a.gives(p.Address(), 1_000_000)
			c := p.asks(saleRoute(plan))
			payment := p.payment(c)
			a.dies(step, func() { p.buys(plan, payment) })
			a.revive()
			decided(a.T, a.store)
			again := p.buys(plan, payment)
			if again.status != 200 || !again.Replayed || again.AccessToken != "" || again.Balance != "100" {
				a.Errorf("%s: the repeat: %d %s\n%s", step, again.status, again.body, a.log)
			}
			if n, sum := a.transfers(usdc, p.Address(), to); n != 1 || sum != 1_000_000 {
				a.Errorf("%s: %d transfers of %d", step, n, sum)
			}
			if in := p.signsIn(plan); in.status != 200 || in.AccessToken == "" || in.Balance != "100" {
				a.Errorf("%s: sign-in: %d %s", step, in.status, in.body)
			}
		}
	})
}

// gives makes base units of USDC.
func (a *ambush) gives(to toll.Address, units int64) {
	a.Helper()
	var err error
	if a.public != nil {
		_, err = a.public.Mint(a.Context(), usdc, common.Address(to), big.NewInt(units))
	} else {
		_, err = a.as(a.builder).Faucet(a.Context(), client.FaucetParams{Address: to, USDC: toll.FormatAmount(toll.UnitsOf(units), 6)})
	}
	must.Do(a, err)
}
