package server_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// F28: payments that no order explains, of both rails, are listed, counted and reported.
// F28
func TestUnmatchedPayments(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) { unmatched(t, storetest.Config(t, v)) })
	}
}

func unmatched(t *testing.T, at store.Config) {
	cfg := server.Config{
		Data: at.Data, Database: at.Database, MasterKeyFile: freshMasterKey(t), Metrics: true, Release: "1.1.0+abc",
	}
	s := open(t, cfg)
	if found, err := admin.UnmatchedPayments(t.Context(), cfg); err != nil || len(found) != 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	st := must.Get(store.Open(t.Context(), store.Config{Data: at.Data, Database: at.Database, Admin: true}))(t)
	defer st.Close()
	order, seen := toll.NewUUID(), time.Now().Truncate(time.Millisecond)
	const tx = "0x00000000000000000000000000000000000000000000000000000000000000aa"
	ctx, usdc := t.Context(), toll.Sandbox.USDC()
	first, second := toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"), toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	must.Do(t, st.Tx(ctx, func(w *store.Tx) error {
		for _, o := range []*store.CardOrphan{
			{Object: "pi_lost", OrderID: order, Cents: 500, Refunded: 150, Disputed: 50, Currency: "usd", Reason: "no such order", SeenAt: seen},
			{Object: "pi_resolved", OrderID: order, Cents: 500, Currency: "usd", Reason: "no such order", SeenAt: seen, ResolvedAt: seen},
		} {
			if _, err := store.InsertCardOrphan(ctx, w, o); err != nil {
				return err
			}
		}
		_, err := store.InsertChainOrphan(ctx, w, store.ChainOrphan{
			BlockHash: toll.Hash{1}, LogIndex: 3, Block: 77,
			Data: fmt.Appendf(nil, `{"tx":%q,"opHash":%q,"nonceKey":"0x00","reason":"no record","paid":[
				{"token":%q,"from":%q,"to":%q,"amount":"990000"},{"token":%q,"from":%q,"to":%q,"amount":"10000"}]}`,
				tx, tx, usdc, usdc, first, usdc, usdc, second),
		})
		return err
	}))
	found, err := admin.UnmatchedPayments(t.Context(), cfg)
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	if c := found[0]; c.Rail != "card" || c.ID != "pi_lost" || c.OrderID != order || c.Cents != 500 || !c.SeenAt.Equal(seen) ||
		c.Amount != "5.00" || c.Currency != "usd" || *c.Left != 300 {
		t.Errorf("%+v", c)
	}
	if c := found[1]; c.Rail != "crypto" || c.TxHash != tx || !strings.HasSuffix(c.ID, ":3") || c.Block != 77 || c.Reason != "no record" ||
		c.Amount != "0.99, 0.01" || c.Currency != "USDC" || c.Token != usdc.String() || c.Receiver != first.String()+", "+second.String() {
		t.Errorf("%+v", c)
	}
	warned := false
	checks, _ := server.Inspect(t.Context(), cfg)
	for _, c := range checks {
		warned = warned || c.Name == "unmatched payments" && c.Status == check.Warning && strings.Contains(c.Detail, tx)
	}
	if !warned {
		t.Error("the inspection does not warn")
	}
	w := httptest.NewRecorder()
	s.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`toll_unmatched_payments{rail="card"} 1`, `toll_unmatched_payments{rail="crypto"} 1`, `version="1.1.0+abc"`, `master_key_id="`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
