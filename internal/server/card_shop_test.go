package server_test

import (
	"html"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
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
	url, data     string
	log           *syncBuffer
	ahead         atomic.Int64 // of the clock of the service
	seller, buyer *client.Client
	owner, holder toll.APIKey
	plan          toll.PlanID
}

func newCardShop(t *testing.T, cards ...rails.CardConfig) *cardShop {
	t.Helper()
	var card rails.CardConfig
	if len(cards) > 0 {
		card = cards[0]
	}
	c := &cardShop{t: t, log: &syncBuffer{}, data: storetest.Dir(t)}
	ln := listenAnywhere(t)
	c.s, c.url = startOn(t, server.Config{
		Rails: rails.Config{Card: card}, Data: c.data, Listen: ln.Addr().String(), TrustedProxies: "127.0.0.1", Log: slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock: func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) },
	}, ln)
	c.owner, c.holder = keys(t, c.s)
	c.seller, c.buyer = client.New(c.owner.Key, client.WithURL(c.url)), client.New(c.holder.Key, client.WithURL(c.url))
	price := must.Get(toll.PriceFiat(toll.UnitsOf(5_000_000), c.owner.Address, "USD"))(t)
	plan := must.Get(c.seller.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Five <b>dollars</b>"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 100),
	}))(t)
	c.plan = plan.PlanID
	return c
}

// order makes an order of the buyer, and returns its id and the path of its page.
func (c *cardShop) order(p client.CheckoutParams) (id, page string) {
	c.t.Helper()
	made := must.Get(c.buyer.Checkout(c.t.Context(), c.plan, p))(c.t)
	return made.OrderID, strings.TrimPrefix(made.Result.URL, c.s.PublicURL())
}

func (c *cardShop) status(id string) toll.OrderStatus {
	c.t.Helper()
	o := must.Get(c.buyer.Order(c.t.Context(), id))(c.t)
	return o.Status
}

// fill pays a page of the double, or saves a card on it, and returns the path of ours where the browser goes.
func (c *cardShop) fill(page, number string) string {
	c.t.Helper()
	back := must.Get(double.Fill(c.t.Context(), page, number))(c.t)
	path, ours := strings.CutPrefix(back, c.s.PublicURL())
	if !ours {
		path, ours = strings.CutPrefix(back, c.url) // the same machine, by the address that the browser used
	}
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

// state returns what the double has stored.
func (c *cardShop) state() []byte {
	c.t.Helper()
	return must.Get(os.ReadFile(filepath.Join(c.data, "card-double.json")))(c.t)
}

// backOf returns the path of ours to which the page of an order leads back, as the double has it.
func (c *cardShop) backOf(orderID string) string {
	c.t.Helper()
	text := c.state()
	m := regexp.MustCompile(`/checkout/` + orderID + `/done\?t=[\w.-]+`).Find(text)
	if m == nil {
		c.t.Fatalf("the page of %s leads nowhere", orderID)
	}
	return string(m)
}

// sessions returns how many pages the double has made.
func (c *cardShop) sessions() int {
	c.t.Helper()
	text := c.state()
	seen := map[string]bool{}
	for _, id := range regexp.MustCompile(`cs_test_[0-9A-Za-z]+`).FindAllString(string(text), -1) {
		seen[id] = true
	}
	return len(seen)
}

func (c *cardShop) balance() toll.Credits {
	c.t.Helper()
	b := must.Get(c.buyer.Balance(c.t.Context(), c.plan))(c.t)
	return b.Balance
}

// books reads the books of the double, from a copy of its file, as it goes on writing it.
func (c *cardShop) books() double.Books {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "double.json")
	must.Do(c.t, os.WriteFile(file, c.state(), 0o600))
	d := must.Get(double.New(double.Options{File: file}))(c.t)
	defer d.Close()
	return d.Books()
}

// pathOf returns path and query of an address.
func pathOf(t *testing.T, address string) string {
	t.Helper()
	u := must.Get(url.Parse(address))(t)
	return u.RequestURI()
}
