package chain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// decided waits until an order is in one of these states.
func (w *world) decided(id string, states ...chain.State) *chain.Op {
	w.Helper()
	var op *chain.Op
	w.eventually(fmt.Sprintf("order %s is in %v", id, states), func() bool {
		var err error
		if op, err = w.records.Op(w.Context(), id); err != nil {
			return false
		}
		for _, s := range states {
			if op.State == s {
				return true
			}
		}
		return false
	})
	return op
}

func (w *world) eventually(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if is() {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("it does not come to this: %s\n%s", what, w.outlook())
		}
	}
}

// outlook says what a test may wait for that does not come.
func (w *world) outlook() string {
	var text strings.Builder
	head, err := w.Eth().BlockNumber(w.Context())
	fmt.Fprintf(&text, "head %d (%v), nonce of the relayer %d\n", head, err, w.nonce(w.relayer))
	txs, err := w.records.TxsFrom(w.Context(), w.relayer, 0)
	for _, tx := range txs {
		fmt.Fprintf(&text, "transaction %s, nonce %d: %s, %d operations\n", tx.Hash, tx.Nonce, tx.State, len(tx.Ops))
	}
	ops, opsErr := w.records.OpsIn(w.Context(), 20, chain.Created, chain.Signed, chain.Sent, chain.Included, chain.Failed)
	for _, op := range ops {
		fmt.Fprintf(&text, "operation %s: %s in transaction %s at %+v, sent at %v, failure %+v, delay %+v\n",
			op.ID, op.State, op.Tx, op.Position, op.SentAt, op.Failure, op.Delay)
	}
	err = errors.Join(err, opsErr)
	var pool any
	if w.Kind == "anvil" {
		err = errors.Join(err, w.Client().CallContext(w.Context(), &pool, "txpool_inspect"))
	}
	fmt.Fprintf(&text, "pool %v (%v)", pool, err)
	return text.String()
}

// idle waits until nothing is under way and the sink has heard all.
func (w *world) idle() {
	w.Helper()
	w.eventually("nothing is under way", func() bool {
		told := must.Get(w.records.Undecided(w.Context(), 1))(w)
		pending := must.Get(w.records.PendingTxs(w.Context(), w.relayer))(w)
		return len(told)+len(pending)+len(w.ops(chain.Created, chain.Signed, chain.Sent, chain.Included)) == 0
	})
}

// nonces fails the test unless the stored transactions have used every nonce of the relayer, each once.
func (w *world) nonces() {
	w.Helper()
	txs := must.Get(w.records.TxsFrom(w.Context(), w.relayer, 0))(w)
	mined := map[uint64]int{}
	for _, tx := range txs {
		if tx.State == chain.TxMined {
			mined[tx.Nonce]++
		}
	}
	for n := range w.nonce(w.relayer) {
		if mined[n] != 1 {
			w.Errorf("nonce %d has %d mined transactions", n, mined[n])
		}
		delete(mined, n)
	}
	if len(mined) > 0 {
		w.Errorf("nonces beyond that of the chain: %v", mined)
	}
}

// again pays as the order machine does: it asks again while the rail cannot be used. Where the machine stands still, the only endpoint
// rests for a while.
func again(ctx context.Context, r *chain.Rail, p rail.Purchase) (rail.Payment, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	for {
		o, err := r.Pay(ctx, p)
		if err == nil || toll.AsError(err).HTTPStatus() != http.StatusServiceUnavailable || ctx.Err() != nil {
			return o, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Two hundred orders at once, direct and delegated, through one relayer.
func TestRelay_ManyOrders(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	pool := w.pool(endpoints.Config{Clients: []*rpc.Client{w.Client()}, Timeout: 5 * time.Second}) // as a service has it
	r := w.running(func(c *chain.Config) { c.Pool = pool })
	const owners, each = 20, 10
	orders := make([]rail.Purchase, 0, owners*each)
	accounts := make([]common.Address, owners)
	for i := range owners {
		accounts[i] = w.account(usdc, 10_000_000)
		d := w.delegation(accounts[i], 1_000)
		for k := range each {
			p := purchase(accounts[i], usdc, receiver(i), 100_000+k)
			if k%2 == 1 {
				p = by(d, p)
			}
			orders = append(orders, p)
		}
	}
	first := w.account(usdc, 10)
	var began time.Time
	for range 2 { // the first one brings code along
		began = time.Now()
		if o, err := again(t.Context(), r, purchase(first, usdc, receiver(99), 1)); err != nil || o.Status != toll.OrderFinal {
			t.Fatalf("%+v, %v", o, err)
		}
	}
	single := time.Since(began)

	began = time.Now()
	var wg sync.WaitGroup
	for _, p := range orders {
		wg.Go(func() {
			if o, err := again(t.Context(), r, p); err != nil || o.Status != toll.OrderFinal {
				t.Errorf("order %s: %+v, %v", p.OrderID, o, err)
			}
		})
	}
	wg.Wait()
	all := time.Since(began)
	t.Logf("one order %v, %d orders %v: %.2f of a single one for each", single, len(orders), all, float64(all)/float64(len(orders))/float64(single))
	sum := 0
	for k := range each {
		sum += 100_000 + k
	}
	for i, a := range accounts {
		w.has(a, usdc, 10_000_000-sum, receiver(i), usdc, sum)
	}
	w.idle()
	w.nonces()
	if n := len(w.books.paid); n != len(orders)+2 {
		t.Errorf("the sink heard of %d paid orders", n)
	}
	if n := w.nonce(w.relayer); n > uint64(len(orders))/2 {
		t.Errorf("%d transactions for %d orders: they were not batched", n, len(orders))
	}
}

// A relayer that has nothing left to do gives its lease back in the turn that concludes its last transaction: another process
// does not wait until the lease ends.
func TestRelay_GivesItsLeaseBack(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.rail()
	p := purchase(w.account(usdc, 1), usdc, receiver(1), 1)
	w.signs(r, p)
	turn := r.Turns(w.relayer)
	another := jobs.NewLease(w.records.Store, w.Now, "relayer:"+w.relayer.Hex())
	w.eventually("the transaction is concluded", func() bool {
		must.Get(turn(t.Context()))(t)
		txs, err := w.records.TxsFrom(t.Context(), w.relayer, 0)
		if err != nil || len(txs) != 1 {
			t.Fatal(txs, err)
		}
		err = another.Take(t.Context())
		if done := txs[0].State == chain.TxMined; done != (err == nil) {
			t.Fatalf("the transaction is %s, and the lease of another process: %v", txs[0].State, err)
		}
		return err == nil
	})
}

// broken are keys of which one cannot be opened.
type broken struct {
	*chaintest.Keys
	account common.Address
}

func (k broken) Open(ctx context.Context, account common.Address) ([]byte, error) {
	if account == k.account {
		return nil, errors.New("it does not open")
	}
	return k.Keys.Open(ctx, account)
}

// The key of an account that has no code yet cannot be opened: its order waits, and the one after it is paid.
func TestRelay_KeyOfOneDoesNotOpen(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	first := purchase(w.account(usdc, 1), usdc, receiver(1), 1)
	w.signs(w.rail(), first)
	s, err := signer.New(signer.Config{
		ChainID: w.chainID(), Keys: broken{&w.keys, common.Address(first.Subscriber)}, Service: w.service, Relayers: []common.Address{w.relayer}, Clock: w.Now,
		Log: slog.New(slog.DiscardHandler),
	})
	must.Do(t, err)
	w.paid(w.running(func(c *chain.Config) { c.Signer = s }), purchase(w.account(usdc, 1), usdc, receiver(1), 1))
	if op := w.op(first.OrderID); op.State != chain.Signed {
		t.Errorf("the order whose key does not open is %s (%+v)", op.State, op.Failure)
	}
}

// panicky are keys of which the first opening panics.
type panicky struct {
	*chaintest.Keys
	once *sync.Once
}

func (k panicky) Open(ctx context.Context, account common.Address) ([]byte, error) {
	k.once.Do(func() { panic("the store of keys") })
	return k.Keys.Open(ctx, account)
}

// A panic of a turn that has an order in hand does not keep it from the next turns.
func TestRelay_TurnPanics(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	p := purchase(w.account(usdc, 1), usdc, receiver(1), 1)
	w.signs(w.rail(), p)
	s := must.Get(signer.New(signer.Config{
		ChainID: w.chainID(), Keys: panicky{&w.keys, new(sync.Once)}, Service: w.service, Relayers: []common.Address{w.relayer}, Clock: w.Now,
		Log: slog.New(slog.DiscardHandler),
	}))(t)
	w.running(func(c *chain.Config) { c.Signer = s })
	w.decided(p.OrderID, chain.Confirmed, chain.Final)
}
