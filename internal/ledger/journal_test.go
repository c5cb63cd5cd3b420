package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Every look-up finds an entry before the follower has come to it, half of the way, and afterwards, over several rows of the index.
func TestJournal_LookUps(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(1000, time.Time{})
		perm := b.permission(0)
		id := ledger.NewAccountID(plan, subscriber)
		var made []ledger.Settled
		var since time.Time
		for i := range 70 { // two rows of the index and a part of a third
			if i == 40 {
				since = b.clock.now()
			}
			s := must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 1)))(b)
			made = append(made, s)
			b.clock.add(time.Second)
		}
		check := func(when string) {
			t.Helper()
			for i, s := range made {
				r, err := b.RequestByTransaction(b.ctx, s.Transaction)
				if err != nil || r.ID != s.RequestID {
					t.Fatalf("%s: %v: settlement %d leads to %q", when, err, i, r.ID)
				}
				e, err := b.Entry(b.ctx, id, int64(i)+2)
				if err != nil || e.Commitment != s.Transaction || e.Ref != s.RequestID {
					t.Fatalf("%s: %v: entry %d is %+v", when, err, i+2, e)
				}
			}
			if _, err := b.RequestByTransaction(b.ctx, toll.NewHash()); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: a transaction that is not there: %v", when, err)
			}
			if _, err := b.Entry(b.ctx, id, 72); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: an entry that is not there: %v", when, err)
			}
			burned, _, err := b.BurnedSince(b.ctx, id, since, 25)
			if err != nil || len(burned) != 25 || burned[0].Request != "r40" || burned[24].Request != "r64" {
				t.Errorf("%s: %v: burned since %v: %d, %+v", when, err, since, len(burned), burned)
			}
			uses, err := b.PermissionUses(b.ctx, id, perm, 50)
			if err != nil || len(uses) != 50 || uses[0].AgentRequestID != "r69" || uses[49].AgentRequestID != "r20" {
				t.Errorf("%s: %v: uses %v", when, err, uses)
			}
		}
		check("nothing is indexed")
		follow(t, b.Ledger)
		check("all is indexed")
		for i := 70; i < 75; i++ {
			s := must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 0)))(b)
			if r, err := b.RequestByTransaction(b.ctx, s.Transaction); err != nil || r.ID != s.RequestID {
				t.Fatalf("behind the index: %v, %+v", err, r)
			}
			if e, err := b.Entry(b.ctx, id, int64(i)+2); err != nil || e.Commitment != s.Transaction {
				t.Fatalf("behind the index: %v, %+v", err, e)
			}
		}
	})
}

// Two followers beside writers, with transactions that fail: each row comes to a consumer that committed once, in order.
func TestFollow_Once(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(10000, time.Time{})
		perm := b.permission(0)
		var mu sync.Mutex
		var seen []int64
		var fails int
		consumer := func() ledger.Consumer {
			return ledger.Consumer{
				Rows: func(context.Context, *store.Tx, []store.JournalRow) error {
					mu.Lock()
					defer mu.Unlock()
					if fails++; fails%3 == 0 {
						return errors.New("stopped")
					}
					return nil
				},
				Done: func(rows []store.JournalRow) {
					mu.Lock()
					defer mu.Unlock()
					for _, r := range rows {
						seen = append(seen, r.Pos)
					}
				},
			}
		}
		stop := make(chan struct{})
		var followers, writers sync.WaitGroup
		for range 2 {
			followers.Go(func() {
				for last := false; ; {
					more, err := b.Follow(b.ctx, consumer())
					if last && !more && err == nil {
						return
					}
					select {
					case <-stop:
						last = true
					default:
					}
				}
			})
		}
		for w := range 4 {
			writers.Go(func() {
				for i := range 50 {
					if _, err := b.Settle(b.ctx, settleOp(perm, fmt.Sprintf("w%d-%d", w, i), 1)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(stop)
		followers.Wait()
		got := map[int64]int{}
		for _, pos := range seen {
			got[pos]++
		}
		for pos := int64(1); pos <= 201; pos++ {
			if got[pos] != 1 {
				t.Errorf("position %d came %d times", pos, got[pos])
			}
		}
		if len(got) != 201 {
			t.Errorf("%d positions", len(got))
		}
	})
}

// A handle whose function does not end, of a process that stands still, delays nobody but its own account: positions are given in the
// trip of the commit.
func TestJournal_SlowHandle(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.Postgres, storetest.Partitioned} {
		t.Run(string(v), func(t *testing.T) {
			st, _ := storetest.OpenVariant(t, v)
			b := open(t, st)
			b.mint(10, time.Time{})
			minted, end := make(chan struct{}), make(chan struct{})
			done := make(chan error, 1)
			go func() {
				done <- b.DoNew(b.ctx, "2", subscriber, func(t *ledger.Tx) error {
					_, err := t.Mint(ledger.MintOp{Plan: "2", Subscriber: subscriber, Amount: 1, Ref: "slow"})
					select {
					case minted <- struct{}{}:
					default:
					}
					<-end
					return err
				})
			}()
			<-minted
			perm := b.permission(0)
			for i := range 5 {
				ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
				_, err := b.Settle(ctx, settleOp(perm, fmt.Sprint(i), 1))
				cancel()
				must.Do(b, err)
			}
			select {
			case err := <-done:
				t.Fatalf("the handle has ended: %v", err)
			default:
			}
			close(end)
			must.Do(b, <-done)
		})
	}
}
