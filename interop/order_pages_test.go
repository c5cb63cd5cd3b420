package interop

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// TestPagesOfOrders: a person pays an order in the frame of its page, and without scripts on the page of the processor; confirms what
// a bank asked about; and can use each page light, dark and on a telephone.
func TestPagesOfOrders(t *testing.T) {
	inBrowser(t, func(b *browser) {
		ctx := b.Context()
		s := run(b.T, servertest.Options{})
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Shop</title><h1>The shop at %s</h1>`, r.URL.Path)
		}))
		b.Cleanup(site.Close)
		price := must.Get(toll.PriceFiat(toll.UnitsOf(5_000_000), s.builder.Address, "USD"))(b)
		plan := must.Get(s.client(s.builder).RegisterPlan(ctx, client.PlanParams{
			Metadata: toll.Metadata{Name: "Research, five dollars"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 100),
		}))(b)
		buyer := s.client(s.subscriber)
		order := func(kind string) *toll.Checkout {
			b.Helper()
			c, err := buyer.Checkout(ctx, plan.PlanID, client.CheckoutParams{SessionType: kind, SuccessURL: site.URL + "/thanks", CancelURL: site.URL + "/basket"})
			must.Do(b, err)
			return c
		}
		paid := func(id string) {
			b.Helper()
			if o, err := buyer.Order(ctx, id); err != nil || o.Status != toll.OrderConfirmed {
				b.Errorf("%+v, %v", o, err)
			}
		}

		// In the frame.
		b.begin(true)
		framed := order("embedded")
		b.visit(framed.Result.URL, http.StatusOK)
		b.read("TEST PAGE: NO MONEY MOVES")
		b.look("order framed")
		b.fillCard("4000 0000 0000 9995", "Pay")
		b.read("Your card was declined.")
		b.visit(framed.Result.URL, http.StatusOK)
		b.fillCard("4000 0025 0000 3155", "Pay")
		b.press("Approve")
		b.read("The shop at /thanks")
		paid(framed.OrderID)
		b.visit(framed.Result.URL+"x", http.StatusNotFound)
		b.look("order wrong link")
		b.visit(framed.Result.URL, http.StatusOK)
		b.look("order paid")

		// Without scripts, on the page of the processor.
		b.begin(false)
		hosted := order("embedded")
		b.visit(hosted.Result.URL, http.StatusOK)
		b.look("order framed without scripts")
		b.press("Pay on the card processor's page")
		b.read("Pay 5.00 USD by card")
		b.look("order hosted")
		b.press("Pay 5.00 USD by card")
		b.read("Test card number")
		b.press("Back")
		b.read("The shop at /basket")
		b.visit(hosted.Result.URL, http.StatusOK)
		b.press("Pay 5.00 USD by card")
		b.fillCard("4242 4242 4242 4242", "Pay")
		b.read("The shop at /thanks")
		paid(hosted.OrderID)

		// A card is enrolled.
		b.visit(s.url+"/cards/enroll", http.StatusOK)
		b.look("enrol sign-in")
		b.signIn(s.subscriber.Key)
		b.read("Continue to the card processor's page")
		b.look("enrol")
		b.press("Continue to the card processor's page")
		b.press("Back")
		b.read("Card not enrolled yet")
		b.look("enrol not yet")
		b.press("Continue to the card processor's page")
		b.fillCard("4000 0027 6000 3184", "Save a card")
		b.press("Approve")
		b.read("Card enrolled")
		b.look("enrolled")
		for tried := 2; tried <= 30; tried++ { // 30 is the bound with test keys
			b.visit(s.url+"/cards/enroll", http.StatusOK)
			b.press("Continue to the card processor's page")
			if tried < 30 {
				b.read("Test card number") // the browser goes on by itself
			}
		}
		b.read("Too many cards were tried")
		b.look("enrol too often")

		// Its bank wants a payment confirmed, which is another order on a page.
		cards, err := buyer.PaymentMethods(ctx, client.OfProvider(toll.ProviderCard))
		if err != nil || len(cards) != 1 {
			b.Fatalf("%+v, %v", cards, err)
		}
		d := must.Get(buyer.CreateDelegation(ctx, client.DelegationParams{
			Provider: toll.ProviderCard, PaymentMethodID: cards[0].ID, SpendingLimit: 1700, Lifetime: 24 * time.Hour, Currency: "usd",
		}))(b)
		_, err = buyer.OrderPlan(ctx, plan.PlanID, client.PaidBy(d.DelegationID))
		e, ok := errors.AsType[*toll.Error](err)
		if !ok || e.Code != toll.CodeCardAuthentication {
			b.Fatalf("an order that its bank wants confirmed: %v", err)
		}
		b.visit(fmt.Sprint(e.Params["checkoutUrl"]), http.StatusOK)
		b.look("order again")
		b.press("Continue to payment")
		b.press("Pay 5.00 USD by card")
		b.fillCard("4000 0027 6000 3184", "Pay")
		b.press("Approve")
		b.read("Order paid")
		b.look("order done")
	})
}
