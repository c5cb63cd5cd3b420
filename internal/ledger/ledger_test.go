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

var (
	plan       = toll.PlanID("11")
	subscriber = toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	start      = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

// clock is set by the test.
type clock struct{ us atomic.Int64 }

func newClock() *clock               { c := &clock{}; c.us.Store(start.UnixMicro()); return c }
func (c *clock) now() time.Time      { return time.UnixMicro(c.us.Load()).UTC() }
func (c *clock) add(d time.Duration) { c.us.Add(d.Microseconds()) }

type bench struct {
	testing.TB
	*ledger.Ledger
	clock *clock
	ctx   context.Context
	other *ledger.Ledger // takes turns with the embedded one in the model test; nil: none
}

// open starts a ledger whose invariants are checked when the test ends.
func open(t testing.TB, st *store.Store) *bench {
	t.Helper()
	c := newClock()
	l := ledger.New(st, ledger.Config{Clock: c.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	t.Cleanup(func() {
		audit(t, l)
		must.Check(t, l.Close(context.Background()))
	})
	return &bench{TB: t, Ledger: l, clock: c, ctx: context.Background()}
}

// funded opens a ledger whose subscriber has 100 credits and a permission without a limit.
func funded(t testing.TB, st *store.Store) (*bench, toll.Hash) {
	t.Helper()
	b := open(t, st)
	b.mint(100, time.Time{})
	return b, b.permission(0)
}

func audit(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	found, err := l.Audit(context.Background())
	must.Check(t, err)
	for _, f := range found {
		t.Error(f)
	}
}

func (b *bench) refused(err error, kind ledger.Refused) {
	b.Helper()
	if !ledger.IsRefused(err, kind) {
		b.Fatalf("got %v, want the refusal %q", err, kind)
	}
}

func (b *bench) mint(n toll.Credits, end time.Time) ledger.Minted {
	b.Helper()
	m, err := b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: n, EndsAt: end, Ref: toll.NewUUID(), Order: true})
	must.Do(b, err)
	return m
}

func (b *bench) permission(limit toll.Credits) toll.Hash {
	b.Helper()
	p := ledger.Permission{
		Hash: toll.NewHash(), Plan: plan, Subscriber: subscriber, Scheme: "svc:erc4337", Network: "eip155:84532",
		CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(24 * time.Hour),
	}
	if limit > 0 {
		p.RedemptionLimit = &limit
	}
	must.Do(b, b.CreatePermission(b.ctx, p))
	return p.Hash
}

func (b *bench) holdOp(perm toll.Hash, n toll.Credits) ledger.HoldOp {
	return ledger.HoldOp{
		Plan: plan, Subscriber: subscriber, Permission: perm, Resource: "https://a.example/ask", Amount: n,
		Until: b.clock.now().Add(time.Minute),
	}
}

func settleOp(perm toll.Hash, id string, n toll.Credits) ledger.SettleOp {
	op := ledger.SettleOp{
		Plan: plan, Subscriber: subscriber, Permission: perm, RequestID: id, Resource: "https://a.example/ask", Amount: n,
		Render: render,
	}
	op.Content = [32]byte{byte(n), byte(n >> 8), 1}
	return op
}

func render(r ledger.Receipt) []byte {
	return fmt.Appendf(nil, `{"transaction":%q,"amount":"%d","balance":"%d","id":%q}`, r.Transaction, r.Amount, r.Balance, r.RequestID)
}

func (b *bench) balance(balance, held toll.Credits) {
	b.Helper()
	a := must.Get(b.Account(b.ctx, ledger.NewAccountID(plan, subscriber)))(b)
	if a.Balance != balance || a.Held != held {
		b.Fatalf("balance %d, held %d; want %d, %d", a.Balance, a.Held, balance, held)
	}
}

func TestPaidCall(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		h, err := b.Hold(b.ctx, b.holdOp(perm, 10))
		must.Do(b, err)
		b.balance(100, 10)
		first := must.Get(b.Settle(b.ctx, settleOp(perm, h.RequestID, 3)))(b)
		b.balance(97, 0)
		again := must.Get(b.Settle(b.ctx, settleOp(perm, h.RequestID, 3)))(b)
		if !again.Replayed || string(again.Answer) != string(first.Answer) {
			t.Fatalf("replay is %s, first was %s", again.Answer, first.Answer)
		}
		_, err = b.Settle(b.ctx, settleOp(perm, h.RequestID, 4))
		b.refused(err, ledger.Conflict)
		_, err = b.Release(b.ctx, ledger.NewAccountID(plan, subscriber), h.RequestID)
		b.refused(err, ledger.SettledAlready)
		op := b.holdOp(perm, 1)
		op.RequestID = h.RequestID
		_, err = b.Hold(b.ctx, op)
		b.refused(err, ledger.Duplicate)
		r := must.Get(b.RequestByTransaction(b.ctx, first.Transaction))(b)
		if r.ID != h.RequestID || r.Amount != 3 || r.Held != 10 {
			t.Fatalf("found %+v", r)
		}
		uses := must.Get(b.PermissionUses(b.ctx, r.Account, perm, 10))(b)
		if len(uses) != 1 || uses[0].Transaction != first.Transaction {
			t.Fatalf("uses are %+v", uses)
		}
	})
}

func TestMintIsReplayedByItsRef(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		op := ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: "order-1", Order: true}
		first, err := b.Mint(b.ctx, op)
		must.Do(b, err)
		again := must.Get(b.Mint(b.ctx, op))(b)
		if !again.Replayed || again.Transaction != first.Transaction {
			t.Fatalf("got %+v after %+v", again, first)
		}
		op.Amount = 6
		_, err = b.Mint(b.ctx, op)
		b.refused(err, ledger.Conflict)
		_, err = b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: "order-2", FirstOnly: true})
		b.refused(err, ledger.NotFirst)
		b.balance(5, 0)
	})
}

// T42
func TestLedger_Overflow(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(toll.MaxCredits, time.Time{})
		_, err := b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 1, Ref: "one"})
		b.refused(err, ledger.Overflow)
		perm := b.permission(0)
		must.Get(b.Hold(b.ctx, b.holdOp(perm, toll.MaxCredits-1)))(b)
		_, err = b.Hold(b.ctx, b.holdOp(perm, toll.MaxCredits-1))
		b.refused(err, ledger.Insufficient)
		b.balance(toll.MaxCredits, toll.MaxCredits-1)
		limited := b.permission(toll.MaxCredits)
		must.Get(b.Hold(b.ctx, b.holdOp(limited, 1)))(b)
		_, err = b.Hold(b.ctx, b.holdOp(limited, toll.MaxCredits))
		b.refused(err, ledger.RedemptionLimit)
	})
}

// T46
func TestBurnOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		soon := b.clock.now().Add(time.Hour)
		b.mint(10, time.Time{}) // lot 1, never ends
		b.mint(10, soon)        // lot 2
		b.mint(10, soon)        // lot 3, ends together with lot 2
		perm := b.permission(0)
		for i, want := range [][]toll.Credits{{10, 3, 10}, {10, 0, 6}, {9, 0, 0}} {
			must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 7)))(b)
			lots := must.Get(b.Lots(b.ctx, ledger.NewAccountID(plan, subscriber)))(b)
			left := make([]toll.Credits, 3)
			for _, l := range lots {
				left[l.ID-1] = l.Remaining
			}
			if fmt.Sprint(left) != fmt.Sprint(want) {
				t.Fatalf("after burn %d the lots have %v, want %v", i+1, left, want)
			}
		}
	})
}

// T47
func TestExpiryUnderHold(t *testing.T) {
	for _, settles := range []bool{true, false} {
		storetest.Each(t, func(t *testing.T, st *store.Store) {
			b := open(t, st)
			b.mint(10, b.clock.now().Add(10*time.Second))
			perm := b.permission(0)
			h, err := b.Hold(b.ctx, b.holdOp(perm, 4))
			must.Do(b, err)
			b.clock.add(11 * time.Second)
			id := ledger.NewAccountID(plan, subscriber)
			must.Do(b, b.Touch(b.ctx, id))
			b.balance(4, 4)
			// What the hold keeps gives nobody anything to do before the hold ends.
			n := must.Get(b.Sweep(b.ctx))(b)
			if n != 0 {
				t.Fatalf("swept %d accounts while the hold runs", n)
			}
			_, err = b.Settle(b.ctx, settleOp(perm, "other", 1))
			b.refused(err, ledger.Insufficient)
			if settles {
				must.Get(b.Settle(b.ctx, settleOp(perm, h.RequestID, 4)))(b)
			} else {
				b.clock.add(time.Minute)
				n := must.Get(b.Sweep(b.ctx))(b)
				if n != 1 {
					t.Fatalf("swept %d accounts", n)
				}
			}
			b.balance(0, 0)
			a := must.Get(b.Account(b.ctx, id))(b)
			want := toll.Credits(6)
			if !settles {
				want = 10
			}
			if a.Expired != want || a.Seq != 3 {
				t.Fatalf("expired %d with %d entries, want %d with 3", a.Expired, a.Seq, want)
			}
		})
	}
}

// T48
func TestClockSetBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(10, b.clock.now().Add(time.Minute))
		b.clock.add(2 * time.Minute)
		id := ledger.NewAccountID(plan, subscriber)
		must.Do(b, b.Touch(b.ctx, id))
		b.clock.add(-2 * time.Hour)
		must.Do(b, b.Touch(b.ctx, id))
		b.balance(0, 0)
		a := must.Get(b.Account(b.ctx, id))(b)
		if a.Expired != 10 || a.Seq != 2 {
			t.Fatalf("expired %d with %d entries, want 10 with 2", a.Expired, a.Seq)
		}
	})
}

// T31
func TestLapseAgainstSettle(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		b.mint(1000, time.Time{})
		id := ledger.NewAccountID(plan, subscriber)
		for i := range 100 {
			h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
			b.clock.add(time.Minute + time.Duration(i%21-10)*100*time.Microsecond)
			var wg sync.WaitGroup
			wg.Add(2)
			var settleErr error
			go func() { defer wg.Done(); _ = b.Touch(b.ctx, id) }()
			go func() { defer wg.Done(); _, settleErr = b.Settle(b.ctx, settleOp(perm, h.RequestID, 5)) }()
			wg.Wait()
			must.Do(b, settleErr) // a late settle is honoured while the credits are there
			b.balance(toll.Credits(1000-5*(i+1)), 0)
		}
	})
}

// T30
func TestReleaseAgainstSettle(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		perm := b.permission(0)
		b.mint(1000, time.Time{})
		burned := toll.Credits(0)
		for range 100 {
			h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
			var wg sync.WaitGroup
			wg.Add(2)
			var settleErr, releaseErr error
			go func() { defer wg.Done(); _, settleErr = b.Settle(b.ctx, settleOp(perm, h.RequestID, 5)) }()
			go func() {
				defer wg.Done()
				_, releaseErr = b.Release(b.ctx, ledger.NewAccountID(plan, subscriber), h.RequestID)
			}()
			wg.Wait()
			switch {
			case settleErr == nil && ledger.IsRefused(releaseErr, ledger.SettledAlready):
				burned += 5
			case releaseErr == nil && ledger.IsRefused(settleErr, ledger.Conflict):
			default:
				t.Fatalf("settle: %v, release: %v", settleErr, releaseErr)
			}
			b.balance(1000-burned, 0)
		}
	})
}

// T32
func TestHoldExhaustion(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(1000, time.Time{})
		perms := []toll.Hash{b.permission(0), b.permission(0), b.permission(0), b.permission(0), b.permission(0)}
		for i, perm := range perms {
			for n := range ledger.MaxHoldsPerPermission + 1 {
				_, err := b.Hold(b.ctx, b.holdOp(perm, 1))
				if i == 4 || n == ledger.MaxHoldsPerPermission {
					b.refused(err, ledger.TooManyHolds)
					break
				}
				must.Do(b, err)
			}
		}
		b.balance(1000, ledger.MaxHoldsPerAccount)
		b.clock.add(time.Hour)
		must.Get(b.Sweep(b.ctx))(t)
		b.balance(1000, 0)
	})
}

// T52
func TestManyLots(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		const lots, writers = 10_000, 500
		var wg sync.WaitGroup
		var failed atomic.Int64
		for w := range writers {
			wg.Go(func() {
				for i := range lots / writers {
					end := start.Add(time.Duration(24*(i%7+1)) * time.Hour)
					if _, err := b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 3, EndsAt: end, Ref: fmt.Sprint(w, "-", i)}); err != nil {
						failed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if failed.Load() > 0 {
			t.Fatalf("%d mints failed", failed.Load())
		}
		perm := b.permission(0)
		for i := range 1000 {
			must.Get(b.Settle(b.ctx, settleOp(perm, fmt.Sprint("s", i), 5)))(b)
		}
		b.balance(3*lots-5000, 0)
		must.Get(b.Settle(b.ctx, settleOp(perm, "across", 2*lots)))(b) // a burn over thousands of lots
		b.balance(3*lots-5000-2*lots, 0)
		b.clock.add(8 * 24 * time.Hour)
		must.Do(b, b.Touch(b.ctx, ledger.NewAccountID(plan, subscriber)))
		b.balance(0, 0)
	})
}

func TestNonceNamesOneRequest(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		op := b.holdOp(perm, 5)
		op.Keys = []string{"n:one", "p:pay"}
		h, err := b.Hold(b.ctx, op)
		must.Do(b, err)
		_, err = b.Hold(b.ctx, op)
		b.refused(err, ledger.InFlight)
		s := settleOp(perm, "", 5)
		s.Keys = []string{"n:one"}
		first := must.Get(b.Settle(b.ctx, s))(b)
		if first.RequestID != h.RequestID {
			t.Fatalf("the nonce named %s, the hold was %s", first.RequestID, h.RequestID)
		}
		s.Keys = []string{"p:pay", "n:fresh"}
		again := must.Get(b.Settle(b.ctx, s))(b)
		if !again.Replayed {
			t.Fatal("the payment identifier did not find the settlement")
		}
		_, err = b.Hold(b.ctx, op)
		b.refused(err, ledger.Duplicate)
		s.RequestID = "another"
		_, err = b.Settle(b.ctx, s)
		b.refused(err, ledger.Conflict)
		b.balance(95, 0)
	})
}

func TestHotAccountBurnsExactly(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(20, time.Time{})
		perm := b.permission(0)
		var ok, refused atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				_, err := b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 1))
				switch {
				case err == nil:
					ok.Add(1)
				case ledger.IsRefused(err, ledger.Insufficient):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if ok.Load() != 20 || refused.Load() != 44 {
			t.Fatalf("%d burned, %d refused", ok.Load(), refused.Load())
		}
		b.balance(0, 0)
	})
}

// Two processes share one database: neither deadlocks, and one id burns once.
func TestTwoLedgersOneDatabase(t *testing.T) {
	st, cfg := storetest.OpenVariant(t, storetest.Postgres)
	other := storetest.OpenConfig(t, cfg)
	b, c := open(t, st), open(t, other)
	perm := b.permission(0)
	b.mint(1000, time.Time{})
	answers := make(chan string, 200)
	var wg sync.WaitGroup
	for i := range 200 {
		l := b.Ledger
		if i%2 == 1 {
			l = c.Ledger
		}
		wg.Go(func() {
			s, err := l.Settle(context.Background(), settleOp(perm, "one", 7))
			must.Check(t, err)
			answers <- string(s.Answer)
		})
	}
	wg.Wait()
	close(answers)
	want := <-answers
	for a := range answers {
		if a != want {
			t.Fatalf("%s and %s", a, want)
		}
	}
	b.balance(993, 0)
	for i := range 200 {
		l := b.Ledger
		if i%2 == 1 {
			l = c.Ledger
		}
		wg.Go(func() {
			p := toll.PlanID(fmt.Sprint(100 + i%10))
			if _, err := l.Mint(context.Background(), ledger.MintOp{Plan: p, Subscriber: subscriber, Amount: 1, Ref: fmt.Sprint("m", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestRequestIDs(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	b := open(t, st)
	id := ledger.NewAccountID(plan, subscriber)
	last := ""
	for range 100 {
		b.clock.add(time.Millisecond)
		r := b.NewRequestID(id)
		if got, ours := b.AccountOfRequestID(r); !ours || got != id {
			t.Fatalf("%s is of account %s, ours %v", r, got, ours)
		}
		if r <= last {
			t.Fatalf("%s does not sort after %s", r, last)
		}
		last = r
	}
	for i := len(ledger.RequestPrefix); i < len(last); i++ {
		forged := []byte(last)
		if forged[i]++; forged[i] > 'v' {
			forged[i] = '0'
		}
		if _, ours := b.AccountOfRequestID(string(forged)); ours {
			t.Fatalf("%s passes for ours", forged)
		}
	}
}
