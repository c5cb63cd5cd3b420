package chain_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/chain/userop"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// through is a change that lets a rail speak to the chain through a double.
func (w *world) through(double *chaintest.Double) func(*chain.Config) {
	pool := w.pool(endpoints.Config{URLs: []string{double.URL}, Cooldown: 50 * time.Millisecond})
	return func(c *chain.Config) { c.Pool = pool }
}

// What endpoints say to a send decides nothing about an order: it is paid once, and no nonce is left out.
func TestSend_Answers(t *testing.T) {
	for what, faults := range map[string]func(d *chaintest.Double){
		"nonce too low, and it is not so": func(d *chaintest.Double) { d.NonceTooLow(1) },
		"already known, and it is not so": func(d *chaintest.Double) { d.Refuse(1, "eth_sendRawTransaction", "already known") },
		"underpriced": func(d *chaintest.Double) {
			d.Refuse(2, "eth_sendRawTransaction", "replacement transaction underpriced")
		},
		"something new": func(d *chaintest.Double) { d.Refuse(3, "eth_sendRawTransaction", "the moon is full") },
		"below the base fee": func(d *chaintest.Double) {
			d.Refuse(1, "eth_sendRawTransaction", "max fee per gas less than block base fee")
		},
		"answers get lost":        func(d *chaintest.Double) { d.LoseAnswers(2) },
		"no eth_simulateV1":       func(d *chaintest.Double) { d.Refuse(-1, "eth_simulateV1", "the method eth_simulateV1 does not exist") },
		"logs of few blocks only": func(d *chaintest.Double) { d.Refuse(4, "eth_getLogs", "query exceeds the limit") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, chaintest.New(t))
			sink := w.ledger()
			double := chaintest.NewDouble(t, w.Client())
			r := w.running(w.through(double), func(c *chain.Config) { c.Orders, c.VoidAfter = sink, time.Hour })
			owner := w.account(usdc, 3_000_000)
			beside := purchase(owner, usdc, receiver(9), 1) // another one, as a rule in the same batch
			go w.rail().Pay(t.Context(), beside)
			w.decided(beside.OrderID, chain.Signed, chain.Sent, chain.Included, chain.Final)
			faults(double)
			p := purchase(owner, usdc, receiver(1), 1_000_000)
			done := make(chan rail.Payment, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				for {
					if o, err := r.Pay(ctx, p); err == nil || ctx.Err() != nil {
						done <- o
						return
					}
				}
			}()
			// Time passes on the chain: what is not in a block after three is sent again.
			var o rail.Payment
			for decided := false; !decided; {
				select {
				case o = <-done:
					decided = true
				case <-time.After(300 * time.Millisecond):
					must.Do(t, w.Advance(time.Second))
				}
			}
			if o.Status != toll.OrderFinal {
				t.Fatalf("the order is %s (%+v)", o.Status, o)
			}
			w.idle()
			w.has(owner, usdc, 1_999_999, receiver(1), usdc, 1_000_000, receiver(9), usdc, 1)
			sink.has(p.OrderID, true, 1)
			w.nonces()
		})
	}
}

// A transaction that nobody mines is replaced with its nonce and its calldata, and fees an eighth higher.
func TestSend_Stuck(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	r := w.running(w.through(double))
	go r.Pay(t.Context(), p)
	w.decided(p.OrderID, chain.Sent)
	time.Sleep(600 * time.Millisecond)
	for range 3 {
		must.Do(t, w.Advance(time.Second))
	}
	var txs []*chain.Tx
	w.eventually("the transaction is replaced", func() bool {
		var err error
		if txs, err = w.records.TxsFrom(t.Context(), w.relayer, 0); err != nil {
			t.Fatal(err)
		}
		return len(txs) == 2
	})
	var old, next types.Transaction
	must.Do(t, errors.Join(old.UnmarshalBinary(txs[0].Raw), next.UnmarshalBinary(txs[1].Raw)))
	if txs[0].State != chain.TxReplaced || txs[1].State != chain.TxPending || old.Nonce() != next.Nonce() || string(old.Data()) != string(next.Data()) {
		t.Errorf("the first is %s with nonce %d, the second %s with nonce %d", txs[0].State, old.Nonce(), txs[1].State, next.Nonce())
	}
	for what, fee := range map[string][2]*big.Int{"tip": {old.GasTipCap(), next.GasTipCap()}, "fee cap": {old.GasFeeCap(), next.GasFeeCap()}} {
		least := new(big.Int).Mul(fee[0], big.NewInt(1125))
		if new(big.Int).Mul(fee[1], big.NewInt(1000)).Cmp(least) < 0 {
			t.Errorf("%s: %v after %v", what, fee[1], fee[0])
		}
	}
	// The first one was taken away by nobody: now it reaches the chain, and the replacement does not.
	must.Do(t, w.Eth().SendTransaction(t.Context(), &old))
	w.decided(p.OrderID, chain.Final)
	w.idle()
	w.nonces()
	if tx, err := w.records.TxOf(t.Context(), txs[0].Hash); err != nil || tx.State != chain.TxMined {
		t.Errorf("the first transaction: %+v, %v", tx, err)
	}
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}

// The database was restored: the chain is ahead of it, or there is a hole between what is stored and the chain.
func TestSend_Nonces(t *testing.T) {
	t.Run("the chain is ahead", func(t *testing.T) {
		w := newWorld(t, chaintest.New(t))
		owner := w.account(usdc, 3_000_000)
		for range 2 {
			w.paid(w.running(), purchase(owner, usdc, receiver(1), 1_000_000))
			w.idle()
			w.forget()
		}
		w.has(owner, usdc, 1_000_000)
		if n := w.nonce(w.relayer); n != 2 {
			t.Errorf("the relayer has sent %d transactions", n)
		}
	})
	t.Run("the chain is ahead of what is stored", func(t *testing.T) {
		w := newWorld(t, chaintest.New(t))
		r := w.running()
		owner := w.account(usdc, 3_000_000)
		w.paid(r, purchase(owner, usdc, receiver(1), 1_000_000))
		w.idle()
		for range 2 {
			tx := w.transaction(w.relayer, w.nonce(w.relayer), w.relayer, nil, nil)
			must.Do(t, w.Eth().SendTransaction(t.Context(), tx))
			w.receipt(tx.Hash())
			w.eventually("the nonce is used", func() bool { return w.nonce(w.relayer) == tx.Nonce()+1 })
		}
		w.paid(r, purchase(owner, usdc, receiver(1), 1_000_000))
		w.has(owner, usdc, 1_000_000)
		if n := w.nonce(w.relayer); n != 4 {
			t.Errorf("the relayer has sent %d transactions", n)
		}
	})
	t.Run("a hole", func(t *testing.T) {
		w := newWorld(t, chaintest.New(t))
		owner := w.account(usdc, 3_000_000)
		lease := jobs.NewLease(w.records.Store, w.Now, "relayer:"+w.relayer.Hex())
		must.Do(t, lease.Take(t.Context()))
		// A transaction with nonce 2 is left of three.
		left, err := w.signer(signer.Config{}).Fill(t.Context(), signer.Fill{Relayer: w.relayer, Nonce: 2, Tip: big.NewInt(1_000_000), FeeCap: big.NewInt(100_000_000)})
		must.Do(t, err)
		raw := must.Get(left.MarshalBinary())(t)
		tx := &chain.Tx{Hash: left.Hash(), Relayer: w.relayer, Nonce: 2, Raw: raw, State: chain.TxPending, CreatedAt: w.Now()}
		must.Do(t, errors.Join(w.records.AddTx(t.Context(), lease, tx, common.Hash{}), lease.Release(t.Context())))
		w.paid(w.running(), purchase(owner, usdc, receiver(1), 1_000_000))
		w.idle()
		w.nonces()
		if n := w.nonce(w.relayer); n != 4 {
			t.Errorf("the relayer has sent %d transactions, want two fills, the one that was left and an order", n)
		}
	})
}

// A relayer without money, or with code, leaves its work to the next one.
func TestSend_NextRelayer(t *testing.T) {
	for what, prepare := range map[string]func(w *world, bad common.Address){
		"without money": func(*world, common.Address) {},
		"with code": func(w *world, bad common.Address) {
			w.give(bad, wei, int(1e17))
			w.send(receiver(5), nil, bad)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, chaintest.New(t))
			bad := w.keys.New(t)
			prepare(w, bad)
			s, err := signer.New(signer.Config{
				ChainID: w.chainID(), Keys: &w.keys, Service: w.service, Relayers: []common.Address{bad, w.relayer}, Clock: w.Now, Log: slog.New(slog.DiscardHandler),
			})
			must.Do(t, err)
			r := w.running(func(c *chain.Config) {
				c.Relayers, c.Signer, c.RelayerFloor = []common.Address{bad, w.relayer}, s, new(big.Int)
			})
			owner := w.account(usdc, 3_000_000)
			before := w.nonce(bad)
			for range 3 {
				w.paid(r, purchase(owner, usdc, receiver(1), 500_000))
			}
			w.has(owner, usdc, 1_500_000)
			if n := w.nonce(bad); n != before {
				t.Errorf("the other relayer has sent %d transactions", n-before)
			}
			w.idle()
			w.nonces()
		})
	}
}

// The pool refuses what is too large; what the relayer makes stays below, whatever waits.
func TestSend_Caps(t *testing.T) {
	// Anvil does not have the caps of the pool of go-ethereum.
	w := newWorld(t, chaintest.Embedded(t))
	owner := w.account(usdc, 100_000_000)
	d := w.delegation(owner, 9_000)
	quiet := w.rail()
	var orders []rail.Purchase
	for k := range 70 {
		orders = append(orders, by(d, purchase(owner, usdc, receiver(k%5), 10_000)))
	}
	var signing sync.WaitGroup
	for _, p := range orders {
		signing.Go(func() { w.signs(quiet, p) })
	}
	signing.Wait()

	// All in one transaction: too many bytes.
	var all []*userop.Operation
	for _, p := range orders {
		all = append(all, w.op(p.OrderID).Operation)
	}
	data := userop.HandleOps(all, w.outside)
	if len(data) < 131_072 {
		t.Fatalf("70 orders are %d bytes", len(data))
	}
	err := w.Eth().SendTransaction(t.Context(), w.transaction(w.outside, 0, contracts.EntryPoint, data, nil))
	if err == nil || !strings.Contains(err.Error(), "oversized data") {
		t.Errorf("all at once: %v", err)
	}

	w.running(func(c *chain.Config) { c.BatchOps = 1_000 })
	for _, p := range orders {
		w.decided(p.OrderID, chain.Final)
	}
	w.idle()
	w.has(owner, usdc, 100_000_000-70*10_000, receiver(0), usdc, 140_000)
	txs := must.Get(w.records.TxsFrom(t.Context(), w.relayer, 0))(t)
	if len(txs) < 2 || len(txs) > 10 {
		t.Errorf("%d transactions for 70 orders", len(txs))
	}
	mined := map[uint64]int{}
	for _, tx := range txs {
		var sent types.Transaction
		must.Do(t, sent.UnmarshalBinary(tx.Raw))
		if len(sent.Data()) > 96<<10 || sent.Gas() > 16_000_000 {
			t.Errorf("a transaction of %d bytes and %d gas", len(sent.Data()), sent.Gas())
		}
		switch tx.State {
		case chain.TxMined:
			mined[tx.Nonce]++
		case chain.TxReplaced: // on a slow machine one is taken for stuck, and another has its nonce
			mined[tx.Nonce] += 0
		default:
			t.Errorf("nonce %d: %s", tx.Nonce, tx.State)
		}
	}
	for nonce, n := range mined {
		if n != 1 {
			t.Errorf("%d transactions with nonce %d were mined", n, nonce)
		}
	}
}

// Endpoints with smaller bounds than ours: the batch is halved until they take it.
func TestSend_Halved(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	double := chaintest.NewDouble(t, w.Client())
	double.Answer("eth_sendRawTransaction", func(params []json.RawMessage) (any, error) {
		var raw hexutil.Bytes
		if err := json.Unmarshal(params[0], &raw); err != nil {
			return nil, err
		}
		if len(raw) > 3_000 {
			return nil, &chaintest.Refusal{Code: -32000, Message: "oversized data: transaction size is too much"}
		}
		var hash common.Hash
		return &hash, w.Client().CallContext(context.Background(), &hash, "eth_sendRawTransaction", raw)
	})
	owner := w.account(usdc, 3_000_000)
	quiet := w.rail()
	var orders []rail.Purchase
	for range 9 {
		orders = append(orders, purchase(owner, usdc, receiver(1), 100_000))
		w.signs(quiet, orders[len(orders)-1])
	}
	w.running(w.through(double))
	for _, p := range orders {
		w.decided(p.OrderID, chain.Final)
	}
	w.idle()
	w.nonces()
	w.has(owner, usdc, 2_100_000, receiver(1), usdc, 900_000)
}

// An endpoint that could not simulate a block once is asked again: what would fail is then found before it is sent.
func TestSend_SimulatesAgain(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	double := chaintest.NewDouble(t, w.Client())
	double.Refuse(1, "eth_simulateV1", "execution aborted (timeout = 5s)")
	r := w.running(w.through(double))
	owner := w.account(usdc, 2)
	w.paid(r, purchase(owner, usdc, receiver(1), 1))
	asked := double.Calls("eth_simulateV1")
	must.Do(t, w.Advance(2*time.Minute))
	w.paid(r, purchase(owner, usdc, receiver(1), 1))
	if now := double.Calls("eth_simulateV1"); asked == 0 || now == asked {
		t.Errorf("asked %d times to simulate blocks, and then %d times", asked, now)
	}
}
