package chain_test

import (
	"context"
	"errors"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// unhurried is the time of an attempt that no endpoint which speaks runs out of. What gets lost is asked for again in time.
const unhurried = patience / 4

// overNetwork is a rail over endpoints that have to agree, as on live, on a chain that grows, and whose time passes ten times as fast.
func (w *world) overNetwork(attempt time.Duration, doubles ...*chaintest.Double) *chain.Rail {
	w.Helper()
	cfg := endpoints.Config{ChainID: w.ChainID(), Genesis: w.Genesis(), Agree: true, Clock: w.Now, Timeout: attempt, Every: 200 * time.Millisecond}
	for _, d := range doubles {
		cfg.URLs = append(cfg.URLs, d.URL)
	}
	pool := must.Get(endpoints.New(cfg))(w)
	g := jobs.NewGroup(nil)
	g.OnStop("pool", func(context.Context) error { pool.Close(); return nil })
	g.Start(pool.Loop())
	w.Cleanup(func() {
		must.Check(w, g.Stop(context.Background()), "Stop")
	})
	w.growing()
	return w.running(func(c *chain.Config) {
		c.Embedded, c.Pool, c.Confirmations, c.TopUpConfirmations, c.FastLimitCents, c.VoidAfter = false, pool, 2, 1, 1000, 24*time.Hour
	})
}

// growing adds blocks to the chain until the test ends.
func (w *world) growing() {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				if err := w.Advance(time.Second); err != nil {
					w.Errorf("a block: %v", err)
					return
				}
			}
		}
	}()
	w.Cleanup(func() {
		close(stop)
		<-ended
	})
}

// An endpoint that lies about the chain, or does not speak, keeps no order from being paid, once.
// T68
func TestLyingEndpointHoldsNothingUp(t *testing.T) {
	lies := map[string]func(w *world, d *chaintest.Double){
		"wrong chain id":      func(_ *world, d *chaintest.Double) { d.ChainID(1) },
		"HTML 200":            func(_ *world, d *chaintest.Double) { d.Page(http.StatusOK) },
		"hang":                func(_ *world, d *chaintest.Double) { d.Hang() },
		"no answers":          func(_ *world, d *chaintest.Double) { d.LoseAnswers(-1) },
		"nonce too low":       func(_ *world, d *chaintest.Double) { d.NonceTooLow(1) },
		"nonce always low":    func(_ *world, d *chaintest.Double) { d.NonceTooLow(-1) },
		"takes and drops":     func(_ *world, d *chaintest.Double) { d.Swallow() },
		"another first block": func(_ *world, d *chaintest.Double) { d.ForgeBlocks(0) },
		"stale head": func(w *world, d *chaintest.Double) {
			head := must.Get(w.Eth().BlockNumber(w.Context()))(w)
			d.Freeze(head)
			must.Do(w, w.Advance(2*time.Minute))
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, chaintest.New(t))
			liar, honest, other := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
			attempt, pay := unhurried, w.paid
			if name == "hang" {
				attempt, pay = 1500*time.Millisecond, w.paidAtLast
			}
			r := w.overNetwork(attempt, liar, honest, other)
			payer := w.account(usdc, 5_000_000)
			pay(r, purchase(payer, usdc, receiver(1), 1_000_000)) // while it is trusted
			lie(w, liar)
			// Between a clock that is moved and the block of that time the heads of all are old.
			w.comesTrue("an endpoint can be used", func() bool { return r.Ready(t.Context()) == nil })
			p := purchase(payer, usdc, receiver(1), 2_000_000)
			pay(r, p)
			w.has(payer, usdc, 2_000_000, receiver(1), usdc, 3_000_000)
			w.comesTrue("the sink has heard of it", func() bool {
				w.books.mu.Lock()
				defer w.books.mu.Unlock()
				_, told := w.books.paid[p.OrderID]
				return told
			})
		})
	}
}

// paidAtLast is [world.paid] where attempts are so short that on a busy machine honest endpoints run out of them, too.
func (w *world) paidAtLast(r *chain.Rail, p rail.Purchase) common.Hash {
	w.Helper()
	w.comesTrue("an endpoint answers in time", func() bool {
		ctx, cancel := context.WithTimeout(w.Context(), patience)
		defer cancel()
		_, err := r.Pay(ctx, p)
		if err != nil && !errors.Is(err, toll.NewError(toll.CodeChainUnreachable)) {
			w.Fatalf("Pay: %v", err)
		}
		return err == nil
	})
	return w.paid(r, p)
}

// A payment that one endpoint invents is not believed: nothing is granted until it is there for two.
// T68
func TestInventedPayment(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	liar, honest := chaintest.NewDouble(t, w.Client()), chaintest.NewDouble(t, w.Client())
	r := w.overNetwork(unhurried, liar, honest)
	payer := w.account(usdc, 1_000_000)
	liar.Swallow()
	honest.Swallow()

	p := purchase(payer, usdc, receiver(1), 1_000_000)
	waiting, cancel := context.WithCancel(t.Context())
	defer cancel()
	over := make(chan rail.Payment, 1)
	go func() {
		o, _ := r.Pay(waiting, p)
		over <- o
	}()
	w.comesTrue("the order is sent", func() bool {
		o, err := r.Outcome(t.Context(), p.OrderID)
		return err == nil && o.Status == toll.OrderSent
	})
	op := must.Get(w.records.Op(t.Context(), p.OrderID))(t)
	head := must.Get(w.Eth().HeaderByNumber(t.Context(), nil))(t)
	data := append(common.BigToHash(op.Operation.Nonce).Bytes(), common.LeftPadBytes([]byte{1}, 32)...) // nonce, success, actualGasCost, actualGasUsed
	data = append(data, make([]byte, 64)...)
	event := types.Log{
		Address:     contracts.EntryPoint,
		Topics:      []common.Hash{common.HexToHash("0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f"), op.Hash, common.BytesToHash(op.Sender[:]), {}},
		Data:        data,
		BlockNumber: head.Number.Uint64(), BlockHash: head.Hash(), TxHash: op.Tx, TxIndex: 0, Index: 0,
	}
	liar.InventLogs(event)
	liar.InventReceipt(&types.Receipt{
		Type: 2, Status: 1, TxHash: op.Tx, BlockHash: head.Hash(), BlockNumber: head.Number, Logs: []*types.Log{&event}, CumulativeGasUsed: 1, GasUsed: 1,
		EffectiveGasPrice: big.NewInt(1),
	})
	calls := liar.Calls("eth_getLogs")
	w.comesTrue("the invention was told often", func() bool { return liar.Calls("eth_getLogs") > calls+20 })
	w.books.mu.Lock()
	granted := len(w.books.paid)
	w.books.mu.Unlock()
	if granted != 0 {
		t.Fatal("an invented payment was granted")
	}
	select {
	case o := <-over:
		t.Fatalf("the order is decided by an invention: %+v", o)
	default:
	}
	w.has(payer, usdc, 1_000_000)

	liar.Clear()
	honest.Clear()
	if o := <-over; o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
		t.Errorf("the order is %s (%+v), want it paid", o.Status, o)
	}
	w.has(payer, usdc, 0, receiver(1), usdc, 1_000_000)
}

func (w *world) comesTrue(what string, f func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	w.Fatalf("it never came true: %s", what)
}
