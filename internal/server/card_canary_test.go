package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// T19 and I23: cards are enrolled, charged, declined, asked for their owner, refunded and disputed
// at debug level, with every kind of error of the processor. No number of a card, client secret,
// key of Stripe or address of its pages is in a log line, an answer, an event, the database or a
// backup.
// T19 I23
func TestNoCardSecretIsLeft(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, o servertest.Options) {
		t.Parallel()
		const publishable = "pk_test_scene0123456789abcdef"
		c := newCashier(t, o, 1, "--log-level", "debug", "--order-wait", "2s", "--stripe-publishable-key", publishable)
		ctx := t.Context()
		k := servertest.Key(t, c.o, "buyer")
		var seen answers
		listens := client.WithHTTPClient(&http.Client{Transport: &seen})
		must.Do(t, newShopper(t).enrols(c.services[0].URL, k.Key, secureCard))
		cards, err := c.as(k).PaymentMethods(ctx, client.OfProvider(toll.ProviderCard))
		if err != nil || len(cards) != 1 {
			t.Fatalf("%+v, %v", cards, err)
		}
		limits := []string{c.limit(k, cards[0].ID, 100_000)}
		for _, number := range []string{plainCard, askingCard, emptyCard} {
			limits = append(limits, c.limit(k, c.enrolled(k, number), 100_000))
		}
		buyer, seller := c.as(k, listens), c.as(c.builder, listens)

		// Orders by delegation, among them the errors of the processor.
		for i, limit := range limits {
			for _, kind := range []string{"", "cut", "500", "429"} {
				if kind != "" {
					c.bank.fault(double.Fault{
						Kind: kind, Method: http.MethodPost, Path: "/v1/payment_intents", After: kind != "429",
					})
				}
				once := client.WithIdempotencyKey(ctx, fmt.Sprintf("order-%d-%s", i, kind))
				_, _ = buyer.OrderPlan(once, c.plan, client.PaidBy(limit))
			}
		}
		// By pages, hosted and embedded, declined first.
		var paid string
		for _, session := range []string{"hosted", "embedded"} {
			out := must.Get(buyer.Checkout(ctx, c.plan, client.CheckoutParams{SessionType: session}))(t)
			p := newShopper(t)
			_ = p.pays(out.Result.URL, emptyCard)
			must.Do(t, p.pays(out.Result.URL, secureCard), session)
			paid = out.OrderID
		}
		c.settled()
		if _, err := seller.RefundOrder(ctx, paid, 100); err != nil {
			t.Error(err)
		}
		for _, p := range c.bank.books().Payments[:2] {
			c.bank.fault(double.Fault{Kind: "dispute", Object: p.Charge})
		}
		eventually(t, "the disputes are seen", func() bool { return c.count("SELECT COUNT(*) FROM card_disputes") >= 2 })
		hook, future := c.services[0].URL+"/api/v1/fiat/stripe/webhook", "t=9999999999,v1="+strings.Repeat("0", 64)
		for _, header := range []string{"", "t=1,v1=00", future} {
			body := strings.NewReader(`{"secret":"` + hookSecret + `"}`)
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, hook, body))(t)
			req.Header.Set("Stripe-Signature", header)
			res := must.Get((&http.Client{Transport: &seen}).Do(req))(t)
			_ = res.Body.Close()
		}
		for _, by := range []*client.Client{buyer, seller} {
			for _, err := range by.Events(ctx) {
				must.Do(t, err)
			}
		}
		copied := filepath.Join(t.TempDir(), "backup")
		if o.Data != "" {
			works(t, servertest.Program(t), c.o, "backup", copied)
		}
		must.Do(t, c.services[0].Signal(syscall.SIGTERM))
		must.Get(c.services[0].Wait(patience))(t)
		log := c.services[0].Log.String()
		// Once more with a key that Stripe does not know, whose errors have its text.
		strange := "sk_test_" + strings.Repeat("stranger", 4)
		c.o.Env = []string{"TOLL_STRIPE_SECRET_KEY=" + strange}
		c.start(0)
		_, _ = c.hasty(k, 0).OrderPlan(client.WithIdempotencyKey(ctx, "by-a-stranger"), c.plan, client.PaidBy(limits[0]))
		eventually(t, "the stranger is refused", func() bool { return strings.Contains(c.services[0].Log.String(), "alarm:") })
		c.services[0].Kill()
		log += c.services[0].Log.String()
		c.o.Env = []string{"TOLL_STRIPE_SECRET_KEY=" + stripeKey}
		c.start(0)
		c.settled()
		c.services[0].Kill()
		log += c.services[0].Log.String()

		secret := regexp.MustCompile(`(?:cs_test|pi|seti)_[0-9A-Za-z]+_secret_[0-9A-Za-z]+|` +
			`sk_(?:test|live)_\w+|whsec_\w+|/c/pay/cs_|/c/embed/|/c/authenticate/`)
		state, err := os.ReadFile(c.bank.file)
		if err != nil || len(secret.FindAll(state, -1)) < 10 {
			t.Fatalf("the double has no secrets to look for: %v", err)
		}
		places := map[string][]byte{"the log": []byte(log), "an answer": seen.b.Bytes()}
		if o.Data != "" {
			files := must.Get(filepath.Glob(filepath.Join(o.Data, "*")))(t)
			for _, f := range append(files, copied) {
				places[filepath.Base(f)] = must.Get(os.ReadFile(f))(t)
			}
		} else {
			places["the database"] = dump(t, o.Database)
		}
		if !strings.Contains(log, "Stripe responded with 500") || !strings.Contains(log, "Stripe responded with 402 card_declined") {
			t.Error("the log has no refusals of the processor: the search looks at the wrong place")
		}
		for place, content := range places {
			for _, found := range secret.FindAll(content, 3) {
				t.Errorf("%s holds %s…", place, found[:min(len(found), 12)])
			}
			for _, number := range []string{plainCard, secureCard, askingCard, emptyCard} {
				typed := strings.Join([]string{number[:4], number[4:8], number[8:12], number[12:]}, " ")
				for _, as := range []string{number, typed, number[:12]} {
					if bytes.Contains(content, []byte(as)) {
						t.Errorf("%s holds the number of a card that ends in %s", place, number[12:])
					}
				}
			}
		}
	})
}
