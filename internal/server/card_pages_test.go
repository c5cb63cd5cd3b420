package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// A person without an API key reads an order and pays it on the page of the processor. The browser
// then goes to the success URL.
func TestPageOfAnOrder(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	id, page := c.order(client.CheckoutParams{SessionType: "hosted", SuccessURL: successURL, CancelURL: cancelURL})
	res := v.get(page)
	reads(t, res, http.StatusOK, "<h1>Pay for your order</h1>", "Five &lt;b&gt;dollars&lt;/b&gt;", "5.00 USD", "100 credits", c.owner.Address.String(), id,
		"This is a sandbox", "Your card is not stored", "A refund takes back the same share of the credits that you bought", `href="`+cancelURL+`"`, "shop.example.com")
	to, label := linkOf(t, res)
	if label != "Pay 5.00 USD by card" || !strings.HasPrefix(to, c.s.Cards().Double()+"/c/pay/cs_test_") {
		t.Errorf("%q leads to %s", label, to)
	}
	done := c.fill(to, goodCard)
	res = v.get(done)
	if res.status != http.StatusSeeOther || res.header.Get("Location") != successURL || c.status(id) != toll.OrderConfirmed {
		t.Errorf("%d to %q:\n%s", res.status, res.header.Get("Location"), mainPart.FindString(res.body))
	}
	// The redirect happens once. Later, and in other browsers, the page has a link in its place.
	for _, v := range []*visitor{v, newVisitor(t, c.url)} {
		res = v.get(done)
		reads(t, res, http.StatusOK, "<h1>Order paid</h1>")
		if to, _ := linkOf(t, res); to != successURL {
			t.Errorf("the link leads to %s", to)
		}
	}
	reads(t, v.get(page), http.StatusOK, "<h1>Order paid</h1>", "the order is complete")

	for _, tt := range []struct {
		cents toll.Cents
		texts []string
	}{
		{250, []string{"<h1>Order partially refunded</h1>", "Refunded: 2.50 USD of 5.00 USD.", "Taken back: 50 credits of 100 credits."}},
		{0, []string{"<h1>Order refunded</h1>", "Refunded: 5.00 USD of 5.00 USD.", "Taken back: 100 credits of 100 credits."}},
	} {
		must.Get(c.seller.RefundOrder(t.Context(), id, tt.cents))(t)
		eventually(t, "the refund is there", func() bool { return strings.Contains(v.get(page).body, tt.texts[1]) })
		res := v.get(page)
		if reads(t, res, http.StatusOK, tt.texts...); strings.Contains(res.body, "the order is complete") {
			t.Errorf("what was refunded is there:\n%s", mainPart.FindString(res.body))
		}
	}
}

// T79: a browser cannot have an order confirmed: parameters, links of other orders and repeated
// forms change nothing.
// T79
func TestReturnPages(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	first, page := c.order(client.CheckoutParams{SessionType: "hosted", SuccessURL: successURL})
	second, other := c.order(client.CheckoutParams{SuccessURL: successURL})
	done := c.backOf(first)
	to, _ := linkOf(t, v.get(page))
	open := func(what, path string) {
		t.Helper()
		res := v.get(path)
		reads(t, res, http.StatusOK, "<h1>Order not paid yet</h1>", `href="/checkout/`+first+`?t=`)
		if c.status(first) != toll.OrderCreated || strings.Contains(res.body, successURL) {
			t.Errorf("%s: %s\n%s", what, c.status(first), mainPart.FindString(res.body))
		}
	}
	open("unpaid", done)
	for _, claim := range []string{
		"success=true", "paid=true", "redirect_status=succeeded", "payment_intent=pi_1", "session_id=cs_test_1", "status=complete", "t=x", "setup=x",
	} {
		open(claim, done+"&"+claim)
	}
	if _, err := double.Fill(t.Context(), to, "4000 0000 0000 9995"); !errors.Is(err, double.ErrDeclined) {
		t.Errorf("a card without money: %v", err)
	}
	open("declined", done)

	// The second order is paid. Its session and its link say nothing of the first.
	framed := regexp.MustCompile(`data-secret="(cs_test_\w+)_secret_`).FindStringSubmatch(v.get(other).body)
	if framed == nil {
		t.Fatal("no frame")
	}
	paid := c.fill(c.s.Cards().Double()+"/c/pay/"+framed[1], goodCard)
	open("the session of another order", done+"&session_id="+framed[1])
	_, link, _ := strings.Cut(paid, "?")
	if res := v.get("/checkout/" + first + "/done?" + link); res.status != http.StatusNotFound || c.status(first) != toll.OrderCreated {
		t.Errorf("the link of another order: %d, %s", res.status, c.status(first))
	}
	if res := v.get(paid); res.status != http.StatusSeeOther || res.header.Get("Location") != successURL {
		t.Errorf("the second order is paid: %d to %q", res.status, res.header.Get("Location"))
	}

	// The back button, and forms that were sent before.
	for range 2 {
		reads(t, v.get(other), http.StatusOK, "<h1>Order paid</h1>")
		if res := v.post(other, url.Values{}); res.status != http.StatusSeeOther || res.header.Get("Location") != other {
			t.Errorf("a form of a paid order: %d to %q", res.status, res.header.Get("Location"))
		}
		if back, err := double.Fill(t.Context(), c.s.Cards().Double()+"/c/pay/"+framed[1], goodCard); err != nil || !strings.Contains(back, second) {
			t.Errorf("a paid page leads to %s, %v", back, err)
		}
		open("after the other", done)
	}
	if res := v.post(done, url.Values{"success": {"true"}}); res.status != http.StatusMethodNotAllowed {
		t.Errorf("a form to the page that has none: %d", res.status)
	}
	if got := c.balance(); got != 100 {
		t.Errorf("%s credits", got)
	}
	if books := c.books(); books.Currencies["usd"].Charges != 1 || books.Currencies["usd"].Captured != 500 {
		t.Errorf("the books of the double are %+v", books.Currencies["usd"])
	}
}

// A link opens one page of one order until it expires. Every other link gets the same 404 and
// changes nothing.
func TestLinksOfOrders(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	id, page := c.order(client.CheckoutParams{})
	other, another := c.order(client.CheckoutParams{})
	elsewhere := newCardShop(t)
	_, foreign := elsewhere.order(client.CheckoutParams{})
	_, link, _ := strings.Cut(page, "?")
	_, otherLink, _ := strings.Cut(another, "?")
	_, foreignLink, _ := strings.Cut(foreign, "?")
	_, done, _ := strings.Cut(c.backOf(id), "?")
	reads(t, v.get(page), http.StatusOK)
	at := "/checkout/" + id
	refused := v.get("/checkout/" + toll.NewUUID() + "?" + link)
	reads(t, refused, http.StatusNotFound, "This link is invalid or has expired.")
	sessions := c.sessions()
	check := func(what, path string) {
		t.Helper()
		res := v.get(path)
		if res.status != http.StatusNotFound || withoutID(res.body) != withoutID(refused.body) || strings.Contains(res.header.Get("Set-Cookie"), "checkout-seen") {
			t.Errorf("%s: %d\n%s", what, res.status, mainPart.FindString(res.body))
		}
		if res := v.post(path, url.Values{}); res.status != http.StatusNotFound && !strings.Contains(path, "/done") {
			t.Errorf("%s, as a form: %d to %q", what, res.status, res.header.Get("Location"))
		}
	}
	for what, path := range map[string]string{
		"no link": at, "an empty one": at + "?t=", "a guessed id": "/checkout/" + other + "?" + link, "the link of another order": at + "?" + otherLink,
		"of another service": at + "?" + foreignLink, "a changed one": at + "?" + link + "A", "a cut one": at + "?" + link[:len(link)-8],
		"two": at + "?t=x&" + link, "a long one": at + "?t=" + strings.Repeat("A", 5000), "another spelling": "/checkout/" + strings.ToUpper(id) + "?" + link,
		"on the page after it": at + "/done?" + link, "of the page after it": at + "?" + done, "on the page of another order": at + "/again?" + link,
		"of the page after it there": at + "/again?" + done, "an API key": at + "?t=" + url.QueryEscape(c.holder.Key),
	} {
		check(what, path)
	}
	if res := v.get("/checkout/" + id + "%2Fdone?" + done); res.status == http.StatusOK {
		t.Errorf("a slash in the id: %d", res.status)
	}
	if c.status(id) != toll.OrderCreated || c.sessions() != sessions {
		t.Errorf("the order is %s, with %d pages", c.status(id), c.sessions())
	}
	c.ahead.Store(int64(61 * time.Minute))
	check("the page has ended", page)
	if res := v.get(at + "/done?" + done); res.status != http.StatusOK {
		t.Errorf("the page after it has ended: %d", res.status)
	}
	c.ahead.Store(int64(26 * time.Hour))
	check("the page after it has ended", at+"/done?"+done)
}

var policyOfFrames = regexp.MustCompile(`^default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self' data: (\S+); manifest-src 'self'; base-uri 'none'; ` +
	`form-action 'self'; script-src 'self' (http://127\.0\.0\.1:\d+); frame-src (\S+); connect-src (\S+); frame-ancestors 'none'$`)

// Only the page of an embedded order has a frame with the form of the processor. The frame ends
// when a person asks for the page of the processor instead.
func TestFrameOfAnOrder(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	id, page := c.order(client.CheckoutParams{CancelURL: cancelURL})
	_, hosted := c.order(client.CheckoutParams{SessionType: "hosted"})
	res := v.get(page)
	reads(t, res, http.StatusOK, "<h1>Pay for your order</h1>", `href="`+cancelURL+`"`, c.s.Cards().Double()+"/dahlia/stripe.js")
	secret := regexp.MustCompile(`cs_test_\w+_secret_\w+`)
	shownSecret := secret.FindString(res.body)
	m := policyOfFrames.FindStringSubmatch(res.header.Get("Content-Security-Policy"))
	if m == nil || m[1] != c.s.Cards().Double() || m[2] != m[1] || m[3] != m[1] || m[4] != m[1] || shownSecret == "" {
		t.Errorf("the policy is %q", res.header.Get("Content-Security-Policy"))
	}
	for _, script := range regexp.MustCompile(`(?s)<script([^>]*)>(.*?)</script>`).FindAllStringSubmatch(res.body, -1) {
		if src := attributesOf(script[1])["src"]; script[2] != "" || !strings.HasPrefix(src, "/assets/") && !strings.HasPrefix(src, m[1]+"/") {
			t.Errorf("the policy does not allow the script %q", script[0])
		}
	}
	for _, path := range []string{hosted, c.backOf(id), "/sign-in", "/cards/enroll", "/checkout/x"} {
		res := v.get(path)
		if p := res.header.Get("Content-Security-Policy"); strings.Contains(p, "script-src") || strings.Contains(p, "frame-src") || p == "" {
			t.Errorf("%s has the policy %q", path, p)
		}
		if strings.Contains(res.body, "<script") || secret.MatchString(res.body) || strings.Contains(res.body, "pk_test_") {
			t.Errorf("%s has a script or a secret:\n%s", path, mainPart.FindString(res.body))
		}
		if h := res.header; h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
	}
	if again := v.get(page); secret.FindString(again.body) != shownSecret || c.sessions() != 2 {
		t.Error("a second look made another page")
	}
	for what, header := range map[string][]string{
		"another site": {"Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"}, "no site": {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
	} {
		if res := v.post(page, url.Values{}, header...); res.status != http.StatusForbidden {
			t.Errorf("a form of %s: %d", what, res.status)
		}
	}
	if res := v.get(page); secret.FindString(res.body) != shownSecret {
		t.Error("a form of another site ended the frame")
	}
	form := formOf(t, res)
	for range 2 {
		if res := v.submit(form); res.status != http.StatusSeeOther || res.header.Get("Location") != page {
			t.Errorf("%d to %q", res.status, res.header.Get("Location"))
		}
	}
	res = v.get(page)
	to, _ := linkOf(t, res)
	if secret.MatchString(res.body) || c.sessions() != 3 {
		t.Errorf("%d pages:\n%s", c.sessions(), mainPart.FindString(res.body))
	}
	id0, _, _ := strings.Cut(shownSecret, "_secret_")
	if _, err := double.Fill(t.Context(), c.s.Cards().Double()+"/c/pay/"+id0, goodCard); err == nil {
		t.Error("the page that was ended takes cards")
	}
	v.get(c.fill(to, goodCard))
	if c.status(id) != toll.OrderConfirmed {
		t.Errorf("the order is %s", c.status(id))
	}
	if !strings.Contains(c.log.String(), "card double") {
		t.Error("there is no log")
	}
	for _, word := range []string{shownSecret, "_secret_", "/c/pay/", strings.TrimPrefix(page, "/checkout/"+id+"?t=")} {
		if strings.Contains(c.log.String(), word) {
			t.Errorf("the log has %q", word)
		}
	}
}

// The successUrl of an order is not an open redirect: the service redirects only a browser that has
// opened the page of the order, and only once. An order whose address is not a web address is
// refused.
func TestReturnIsNoOpenRedirect(t *testing.T) {
	c := newCardShop(t)
	for _, bad := range []string{"javascript:alert(1)", "//evil.example.com", "data:text/html,x", "https://user:secret@evil.example.com/", "shop.example.com"} {
		if _, err := c.buyer.Checkout(t.Context(), c.plan, client.CheckoutParams{SuccessURL: bad}); err == nil {
			t.Errorf("an order leads to %s", bad)
		}
	}
	const evil = `https://evil.example.com/"><script>alert(1)</script>?a=1&b=2`
	id, page := c.order(client.CheckoutParams{SessionType: "hosted", SuccessURL: evil})
	to, _ := linkOf(t, newVisitor(t, c.url).get(page))
	done := c.fill(to, goodCard)
	victim := newVisitor(t, c.url)
	for range 2 {
		res := victim.get(done)
		reads(t, res, http.StatusOK, "<h1>Order paid</h1>", "<code>evil.example.com</code>")
		if strings.Contains(res.body, "<script") || res.header.Get("Location") != "" || res.header.Get("Refresh") != "" {
			t.Errorf("%v\n%s", res.header, mainPart.FindString(res.body))
		}
	}
	// A browser that has opened the page of another order is not redirected.
	_, other := c.order(client.CheckoutParams{SessionType: "hosted"})
	victim.get(other)
	if res := victim.get(done); res.status != http.StatusOK {
		t.Errorf("%d to %q", res.status, res.header.Get("Location"))
	}
	if c.status(id) != toll.OrderConfirmed {
		t.Errorf("the order is %s", c.status(id))
	}
}

// After a bank has asked for confirmation, a new order takes the payment once. That works for an
// hour, and while the terms are the same.
func TestPageOfAnotherOrder(t *testing.T) {
	c := newCardShop(t)
	ctx := t.Context()
	v := newVisitor(t, c.url)
	card := must.Get(c.s.Cards().FillEnrolment(ctx, c.holder.Address, askedCard))(t)
	d := must.Get(c.buyer.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCard, PaymentMethodID: card, SpendingLimit: 5000, Lifetime: 24 * time.Hour, Currency: "usd",
	}))(t)
	again := func() (id, page string) {
		t.Helper()
		_, err := c.buyer.OrderPlan(ctx, c.plan, client.PaidBy(d.DelegationID))
		e, ok := errors.AsType[*toll.Error](err)
		if !ok || e.Code != toll.CodeCardAuthentication {
			t.Fatalf("the bank asked for nobody: %v", err)
		}
		page = pathOf(t, fmt.Sprint(e.Params["checkoutUrl"]))
		id = strings.Split(page, "/")[2]
		return id, page
	}
	failed, page := again()
	res := v.get(page)
	reads(t, res, http.StatusOK, "<h1>Confirm your payment</h1>", "Failed order", failed, "5.00 USD", "Continue to payment")
	form := formOf(t, res)
	if res := v.submit(form, "Origin", "https://evil.example.com", "Sec-Fetch-Site", "cross-site"); res.status != http.StatusForbidden {
		t.Errorf("a form of another site: %d", res.status)
	}
	var all sync.WaitGroup
	places := make([]string, 6)
	for i := range places { // a double click, and other tabs
		all.Go(func() {
			places[i] = browser{t, c.url}.send(http.MethodPost, form.action, "", "Origin", c.url).header.Get("Location")
		})
	}
	all.Wait()
	id, _, _ := strings.Cut(strings.TrimPrefix(places[0], "/checkout/"), "?")
	for _, p := range places {
		if !strings.HasPrefix(p, "/checkout/"+id+"?t=") {
			t.Errorf("the forms lead to %q", places)
		}
	}
	if id == failed {
		t.Error("the failed order goes on")
	}
	to, _ := linkOf(t, v.get(places[0]))
	reads(t, v.get(c.fill(to, askedCard)), http.StatusOK, "<h1>Order paid</h1>", "You can close this page")
	o, err := c.buyer.Order(ctx, id)
	if err != nil || o.Replaces == nil || *o.Replaces != failed || o.Status != toll.OrderConfirmed || c.status(failed) != toll.OrderFailed {
		t.Errorf("%+v, %v", o, err)
	}
	reads(t, v.submit(form), http.StatusOK, "<h1>Order paid</h1>", id)
	if limit, err := c.buyer.Delegation(ctx, d.DelegationID); err != nil || limit.AmountSpentCents != 0 {
		t.Errorf("%+v, %v", limit, err)
	}

	// Other terms.
	other, page := again()
	db := server.StoreOf(c.s)
	if err := db.Tx(ctx, func(tx *store.Tx) error { // the terms of a plan never change; a database may be mended by hand
		_, err := tx.Exec(ctx, "UPDATE plans SET credits = REPLACE(credits, '100', '99')")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	reads(t, v.submit(formOf(t, v.get(page))), http.StatusConflict, "The price or the credits of the plan have changed")
	if got := c.books().Currencies["usd"].Charges; got != 1 || c.balance() != 100 || c.status(other) != toll.OrderFailed {
		t.Errorf("%d charges, %s credits", got, c.balance())
	}
	c.ahead.Store(int64(time.Hour))
	reads(t, v.get(page), http.StatusNotFound)
	if res := v.post(page, url.Values{}); res.status != http.StatusNotFound {
		t.Errorf("a form after an hour: %d", res.status)
	}
}

// The pages while the processor is down, after its page has expired, and on a service without card
// payments.
func TestPagesWithoutPayment(t *testing.T) {
	const secret = "sk_test_pages0123456789"
	d := must.Get(double.New(double.Options{SecretKey: secret}))(t)
	stripe := httptest.NewServer(d.Handler())
	t.Cleanup(func() { d.Close(); stripe.Close() })
	c := newCardShop(t, rails.CardConfig{SecretKey: secret, URL: stripe.URL})
	v := newVisitor(t, c.url)
	id, page := c.order(client.CheckoutParams{CancelURL: cancelURL}) // no publishable key: no frame
	linkOf(t, v.get(page))
	fault := func(f double.Fault) {
		t.Helper()
		must.Do(t, d.Fault(f))
	}
	fault(double.Fault{Kind: "500", Count: 1000})
	res := v.get(page)
	reads(t, res, http.StatusServiceUnavailable, "<h1>Card processor unavailable</h1>", "Try again", page[:50])
	if res.header.Get("Retry-After") == "" {
		t.Errorf("%v", res.header)
	}
	if res := v.post(page, url.Values{}); res.status != http.StatusSeeOther {
		t.Errorf("a form: %d", res.status)
	}
	enroll := newVisitor(t, c.url)
	reads(t, enroll.submit(formOf(t, enroll.signIn(enroll.get("/cards/enroll"), c.holder.Key))), http.StatusServiceUnavailable, "Try again")
	fault(double.Fault{Kind: "clear"})
	to, _ := linkOf(t, v.get(page))

	servertest.PostForm(t, stripe.URL+"/v1/checkout/sessions/"+path.Base(to)+"/expire", secret, nil, new(any))
	for range 2 {
		res := v.get(page)
		reads(t, res, http.StatusOK, "<h1>Order not paid</h1>", "The payment page expired before it was paid.", `href="`+cancelURL+`"`)
		if strings.Contains(res.body, "/c/pay/") {
			t.Errorf("a page that has expired is linked:\n%s", mainPart.FindString(res.body))
		}
	}
	if o := must.Get(c.buyer.Order(t.Context(), id))(t); o.Status != toll.OrderFailed || o.FailureCode != toll.FailureExpired {
		t.Errorf("the order is %s: %q", o.Status, o.FailureCode)
	}

	_, address := start(t, server.Config{Data: storetest.Dir(t), Rails: rails.Config{Card: rails.CardConfig{Mode: rails.CardOff}}})
	for _, path := range []string{"/cards/enroll", page, page + "&x=1"} {
		reads(t, newVisitor(t, address).get(path), http.StatusFailedDependency, "Card payments are not available.")
	}
}

// The owner of a link can load its pages only at a limited rate. The limit is that of the account
// of the order, and other accounts keep theirs.
func TestPageOfAnOrder_Flood(t *testing.T) {
	c := newCardShop(t)
	v := newVisitor(t, c.url)
	_, page := c.order(client.CheckoutParams{SessionType: "hosted"})
	done := c.backOf(strings.Split(page, "/")[2][:36])
	for n := 0; ; n++ { // 60 at once, and one a second
		res := v.get([]string{page, done}[n%2])
		if res.status == http.StatusTooManyRequests {
			if reads(t, res, http.StatusTooManyRequests, "too often"); n < 60 || res.header.Get("Retry-After") == "" {
				t.Errorf("after %d: %v", n, res.header)
			}
			break
		}
		if reads(t, res, http.StatusOK); n > 10_000 {
			t.Fatal("nothing bounds it")
		}
	}
	other := client.New(keyOf(t, c.s, server.KeyRequest{Account: "other"}).Key, client.WithURL(c.url))
	made := must.Get(other.Checkout(t.Context(), c.plan, client.CheckoutParams{SessionType: "hosted"}))(t)
	reads(t, v.get(pathOf(t, made.Result.URL)), http.StatusOK)
}
