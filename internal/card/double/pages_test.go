package double_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

func TestSession_Payment(t *testing.T) {
	s := start(t)
	created := s.session(payment(500))
	if !strings.HasPrefix(created.ID, "cs_test_") || created.URL != s.url+"/c/pay/"+created.ID || created.PaymentIntent != nil ||
		created.AmountTotal != 500 || created.PaymentStatus != "unpaid" || created.ClientSecret != "" {
		t.Errorf("got %+v", created)
	}
	p := s.open(created.URL)
	if !strings.Contains(p.body, "5.00 USD") || !strings.Contains(p.body, "Plan &lt;b&gt;") || strings.Contains(p.body, "<script") ||
		!strings.Contains(p.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("got %s", p.body)
	}
	p = s.submit(created.URL, typed("4242 4242 4242 4242"))
	if p.status != http.StatusSeeOther || p.location != "https://shop.example/done?s="+created.ID {
		t.Errorf("got %d %s", p.status, p.location)
	}
	got := s.reload(created.ID, "payment_intent.latest_charge")
	if got.Status != "complete" || got.PaymentStatus != "paid" || got.URL != "" || got.Customer != nil ||
		got.PaymentIntent.LatestCharge.BillingDetails.Email != "ada@example.com" ||
		got.PaymentIntent.LatestCharge.Amount != 500 || got.PaymentIntent.Metadata["order_id"] != "o1" ||
		got.PaymentIntent.StatementDescriptorSuffix != "PLAN" {
		t.Errorf("got %+v", got)
	}
	for range 2 { // the back button, and a form that is sent twice
		if p := s.submit(created.URL, typed("4242424242424242")); p.location != "https://shop.example/done?s="+created.ID {
			t.Errorf("got %d %s", p.status, p.location)
		}
	}
	if b := s.d.Books(); len(b.Payments) != 1 {
		t.Errorf("the books are %+v", b)
	}
	_, err := s.sc.V1CheckoutSessions.Expire(s.ctx, created.ID, nil)
	refused(t, err, 400, "")
	want := "payment_intent.created charge.succeeded payment_intent.succeeded checkout.session.completed"
	if got := strings.Join(s.eventTypes(), " "); got != want {
		t.Errorf("events are %s", got)
	}
}

func TestSession_Authentication(t *testing.T) {
	s := start(t)
	pay := s.session(payment(500))
	for _, c := range []struct{ result, status string }{{"fail", "requires_payment_method"}, {"approve", "succeeded"}} {
		p := s.submit(pay.URL, typed("4000002500003155"))
		if !strings.Contains(p.location, "/c/authenticate/pi_") {
			t.Fatalf("got %d %s", p.status, p.location)
		}
		step := p.location
		p = s.submit(step, url.Values{"result": {c.result}})
		got := s.reload(pay.ID, "payment_intent")
		if string(got.PaymentIntent.Status) != c.status {
			t.Errorf("got %+v", got.PaymentIntent)
		}
		if again := s.submit(step, url.Values{"result": {"approve"}}); again.location != p.location {
			t.Errorf("the step can be taken twice: %+v", again)
		}
	}
	if b := s.d.Books(); len(b.Payments) != 1 || s.reload(pay.ID).PaymentStatus != "paid" {
		t.Errorf("the books are %+v", b)
	}
}

func TestSession_Embedded(t *testing.T) {
	s := start(t)
	p := payment(500)
	p.UIMode, p.SuccessURL, p.CancelURL = stripe.String("embedded_page"), nil, nil
	_, err := s.sc.V1CheckoutSessions.Create(s.ctx, p)
	refused(t, err, 400, "parameter_missing")
	p.ReturnURL = stripe.String("https://shop.example/back?s={CHECKOUT_SESSION_ID}")
	created := s.session(p)
	if created.ClientSecret == "" || created.URL != "" || created.UIMode != "embedded_page" {
		t.Errorf("got %+v", created)
	}
	at := s.url + "/c/embed/" + created.ClientSecret
	frame := s.open(at)
	if !strings.Contains(frame.body, `action="`+at+`"`) || !strings.HasSuffix(frame.header.Get("Content-Security-Policy"), "frame-ancestors https://shop.example") {
		t.Errorf("got %+v", frame)
	}
	if got := s.open(s.url + "/c/embed/" + created.ID + "_secret_x"); got.status != 404 {
		t.Errorf("a wrong secret gets %d", got.status)
	}
	if got := s.open(s.url + "/dahlia/stripe.js"); !strings.Contains(got.body, "createEmbeddedCheckoutPage") {
		t.Errorf("got %+v", got)
	}
	// A declined card stays in the frame. The form keeps email and name, but not the card.
	got := s.submit(at, typed("4000000000000002"))
	if got.status != http.StatusPaymentRequired || !strings.Contains(got.body, "Your card was declined.") || !strings.Contains(got.body, `action="`+at+`"`) ||
		!strings.Contains(got.body, `value="ada@example.com"`) || !strings.Contains(got.body, `value="Ada"`) || strings.Contains(got.body, "4000000000000002") ||
		strings.Contains(got.body, `value="123"`) {
		t.Errorf("got %+v", got)
	}
	// The step at the bank and the way back are pages of the whole window.
	got = s.submit(at, typed("4000002500003155"))
	if got.location != "" || !strings.Contains(got.body, `data-to="`+s.url+"/c/authenticate/pi_") {
		t.Errorf("got %+v", got)
	}
	back := "https://shop.example/back?s=" + created.ID
	for range 2 {
		got = s.submit(at, typed("4242424242424242"))
		if got.location != "" || !strings.Contains(got.body, `<a href="`+back+`" target="_top">`) ||
			!strings.Contains(got.body, `<script src="/dahlia/leave.js" data-to="`+back+`" data-parent="https://shop.example">`) ||
			!strings.Contains(got.header.Get("Content-Security-Policy"), "script-src 'self'; ") {
			t.Errorf("got %+v", got)
		}
	}
	if got := s.open(s.url + "/dahlia/leave.js"); !strings.Contains(got.body, "postMessage") {
		t.Errorf("got %+v", got)
	}
	if got := s.submit(s.url+"/c/pay/"+created.ID, typed("4242424242424242")); got.location != back {
		t.Errorf("got %+v", got)
	}
}

// A page with an invoice makes a customer of what was typed.
func TestSession_Invoice(t *testing.T) {
	s := start(t)
	p := payment(500)
	p.InvoiceCreation = &stripe.CheckoutSessionCreateInvoiceCreationParams{Enabled: stripe.Bool(true)}
	page := s.session(p)
	s.submit(page.URL, typed("4242424242424242"))
	got := s.reload(page.ID, "payment_intent", "customer")
	if got.Customer == nil || got.Customer.Email != "ada@example.com" || got.PaymentIntent.Customer.ID != got.Customer.ID {
		t.Errorf("got %+v", got)
	}
}

func TestSession_Expires(t *testing.T) {
	s := start(t)
	u := s.customer()
	byHand, byTime := s.session(setup(u.ID)), payment(500)
	byTime.ExpiresAt = stripe.Int64(s.clock.now().Unix() + 29*60)
	_, err := s.sc.V1CheckoutSessions.Create(s.ctx, byTime)
	refused(t, err, 400, "")
	byTime.ExpiresAt = stripe.Int64(s.clock.now().Unix() + 60*60)
	timed := s.session(byTime)
	s.submit(timed.URL, typed("4000000000000002"))
	expire := &stripe.CheckoutSessionExpireParams{}
	expire.AddExpand("setup_intent")
	if got := must.Get(s.sc.V1CheckoutSessions.Expire(s.ctx, byHand.ID, expire))(t); got.Status != "expired" || got.SetupIntent.Status != "canceled" {
		t.Errorf("got %+v", got)
	}
	s.fault(double.Fault{Kind: "clock", Seconds: 3601})
	got := s.reload(timed.ID, "payment_intent")
	if got.Status != "expired" || got.PaymentIntent.Status != "canceled" {
		t.Errorf("got %+v", got)
	}
	for _, u := range []string{byHand.URL, timed.URL} {
		if p := s.submit(u, typed("4242424242424242")); p.status != http.StatusGone {
			t.Errorf("got %+v", p)
		}
	}
	_, err = s.sc.V1PaymentIntents.Cancel(s.ctx, got.PaymentIntent.ID, nil)
	refused(t, err, 400, "payment_intent_unexpected_state")
	if b := s.d.Books(); len(b.Payments) != 0 {
		t.Errorf("the books are %+v", b)
	}
}

func TestSession_Refused(t *testing.T) {
	s := start(t)
	base := "mode=payment&success_url=https://a.example&line_items[0][quantity]=1&line_items[0][price_data][currency]=usd&" +
		"line_items[0][price_data][unit_amount]=500&line_items[0][price_data][product_data][name]=x"
	if status, m := s.raw("POST", "/v1/checkout/sessions", base); status != 200 {
		t.Fatalf("got %d %v", status, m)
	}
	for _, c := range []struct{ body, param, code string }{
		{base + "&ui_mode=hosted", "ui_mode", ""},
		{base + "&ui_mode=embedded", "ui_mode", ""},
		{base + "&ui_mode=custom", "ui_mode", ""},
		{base + "&nonsense=1", "nonsense", "parameter_unknown"},
		{base + "&payment_intent_data[nonsense]=1", "payment_intent_data[nonsense]", "parameter_unknown"},
		{base + "&line_items[0][amount]=1", "line_items[0][amount]", "parameter_unknown"},
		{base + "&return_url=https://a.example", "return_url", ""},
		{base + "&payment_method_types[]=paypal", "payment_method_types", ""},
		{base + "&setup_intent_data[metadata][k]=v", "setup_intent_data", ""},
		{base + "&payment_method_data[allow_redisplay]=limited", "payment_method_data", ""},
		{base + "&adaptive_pricing[enabled]=true", "adaptive_pricing[enabled]", ""},
		{base + "&customer=cus_none", "customer", "resource_missing"},
		{base + "&payment_intent_data[statement_descriptor_suffix]=" + strings.Repeat("x", 23), "payment_intent_data[statement_descriptor_suffix]", ""},
		{strings.Replace(base, "https://a.example", "javascript:alert(1)", 1), "success_url", "url_invalid"},
		{strings.Replace(base, "=usd", "=jpy", 1), "line_items[0][price_data][currency]", ""},
		{strings.Replace(base, "=500", "=5.5", 1), "line_items[0][price_data][unit_amount]", "parameter_invalid_integer"},
		{strings.Replace(base, "=500", "=49", 1), "line_items", "amount_too_small"},
		{strings.Replace(base, "=500", "=9223372036854775807", 1), "line_items[0]", "amount_too_large"},
		{strings.Replace(base, "[quantity]=1", "[quantity]=0", 1), "line_items[0]", "amount_too_large"},
		{"mode=payment&success_url=https://a.example", "line_items", "parameter_missing"},
		{"success_url=https://a.example", "mode", "parameter_missing"},
		{"mode=subscription&success_url=https://a.example", "mode", ""},
	} {
		status, m := s.raw("POST", "/v1/checkout/sessions", c.body)
		e, _ := m["error"].(map[string]any)
		code, _ := e["code"].(string)
		if status != 400 || e["type"] != "invalid_request_error" || e["param"] != c.param || code != c.code {
			t.Errorf("%s: got %d %v", c.body, status, e)
		}
	}
}

func TestSession_Processing(t *testing.T) {
	for reason, c := range map[string]struct{ status, event string }{
		"":      {"paid", "checkout.session.async_payment_succeeded"},
		"fails": {"unpaid", "checkout.session.async_payment_failed"},
	} {
		s := start(t)
		s.fault(double.Fault{Kind: "processing", Reason: reason})
		pay := s.session(payment(500))
		s.submit(pay.URL, typed("4242424242424242"))
		got := s.reload(pay.ID, "payment_intent")
		if got.Status != "complete" || got.PaymentStatus != "unpaid" || got.PaymentIntent.Status != "processing" {
			t.Errorf("got %+v", got)
		}
		s.later()
		if got = s.reload(pay.ID); string(got.PaymentStatus) != c.status {
			t.Errorf("got %+v", got)
		}
		if types := s.eventTypes(); types[len(types)-1] != c.event {
			t.Errorf("events are %v", types)
		}
	}
}

func TestSession_AmountChanged(t *testing.T) {
	s := start(t)
	pay := s.session(payment(500))
	s.fault(double.Fault{Kind: "amount", Object: pay.ID, Amount: 100, Currency: "eur"})
	s.submit(pay.URL, typed("4242424242424242"))
	if got := s.reload(pay.ID, "payment_intent"); got.PaymentIntent.Amount != 100 || got.PaymentIntent.Currency != "eur" || got.AmountTotal != 100 {
		t.Errorf("got %+v", got)
	}
}

func TestSession_CardTestingIsBounded(t *testing.T) {
	s := start(t)
	pay := s.session(payment(500))
	last := page{}
	for range 21 {
		last = s.submit(pay.URL, typed("4000000000000002"))
	}
	if last.status != http.StatusTooManyRequests {
		t.Errorf("got %d", last.status)
	}
	for _, form := range []url.Values{{"expiry": {"01/26"}}, {"expiry": {"13/30"}}, {"expiry": {"x"}}, {"cvc": {"12"}}, {"cvc": {"abc"}}} {
		v := typed("4242424242424242")
		for k := range form {
			v[k] = form[k]
		}
		if p := s.submit(s.session(payment(500)).URL, v); p.status != 402 {
			t.Errorf("%v: got %d", form, p.status)
		}
	}
}
