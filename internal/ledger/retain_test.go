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

const day = 24 * time.Hour

// count counts usage of all that there is: nothing is removed before.
func (b *bench) count() {
	b.Helper()
	for must.Get(b.CountUsage(b.ctx))(b) {
	}
}

// retain works off all that went before a time.
func (b *bench) retain(before time.Time) (n ledger.Retained) {
	b.Helper()
	b.count()
	for more := true; more; {
		var part ledger.Retained
		var err error
		part, more, err = b.Retain(b.ctx, before)
		must.Do(b, err)
		n.Permissions += part.Permissions
		n.Burns += part.Burns
		n.Requests += part.Requests
	}
	return n
}

// rowsLeft counts the rows that retention removes, and the bytes of all burns.
func rowsLeft(t testing.TB, st *store.Store) (requests, keys, subTasks, permissions, bodies int64) {
	t.Helper()
	must.Do(t, st.QueryRow(context.Background(), `SELECT r.n, k.n, s.n, p.n, j.n FROM (SELECT COUNT(*) AS n FROM requests) r,
		(SELECT COUNT(*) AS n FROM request_keys) k, (SELECT COUNT(*) AS n FROM sub_tasks) s, (SELECT COUNT(*) AS n FROM permissions) p,
		(SELECT CAST(SUM(LENGTH(body)) AS BIGINT) AS n FROM journal WHERE kind = 2) j`).Scan(&requests, &keys, &subTasks, &permissions, &bodies))
	return requests, keys, subTasks, permissions, bodies
}

// What belongs to a permission goes an hour after its end, counted from the horizon, and nothing else: entries, commitments and sums
// stay, and the same id burns no second time.
func TestRetain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st) // audits at the end
		b.mint(5000, time.Time{})
		id := ledger.NewAccountID(plan, subscriber)
		old, other := b.permission(400), b.permission(0)
		var burned []ledger.Settled
		for i := range 300 { // three slices, among burns of another permission
			op := settleOp(old, fmt.Sprint("r", i), 1)
			if i%50 == 0 {
				op.Keys = []string{fmt.Sprint("n:", i)}
			}
			s := must.Get(b.Settle(b.ctx, op))(b)
			burned = append(burned, s)
			if i%3 == 0 {
				must.Get(b.Settle(b.ctx, settleOp(other, fmt.Sprint("o", i), 1)))(b)
			}
		}
		h := must.Get(b.Hold(b.ctx, b.holdOp(old, 2)))(b)
		released := must.Get(b.Release(b.ctx, id, h.RequestID))(b)
		op := b.holdOp(old, 2)
		op.Keys = []string{"p:lapsed"}
		lapsed := must.Get(b.Hold(b.ctx, op))(b)
		must.Do(b, st.Tx(b.ctx, func(tx *store.Tx) error {
			return store.InsertSubTask(b.ctx, tx, id, &toll.SubTask{ID: "s1", AgentRequestID: "r7", Credits: 1, CreatedAt: toll.At(b.clock.now())})
		}))
		ends := b.clock.now().Add(day)
		b.clock.add(time.Hour)
		must.Get(b.Sweep(b.ctx))(b)
		young := b.permissionUntil(ends.Add(2 * day))
		kept := must.Get(b.Settle(b.ctx, settleOp(young, "kept", 3)))(b)
		for i := range 300 { // keys that stay, more than one slice of them
			op := settleOp(young, fmt.Sprint("k", i), 1)
			op.Keys = []string{fmt.Sprint("k:", i)}
			must.Get(b.Settle(b.ctx, op))(b)
		}
		before := must.Get(b.Account(b.ctx, id))(b)

		// The follower has not read the burns yet.
		if n := b.retain(ends.Add(30 * day)); n != (ledger.Retained{}) {
			t.Fatalf("before the follower: %+v", n)
		}
		follow(t, b.Ledger)
		if n := b.retain(ends.Add(time.Hour)); n != (ledger.Retained{}) {
			t.Fatalf("an hour after the end: %+v", n)
		}
		_, _, _, _, bytes := rowsLeft(t, st)
		again, err := b.Settle(b.ctx, settleOp(old, "r5", 1))
		if err != nil || !again.Replayed || string(again.Answer) != string(burned[5].Answer) {
			t.Fatalf("a repeat before the horizon: %v, %q", err, again.Answer)
		}
		if n := b.retain(ends.Add(time.Hour + time.Second)); n != (ledger.Retained{Permissions: 2, Burns: 400, Requests: 2}) {
			t.Fatalf("removed %+v", n)
		}
		removed := 0
		for next, first := (ledger.KeyCursor{}), true; first || next != (ledger.KeyCursor{}); first = false {
			var n int
			next, n, err = b.RetainKeys(b.ctx, next)
			must.Do(b, err)
			removed += n
		}
		requests, keys, subTasks, permissions, thin := rowsLeft(t, st)
		if removed != 7 {
			t.Errorf("%d keys were removed", removed)
		}
		if requests != 0 || keys != 300 || subTasks != 0 || permissions != 1 || bytes-thin < 400*(bytes/701-3) { // 400 of 701 are thin
			t.Errorf("left: %d requests, %d keys, %d sub-tasks, %d permissions, %d of %d bytes", requests, keys, subTasks, permissions, thin, bytes)
		}
		after := must.Get(b.Account(b.ctx, id))(b)
		if after.Balance != before.Balance || after.Seq != before.Seq || after.Commitment != before.Commitment {
			t.Errorf("the account became %+v from %+v", after, before)
		}
		for i, s := range burned {
			r, err := b.Request(b.ctx, id, s.RequestID)
			if err != nil || !r.Removed || r.Transaction != s.Transaction || r.Amount != 1 {
				t.Fatalf("burn %d: %v, %+v", i, err, r)
			}
			if r, err = b.RequestByTransaction(b.ctx, s.Transaction); err != nil || !r.Removed || r.ID != s.RequestID {
				t.Fatalf("burn %d by its transaction: %v, %+v", i, err, r)
			}
		}
		for _, gone := range []string{released.RequestID, lapsed.RequestID} {
			if _, err := b.Request(b.ctx, id, gone); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("request %s: %v", gone, err)
			}
		}
		// Under its old permission, and under one that a clock set back would let in.
		_, err = b.Settle(b.ctx, settleOp(old, "r5", 1))
		b.refused(err, ledger.Conflict)
		_, err = b.Settle(b.ctx, settleOp(young, "r5", 1))
		b.refused(err, ledger.Conflict)
		_, err = b.Settle(b.ctx, settleOp(old, lapsed.RequestID, 1))
		b.refused(err, ledger.PermissionUnknown)
		again, err = b.Settle(b.ctx, settleOp(young, "kept", 3))
		if err != nil || !again.Replayed || string(again.Answer) != string(kept.Answer) {
			t.Errorf("a repeat of what is kept: %v, %q", err, again.Answer)
		}
	})
}

func (b *bench) permissionUntil(end time.Time) toll.Hash {
	b.Helper()
	p := ledger.Permission{Hash: toll.NewHash(), Plan: plan, Subscriber: subscriber, CreatedAt: b.clock.now(), ExpiresAt: end}
	must.Do(b, b.CreatePermission(b.ctx, p))
	return p.Hash
}

// Two processes work off the same permissions while the account settles: each part is removed once, and settlements go on.
func TestRetain_Raced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(5000, time.Time{})
		const burns = 400
		var perms []toll.Hash
		for range 4 {
			perms = append(perms, b.permission(0))
		}
		for i := range burns {
			must.Get(b.Settle(b.ctx, settleOp(perms[i%len(perms)], fmt.Sprint("r", i), 1)))(b)
		}
		end := b.clock.now().Add(day)
		b.clock.add(20 * day)
		follow(t, b.Ledger)
		b.count()
		young := b.permission(0)
		c := ledger.New(st, ledger.Config{Clock: b.clock.now, MACKey: make([]byte, 32)})
		var sum ledger.Retained
		var mu sync.Mutex
		var workers sync.WaitGroup
		stop := make(chan struct{})
		for _, l := range []*ledger.Ledger{b.Ledger, c} {
			workers.Go(func() {
				for more := true; more; {
					n, again, err := l.Retain(b.ctx, end.Add(2*time.Hour))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					sum.Burns, sum.Permissions = sum.Burns+n.Burns, sum.Permissions+n.Permissions
					mu.Unlock()
					more = again
				}
			})
		}
		var settled sync.WaitGroup
		settled.Go(func() {
			for i := 0; ; i++ {
				if _, err := b.Settle(b.ctx, settleOp(young, fmt.Sprint("y", i), 1)); err != nil {
					t.Error(err)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		workers.Wait()
		close(stop)
		settled.Wait()
		sum.Requests = 0
		rest := b.retain(end.Add(2 * time.Hour)) // one that was overtaken may have left parts
		sum.Burns, sum.Permissions = sum.Burns+rest.Burns, sum.Permissions+rest.Permissions
		if sum != (ledger.Retained{Permissions: 4, Burns: burns}) {
			t.Errorf("removed %+v", sum)
		}
		must.Do(b, c.Close(b.ctx))
	})
}

// A process that dies in a sweep leaves a part removed or not, and the next one finishes it.
func TestRetain_Killed(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		for _, point := range []string{"locked", "written"} {
			t.Run(fmt.Sprint(v, "/", point), func(t *testing.T) {
				st, cfg := storetest.OpenVariant(t, v)
				b := &bench{TB: t, clock: newClock(), ctx: context.Background()}
				b.Ledger = ledger.New(st, ledger.Config{Clock: b.clock.now, MACKey: make([]byte, 32)})
				b.mint(500, time.Time{})
				perm := b.permission(200)
				for i := range 150 {
					must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint(i), 1)))(b)
				}
				follow(t, b.Ledger)
				b.count()
				must.Do(b, b.Close(b.ctx))
				must.Do(b, st.Close())
				crash(t, cfg, "retain", point, perm, "")
				st = must.Get(store.Open(b.ctx, cfg))(b)
				defer st.Close()
				b.Ledger = ledger.New(st, ledger.Config{Clock: b.clock.now, MACKey: make([]byte, 32)})
				audit(t, b.Ledger)
				if n := b.retain(start.Add(500 * day)); n != (ledger.Retained{Permissions: 1, Burns: 150}) {
					t.Errorf("the next one removed %+v", n)
				}
				audit(t, b.Ledger)
				must.Do(b, b.Close(b.ctx))
			})
		}
	}
}
