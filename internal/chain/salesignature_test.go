package chain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// wrapper ends a signature that is wrapped (ERC-6492).
var wrapper = bytes.Repeat([]byte{0x64, 0x92}, 16)

// contractSale is a sale that a contract pays.
func (w *world) contractSale(from common.Address, units int64, signature []byte) rail.Sale {
	w.Helper()
	return w.sale(nil, from, receiver(1), units, func(s *rail.Sale) { s.Signature = append([]byte{}, signature...) })
}

// ownerSigns makes the signature of a contract with code of [chaintest.CodeOfOwner].
func (w *world) ownerSigns(owner common.Address, s *rail.Sale, first byte) {
	w.Helper()
	domain, _ := chain.TokenDomain(w.ChainID(), s.Token)
	s.Signature = append([]byte{first}, w.keys.Sign(w, owner, s.Authorization.Digest(domain))...)
}

// asksContracts counts the questions of ERC-1271 that pass a double, but those of the token itself.
func asksContracts(d *chaintest.Double) *atomic.Int64 {
	n := new(atomic.Int64)
	d.Answer("eth_call", func(params []json.RawMessage) (any, error) {
		if strings.Contains(string(params[0]), `"0x1626ba7e`) {
			n.Add(1)
		}
		return nil, chaintest.ErrPass
	})
	return n
}

// A contract whose owner signs in a form of its own buys, as its code takes the signature. Wallets with a key are not asked.
func TestSell_Contract(t *testing.T) {
	chaintest.Each(t, func(t *testing.T, c *chaintest.Chain) {
		w := newWorld(t, c)
		sink := w.ledger()
		double := chaintest.NewDouble(t, w.Client())
		asked := asksContracts(double)
		r := w.running(w.through(double), func(c *chain.Config) { c.Orders = sink })
		owner := w.keys.New(t)
		buyer := w.contract(chaintest.CodeOfOwner(owner))
		w.give(buyer, usdc, 5_000_000)
		s := w.contractSale(buyer, 1_000_000, nil)
		w.ownerSigns(owner, &s, 7)
		checks(t, r, s, "")
		tx := w.sold(r, s)
		w.has(buyer, usdc, 4_000_000, receiver(1), usdc, 1_000_000)
		if again := w.sold(r, s); again != tx {
			t.Errorf("the repeat is in %s, was in %s", again, tx)
		}
		checks(t, r, s, "") // it is paid

		// Another signature of the same authorization is no other authorization.
		other := s
		other.OrderID = toll.NewUUID()
		w.ownerSigns(owner, &other, 8)
		w.unsold(r, other, wordNonce)

		// One of 65 bytes may be a contract's, too.
		agrees := w.contract(chaintest.CodeAgrees)
		w.give(agrees, usdc, 3_000_000)
		for i, signature := range [][]byte{bytes.Repeat([]byte{1}, 65), {}, bytes.Repeat([]byte{2}, evm.MaxSignature)} {
			s := w.contractSale(agrees, 1_000_000, signature)
			checks(t, r, s, "")
			w.sold(r, s)
			w.has(agrees, usdc, 2_000_000-1_000_000*i)
		}
		poor := w.contractSale(agrees, 1, []byte{1})
		checks(t, r, poor, wordBalance)
		w.idle()
		sink.has(s.OrderID, true, 1)
		w.nonces()

		before := asked.Load()
		keys, wallet := w.stranger(usdc, 2_000_000)
		w.sold(r, w.sale(keys, wallet, receiver(2), 1_000_000))
		w.send(usdc, move(transfer, receiver(9), 0), buyerCode(w, keys, wallet))
		own := w.sale(keys, wallet, receiver(2), 1_000_000)
		checks(t, r, own, "")
		w.sold(r, own)
		if n := asked.Load() - before; n != 0 || before == 0 {
			t.Errorf("wallets that sign with their keys were asked %d times, contracts %d times", n, before)
		}
	})
}

// Accounts that do not take a signature, or say so in an odd way: nothing is signed, and nothing is written.
// T61
func TestContractThatRefuses(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.running(func(c *chain.Config) { c.Signer = w.signer(signer.Config{HourlyCents: 9}) }) // a contract counts 10
	owner, thief := w.keys.New(t), w.keys.New(t)
	_, nobody := w.stranger()
	agrees, owned := w.contract(chaintest.CodeAgrees), w.contract(chaintest.CodeOfOwner(owner))
	refused := func(what string, s rail.Sale) {
		t.Helper()
		checks(t, r, s, wordSignature)
		if f := w.unsold(r, s, wordSignature); f.FailureCode != toll.CodePaymentRequired {
			t.Errorf("%s: %+v", what, f)
		}
		if _, err := w.records.Op(t.Context(), s.OrderID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: it is recorded (%v)", what, err)
		}
	}
	long := bytes.Repeat([]byte{1}, 100)
	for what, code := range map[string]string{
		"reverts": chaintest.CodeRevertsAgreeing, "burns all gas": chaintest.CodeBurns, "halts": chaintest.CodeHalts, "answers a MB": chaintest.CodeFloods,
		"answers 100 KB": chaintest.CodeTalks, "answers 4 bytes": chaintest.CodeMumbles, "answers more": chaintest.CodeSpills,
		"answers true": chaintest.CodeSaysTrue, "answers nothing": "00",
	} {
		refused(what, w.contractSale(w.contract(code), 1_000_000, long))
	}
	refused("no code", w.contractSale(nobody, 1_000_000, long))
	refused("code that answers the question", w.contractSale(common.BytesToAddress([]byte{4}), 1_000_000, long))
	refused("wrapped", w.contractSale(agrees, 1_000_000, slices.Concat(long, wrapper)))
	refused("too long", w.contractSale(agrees, 1_000_000, make([]byte, evm.MaxSignature+1)))
	for what, change := range map[string]func(s *rail.Sale){
		"by another key":  func(s *rail.Sale) { w.ownerSigns(thief, s, 1) },
		"without a byte":  func(s *rail.Sale) { w.ownerSigns(owner, s, 1); s.Signature = s.Signature[1:] },
		"of another time": func(s *rail.Sale) { w.ownerSigns(owner, s, 1); s.Authorization.ValidBefore++ },
	} {
		s := w.contractSale(owned, 1_000_000, nil)
		change(&s)
		refused(what, s)
	}
	// The code answers otherwise when the token asks. Whatever it does there, its signature is not taken.
	for what, code := range map[string]string{"burns the gas of the token": chaintest.CodeAgreesPoor, "answers the token too much": chaintest.CodeAgreesLoud} {
		s := w.contractSale(w.contract(code), 1_000_000, long)
		w.give(common.Address(s.Authorization.From), usdc, 1_000_000)
		if ok, err := r.Accepts(t.Context(), s.Authorization.From, common.Hash{}, long); !ok || err != nil {
			t.Fatalf("%s: Accepts: %v, %v", what, ok, err)
		}
		checks(t, r, s, wordSignature)
	}
	// What was refused has not used the nonce up: the good one comes as far as the signer.
	w.give(owned, usdc, 1)
	good := w.contractSale(owned, 1, nil)
	w.ownerSigns(owner, &good, 1)
	if _, err := r.Sell(t.Context(), good); !errors.Is(err, toll.NewError(toll.CodeChainSignerCap)) {
		t.Errorf("the good one: %v", err)
	}
	if n := w.nonce(w.relayer); n != 0 {
		t.Errorf("the relayer has sent %d transactions", n)
	}
}

// A contract takes the signature when it is asked and in each trial, and not when the transfer is carried out: what it costs is
// the gas of one operation. The sale ends with its authorization, and nobody gets credits.
// T63
func TestContractThatChangesItsMind(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	r := w.running(func(c *chain.Config) { c.Orders = sink })
	buyer := w.contract(chaintest.CodeAgreesWhenTried)
	w.give(buyer, usdc, 1_000_000)
	s := w.contractSale(buyer, 1_000_000, []byte{1})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.Sell(ctx, s)
	}()
	w.eventually("our transaction lands", func() bool { return w.nonce(w.relayer) == 1 })
	w.eventually("and is seen", func() bool {
		pending, err := w.records.PendingTxs(t.Context(), w.relayer)
		return err == nil && len(pending) == 0
	})
	if op := w.op(s.OrderID); op.State != chain.Sent {
		t.Errorf("the sale is %s (%+v), and its authorization still counts", op.State, op.Failure)
	}
	cancel()
	<-ended
	must.Do(t, w.Advance(10*time.Minute))
	if op := w.decided(s.OrderID, chain.Failed); op.Failure.Params["reason"] != wordBefore {
		t.Errorf("failure: %+v", op.Failure)
	}
	w.idle()
	sink.has(s.OrderID, false, 0)
	w.has(buyer, usdc, 1_000_000, receiver(1), usdc, 0)
	if n := w.nonce(w.relayer); n != 1 {
		t.Errorf("the relayer has sent %d transactions", n)
	}
	w.nonces()
}

// A contract takes its signature back. A sale that was begun is decided by the token alone: it is paid when others had it carried
// out while the signature counted, and fails when nobody did.
func TestSell_SignatureTakenBack(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	with := func(c *chain.Config) { c.Orders = sink }
	buyer := w.contract(chaintest.CodeAgreesUntilCalled)
	w.give(buyer, usdc, 3_000_000)
	lost, paid := w.contractSale(buyer, 1_000_000, []byte{1}), w.contractSale(buyer, 1_000_000, []byte{1})
	late := w.contractSale(buyer, 1_000_000, []byte{1})
	quiet := w.rail(with)
	w.signsSale(quiet, lost)
	w.signsSale(quiet, paid)
	w.submit(paid)
	w.submit(late)
	w.send(buyer, nil)
	ctx, cancel := context.WithCancel(t.Context())
	again := w.rail(with, func(c *chain.Config) {
		c.At = func(step string) {
			if step == "created" {
				cancel()
			}
		}
	})
	if o, err := again.Sell(ctx, lost); err != nil || o.Status != toll.OrderSigned {
		t.Errorf("one that was begun is %s, %v", o.Status, err)
	}
	r := w.running(with)
	w.sold(r, paid)
	w.unsold(r, lost, wordSignature)
	w.sold(r, late) // it was asked for while the signature counted, and is only begun now
	w.unsold(r, w.contractSale(buyer, 1_000_000, []byte{1}), wordSignature)
	w.idle()
	sink.has(paid.OrderID, true, 1)
	sink.has(late.OrderID, true, 1)
	sink.has(lost.OrderID, false, 0)
	w.has(buyer, usdc, 1_000_000)
}

// Where endpoints have to agree, one that invents the answer of an account is not believed, and one that differs from the other
// does not rest for it: a stranger's code could have any endpoint rest.
// T68
func TestInventedSignature(t *testing.T) {
	t.Parallel()
	w := newWorld(t, chaintest.New(t))
	liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
	r := w.overNetwork(unhurried, liar, honest)
	agrees, refuses := w.contract(chaintest.CodeAgrees), w.contract(chaintest.CodeSaysTrue)
	invents := hexutil.Bytes(common.RightPadBytes(common.FromHex("1626ba7e"), 32))
	liar.Answer("eth_call", func(params []json.RawMessage) (any, error) {
		if strings.Contains(string(params[0]), `"0x1626ba7e`) {
			return invents, nil
		}
		return nil, chaintest.ErrPass
	})
	for range 3 {
		if ok, err := r.Accepts(t.Context(), toll.Address(refuses), common.Hash{}, []byte{1}); ok || err != nil {
			t.Errorf("an invented answer: %v, %v", ok, err)
		}
		if ok, err := r.Accepts(t.Context(), toll.Address(agrees), common.Hash{}, []byte{1}); !ok || err != nil {
			t.Errorf("an answer that both give: %v, %v", ok, err)
		}
	}
	honest.Page(500)
	if ok, err := r.Accepts(t.Context(), toll.Address(agrees), common.Hash{}, []byte{1}); ok || !errors.Is(err, toll.NewError(toll.CodeChainUnreachable)) {
		t.Errorf("one endpoint alone: %v, %v", ok, err)
	}
}
