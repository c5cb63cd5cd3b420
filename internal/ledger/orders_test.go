package ledger_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// counted is an order row kept by a test: the other write of the act.
func counted(o *store.Order) (recorded func(*store.Tx) (bool, error), also func(*store.Tx) error) {
	recorded = func(tx *store.Tx) (bool, error) {
		_, err := store.OrderOfAccount(context.Background(), tx, o.Account, o.ID)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	also = func(tx *store.Tx) error { return store.InsertOrder(context.Background(), tx, o) }
	return recorded, also
}

func orderRow(plan toll.PlanID, who toll.Address) *store.Order {
	return &store.Order{
		ID: toll.NewUUID(), Account: ledger.NewAccountID(plan, who), Plan: plan, Subscriber: who, Status: toll.OrderCreated,
		CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(1, 0),
	}
}

func TestOrderWith_LimitRaced(t *testing.T) {
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
		if err := l.CreatePermission(ctx, p); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var made, refused int
		var first *store.Order
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				o := orderRow(plan, who)
				recorded, also := counted(o)
				err := l.OrderWith(ctx, ledger.OrderOp{Plan: plan, Subscriber: who, Permission: p.Hash, Recorded: recorded},
					func(tx *store.Tx, _ ledger.Account) error { return also(tx) })
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
			if err != nil {
				t.Fatal(err)
			}
			return got.Orders
		}
		if n := orders(); n != 2 {
			t.Fatalf("the permission counts %d orders, want 2", n)
		}

		// The same act again, as after a lost answer, counts nothing.
		recorded, also := counted(first)
		again := ledger.OrderOp{Plan: plan, Subscriber: who, Permission: p.Hash, Recorded: recorded}
		if err := l.OrderWith(ctx, again, func(tx *store.Tx, _ ledger.Account) error { return also(tx) }); err != nil {
			t.Fatal(err)
		}
		// An order that failed gives its place back, once.
		failed := func(tx *store.Tx) (bool, error) {
			o, err := store.OrderOfAccount(ctx, tx, first.Account, first.ID)
			return err == nil && o.Status == toll.OrderFailed, err
		}
		for range 2 {
			if err := l.UndoOrderWith(ctx, ledger.OrderOp{Plan: plan, Subscriber: who, Permission: p.Hash, Recorded: failed}, func(tx *store.Tx) error {
				first.Status = toll.OrderFailed
				return store.UpdateOrder(ctx, tx, first)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if n := orders(); n != 1 {
			t.Fatalf("after one failure the permission counts %d orders, want 1", n)
		}
		// What also refuses leaves nothing behind.
		broken := errors.New("broken")
		o := orderRow(plan, who)
		recorded, _ = counted(o)
		if err := l.OrderWith(ctx, ledger.OrderOp{Plan: plan, Subscriber: who, Permission: p.Hash, Recorded: recorded},
			func(*store.Tx, ledger.Account) error { return broken }); !errors.Is(err, broken) {
			t.Fatalf("error %v, want that of also", err)
		}
		if n := orders(); n != 1 {
			t.Fatalf("after a rollback the permission counts %d orders, want 1", n)
		}
	})
}
