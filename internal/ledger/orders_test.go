package ledger_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// count records an order and counts it on a permission.
func count(ctx context.Context, l *ledger.Ledger, o *store.Order, permission toll.Hash) error {
	return l.DoNew(ctx, o.Plan, o.Subscriber, func(t *ledger.Tx) error {
		if _, err := store.OrderOfAccount(ctx, t, o.Account, o.ID); !errors.Is(err, store.ErrNotFound) {
			return cmp.Or(err, ledger.ErrRecorded)
		}
		if _, err := t.CountOrder(permission); err != nil {
			return err
		}
		return store.InsertOrder(ctx, t.Tx, o)
	})
}

func orderRow(plan toll.PlanID, who toll.Address) *store.Order {
	return &store.Order{
		ID: toll.NewUUID(), Account: ledger.NewAccountID(plan, who), Plan: plan, Subscriber: who, Status: toll.OrderCreated,
		CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0),
	}
}

func TestDo_OrderLimitRaced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		l := ledger.New(st, ledger.Config{MACKey: make([]byte, 32)})
		t.Cleanup(func() { _ = l.Close(context.Background()) })
		ctx := t.Context()
		plan, who := toll.NewPlanID(), toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8")
		two := int64(2)
		p := ledger.Permission{
			Hash: toll.NewHash(), Plan: plan, Subscriber: who, Scheme: "x", Network: "y", OrderLimit: &two,
			CreatedAt: time.Now().Truncate(time.Microsecond), ExpiresAt: time.Now().Add(time.Hour).Truncate(time.Microsecond),
		}
		must.Do(t, l.CreatePermission(ctx, p))
		var mu sync.Mutex
		var made, refused int
		var first *store.Order
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				o := orderRow(plan, who)
				err := count(ctx, l, o, p.Hash)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					made++
					first = o
				case ledger.IsRefused(err, ledger.OrderLimit):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if made != 2 || refused != 18 {
			t.Fatalf("%d orders made, %d refused; want 2 and 18", made, refused)
		}
		orders := func() int64 {
			_, got, err := l.Snapshot(ctx, p.Account(), p.Hash)
			must.Do(t, err)
			return got.Orders
		}
		if n := orders(); n != 2 {
			t.Fatalf("the permission counts %d orders, want 2", n)
		}

		// The same act again, as after a lost answer, counts nothing.
		must.Do(t, count(ctx, l, first, p.Hash))
		if n := orders(); n != 2 {
			t.Fatalf("after a repeat the permission counts %d orders, want 2", n)
		}
		// An order that failed gives its place back, once.
		for range 2 {
			must.Do(t, l.Do(ctx, first.Account, func(t *ledger.Tx) error {
				o, err := store.OrderOfAccount(ctx, t, first.Account, first.ID)
				if err != nil || o.Status == toll.OrderFailed {
					return cmp.Or(err, ledger.ErrRecorded)
				}
				o.Status = toll.OrderFailed
				if err := store.UpdateOrder(ctx, t.Tx, o); err != nil {
					return err
				}
				return t.UncountOrder(p.Hash)
			}))
		}
		if n := orders(); n != 1 {
			t.Fatalf("after one failure the permission counts %d orders, want 1", n)
		}
		// An error of the function leaves nothing behind.
		broken := errors.New("broken")
		if err := l.Do(ctx, first.Account, func(t *ledger.Tx) error {
			_, err := t.CountOrder(p.Hash)
			return cmp.Or(err, broken)
		}); !errors.Is(err, broken) {
			t.Fatalf("error %v, want that of the function", err)
		}
		if n := orders(); n != 1 {
			t.Fatalf("after a rollback the permission counts %d orders, want 1", n)
		}
	})
}
