package interop

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// shop is a double of Stripe, and the site to which its pages lead back.
type shop struct {
	*testing.T
	double *double.Double
	url    string
	site   *httptest.Server
}

const shopKey = "sk_test_shop0123456789"

func newShop(t *testing.T) *shop {
	t.Helper()
	d := must.Get(double.New(double.Options{SecretKey: shopKey}))(t)
	s := &shop{T: t, double: d}
	stripe := httptest.NewServer(d.Handler())
	s.url = stripe.URL
	s.site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if secret := r.URL.Query().Get("secret"); secret != "" {
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Shop</title><h1>Shop</h1><div id="here"></div>
				<script src="%s/dahlia/stripe.js"></script>
				<script>Stripe("pk_test_1").createEmbeddedCheckoutPage({clientSecret: %q}).then((page) => page.mount("#here"))</script>`, s.url, secret)
			return
		}
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>Shop</title><h1>Thank you</h1>`)
	}))
	t.Cleanup(func() {
		d.Close()
		stripe.Close()
		s.site.Close()
	})
	return s
}

// post asks the API for a new object.
func (s *shop) post(path string, form url.Values) (made struct{ ID, URL, Client_secret string }) {
	s.Helper()
	servertest.PostForm(s.T, s.url+"/v1/"+path, shopKey, form, &made)
	return made
}

func (s *shop) payment(change map[string]string) (made struct{ ID, URL, Client_secret string }) {
	s.Helper()
	form := url.Values{
		"mode": {"payment"}, "payment_method_types[0]": {"card"}, "line_items[0][quantity]": {"1"},
		"line_items[0][price_data][currency]": {"usd"}, "line_items[0][price_data][unit_amount]": {"500"},
		"line_items[0][price_data][product_data][name]": {"Five dollars"},
	}
	if change == nil {
		change = map[string]string{"ui_mode": "hosted_page", "success_url": s.site.URL + "/done", "cancel_url": s.site.URL}
	}
	for name, value := range change {
		form.Set(name, value)
	}
	return s.post("checkout/sessions", form)
}

// TestPagesOfTheDouble: a person can use each page of the double, with scripts and without, light, dark and on a telephone.
func TestPagesOfTheDouble(t *testing.T) {
	inBrowser(t, func(b *browser) {
		s := newShop(b.T)
		const threeD, plain, poor = "4000 0025 0000 3155", "4242 4242 4242 4242", "4000 0000 0000 9995"

		// A card is saved, after the step of its bank was failed once.
		b.begin(false)
		customer := s.post("customers", nil)
		setup := s.post("checkout/sessions", url.Values{
			"mode": {"setup"}, "customer": {customer.ID}, "currency": {"usd"}, "payment_method_types[0]": {"card"},
			"ui_mode": {"hosted_page"}, "success_url": {s.site.URL + "/done"}, "cancel_url": {s.site.URL},
		})
		b.visit(setup.URL, http.StatusOK)
		b.look("double setup")
		b.fillCard(threeD, "Save a card")
		b.read("Your bank asks you to confirm that this is you.")
		b.look("double 3-D Secure")
		b.press("Fail")
		b.read("unable to authenticate")
		b.look("double setup failed")
		b.fillCard(threeD, "Save a card")
		b.press("Approve")
		b.read("Thank you")
		if s.double.Books().Currencies["usd"] != nil {
			b.Error("saving a card took money")
		}

		// A payment: declined, then paid.
		pay := s.payment(nil)
		b.visit(pay.URL, http.StatusOK)
		b.look("double payment")
		b.fillCard("4242 4242 4242 4241", "Pay")
		b.read("Your card number is incorrect.")
		b.fillCard(poor, "Pay")
		b.read("Your card was declined.")
		b.look("double payment declined")
		b.fillCard(plain, "Pay")
		b.read("Thank you")
		b.visit(pay.URL, http.StatusOK) // the old page leads back
		b.read("Thank you")

		// The same in a frame of the shop.
		b.begin(true)
		framed := s.payment(map[string]string{"ui_mode": "embedded_page", "return_url": s.site.URL + "/done"})
		b.visit(s.site.URL+"/?secret="+url.QueryEscape(framed.Client_secret), http.StatusOK)
		b.read("TEST PAGE: NO MONEY MOVES")
		b.look("double embedded")
		b.fillCard(threeD, "Pay")
		b.press("Approve")
		b.read("Thank you")

		expired := s.payment(nil)
		s.post("checkout/sessions/"+expired.ID+"/expire", nil)
		b.visit(s.url+"/c/pay/"+expired.ID, http.StatusGone)
		b.look("double expired")
		b.visit(s.url+"/c/pay/cs_test_none", http.StatusNotFound)
		if sums := s.double.Books().Currencies["usd"]; sums == nil || sums.Charges != 2 || sums.Captured != 1000 {
			b.Errorf("books: %+v", sums)
		}
	})
}
