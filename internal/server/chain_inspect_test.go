package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/devchain"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// inspected returns what toll doctor says of a part, as "status detail", the lines of a part together.
func inspected(t *testing.T, cfg server.Config, part string) string {
	t.Helper()
	var lines []string
	checks, _ := server.Inspect(t.Context(), cfg)
	for _, c := range checks {
		if c.Name == part {
			lines = append(lines, c.Status+" "+c.Detail)
		}
	}
	return strings.Join(lines, "\n")
}

func says(t *testing.T, text, status string, words ...string) {
	t.Helper()
	if !strings.HasPrefix(text, status+" ") {
		t.Errorf("%q is not %s", text, status)
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %s", text, w)
		}
	}
}

// toll doctor says what is missing for crypto plans, and changes nothing.
func TestInspectChain(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	t.Run("embedded", func(t *testing.T) {
		s, url := start(t, cfg)
		says(t, inspected(t, cfg, "chain"), "ok", "embedded", "first needed")
		builder, key := keys(t, s)
		faucet(t, newStand(t, url, builder, key, 0).patient.subscriber, "1")
		says(t, inspected(t, cfg, "chain"), "ok", "embedded, in")
	})
	t.Run("embedded, gone", func(t *testing.T) {
		must.Do(t, os.RemoveAll(filepath.Join(cfg.Data, "chain")))
		says(t, inspected(t, cfg, "chain"), "failed", "another chain", "TOLL_CHAIN_RPC_URLS")
	})
	t.Run("off", func(t *testing.T) {
		cfg := cfg
		cfg.Rails.Chain.Mode = rails.ChainOff
		says(t, inspected(t, cfg, "chain"), "ok", "off")
	})

	public := chaintest.New(t)
	double := chaintest.NewDouble(t, public.Client())
	there := outside(double.URL)
	there.Data = storetest.Dir(t)
	plain := there
	plain.Rails.Chain = rails.ChainConfig{Mode: rails.ChainOff}
	t.Run("a database", func(t *testing.T) { start(t, plain) })
	t.Run("never started with the chain", func(t *testing.T) {
		says(t, inspected(t, there, "relayer"), "warning", "first start")
		says(t, inspected(t, there, "endpoint"), "ok", "at block")
		st := rows(t, there)
		var n int64
		if err := st.QueryRow(t.Context(), "SELECT COUNT(*) FROM chain_keys").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d accounts were made, %v", n, err)
		}
	})
	t.Run("endpoints", func(t *testing.T) {
		start(t, there)
		st := rows(t, there)
		eventually(t, "the relayer is known", func() bool {
			var n int64
			err := st.QueryRow(t.Context(), "SELECT COUNT(*) FROM chain_keys").Scan(&n)
			return err == nil && n == 2
		})
		says(t, inspected(t, there, "chain"), "failed", "send ETH on eip155:84532")
		says(t, inspected(t, there, "relayer"), "ok", "0.00 ETH")
		fuel(t, st, public)
		says(t, inspected(t, there, "chain"), "ok", "eip155:84532")
		says(t, inspected(t, there, "relayer"), "ok", "1.00 ETH")
		double.Status(401, "your key is hidden")
		says(t, inspected(t, there, "endpoint"), "warning", "is not used")
		says(t, inspected(t, there, "chain"), "failed", "no endpoint")
		double.Clear()
		base := chaintest.Start(t, devchain.Config{ChainID: contracts.Base})
		other := there
		other.Rails.Chain.RPCURLs = []string{base.URL()}
		says(t, inspected(t, other, "endpoint"), "failed", "8453", "84532")
	})
}
