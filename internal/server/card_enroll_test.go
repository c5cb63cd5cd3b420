package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// A person signs in and saves a card on the page of the processor. The browser then returns to our
// page, which shows the id of the card.
func TestEnrollPage(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	res := v.signIn(v.get("/cards/enroll"), c.holder.Key)
	reads(t, res, http.StatusOK, "<h1>Enroll card</h1>", "Continue to the card processor's page")
	res = v.submit(formOf(t, res))
	reads(t, res, http.StatusOK)
	to, _ := linkOf(t, res)
	if res.header.Get("Refresh") != "0; url="+to || !strings.HasPrefix(to, c.s.Cards().Double()+"/c/pay/") {
		t.Fatalf("the browser goes to %q", res.header.Get("Refresh"))
	}
	// The browser came by 127.0.0.1, where its session is, and the public address names localhost.
	if back := c.url + "/cards/enroll?setup="; strings.HasPrefix(back, c.s.PublicURL()) || !strings.Contains(string(c.state()), back) {
		t.Errorf("the card page does not lead back to %s", back)
	}
	res = v.get(c.fill(to, "4000 0025 0000 3155"))
	cards, err := c.buyer.PaymentMethods(t.Context(), client.OfProvider(toll.ProviderCard))
	if err != nil || len(cards) != 1 || cards[0].Last4 != "3155" {
		t.Fatalf("%+v, %v", cards, err)
	}
	reads(t, res, http.StatusOK, "<h1>Card enrolled</h1>", "ending in 3155, valid until 12/2039", cards[0].ID)
}

// backOfSetup returns the path of ours to which the page of the last enrolment leads back.
func (c *cardShop) backOfSetup() string {
	c.t.Helper()
	text := c.state()
	all := regexp.MustCompile(`/cards/enroll\?setup=[\w-]+`).FindAll(text, -1)
	if len(all) == 0 {
		c.t.Fatal("no enrolment leads back")
	}
	return string(all[len(all)-1])
}

// T84: the service limits enrolments by account and by network, before it asks the processor. The
// limit of the test mode is 30; the room card tests the 5 of the live mode.
// T84
func TestCardEnroll_EnrollPage(t *testing.T) {
	const most, people = 30, 5
	c := newCardShop(t)
	from := func(v *visitor, address string) shown {
		t.Helper()
		return v.submit(formOf(t, v.get("/cards/enroll")), "X-Forwarded-For", address)
	}
	person := func(key string) *visitor {
		t.Helper()
		v := newVisitor(t, c.url)
		v.signIn(v.get("/cards/enroll"), key)
		return v
	}
	stopped := func(res shown) {
		t.Helper()
		reads(t, res, http.StatusTooManyRequests, "Too many cards were tried", "Try again in up to 10 minutes.")
		if s, err := strconv.Atoi(res.header.Get("Retry-After")); err != nil || s < 1 {
			t.Errorf("Retry-After %q", res.header.Get("Retry-After"))
		}
	}
	v := person(c.holder.Key)
	for n := range 100 { // one account, of many networks
		res := from(v, fmt.Sprintf("2001:db8:%x::1", n))
		if n < most {
			reads(t, res, http.StatusOK)
			continue
		}
		stopped(res)
	}
	if n := c.sessions(); n != most {
		t.Errorf("the double made %d pages", n)
	}
	var visitors []*visitor
	for n := range people {
		visitors = append(visitors, person(keyOf(t, c.s, server.KeyRequest{Account: fmt.Sprint("person ", n)}).Key))
	}
	for n := range most + people { // many accounts of one network
		res := from(visitors[n%people], fmt.Sprintf("2001:db8:ffff:1::%x", n+1))
		if n < most {
			reads(t, res, http.StatusOK)
			continue
		}
		stopped(res)
	}
	neighbour := person(c.owner.Key)
	reads(t, from(neighbour, "2001:db8:ffff:2::1"), http.StatusOK)
	if n := c.sessions(); n != 2*most+1 {
		t.Errorf("the double made %d pages", n)
	}
	c.ahead.Store(int64(10*time.Minute + time.Second))
	reads(t, from(v, "2001:db8:ffff:1::1"), http.StatusOK)
}

// An enrolment needs a signed-in account, the form of its own session, and the right to spend.
func TestEnrollPage_Refusals(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	res := v.post("/cards/enroll", url.Values{})
	reads(t, res, http.StatusOK, "Sign in to enroll a card", `name="next" value="/cards/enroll"`)
	form := formOf(t, v.signIn(res, c.holder.Key))
	mallory := newVisitor(t, c.url)
	theirs := formOf(t, mallory.signIn(mallory.get("/cards/enroll"), c.owner.Key))
	for what, p := range map[string]page{
		"no ticket": form.with("ticket"), "a wrong one": form.with("ticket", "a.b"), "one of another session": form.with("ticket", theirs.values.Get("ticket")),
	} {
		reads(t, v.submit(p), http.StatusForbidden, "This form belongs to another session")
		_ = what
	}
	if res := v.submit(form, "Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"); res.status != http.StatusForbidden {
		t.Errorf("a form of another site: %d", res.status)
	}
	reader := must.Get(c.buyer.CreateKey(t.Context(), client.KeyParams{Rights: toll.Rights{toll.RightRead}}))(t)
	r := newVisitor(t, c.url)
	reads(t, r.signIn(r.get("/cards/enroll"), reader.Key), http.StatusForbidden, "the right spend", "sign in with an API key that has this right")
	if res := r.post("/cards/enroll", form.values); res.status != http.StatusForbidden {
		t.Errorf("without the right: %d", res.status)
	}
	if n := c.sessions(); n != 0 {
		t.Errorf("the double made %d pages", n)
	}

	// Only the owner sees the outcome, and only after the processor has saved a card.
	res = v.submit(form)
	to, _ := linkOf(t, res)
	back := c.backOfSetup()
	reads(t, v.get(back), http.StatusOK, "<h1>Card not enrolled yet</h1>", "Check again", "Continue to the card processor's page")
	reads(t, v.get(back+"&success=true"), http.StatusOK, "<h1>Card not enrolled yet</h1>")
	for _, path := range []string{"/cards/enroll?setup=" + toll.NewUUID(), "/cards/enroll?setup=x", "/cards/enroll?setup=%00"} {
		if res := v.get(path); res.status < 400 || res.status > 404 {
			t.Errorf("%s: %d", path, res.status)
		}
	}
	c.fill(to, goodCard)
	reads(t, mallory.get(back), http.StatusNotFound)
	stranger := newVisitor(t, c.url)
	res = stranger.get(back)
	reads(t, res, http.StatusOK, "Sign in to enroll a card")
	reads(t, stranger.signIn(res, c.holder.Key), http.StatusOK, "<h1>Card enrolled</h1>", "visa card ending in 4242")

	// A page that ends without a card.
	reads(t, v.submit(formOf(t, v.get("/cards/enroll"))), http.StatusOK)
	back = c.backOfSetup()
	c.ahead.Store(int64(40 * time.Minute))
	reads(t, v.get(back), http.StatusOK, "<h1>Card not enrolled</h1>", "The page expired before a card was saved.", "Continue to the card processor's page")
}
