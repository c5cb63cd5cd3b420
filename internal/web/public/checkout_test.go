package public

import (
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/page"
)

// A page with a frame of the processor names the hosts of Stripe, or the one origin of a double, and nothing wider.
func TestFrameOf(t *testing.T) {
	for script, want := range map[string]page.Hosts{
		"https://js.stripe.com/dahlia/stripe.js": stripeHosts,
		"http://127.0.0.1:8403/dahlia/stripe.js": {Script: "http://127.0.0.1:8403", Frame: "http://127.0.0.1:8403", Connect: "http://127.0.0.1:8403", Img: "http://127.0.0.1:8403"},
		"https://js.stripe.com.evil.example/dahlia/stripe.js": {
			Script: "https://js.stripe.com.evil.example", Frame: "https://js.stripe.com.evil.example", Connect: "https://js.stripe.com.evil.example", Img: "https://js.stripe.com.evil.example",
		},
	} {
		e := frameOf(rail.Shown{ClientSecret: "cs_1_secret_1", PublishableKey: "pk_test_1", Script: script})
		if e.Hosts != want || e.Secret != "cs_1_secret_1" || e.Key != "pk_test_1" || e.Source != script {
			t.Errorf("%s: %+v", script, e)
		}
	}
}

func TestLeaveTo(t *testing.T) {
	if leaveTo("") != nil {
		t.Error("no address leads somewhere")
	}
	if l := leaveTo("https://b\u00fccher.example/a?b"); l == nil || l.Host != `b\u00fccher.example` {
		t.Errorf("%+v", l)
	}
}

// The page of a paid order says what went back of it.
func TestWentBack(t *testing.T) {
	for name, tt := range map[string]struct {
		o           records.LinkedOrder
		back, title string
	}{
		"nothing":  {records.LinkedOrder{}, "", ""},
		"a part":   {records.LinkedOrder{Order: toll.Order{RefundedCents: 250, RefundedCredits: 50}}, "Refunded: 2.50 USD of 5.00 USD. Taken back: 50 credits of 100 credits.", "Order partially refunded"},
		"spent":    {records.LinkedOrder{Order: toll.Order{RefundedCents: 1}}, "Refunded: 0.01 USD of 5.00 USD.", "Order partially refunded"},
		"all":      {records.LinkedOrder{Order: toll.Order{RefundedCents: 500, RefundedCredits: 100}}, "Refunded: 5.00 USD of 5.00 USD. Taken back: 100 credits of 100 credits.", "Order refunded"},
		"disputed": {records.LinkedOrder{Order: toll.Order{Disputed: true}}, "The payment is disputed. The bank decides the outcome.", "Payment disputed"},
		"lost":     {records.LinkedOrder{Order: toll.Order{Disputed: true}, Lost: true}, "The payment was disputed, and the bank took back the money.", "Payment reversed"},
		"lost in part": {
			records.LinkedOrder{Order: toll.Order{Disputed: true}, Lost: true, DisputedCents: 100},
			"The payment was disputed, and the bank took back 1.00 USD.", "Payment partially reversed",
		},
	} {
		tt.o.Amount, tt.o.CreditsGranted = toll.UnitsOfCents(500), 100
		back, title := wentBack(&tt.o, "5.00 USD", "USD")
		if got := strings.Join(back, " "); got != tt.back || title != tt.title {
			t.Errorf("%s: %q, %q", name, got, title)
		}
	}
}
