package web

import (
	"testing"

	"github.com/tollhq/toll/internal/rail"
)

// A page with a frame of the processor names the hosts of Stripe, or the one origin of a double, and
// nothing wider.
func TestFrameOf(t *testing.T) {
	for script, want := range map[string]hosts{
		"https://js.stripe.com/dahlia/stripe.js": stripeHosts,
		"http://127.0.0.1:8403/dahlia/stripe.js": {"http://127.0.0.1:8403", "http://127.0.0.1:8403", "http://127.0.0.1:8403", "http://127.0.0.1:8403"},
		"https://js.stripe.com.evil.example/dahlia/stripe.js": {
			"https://js.stripe.com.evil.example", "https://js.stripe.com.evil.example", "https://js.stripe.com.evil.example", "https://js.stripe.com.evil.example",
		},
	} {
		e := frameOf(rail.Shown{ClientSecret: "cs_1_secret_1", PublishableKey: "pk_test_1", Script: script})
		if e.hosts != want || e.Secret != "cs_1_secret_1" || e.Key != "pk_test_1" || e.Source != script {
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
