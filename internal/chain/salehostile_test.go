package chain_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// revert is the answer of a call that a contract refuses with a text.
func revert(text string) *chaintest.Refusal {
	word := func(n int) []byte { return common.LeftPadBytes(big.NewInt(int64(n)).Bytes(), 32) }
	data := slices.Concat(common.FromHex("0x08c379a0"), word(32), word(len(text)), common.RightPadBytes([]byte(text), (len(text)+31)/32*32))
	return &chaintest.Refusal{Code: 3, Message: "execution reverted: " + text, Data: "0x" + hex.EncodeToString(data)}
}

// refusing has an endpoint answer every call of transferWithAuthorization with a text.
func refusing(d *chaintest.Double, text string) {
	for _, method := range []string{"eth_call", "eth_estimateGas"} {
		d.Answer(method, func(params []json.RawMessage) (any, error) {
			if strings.Contains(string(params[0]), "e3ee160e") {
				return nil, revert(text)
			}
			return nil, chaintest.ErrPass
		})
	}
}

// TestOtherTokens sells for nothing but the tokens of the list, whatever the operator takes for orders.
// T63
func TestOtherTokens(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	silent := w.contract("600160005260206000f3") // answers true to all
	r := w.running(func(c *chain.Config) { c.Tokens = []common.Address{silent, receiver(50)} })
	keys, buyer := w.stranger(usdc, 1_000_000)
	for what, token := range map[string]common.Address{
		"without code": receiver(50), "that answers true": silent, "native": wei, "of the other network": contracts.USDC(contracts.Base),
	} {
		s := w.sale(keys, buyer, receiver(1), 1_000_000, func(s *rail.Sale) { s.Token = toll.Address(token) })
		if _, err := r.CheckSale(t.Context(), s); !errors.Is(err, toll.NewError(toll.CodeChainToken)) {
			t.Errorf("%s: CheckSale: %v", what, err)
		}
		if f := w.unsold(r, s, "invalid_payment_requirements"); f.FailureCode != toll.CodeChainToken {
			t.Errorf("%s: %+v", what, f)
		}
		if _, err := w.records.Op(t.Context(), s.OrderID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: it is recorded (%v)", what, err)
		}
	}
	w.has(buyer, usdc, 1_000_000)
}

// TestBlockedPayer has the token refuse the payer, or everybody: nothing is signed.
// T63
func TestBlockedPayer(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	double := chaintest.NewDouble(t, w.Client())
	r := w.running(w.through(double))
	keys, buyer := w.stranger(usdc, 1_000_000)
	for text, word := range map[string]string{
		"Blacklistable: account is blacklisted": "invalid_transaction_state",
		"Pausable: paused":                      "invalid_transaction_state",
		"FiatTokenV2: invalid signature":        wordSignature,
		"a text of tomorrow":                    "invalid_transaction_state",
	} {
		double.Clear()
		refusing(double, text)
		s := w.sale(keys, buyer, receiver(1), 1_000_000)
		if _, err := r.CheckSale(t.Context(), s); toll.AsError(err).Reason != word {
			t.Errorf("%s: CheckSale: %v", text, err)
		}
		w.unsold(r, s, word)
		if op := w.op(s.OrderID); op.Operation != nil {
			t.Errorf("%s: an operation was signed", text)
		}
	}
	w.has(buyer, usdc, 1_000_000)
	if n := w.nonce(w.relayer); n != 0 {
		t.Errorf("the relayer has sent %d transactions", n)
	}
}

// TestTokenThatLies shows the rail logs that are not those of the payment, as of a token that was exchanged: it is not paid.
// T63
func TestTokenThatLies(t *testing.T) {
	transferred := crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
	for what, row := range map[string]struct {
		change func(l *types.Log) bool // false: the log is not there
		word   string
	}{
		"says nothing":          {func(l *types.Log) bool { return l.Address != usdc }, wordBefore},
		"transfers nothing":     {func(l *types.Log) bool { return l.Topics[0] != transferred }, wordNonce},
		"keeps a fee":           {func(l *types.Log) bool { return less(l, transferred) }, wordNonce},
		"gives it to another":   {func(l *types.Log) bool { return retold(l, transferred, 2) }, wordNonce},
		"takes it from another": {func(l *types.Log) bool { return retold(l, transferred, 1) }, wordNonce},
		"has only a transfer":   {func(l *types.Log) bool { return l.Address != usdc || l.Topics[0] == transferred }, wordBefore},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			double := chaintest.NewDouble(t, w.Client())
			double.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
				var logs []types.Log
				if err := w.Client().CallContext(context.Background(), &logs, "eth_getLogs", params[0]); err != nil {
					return nil, err
				}
				return slices.DeleteFunc(logs, func(l types.Log) bool { return len(l.Topics) > 0 && !row.change(&l) }), nil
			})
			r := w.running(w.through(double), func(c *chain.Config) { c.Orders = sink })
			keys, buyer := w.stranger(usdc, 1_000_000)
			s := w.sale(keys, buyer, receiver(1), 1_000_000)
			go func() { _, _ = r.Sell(t.Context(), s) }()
			w.eventually("our transaction lands", func() bool { return w.nonce(w.relayer) == 1 })
			if row.word == wordBefore {
				time.Sleep(100 * time.Millisecond)
				if op := w.op(s.OrderID); op.State != chain.Sent {
					t.Errorf("the sale is %s", op.State)
				}
				must.Do(t, w.Advance(10*time.Minute))
			}
			if op := w.decided(s.OrderID, chain.Failed); op.Failure.Params["reason"] != row.word {
				t.Errorf("failure: %+v", op.Failure)
			}
			w.idle()
			sink.has(s.OrderID, false, 0)
		})
	}
}

// less has a log tell of a base unit less.
func less(l *types.Log, topic common.Hash) bool {
	if l.Topics[0] == topic {
		n := new(big.Int).SetBytes(l.Data)
		n.Sub(n, big.NewInt(1)).FillBytes(l.Data)
	}
	return true
}

// retold replaces an address in the topics of a log.
func retold(l *types.Log, topic common.Hash, n int) bool {
	if l.Topics[0] == topic {
		other := receiver(99)
		l.Topics[n] = common.BytesToHash(other[:])
	}
	return true
}

// The owner of an account has its order and another use of a nonce in one transaction: the transfer of the order is not taken for
// that of a sale with this nonce.
func TestSell_TransferOfAnOrder(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	s := w.sale(&w.keys, owner, receiver(1), 1_000_000)
	quiet := w.rail(change)
	w.signs(quiet, p)
	w.signsSale(quiet, s)
	other := w.sale(&w.keys, owner, receiver(2), 1, func(o *rail.Sale) { o.Authorization.Nonce = s.Authorization.Nonce })
	data := must.Get(userop.AuthorizedTransfer(&other.Authorization, other.Signature))(t)
	own := w.operation(owner, "own", execute(t, usdc, data))
	receipt := w.send(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{own, w.op(p.OrderID).Operation}, w.outside), owner)
	if e := w.readEvent(receipt, own.Hash(w.chainID())); !e.success {
		t.Fatalf("the attack does not run: %+v", e)
	}
	w.running(change)
	w.decided(p.OrderID, chain.Final)
	if op := w.decided(s.OrderID, chain.Failed); op.Failure.Params["reason"] != wordNonce || op.Failure.Position.Tx != receipt.TxHash {
		t.Errorf("failure of the sale: %+v", op.Failure)
	}
	w.idle()
	sink.has(p.OrderID, true, 1)
	sink.has(s.OrderID, false, 0)
	w.has(owner, usdc, 1_999_999, receiver(1), usdc, 1_000_000)
}

// The owner of an account gives it code that carries the authorization of a sale out in place of the transfer of an order: the
// sale is paid, and the order is not.
func TestSell_InsideAnOrder(t *testing.T) {
	w, sink, change, owner, p := oneOrder(t)
	s := w.sale(&w.keys, owner, receiver(1), 1_000_000)
	quiet := w.rail(change)
	w.signs(quiet, p)
	w.signsSale(quiet, s)
	data := must.Get(userop.AuthorizedTransfer(&s.Authorization, s.Signature))(t)
	// execute calls the token, isValidSignature agrees, and everything else answers 0.
	size := common.LeftPadBytes(big.NewInt(int64(len(data))).Bytes(), 2)
	code := slices.Concat(common.FromHex("60003560e01c80635c1c6dcd1460305780631626ba7e1460245760006000526020"+"6000f3"+"5b60e01b60005260206000f3"+"5b61"), size,
		common.FromHex("61005d600039"+"6000600061"), size, common.FromHex("6000600073"), usdc[:], common.FromHex("5af100"), data)
	hostile := w.contract(hex.EncodeToString(code))
	auth := w.gives(owner, hostile, 0)
	op := w.op(p.OrderID)
	receipt := w.sendWith(contracts.EntryPoint, userop.HandleOps([]*userop.Operation{op.Operation}, w.outside), auth)
	if e := w.readEvent(receipt, op.Hash); !e.success {
		t.Fatalf("the attack does not run: %+v", e)
	}
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
	w.running(change, func(c *chain.Config) { c.MaxBaseFee = big.NewInt(1) }) // nobody looks at the account before the event
	w.decided(s.OrderID, chain.Final)
	w.decided(p.OrderID, chain.Failed)
	w.idle()
	sink.has(s.OrderID, true, 1)
	sink.has(p.OrderID, false, 0)
}

// A sale that one endpoint invents is not believed.
// T68
func TestInventedSale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, chaintest.New(t))
	liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
	r := w.overNetwork(unhurried, liar, honest)
	keys, buyer := w.stranger(usdc, 1_000_000)
	liar.Swallow()
	honest.Swallow()
	s := w.sale(keys, buyer, receiver(1), 1_000_000, func(s *rail.Sale) { s.Authorization.ValidBefore += 3000 })
	over := make(chan rail.Payment, 1)
	go func() {
		o, _ := r.Sell(t.Context(), s)
		over <- o
	}()
	op := w.decided(s.OrderID, chain.Sent)
	head := must.Get(w.Eth().HeaderByNumber(t.Context(), nil))(t)
	log := func(index uint, data []byte, topics ...common.Hash) types.Log {
		return types.Log{Address: usdc, Topics: topics, Data: data, BlockNumber: head.Number.Uint64(), BlockHash: head.Hash(), TxHash: op.Tx, Index: index}
	}
	to := receiver(1)
	liar.InventLogs(
		log(0, []byte{}, crypto.Keccak256Hash([]byte("AuthorizationUsed(address,bytes32)")), common.BytesToHash(buyer[:]), s.Authorization.Nonce),
		log(1, common.BigToHash(big.NewInt(1_000_000)).Bytes(), crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)")),
			common.BytesToHash(buyer[:]), common.BytesToHash(to[:])),
	)
	calls := liar.Calls("eth_getLogs")
	w.comesTrue("the invention was told often", func() bool { return liar.Calls("eth_getLogs") > calls+20 })
	w.books.mu.Lock()
	granted := len(w.books.paid)
	w.books.mu.Unlock()
	if granted != 0 {
		t.Fatal("an invented payment was granted")
	}
	w.has(buyer, usdc, 1_000_000)
	liar.Clear()
	honest.Clear()
	w.arrives(s.OrderID)
	if o := <-over; o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
		t.Errorf("the sale is %s (%+v), want it paid", o.Status, o)
	}
	w.has(buyer, usdc, 0, receiver(1), usdc, 1_000_000)
}

// One endpoint hides that an authorization was carried out: it is not refused as one that is used up, and it is found when the
// endpoints say the same again.
// T68
func TestHiddenUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, chaintest.New(t))
	liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
	pool := w.pool(endpoints.Config{URLs: []string{liar.URL, honest.URL}, Agree: true})
	r := w.rail(remote, func(c *chain.Config) { c.Pool = pool })
	must.Do(t, r.Ready(t.Context()))
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	w.submit(s)
	var lied atomic.Int64
	liar.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		if strings.Contains(string(params[0]), topicUsed) {
			lied.Add(1)
			return []types.Log{}, nil
		}
		return nil, chaintest.ErrPass
	})
	if used, err := r.CheckSale(t.Context(), s); !used || !errors.Is(err, toll.NewError(toll.CodeChainUnreachable)) {
		t.Errorf("CheckSale: used %t, %v", used, err)
	}
	if lied.Load() == 0 {
		t.Error("the endpoint was not asked")
	}
	liar.Clear()
	if used, err := r.CheckSale(t.Context(), s); !used || err != nil {
		t.Errorf("CheckSale when the endpoints agree: used %t, %v", used, err)
	}
}
