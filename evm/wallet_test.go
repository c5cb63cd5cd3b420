package evm_test

import (
	"encoding/hex"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

func entry(t *testing.T, change func(map[string]any)) *x402.Entry {
	t.Helper()
	m := map[string]any{
		"scheme": "exact", "network": "eip155:84532", "amount": "1000000", "asset": toll.USDCSandbox.String(),
		"payTo": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "maxTimeoutSeconds": 120,
		"extra": map[string]any{"name": "USDC", "version": "2"},
	}
	if change != nil {
		change(m)
	}
	raw := must.Get(json.Marshal(m))(t)
	e := &x402.Entry{Raw: raw}
	must.Do(t, x402.Decode(raw, e))
	return e
}

func TestWallet_Pay(t *testing.T) {
	key := must.Get(evm.NewKey())(t)
	w, e := evm.NewWallet(key), entry(t, nil)
	q, err := w.Quote(t.Context(), nil, e)
	if err != nil || q.Unit != "USDC" || q.Amount.String() != "1000000" {
		t.Fatalf("quoted %+v: %v", q, err)
	}
	p := must.Get(w.Pay(t.Context(), e, q))(t)
	text := must.Get(json.Marshal(p.Payload))(t)
	var payload struct {
		Signature     string
		Authorization struct{ From, To, Value, ValidAfter, ValidBefore, Nonce string }
	}
	must.Do(t, json.Unmarshal(text, &payload))
	a := payload.Authorization
	bytes := func(s string) []byte {
		return must.Get(hex.DecodeString(strings.TrimPrefix(s, "0x")))(t)
	}
	seconds := func(s string) uint64 {
		return must.Get(strconv.ParseUint(s, 10, 64))(t)
	}
	signed := evm.Authorization{
		From: w.Address(), To: toll.MustAddress(a.To), Value: big.NewInt(1_000_000), ValidAfter: seconds(a.ValidAfter),
		ValidBefore: seconds(a.ValidBefore), Nonce: [32]byte(bytes(a.Nonce)),
	}
	domain := evm.Domain{Name: "USDC", Version: "2", ChainID: big.NewInt(84532), Contract: toll.USDCSandbox}
	who, err := evm.Recover(signed.Digest(domain), bytes(payload.Signature))
	if err != nil || who != w.Address() || a.From != w.Address().String() || a.Value != "1000000" {
		t.Errorf("%s signed %+v: %v", who, a, err)
	}
	if life := signed.ValidBefore - signed.ValidAfter; life != 600+120 {
		t.Errorf("it counts for %d s", life)
	}
	recorded := x402.ExactAuthorization{
		From: w.Address(), To: toll.MustAddress(a.To), Value: q.Amount, ValidAfter: toll.UnitsOf(int64(signed.ValidAfter)),
		ValidBefore: toll.UnitsOf(int64(signed.ValidBefore)), Nonce: toll.Hash(signed.Nonce),
	}
	if !reflect.DeepEqual(p.Authorization, &recorded) {
		t.Errorf("it says that it signed %+v, and not %+v", p.Authorization, recorded)
	}
	// Whatever the server says, it has the authorization.
	if _, sure := p.Spent(t.Context(), &x402.Settlement{}); sure {
		t.Error("a refusal is taken for money back")
	}
	if spent, sure := p.Spent(t.Context(), &x402.Settlement{Success: true, Amount: "1"}); !sure || spent.Cmp(q.Amount) != 0 {
		t.Errorf("spent %s, %v", spent, sure)
	}
}

// An authorization lives as long as the server asks, and begins ten minutes ago: a minute at least, an hour at most.
func TestWallet_Life(t *testing.T) {
	key := must.Get(evm.NewKey())(t)
	w := evm.NewWallet(key)
	for seconds, want := range map[int64]string{0: "660", -1: "660", 120: "720", 3601: "4200", 1 << 40: "4200"} {
		e := entry(t, func(m map[string]any) { m["maxTimeoutSeconds"] = seconds })
		q := must.Get(w.Quote(t.Context(), nil, e))(t)
		p := must.Get(w.Pay(t.Context(), e, q))(t)
		a := p.Authorization
		if life := new(big.Int).Sub(a.ValidBefore.Int(), a.ValidAfter.Int()); life.String() != want {
			t.Errorf("%d s asked: it counts for %s s", seconds, life)
		}
	}
}

// What a wallet does not sign, whoever asks.
func TestWallet_Refuses(t *testing.T) {
	key := must.Get(evm.NewKey())(t)
	w := evm.NewWallet(key)
	for name, change := range map[string]func(map[string]any){
		"another scheme":       func(m map[string]any) { m["scheme"] = "upto" },
		"another chain":        func(m map[string]any) { m["network"] = "eip155:1" },
		"a chain and its text": func(m map[string]any) { m["network"] = "eip155:084532" },
		"USDC of another one":  func(m map[string]any) { m["asset"] = toll.USDCLive.String() },
		"an unknown token":     func(m map[string]any) { m["asset"] = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" },
		"no amount":            func(m map[string]any) { m["amount"] = "" },
		"amount 0":             func(m map[string]any) { m["amount"] = "0" },
		"a negative amount":    func(m map[string]any) { m["amount"] = "-1" },
		"nobody":               func(m map[string]any) { m["payTo"] = "0x0000000000000000000000000000000000000000" },
		"permit2": func(m map[string]any) {
			m["extra"] = map[string]any{"name": "USDC", "version": "2", "assetTransferMethod": "permit2"}
		},
		"no domain": func(m map[string]any) { delete(m, "extra") },
	} {
		if q, err := w.Quote(t.Context(), nil, entry(t, change)); err == nil {
			t.Errorf("%s: quoted %+v", name, q)
		}
	}
}
