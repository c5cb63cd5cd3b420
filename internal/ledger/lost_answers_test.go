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

// TestRevokeAnsweredAfterLostCommit: the writer finds its own revocation when it tries again.
// F04
func TestRevokeAnsweredAfterLostCommit(t *testing.T) {
	lostCommit(t, func(b *bench, l *ledger.Ledger, perm toll.Hash) {
		must.Do(b, l.RevokePermission(b.ctx, plan, subscriber, perm, b.clock.now()))
		b.refused(l.RevokePermission(b.ctx, plan, subscriber, perm, b.clock.now().Add(time.Second)), ledger.PermissionRevoked)
	})
}

// TestHoldFoundWhenBatchTakenApart: after a commit whose answer was lost, the batch fails for another reason and is
// taken apart. Its members still know that they may have been committed.
// F04
func TestHoldFoundWhenBatchTakenApart(t *testing.T) {
	lostCommit(t, func(b *bench, l *ledger.Ledger, perm toll.Hash) {
		busy, begun := make(chan struct{}), make(chan struct{})
		var mu sync.Mutex
		begins := 0
		previous := ledger.Failpoint(l)
		ledger.SetFailpoint(l, func(at string) {
			mu.Lock()
			if at == "begin" {
				begins++
			}
			n := begins
			mu.Unlock()
			switch {
			case at == "begin" && n == 1:
				close(begun)
				<-busy
			case at == "begin" && n == 3:
				b.mint(5000, time.Time{}) // now the poisoned member is no longer refused
			case n >= 2:
				previous(at)
			}
		})
		go func() { _ = l.Touch(b.ctx, ledger.NewAccountID(plan, subscriber)) }()
		<-begun
		op := b.holdOp(perm, 5)
		op.RequestID = "mine"
		held := make(chan error, 1)
		go func() { _, err := l.Hold(b.ctx, op); held <- err }()
		bad := settleOp(perm, "bad", 1000)
		bad.Render = func(ledger.Receipt) []byte { panic("poison") }
		settled := make(chan error, 1)
		go func() { _, err := l.Settle(b.ctx, bad); settled <- err }()
		for l.Waiting() < 2 {
			time.Sleep(time.Millisecond)
		}
		close(busy)
		must.Do(b, <-held)
		if err := <-settled; err == nil || ledger.IsRefused(err, ledger.Insufficient) {
			t.Errorf("the poisoned settle got %v", err)
		}
	})
}

// lostCommit runs f on a ledger whose next commit loses its answer.
func lostCommit(t *testing.T, f func(b *bench, l *ledger.Ledger, perm toll.Hash)) {
	t.Helper()
	cfg := storetest.Config(t, storetest.Postgres)
	b := open(t, storetest.OpenConfig(t, cfg))
	line, behind := storetest.NewLine(t, cfg)
	through := must.Get(store.Open(context.Background(), behind))(b)
	defer through.Close()
	b.mint(100, time.Time{})
	perm := b.permission(0)
	l := ledger.New(through, ledger.Config{Clock: b.clock.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	defer func() {
		must.Check(t, l.Close(context.Background()))
	}()
	// A connection prepares its statements at their first use; only after that is a commit a single message.
	must.Get(l.Settle(b.ctx, settleOp(perm, "warm", 1)))(b)
	must.Do(b, l.RevokePermission(b.ctx, plan, subscriber, b.permission(0), b.clock.now()))
	onFirst(l, "decided", func() { line.Lose.Store(true) })
	f(b, l, perm)
}

// TestLockedAccountStopsNobodyElse: who keeps an account locked for too long stops that account, with an answer that
// says that the database was not to be had, and no other account.
// F15
func TestLockedAccountStopsNobodyElse(t *testing.T) {
	st, _ := storetest.OpenVariant(t, storetest.Postgres)
	b, perm := funded(t, st)
	must.Get(b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: otherSubscriber, Amount: 1, Ref: "first"}))(b)
	// The time of the writer is short here, and over when the machine stands still: the best of some tries counts.
	var problem string
	for try := range 5 {
		if problem = lockedAccount(b, st, perm, fmt.Sprint("try ", try, " ")); problem == "" {
			return
		}
	}
	t.Error(problem)
}

// lockedAccount has many wait for an account that is locked and one for another, and returns what went wrong.
func lockedAccount(b *bench, st *store.Store, perm toll.Hash, name string) (problem string) {
	const patience = 800 * time.Millisecond
	l := ledger.New(st, ledger.Config{Clock: b.clock.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	ledger.SetBatchTimeout(l, patience)
	defer func() { must.Do(b, l.Close(b.ctx)) }()
	id := ledger.NewAccountID(plan, subscriber)
	done, locked := make(chan struct{}), make(chan struct{})
	released := make(chan error, 1)
	var once sync.Once
	go func() {
		released <- st.Tx(b.ctx, func(tx *store.Tx) error {
			var n int64
			err := tx.QueryRow(b.ctx, "SELECT balance FROM accounts WHERE account_id = $1 FOR UPDATE", id[:]).Scan(&n)
			once.Do(func() { close(locked) })
			<-done
			return err
		})
	}()
	<-locked
	defer func() { close(done); must.Do(b, <-released) }()
	const n = 64
	errs := make(chan error, n)
	for i := range n {
		go func() { _, err := l.Settle(b.ctx, settleOp(perm, fmt.Sprint(name, i), 1)); errs <- err }()
	}
	began := time.Now()
	other := make(chan error, 1)
	go func() {
		_, err := l.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: otherSubscriber, Amount: 1, Ref: name + "second"})
		other <- err
	}()
	for range n {
		if err := <-errs; !errors.Is(err, toll.NewError(toll.CodeDatabaseUnavailable)) {
			problem = fmt.Sprintf("got %v, want %s", err, toll.CodeDatabaseUnavailable)
		}
	}
	if err := <-other; err != nil {
		problem = fmt.Sprintf("another account: %v", err)
	}
	if d := time.Since(began); d > n*patience/2 {
		problem = fmt.Sprintf("%d operations on one locked account kept the writer for %v", n, d)
	}
	return problem
}

// TestMintWithKeepsUnknownOutcome: when the answer to a commit was lost and the retry fails for another reason, the caller
// must not be told that nothing happened.
func TestMintWithKeepsUnknownOutcome(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	b := open(t, storetest.OpenConfig(t, cfg))
	line, behind := storetest.NewLine(t, cfg)
	through := must.Get(store.Open(context.Background(), behind))(b)
	defer through.Close()
	l := ledger.New(through, ledger.Config{Clock: b.clock.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	defer func() {
		must.Check(t, l.Close(context.Background()))
	}()
	// The first one prepares the statements of the commit on the connection, which takes a trip.
	must.Do(b, l.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
		_, err := t.Mint(ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 1, Ref: "first", Order: true})
		return err
	}))
	err := l.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
		_, err := t.Mint(ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 1, Ref: "order", Order: true})
		line.Lose.Store(true)
		line.Down.Store(true)
		return err
	})
	if !errors.Is(err, ledger.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v", err, ledger.ErrUnknownOutcome)
	}
	b.balance(2, 0)
}
