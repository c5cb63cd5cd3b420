package signer_test

import (
	"bytes"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// sale is a request for a sale of one dollar to a wallet of nobody. It is signed after the changes.
func (b *bench) sale(t *testing.T, id string, change ...func(*signer.Sale)) signer.Sale {
	t.Helper()
	k := must.Get(evm.ParseKey(strings.Repeat("09", 32)))(t)
	s := signer.Sale{OrderID: id, Token: b.usdc, CallGas: 150_000, Authorization: evm.Authorization{
		From: k.Address(), To: toll.Address(receiver), Value: big.NewInt(1_000_000), ValidBefore: 1_790_000_300, Nonce: [32]byte{1},
	}}
	for _, f := range change {
		f(&s)
	}
	b.authorize(t, k, &s, nil)
	return s
}

func (b *bench) authorize(t *testing.T, k *evm.Key, s *signer.Sale, change func(*evm.Domain)) {
	t.Helper()
	d := evm.Domain{Name: "USDC", Version: "2", ChainID: big.NewInt(contracts.BaseSepolia), Contract: toll.Address(s.Token)}
	if s.Token == contracts.EURC(contracts.BaseSepolia) {
		d.Name = "EURC"
	}
	if change != nil {
		change(&d)
	}
	if s.Authorization.Value == nil || s.Authorization.Value.Sign() < 0 || s.Authorization.Value.BitLen() > 256 {
		return // nothing can be signed
	}
	signature := must.Get(k.Sign(s.Authorization.Digest(d)))(t)
	s.Signature = signature
}

func TestSale(t *testing.T) {
	b := newBench(t, nil)
	for _, token := range []common.Address{b.usdc, contracts.EURC(contracts.BaseSepolia)} {
		s := b.sale(t, "order-"+token.Hex(), func(s *signer.Sale) { s.Token = token })
		op := must.Get(b.Sale(t.Context(), s))(t)
		callData, err := userop.SaleCall(token, &s.Authorization, s.Signature)
		if err != nil || !bytes.Equal(op.CallData, callData) || op.Sender != b.service || op.Nonce.Cmp(userop.Nonce(userop.OrderKey(s.OrderID))) != 0 {
			t.Errorf("operation: %+v, %v", op, err)
		}
		if by, err := evm.Recover(op.SigningHash(big.NewInt(contracts.BaseSepolia)), op.Signature); err != nil || common.Address(by) != b.service {
			t.Errorf("it is signed by %s, %v", by, err)
		}
	}
	clean(t, b, bytes.Repeat([]byte{2}, 32))
}

// TestSaleRefused asks for sales that the signer must not sign: each is refused before a key is opened.
// T61
func TestSaleRefused(t *testing.T) {
	k := must.Get(evm.ParseKey(strings.Repeat("09", 32)))(t)
	after := func(change func(b *bench, s *signer.Sale)) func(b *bench) signer.Sale {
		return func(b *bench) signer.Sale { s := b.sale(t, "order-1"); change(b, &s); return s }
	}
	before := func(change func(s *signer.Sale)) func(b *bench) signer.Sale {
		return func(b *bench) signer.Sale { return b.sale(t, "order-1", change) }
	}
	domain := func(change func(*evm.Domain)) func(b *bench) signer.Sale {
		return after(func(b *bench, s *signer.Sale) { b.authorize(t, k, s, change) })
	}
	for name, row := range map[string]struct {
		want signer.Reason
		sale func(b *bench) signer.Sale
	}{
		"no id":            {signer.Malformed, before(func(s *signer.Sale) { s.OrderID = "" })},
		"endless id":       {signer.Malformed, before(func(s *signer.Sale) { s.OrderID = strings.Repeat("x", 1<<20) })},
		"no value":         {signer.Malformed, before(func(s *signer.Sale) { s.Authorization.Value = nil })},
		"nothing":          {signer.Malformed, before(func(s *signer.Sale) { s.Authorization.Value = new(big.Int) })},
		"a negative value": {signer.Malformed, before(func(s *signer.Sale) { s.Authorization.Value = big.NewInt(-1) })},
		"more than a word": {signer.Malformed, before(func(s *signer.Sale) { s.Authorization.Value = new(big.Int).Lsh(big.NewInt(1), 256) })},
		"no receiver":      {signer.Malformed, before(func(s *signer.Sale) { s.Authorization.To = toll.Address{} })},
		"no sender":        {signer.Malformed, before(func(s *signer.Sale) { s.Authorization.From = toll.Address{} })},
		"native":           {signer.ForeignToken, before(func(s *signer.Sale) { s.Token = common.Address{} })},
		"another contract": {signer.ForeignToken, before(func(s *signer.Sale) { s.Token = contracts.EntryPoint })},
		"USDC of Base":     {signer.ForeignToken, before(func(s *signer.Sale) { s.Token = contracts.USDC(contracts.Base) })},
		"of the service":   {signer.ForeignAccount, after(func(b *bench, s *signer.Sale) { s.Authorization.From = toll.Address(b.service) })},
		"of a relayer":     {signer.ForeignAccount, after(func(b *bench, s *signer.Sale) { s.Authorization.From = toll.Address(b.relayer) })},
		"not signed":       {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Signature = make([]byte, 65) })},
		"a contract's":     {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Signature = append(s.Signature, 0) })},
		"wrapped":          {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Signature, s.Contract = bytes.Repeat([]byte{0x64, 0x92}, 16), true })},
		"too long":         {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Signature, s.Contract = make([]byte, evm.MaxSignature+1), true })},
		"too much gas": {signer.Malformed, after(func(_ *bench, s *signer.Sale) {
			s.Signature, s.Contract, s.CallGas = nil, true, signer.MaxSaleGas+1
		})},
		"too much gas of a key":      {signer.Malformed, before(func(s *signer.Sale) { s.CallGas = signer.MaxSaleGas + 1 })},
		"of a relayer, who has code": {signer.ForeignAccount, after(func(b *bench, s *signer.Sale) { s.Authorization.From, s.Contract = toll.Address(b.relayer), true })},
		"v 0 or 1":                   {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Signature[64] -= 27 })},
		"another sender":             {signer.ForeignWallet, after(func(b *bench, s *signer.Sale) { s.Authorization.From = toll.Address(b.subscriber) })},
		"another receiver":           {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Authorization.To[0]++ })},
		"another value":              {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Authorization.Value = big.NewInt(1_000_001) })},
		"another start":              {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Authorization.ValidAfter++ })},
		"another end":                {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Authorization.ValidBefore++ })},
		"another nonce":              {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Authorization.Nonce[0]++ })},
		"another token":              {signer.ForeignWallet, after(func(_ *bench, s *signer.Sale) { s.Token = contracts.EURC(contracts.BaseSepolia) })},
		"another chain":              {signer.ForeignWallet, domain(func(d *evm.Domain) { d.ChainID = big.NewInt(contracts.Base) })},
		"another name":               {signer.ForeignWallet, domain(func(d *evm.Domain) { d.Name = "USD Coin" })},
		"another version":            {signer.ForeignWallet, domain(func(d *evm.Domain) { d.Version = "1" })},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			op, err := b.Sale(t.Context(), row.sale(b))
			refused(t, b, op, err, row.want)
			if len(b.keys.given) > 0 {
				t.Error("a key was opened")
			}
		})
	}
}

// For one order id one content is signed, be it an order or a sale.
func TestSale_OneContent(t *testing.T) {
	b := newBench(t, nil)
	first := b.sale(t, "order-1")
	one := must.Get(b.Sale(t.Context(), first))(t)
	again := first
	again.CallGas++
	if two, err := b.Sale(t.Context(), again); err != nil || !bytes.Equal(one.CallData, two.CallData) {
		t.Errorf("the same with other gas: %v", err)
	}
	op, err := b.Sale(t.Context(), b.sale(t, "order-1", func(s *signer.Sale) { s.Authorization.Nonce[31] = 1 }))
	refused(t, b, op, err, signer.OtherContent)
	b.log.Reset()
	op, err = b.Order(t.Context(), b.direct("order-1"))
	refused(t, b, op, err, signer.OtherContent)
}

// Whether a contract takes a signature the signer cannot ask. It signs the transfer of the token with any bytes, of a length and
// for a gas that are bounded, and counts it against the cap as what the gas may cost.
func TestSale_Contract(t *testing.T) {
	b := newBench(t, func(c *signer.Config) { c.HourlyCents = 29 })
	contract := func(id string, units int64, signature []byte) (*userop.Operation, signer.Sale, error) {
		s := b.sale(t, id, func(s *signer.Sale) { s.Authorization.Value = big.NewInt(units) })
		s.Authorization.From, s.Signature, s.Contract, s.CallGas = toll.Address{9}, signature, true, signer.MaxSaleGas
		op, err := b.Sale(t.Context(), s)
		return op, s, err
	}
	for i, signature := range [][]byte{nil, make([]byte, evm.MaxSignature)} {
		op, s, err := contract(string(rune('a'+i)), 1, signature)
		must.Do(t, err)
		callData, err := userop.SaleCall(s.Token, &s.Authorization, signature)
		if err != nil || !bytes.Equal(op.CallData, callData) || op.Sender != b.service {
			t.Errorf("operation: %+v, %v", op, err)
		}
	}
	op, _, err := contract("c", 1, []byte{1}) // 9 cents are left
	refused(t, b, op, err, signer.OverCap)
	b.log.Reset()
	op, err = b.Sale(t.Context(), b.sale(t, "e", func(s *signer.Sale) { s.Authorization.Value, s.CallGas = big.NewInt(1), 300_000 }))
	refused(t, b, op, err, signer.OverCap) // code of a wallet with a key uses as much gas
	if _, err := b.Sale(t.Context(), b.sale(t, "d", func(s *signer.Sale) { s.Authorization.Value = big.NewInt(90_000) })); err != nil {
		t.Errorf("a sale of 9 cents by a key: %v", err)
	}
}

// Sales have the hourly cap for themselves: strangers who buy of themselves do not keep accounts of the service from paying.
func TestSale_HourlyCap(t *testing.T) {
	b := newBench(t, func(c *signer.Config) { c.HourlyCents = 250 })
	ask := func(id string) error {
		_, err := b.Sale(t.Context(), b.sale(t, id))
		return err
	}
	over := func(err error) {
		t.Helper()
		var r *signer.Refusal
		if !errors.As(err, &r) || r.Reason != signer.OverCap || r.RetryAfter != time.Hour+time.Second {
			t.Errorf("%+v, want a refusal for an hour", err)
		}
	}
	for _, id := range []string{"a", "b", "a"} {
		must.Do(t, ask(id))
	}
	over(ask("c"))
	if _, err := b.Order(t.Context(), b.direct("d")); err != nil {
		t.Errorf("an order beside the sales: %v", err)
	}
	b.now = b.now.Add(time.Hour + time.Second)
	must.Check(t, ask("c"))
}
