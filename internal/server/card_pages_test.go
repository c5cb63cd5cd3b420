package server_test

import (
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

const (
	goodCard   = "4242 4242 4242 4242"
	askedCard  = "4000 0027 6000 3184" // its bank asks for the owner on each charge
	successURL = "https://shop.example.com/thanks?order=7"
	cancelURL  = "https://shop.example.com/basket"
)

// cardShop is a service with the double of Stripe, and a plan of 100 credits for 5.00 USD.
type cardShop struct {
	t             *testing.T
	s             *server.Server
	url           string
	log           *syncBuffer
	ahead         atomic.Int64 // of the clock of the service
	seller, buyer *client.Client
	owner, holder toll.APIKey
	plan          toll.PlanID
}

func newCardShop(t *testing.T) *cardShop {
	t.Helper()
	c := &cardShop{t: t, log: &syncBuffer{}}
	ln := listenAnywhere(t)
	c.s, c.url = startOn(t, server.Config{
		Data: storetest.Dir(t), Listen: ln.Addr().String(), Log: slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock: func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) },
	}, ln)
	c.owner, c.holder = keys(t, c.s)
	c.seller, c.buyer = client.New(c.owner.Key, client.WithURL(c.url)), client.New(c.holder.Key, client.WithURL(c.url))
	price, err := toll.PriceFiat(toll.UnitsOf(5_000_000), c.owner.Address, "USD")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := c.seller.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Five <b>dollars</b>"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 100),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.plan = plan.PlanID
	return c
}

// order makes an order of the buyer, and returns its id and the path of its page.
func (c *cardShop) order(p client.CheckoutParams) (id, page string) {
	c.t.Helper()
	made, err := c.buyer.Checkout(c.t.Context(), c.plan, p)
	if err != nil {
		c.t.Fatal(err)
	}
	return made.OrderID, strings.TrimPrefix(made.Result.URL, c.url)
}

func (c *cardShop) status(id string) toll.OrderStatus {
	c.t.Helper()
	o, err := c.buyer.Order(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return o.Status
}

// fill pays a page of the double, or saves a card on it, and returns the path of ours where the browser goes.
func (c *cardShop) fill(page, number string) string {
	c.t.Helper()
	back, err := double.Fill(c.t.Context(), page, number)
	if err != nil {
		c.t.Fatal(err)
	}
	path, ours := strings.CutPrefix(back, c.url)
	if !ours {
		c.t.Fatalf("the browser goes to %s", back)
	}
	return path
}

var payLink = regexp.MustCompile(`<a class="button" href="([^"]*)">([^<]*)`)

// linkOf returns where the button of a page leads, which is a link, and what it says.
func linkOf(t *testing.T, s shown) (to, label string) {
	t.Helper()
	m := payLink.FindStringSubmatch(s.body)
	if m == nil {
		t.Fatalf("%d, no button:\n%s", s.status, mainPart.FindString(s.body))
	}
	return html.UnescapeString(m[1]), m[2]
}

// reads proves what a page shows.
func reads(t *testing.T, s shown, status int, texts ...string) {
	t.Helper()
	if s.status != status {
		t.Errorf("%d, want %d to %q:\n%s", s.status, status, s.header.Get("Location"), mainPart.FindString(s.body))
	}
	for _, text := range texts {
		if !strings.Contains(s.body, text) {
			t.Errorf("no %q:\n%s", text, mainPart.FindString(s.body))
		}
	}
	labelled(t, s.body)
}

// TestPageOfAnOrder: a person without a key reads an order, pays it on the page of the processor, and goes on to the program.
func TestPageOfAnOrder(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	id, page := c.order(client.CheckoutParams{SessionType: "hosted", SuccessURL: successURL, CancelURL: cancelURL})
	res := v.get(page)
	reads(t, res, http.StatusOK, "<h1>Pay an order</h1>", "Five &lt;b&gt;dollars&lt;/b&gt;", "5.00 USD", "100 credits", c.owner.Address.String(), id,
		"This is a sandbox", "Your card is not kept", "takes unspent credits back", `href="`+cancelURL+`"`, "shop.example.com")
	to, label := linkOf(t, res)
	if label != "Pay 5.00 USD by card" || !strings.HasPrefix(to, c.s.Cards().Double()+"/c/pay/cs_test_") {
		t.Errorf("%q leads to %s", label, to)
	}
	done := c.fill(to, goodCard)
	res = v.get(done)
	if res.status != http.StatusSeeOther || res.header.Get("Location") != successURL || c.status(id) != toll.OrderConfirmed {
		t.Errorf("%d to %q:\n%s", res.status, res.header.Get("Location"), mainPart.FindString(res.body))
	}
	// Once; after that, and for everybody else, it is a link.
	for _, v := range []*visitor{v, newVisitor(t, c.url)} {
		res = v.get(done)
		reads(t, res, http.StatusOK, "<h1>The order is paid</h1>")
		if to, _ := linkOf(t, res); to != successURL {
			t.Errorf("the link leads to %s", to)
		}
	}
	reads(t, v.get(page), http.StatusOK, "<h1>The order is paid</h1>")
}

// TestEnrollPage: a person signs in, has a card saved on the page of the processor, and comes back to a page that tells its id.
func TestEnrollPage(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	res := v.signIn(v.get("/cards/enroll"), c.holder.Key)
	reads(t, res, http.StatusOK, "<h1>Enrol a card</h1>", "Continue to the card page")
	res = v.submit(formOf(t, res))
	reads(t, res, http.StatusOK)
	to, _ := linkOf(t, res)
	if res.header.Get("Refresh") != "0; url="+to || !strings.HasPrefix(to, c.s.Cards().Double()+"/c/pay/") {
		t.Fatalf("the browser goes to %q", res.header.Get("Refresh"))
	}
	res = v.get(c.fill(to, "4000 0025 0000 3155"))
	cards, err := c.buyer.PaymentMethods(t.Context(), client.OfProvider(toll.ProviderCard))
	if err != nil || len(cards) != 1 || cards[0].Last4 != "3155" {
		t.Fatalf("%+v, %v", cards, err)
	}
	reads(t, res, http.StatusOK, "<h1>The card is enrolled</h1>", "ending in 3155, valid until 12/2039", cards[0].ID)
}

// pathOf returns path and query of an address.
func pathOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.RequestURI()
}
