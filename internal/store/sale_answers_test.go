package store_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A nonce counts once among many callers, and its row goes when it could not be taken any more.
func TestWalletNonces(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		now := time.Unix(1_795_226_400, 0)
		use := func(nonce string, at time.Time) (first bool) {
			err := st.Tx(context.Background(), func(tx *store.Tx) (err error) {
				first, err = store.UseWalletNonce(context.Background(), tx, []byte(nonce), at.Add(time.Minute), at)
				return err
			})
			must.Check(t, err)
			return first
		}
		var won atomic.Int64
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if use("one", now) {
					won.Add(1)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d first uses", won.Load())
		}
		if !use("two", now.Add(time.Minute)) {
			t.Error("another nonce is used")
		}
		var rows int64
		if err := st.QueryRow(t.Context(), "SELECT COUNT(*) FROM wallet_nonces").Scan(&rows); err != nil || rows != 1 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

func TestSaleAnswers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		ctx := t.Context()
		mine := &store.SaleIdentifier{Subscriber: toll.Address{1}, Identifier: "pay_0123456789abcdef", Content: toll.Hash{2}, OrderID: "o"}
		put := func(s *store.SaleIdentifier) error {
			return st.Tx(ctx, func(tx *store.Tx) error { return store.PutSaleIdentifier(ctx, tx, s) })
		}
		must.Do(t, put(mine))
		if got, err := store.SaleByIdentifier(ctx, st, mine.Subscriber, mine.Identifier); err != nil || *got != *mine {
			t.Errorf("%+v, %v", got, err)
		}
		if err := put(mine); !store.IsUnique(err) {
			t.Errorf("a second use: %v", err)
		}
		theirs := *mine
		theirs.Subscriber = toll.Address{3}
		must.Check(t, put(&theirs))
		if _, err := store.SaleByIdentifier(ctx, st, toll.Address{4}, mine.Identifier); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
		for _, free := range []struct {
			by    toll.Address
			order string
			gone  bool
		}{{mine.Subscriber, "other", false}, {toll.Address{4}, "o", false}, {mine.Subscriber, "o", true}, {mine.Subscriber, "o", true}} {
			write(t, st, func(tx *store.Tx) error { return store.FreeSaleIdentifier(ctx, tx, free.by, free.order) })
			if _, err := store.SaleByIdentifier(ctx, st, mine.Subscriber, mine.Identifier); errors.Is(err, store.ErrNotFound) != free.gone {
				t.Errorf("after %+v: %v", free, err)
			}
		}
		must.Check(t, put(mine), "a free name")
		if got, err := store.SaleByIdentifier(ctx, st, theirs.Subscriber, theirs.Identifier); err != nil || *got != theirs {
			t.Errorf("the same name of another subscriber: %+v, %v", got, err)
		}
		keep := func(receipt string) (kept []byte) {
			if err := st.Tx(ctx, func(tx *store.Tx) (err error) {
				kept, err = store.KeepSaleReceipt(ctx, tx, "o", []byte(receipt))
				return err
			}); err != nil {
				t.Error(err)
			}
			return kept
		}
		if _, err := store.SaleReceipt(ctx, st, "o"); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
		if a, b := keep("first"), keep("second"); string(a) != "first" || string(b) != "first" {
			t.Errorf("kept %s and %s", a, b)
		}
	})
}
