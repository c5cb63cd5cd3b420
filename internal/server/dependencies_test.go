package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A rail that cannot be reached stops orders, and nothing else.
// F26
func TestRailsAway(t *testing.T) {
	money := railtest.New()
	s, url := start(t, server.Config{Data: storetest.Dir(t), Rails: rails.Config{Given: rail.Rails{rail.Crypto: money}}})
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 50)
	order := func(key string) error {
		_, err := c.subscriber.OrderPlan(client.WithIdempotencyKey(t.Context(), key), c.plan)
		return err
	}
	must.Do(t, order("before"))
	money.Behave(railtest.Behaviour{Unreachable: toll.CodeChainUnreachable})
	for i := range 20 {
		if res, err := c.settle(t.Context(), fmt.Sprintf("away-%d", i)); err != nil || !res.Success {
			t.Fatalf("settle while the rail is away: %+v %v", res, err)
		}
	}
	var e *toll.Error
	if err := order("away"); !errors.As(err, &e) || e.Code != toll.CodeChainUnreachable || e.RetryAfterSecs == 0 {
		t.Fatalf("order while the rail is away: %v", err)
	}
	eventually(t, "ready, as only the database decides", func() bool { return status(t, url+"/ready") == http.StatusOK })
	before := c.balance(t).Balance
	money.Behave(railtest.Behaviour{})
	// The order that the rail kept waiting is the one that goes on, whoever sees first that the rail is back.
	eventually(t, "the order goes on", func() bool { return order("away") == nil })
	if got := c.balance(t).Balance; got != before+100 {
		t.Fatalf("balance %d, want the 100 credits of one order on %d", got, before)
	}
}

// A node that only reads acknowledges nothing, whether it is one at the start or becomes one; writes come back by themselves.
// F19
func TestReadOnlyNode(t *testing.T) {
	cfg := storetest.Config(t, storetest.Postgres)
	o := servertest.Options{Database: cfg.Database, MasterKeyFile: freshMasterKey(t)}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	p := servertest.Start(t, o)
	c := newStand(t, p.URL, builder, subscriber, 1000)
	if res, err := c.patient.settle(t.Context(), "before"); err != nil || !res.Success {
		t.Fatalf("%+v %v", res, err)
	}
	conn := must.Get(pgx.Connect(t.Context(), os.Getenv("TOLL_TEST_POSTGRES")))(t)
	defer conn.Close(context.Background())
	name := cfg.Database[strings.LastIndex(cfg.Database, "/")+1:]
	name, _, _ = strings.Cut(name, "?")
	// The node turns: connections are cut, and new ones only read.
	turn := func(mode string) {
		t.Helper()
		for _, q := range []string{
			"ALTER DATABASE " + pgx.Identifier{name}.Sanitize() + " SET default_transaction_read_only = " + mode,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "' AND pid <> pg_backend_pid()",
		} {
			must.Get(conn.Exec(t.Context(), q))(t)
		}
	}
	turn("on")
	for i := range 5 {
		res, err := c.settle(t.Context(), fmt.Sprintf("during-%d", i))
		var e *toll.Error
		if err == nil && res.Success || err != nil && (!errors.As(err, &e) || e.HTTPStatus() != http.StatusServiceUnavailable) {
			t.Fatalf("settle on a node that only reads: %+v %v", res, err)
		}
	}
	refusedToStart(t, o, "read")
	turn("off")
	eventually(t, "writes again", func() bool {
		res, err := c.settle(t.Context(), "during-0")
		return err == nil && res.Success
	})
	eventually(t, "a balance", func() bool { // connections that were cut are found one by one
		b, err := c.subscriber.Balance(t.Context(), c.plan)
		if err == nil && (b.Used != 2 || b.Balance != 998) {
			t.Fatalf("%+v, want 2 credits burned of 1000", b)
		}
		return err == nil
	})
}

// refusedToStart makes sure that no process starts, and that it says why.
func refusedToStart(t *testing.T, o servertest.Options, says string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		p := servertest.Launch(t, o)
		code, err := p.Wait(patience)
		switch {
		case err != nil || code == 0:
			t.Fatalf("exit %d, %v\n%s", code, err, p.Log)
		case strings.Contains(p.Log.String(), says):
			return
		case !servertest.NoDatabase(p.Log) || time.Now().After(end):
			t.Fatalf("it does not say %q:\n%s", says, p.Log)
		}
	}
}

// The service speaks HTTP/1.1 and nothing else: what a proxy in front makes of HTTP/2 ends there.
// T101
func TestNoHTTP2(t *testing.T) {
	s, url := start(t, server.Config{Data: storetest.Dir(t)})
	addr := strings.TrimPrefix(url, "http://")
	send := func(raw string) []byte {
		t.Helper()
		conn := must.Get(net.Dial("tcp", addr))(t)
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		must.Get(io.WriteString(conn, raw))(t)
		answer, _ := io.ReadAll(io.LimitReader(conn, 1<<16)) // a reset ends the answer as well
		return answer
	}
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if got := send(preface + strings.Repeat(settings, 1000)); !bytes.HasPrefix(got, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(got, []byte("HTTP/1.1 505")) && len(got) > 0 {
		t.Errorf("the preface of HTTP/2 is answered with %q", got[:min(len(got), 80)])
	}
	upgrade := "GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(send(upgrade))), nil)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("an upgrade to HTTP/2 is not passed over: %+v %v", res, err)
	}
	if _, err := s.CreateKey(t.Context(), server.KeyRequest{Account: "after"}); err != nil {
		t.Error(err)
	}
}

// Long reads, lists and a backup beside payments: nobody hears of locks. Nor does anybody of a database that is away for a while, but that
// can happen in a standstill, so it may be tried three times.
// T180
func TestWriterIsNotStarved(t *testing.T) {
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
		p := servertest.Start(t, o)
		thrice(t, func() error {
			c := newStand(t, p.URL, builder, subscriber, 1_000_000)
			y := newTally()
			heard := besideReads(t, o, c, y)
			if len(y.unknown) > 0 {
				heard = errors.Join(heard, fmt.Errorf("%d payments without an answer", len(y.unknown)))
			}
			y.repeat(t, c)
			return heard
		})
	})
}

// besideReads makes payments beside reads. The error is what a list has heard.
func besideReads(t *testing.T, o servertest.Options, c *stand, y *tally) error {
	ctx, stop := context.WithCancel(t.Context())
	running, done := load(ctx, 16, y, func(int) *stand { return c })
	eventually(t, "load", func() bool { return done.Load() > 200 })

	var readers sync.WaitGroup
	reading, enough := context.WithCancel(t.Context())
	readers.Go(func() { // a report that reads for as long as it can
		st, err := insist(func() (*store.Store, error) {
			return store.Open(t.Context(), store.Config{Data: o.Data, Database: o.Database, Admin: true})
		})
		if err != nil {
			t.Error(err)
			return
		}
		defer st.Close()
		for reading.Err() == nil {
			rows, err := st.Query(reading, "SELECT a.seq FROM entries a, plans b ORDER BY a.amount, a.commitment")
			if err != nil {
				return
			}
			for n := 0; n < 1000 && rows.Next(); n++ {
			}
			rows.Close()
		}
	})
	heard := make(chan error, 4)
	for range cap(heard) {
		readers.Go(func() {
			for reading.Err() == nil {
				for _, err := range c.subscriber.Permissions(reading, client.PageSize(100)) {
					if err != nil && reading.Err() == nil {
						heard <- fmt.Errorf("list: %w", err)
						return
					}
				}
			}
		})
	}
	if o.Data != "" {
		out, err := exec.Command(servertest.Program(t), "backup", filepath.Join(t.TempDir(), "toll.backup"), "--data", o.Data).CombinedOutput()
		if err != nil {
			t.Errorf("backup beside payments: %v\n%s", err, out)
		}
	}
	before := done.Load()
	eventually(t, "payments beside the reads", func() bool { return done.Load() > before+100 })
	enough()
	readers.Wait()
	stop()
	running.Wait()
	select {
	case err := <-heard:
		return err
	default:
		return nil
	}
}

// The release that runs and the next one, which has added to the schema, write together. Nobody is left without an answer, but in a
// standstill, so it may be tried three times.
// F24
func TestMixedVersions(t *testing.T) {
	t.Parallel() // it mostly waits for its build
	next := laterSafe(t)
	thrice(t, func() error { return mixedVersions(t, next) })
}

func mixedVersions(t *testing.T, next string) error {
	cfg := storetest.Config(t, storetest.Postgres)
	o := servertest.Options{Database: cfg.Database, MasterKeyFile: freshMasterKey(t)}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	old := servertest.Start(t, o)
	c := newStand(t, old.URL, builder, subscriber, 1_000_000)
	y := newTally()
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	stands := []*stand{c}
	running, done := load(ctx, 8, y, func(worker int) *stand {
		mu.Lock()
		defer mu.Unlock()
		return stands[worker%len(stands)]
	})
	eventually(t, "load on the old release", func() bool { return done.Load() > 100 })
	works(t, next, o, "migrate", "--online")
	newer := servertest.StartProgram(t, next, o)
	mu.Lock()
	stands = append(stands, c.on(newer.URL, builder, subscriber))
	mu.Unlock()
	before := done.Load()
	eventually(t, "load on both releases", func() bool { return done.Load() > before+400 })
	stop()
	running.Wait()
	unanswered := len(y.unknown)
	y.repeat(t, c)
	y.repeat(t, stands[1])
	old.Kill()
	servertest.Start(t, o).Kill() // the old release can be started again, as the migration is safe for it
	newer.Kill()
	auditAfter(t, o)
	if unanswered > 0 {
		return fmt.Errorf("%d payments without an answer", unanswered)
	}
	return nil
}

// The system gives the service no more memory in the middle of its work.
// F25
func TestOutOfMemory(t *testing.T) {
	run := func(t *testing.T, o servertest.Options) {
		s := newSiege(t, o)
		for n := range 3 {
			s.round(n, func() { s.starve() })
			s.service = servertest.Start(s.T, s.opts)
			s.settleAll()
		}
		s.audit()
	}
	t.Run("sqlite", func(t *testing.T) { run(t, servertest.Options{Data: storetest.Dir(t)}) })
	t.Run("postgres", func(t *testing.T) {
		run(t, servertest.Options{Database: storetest.Config(t, storetest.Postgres).Database, MasterKeyFile: masterKey(t)})
	})
}

// starve forbids the service another page, and makes it need one.
func (s *siege) starve() {
	s.Helper()
	now := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.service.PID())))(s)
	var pages uint64
	must.Get(fmt.Sscan(string(now), &pages))(s)
	limit := &unix.Rlimit{Cur: pages * uint64(os.Getpagesize()), Max: pages * uint64(os.Getpagesize())}
	must.Do(s, unix.Prlimit(s.service.PID(), unix.RLIMIT_AS, limit, nil))
	body := `{"x402AccessToken":"` + strings.Repeat("a", 900<<10) + `"}`
	for end := time.Now().Add(patience); time.Now().Before(end); {
		select {
		case <-s.service.Exited():
			return // the runtime gives up at the first page that it cannot have, wherever that is
		default:
		}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				req, err := http.NewRequest(http.MethodPost, s.service.URL+"/api/v1/x402/verify", strings.NewReader(body))
				if err != nil {
					return
				}
				req.Header.Set("Authorization", "Bearer "+s.builder)
				res, err := http.DefaultClient.Do(req)
				if err == nil {
					_ = res.Body.Close()
				}
			})
		}
		wg.Wait()
	}
	s.Fatal("the service lives without memory")
}
