package server_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/rounds"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

var crashRounds = flag.Int("crash-rounds", rounds.Of(10, 1000), "how often the service is killed under load, on each store")

const crashWorkers = 16

// payment is one request of the load: what was asked, and the answer when one came.
type payment struct {
	req    *x402.SettleRequest
	answer string // "" while the outcome is not known
}

// siege drives one service through many kills.
type siege struct {
	*testing.T
	opts    servertest.Options
	builder string // API key
	token   string
	plan    toll.PlanID
	service *servertest.Process

	mu       sync.Mutex
	payments map[string]*payment
	fresh    []string // answered in the last round
}

func newSiege(t *testing.T, opts servertest.Options) *siege {
	s := &siege{T: t, opts: opts, payments: map[string]*payment{}}
	builder, subscriber := servertest.Key(t, opts, "builder"), servertest.Key(t, opts, "subscriber")
	s.builder = builder.Key
	s.service = servertest.Start(t, opts)
	ctx := context.Background()
	b, c := s.service.Client(builder.Key, servertest.Patient), s.service.Client(subscriber.Key, servertest.Patient)
	reg := must.Get(b.RegisterPlan(ctx, client.PlanParams{
		Metadata: toll.Metadata{Name: "siege"},
		Credits:  toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 9},
	}))(s)
	s.plan = reg.PlanID
	must.Get(b.Mint(ctx, s.plan, subscriber.Address, 1_000_000_000, 0))(s)
	tok := must.Get(c.AccessToken(ctx, s.plan, client.WithExpiry(time.Hour*24)))(s)
	s.token = tok.AccessToken
	return s
}

func (s *siege) required() x402.PaymentRequired {
	return x402.PaymentRequired{X402Version: 2, Resource: x402.Resource{URL: "/ask"}, Accepts: []x402.Requirements{{
		Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PlanID: string(s.plan),
	}}}
}

func (s *siege) client() *client.Client { return s.service.Client(s.builder, client.WithRetries(0)) }

// load pays until the context ends or the service is gone.
func (s *siege) load(ctx context.Context, worker, round int) {
	c := s.client()
	rnd := rand.New(rand.NewPCG(uint64(worker), uint64(round)))
	for n := 0; ctx.Err() == nil; n++ {
		amount := toll.Credits(1 + rnd.IntN(9))
		id := fmt.Sprintf("r%d-%d-%d", round, worker, n)
		if rnd.IntN(2) == 0 {
			v, err := c.Verify(ctx, &x402.VerifyRequest{
				PaymentRequired: s.required(), AccessToken: s.token, MaxAmount: amount.Ptr(), Hold: true, HoldSecs: 5,
			})
			if err != nil {
				return
			}
			if !v.IsValid {
				if v.InvalidReason == x402.ReasonTooManyHolds { // holds of killed rounds, until they lapse
					time.Sleep(20 * time.Millisecond)
					continue
				}
				s.Errorf("verify refused: %+v", v)
				return
			}
			id = v.AgentRequestID
		}
		p := &payment{req: &x402.SettleRequest{
			PaymentRequired: s.required(), AccessToken: s.token, MaxAmount: amount.Ptr(), AgentRequestID: id,
		}}
		s.mu.Lock()
		s.payments[id] = p
		s.mu.Unlock()
		r, err := c.Settle(ctx, p.req)
		if err != nil || r.ErrorReason == x402.ReasonPending {
			return
		}
		if !r.Success {
			s.Errorf("settle %s refused: %s %s", id, r.ErrorReason, r.ErrorMessage)
			return
		}
		s.mu.Lock()
		p.answer = string(r.Raw)
		s.fresh = append(s.fresh, id)
		s.mu.Unlock()
	}
}

// round loads the service and runs the blow at a random moment.
func (s *siege) round(n int, blow func()) {
	s.fresh = nil
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for w := range crashWorkers {
		wg.Go(func() { s.load(ctx, w, n) })
	}
	time.Sleep(time.Duration(20+rand.IntN(250)) * time.Millisecond)
	blow()
	cancel()
	wg.Wait()
}

// settleAll repeats what was in doubt until it is answered, and some of what was answered to see the same bytes again.
func (s *siege) settleAll() {
	s.Helper()
	c := s.service.Client(s.builder, servertest.Patient)
	for id, p := range s.payments {
		if p.answer != "" {
			continue
		}
		r, err := c.Settle(context.Background(), p.req)
		if err != nil || !r.Success {
			s.Fatalf("the repeat of %s: %v, %+v", id, err, r)
		}
		p.answer = string(r.Raw)
	}
	for _, id := range s.fresh[:min(len(s.fresh), 40)] {
		p := s.payments[id]
		r, err := c.Settle(context.Background(), p.req)
		if err != nil || !r.Success || !r.Replayed || string(r.Raw) != p.answer {
			s.Fatalf("%s was answered with %s, its repeat with %v (replayed %v), %v", id, p.answer, r, r != nil && r.Replayed, err)
		}
	}
}

// audit compares the books with the answers.
func (s *siege) audit() {
	s.Helper()
	s.service.Kill()
	auditAfter(s.T, s.opts)
	st := must.Get(insist(func() (*store.Store, error) {
		return store.Open(context.Background(), store.Config{Data: s.opts.Data, Database: s.opts.Database})
	}))(s)
	defer st.Close()
	var burned, want int64
	must.Do(s, st.QueryRow(context.Background(), "SELECT CAST(SUM(burned) AS BIGINT) FROM accounts").Scan(&burned))
	for _, p := range s.payments {
		want += int64(*p.req.MaxAmount)
	}
	if burned != want {
		s.Errorf("%d credits burned, the answers sum to %d", burned, want)
	}
	s.Logf("%d payments, %d credits", len(s.payments), burned)
}

func (s *siege) killed(rounds int) {
	for n := range rounds {
		s.round(n, s.service.Kill)
		s.service = servertest.Start(s.T, s.opts)
		s.settleAll()
	}
}

// masterKey writes a key file for services on one database.
func masterKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "master.key")
	must.Do(t, os.WriteFile(file, []byte(strings.Repeat("5a", 32)+"\n"), 0o600))
	return file
}

// F02
func TestServiceKilledUnderLoad(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		s := newSiege(t, servertest.Options{Data: storetest.Dir(t)})
		s.killed(*crashRounds)
		s.audit()
	})
	t.Run("postgres", func(t *testing.T) {
		cfg := storetest.Config(t, storetest.Postgres)
		s := newSiege(t, servertest.Options{Database: cfg.Database, MasterKeyFile: masterKey(t)})
		s.killed(*crashRounds)
		s.audit()
	})
}

// TestPostgresKilledUnderLoad kills every process of the database under load and lets it recover. The service stays
// up: it answers nothing that is not durable, and goes on by itself.
// F18
func TestPostgresKilledUnderLoad(t *testing.T) {
	if os.Getenv("TOLL_TEST_POSTGRES") == "" {
		storetest.Config(t, storetest.Postgres) // says what is missing
	}
	dir, postgres := cluster(t)
	dsn := postgres("dsn", dir)
	s := newSiege(t, servertest.Options{Database: dsn, MasterKeyFile: masterKey(t)})
	for n := range 3 {
		s.round(n, func() { postgres("crash", dir) })
		postgres("start", dir)
		must.Do(t, s.service.WaitHealthy(patience))
		s.recovers()
		s.settleAll()
	}
	s.audit()
}

// TestNoConnectionLeft: others take every connection of the database under load. The service answers nothing that is not
// durable, says that it is not ready, and recovers by itself when connections are free again.
// F18
func TestNoConnectionLeft(t *testing.T) {
	if os.Getenv("TOLL_TEST_POSTGRES") == "" {
		storetest.Config(t, storetest.Postgres) // says what is missing
	}
	const most = 40
	t.Setenv("TOLL_PG_ARGS", fmt.Sprintf("max_connections=%d superuser_reserved_connections=0", most))
	dir, postgres := cluster(t)
	o := servertest.Options{Database: postgres("dsn", dir), MasterKeyFile: masterKey(t)}
	builder, subscriber := servertest.Key(t, o, "builder"), servertest.Key(t, o, "subscriber")
	p := servertest.Start(t, o)
	c := newStand(t, p.URL, builder, subscriber, 1_000_000)
	y := newTally()
	ctx, stop := context.WithCancel(t.Context())
	running, done := load(ctx, 8, y, func(int) *stand { return c })
	eventually(t, "load", func() bool { return y.settled() > 300 })

	var taken []*pgx.Conn
	eventually(t, "others have all connections", func() bool {
		for len(taken) < most {
			conn, err := pgx.ConnectConfig(t.Context(), storetest.ConnConfig(t, o.Database))
			if err != nil {
				break
			}
			taken = append(taken, conn)
		}
		var others int64
		err := taken[0].QueryRow(t.Context(), `SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND NOT pid = ANY($1)`, pids(taken)).Scan(&others)
		return err == nil && others == 0 && len(taken) == most
	})
	eventually(t, "not ready", func() bool { return !readyNow(t, p.URL) })
	if status(t, p.URL+"/health") != http.StatusOK {
		t.Error("not healthy")
	}
	answered := y.settled()
	target := done.Load() + 1
	eventually(t, "calls are refused", func() bool { return done.Load() > target })
	if now := y.settled(); now != answered {
		t.Errorf("%d calls were settled without a database", now-answered)
	}
	for _, conn := range taken {
		_ = conn.Close(t.Context())
	}
	eventually(t, "ready", func() bool { return readyNow(t, p.URL) })
	eventually(t, "calls are settled", func() bool { return y.settled() > answered+300 })
	stop()
	running.Wait()
	y.repeat(t, c)
}

// pids returns the processes of PostgreSQL behind connections.
func pids(conns []*pgx.Conn) (all []int32) {
	for _, c := range conns {
		all = append(all, int32(c.PgConn().PID()))
	}
	return all
}

// cluster starts a PostgreSQL of its own for a test that stops it. postgres runs a command of the
// script that did so.
func cluster(t *testing.T) (dir string, postgres func(args ...string) string) {
	t.Helper()
	return clusterIn(t, filepath.Join(os.TempDir(), "toll-siege-"+toll.NewUUID()))
}

// clusterIn is [cluster] in a new directory.
func clusterIn(t *testing.T, dir string) (_ string, postgres func(args ...string) string) {
	t.Helper()
	script := must.Get(filepath.Abs("../../scripts/postgres.sh"))(t)
	postgres = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("sh", append([]string{script}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("postgres.sh %s: %v: %s", strings.Join(args, " "), err, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	postgres("start", dir)
	t.Cleanup(func() { postgres("stop", dir) })
	return dir, postgres
}

// recovers waits until the service settles again.
func (s *siege) recovers() {
	s.Helper()
	deadline := time.Now().Add(patience)
	for {
		_, err := s.client().Verify(context.Background(), &x402.VerifyRequest{
			PaymentRequired: s.required(), AccessToken: s.token, Hold: true, HoldSecs: 1,
		})
		if err == nil {
			return
		}
		var e *toll.Error
		if !errors.As(err, &e) || time.Now().After(deadline) {
			s.Fatalf("the service does not recover: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
