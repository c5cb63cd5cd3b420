package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A sandbox sells a plan in dollars without any keys: a person pays on a page of the double in the program. The first order is decided
// by the webhook of the double. The second one is already decided when [rails.Cards.FillPage] returns, on a service that was restarted.
func TestCardsInASandbox(t *testing.T) {
	cfg := server.Config{Data: storetest.Config(t, storetest.SQLite).Data}
	for i := range 2 {
		t.Run([]string{"first start", "second start"}[i], func(t *testing.T) {
			ln := listenAnywhere(t)
			cfg.Listen = ln.Addr().String()
			s, base := startOn(t, cfg, ln)
			builder, subscriber := keys(t, s)
			seller, buyer := client.New(builder.Key, client.WithURL(base)), client.New(subscriber.Key, client.WithURL(base))
			price := must.Get(toll.PriceFiat(toll.UnitsOf(5_000_000), builder.Address, "USD"))(t)
			ctx := t.Context()
			plan := must.Get(seller.RegisterPlan(ctx, client.PlanParams{
				Metadata: toll.Metadata{Name: "Five dollars"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 100),
			}))(t)
			page := must.Get(buyer.Checkout(ctx, plan.PlanID, client.CheckoutParams{SessionType: "hosted"}))(t)
			if !strings.HasPrefix(page.Result.URL, s.PublicURL()+"/checkout/"+page.OrderID+"?t=") {
				t.Errorf("the page is %q", page.Result.URL)
			}
			pay := map[int]func() (*toll.Order, error){
				0: func() (*toll.Order, error) {
					shown := must.Get(s.Cards().Rail().(rail.Pages).Page(ctx, page.OrderID, true))(t)
					must.Get(double.Fill(ctx, shown.URL, "4242 4242 4242 4242"))(t)
					return buyer.WaitOrder(ctx, page.OrderID)
				},
				1: func() (*toll.Order, error) {
					must.Do(t, s.Cards().FillPage(ctx, page.OrderID, "4242 4242 4242 4242"))
					return buyer.Order(ctx, page.OrderID)
				},
			}
			o, err := pay[i]()
			if err != nil || o.Status != toll.OrderConfirmed || o.CreditsGranted != 100 || o.Balance == nil || o.Balance.Balance != 100 {
				t.Errorf("%+v, %v", o, err)
			}
			audited(t, cfg, builder.Address, page.OrderID, int64(i)+1)
			if i == 1 { // half of it goes back, once, and then the rest
				for range 2 {
					o, err = seller.RefundOrder(client.WithIdempotencyKey(ctx, "half"), page.OrderID, 250)
					if err != nil || o.RefundedCents != 250 || o.RefundedCredits != 50 || o.Status != toll.OrderConfirmed {
						t.Errorf("%+v, %v", o, err)
					}
				}
				if _, err := seller.RefundOrder(ctx, page.OrderID, 251); !errors.Is(err, toll.NewError(toll.CodeRefundRefused)) {
					t.Errorf("more than is left: %v", err)
				}
				if _, err := buyer.RefundOrder(ctx, page.OrderID, 1); !errors.Is(err, toll.NewError(toll.CodeNotPlanOwner)) {
					t.Errorf("a refund by the buyer: %v", err)
				}
				if o, err = seller.RefundOrder(ctx, page.OrderID, 0); err != nil || o.RefundedCents != 500 || o.RefundedCredits != 100 {
					t.Errorf("%+v, %v", o, err)
				}
			}
			if r, err := buyer.Ready(ctx); err != nil || r.Checks["card"] != "ok" {
				t.Errorf("%+v, %v", r, err)
			}
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, base+"/api/v1/fiat/stripe/webhook", strings.NewReader("{}"))
			must.Do(t, err)
			res := must.Get(http.DefaultClient.Do(req))(t)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusBadRequest {
				t.Errorf("an event without a signature: %d", res.StatusCode)
			}
		})
	}
}

// audited compares what is owed to a builder with his orders, and reads the story of one.
func audited(t *testing.T, cfg server.Config, builder toll.Address, orderID string, orders int64) {
	t.Helper()
	ctx := t.Context()
	var owed []card.Owed
	eventually(t, "what is owed", func() bool {
		var err error
		if owed, err = admin.Owed(ctx, cfg, ""); err != nil {
			t.Fatal(err)
		}
		return len(owed) == 1 && owed[0].Orders == orders
	})
	o := owed[0]
	if o.Builder != builder || o.Currency != "usd" || o.Charged != toll.Cents(500*orders) || o.Fees < 1 || o.Due != o.Charged-o.Fees-o.PaidOut {
		t.Errorf("%+v", o)
	}
	p := rails.Payout{ID: toll.NewUUID(), Builder: builder, Month: o.Month, Currency: "usd", Cents: o.Due + 1}
	if _, err := admin.MarkPayout(ctx, cfg, p, false); !errors.Is(err, rails.ErrNotOwed) {
		t.Errorf("more than is owed: %v", err)
	}
	p.Cents--
	for range 2 { // the second is a repeat
		if _, err := admin.MarkPayout(ctx, cfg, p, false); err != nil {
			t.Error(err)
		}
	}
	if owed, err := admin.Owed(ctx, cfg, o.Month); err != nil || len(owed) != 1 || owed[0].Due != 0 {
		t.Errorf("after the payout: %+v, %v", owed, err)
	}
	story, err := admin.Evidence(ctx, cfg, strings.ToUpper(orderID))
	if err != nil || story.OrderID != orderID || story.Payment.Cents != 500 || !story.Payment.ByPage || story.Payment.PaidAt == nil ||
		len(story.Payment.Moves) != 1 || story.Payment.Moves[0].Fee < 1 || len(story.Receipts) != 0 {
		t.Errorf("%+v, %v", story, err)
	}
	if _, err := admin.Evidence(ctx, cfg, toll.NewUUID()); !errors.Is(err, toll.NewError(toll.CodeOrderNotFound)) {
		t.Errorf("another order: %v", err)
	}
}
