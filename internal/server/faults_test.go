package server_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// tally keeps what became of requests, by id.
type tally struct {
	mu      sync.Mutex
	answers map[string]string // settled: id to transaction
	unknown map[string]bool   // no answer, or one that says to repeat
	refused []string          // anything else
}

func newTally() *tally { return &tally{answers: map[string]string{}, unknown: map[string]bool{}} }

func (y *tally) add(id string, res *x402.SettleResponse, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	var e *toll.Error
	switch {
	case err == nil && res.Success:
		y.answers[id] = res.Transaction
		delete(y.unknown, id)
	case err == nil && res.ErrorReason == x402.ReasonPending:
		y.unknown[id] = true
	case err == nil:
		y.refused = append(y.refused, fmt.Sprintf("%s: %s %s", id, res.Code, res.ErrorMessage))
	case errors.As(err, &e) && e.HTTPStatus() == http.StatusServiceUnavailable:
		y.unknown[id] = true
	default:
		y.refused = append(y.refused, fmt.Sprintf("%s: %v", id, err))
	}
}

// ended is how many requests are over.
func (y *tally) ended() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.answers) + len(y.unknown) + len(y.refused)
}

// settled is how many requests have an answer.
func (y *tally) settled() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.answers)
}

// repeat settles what is unknown again, and everything that was answered, and compares.
func (y *tally) repeat(t *testing.T, c *stand) {
	t.Helper()
	for _, r := range y.refused {
		t.Errorf("refused: %s", r)
	}
	settled := map[string]string{}
	for id, tx := range y.answers {
		settled[id] = tx
	}
	for id := range y.unknown {
		settled[id] = ""
	}
	for id, tx := range settled {
		res, err := c.patient.settle(t.Context(), id)
		if err != nil || !res.Success || tx != "" && res.Transaction != tx {
			t.Fatalf("repeat of %s: %+v %v, first %s", id, res, err, tx)
		}
	}
	b := c.balance(t)
	if int(b.Used) != len(settled) || b.Held != 0 || b.Balance != b.Total-b.Used {
		t.Errorf("%d requests, and %v burned, %v held, %v of %v left", len(settled), b.Used, b.Held, b.Balance, b.Total)
	}
}

// load settles with n workers, each request with an id of its own, until ctx ends.
func load(ctx context.Context, n int, y *tally, c func(worker int) *stand) (running *sync.WaitGroup, done *atomic.Int64) {
	running, done = new(sync.WaitGroup), new(atomic.Int64)
	for worker := range n {
		running.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", worker, i)
				res, err := c(worker).settle(context.WithoutCancel(ctx), id)
				y.add(id, res, err)
				done.Add(1)
				if err != nil {
					time.Sleep(5 * time.Millisecond) // nothing listens for a moment
				}
			}
		})
	}
	return running, done
}

// F22
func TestShutdownUnderLoad(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
		p := servertest.Start(t, o)
		c := newStand(t, p.URL, builder, subscriber, 1_000_000)
		y := newTally()
		ctx, stop := context.WithCancel(t.Context())
		running, _ := load(ctx, 32, y, func(int) *stand { return c })
		eventually(t, "load", func() bool { return y.settled() > 300 })
		began := time.Now()
		must.Do(t, p.Signal(syscall.SIGTERM))
		code, err := p.Wait(patience)
		took := time.Since(began)
		stop()
		running.Wait()
		if err != nil || code != 0 {
			t.Fatalf("exit %d after %v: %v\n%s", code, took, err, p.Log)
		}
		// Who found the door closed, or stood in it, has no answer and repeats.
		t.Logf("ended in %v: %d answered, %d to repeat", took, len(y.answers), len(y.unknown))
		if len(y.answers) < 300 {
			t.Errorf("only %d answers", len(y.answers))
		}
		again := servertest.Start(t, o)
		y.repeat(t, c.on(again.URL, builder, subscriber))
	})
}

// What is in flight when the signal comes is answered, also when the store keeps it waiting. A standstill that is longer than what a
// shutdown may take proves nothing, so it may be tried three times.
// F22
func TestInFlightIsAnswered(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		const calls = 48
		builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
		metrics := servertest.FreeAddress(t)
		o.Args = []string{"--metrics-listen", metrics}
		attempt := func() error {
			p := servertest.Start(t, o)
			c := newStand(t, p.URL, builder, subscriber, 1000)
			y := newTally()
			if res, err := c.patient.settle(t.Context(), "warm"); err != nil || !res.Success { // what it reads is in memory now
				t.Fatalf("%+v %v", res, err)
			}
			unlock := lockStore(t, o)
			var running sync.WaitGroup
			for i := range calls {
				running.Go(func() {
					id := fmt.Sprintf("r%d", i)
					res, err := c.settle(t.Context(), id)
					y.add(id, res, err)
				})
			}
			inFlight := fmt.Sprintf("toll_http_requests_in_flight %d\n", calls)
			eventually(t, "all are in flight", func() bool { // or the store was away for too long
				return strings.Contains(metricsAt(t, "http://"+metrics), inFlight) || y.ended() > 0
			})
			must.Do(t, p.Signal(syscall.SIGTERM))
			eventually(t, "nobody else is let in", func() bool {
				conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
				if err == nil {
					_ = conn.Close()
				}
				return err != nil
			})
			unlock()
			running.Wait()
			code, err := p.Wait(patience)
			if err != nil {
				t.Fatalf("%v\n%s", err, p.Log)
			}
			answered := len(y.answers)
			y.answers["warm"] = ""
			again := servertest.Start(t, o)
			defer again.Kill()
			y.repeat(t, c.on(again.URL, builder, subscriber))
			if code != 0 || answered != calls {
				return fmt.Errorf("exit %d, and %d of %d were answered\n%s", code, answered, calls, p.Log)
			}
			return nil
		}
		thrice(t, attempt)
	})
}

// F22
func TestRollingRestart(t *testing.T) {
	oneAfterTheOther(t, func(p *servertest.Process) {
		must.Do(t, p.Signal(syscall.SIGTERM))
		if code, err := p.Wait(patience); err != nil || code != 0 {
			t.Fatalf("exit %d: %v\n%s", code, err, p.Log)
		}
	})
}

// One of two processes is killed under load, then the other one. Each time the one that is left goes on answering.
// F02
func TestOneOfTwoKilled(t *testing.T) {
	oneAfterTheOther(t, (*servertest.Process).Kill)
}

// oneAfterTheOther ends and starts two processes on one database under load, and compares the answers with the books.
func oneAfterTheOther(t *testing.T, end func(p *servertest.Process)) {
	t.Helper()
	cfg := storetest.Config(t, storetest.Postgres)
	o := servertest.Options{Database: cfg.Database, MasterKeyFile: freshMasterKey(t)}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	var mu sync.Mutex
	processes := []*servertest.Process{servertest.Start(t, o), servertest.Start(t, o)}
	c := newStand(t, processes[0].URL, builder, subscriber, 1_000_000)
	stands := []*stand{c, c.on(processes[1].URL, builder, subscriber)}
	y := newTally()
	ctx, stop := context.WithCancel(t.Context())
	running, _ := load(ctx, 16, y, func(worker int) *stand {
		mu.Lock()
		defer mu.Unlock()
		return stands[worker%2]
	})
	answers := func(what string) {
		t.Helper()
		target := y.settled() + 200
		eventually(t, "answers "+what, func() bool { return y.settled() > target })
	}
	for i := range processes {
		answers("of both")
		end(processes[i])
		answers("of the other one")
		p := servertest.Start(t, o)
		mu.Lock()
		processes[i], stands[i] = p, c.on(p.URL, builder, subscriber)
		mu.Unlock()
	}
	answers("after both")
	stop()
	running.Wait()
	y.repeat(t, stands[0])
}

// F23: a start with many holds that ended meanwhile is ready soon, and works them off beside its callers.
// F23
func TestStartWithManyDueHolds(t *testing.T) {
	const accounts, holds = 600, 10
	servertest.Program(t)
	var o servertest.Options
	var p *servertest.Process
	thrice(t, func() error {
		o = servertest.Options{Data: storetest.Dir(t)}
		seedHolds(t, server.Config{Data: o.Data}, time.Now().Add(-time.Hour), accounts, holds)
		began := time.Now()
		p = servertest.Start(t, o)
		if took := time.Since(began); took > 30*time.Second {
			return fmt.Errorf("ready after %v", took)
		}
		return nil
	})
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	c := newStand(t, p.URL, builder, subscriber, 10)
	if res, err := c.settle(t.Context(), "one"); err != nil || !res.Success {
		t.Errorf("settle beside the backlog: %+v %v", res, err)
	}
	st := must.Get(store.Open(t.Context(), store.Config{Data: o.Data, Admin: true}))(t)
	defer st.Close()
	eventually(t, "every due hold has lapsed", func() bool {
		var open int64
		must.Do(t, st.QueryRow(t.Context(), "SELECT COALESCE(SUM(held), 0) FROM accounts").Scan(&open))
		return open == 0
	})
}

// seedHolds leaves holds on a database, as a service did that worked in the past and was gone when they ended.
func seedHolds(t *testing.T, cfg server.Config, past time.Time, accounts, holds int) {
	t.Helper()
	cfg.Clock = func() time.Time { return past }
	must.Get(server.CreateLocalKey(t.Context(), cfg, server.KeyRequest{Account: "seed", Init: true}))(t)
	st := must.Get(store.Open(t.Context(), store.Config{Data: cfg.Data}))(t)
	defer st.Close()
	l := ledger.New(st, ledger.Config{Clock: cfg.Clock, MACKey: make([]byte, 32)})
	plan := toll.NewPlanID()
	var running sync.WaitGroup
	failed := make(chan error, accounts)
	for i := range accounts {
		running.Go(func() {
			var buyer toll.Address
			buyer[0], buyer[1] = byte(i), byte(i>>8)
			_, err := l.Mint(t.Context(), ledger.MintOp{Plan: plan, Subscriber: buyer, Amount: 100, Ref: "seed"})
			hash := toll.NewHash()
			if err == nil {
				err = l.CreatePermission(t.Context(), ledger.Permission{
					Hash: hash, Plan: plan, Subscriber: buyer, Scheme: "svc:erc4337", Network: "eip155:84532", CreatedAt: past, ExpiresAt: past.Add(time.Hour),
				})
			}
			for range holds {
				if err == nil {
					_, err = l.Hold(t.Context(), ledger.HoldOp{Plan: plan, Subscriber: buyer, Permission: hash, Amount: 1, Until: past.Add(time.Minute)})
				}
			}
			failed <- err
		})
	}
	running.Wait()
	for range accounts {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	must.Do(t, l.Close(t.Context()))
}

// F15: a store that stands still for a while refuses nobody falsely; one that stands still for long says so, and recovers.
// F15
func TestStoreSlow(t *testing.T) {
	t.Parallel() // it mostly waits
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		s, url := start(t, server.Config{Data: o.Data, Database: o.Database, MasterKeyFile: o.MasterKeyFile})
		builder, subscriber := keys(t, s)
		c := newStand(t, url, builder, subscriber, 1000)
		// A caller who gives up does not free the store; these wait longer than it stands still.
		c.builder = client.New(builder.Key, client.WithURL(url), client.WithRetries(0), client.WithTimeout(time.Minute))
		y := newTally()
		calls := func(prefix string, n int) *sync.WaitGroup {
			var running sync.WaitGroup
			for i := range n {
				running.Go(func() {
					id := fmt.Sprintf("%s-%d", prefix, i)
					res, err := c.settle(t.Context(), id)
					y.add(id, res, err)
				})
			}
			return &running
		}

		short := 0
		thrice(t, func() error { // a standstill in the midst makes it longer than a store may stand still
			short++
			before := len(y.answers)
			unlock := lockStore(t, o)
			running := calls(fmt.Sprint("short-", short), 50)
			time.Sleep(2 * time.Second)
			unlock()
			running.Wait()
			if n := len(y.answers) - before; n != 50 {
				return fmt.Errorf("after a stop of 2 s: %d answered, %d to repeat, refused %v", n, len(y.unknown), y.refused)
			}
			return nil
		})

		unlock := lockStore(t, o)
		long := calls("long", 50)
		if o.Database == "" { // a locked table of PostgreSQL is no sign of ill health
			eventually(t, "not ready", func() bool { return status(t, url+"/ready") == http.StatusServiceUnavailable })
		}
		if got := status(t, url+"/health"); got != http.StatusOK {
			t.Errorf("health: %d", got)
		}
		time.Sleep(9 * time.Second)
		unlock()
		long.Wait()
		eventually(t, "ready", func() bool { return status(t, url+"/ready") == http.StatusOK })
		y.repeat(t, c)
	})
}

// lockStore makes every writer wait until the answer is called.
func lockStore(t *testing.T, o servertest.Options) (unlock func()) {
	t.Helper()
	ctx := context.Background()
	if o.Database == "" {
		db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(o.Data, "toll.db")+"?_pragma=busy_timeout(10000)"))(t)
		conn := must.Get(db.Conn(ctx))(t)
		must.Get(conn.ExecContext(ctx, "BEGIN IMMEDIATE"))(t)
		return func() {
			if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
				t.Error(err)
			}
			must.Check(t, errors.Join(conn.Close(), db.Close()))
		}
	}
	cfg := must.Get(pgx.ParseConfig(o.Database))(t)
	delete(cfg.RuntimeParams, "pool_max_conns")
	conn := must.Get(pgx.ConnectConfig(ctx, cfg))(t)
	tx := must.Get(conn.Begin(ctx))(t)
	must.Get(tx.Exec(ctx, "LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE"))(t)
	return func() {
		must.Check(t, errors.Join(tx.Rollback(ctx), conn.Close(ctx)))
	}
}

// F16: with a full disk nothing is acknowledged that is not on it, and the next start finds all that was.
// F16
func TestDiskFull(t *testing.T) {
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no shell with ulimit")
	}
	o := servertest.Options{Data: storetest.Dir(t)}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	listen := servertest.FreeAddress(t)
	// No file of the process may grow beyond 600 KiB: writes fail as on a full disk.
	cmd := exec.Command(shell, "-c", `ulimit -f 600; exec "$0" serve --data "$1" --listen "$2"`, servertest.Program(t), o.Data, listen)
	log := &servertest.Log{}
	cmd.Stderr = log
	cmd.Env = append(os.Environ(), "TOLL_CONFIG=", "TOLL_DATABASE=")
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }() // it is killed on purpose
	url := "http://" + listen
	eventually(t, "healthy", func() bool {
		res, err := http.Get(url + "/health")
		if err != nil {
			return false
		}
		return res.Body.Close() == nil
	})
	c := newStand(t, url, builder, subscriber, 1_000_000)
	y := newTally()
	for i := 0; len(y.unknown) < 20; i++ {
		if i == 20_000 {
			t.Fatal("the disk does not get full")
		}
		id := fmt.Sprintf("r%d", i)
		res, err := c.settle(t.Context(), id)
		y.add(id, res, err)
		if len(y.refused) > 0 {
			t.Fatalf("refused: %v\n%s", y.refused, log)
		}
	}
	if len(y.answers) == 0 {
		t.Fatal("nothing was answered before the disk was full")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	p := servertest.Start(t, o)
	y.repeat(t, c.on(p.URL, builder, subscriber))
}
