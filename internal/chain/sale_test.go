package chain_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Reason words of sales.
const (
	wordSignature = "invalid_exact_evm_payload_signature"
	wordAfter     = "invalid_exact_evm_payload_authorization_valid_after"
	wordBefore    = "invalid_exact_evm_payload_authorization_valid_before"
	wordNonce     = "invalid_exact_evm_nonce_already_used"
	wordBalance   = "invalid_exact_evm_insufficient_balance"
)

// stranger is an account whose key the service does not have.
func (w *world) stranger(money ...any) (*chaintest.Keys, common.Address) {
	w.Helper()
	keys := new(chaintest.Keys)
	a := keys.New(w)
	w.give(a, money...)
	return keys, a
}

// sale is an order that a wallet pays: base units of USDC, from now on, for some minutes. It is signed after the changes.
func (w *world) sale(keys *chaintest.Keys, from, to common.Address, units int64, change ...func(*rail.Sale)) rail.Sale {
	w.Helper()
	now := uint64(w.Now().Unix())
	s := rail.Sale{OrderID: toll.NewUUID(), Account: account, Token: toll.Address(usdc), Authorization: evm.Authorization{
		From: toll.Address(from), To: toll.Address(to), Value: big.NewInt(units), ValidAfter: now - 600, ValidBefore: now + 300,
	}}
	_, _ = rand.Read(s.Authorization.Nonce[:])
	for _, f := range change {
		f(&s)
	}
	if s.Signature == nil {
		domain, _ := chain.TokenDomain(w.ChainID(), toll.Address(usdc))
		s.Signature = keys.Sign(w, from, s.Authorization.Digest(domain))
	}
	return s
}

// submit lets somebody else have the token carry an authorization out.
func (w *world) submit(s rail.Sale) {
	w.Helper()
	data := must.Get(userop.AuthorizedTransfer(&s.Authorization, s.Signature))(w)
	if r := w.send(usdc, data); r.Status != 1 {
		w.Fatal("the token refuses the authorization")
	}
}

// cancels has the wallet use the nonce of an authorization up.
func (w *world) cancels(keys *chaintest.Keys, s rail.Sale) {
	w.Helper()
	domain, _ := chain.TokenDomain(w.ChainID(), toll.Address(usdc))
	a, separator := &s.Authorization, domain.Separator()
	kind := crypto.Keccak256([]byte("CancelAuthorization(address authorizer,bytes32 nonce)"))
	inner := crypto.Keccak256(kind, common.LeftPadBytes(a.From[:], 32), a.Nonce[:])
	signature := keys.Sign(w, common.Address(a.From), crypto.Keccak256Hash([]byte{0x19, 0x01}, separator[:], inner))
	data := slices.Concat(crypto.Keccak256([]byte("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)"))[:4],
		common.LeftPadBytes(a.From[:], 32), a.Nonce[:], common.LeftPadBytes(signature[64:], 32), signature[:64])
	if r := w.send(usdc, data); r.Status != 1 {
		w.Fatal("the token refuses to cancel")
	}
}

func (w *world) sell(r *chain.Rail, s rail.Sale) rail.Payment {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	o, err := r.Sell(ctx, s)
	must.Do(w, err, "Sell")
	return o
}

// sold fails the test unless the sale is paid.
func (w *world) sold(r *chain.Rail, s rail.Sale) common.Hash {
	w.Helper()
	o := w.sell(r, s)
	if o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal || o.TxHash == "" {
		w.Fatalf("the sale is %s (%+v) in %s, want it paid", o.Status, o, o.TxHash)
	}
	return common.HexToHash(o.TxHash)
}

// unsold fails the test unless the sale has failed with this word.
func (w *world) unsold(r *chain.Rail, s rail.Sale, word string) rail.Payment {
	w.Helper()
	o := w.sell(r, s)
	if o.Status != toll.OrderFailed || o.Params["reason"] != word {
		w.Fatalf("the sale is %s (%+v), want it failed with %s", o.Status, o, word)
	}
	return o
}

// signsSale brings a sale to Signed on a rail that sends nothing.
func (w *world) signsSale(r *chain.Rail, s rail.Sale) *chain.Op {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = r.Sell(ctx, s)
	}()
	op := w.decided(s.OrderID, chain.Signed)
	cancel()
	<-done
	return op
}

func checks(t *testing.T, r *chain.Rail, s rail.Sale, word string) {
	t.Helper()
	_, err := r.CheckSale(t.Context(), s)
	switch e, ok := errors.AsType[*toll.Error](err); {
	case word == "" && err != nil:
		t.Errorf("CheckSale: %v", err)
	case word != "" && (!ok || e.Reason != word || e.HTTPStatus() != 402):
		t.Errorf("CheckSale: %v, want %s", err, word)
	}
}

// A wallet that nobody knows buys: its tokens go to the receiver, and it needs no gas.
func TestSell(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		sink := w.ledger()
		r := w.running(func(c *chain.Config) { c.Orders = sink })
		keys, buyer := w.stranger(usdc, 5_000_000)
		s := w.sale(keys, buyer, receiver(1), 1_000_000)
		checks(t, r, s, "")
		tx := w.sold(r, s)
		w.has(buyer, usdc, 4_000_000, receiver(1), usdc, 1_000_000, buyer, wei, 0)
		if again := w.sold(r, s); again != tx {
			t.Errorf("the repeat is in %s, was in %s", again, tx)
		}
		checks(t, r, s, "") // it is paid
		w.idle()
		sink.has(s.OrderID, true, 1)
		op := w.op(s.OrderID)
		if op.Kind != chain.KindSale || op.Sender != w.service || op.NonceKey != userop.OrderKey(s.OrderID) || op.Cents != 100 || op.Decided != chain.Final {
			t.Errorf("operation: %+v", op)
		}
		if n := len(w.orphans()); n > 0 {
			t.Errorf("%d orphans", n)
		}

		// A wallet whose account has code is asked itself.
		w.send(usdc, move(transfer, receiver(9), 0), buyerCode(w, keys, buyer))
		w.sold(r, w.sale(keys, buyer, receiver(1), 1_000_000))

		_, err := r.Sell(t.Context(), w.sale(keys, buyer, receiver(1), 2_000_000, func(other *rail.Sale) { other.OrderID = s.OrderID }))
		if !errors.Is(err, toll.NewError(toll.CodeChainOrderConflict)) {
			t.Errorf("another sale with the id: %v", err)
		}
		poor := w.sale(keys, buyer, receiver(1), 3_000_001)
		checks(t, r, poor, wordBalance)
		f := w.unsold(r, poor, wordBalance)
		if f.FailureCode != toll.CodeChainBalance || f.Params["needed"] != "3000001" || f.Params["available"] != "3000000" {
			t.Errorf("failure: %+v", f)
		}
		w.has(buyer, usdc, 3_000_000)
		w.idle()
		w.nonces()
	})
}

// buyerCode gives the account of a stranger our code in the next transaction of [world.send].
func buyerCode(w *world, keys *chaintest.Keys, a common.Address) common.Address {
	w.Helper()
	key := must.Get(keys.Open(w.Context(), a))(w)
	return w.keys.Add(w, key)
}

// TestSubmittedByOthers has somebody else carry the authorization out, before it is handed in, at the same time, and when our
// operation is on its way: it is paid, once.
// T58
func TestSubmittedByOthers(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		sink := w.ledger()
		change := func(c *chain.Config) { c.Orders = sink }
		r := w.running(change)
		keys, buyer := w.stranger(usdc, 9_000_000)
		to := 0
		once := func(s rail.Sale) {
			t.Helper()
			w.idle()
			w.has(common.Address(s.Authorization.To), usdc, 1_000_000)
			sink.has(s.OrderID, true, 1)
			if got := w.op(s.OrderID); got.State != chain.Final || got.Failure != nil {
				t.Errorf("the sale is %s (%+v)", got.State, got.Failure)
			}
		}
		next := func() rail.Sale {
			to++
			return w.sale(keys, buyer, receiver(to), 1_000_000)
		}

		before := next()
		w.submit(before)
		nonce := w.nonce(w.relayer)
		checks(t, r, before, "")
		w.sold(r, before)
		once(before)
		if n := w.nonce(w.relayer); n != nonce {
			t.Errorf("the relayer has sent %d transactions for what was paid", n-nonce)
		}

		both := next()
		var wg sync.WaitGroup
		wg.Go(func() {
			data, _ := userop.AuthorizedTransfer(&both.Authorization, both.Signature)
			w.send(usdc, data) // whoever is first
		})
		wg.Go(func() { w.sold(r, both) })
		wg.Wait()
		once(both)
	})
}

// The stranger comes between our signature and our transaction, and a reorganisation takes his away: then ours lands.
// T58
func TestReorgOfTheOthers(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Orders = sink }
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	w.signsSale(w.rail(change), s)
	w.submit(s)
	w.running(change)
	theirs := w.decided(s.OrderID, chain.Final)
	w.idle()
	sink.has(s.OrderID, true, 1)
	if n := w.nonce(w.relayer); n != 0 {
		t.Errorf("the relayer has sent %d transactions for what was paid", n)
	}
	w.reorg(1, true)
	w.eventually("it is paid again", func() bool {
		op := w.op(s.OrderID)
		return op.State == chain.Final && op.Position.Hash != theirs.Position.Hash
	})
	w.idle()
	w.has(buyer, usdc, 0, receiver(1), usdc, 1_000_000)
	sink.has(s.OrderID, true, 1)
	if ours := w.op(s.OrderID); ours.Position.Tx == theirs.Position.Tx || w.nonce(w.relayer) != 1 {
		t.Errorf("it is in transaction %s", ours.Position.Tx)
	}
	w.nonces()
}

// Our transaction is on its way when the stranger's lands: it runs and moves nothing, and the sale is paid.
// T58
func TestOnItsWay(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	change := func(c *chain.Config) { c.Orders = sink }
	keys, buyer := w.stranger(usdc, 3_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	w.crashes(func(ctx context.Context, r *chain.Rail) { _, _ = r.Sell(ctx, s) }, "transaction sent", 1, w.through(double), change)
	w.submit(s)
	w.running(change)
	w.decided(s.OrderID, chain.Final)
	w.idle()
	w.has(buyer, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
	sink.has(s.OrderID, true, 1)
	if op := w.op(s.OrderID); op.Decided != chain.Final || op.Failure != nil {
		t.Errorf("the sale is %s (%+v)", op.Decided, op.Failure)
	}
	w.nonces()
}

// A sale that had failed for lack of money, and that others had carried out afterwards, is paid when it is asked for again.
// T58
func TestAfterAFailure(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	keys, buyer := w.stranger()
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	w.unsold(r, s, wordBalance)
	w.give(buyer, usdc, 1_000_000)
	w.unsold(r, s, wordBalance)
	w.submit(s)
	w.sold(r, s)
	w.decided(s.OrderID, chain.Final)
	w.idle()
	sink.has(s.OrderID, true, 1)
	w.has(receiver(1), usdc, 1_000_000)
}

// TestOneAuthorization has one authorization pay many orders, in two processes: one is paid.
// T60
func TestOneAuthorization(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	both := []*chain.Rail{w.running(), w.running()}
	keys, buyer := w.stranger(usdc, 9_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	var wg sync.WaitGroup
	var mu sync.Mutex
	states := map[toll.OrderStatus]int{}
	for i := range 24 {
		wg.Go(func() {
			mine := s
			mine.OrderID = toll.NewUUID()
			o := w.sell(both[i%2], mine)
			if o.Status == toll.OrderFailed && o.Params["reason"] != wordNonce {
				t.Errorf("failure: %+v", o)
			}
			mu.Lock()
			defer mu.Unlock()
			states[o.Status]++
		})
	}
	wg.Wait()
	if paid := states[toll.OrderConfirmed] + states[toll.OrderFinal]; paid != 1 || states[toll.OrderFailed] != 23 {
		t.Errorf("outcomes: %v", states)
	}
	w.idle()
	w.has(buyer, usdc, 8_000_000, receiver(1), usdc, 1_000_000)

	// The same nonce, signed for other content.
	again := w.sale(keys, buyer, receiver(2), 2_000_000, func(other *rail.Sale) { other.Authorization.Nonce = s.Authorization.Nonce })
	w.unsold(both[0], again, wordNonce)
	checks(t, both[0], again, wordNonce)

	// What was signed for another chain.
	w.unsold(both[0], w.sale(keys, buyer, receiver(2), 1_000_000, func(s *rail.Sale) {
		live, _ := chain.TokenDomain(contracts.Base, toll.Address(contracts.USDC(contracts.Base)))
		s.Signature = keys.Sign(w, buyer, s.Authorization.Digest(live))
	}), wordSignature)
	w.has(buyer, usdc, 8_000_000, receiver(2), usdc, 0)
}

// TestNothingIsSigned hands in signatures that are none: they are refused, and the service account signs nothing.
// T61
func TestNothingIsSigned(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.running(func(c *chain.Config) { c.Signer = w.signer(signer.Config{HourlyCents: 1}) }) // it would refuse any sale
	keys, buyer := w.stranger(usdc, 9_000_000)
	good := w.sale(keys, buyer, receiver(1), 1_000_000)
	half, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	for what, change := range map[string]func(s *rail.Sale){
		"high s": func(s *rail.Sale) {
			n := new(big.Int).SetBytes(s.Signature[32:64])
			n.Sub(half, n).FillBytes(s.Signature[32:64])
			s.Signature[64] ^= 27 ^ 28
		},
		"v 0":           func(s *rail.Sale) { s.Signature[64] -= 27 },
		"v 29":          func(s *rail.Sale) { s.Signature[64] = 29 },
		"64 bytes":      func(s *rail.Sale) { s.Signature = s.Signature[:64] },
		"66 bytes":      func(s *rail.Sale) { s.Signature = append(s.Signature, 0) },
		"r 0":           func(s *rail.Sale) { clear(s.Signature[:32]) },
		"s 0":           func(s *rail.Sale) { clear(s.Signature[32:64]) },
		"other sender":  func(s *rail.Sale) { s.Authorization.From = toll.Address(receiver(7)) },
		"other value":   func(s *rail.Sale) { s.Authorization.Value = big.NewInt(1) },
		"other token":   func(s *rail.Sale) { s.Token = toll.Address(eurc) },
		"other end":     func(s *rail.Sale) { s.Authorization.ValidBefore++ },
		"other version": func(s *rail.Sale) { w.signsFor(keys, s, func(d *evm.Domain) { d.Version = "1" }) },
		"other name":    func(s *rail.Sale) { w.signsFor(keys, s, func(d *evm.Domain) { d.Name = "USD Coin" }) },
		"other chain":   func(s *rail.Sale) { w.signsFor(keys, s, func(d *evm.Domain) { d.ChainID = big.NewInt(8453) }) },
	} {
		bad := good
		bad.OrderID, bad.Signature = toll.NewUUID(), bytes.Clone(good.Signature)
		change(&bad)
		checks(t, r, bad, wordSignature)
		if f := w.unsold(r, bad, wordSignature); f.FailureCode != toll.CodePaymentRequired {
			t.Errorf("%s: %+v", what, f)
		}
		if _, err := w.records.Op(t.Context(), bad.OrderID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: it is recorded (%v)", what, err)
		}
	}
	// What was refused has not used the nonce up: the good one comes as far as the signer.
	_, err := r.Sell(t.Context(), good)
	if !errors.Is(err, toll.NewError(toll.CodeChainSignerCap)) {
		t.Errorf("the good one: %v", err)
	}
	w.has(buyer, usdc, 9_000_000)
}

// signsFor signs a sale for a domain that is changed.
func (w *world) signsFor(keys *chaintest.Keys, s *rail.Sale, change func(*evm.Domain)) {
	w.Helper()
	domain, _ := chain.TokenDomain(w.ChainID(), toll.Address(usdc))
	change(&domain)
	s.Signature = keys.Sign(w, common.Address(s.Authorization.From), s.Authorization.Digest(domain))
}

// A wallet is emptied when its sale is signed and not sent: the sale fails. When others have it carried out nevertheless, who asks
// again finds it paid.
// T58
func TestSignedAndWithoutMoney(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	with := func(c *chain.Config) { c.Orders = sink }
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	w.signsSale(w.rail(with), s)
	w.submit(w.sale(keys, buyer, receiver(9), 1_000_000))
	r := w.running(with)
	w.unsold(r, s, wordBalance)
	w.give(buyer, usdc, 1_000_000)
	w.unsold(r, s, wordBalance)
	w.submit(s)
	w.sold(r, s)
	w.decided(s.OrderID, chain.Final)
	w.idle()
	sink.has(s.OrderID, true, 1)
	w.has(receiver(1), usdc, 1_000_000)
}

// The stranger is faster after our trial and before our signature is stored, in a block that is read already then.
// T58
func TestBeforeItIsStored(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	var once sync.Once
	r := w.running(func(c *chain.Config) {
		c.At = func(step string) {
			if step == "signing" {
				once.Do(func() {
					w.submit(s)
					time.Sleep(300 * time.Millisecond) // the tracker reads the block
				})
			}
		}
	})
	w.sold(r, s)
	w.has(receiver(1), usdc, 1_000_000)
}
