package server_test

import (
	"net/http"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
)

// faucet gives an account money of the embedded chain.
func faucet(t *testing.T, c *client.Client, usdc string) {
	t.Helper()
	must.Do(t, c.Call(t.Context(), http.MethodPost, "/api/v1/sandbox/faucet", nil, map[string]string{"usdc": usdc}, nil))
}

// purse returns what the wallet of a client has, by symbol, and its address.
func purse(t *testing.T, c *client.Client) (toll.Wallet, map[string]string) {
	t.Helper()
	var w toll.Wallet
	must.Do(t, c.Call(t.Context(), http.MethodGet, "/api/v1/wallet", nil, nil, &w))
	has := map[string]string{}
	for _, b := range w.Balances {
		has[b.Symbol] = b.Amount.String()
	}
	return w, has
}

// checks returns what /ready says.
func checks(t *testing.T, url string) map[string]string {
	t.Helper()
	var ready struct {
		Checks map[string]string `json:"checks"`
	}
	must.Do(t, client.New("", client.WithURL(url), servertest.Patient).Call(t.Context(), http.MethodGet, "/ready", nil, nil, &ready))
	return ready.Checks
}

// A sandbox without any setting sells a plan for tokens: money of the faucet goes from the wallet of the subscriber to the builder,
// and credits come. After a restart the chain is the same one.
func TestEmbeddedChain(t *testing.T) {
	cfg := server.Config{Data: storetest.Dir(t)}
	ctx := t.Context()
	var builder, subscriber toll.APIKey
	var plan toll.PlanID
	t.Run("first start", func(t *testing.T) {
		s, url := start(t, cfg)
		builder, subscriber = keys(t, s)
		if got := checks(t, url)["chain"]; got != "ok" {
			t.Errorf("before it is needed the chain is %s", got)
		}
		c := newStand(t, url, builder, subscriber, 0).patient
		plan = c.plan
		_, err := c.subscriber.OrderPlan(ctx, plan)
		if codeOf(err) != toll.CodeChainBalance {
			t.Fatalf("without money: %v", err)
		}
		faucet(t, c.subscriber, "2.5")
		res, err := c.subscriber.OrderPlan(ctx, plan)
		if err != nil || res.TxHash == "" {
			t.Fatalf("%+v, %v", res, err)
		}
		if b := c.balance(t); b.Balance != 100 {
			t.Errorf("%d credits", b.Balance)
		}
		if _, has := purse(t, c.subscriber); has["USDC"] != "1500000" {
			t.Errorf("subscriber has %v", has)
		}
		if _, has := purse(t, c.builder); has["USDC"] != "1000000" {
			t.Errorf("builder has %v", has)
		}
		eventually(t, "the chain can be used", func() bool { return checks(t, url)["chain"] == "ok" })
	})
	t.Run("second start", func(t *testing.T) {
		_, url := start(t, cfg)
		c := client.New(subscriber.Key, client.WithURL(url), servertest.Patient)
		if _, has := purse(t, c); has["USDC"] != "1500000" {
			t.Errorf("subscriber has %v", has)
		}
		must.Get(c.OrderPlan(ctx, plan))(t)
		if _, has := purse(t, c); has["USDC"] != "500000" {
			t.Errorf("subscriber has %v", has)
		}
	})
}
