package server_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/x402"
)

// vault is a contract with money. Its code takes what the key of the pocket signs, behind any one byte.
type vault struct {
	*pocket
	at toll.Address
}

// places puts code on the chain.
func (m *bazaar) places(code string) toll.Address {
	m.Helper()
	runtime := common.FromHex(code)
	creation := append([]byte{0x61, byte(len(runtime) >> 8), byte(len(runtime)), 0x80, 0x60, 0x0a, 0x3d, 0x39, 0x3d, 0xf3}, runtime...)
	salt := [32]byte{1}
	m.sends(contracts.Create2Deployer, append(salt[:], creation...))
	return toll.Address(crypto.CreateAddress2(contracts.Create2Deployer, salt, crypto.Keccak256(creation)))
}

func (m *bazaar) vault(units int64) *vault {
	m.Helper()
	p := newPocket(m.T, m.url)
	v := &vault{p, m.places(chaintest.CodeOfOwner(common.Address(p.Address())))}
	m.give(v.at, usdc, units)
	return v
}

// authorizes makes an authorization of a contract that pays a challenge, and what its owner signs for it.
func (v *vault) authorizes(c *x402.Challenge) (*evm.Authorization, []byte) {
	v.Helper()
	a, _ := v.signs(c, -time.Minute, 50*time.Minute)
	a.From = v.at
	return a, v.signed(a.Digest(evm.Domain{Name: "USDC", Version: "2", ChainID: toll.UnitsOf(84532).Int(), Contract: toll.USDCSandbox}))
}

func (v *vault) signed(digest [32]byte) []byte {
	v.Helper()
	return must.Get(v.Sign(digest))(v)
}

func behind(first byte, signature []byte) []byte { return append([]byte{first}, signature...) }

// proves signs in, with a signature that is changed.
func (v *vault) proves(plan toll.PlanID, c *x402.Challenge, scheme string, change func([]byte) []byte) saleAnswer {
	v.Helper()
	var e x402.SignInExtension
	must.Do(v, json.Unmarshal(c.Extensions[x402.ExtensionSignIn], &e))
	proof := x402.NewSignIn(e.Info, e.SupportedChains[0], v.at)
	proof.SignatureScheme = scheme
	proof.Signature = "0x" + hex.EncodeToString(change(v.signed(evm.PersonalDigest(proof.Text()))))
	header := must.Get(proof.Encode())(v)
	return v.post(signInRoute(plan), "SIGN-IN-WITH-X", header)
}

// rows counts what is written about payments of wallets.
func (m *bazaar) rows() (n int64) {
	m.Helper()
	const query = "SELECT (SELECT COUNT(*) FROM authorizations) + (SELECT COUNT(*) FROM orders) + (SELECT COUNT(*) FROM exact_payments) + (SELECT COUNT(*) FROM chain_ops)"
	must.Do(m, m.store.QueryRow(m.Context(), query).Scan(&n))
	return n
}

// Contracts buy and sign in, as their code takes their signatures (ERC-1271).
func TestContractsBuyOnTheChain(t *testing.T) {
	t.Parallel()
	all := embeddedBazaar(t, func(c *server.Config) { c.Exact = "open" })

	t.Run("buys, and its payment is replayed", func(t *testing.T) {
		m := all.in(t)
		to := receiver(1)
		plan, v := m.dollar(to), m.vault(5_000_000)
		c := v.asks(saleRoute(plan))
		a, signature := v.authorizes(c)
		bought := v.buys(plan, v.header(c, a, behind(1, signature)))
		if bought.status != 200 || bought.AccessToken == "" || bought.SubscriberAddress != v.at.String() || bought.Balance != "100" || bought.Replayed {
			t.Fatalf("%d %s", bought.status, bought.body)
		}
		m.ran(bought.TxHash, m.service)
		settled(t, m.builder, settlement(plan, bought.AccessToken, "", 5))
		for first := range byte(2) { // the same signature, and another one that is taken for the same authorization
			again := v.buys(plan, v.header(c, a, behind(1+first, signature)))
			if again.status != 200 || !again.Replayed || again.AccessToken != "" || again.Balance != "95" ||
				again.header.Get("payment-response") != bought.header.Get("payment-response") {
				t.Errorf("a repeat: %d %s", again.status, again.body)
			}
		}
		if bad := v.buys(plan, v.header(c, a, signature)); bad.status != 402 || word(bad) != x402.ReasonExactSignature {
			t.Errorf("a signature that is not taken: %d %s", bad.status, bad.body)
		}
		if n, sum := m.transfers(usdc, v.at, to); n != 1 || sum != 1_000_000 || m.has(v.at, usdc) != 4_000_000 {
			t.Errorf("%d transfers of %d", n, sum)
		}
		c = v.asks(signInRoute(plan))
		a, signature = v.authorizes(c)
		second := v.post(signInRoute(plan), "PAYMENT-SIGNATURE", v.header(c, a, behind(1, signature)))
		if second.status != 200 || second.AccessToken == "" || second.Balance != "195" {
			t.Errorf("at the other route: %d %s", second.status, second.body)
		}

		// A refused proof leaves the nonce to the good one, which counts once.
		asked := v.asks(signInRoute(plan))
		good := func(b []byte) []byte { return behind(9, b) }
		for name, test := range map[string]struct {
			scheme string
			change func([]byte) []byte
			says   string
		}{
			"not taken":    {"", func(b []byte) []byte { return b }, "the signature does not match the address"},
			"wrapped":      {"eip6492", func(b []byte) []byte { return slices.Concat(b, bytes.Repeat([]byte{0x64, 0x92}, 16)) }, "ERC-6492"},
			"of a Solana":  {"siws", good, "signature type"},
			"much too big": {"", func([]byte) []byte { return make([]byte, 2000) }, "the signature does not match the address"},
		} {
			got := v.proves(plan, asked, test.scheme, test.change)
			if got.status != 402 || word(got) != x402.Default.ReasonSignIn() || !strings.Contains(got.Error, test.says) {
				t.Errorf("a proof that is %s: %d %s", name, got.status, got.body)
			}
		}
		if in := v.proves(plan, asked, "eip1271", good); in.status != 200 || in.AccessToken == "" || in.SubscriberAddress != v.at.String() || in.Balance != "195" {
			t.Errorf("sign-in: %d %s", in.status, in.body)
		}
		if in := v.proves(plan, asked, "", good); in.status != 402 || word(in) != x402.Default.ReasonSignIn() {
			t.Errorf("the proof again: %d %s", in.status, in.body)
		}
		if in := v.signsIn(plan); in.status != 402 || word(in) != x402.ReasonInsufficientFunds {
			t.Errorf("the owner of the contract is not the contract: %d %s", in.status, in.body)
		}
	})

	t.Run("takes its signature back", func(t *testing.T) {
		m := all.in(t)
		plan, p := m.dollar(receiver(2)), newPocket(t, m.url)
		at := m.places(chaintest.CodeAgreesUntilCalled)
		m.give(at, usdc, 5_000_000)
		c := p.asks(saleRoute(plan))
		a, _ := p.signs(c, -time.Minute, 50*time.Minute)
		a.From = at
		payment := p.header(c, a, []byte{1})
		bought := p.buys(plan, payment)
		if bought.status != 200 || bought.AccessToken == "" {
			t.Fatalf("%d %s", bought.status, bought.body)
		}
		m.sends(common.Address(at), nil)
		if again := p.buys(plan, payment); again.status != 200 || !again.Replayed || again.header.Get("payment-response") != bought.header.Get("payment-response") {
			t.Errorf("what is paid stays paid: %d %s", again.status, again.body)
		}
		if other := p.buys(plan, p.header(c, a, []byte{2})); other.status != 402 || word(other) != x402.ReasonExactSignature {
			t.Errorf("another signature: %d %s", other.status, other.body)
		}
	})

	t.Run("what the chain does not take leaves nothing", func(t *testing.T) {
		m := all.in(t)
		plan, p := m.dollar(receiver(3)), newPocket(t, m.url)
		c := p.asks(saleRoute(plan))
		agrees := m.places(chaintest.CodeAgrees)
		m.give(agrees, usdc, 1_000_000)
		rows, calls := m.rows(), m.nonces(m.store)
		for name, test := range map[string]struct {
			from toll.Address
			sig  []byte
			says string
		}{
			"no code":     {p.Address(), make([]byte, 100), "does not match the account that pays"},
			"reverts":     {m.places(chaintest.CodeRevertsAgreeing), make([]byte, 100), "does not match the account that pays"},
			"burns gas":   {m.places(chaintest.CodeBurns), nil, "does not match the account that pays"},
			"floods":      {m.places(chaintest.CodeFloods), make([]byte, 65), "does not match the account that pays"},
			"says true":   {m.places(chaintest.CodeSaysTrue), make([]byte, 65), "does not match the account that pays"},
			"is wrapped":  {agrees, bytes.Repeat([]byte{0x64, 0x92}, 16), "ERC-6492"},
			"turns later": {m.places(chaintest.CodeAgreesPoor), make([]byte, 65), ""},
		} {
			a, _ := p.signs(c, -time.Minute, 50*time.Minute)
			a.From = test.from
			if got := p.buys(plan, p.header(c, a, test.sig)); got.status != 402 || word(got) != x402.ReasonExactSignature || !strings.Contains(got.Error, test.says) {
				t.Errorf("%s: %d %s", name, got.status, got.body)
			}
		}
		if m.rows() != rows || m.nonces(m.store) != calls {
			t.Error("something was written, or sent")
		}
	})

	t.Run("pays another server", func(t *testing.T) {
		m := all.in(t)
		to := receiver(4)
		m.dollar(to) // which makes it a receiver of the builder
		v := m.vault(1_000_000)
		entry := `{"scheme":"exact","network":"eip155:84532","amount":"1500","asset":"` + toll.USDCSandbox.String() + `","payTo":"` + to.String() +
			`","maxTimeoutSeconds":60,"extra":{"name":"USDC","version":"2"}}`
		c, err := x402.ReadChallenge(nil, []byte(`{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[`+entry+`]}`))
		must.Do(t, err)
		a, signature := v.authorizes(c)
		type verdict struct {
			IsValid, Success                  bool
			InvalidReason, ErrorReason, Payer string
			Transaction                       string
		}
		call := func(act string, signature []byte) (out verdict) {
			t.Helper()
			var payload, raw json.RawMessage
			must.Do(t, x402.DecodeHeader(v.header(c, a, signature), &payload))
			body := map[string]json.RawMessage{"x402Version": json.RawMessage("2"), "paymentRequirements": json.RawMessage(entry), "paymentPayload": payload}
			must.Do(t, m.builder.Call(t.Context(), http.MethodPost, "/api/v1/x402/"+act, nil, body, &raw))
			must.Do(t, json.Unmarshal(raw, &out))
			return out
		}
		rows := m.rows()
		if bad := call("verify", signature); bad.IsValid || bad.InvalidReason != x402.ReasonExactSignature || m.rows() != rows {
			t.Errorf("a signature that is not taken: %+v", bad)
		}
		if ok := call("verify", behind(1, signature)); !ok.IsValid || ok.Payer != v.at.String() {
			t.Errorf("%+v", ok)
		}
		// The settle comes with another signature of the same authorization: the payment is the one that was begun.
		for range 2 {
			if paid := call("settle", behind(2, signature)); !paid.Success || paid.Payer != v.at.String() {
				t.Errorf("%+v", paid)
			}
		}
		if n, sum := m.transfers(usdc, v.at, to); n != 1 || sum != 1500 {
			t.Errorf("%d transfers of %d", n, sum)
		}
	})
	all.audited()
}
