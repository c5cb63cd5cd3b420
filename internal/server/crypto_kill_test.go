package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// The service of F10 is this test binary, run again as a process of its own that kills itself at a step of an order. envSteps
// holds its [stepped].
const envSteps = "STEPPED_SERVICE"

// stepped says which service a process is. StepFile holds the step at which it ends.
type stepped struct {
	Data, Database, MasterKeyFile, Listen, RPC, ChainHTTP, Stripe, StepFile string
}

func (s *stepped) config() server.Config {
	cfg := server.Config{Data: s.Data, Database: s.Database, MasterKeyFile: s.MasterKeyFile, Listen: s.Listen, PublicURL: "https://pay.example.com"}
	cfg.Rails.Chain.HTTP = s.ChainHTTP
	if s.RPC != "" {
		cfg.Rails.Chain = outside(s.RPC).Rails.Chain
	}
	if s.Stripe != "" {
		cfg.PublicURL = "http://" + s.Listen
		cfg.Rails.Card = rails.CardConfig{URL: s.Stripe, SecretKey: stripeKey, WebhookSecrets: []string{hookSecret}}
	}
	return cfg
}

func steppedService(text string) {
	var s stepped
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	cfg := s.config()
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	var mu sync.Mutex
	cfg.StopAt(func(step string) {
		mu.Lock()
		defer mu.Unlock()
		if b, err := os.ReadFile(s.StepFile); err == nil && string(b) == step {
			_ = os.Remove(s.StepFile)
			die()
		}
	})
	srv, err := server.New(context.Background(), cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ln, err := net.Listen("tcp", s.Listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = srv.Serve(context.Background(), ln) // until it is killed
}

// ambush is a service that is killed at chosen steps of orders, the chain that it uses, and who trades there.
type ambush struct {
	till
	is                       stepped
	url                      string
	store                    *store.Store
	cmd                      *exec.Cmd
	exited                   chan struct{}
	log                      *servertest.Log
	builder, buyer, operator toll.APIKey
	service                  toll.Address
	public                   *chaintest.Chain // nil: the chain is in the service
}

// eachAmbush runs f with the embedded chain on SQLite, and with a chain outside on PostgreSQL.
func eachAmbush(t *testing.T, f func(a *ambush)) {
	t.Run("sqlite, embedded chain", func(t *testing.T) {
		t.Parallel()
		f(newAmbush(t, stepped{Data: storetest.Dir(t), ChainHTTP: servertest.FreeAddress(t)}, nil))
	})
	t.Run("postgres, chain outside", func(t *testing.T) {
		t.Parallel()
		public := chaintest.New(t)
		f(newAmbush(t, stepped{Database: storetest.Config(t, storetest.Postgres).Database, MasterKeyFile: freshMasterKey(t), RPC: public.URL()}, public))
	})
}

func newAmbush(t *testing.T, is stepped, public *chaintest.Chain) *ambush {
	t.Helper()
	is.Listen, is.StepFile = servertest.FreeAddress(t), filepath.Join(t.TempDir(), "step")
	a := &ambush{is: is, url: "http://" + is.Listen, public: public, till: till{T: t}}
	a.builder, a.buyer, a.operator = tradersOf(t, is.config())
	t.Cleanup(func() {
		auditAfter(t, servertest.Options{Data: is.Data, Database: is.Database, MasterKeyFile: is.MasterKeyFile})
	})
	a.start()
	t.Cleanup(a.kill)
	a.store = rows(t, is.config())
	if public != nil {
		a.node = public.Eth()
		fuel(t, a.store, public)
		must.Get(public.Mint(t.Context(), usdc, common.Address(a.buyer.Address), toll.UnitsOf(100_000_000).Int()))(t)
	} else {
		a.till = newTill(t, "http://"+is.ChainHTTP)
		eventually(t, "the faucet gives", func() bool {
			_, err := a.as(a.buyer).Faucet(t.Context(), client.FaucetParams{USDC: "100"})
			return err == nil
		})
	}
	a.service = serviceAccount(t, a.store)
	plan := a.plan(a.builder.Address)
	once := client.WithIdempotencyKey(t.Context(), "first") // the order of a call that failed may be paid before it is repeated
	eventually(t, "the chain can be used", func() bool {
		_, err := a.as(a.buyer).OrderPlan(once, plan)
		return err == nil
	})
	return a
}

// tradersOf makes keys in a database that no service uses yet.
func tradersOf(t *testing.T, cfg server.Config) (builder, buyer, operator toll.APIKey) {
	t.Helper()
	cfg.Rails.Chain = rails.ChainConfig{Mode: rails.ChainOff}
	s := open(t, cfg)
	builder, buyer = keys(t, s)
	operator = keyOf(t, s, server.KeyRequest{Account: "operator", Operator: true})
	must.Do(t, closeService(s))
	return builder, buyer, operator
}

func (a *ambush) as(k toll.APIKey) *client.Client {
	return client.New(k.Key, client.WithURL(a.url), servertest.Patient)
}

// once is as for a call whose answer is not to come.
func (a *ambush) once(k toll.APIKey) *client.Client {
	return client.New(k.Key, client.WithURL(a.url), client.WithRetries(0))
}

func (a *ambush) start() {
	a.Helper()
	text := must.Get(json.Marshal(a.is))(a)
	launch := func() {
		a.cmd, a.exited, a.log = exec.Command(os.Args[0]), make(chan struct{}), &servertest.Log{}
		a.cmd.Env = append(os.Environ(), envSteps+"="+string(text))
		a.cmd.Stderr = a.log
		must.Do(a, a.cmd.Start())
		go func(cmd *exec.Cmd, exited chan struct{}) { _ = cmd.Wait(); close(exited) }(a.cmd, a.exited)
	}
	launch()
	eventually(a.T, "the service is up", func() bool {
		select {
		case <-a.exited:
			if !servertest.NoDatabase(a.log) {
				a.Fatalf("the service has ended:\n%s", a.log)
			}
			launch()
		default:
		}
		_, err := client.New("", client.WithURL(a.url), client.WithRetries(0)).Health(a.Context())
		return err == nil
	})
}

func (a *ambush) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.exited
}

// dies runs f again and again until the service has killed itself at a step.
func (a *ambush) dies(step string, f func()) {
	a.Helper()
	must.Do(a, os.WriteFile(a.is.StepFile, []byte(step), 0o600))
	var wg sync.WaitGroup
	wg.Go(func() {
		for running := true; running; {
			f() // again, should the call have failed before the step
			select {
			case <-a.exited:
				running = false
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	select {
	case <-a.exited:
	case <-time.After(patience):
		a.Errorf("nothing comes to the step %q\n%s", step, a.log)
		a.kill()
	}
	wg.Wait()
}

// revive starts the service again, later than whatever the dead one has leased.
func (a *ambush) revive() {
	a.Helper()
	a.start()
	advance(a.T, a.as(a.operator), 20*time.Second)
	eventually(a.T, "the chain answers", func() bool {
		_, err := a.node.BlockNumber(a.Context())
		return err == nil
	})
}

func (a *ambush) plan(to toll.Address) toll.PlanID {
	a.Helper()
	r := must.Get(a.as(a.builder).RegisterPlan(a.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Plan"}, Price: price(usdc, 1_000_000, to), Credits: toll.CreditsDynamic(100, 1, 100),
	}))(a)
	return r.PlanID
}

// decided waits until no order is open, without asking the service for it.
func decided(t *testing.T, st *store.Store) {
	t.Helper()
	eventually(t, "every order is decided", func() bool {
		var open int64
		must.Do(t, st.QueryRow(t.Context(), "SELECT COUNT(*) FROM orders WHERE status NOT IN ('confirmed', 'final', 'failed')").Scan(&open))
		return open == 0
	})
}

// steps are the rows of the crash table of an order.
var steps = []string{
	"order", "created", "signing", "signed", "transaction stored", "transaction sent", "transaction concluded", "event stored", "deciding",
}

// The process of the whole service ends at each row of the crash table. After the next start the order is decided although nobody
// asks; who asks again under the same key hears of the same order; money moved once and credits came once.
// F10
func TestCryptoKill_ServiceKilledAtEachStep(t *testing.T) {
	t.Parallel()
	eachAmbush(t, func(a *ambush) {
		ctx := a.Context()
		limit := must.Get(a.as(a.buyer).CreateDelegation(ctx, client.DelegationParams{
			Provider: toll.ProviderCrypto, SpendingLimit: 10_000, Lifetime: time.Hour, Currency: "usdc",
		}))(a)
		delegated := 0
		for i, step := range steps {
			for _, way := range []string{"direct", "delegated"} {
				if (a.public == nil) != (i%2 == 0) == (way == "direct") {
					continue // the other database goes the other way
				}
				to := receiver(byte(i + 1))
				plan := a.plan(to)
				var opts []client.OrderOption
				sender := a.buyer.Address
				if way == "delegated" {
					opts, sender = append(opts, client.PaidBy(limit.DelegationID)), a.service
					delegated++
				}
				keyed := client.WithIdempotencyKey(ctx, "at-"+fmt.Sprint(i))
				a.dies(step, func() { _, _ = a.once(a.buyer).OrderPlan(keyed, plan, opts...) })
				a.revive()
				decided(a.T, a.store)
				o, err := a.as(a.buyer).OrderPlan(keyed, plan, opts...)
				if err != nil || !isPaid(o.Status) {
					a.Fatalf("%s, %s: the repeat: %+v, %v\n%s", step, way, o, err, a.log)
				}
				a.ran(o.TxHash, sender)
				if n, sum := a.transfers(usdc, a.buyer.Address, to); n != 1 || sum != 1_000_000 {
					a.Errorf("%s, %s: %d transfers of %d", step, way, n, sum)
				}
				if b, err := a.as(a.buyer).Balance(ctx, plan); err != nil || b.Balance != 100 || b.Total != 100 {
					a.Errorf("%s, %s: %+v, %v", step, way, b, err)
				}
			}
		}
		if got, want := a.has(a.buyer.Address, usdc), int64(100_000_000-1_000_000*(len(steps)+1)); got != want {
			a.Errorf("the buyer has %d, want %d", got, want)
		}
		d, err := a.as(a.buyer).Delegation(ctx, limit.DelegationID)
		if err != nil || int(d.AmountSpentCents) != 100*delegated || int(d.TransactionCount) != delegated {
			a.Errorf("%+v after %d orders, %v", d, delegated, err)
		}
		a.till.nonces(a.store)
	})
}

// The process ends in the midst of a settlement, between the order of missing credits and their burn. The repeat of the call finds
// the order and burns once.
// F12
func TestKilledBetweenOrderAndBurn(t *testing.T) {
	t.Parallel()
	eachAmbush(t, func(a *ambush) {
		ctx := a.Context()
		for i, step := range []string{"created", "transaction sent", "event stored", "deciding"} {
			to := receiver(byte(i + 1))
			plan := a.plan(to)
			limit := must.Get(a.as(a.buyer).CreateDelegation(ctx, client.DelegationParams{
				Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: time.Hour, Currency: "usdc", PlanID: plan,
			}))(a)
			tok := must.Get(a.as(a.buyer).AccessToken(ctx, plan, client.WithDelegation(limit.DelegationID)))(a)
			req := settlement(plan, tok.AccessToken, fmt.Sprint("request-", i), 7)
			a.dies(step, func() { _, _ = a.once(a.builder).Settle(ctx, req) })
			a.revive()
			var first []byte
			eventually(a.T, "the repeat settles", func() bool {
				r, err := a.as(a.builder).Settle(ctx, req)
				switch {
				case err == nil && r.Success:
					a.ran(r.OrderTx, a.service)
					first = r.Raw
					return true
				case !again(r, err):
					a.Fatalf("%s: the repeat: %+v, %v\n%s", step, r, err, a.log)
				}
				return false
			})
			if r := settled(a.T, a.as(a.builder), req); !bytes.Equal(r.Raw, first) {
				a.Errorf("%s: %s is repeated as %s", step, first, r.Raw)
			}
			if n, sum := a.transfers(usdc, a.buyer.Address, to); n != 1 || sum != 1_000_000 {
				a.Errorf("%s: %d transfers of %d", step, n, sum)
			}
			if b, err := a.as(a.buyer).Balance(ctx, plan); err != nil || b.Balance != 93 || b.Used != 7 || b.Total != 100 {
				a.Errorf("%s: %+v, %v", step, b, err)
			}
			var orders int64
			if err := a.store.QueryRow(ctx, "SELECT COUNT(*) FROM orders WHERE delegation_id = $1", limit.DelegationID).Scan(&orders); err != nil || orders != 1 {
				a.Errorf("%s: %d orders, %v", step, orders, err)
			}
		}
		a.till.nonces(a.store)
	})
}

// Two processes on one database and one chain are killed in turn at random moments of orders. In the end each order that was asked
// for is paid once.
// F10
func TestTwoProcessesKilled(t *testing.T) {
	t.Parallel()
	const buyers, rounds = 6, 3
	ctx := t.Context()
	public := chaintest.New(t)
	o := servertest.Options{
		Database: storetest.Config(t, storetest.Postgres).Database, MasterKeyFile: freshMasterKey(t),
		Args: []string{"--chain-rpc-urls", public.URL(), "--chain-confirmations", "0", "--chain-topup-confirmations", "0", "--public-url", "https://pay.example.com"},
	}
	cfg := server.Config{Database: o.Database, MasterKeyFile: o.MasterKeyFile, PublicURL: "https://pay.example.com"}
	builder, _, operator := tradersOf(t, cfg)
	t.Cleanup(func() { auditAfter(t, o) })
	var people []toll.APIKey
	for i := range buyers {
		k := servertest.Key(t, o, fmt.Sprintf("buyer %d", i))
		must.Get(public.Mint(ctx, usdc, common.Address(k.Address), toll.UnitsOf(10_000_000).Int()))(t)
		people = append(people, k)
	}
	services := []*servertest.Process{servertest.Start(t, o), servertest.Start(t, o)}
	st := rows(t, cfg)
	fuel(t, st, public)
	var plans []toll.PlanID
	order := func(c *client.Client, person, round int) (*toll.Order, error) {
		return c.OrderPlan(client.WithIdempotencyKey(ctx, fmt.Sprintf("order-%d-%d", person, round)), plans[round])
	}
	for round := range rounds {
		r := must.Get(services[0].Client(builder.Key, servertest.Patient).RegisterPlan(ctx, client.PlanParams{
			Metadata: toll.Metadata{Name: "Plan"}, Price: price(usdc, 1_000_000, receiver(byte(round+1))), Credits: toll.CreditsDynamic(100, 1, 100),
		}))(t)
		plans = append(plans, r.PlanID)
		var wg sync.WaitGroup
		for i, k := range people {
			c := services[i%2].Client(k.Key, client.WithRetries(0), client.WithTimeout(5*time.Second))
			wg.Go(func() { _, _ = order(c, i, round) }) // what comes back does not matter
		}
		time.Sleep(20*time.Millisecond + rand.N(500*time.Millisecond))
		services[round%2].Kill()
		services[round%2] = servertest.Start(t, o)
		advance(t, services[0].Client(operator.Key, servertest.Patient), 20*time.Second)
		wg.Wait()
	}
	decided(t, st)
	w := till{t, public.Eth()}
	for i, k := range people {
		for round, plan := range plans {
			c := services[(i+round)%2].Client(k.Key, servertest.Patient)
			o, err := order(c, i, round)
			if err == nil && o.HTTPStatus == 202 {
				o, err = c.WaitOrder(ctx, o.OrderID)
			}
			if err != nil || !isPaid(o.Status) {
				t.Errorf("order %d of buyer %d: %+v, %v", round, i, o, err)
				continue
			}
			w.ran(o.TxHash, k.Address)
			if n, sum := w.transfers(usdc, k.Address, receiver(byte(round+1))); n != 1 || sum != 1_000_000 {
				t.Errorf("order %d of buyer %d: %d transfers of %d", round, i, n, sum)
			}
			if b, err := c.Balance(ctx, plan); err != nil || b.Balance != 100 || b.Total != 100 {
				t.Errorf("order %d of buyer %d: %+v, %v", round, i, b, err)
			}
		}
		if got := w.has(k.Address, usdc); got != 10_000_000-rounds*1_000_000 {
			t.Errorf("buyer %d has %d", i, got)
		}
	}
	w.nonces(st)
}
