package chain_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// blockByBlock is an endpoint that refuses queries for logs of more than one block: a search reads no block beyond the one at which
// it ends.
func (w *world) blockByBlock() func(*chain.Config) {
	d := chaintest.NewDouble(w, w.Client())
	d.Answer("eth_getLogs", func(params []json.RawMessage) (any, error) {
		var q struct{ FromBlock, ToBlock string }
		if err := json.Unmarshal(params[0], &q); err != nil {
			return nil, err
		}
		if q.ToBlock == "latest" {
			head, err := w.Eth().BlockNumber(context.Background())
			if err != nil {
				return nil, err
			}
			q.ToBlock = hexutil.EncodeUint64(head)
		}
		if q.FromBlock != q.ToBlock {
			return nil, &chaintest.Refusal{Code: -32005, Message: "too many blocks"}
		}
		return nil, chaintest.ErrPass
	})
	return w.through(d)
}

// waits lets time pass, with a block every half hour.
func (w *world) waits(d time.Duration) {
	w.Helper()
	for range d / (30 * time.Minute) {
		must.Do(w, w.Advance(30*time.Minute))
	}
}

// A backup holds the order of a sale and not its operation. It is restored hours after others had the authorization carried out,
// which was before it was handed in: the sale is paid.
func TestSell_RestoredHoursLater(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	sink := w.ledger()
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000, func(s *rail.Sale) {
		s.Authorization.ValidBefore = uint64(w.Now().Add(150 * time.Minute).Unix())
	})
	w.submit(s)
	w.waits(90 * time.Minute)
	s.OrderedAt = w.Now()
	w.waits(4 * time.Hour)
	r := w.running(w.blockByBlock(), func(c *chain.Config) { c.Orders = sink })
	w.sold(r, s)
	w.decided(s.OrderID, chain.Final)
	w.idle()
	sink.has(s.OrderID, true, 1)
	w.has(buyer, usdc, 0, receiver(1), usdc, 1_000_000)
}

// A backup holds an order and not its operation, which has paid hours before the restore: the order does not fail.
func TestPay_RestoredHoursLater(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	p.OrderedAt = w.Now()
	w.paid(w.running(), p)
	w.idle()
	w.waits(4 * time.Hour)
	w.forget()
	if o, err := w.rail(w.blockByBlock()).Pay(t.Context(), p); err == nil || o.Status != toll.OrderCreated {
		t.Errorf("Pay: %+v, %v", o, err)
	}
	w.has(owner, usdc, 2_000_000, receiver(1), usdc, 1_000_000)
}

// A restored database lacks what wallets signed after the backup. While it is marked, the tracker
// finds these operations by their wallets, with what they paid, and says when the chain has been read.
func TestRestored_WalletsAreSearched(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	owner := w.account(usdc, 3_000_000)
	p := purchase(owner, usdc, receiver(1), 1_000_000)
	p.OrderedAt = w.Now()
	w.paid(w.running(), p)
	w.idle()
	w.forget()
	st, ctx := w.records.Store, t.Context()
	must.Do(t, st.Tx(ctx, func(tx *store.Tx) error {
		err := store.InsertPrincipal(ctx, tx, store.Principal{Address: toll.Address(owner), SealedKey: []byte{1}, CreatedAt: w.Now()})
		if err != nil {
			return err
		}
		return store.PutRestoration(ctx, tx, &store.Restoration{BackupAt: w.Now().Add(-time.Hour), RestoredAt: w.Now()})
	}))
	w.running()
	w.eventually("the payment is found", func() bool { return len(w.orphans()) == 1 })
	o := w.orphans()[0]
	want := []chain.Transfer{{Token: usdc, From: owner, To: receiver(1), Amount: toll.UnitsOf(1_000_000)}}
	if diff := cmp.Diff(want, o.Paid, cmp.Comparer(func(a, b toll.Units) bool { return a.Cmp(b) == 0 })); diff != "" {
		t.Error(diff)
	}
	w.eventually("the chain has been read", func() bool {
		read, err := store.ChainRead(ctx, st, chain.CursorReader)
		_, unused := store.ReadChainCursor(ctx, st, chain.CursorReader)
		return err == nil && unused == nil && read
	})
}
