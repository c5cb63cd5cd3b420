package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/goleak"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// The program with its embedded chain is killed in the midst of orders, again and again. Afterwards every order that was begun is
// decided without anybody asking for it; who paid has the credits, and who has the credits paid once.
// F10
func TestKilledWithEmbeddedChain(t *testing.T) {
	t.Parallel() // it mostly waits
	o := servertest.Options{Data: storetest.Dir(t)}
	ctx := t.Context()
	builder := servertest.Key(t, o, "builder")
	const buyers, rounds = 12, 3
	service := servertest.Start(t, o)
	reg, err := service.Client(builder.Key).RegisterPlan(ctx, client.PlanParams{
		Metadata: toll.Metadata{Name: "Plan"},
		Price:    toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{builder.Address}, IsCrypto: true},
		Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
	})
	must.Do(t, err)
	var people []toll.APIKey
	for i := range buyers {
		k := servertest.Key(t, o, fmt.Sprintf("subscriber %d", i))
		faucet(t, service.Client(k.Key, servertest.Patient), "10")
		people = append(people, k)
	}
	st := rows(t, server.Config{Data: o.Data})
	for round := range rounds {
		var wg sync.WaitGroup
		for _, k := range people {
			wg.Go(func() {
				// What comes back does not matter: the service is killed meanwhile.
				_, _ = service.Client(k.Key, client.WithRetries(0)).OrderPlan(ctx, reg.PlanID)
			})
		}
		if round == 0 { // on a slow machine all could die before an order is made
			eventually(t, "there is an order", func() bool {
				var n int64
				must.Do(t, st.QueryRow(ctx, "SELECT COUNT(*) FROM orders").Scan(&n))
				return n > 0
			})
		}
		time.Sleep(20*time.Millisecond + rand.N(400*time.Millisecond))
		service.Kill()
		wg.Wait()
		service = servertest.Start(t, o)
	}
	eventually(t, "every order is decided", func() bool {
		var open int64
		must.Do(t, st.QueryRow(ctx, "SELECT COUNT(*) FROM orders WHERE status NOT IN ('confirmed', 'final', 'failed')").Scan(&open))
		return open == 0
	})
	paid := int64(0)
	for i, k := range people {
		c := service.Client(k.Key, servertest.Patient)
		b := must.Get(c.Balance(ctx, reg.PlanID))(t)
		_, has := purse(t, c)
		bought := int64(b.Balance) / 100
		if want := fmt.Sprint(10_000_000 - bought*1_000_000); has["USDC"] != want || b.Balance%100 != 0 || bought > rounds {
			t.Errorf("subscriber %d has %d credits and %s of USDC", i, b.Balance, has["USDC"])
		}
		paid += bought
	}
	if _, has := purse(t, service.Client(builder.Key, servertest.Patient)); has["USDC"] != fmt.Sprint(paid*1_000_000) {
		t.Errorf("the builder has %s for %d orders", has["USDC"], paid)
	}
	if paid == 0 {
		t.Error("nothing was bought")
	}
	if problems, err := store.AuditOrders(ctx, st); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// An order that was sent and did not land when the service ended is paid after the next start, without anybody asking.
func TestOrderGoesOnAfterRestart(t *testing.T) {
	public := chaintest.New(t)
	double := chaintest.NewDouble(t, public.Client())
	cfg := outside(double.URL)
	cfg.Data, cfg.OrderWait = storetest.Dir(t), time.Second
	var subscriber toll.APIKey
	var plan toll.PlanID
	t.Run("before", func(t *testing.T) {
		s, url := start(t, cfg)
		fuel(t, rows(t, cfg), public)
		builder, key := keys(t, s)
		c := newStand(t, url, builder, key, 0)
		subscriber, plan = key, c.plan
		must.Get(public.Mint(t.Context(), contracts.USDC(contracts.BaseSepolia), common.Address(key.Address), toll.UnitsOf(5_000_000).Int()))(t)
		double.Swallow()
		var res struct {
			Status toll.OrderStatus `json:"status"`
		}
		once := client.WithIdempotencyKey(t.Context(), "once")
		eventually(t, "the order is sent", func() bool {
			must.Do(t, c.patient.subscriber.Call(once, http.MethodPost, "/api/v1/protocol/plans/"+string(plan)+"/order", nil, nil, &res))
			return res.Status == toll.OrderSent
		})
	})
	double.Clear()
	_, url := start(t, cfg)
	c := client.New(subscriber.Key, client.WithURL(url), servertest.Patient)
	eventually(t, "the credits came", func() bool {
		b := must.Get(c.Balance(t.Context(), plan))(t)
		return b.Balance == 100
	})
	if _, has := purse(t, c); has["USDC"] != "4000000" {
		t.Errorf("subscriber has %v", has)
	}
}

// The embedded chain has the time of the sandbox: what ends by the clock of the service ends on the chain.
func TestEmbeddedChainMovesWithTheClock(t *testing.T) {
	s, url := start(t, server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{HTTP: "127.0.0.1:0"}}})
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 0).patient
	op := operator(t, s, url)
	began := time.Now()
	faucet(t, c.subscriber, "5")
	node := newTill(t, s.Chain().URL()).node
	headTime := func() time.Time {
		head := must.Get(node.HeaderByNumber(t.Context(), nil))(t)
		return time.Unix(int64(head.Time), 0)
	}
	before := headTime()
	must.Do(t, op.Call(t.Context(), http.MethodPost, "/api/v1/sandbox/clock", nil, map[string]int{"advanceSecs": 30}, nil))
	// Blocks of one second have times of their own, so that the head may have been ahead of the clock.
	if moved := headTime().Sub(before); moved < 25*time.Second || moved > 40*time.Second+time.Since(began) {
		t.Errorf("the chain moved by %s", moved)
	}
	must.Do(t, op.Call(t.Context(), http.MethodPost, "/api/v1/sandbox/clock", nil, map[string]int{"advanceSecs": 40 * 24 * 3600}, nil))
	k := must.Get(s.CreateKey(t.Context(), server.KeyRequest{Account: "subscriber"}))(t)
	if _, err := client.New(k.Key, client.WithURL(url), servertest.Patient).OrderPlan(t.Context(), c.plan); err != nil {
		t.Errorf("an order later: %v", err)
	}
}

// What a service and its chain have started ends with Close.
func TestChainEndsWithTheService(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { // after all that the test itself starts
		noLeak(t, before,
			goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"),         // ends half a minute later
			goleak.IgnoreTopFunction("github.com/ethereum/go-ethereum/core.(*txSenderCacher).cache")) // of the process
	})
	public := chaintest.NewDouble(t, chaintest.New(t).Client())
	public.Hang()
	for name, cfg := range map[string]server.Config{"embedded": {Data: storetest.Dir(t)}, "endpoints that hang": outside(public.URL)} {
		t.Run(name, func(t *testing.T) {
			if cfg.Data == "" {
				cfg.Data = storetest.Dir(t)
			}
			thrice(t, func() error {
				s := open(t, cfg)
				k := keyOf(t, s, server.KeyRequest{Account: "subscriber"})
				if cfg.Rails.Chain.RPCURLs == nil {
					eventually(t, "the faucet gives", func() bool {
						w := httptest.NewRecorder()
						r := httptest.NewRequest(http.MethodPost, "/api/v1/sandbox/faucet", strings.NewReader("{}"))
						r.Header.Set("Authorization", "Bearer "+k.Key)
						r.Header.Set("Content-Type", "application/json")
						s.Handler().ServeHTTP(w, r)
						if w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
							t.Fatal(w.Body)
						}
						return w.Code == http.StatusOK
					})
				}
				began := time.Now()
				must.Check(t, closeService(s))
				if took := time.Since(began); cfg.Rails.Chain.RPCURLs != nil && took > 5*time.Second {
					return fmt.Errorf("closed after %s", took)
				}
				return nil
			})
		})
	}
}
