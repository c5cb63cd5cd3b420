package card_test

import (
	"slices"
	"testing"

	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Doctor learns the account, the permissions that a restricted key lacks, and who gets events.
func TestCheck(t *testing.T) {
	st, _ := storetest.Open(t, store.SQLite)
	const hook = "http://127.0.0.1:1/fiat/stripe/webhook"
	s := newScene(t, st, func(o *double.Options) {
		o.RestrictedKeys = map[string][]string{
			"rk_test_some": {"account_read", "customer_write", "payment_intent_read", "charge_write"}, "rk_test_none": nil,
		}
		o.Webhooks = []double.Webhook{{URL: hook, Secrets: []string{hookSecret}}}
	})
	got := must.Get(s.at().rail.Check(s.ctx))(s)
	if got.ID == "" || got.Country == "" || got.Live || len(got.Missing) > 0 || !slices.Equal(got.Webhooks, []string{hook}) ||
		got.Version != double.Version {
		t.Errorf("got %+v", got)
	}
	restricted := func(key string) *card.Account {
		t.Helper()
		return must.Get(s.rail(func(c *card.Config) { c.SecretKey = key }).Check(s.ctx))(s)
	}
	some, want := restricted("rk_test_some"), []string{
		"payment methods", "checkout sessions", "setup intents", "disputes", "balance", "events", "webhook endpoints",
	}
	if some.ID != got.ID || !slices.Equal(some.Missing, want) || some.Webhooks != nil {
		t.Errorf("got %+v", some)
	}
	if none := restricted("rk_test_none"); none.ID != "" || len(none.Missing) != 11 {
		t.Errorf("got %+v", none)
	}
	if _, err := s.rail(func(c *card.Config) { c.SecretKey = "sk_test_other" }).Check(s.ctx); err == nil {
		t.Error("a key that Stripe does not know is good")
	}
}
