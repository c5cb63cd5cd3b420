package ledger_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// open2 starts a second ledger on the store of the first one, with its clock.
func open2(b *bench, st *store.Store) *ledger.Ledger {
	l := ledger.New(st, ledger.Config{Clock: b.clock.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	b.Cleanup(func() {
		must.Check(b, l.Close(context.Background()))
	})
	return l
}

// ways counts how a writer comes to what it decides by.
type ways struct{ recalled, read atomic.Int64 }

func watchWays(l *ledger.Ledger) *ways {
	w := &ways{}
	ledger.SetFailpoint(l, func(at string) {
		switch at {
		case "recalled":
			w.recalled.Add(1)
		case "read":
			w.read.Add(1)
		}
	})
	return w
}

// TestQuick_NoReads: once an account is remembered, neither a hold nor a settlement reads.
func TestQuick_NoReads(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		must.Get(b.Settle(b.ctx, settleOp(perm, "first", 1)))(b) // the permission is read
		w := watchWays(b.Ledger)
		for i := range 5 {
			h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
			must.Get(b.Settle(b.ctx, settleOp(perm, h.RequestID, 3)))(b)
			must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("named", i), 1)))(b)
			must.Get(b.Settle(b.ctx, settleOp(perm, "", 1)))(b)
			h = must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
			must.Get(b.Release(b.ctx, ledger.NewAccountID(plan, subscriber), h.RequestID))(b)
		}
		if w.recalled.Load() != 30 || w.read.Load() != 0 {
			t.Errorf("%d operations were decided from memory, %d were read; want 30 and 0", w.recalled.Load(), w.read.Load())
		}
		b.balance(100-1-5*5, 0)
	})
}

// TestQuick_OtherInstance: what another instance did is seen, whatever is remembered.
func TestQuick_OtherInstance(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		other := open2(b, st)
		b.mint(5, time.Time{})
		perm := b.permission(10)
		settle := func(l *ledger.Ledger, id string, n toll.Credits) ledger.Settled {
			t.Helper()
			return must.Get(l.Settle(b.ctx, settleOp(perm, id, n)))(b)
		}
		settle(b.Ledger, "a", 1)
		settle(b.Ledger, "b", 1)
		settle(other, "c", 1)
		first := settle(other, "d", 1)
		if again := settle(b.Ledger, "d", 1); !again.Replayed || string(again.Answer) != string(first.Answer) {
			t.Errorf("%+v is no repeat of %+v", again, first)
		}
		_, err := other.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 95, Ref: "more"})
		must.Do(b, err)
		settle(b.Ledger, "e", 4) // refused from memory, and not under the lock
		op := b.holdOp(perm, 2)
		op.RequestID = "held there"
		must.Get(other.Hold(b.ctx, op))(b)
		settle(b.Ledger, "held there", 2)
		_, err = other.Settle(b.ctx, settleOp(perm, "limit", 1))
		b.refused(err, ledger.RedemptionLimit)
		b.balance(90, 0)
	})
}

// TestL2_TwoInstances: two writers that remember the same accounts burn once for each request.
func TestL2_TwoInstances(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		ledgers := []*ledger.Ledger{b.Ledger, open2(b, st)}
		const accounts, requests = 4, 40
		var perms [accounts]toll.Hash
		for i := range perms {
			perms[i] = crowdAccount(b, i, 1000)
		}
		var wg sync.WaitGroup
		var replayed atomic.Int64
		for caller := range 8 {
			wg.Go(func() {
				for n := range requests {
					i := (caller + n) % accounts
					// Four callers use each id.
					op := settleOp(perms[i], fmt.Sprint("r", n, "-", caller/4), 2)
					op.Subscriber = crowdAddress(i)
					s, err := ledgers[(caller+n)%2].Settle(b.ctx, op)
					if err != nil {
						t.Error(err)
						return
					}
					if s.Replayed {
						replayed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		var balance toll.Credits
		for i := range perms {
			a := must.Get(b.Account(b.ctx, ledger.NewAccountID(plan, crowdAddress(i))))(b)
			balance += a.Balance
		}
		if burned := 2 * (8*requests - toll.Credits(replayed.Load())); balance != accounts*1000-burned {
			t.Errorf("the balances are %d, want %d", balance, accounts*1000-burned)
		}
	})
}

func crowdAddress(i int) toll.Address { return toll.MustAddress(fmt.Sprintf("0x%040x", 0xc0ffee+i)) }

// crowdAccount makes an account with credits and a permission.
func crowdAccount(b *bench, i int, n toll.Credits) toll.Hash {
	b.Helper()
	who := crowdAddress(i)
	must.Get(b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: who, Amount: n, Ref: "m"}))(b)
	p := ledger.Permission{
		Hash: toll.NewHash(), Plan: plan, Subscriber: who, Scheme: "s", Network: "n",
		CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(time.Hour),
	}
	must.Do(b, b.CreatePermission(b.ctx, p))
	return p.Hash
}

// TestQuick_HostileRepeats: a caller that repeats old requests of its own, each time another one, has its own account read and no
// other one.
func TestQuick_HostileRepeats(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		const crowd, rounds = 16, 12
		var perms [crowd]toll.Hash
		settle := func(l *ledger.Ledger, i int, id string) error {
			op := settleOp(perms[i], id, 1)
			op.Subscriber = crowdAddress(i)
			_, err := l.Settle(b.ctx, op)
			return err
		}
		for i := range perms {
			perms[i] = crowdAccount(b, i, 1000)
		}
		for n := range rounds {
			must.Do(b, settle(b.Ledger, 0, fmt.Sprint("old", n)))
		}
		l := open2(b, st) // it knows nothing of these requests
		for i := range perms {
			must.Do(b, settle(l, i, fmt.Sprint("warm", i)))
		}
		w := watchWays(l)
		for n := range rounds {
			var wg sync.WaitGroup
			for i := range perms {
				wg.Go(func() {
					id := fmt.Sprint("round", n)
					if i == 0 {
						id = fmt.Sprint("old", n)
					}
					must.Check(t, settle(l, i, id))
				})
			}
			wg.Wait()
		}
		// The first repeat spoils one commit. On PostgreSQL a batch counts once for each way.
		recalled, read := w.recalled.Load(), w.read.Load()
		most := int64(2*rounds + 2)
		if st.Engine() == store.SQLite {
			most = rounds + crowd
		}
		if read > most || recalled < rounds-1 {
			t.Errorf("%d times from memory, %d times read, want at most %d reads", recalled, read, most)
		}
	})
}

// TestQuick_UnknownRequests: a writer that started after a request ended, and remembers its account since, takes the id for a new
// one; the commit finds out. (An id of an open hold is looked up, as the account counts one hold more than is remembered.)
func TestQuick_UnknownRequests(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		account := ledger.NewAccountID(plan, subscriber)
		hold := func(id string) ledger.HoldOp {
			op := b.holdOp(perm, 5)
			op.RequestID = id
			return op
		}
		for _, id := range []string{"settled", "released", "lapsed"} {
			must.Get(b.Hold(b.ctx, hold(id)))(b)
		}
		first, err := b.Settle(b.ctx, settleOp(perm, "settled", 5))
		must.Do(b, err)
		must.Get(b.Settle(b.ctx, settleOp(perm, "burned", 3)))(b)
		must.Get(b.Release(b.ctx, account, "released"))(b)
		b.clock.add(2 * time.Minute)
		must.Do(b, b.Touch(b.ctx, account))

		burned := toll.Credits(8)
		try := func(what string, recalled int64, f func(l *ledger.Ledger)) {
			t.Helper()
			l := open2(b, st)
			must.Get(l.Settle(b.ctx, settleOp(perm, "before "+what, 1)))(b)
			burned++
			w := watchWays(l)
			f(l)
			if w.recalled.Load() != recalled || w.read.Load() != 1 {
				t.Errorf("%s: %d times from memory, %d times read; want %d and 1", what, w.recalled.Load(), w.read.Load(), recalled)
			}
			b.balance(100-burned, 0)
		}
		try("repeat", 1, func(l *ledger.Ledger) {
			again := must.Get(l.Settle(b.ctx, settleOp(perm, "settled", 5)))(b)
			if !again.Replayed || string(again.Answer) != string(first.Answer) {
				t.Errorf("%+v is no repeat of %+v", again, first)
			}
		})
		for _, id := range []string{"settled", "burned", "released", "lapsed"} {
			try("hold "+id, 1, func(l *ledger.Ledger) {
				_, err := l.Hold(b.ctx, hold(id))
				b.refused(err, ledger.Duplicate)
			})
		}
		try("settle released", 1, func(l *ledger.Ledger) {
			_, err := l.Settle(b.ctx, settleOp(perm, "released", 5))
			b.refused(err, ledger.Conflict)
		})
		try("settle lapsed", 1, func(l *ledger.Ledger) {
			must.Get(l.Settle(b.ctx, settleOp(perm, "lapsed", 5)))(b)
			burned += 5
		})
		must.Get(b.Hold(b.ctx, hold("held")))(b)
		l := open2(b, st)
		must.Get(l.Settle(b.ctx, settleOp(perm, "before held", 1)))(b)
		_, err = l.Hold(b.ctx, hold("held"))
		b.refused(err, ledger.InFlight)
		must.Get(l.Settle(b.ctx, settleOp(perm, "held", 5)))(b)
		b.balance(100-burned-6, 0)
	})
}

// TestQuick_SettledElsewhere: of a hold that this writer remembers, and that another one has settled, released or let lapse since,
// this one decides nothing from memory.
func TestQuick_SettledElsewhere(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		other := open2(b, st)
		b.mint(100, time.Time{})
		perm := b.permission(0)
		account := ledger.NewAccountID(plan, subscriber)
		held := func() string {
			t.Helper()
			h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
			return h.RequestID
		}
		id := held()
		first, err := other.Settle(b.ctx, settleOp(perm, id, 5))
		must.Do(b, err)
		again := must.Get(b.Settle(b.ctx, settleOp(perm, id, 5)))(b)
		if !again.Replayed || again.Transaction != first.Transaction {
			t.Errorf("%+v is no repeat of %+v", again, first)
		}
		b.balance(95, 0)

		id = held()
		must.Get(other.Settle(b.ctx, settleOp(perm, id, 5)))(b)
		_, err = b.Release(b.ctx, account, id)
		b.refused(err, ledger.SettledAlready)
		b.balance(90, 0)

		id = held()
		must.Get(other.Release(b.ctx, account, id))(b)
		_, err = b.Settle(b.ctx, settleOp(perm, id, 5))
		b.refused(err, ledger.Conflict)
		b.balance(90, 0)

		// Neither does the other one when it takes the id for new, and this one files it before the other commits.
		must.Get(other.Settle(b.ctx, settleOp(perm, "there", 1)))(b)
		var filed sync.Once
		ledger.SetFailpoint(other, func(at string) {
			if at == "decided" && st.Engine() == store.Postgres {
				filed.Do(func() {
					must.Get(b.Settle(b.ctx, settleOp(perm, "late", 1)))(b)
				})
			}
		})
		s := must.Get(other.Settle(b.ctx, settleOp(perm, "late", 1)))(b)
		if s.Replayed != (st.Engine() == store.Postgres) {
			t.Errorf("replayed: %v", s.Replayed)
		}
		b.balance(88, 0)
	})
}

// TestQuick_ManyStale: two writers that share many accounts do not try in vain for each batch.
func TestQuick_ManyStale(t *testing.T) {
	st, _ := storetest.Open(t, store.Postgres)
	b := open(t, st)
	other := open2(b, st)
	const accounts = 40
	settle := func(l *ledger.Ledger, i int, perm toll.Hash) {
		t.Helper()
		op := settleOp(perm, "", 1)
		op.Subscriber = crowdAddress(i)
		must.Get(l.Settle(b.ctx, op))(b)
	}
	var perms [accounts]toll.Hash
	for i := range perms {
		perms[i] = crowdAccount(b, i, 100)
		settle(other, i, perms[i])
		settle(b.Ledger, i, perms[i])
	}
	w := watchWays(other)
	for i := range perms {
		settle(other, i, perms[i])
	}
	// After failures 1 to 5 none, 2, 6, 14 and 30 batches are read.
	if n := w.recalled.Load(); n != 5 {
		t.Errorf("%d of %d batches were tried from memory, want 5", n, accounts)
	}
	b.clock.add(2 * time.Minute) // nothing is mistrusted any more
	for range 20 {
		settle(other, 0, perms[0])
	}
	w.recalled.Store(0)
	for range 3 {
		settle(other, 0, perms[0])
	}
	if n := w.recalled.Load(); n != 3 {
		t.Errorf("%d of 3 batches were tried from memory after a success, want all", n)
	}
}
