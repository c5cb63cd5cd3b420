package signer_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
)

// TestRefusals asks for everything that the signer must not sign: each is refused with its reason, before a key is
// opened, and raises an alarm without the content of the request.
// T66
func TestRefusals(t *testing.T) {
	other := common.HexToAddress("0x2222222222222222222222222222222222222222")
	order := func(change func(b *bench, o *signer.Order)) func(*testing.T, *bench) (any, error) {
		return func(t *testing.T, b *bench) (any, error) {
			o := b.direct("order-1")
			change(b, &o)
			return b.Order(t.Context(), o)
		}
	}
	delegated := func(terms func(b *bench, d *userop.Terms), change func(b *bench, o *signer.Order)) func(*testing.T, *bench) (any, error) {
		return func(t *testing.T, b *bench) (any, error) {
			limit := b.terms()
			terms(b, &limit)
			o := b.delegated(t, "order-1", userop.NewDelegation(limit))
			change(b, &o)
			b.keys.given = nil
			return b.Order(t.Context(), o)
		}
	}
	same := func(*bench, *userop.Terms) {}
	asIs := func(*bench, *signer.Order) {}
	delegation := func(change func(b *bench, d *userop.Delegation)) func(*testing.T, *bench) (any, error) {
		return func(t *testing.T, b *bench) (any, error) {
			d := userop.NewDelegation(b.terms())
			change(b, d)
			return b.Delegation(t.Context(), signer.Delegation{Delegation: d})
		}
	}
	transaction := func(change func(b *bench, r *signer.RelayerTx)) func(*testing.T, *bench) (any, error) {
		return func(t *testing.T, b *bench) (any, error) {
			r := b.transaction(b.operation(t))
			a := must.Get(b.Authorization(t.Context(), signer.Authorization{Account: b.subscriber}))(t)
			r.Authorizations = []types.SetCodeAuthorization{a}
			change(b, &r)
			b.keys.given = nil
			return b.RelayerTx(t.Context(), r)
		}
	}
	anchored := func(change func(a *signer.Anchor)) func(*testing.T, *bench) (any, error) {
		return func(t *testing.T, b *bench) (any, error) { return b.Anchor(t.Context(), anchor(change)) }
	}
	tests := map[string]struct {
		want signer.Reason
		ask  func(*testing.T, *bench) (any, error)
	}{
		"order: no id":          {signer.Malformed, order(func(_ *bench, o *signer.Order) { o.OrderID = "" })},
		"order: endless id":     {signer.Malformed, order(func(_ *bench, o *signer.Order) { o.OrderID = strings.Repeat("x", 1<<20) })},
		"order: negative cents": {signer.Malformed, order(func(_ *bench, o *signer.Order) { o.Cents = -1 })},
		"order: no total":       {signer.Malformed, order(func(_ *bench, o *signer.Order) { o.Total = nil })},
		"order: no receivers":   {signer.Malformed, order(func(_ *bench, o *signer.Order) { o.Transfers = nil })},
		"order: missing amount": {signer.Malformed, order(func(_ *bench, o *signer.Order) { o.Transfers[0].Amount = nil })},
		"order: negative amount": {signer.Malformed, order(func(_ *bench, o *signer.Order) {
			o.Transfers = append(o.Transfers, userop.Transfer{To: other, Amount: big.NewInt(-1)})
			o.Total = big.NewInt(999_999)
		})},
		"order: amount above a word": {signer.Malformed, order(func(_ *bench, o *signer.Order) {
			o.Transfers[0].Amount = new(big.Int).Lsh(big.NewInt(1), 256)
			o.Total = o.Transfers[0].Amount
		})},
		"order: nothing to pay": {signer.Malformed, order(func(_ *bench, o *signer.Order) {
			o.Transfers[0].Amount, o.Total = new(big.Int), new(big.Int)
		})},
		"order: eleven receivers": {signer.Malformed, order(func(_ *bench, o *signer.Order) {
			for range 10 {
				o.Transfers = append(o.Transfers, userop.Transfer{To: other, Amount: big.NewInt(1)})
			}
			o.Total = big.NewInt(1_000_010)
		})},
		"order: total too small":  {signer.WrongTotal, order(func(_ *bench, o *signer.Order) { o.Total = big.NewInt(999_999) })},
		"order: total too large":  {signer.WrongTotal, order(func(_ *bench, o *signer.Order) { o.Total = big.NewInt(1_000_001) })},
		"order: the service pays": {signer.ForeignAccount, order(func(b *bench, o *signer.Order) { o.Sender = b.service })},
		"order: a relayer pays":   {signer.ForeignAccount, order(func(b *bench, o *signer.Order) { o.Sender = b.relayer })},
		"order: foreign receiver": {signer.ForeignReceiver, order(func(_ *bench, o *signer.Order) { o.AllowedRecipients = []common.Address{other} })},

		"delegated: foreign receiver": {signer.ForeignReceiver, delegated(same, func(_ *bench, o *signer.Order) {
			o.AllowedRecipients = []common.Address{other, receiver}
			o.Transfers = append(o.Transfers, userop.Transfer{To: common.Address{3}, Amount: big.NewInt(1)})
			o.Total = big.NewInt(1_000_001)
		})},
		"delegated: not the pinned receiver": {signer.ForeignReceiver, delegated(func(_ *bench, d *userop.Terms) { d.Receiver = &other }, asIs)},
		"delegated: run by the subscriber":   {signer.ForeignAccount, delegated(same, func(b *bench, o *signer.Order) { o.Sender = b.subscriber })},
		"delegated: run by a relayer":        {signer.ForeignAccount, delegated(same, func(b *bench, o *signer.Order) { o.Sender = b.relayer })},
		"delegated: other delegate":          {signer.ForeignDelegate, delegated(same, func(_ *bench, o *signer.Order) { o.Delegation.Delegate = other })},
		"delegated: the service's own money": {signer.ForeignDelegate, delegated(same, func(b *bench, o *signer.Order) { o.Delegation.Delegator = b.service })},
		"delegated: another caveat": {signer.ForeignDelegate, delegated(same, func(_ *bench, o *signer.Order) {
			o.Delegation.Caveats = append(o.Delegation.Caveats, userop.Caveat{Enforcer: other})
		})},
		"delegated: no limit":        {signer.ForeignDelegate, delegated(same, func(_ *bench, o *signer.Order) { o.Delegation.Caveats = o.Delegation.Caveats[1:] })},
		"delegated: other token":     {signer.OtherToken, delegated(same, func(_ *bench, o *signer.Order) { o.Token = contracts.EURC(contracts.BaseSepolia) })},
		"delegated: native":          {signer.OtherToken, delegated(same, func(_ *bench, o *signer.Order) { o.Token = common.Address{} })},
		"delegated: above the limit": {signer.OverLimit, delegated(func(_ *bench, d *userop.Terms) { d.Limit = big.NewInt(999_999) }, asIs)},
		"delegated: signed for another chain": {signer.ForeignChain, delegated(same, func(b *bench, o *signer.Order) {
			live := newBench(t, func(c *signer.Config) { c.ChainID = big.NewInt(contracts.Base) })
			signed := must.Get(live.Delegation(t.Context(), signer.Delegation{Delegation: &o.Delegation.Delegation}))(t)
			o.Delegation = signed
		})},
		"delegated: not signed": {signer.ForeignChain, delegated(same, func(_ *bench, o *signer.Order) { o.Delegation.Signature = nil })},

		"delegation: nothing":         {signer.Malformed, func(t *testing.T, b *bench) (any, error) { return b.Delegation(t.Context(), signer.Delegation{}) }},
		"delegation: other delegate":  {signer.ForeignDelegate, delegation(func(_ *bench, d *userop.Delegation) { d.Delegate = other })},
		"delegation: no limit":        {signer.ForeignDelegate, delegation(func(_ *bench, d *userop.Delegation) { d.Caveats = d.Caveats[1:] })},
		"delegation: no caveats":      {signer.ForeignDelegate, delegation(func(_ *bench, d *userop.Delegation) { d.Caveats = nil })},
		"delegation: not of the root": {signer.ForeignDelegate, delegation(func(_ *bench, d *userop.Delegation) { d.Authority = common.Hash{1} })},
		"delegation: no salt":         {signer.ForeignDelegate, delegation(func(_ *bench, d *userop.Delegation) { d.Salt = nil })},
		"delegation: negative salt":   {signer.ForeignDelegate, delegation(func(_ *bench, d *userop.Delegation) { d.Salt = big.NewInt(-1) })},
		"delegation: by the service":  {signer.ForeignAccount, delegation(func(b *bench, d *userop.Delegation) { d.Delegator = b.service })},
		"delegation: by a relayer":    {signer.ForeignAccount, delegation(func(b *bench, d *userop.Delegation) { d.Delegator = b.relayer })},

		"revoke: nothing": {signer.Malformed, func(t *testing.T, b *bench) (any, error) {
			return b.Revoke(t.Context(), signer.Revoke{DelegationID: "x"})
		}},
		"revoke: no id": {signer.Malformed, func(t *testing.T, b *bench) (any, error) {
			return b.Revoke(t.Context(), signer.Revoke{Delegation: userop.NewDelegation(b.terms())})
		}},
		"revoke: of another id": {signer.ForeignDelegate, func(t *testing.T, b *bench) (any, error) {
			return b.Revoke(t.Context(), signer.Revoke{DelegationID: "other", Delegation: userop.NewDelegation(b.terms())})
		}},
		"revoke: by the service": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			d := userop.NewDelegation(b.terms())
			d.Delegator = b.service
			return b.Revoke(t.Context(), signer.Revoke{DelegationID: b.terms().ID, Delegation: d})
		}},

		"void: no id": {signer.Malformed, func(t *testing.T, b *bench) (any, error) {
			return b.Void(t.Context(), signer.Void{Sender: b.subscriber})
		}},
		"void: by a relayer": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			return b.Void(t.Context(), signer.Void{OrderID: "order-1", Sender: b.relayer})
		}},

		"authorization: of a relayer": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			return b.Authorization(t.Context(), signer.Authorization{Account: b.relayer})
		}},

		"transaction: not by a relayer":   {signer.ForeignAccount, transaction(func(b *bench, r *signer.RelayerTx) { r.Relayer = b.subscriber })},
		"transaction: by the service":     {signer.ForeignAccount, transaction(func(b *bench, r *signer.RelayerTx) { r.Relayer = b.service })},
		"transaction: no operations":      {signer.Malformed, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops = nil })},
		"transaction: no gas":             {signer.Malformed, transaction(func(_ *bench, r *signer.RelayerTx) { r.Gas = 0 })},
		"transaction: no fee":             {signer.Malformed, transaction(func(_ *bench, r *signer.RelayerTx) { r.FeeCap = nil })},
		"transaction: tip above the fee":  {signer.Malformed, transaction(func(_ *bench, r *signer.RelayerTx) { r.Tip = big.NewInt(12) })},
		"transaction: negative tip":       {signer.Malformed, transaction(func(_ *bench, r *signer.RelayerTx) { r.Tip = big.NewInt(-1) })},
		"transaction: fee above a word":   {signer.Malformed, transaction(func(_ *bench, r *signer.RelayerTx) { r.FeeCap = new(big.Int).Lsh(big.NewInt(1), 256) })},
		"transaction: missing operation":  {signer.ForeignForm, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops = append(r.Ops, nil) })},
		"transaction: fees":               {signer.ForeignForm, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops[0].GasFees[31] = 1 })},
		"transaction: preVerificationGas": {signer.ForeignForm, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops[0].PreVerificationGas = big.NewInt(1) })},
		"transaction: paymaster":          {signer.ForeignForm, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops[0].PaymasterAndData = []byte{1} })},
		"transaction: init code":          {signer.ForeignForm, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops[0].InitCode = []byte{1} })},
		"transaction: no nonce":           {signer.ForeignForm, transaction(func(_ *bench, r *signer.RelayerTx) { r.Ops[0].Nonce = nil })},
		"transaction: chain id 0":         {signer.ForeignChain, transaction(func(_ *bench, r *signer.RelayerTx) { r.Authorizations[0].ChainID.Clear() })},
		"transaction: other chain id":     {signer.ForeignChain, transaction(func(_ *bench, r *signer.RelayerTx) { r.Authorizations[0].ChainID.SetUint64(contracts.Base) })},
		"transaction: other code":         {signer.ForeignCode, transaction(func(_ *bench, r *signer.RelayerTx) { r.Authorizations[0].Address = other })},
		"transaction: code taken away":    {signer.ForeignCode, transaction(func(_ *bench, r *signer.RelayerTx) { r.Authorizations[0].Address = common.Address{} })},
		"transaction: not a signature":    {signer.ForeignChain, transaction(func(_ *bench, r *signer.RelayerTx) { r.Authorizations[0].S.Clear() })},
		"transaction: the second is wrong": {signer.ForeignCode, transaction(func(_ *bench, r *signer.RelayerTx) {
			second := r.Authorizations[0]
			second.Address = other
			r.Authorizations = append(r.Authorizations, second)
		})},
		"transaction: code for a relayer": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			r := b.transaction(b.operation(t))
			elsewhere := newBench(t, func(c *signer.Config) { c.Relayers = nil })
			a := must.Get(elsewhere.Authorization(t.Context(), signer.Authorization{Account: b.relayer}))(t)
			b.keys.given, r.Authorizations = nil, []types.SetCodeAuthorization{a}
			return b.RelayerTx(t.Context(), r)
		}},
		"transaction: by the operator of the mirror": {signer.ForeignAccount, transaction(func(b *bench, r *signer.RelayerTx) { r.Relayer = b.operator })},
		"order: the operator of the mirror pays":     {signer.ForeignAccount, order(func(b *bench, o *signer.Order) { o.Sender = b.operator })},
		"delegation: by the operator of the mirror":  {signer.ForeignAccount, delegation(func(b *bench, d *userop.Delegation) { d.Delegator = b.operator })},
		"void: by the operator of the mirror": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			return b.Void(t.Context(), signer.Void{OrderID: "order-1", Sender: b.operator})
		}},
		"authorization: of the operator of the mirror": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			return b.Authorization(t.Context(), signer.Authorization{Account: b.operator})
		}},

		"anchor: no mirror": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			*b = *newBench(t, func(c *signer.Config) { c.Mirror = common.Address{} })
			return b.Anchor(t.Context(), anchor(nil))
		}},
		"anchor: no root":              {signer.Malformed, anchored(func(a *signer.Anchor) { a.Root = common.Hash{} })},
		"anchor: no leaves":            {signer.Malformed, anchored(func(a *signer.Anchor) { a.Leaves = 0 })},
		"anchor: negative credits":     {signer.Malformed, anchored(func(a *signer.Anchor) { a.Credits = big.NewInt(-1) })},
		"anchor: credits above a word": {signer.Malformed, anchored(func(a *signer.Anchor) { a.Credits = new(big.Int).Lsh(big.NewInt(1), 128) })},
		"anchor: no gas":               {signer.Malformed, anchored(func(a *signer.Anchor) { a.Gas = 0 })},
		"anchor: tip above the fee":    {signer.Malformed, anchored(func(a *signer.Anchor) { a.Tip = big.NewInt(12) })},
		"mirror: no gas": {signer.Malformed, func(t *testing.T, b *bench) (any, error) {
			return b.DeployMirror(t.Context(), signer.DeployMirror{Tip: big.NewInt(1), FeeCap: big.NewInt(1)})
		}},
		"mirror: no fee": {signer.Malformed, func(t *testing.T, b *bench) (any, error) {
			return b.DeployMirror(t.Context(), signer.DeployMirror{Gas: 1})
		}},

		"fill: not by a relayer": {signer.ForeignAccount, func(t *testing.T, b *bench) (any, error) {
			return b.Fill(t.Context(), signer.Fill{Relayer: b.service, Tip: big.NewInt(1), FeeCap: big.NewInt(1)})
		}},
		"fill: no fee": {signer.Malformed, func(t *testing.T, b *bench) (any, error) { return b.Fill(t.Context(), signer.Fill{Relayer: b.relayer}) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			got, err := test.ask(t, b)
			refused(t, b, got, err, test.want)
			if len(b.keys.given) > 0 {
				t.Error("a key was opened")
			}
		})
	}
}

// anchor is a request for a root.
func anchor(change func(*signer.Anchor)) signer.Anchor {
	a := signer.Anchor{Period: 1, Root: common.Hash{1}, Leaves: 1, Credits: big.NewInt(1), Gas: 100_000, Tip: big.NewInt(1), FeeCap: big.NewInt(11)}
	if change != nil {
		change(&a)
	}
	return a
}

// refused wants a refusal with its alarm, and nothing signed.
func refused(t *testing.T, b *bench, got any, err error, want signer.Reason) {
	t.Helper()
	var r *signer.Refusal
	if !errors.As(err, &r) || r.Reason != want {
		t.Fatalf("%v, want a refusal: %s", err, want)
	}
	if v := reflect.ValueOf(got); !v.IsZero() {
		t.Errorf("something is returned: %+v", got)
	}
	log := b.log.String()
	if strings.Count(log, "\n") != 1 || !strings.Contains(log, `"level":"ERROR"`) || !strings.Contains(log, "alarm") || !strings.Contains(log, string(want)) {
		t.Errorf("the alarm is %.500q", log)
	}
	for _, text := range []string{log, err.Error()} {
		for _, content := range []string{hex.EncodeToString(receiver[:]), "1000000", "999999", hex.EncodeToString(bytes.Repeat([]byte{1}, 8)), hex.EncodeToString(bytes.Repeat([]byte{2}, 8))} {
			if strings.Contains(strings.ToLower(text), content) {
				t.Errorf("%s is in %.500q", content, text)
			}
		}
		if len(text) > 1000 {
			t.Errorf("%d bytes of text", len(text))
		}
	}
}

// A second request for an order is refused when it would move money otherwise. The same one may come again, with other gas.
// T66
func TestOneContentPerOrder(t *testing.T) {
	for name, change := range map[string]func(b *bench, o *signer.Order){
		"receiver": func(_ *bench, o *signer.Order) { o.Transfers[0].To = common.Address{7} },
		"amount": func(_ *bench, o *signer.Order) {
			o.Transfers[0].Amount, o.Total = big.NewInt(1_000_001), big.NewInt(1_000_001)
		},
		"one more receiver": func(_ *bench, o *signer.Order) {
			o.Transfers = append(o.Transfers, userop.Transfer{To: receiver, Amount: big.NewInt(1)})
			o.Total = big.NewInt(1_000_001)
		},
		"token":      func(_ *bench, o *signer.Order) { o.Token = contracts.EURC(contracts.BaseSepolia) },
		"native":     func(_ *bench, o *signer.Order) { o.Token = common.Address{} },
		"account":    func(b *bench, o *signer.Order) { o.Sender = b.keys.add(bytes.Repeat([]byte{5}, 32)) },
		"delegation": func(b *bench, o *signer.Order) { *o = b.delegated(t, "order-1", userop.NewDelegation(b.terms())) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			first := b.operation(t)
			o := b.direct("order-1")
			change(b, &o)
			op, err := b.Order(t.Context(), o)
			refused(t, b, op, err, signer.OtherContent)

			o = b.direct("order-1")
			o.CallGas++
			again, err := b.Order(t.Context(), o)
			if err != nil || !bytes.Equal(again.CallData, first.CallData) || again.Nonce.Cmp(first.Nonce) != 0 {
				t.Errorf("the same with other gas: %v", err)
			}
			clean(t, b, bytes.Repeat([]byte{1}, 32))
		})
	}
}

// Requests say what is meant. None has room for a hash, for bytes to sign, for a target, a value or a chain.
// T66
func TestNothingElseCanBeAsked(t *testing.T) {
	bad := []string{"Hash", "Digest", "Data", "To", "Target", "Value", "ChainID", "Code"}
	s := reflect.TypeFor[*signer.Signer]()
	var requests []string
	for i := range s.NumMethod() {
		m := s.Method(i).Type
		if m.NumIn() != 3 || m.In(2).Kind() != reflect.Struct || m.In(2).Name() != s.Method(i).Name {
			t.Errorf("%s does not take a request of its name", s.Method(i).Name)
			continue
		}
		request := m.In(2)
		requests = append(requests, request.Name())
		for f := range request.NumField() {
			field := request.Field(f)
			for _, name := range bad {
				if request.Name()+"."+field.Name == "Anchor.Root" {
					continue // an argument of the one function that it is for
				}
				if field.Name == name || field.Type == reflect.TypeFor[common.Hash]() || field.Type == reflect.TypeFor[[]byte]() {
					t.Errorf("%s.%s of %s", request.Name(), field.Name, field.Type)
				}
			}
		}
	}
	if want := "[Anchor Authorization Delegation DeployMirror Fill Order RelayerTx Revoke Sale Void]"; fmt.Sprint(requests) != want {
		t.Errorf("the requests are %v, want %s", requests, want)
	}
}
