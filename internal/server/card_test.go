package server_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// processorPage is the page of the card processor on which an order is paid, as our page shows it.
func processorPage(t *testing.T, s *server.Server, orderID string) string {
	t.Helper()
	pages, ok := server.CardRailOf(s).(rail.Pages)
	if !ok {
		t.Fatal("there is no card rail")
	}
	page, err := pages.Page(t.Context(), orderID, true)
	if err != nil || page.URL == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	return page.URL
}

// payPage fills the page of the double in, as a browser does.
func payPage(t *testing.T, page, number string) {
	t.Helper()
	browser := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := browser.PostForm(page, url.Values{
		"number": {number}, "expiry": {"12/34"}, "cvc": {"123"}, "name": {"Ada"}, "email": {"ada@example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil || res.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s, %v", res.StatusCode, text, err)
	}
}

// A sandbox sells a plan in dollars without any keys: a person pays on a page of the double in the program, which sends an event
// about it. A service that was started again does so, too.
func TestCardsInASandbox(t *testing.T) {
	cfg := server.Config{Data: storetest.Config(t, storetest.SQLite).Data}
	for i := range 2 {
		t.Run([]string{"first start", "second start"}[i], func(t *testing.T) {
			ln := listenAnywhere(t)
			cfg.Listen = ln.Addr().String()
			s, base := startOn(t, cfg, ln)
			builder, subscriber := keys(t, s)
			seller, buyer := client.New(builder.Key, client.WithURL(base)), client.New(subscriber.Key, client.WithURL(base))
			price, err := toll.PriceFiat(toll.UnitsOf(5_000_000), builder.Address, "USD")
			if err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			plan, err := seller.RegisterPlan(ctx, client.PlanParams{
				Metadata: toll.Metadata{Name: "Five dollars"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 100),
			})
			if err != nil {
				t.Fatal(err)
			}
			page, err := buyer.Checkout(ctx, plan.PlanID, client.CheckoutParams{SessionType: "hosted"})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(page.Result.URL, s.PublicURL()+"/checkout/"+page.OrderID+"?t=") {
				t.Errorf("the page is %q", page.Result.URL)
			}
			at := processorPage(t, s, page.OrderID)
			if !strings.HasPrefix(at, s.CardDouble()+"/c/pay/cs_test_") {
				t.Fatalf("the page of the processor is %q", at)
			}
			payPage(t, at, "4242 4242 4242 4242")
			o, err := buyer.WaitOrder(ctx, page.OrderID)
			if err != nil || o.Status != toll.OrderConfirmed || o.CreditsGranted != 100 || o.Balance == nil || o.Balance.Balance != 100 {
				t.Errorf("%+v, %v", o, err)
			}
			if r, err := buyer.Ready(ctx); err != nil || r.Checks["card"] != "ok" {
				t.Errorf("%+v, %v", r, err)
			}
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, base+"/api/v1/fiat/stripe/webhook", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusBadRequest {
				t.Errorf("an event without a signature: %d", res.StatusCode)
			}
		})
	}
}
