package chain_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

func TestPay_Direct(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		// The first order brings the code of the account along.
		owner := w.account(usdc, 10_000_000, eurc, 2_000_000)
		if nonce := w.nonce(owner); nonce != 0 {
			t.Fatalf("the account has nonce %d before its first order", nonce)
		}
		p := purchase(owner, usdc, receiver(1), 1_000_000)
		tx := w.paid(r, p)
		w.has(owner, usdc, 9_000_000, receiver(1), usdc, 1_000_000)
		if nonce := w.nonce(owner); nonce != 1 {
			t.Errorf("the account has nonce %d at the latest block after its first order, want 1", nonce)
		}
		if got := w.wallet(r, owner).Code; got != "account" {
			t.Errorf("code of the account: %q", got)
		}
		op := w.op(p.OrderID)
		if e := w.eventOf(tx, op.Hash); e != (event{true, "none"}) {
			t.Errorf("event of the order: %+v", e)
		}
		if op.Sender != owner || op.Payer != owner || op.Cents != 100 || op.Operation.Nonce.Cmp(userop.Nonce(userop.OrderKey(p.OrderID))) != 0 {
			t.Errorf("operation: %+v", op)
		}

		// Several receivers: equal ones stay apart, those of nothing are left out.
		w.paid(r, purchase(owner, usdc, receiver(1), 300_000, receiver(2), 0, receiver(3), 500_000, receiver(1), 200_000))
		w.has(owner, usdc, 8_000_000, receiver(1), usdc, 1_500_000, receiver(2), usdc, 0, receiver(3), usdc, 500_000)

		w.paid(r, purchase(owner, eurc, receiver(4), 2_000_000))
		w.has(owner, eurc, 0, receiver(4), eurc, 2_000_000)

		// The native token pays, and gas does not cost the account anything.
		w.give(owner, wei, 1_000_000)
		w.paid(r, purchase(owner, wei, receiver(5), 999_999))
		w.paid(r, purchase(owner, wei, receiver(5), 1))
		w.has(owner, wei, 0, receiver(5), wei, 1_000_000)

		ten := []any{}
		for i := range 10 {
			ten = append(ten, receiver(20+i), 100+i)
		}
		w.paid(r, purchase(owner, usdc, ten...))
		for i := range 10 {
			w.has(receiver(20+i), usdc, 100+i)
		}
	})
}

func TestPay_NativeFirstOrder(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		owner := w.account(wei, 700)
		w.paid(w.running(), purchase(owner, wei, receiver(1), 200, receiver(2), 300))
		w.has(owner, wei, 200, receiver(1), wei, 200, receiver(2), wei, 300)
	})
}

func TestPay_Delegated(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		owner := w.account(usdc, 10_000_000, eurc, 5_000_000)
		d := w.delegation(owner, 600)
		// The first order brings the code of two accounts along.
		p := by(d, purchase(owner, usdc, receiver(1), 1_000_000))
		w.paid(r, p)
		op := w.op(p.OrderID)
		if op.Sender != w.service || op.Payer != owner || op.DelegationID != d.ID || op.Cents != 100 || op.Delegation != w.onChain(d).Hash() {
			t.Errorf("operation: %+v", op)
		}
		if id, err := store.ChainDelegation(t.Context(), w.records.Store, toll.Hash(op.Delegation)); err != nil || id != d.ID {
			t.Errorf("the delegation of the hash is %q, %v", id, err)
		}
		w.paid(r, by(d, purchase(owner, usdc, receiver(1), 1_500_000, receiver(2), 0, receiver(3), 1_000_000, receiver(1), 500_000)))
		w.has(owner, usdc, 6_000_000, receiver(1), usdc, 3_000_000, receiver(3), usdc, 1_000_000, w.service, usdc, 0)

		euros := w.delegation(owner, 500)
		euros.Currency = "eurc"
		w.paid(r, by(euros, purchase(owner, eurc, receiver(4), 5_000_000)))
		w.has(owner, eurc, 0, receiver(4), eurc, 5_000_000)
	})
}

// A first delegated order for an account that a user holds, who gave an authorization with the signature.
func TestPay_UserHeldAccount(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		user := w.userHeld(usdc, 5_000_001)
		d := user.delegation(500)
		w.paid(r, by(d, purchase(common.Address(d.Owner), usdc, receiver(1), 2_000_000)))
		w.paid(r, by(d, purchase(common.Address(d.Owner), usdc, receiver(1), 3_000_000)))
		w.has(user.account, usdc, 1, receiver(1), usdc, 5_000_000)

		// The service has no key of the account, so there is no other way.
		w.fails(r, purchase(user.account, usdc, receiver(1), 1), toll.CodeDelegationNotFound)
		unsigned := user.delegation(500)
		unsigned.Signature = nil
		w.fails(r, by(unsigned, purchase(common.Address(d.Owner), usdc, receiver(1), 1)), toll.CodeChainSignature)
	})
}

func TestPay_Refused(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		strange := receiver(99)
		r := w.rail()
		owner := w.account(usdc, 10_000_000, wei, 1_000)
		d := w.delegation(owner, 600)
		euros := w.delegation(owner, 600)
		euros.Currency = "eurc"
		others := w.delegation(w.account(), 600)
		narrow := w.delegation(owner, 600)
		narrow.AllowedRecipients = []toll.Address{toll.Address(receiver(1)), toll.Address(receiver(2))}
		for what, one := range map[string]struct {
			p    rail.Purchase
			code toll.Code
		}{
			"token that is not on the list":    {purchase(owner, strange, receiver(1), 1), toll.CodeChainToken},
			"native plan, delegation in cents": {by(d, purchase(owner, wei, receiver(1), 1)), toll.CodeChainNativeDelegation},
			"other currency":                   {by(euros, purchase(owner, usdc, receiver(1), 1)), toll.CodeUnsupportedScheme},
			"delegation of another account":    {by(others, purchase(owner, usdc, receiver(1), 1)), toll.CodeDelegationNotFound},
			"receiver that is not allowed":     {by(narrow, purchase(owner, usdc, receiver(1), 1, receiver(3), 1)), toll.CodeDelegationPlanMismatch},
			"more than the delegation":         {by(d, purchase(owner, usdc, receiver(1), 6_000_001)), toll.CodeDelegationInsufficient},
		} {
			t.Run(what, func(t *testing.T) {
				w.fails(r, one.p, one.code)
				w.fails(r, one.p, one.code) // as it was decided
			})
		}
		listed := w.rail(func(c *chain.Config) { c.Tokens = []common.Address{eurc, strange} })
		w.fails(listed, purchase(owner, strange, receiver(1), 1), toll.CodeChainToken) // there is no such token
		w.has(owner, usdc, 10_000_000, receiver(1), usdc, 0)
		if n := len(w.ops(chain.Created, chain.Signed, chain.Sent)); n != 0 {
			t.Errorf("%d operations are left open", n)
		}
	})
}

// Another token on the list of the operator pays direct orders, without cents.
func TestPay_OtherToken(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		code := must.Get(w.Eth().CodeAt(t.Context(), usdc, nil))(t)
		// The creation code returns what stands behind its ten bytes.
		creation := slices.Concat([]byte{0x61, byte(len(code) >> 8), byte(len(code)), 0x80, 0x60, 0x0a, 0x3d, 0x39, 0x3d, 0xf3}, code)
		salt := common.Hash{31: 7}
		token := crypto.CreateAddress2(contracts.Create2Deployer, salt, crypto.Keccak256(creation))
		w.send(contracts.Create2Deployer, append(salt[:], creation...))
		owner := w.account()
		w.send(token, move("mint(address,uint256)", owner, 1_000))
		r := w.running(func(c *chain.Config) { c.Tokens = []common.Address{token} })
		p := purchase(owner, token, receiver(1), 600, receiver(2), 300)
		w.paid(r, p)
		w.has(owner, token, 100, receiver(1), token, 600, receiver(2), token, 300)
		if got := w.op(p.OrderID).Cents; got != 0 {
			t.Errorf("the order has %d cents", got)
		}
		w.fails(r, purchase(owner, token, receiver(1), 101), toll.CodeChainBalance)
		w.fails(r, by(w.delegation(owner, 100), purchase(owner, token, receiver(1), 1)), toll.CodeUnsupportedScheme)
	})
}

func TestPay_LowBalance(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		r := w.running()
		owner := w.account(usdc, 1_999_999, wei, 99)
		want := func(token common.Address, needed, available string) map[string]any {
			return map[string]any{
				"address": toll.Address(owner).String(), "token": toll.Address(token).String(), "needed": needed, "available": available,
			}
		}
		for what, one := range map[string]struct {
			p    rail.Purchase
			want map[string]any
		}{
			"direct":             {purchase(owner, usdc, receiver(1), 2_000_000), want(usdc, "2000000", "1999999")},
			"direct, two":        {purchase(owner, usdc, receiver(1), 1_500_000, receiver(2), 1_500_000), want(usdc, "3000000", "1999999")},
			"delegated":          {by(w.delegation(owner, 1_000), purchase(owner, usdc, receiver(1), 2_000_000)), want(usdc, "2000000", "1999999")},
			"native":             {purchase(owner, wei, receiver(1), 100), want(wei, "100", "99")},
			"token without some": {purchase(owner, eurc, receiver(1), 1), want(eurc, "1", "0")},
		} {
			t.Run(what, func(t *testing.T) {
				f := w.fails(r, one.p, toll.CodeChainBalance)
				if diff := cmp.Diff(one.want, f.Params); diff != "" {
					t.Errorf("params (-want +got):\n%s", diff)
				}
			})
		}
		w.has(owner, usdc, 1_999_999, receiver(1), usdc, 0, receiver(1), wei, 0)
		w.paid(r, purchase(owner, usdc, receiver(1), 1_999_999)) // exactly what is there
		w.has(owner, usdc, 0, receiver(1), usdc, 1_999_999)
	})
}

// Two processes and many callers pay an order once.
func TestPay_Idempotent(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		rails := []*chain.Rail{w.running(), w.running()}
		owner := w.account(usdc, 10_000_000)
		d := w.delegation(owner, 1_000)
		orders := []rail.Purchase{purchase(owner, usdc, receiver(1), 1_000_000), by(d, purchase(owner, usdc, receiver(2), 2_000_000))}
		var mu sync.Mutex
		txs := map[string]bool{}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				p := orders[i%2]
				o, err := rails[i/2%2].Pay(ctx, p)
				if err != nil || o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
					t.Errorf("Pay: %+v, %v", o, err)
				}
				mu.Lock()
				defer mu.Unlock()
				txs[p.OrderID+o.TxHash] = true
			})
		}
		wg.Wait()
		w.has(owner, usdc, 7_000_000, receiver(1), usdc, 1_000_000, receiver(2), usdc, 2_000_000)
		if len(txs) != 2 {
			t.Errorf("the callers of two orders heard %d outcomes", len(txs))
		}

		other := orders[0]
		other.Amounts, other.Total = []toll.Units{toll.UnitsOf(1_000_001)}, toll.UnitsOf(1_000_001)
		moved := orders[0]
		moved.Receivers = []toll.Address{toll.Address(receiver(3))}
		for what, p := range map[string]rail.Purchase{"amount": other, "receiver": moved, "way": by(d, orders[0])} {
			_, err := rails[0].Pay(t.Context(), p)
			if e, ok := errors.AsType[*toll.Error](err); !ok || e.Code != toll.CodeChainOrderConflict || e.HTTPStatus() != 409 {
				t.Errorf("the order with another %s: %v", what, err)
			}
		}
		w.has(owner, usdc, 7_000_000)
		if o, err := rails[1].Outcome(t.Context(), orders[0].OrderID); err != nil || o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
			t.Errorf("Outcome: %+v, %v", o, err)
		}
		if o, err := rails[1].Outcome(t.Context(), toll.NewUUID()); err != nil || o.Status != toll.OrderCreated {
			t.Errorf("Outcome of an order that nobody asked for: %+v, %v", o, err)
		}
	})
}

// What is signed for an order is the same in every process, so that a lost race costs nothing.
func TestPay_SameBytes(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 10_000_000)
	p := by(w.delegation(owner, 1_000), purchase(owner, usdc, receiver(1), 1_000_000))
	var bytes []string
	for range 2 {
		w.forget()
		w.signs(w.rail(), p)
		text := must.Get(w.op(p.OrderID).Operation.MarshalJSON())(t)
		bytes = append(bytes, string(text))
	}
	is(t, "the second operation", bytes[1], bytes[0])
}

func TestPay_SignerCap(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	capped := w.signer(signer.Config{HourlyCents: 150})
	r := w.rail(func(c *chain.Config) { c.Signer = capped })
	owner := w.account(usdc, 10_000_000)
	w.signs(r, purchase(owner, usdc, receiver(1), 1_000_000))
	p := purchase(owner, usdc, receiver(1), 500_001)
	o, err := r.Pay(t.Context(), p)
	e := toll.AsError(err)
	if err == nil || e.Code != toll.CodeChainSignerCap || e.HTTPStatus() != 503 || e.RetryAfterSecs < 3500 || e.RetryAfterSecs > 3601 {
		t.Fatalf("Pay: %+v (Retry-After %d)", err, e.RetryAfterSecs)
	}
	if o.Status != toll.OrderCreated {
		t.Errorf("the order is %s, want created", o.Status)
	}
	must.Do(t, w.Advance(time.Hour+time.Second))
	w.signs(r, p)
}

// signs has an order signed by a rail that does not send.
func (w *world) signs(r *chain.Rail, p rail.Purchase) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if o, err := r.Pay(ctx, p); err != nil || w.op(p.OrderID).State != chain.Signed {
			w.Errorf("Pay: %+v, %v", o, err)
		}
	}()
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		op, err := w.records.Op(w.Context(), p.OrderID)
		if err == nil && op.State != chain.Created {
			cancel()
		}
		select {
		case <-done:
			return
		case <-time.After(pause): // many do so at once
		}
	}
}

func (w *world) op(id string) *chain.Op {
	w.Helper()
	return must.Get(w.records.Op(w.Context(), id))(w)
}

func (w *world) ops(states ...chain.State) []*chain.Op {
	w.Helper()
	return must.Get(w.records.OpsIn(w.Context(), 1_000, states...))(w)
}

func (w *world) nonce(a common.Address) uint64 {
	w.Helper()
	return must.Get(w.Eth().NonceAt(w.Context(), a, nil))(w)
}

func (w *world) wallet(r *chain.Rail, a common.Address) chain.Wallet {
	w.Helper()
	return must.Get(r.Wallet(w.Context(), a))(w)
}
