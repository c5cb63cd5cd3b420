package server_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// refused starts a service that must not come up, and returns what it says.
func refused(t *testing.T, cfg server.Config) string {
	t.Helper()
	s, err := server.New(t.Context(), cfg)
	if err == nil {
		t.Error("it started")
		_ = closeService(s) // the test has failed already
		return ""
	}
	return err.Error()
}

// rows opens the records of a service that runs.
func rows(t *testing.T, cfg server.Config) *store.Store {
	t.Helper()
	st := must.Get(insist(func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{Data: cfg.Data, Database: cfg.Database, Admin: true})
	}))(t)
	t.Cleanup(func() {
		must.Check(t, st.Close(), "close store")
	})
	return st
}

// fuel gives the relayers of a service gas money of a chain outside, as soon as they are known.
func fuel(t *testing.T, st *store.Store, chain *chaintest.Chain) {
	t.Helper()
	relayers := 0
	eventually(t, "the relayers are known", func() bool {
		keys := must.Get(store.ChainKeys(t.Context(), st))(t)
		relayers = 0
		for _, k := range keys {
			if k.Role != "relayer" {
				continue
			}
			relayers++
			must.Get(chain.Fund(t.Context(), common.Address(k.Address), toll.UnitsOf(1_000_000_000_000_000_000).Int()))(t)
		}
		return relayers > 0
	})
}

// outside is a service on a chain that runs outside of it, behind endpoints.
func outside(urls ...string) server.Config {
	return server.Config{Rails: rails.Config{Chain: rails.ChainConfig{RPCURLs: urls, Confirmations: -1, TopUpConfirmations: -1}}}
}

// T71
func TestChainStart_Settings(t *testing.T) {
	live := server.Config{
		Data: t.TempDir(), Environment: toll.Live, MasterKeyFile: freshMasterKey(t), PublicURL: "https://pay.example.com",
	}
	with := func(base server.Config, c rails.ChainConfig) server.Config {
		base.Rails.Chain = c
		return base
	}
	ownKey := live
	ownKey.MasterKeyFile = ""
	for name, tt := range map[string]struct {
		cfg  server.Config
		says string
	}{
		"live and embedded":         {with(live, rails.ChainConfig{Mode: rails.ChainEmbedded}), "TOLL_CHAIN_RPC_URLS"},
		"live and its own JSON-RPC": {with(live, rails.ChainConfig{HTTP: "127.0.0.1:0"}), "TOLL_CHAIN_RPC_URLS"},
		"live and one endpoint":     {with(live, rails.ChainConfig{RPCURLs: []string{"https://one.example.com"}}), "two endpoints"},
		"live and a generated key":  {ownKey, "TOLL_MASTER_KEY_FILE"},
		"a mode that is none":       {server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{Mode: "on"}}}, "TOLL_CHAIN"},
		"both":                      {server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainEmbedded, RPCURLs: []string{"http://x"}}}}, "set only one of them"},
		"no URL":                    {server.Config{Data: storetest.Dir(t), Rails: rails.Config{Chain: rails.ChainConfig{RPCURLs: []string{"ipc:/x?key=hidden"}}}}, "http"},
		"a server without a place for the chain": {server.Config{
			Database: storetest.Config(t, storetest.Postgres).Database, MasterKeyFile: freshMasterKey(t), Rails: rails.Config{Chain: rails.ChainConfig{Mode: rails.ChainEmbedded}},
		}, "TOLL_DATA"},
	} {
		t.Run(name, func(t *testing.T) {
			if text := refused(t, tt.cfg); !strings.Contains(text, tt.says) || strings.Contains(text, "hidden") {
				t.Errorf("it says %q", text)
			}
		})
	}
	t.Run("live without endpoints", func(t *testing.T) {
		_, url := start(t, live)
		if got := checks(t, url)["chain"]; got != "off" {
			t.Errorf("chain %s", got)
		}
	})
}

// A chain other than the one that the records are about is refused, before anything is signed for it.
// T71
func TestForeignChain(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	kept := filepath.Join(cfg.Data, "chain")
	// once uses the chain of a service, and ends it.
	once := func(cfg server.Config) (plan toll.PlanID, subscriber toll.APIKey) {
		t.Run("use", func(t *testing.T) {
			s, url := start(t, cfg)
			builder, key := keys(t, s)
			c := newStand(t, url, builder, key, 0).patient
			faucet(t, c.subscriber, "5")
			plan, subscriber = c.plan, key
		})
		return plan, subscriber
	}
	plan, subscriber := once(cfg)
	key := client.WithIdempotencyKey(t.Context(), "again")
	other := server.Config{Data: storetest.Dir(t)}
	once(other)

	t.Run("its directory is gone", func(t *testing.T) {
		must.Do(t, os.Rename(kept, kept+".away"))
		if text := refused(t, cfg); !strings.Contains(text, "another chain") || !strings.Contains(text, "TOLL_CHAIN") {
			t.Errorf("it says %q", text)
		}
		if _, err := os.Stat(kept); !os.IsNotExist(err) {
			t.Errorf("a chain was made: %v", err)
		}
	})
	t.Run("the chain of another database", func(t *testing.T) {
		must.Do(t, os.CopyFS(kept, os.DirFS(filepath.Join(other.Data, "chain"))))
		_, url := start(t, cfg)
		c := client.New(subscriber.Key, client.WithURL(url), client.WithRetries(0))
		closed(t, func() error { _, err := c.OrderPlan(key, plan); return err })
		if got := checks(t, url)["chain"]; got != "failing" {
			t.Errorf("chain %s", got)
		}
		if w, has := purse(t, c); len(has) != 0 || w.Address != subscriber.Address {
			t.Errorf("wallet %+v", w)
		}
	})
	t.Run("endpoints", func(t *testing.T) {
		public := chaintest.New(t)
		there := outside(public.URL())
		there.Data = cfg.Data
		if text := refused(t, there); !strings.Contains(text, "another chain") {
			t.Errorf("it says %q", text)
		}
	})
	t.Run("endpoints of another network", func(t *testing.T) {
		base := chaintest.Start(t, devchain.Config{ChainID: contracts.Base})
		there := outside(base.URL())
		there.Data = t.TempDir()
		if text := refused(t, there); !strings.Contains(text, "8453") || !strings.Contains(text, "84532") {
			t.Errorf("it says %q", text)
		}
	})
	t.Run("the right one again", func(t *testing.T) {
		must.Do(t, os.RemoveAll(kept))
		must.Do(t, os.Rename(kept+".away", kept))
		_, url := start(t, cfg)
		c := client.New(subscriber.Key, client.WithURL(url), client.WithRetries(0))
		// The order that could not be paid before is still open, or paid already, and no other one is.
		eventually(t, "the order is paid", func() bool {
			o, err := c.OrderPlan(key, plan)
			return err == nil && isPaid(o.Status)
		})
		if _, has := purse(t, c); has["USDC"] != "4000000" {
			t.Errorf("subscriber has %v", has)
		}
	})
}

// closed makes sure that orders are refused because of the chain, once it answers.
func closed(t *testing.T, order func() error) {
	t.Helper()
	eventually(t, "orders are refused", func() bool {
		err := order()
		if code := codeOf(err); code != toll.CodeChainContracts && code != toll.CodeChainUnreachable {
			t.Fatalf("order: %v", err)
		}
		return codeOf(err) == toll.CodeChainContracts
	})
}

// With other code at a contract crypto orders are closed, and nothing else is.
// T71
func TestChangedCode(t *testing.T) {
	public := chaintest.New(t)
	double := chaintest.NewDouble(t, public.Client())
	manager := strings.ToLower(contracts.DelegationManager.Hex())
	double.Answer("eth_getCode", func(params []json.RawMessage) (any, error) {
		if strings.Contains(strings.ToLower(string(params[0])), manager) {
			return "0x6000", nil
		}
		return nil, chaintest.ErrPass
	})
	cfg := outside(double.URL)
	cfg.Data = storetest.Dir(t)
	s, url := start(t, cfg)
	fuel(t, rows(t, cfg), public)
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 10)
	if _, err := public.Mint(t.Context(), contracts.USDC(contracts.BaseSepolia), common.Address(subscriber.Address), toll.UnitsOf(5_000_000).Int()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the contracts were looked at", func() bool { return checks(t, url)["chain"] == "failing" })
	closed(t, func() error { _, err := c.subscriber.OrderPlan(t.Context(), c.plan); return err })
	if res, err := c.patient.settle(t.Context(), "credits"); err != nil || !res.Success {
		t.Errorf("credits that are there: %+v, %v", res, err)
	}
	eventually(t, "ready", func() bool { return status(t, url+"/ready") == http.StatusOK })
	double.Clear()
	eventually(t, "orders go on", func() bool {
		_, err := c.subscriber.OrderPlan(t.Context(), c.plan)
		return err == nil
	})
	if b := c.balance(t); b.Balance != 109 {
		t.Errorf("%d credits", b.Balance)
	}
}

// Two processes on one database pay orders on one chain. One of them is at each relayer at a time, and the other goes on when
// it ends.
func TestTwoProcessesOneChain(t *testing.T) {
	public := chaintest.New(t)
	double := chaintest.NewDouble(t, public.Client())
	cfg := outside(double.URL)
	cfg.Database, cfg.MasterKeyFile, cfg.PublicURL = storetest.Config(t, storetest.Postgres).Database, freshMasterKey(t), "https://pay.example.com"
	ctx := t.Context()
	st := rows(t, cfg)
	second, urlTwo := start(t, cfg)
	var plan toll.PlanID
	orders := func(t *testing.T, n int, urls ...string) {
		t.Helper()
		var wg sync.WaitGroup
		for i := range n {
			k := keyOf(t, second, server.KeyRequest{Account: "subscriber " + string(rune('a'+i))})
			must.Get(public.Mint(ctx, contracts.USDC(contracts.BaseSepolia), common.Address(k.Address), toll.UnitsOf(1_000_000).Int()))(t)
			wg.Go(func() {
				c := client.New(k.Key, client.WithURL(urls[i%len(urls)]), servertest.Patient)
				o, err := c.OrderPlan(ctx, plan)
				if err == nil && o.HTTPStatus == http.StatusAccepted {
					o, err = c.WaitOrder(ctx, o.OrderID)
				}
				if err != nil || !isPaid(o.Status) {
					t.Errorf("order %d: %+v, %v", i, o, err)
				}
			})
		}
		wg.Wait()
	}
	t.Run("both", func(t *testing.T) {
		one, urlOne := start(t, cfg)
		fuel(t, st, public)
		builder, subscriber := keys(t, one)
		plan = newStand(t, urlOne, builder, subscriber, 0).plan
		orders(t, 8, urlOne, urlTwo)
		keys, err := store.ChainKeys(ctx, st)
		if err != nil || len(keys) != 2 {
			t.Errorf("%d accounts of the service, %v", len(keys), err)
		}
		// Whoever had something to send held the one lease, and gave it back.
		var relayers, holders int64
		if err := st.QueryRow(ctx, "SELECT COUNT(*), MAX(fence) FROM chain_leases WHERE name LIKE 'relayer:%'").Scan(&relayers, &holders); err != nil || relayers != 1 || holders == 0 {
			t.Errorf("%d leases of relayers, %d holders, %v", relayers, holders, err)
		}
	})
	orders(t, 4, urlTwo)
	var paid, nonces, used int64
	err := st.QueryRow(ctx, "SELECT COUNT(*) FROM chain_ops WHERE state IN ('confirmed', 'final')").Scan(&paid)
	if err != nil || paid != 12 {
		t.Errorf("%d orders are paid, %v", paid, err)
	}
	if err := st.QueryRow(ctx, "SELECT COUNT(DISTINCT nonce), COUNT(*) FROM chain_txs WHERE state = 'mined'").Scan(&nonces, &used); err != nil || nonces != used || used == 0 {
		t.Errorf("%d transactions with %d nonces, %v", used, nonces, err)
	}
}

// A chain that cannot be started is tried again without a caller, as a background loop that an operator sees.
func TestChainStart_IsRetried(t *testing.T) {
	t.Parallel() // it mostly waits
	double := chaintest.NewDouble(t, chaintest.New(t).Client())
	double.Drop(-1)
	cfg := outside(double.URL)
	cfg.Data = storetest.Dir(t)
	s, url := start(t, cfg)
	loops := func() map[string]jobs.Status {
		w := httptest.NewRecorder()
		s.Metrics().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/loops", nil))
		var all []jobs.Status
		must.Do(t, json.Unmarshal(w.Body.Bytes(), &all))
		named := map[string]jobs.Status{}
		for _, l := range all {
			named[l.Name] = l
		}
		return named
	}
	eventually(t, "the start fails", func() bool { return loops()["chain.start"].Failures > 1 })
	if l := loops()["chain.start"]; l.Error == "" || checks(t, url)["chain"] != "failing" {
		t.Errorf("loop %+v", l)
	}
	double.Clear()
	eventually(t, "the chain is started", func() bool { return loops()["chain.tracker"].Runs > 0 })
	for _, name := range []string{"chain.heads", "chain.endpoints", "chain.watch", "chain.relayer.1"} {
		if _, there := loops()[name]; !there {
			t.Errorf("no loop %s", name)
		}
	}
	if l := loops()["chain.start"]; l.Error != "" {
		t.Errorf("loop %+v", l)
	}
}
