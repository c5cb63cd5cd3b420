package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// The crash tests run this test binary again as a child that kills itself at a failpoint, and look at what it left.
const (
	envPoint    = "TOLL_CRASH_POINT"
	envAct      = "TOLL_CRASH_ACT"
	envData     = "TOLL_CRASH_DATA"
	envDatabase = "TOLL_CRASH_DATABASE"
	envPerm     = "TOLL_CRASH_PERMISSION"
	envRequest  = "TOLL_CRASH_REQUEST"
)

func TestMain(m *testing.M) {
	if point := os.Getenv(envPoint); point != "" {
		crashChild(point)
		return
	}
	os.Exit(m.Run())
}

func crashChild(point string) {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Config{Data: os.Getenv(envData), Database: os.Getenv(envDatabase)})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	perm, err := toll.ParseHash(os.Getenv(envPerm))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	c := newClock()
	l := ledger.New(st, ledger.Config{Clock: c.now, MACKey: []byte("0123456789abcdef0123456789abcdef")})
	id := os.Getenv(envRequest)
	point, remembered := strings.CutPrefix(point, rememberedPoint)
	if remembered { // the account, its permission, and the hold that there may be
		_, _ = l.Settle(ctx, settleOp(perm, "before", 0))
		_, _ = l.Release(ctx, ledger.NewAccountID(plan, subscriber), "none")
		_, err := l.Settle(ctx, settleOp(perm, id, 101))
		fmt.Println(err) // it is refused, as there are 100
	}
	recalled := false
	ledger.SetFailpoint(l, func(at string) {
		recalled = recalled || at == "recalled"
		if at == point && (!remembered || recalled || point == "begin") {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	switch os.Getenv(envAct) {
	case "hold":
		_, err = l.Hold(ctx, ledger.HoldOp{
			Plan: plan, Subscriber: subscriber, Permission: perm, RequestID: id, Resource: "https://a.example/ask", Amount: 5,
			Until: c.now().Add(time.Minute),
		})
	case "settle":
		_, err = l.Settle(ctx, settleOp(perm, id, 5))
	case "release":
		_, err = l.Release(ctx, ledger.NewAccountID(plan, subscriber), id)
	case "sweep":
		c.add(time.Hour)
		_, err = l.Sweep(ctx)
	case "retain":
		c.add(500 * 24 * time.Hour)
		_, _, err = l.Retain(ctx, c.now())
	case "withdraw":
		err = l.Do(ctx, ledger.NewAccountID(plan, subscriber), func(t *ledger.Tx) error {
			_, err := t.Withdraw(id, 10, 0)
			return err
		})
	case "count":
		_, err = l.CountUsage(ctx)
	case "mint":
		_, err = l.Mint(ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: id})
	}
	fmt.Println("survived", err)
}

// crash runs one act in a child that dies at the failpoint.
func crash(t *testing.T, cfg store.Config, act, point string, perm toll.Hash, id string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envPoint+"="+point, envAct+"="+act, envData+"="+cfg.Data, envDatabase+"="+cfg.Database,
		envPerm+"="+perm.String(), envRequest+"="+id)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the child did not die at %s: %v: %s", point, err, out)
	}
}

// crashPoints are the steps of the writer. PostgreSQL gets what is written and the commit in one trip.
var crashPoints = map[storetest.Variant][]string{
	storetest.SQLite: {"begin", "locked", "decided", "written", "committed"}, storetest.Postgres: {"begin", "locked", "decided", "committed"},
}

// rememberedPoint begins the name of a step at which the writer decides from memory.
const rememberedPoint = "remembered-"

// eachCrashRemembered is eachCrash, and again with a writer that remembers the account.
func eachCrashRemembered(t *testing.T, f func(t *testing.T, point string, run func(act string, perm toll.Hash, id string), b func() *bench)) {
	eachCrash(t, f)
	eachCrashAt(t, rememberedPoint, f)
}

// eachCrash gives every act and failpoint a fresh store with 100 credits, closed while the child runs.
func eachCrash(t *testing.T, f func(t *testing.T, point string, run func(act string, perm toll.Hash, id string), b func() *bench)) {
	eachCrashAt(t, "", f)
}

func eachCrashAt(t *testing.T, way string, f func(t *testing.T, point string, run func(act string, perm toll.Hash, id string), b func() *bench)) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		for _, point := range crashPoints[v] {
			t.Run(fmt.Sprintf("%s/%s%s", v, way, point), func(t *testing.T) {
				cfg := storetest.Config(t, v)
				var st *store.Store
				var l *bench
				reopen := func() *bench {
					if l == nil {
						var err error
						if st, err = store.Open(context.Background(), cfg); err != nil {
							t.Fatal(err)
						}
						c := newClock()
						l = &bench{TB: t, Ledger: ledger.New(st, ledger.Config{Clock: c.now, MACKey: []byte("0123456789abcdef0123456789abcdef")}), clock: c, ctx: context.Background()}
					}
					return l
				}
				stop := func() {
					if l != nil {
						audit(t, l.Ledger)
						_ = l.Close(context.Background())
						_ = st.Close()
						l = nil
					}
				}
				defer stop()
				run := func(act string, perm toll.Hash, id string) {
					stop()
					crash(t, cfg, act, way+point, perm, id)
				}
				reopen().mint(100, time.Time{})
				f(t, point, run, reopen)
			})
		}
	}
}

// F01
func TestVerifyWithHoldKilled(t *testing.T) {
	t.Parallel()
	eachCrashRemembered(t, func(t *testing.T, point string, run func(string, toll.Hash, string), b func() *bench) {
		perm := b().permission(50)
		run("hold", perm, "r1")
		r, err := b().Request(context.Background(), ledger.NewAccountID(plan, subscriber), "r1")
		switch {
		case errors.Is(err, store.ErrNotFound) && point != "committed":
			b().balance(100, 0)
		case err == nil && r.State == ledger.StateHeld && point == "committed":
			b().balance(100, 5)
			b().clock.add(time.Hour)
			must.Get(b().Sweep(context.Background()))(t)
			b().balance(100, 0)
		default:
			t.Fatalf("after %s: %v, %v", point, r.State, err)
		}
	})
}

// F02
func TestSettleKilled(t *testing.T) {
	t.Parallel()
	eachCrashRemembered(t, func(t *testing.T, point string, run func(string, toll.Hash, string), b func() *bench) {
		perm := b().permission(0)
		op := b().holdOp(perm, 5)
		op.RequestID = "r1"
		must.Get(b().Hold(context.Background(), op))(b())
		run("settle", perm, "r1")
		first := must.Get(b().Settle(context.Background(), settleOp(perm, "r1", 5)))(b())
		if first.Replayed != (point == "committed") {
			t.Fatalf("after %s the retry was replayed: %v", point, first.Replayed)
		}
		again := must.Get(b().Settle(context.Background(), settleOp(perm, "r1", 5)))(b())
		if string(again.Answer) != string(first.Answer) {
			t.Fatalf("%s and %s", again.Answer, first.Answer)
		}
		b().balance(95, 0)
	})
}

// F06
func TestReleaseAndSweepKilled(t *testing.T) {
	t.Parallel()
	for _, act := range []string{"release", "sweep"} {
		t.Run(act, func(t *testing.T) {
			eachCrash(t, func(t *testing.T, point string, run func(string, toll.Hash, string), b func() *bench) {
				perm := b().permission(0)
				op := b().holdOp(perm, 5)
				op.RequestID = "r1"
				must.Get(b().Hold(context.Background(), op))(b())
				run(act, perm, "r1")
				b().clock.add(time.Hour)
				var wg sync.WaitGroup
				for range 2 { // two sweepers
					wg.Go(func() { _, _ = b().Sweep(context.Background()) })
				}
				wg.Wait()
				b().balance(100, 0)
			})
		})
	}
}

func TestMintKilled(t *testing.T) {
	t.Parallel()
	eachCrash(t, func(t *testing.T, _ string, run func(string, toll.Hash, string), b func() *bench) {
		run("mint", toll.Hash{}, "order-1")
		must.Get(b().Mint(context.Background(), ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: "order-1"}))(b())
		b().balance(105, 0)
	})
}

// TestGroupCommit puts a poisoned operation and a cancelled caller among others.
// F03
func TestGroupCommit(t *testing.T) { testGroupCommit(t, false) }

// TestGroupCommit_Remembered does so with a writer that remembers the account.
// F03
func TestGroupCommit_Remembered(t *testing.T) { testGroupCommit(t, true) }

func testGroupCommit(t *testing.T, remembered bool) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		if !remembered {
			ledger.SetMemory(b.Ledger, 0)
		}
		release := make(chan struct{})
		var once sync.Once
		entered := make(chan struct{})
		recalled := false
		ledger.SetFailpoint(b.Ledger, func(at string) {
			recalled = recalled || at == "recalled"
			if at == "begin" {
				once.Do(func() { close(entered); <-release })
			}
		})
		first := make(chan error, 1)
		go func() { _, err := b.Settle(b.ctx, settleOp(perm, "first", 1)); first <- err }()
		<-entered // the writer is busy: what comes now waits for one batch
		results := make(chan error, 10)
		for i := range 10 {
			go func() { _, err := b.Settle(b.ctx, settleOp(perm, fmt.Sprint("r", i), 1)); results <- err }()
		}
		poisoned := make(chan error, 1)
		go func() {
			op := settleOp(perm, "poison", 1)
			op.Render = func(ledger.Receipt) []byte { panic("poisoned") }
			_, err := b.Settle(b.ctx, op)
			poisoned <- err
		}()
		ctx, cancel := context.WithCancel(b.ctx)
		gone := make(chan error, 1)
		go func() { _, err := b.Settle(ctx, settleOp(perm, "gone", 1)); gone <- err }()
		for b.Waiting() < 12 {
			time.Sleep(time.Millisecond)
		}
		cancel()
		if err := <-gone; !errors.Is(err, ledger.ErrUnknownOutcome) {
			t.Errorf("a cancelled caller got %v", err)
		}
		close(release)
		must.Check(t, <-first)
		for range 10 {
			must.Check(t, <-results)
		}
		if err := <-poisoned; err == nil {
			t.Error("the poisoned operation passed")
		}
		b.balance(89, 0)
		if recalled != remembered {
			t.Errorf("decided from memory: %v", recalled)
		}
		if _, err := b.Request(b.ctx, ledger.NewAccountID(plan, subscriber), "gone"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the operation of the caller who had gone: %v", err)
		}
	})
}

// TestQueueIsBounded fills the queue while the store stands still.
// F15
func TestQueueIsBounded(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		l := ledger.New(st, ledger.Config{MACKey: []byte("0123456789abcdef"), QueueSize: 4})
		release := make(chan struct{})
		entered := make(chan struct{})
		var once sync.Once
		ledger.SetFailpoint(l, func(at string) {
			if at == "begin" {
				once.Do(func() { close(entered); <-release })
			}
		})
		mint := func(ref string) error {
			_, err := l.Mint(context.Background(), ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 1, Ref: ref})
			return err
		}
		results := make(chan error, 5)
		go func() { results <- mint("m0") }()
		<-entered
		for i := range 4 {
			go func() { results <- mint(fmt.Sprint("m", i+1)) }()
		}
		for l.Waiting() < 4 {
			time.Sleep(time.Millisecond)
		}
		if err := mint("too many"); !errors.Is(err, ledger.ErrBusy) {
			t.Errorf("got %v, want %v", err, ledger.ErrBusy)
		}
		close(release)
		for range 5 {
			must.Check(t, <-results)
		}
		a, err := l.Account(context.Background(), ledger.NewAccountID(plan, subscriber))
		if err != nil || a.Balance != 5 {
			t.Errorf("balance %d, %v", a.Balance, err)
		}
		must.Check(t, l.Close(context.Background()))
		if err := mint("late"); !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("got %v, want %v", err, ledger.ErrClosed)
		}
	})
}
