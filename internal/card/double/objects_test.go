package double_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

func TestCustomers(t *testing.T) {
	s := start(t)
	u := s.customer()
	if !strings.HasPrefix(u.ID, "cus_") || u.Metadata["address"] != "0xabc" || u.Livemode {
		t.Errorf("got %+v", u)
	}
	u = must.Get(s.sc.V1Customers.Create(s.ctx, &stripe.CustomerCreateParams{
		Email: stripe.String("a@example.com"), Metadata: map[string]string{"address": "", "more": "1"},
	}))(t)
	got := must.Get(s.sc.V1Customers.Retrieve(s.ctx, u.ID, nil))(t)
	if got.Email != "a@example.com" || fmt.Sprint(got.Metadata) != "map[more:1]" {
		t.Errorf("got %+v", got)
	}
	_, err := s.sc.V1Customers.Retrieve(s.ctx, "cus_none", nil)
	if e := refused(t, err, 404, "resource_missing"); e.Param != "id" || e.RequestID == "" || e.Type != "invalid_request_error" {
		t.Errorf("got %+v", e)
	}
	want := "customer.created customer.created"
	if got := strings.Join(s.eventTypes(), " "); got != want {
		t.Errorf("events are %s", got)
	}
}

func TestLists(t *testing.T) {
	s := start(t)
	var ids []string
	for range 7 {
		ids = append([]string{s.customer().ID}, ids...)
	}
	page := func(change func(*stripe.CustomerListParams)) []string {
		t.Helper()
		p := &stripe.CustomerListParams{}
		p.Limit = stripe.Int64(3)
		p.Single = true
		change(p)
		var got []string
		for u, err := range s.sc.V1Customers.List(s.ctx, p).All(s.ctx) {
			must.Do(t, err)
			got = append(got, u.ID)
		}
		return got
	}
	for name, c := range map[string]struct {
		change func(*stripe.CustomerListParams)
		want   []string
	}{
		"the first page": {func(*stripe.CustomerListParams) {}, ids[:3]},
		"a page after":   {func(p *stripe.CustomerListParams) { p.StartingAfter = &ids[2] }, ids[3:6]},
		"the last page":  {func(p *stripe.CustomerListParams) { p.StartingAfter = &ids[5] }, ids[6:]},
		"all pages":      {func(p *stripe.CustomerListParams) { p.Single = false }, ids},
		"created by then": {func(p *stripe.CustomerListParams) {
			now := s.clock.now().Unix()
			p.CreatedRange = &stripe.RangeQueryParams{GreaterThanOrEqual: now, LesserThanOrEqual: now}
		}, ids[:3]},
		"created later": {func(p *stripe.CustomerListParams) {
			p.CreatedRange = &stripe.RangeQueryParams{GreaterThanOrEqual: s.clock.now().Unix() + 1}
		}, nil},
		"created before": {func(p *stripe.CustomerListParams) {
			p.CreatedRange = &stripe.RangeQueryParams{LesserThanOrEqual: s.clock.now().Unix() - 1}
		}, nil},
	} {
		if got := page(c.change); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	for _, path := range []string{"limit=0", "limit=101", "starting_after=cus_none", "created[before]=1"} {
		if status, m := s.raw("GET", "/v1/customers?"+path, ""); status != 400 {
			t.Errorf("%s: got %d %v", path, status, m)
		}
	}
}

func TestPaymentMethods(t *testing.T) {
	s := start(t)
	u, other := s.customer(), s.customer()
	m := s.card(u.ID, "pm_card_mastercard")
	if m.Card.Brand != "mastercard" || m.Card.Last4 != "4444" || m.Card.Fingerprint == "" || m.Customer.ID != u.ID {
		t.Errorf("got %+v", m.Card)
	}
	if again := s.card(other.ID, "pm_card_mastercard"); again.Card.Fingerprint != m.Card.Fingerprint || again.ID == m.ID {
		t.Error("the same card has another fingerprint, or the same id")
	}
	_, err := s.sc.V1PaymentMethods.Attach(s.ctx, m.ID, &stripe.PaymentMethodAttachParams{Customer: &other.ID})
	refused(t, err, 400, "")
	s.fault(double.Fault{Kind: "update_card", Object: m.ID, Month: 1, Year: 2033})
	if m = must.Get(s.sc.V1PaymentMethods.Retrieve(s.ctx, m.ID, nil))(t); m.Card.ExpYear != 2033 {
		t.Errorf("got %+v", m.Card)
	}
	for got, err := range s.sc.V1PaymentMethods.List(s.ctx, &stripe.PaymentMethodListParams{Customer: &u.ID}).All(s.ctx) {
		if err != nil || got.ID != m.ID {
			t.Errorf("got %v, %v", got, err)
		}
	}
	if m = must.Get(s.sc.V1PaymentMethods.Detach(s.ctx, m.ID, nil))(t); m.Customer != nil {
		t.Error("still attached")
	}
	_, err = s.sc.V1PaymentMethods.Attach(s.ctx, m.ID, &stripe.PaymentMethodAttachParams{Customer: &u.ID})
	refused(t, err, 400, "")
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 500))
	refused(t, err, 400, "")
	_, err = s.sc.V1PaymentMethods.Detach(s.ctx, m.ID, nil)
	refused(t, err, 400, "")
	if got := s.eventTypes(); got[len(got)-1] != "payment_method.detached" || !slices.Contains(got, "payment_method.automatically_updated") {
		t.Errorf("events are %v", got)
	}
}

func TestSetupIntents(t *testing.T) {
	s := start(t)
	enrol := s.session(setup(s.customer().ID))
	for _, number := range []string{"4000000000009987", "4242424242424242"} {
		s.submit(enrol.URL, typed(number))
	}
	p := &stripe.SetupIntentRetrieveParams{}
	p.AddExpand("payment_method")
	p.AddExpand("latest_attempt")
	si := must.Get(s.sc.V1SetupIntents.Retrieve(s.ctx, enrol.SetupIntent.ID, p))(t)
	if si.PaymentMethod.Card.Last4 != "4242" || si.LatestAttempt.Status != "succeeded" || si.Usage != "off_session" {
		t.Errorf("got %+v", si)
	}
	var got []string
	for a, err := range s.sc.V1SetupAttempts.List(s.ctx, &stripe.SetupAttemptListParams{SetupIntent: &si.ID}).All(s.ctx) {
		must.Do(t, err)
		got = append(got, string(a.Status))
	}
	if !slices.Equal(got, []string{"succeeded", "failed"}) {
		t.Errorf("the attempts are %v", got)
	}
	want := "customer.created setup_intent.created setup_intent.setup_failed payment_method.attached setup_intent.succeeded checkout.session.completed"
	if types := strings.Join(s.eventTypes(), " "); types != want {
		t.Errorf("events are %s", types)
	}
}

// Without a capture method the money of a charge moves some time after it has succeeded.
func TestPaymentIntents_MovedLater(t *testing.T) {
	s := start(t)
	u := s.customer()
	p := offSession(u.ID, s.card(u.ID, "pm_card_visa").ID, 500)
	p.CaptureMethod = nil
	p.AddExpand("latest_charge")
	pi := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)
	if pi.Status != "succeeded" || pi.CaptureMethod != "automatic_async" || pi.LatestCharge.BalanceTransaction != nil {
		t.Errorf("the money moves at once: %+v, %+v", pi, pi.LatestCharge)
	}
	s.later()
	if ch := must.Get(s.sc.V1Charges.Retrieve(s.ctx, pi.LatestCharge.ID, nil))(t); ch.BalanceTransaction == nil {
		t.Errorf("the money does not move later: %+v", ch)
	}
}

func TestPaymentIntents(t *testing.T) {
	s := start(t)
	u := s.customer()
	m := s.card(u.ID, "pm_card_visa")
	p := offSession(u.ID, m.ID, 1234)
	p.AddExpand("latest_charge.balance_transaction")
	pi := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)
	if pi.Status != "succeeded" || pi.AmountReceived != 1234 || pi.LatestCharge.BalanceTransaction.Fee != 65 ||
		pi.LatestCharge.BalanceTransaction.Net != 1169 || pi.LatestCharge.Metadata["order_id"] != "o1" {
		t.Errorf("got %+v, %+v", pi, pi.LatestCharge)
	}
	_, err := s.sc.V1PaymentIntents.Cancel(s.ctx, pi.ID, nil)
	if e := refused(t, err, 400, "payment_intent_unexpected_state"); e.PaymentIntent == nil || e.PaymentIntent.Status != "succeeded" {
		t.Errorf("got %+v", e)
	}
	s.fault(double.Fault{Kind: "processing"})
	p = offSession(u.ID, m.ID, 100)
	p.Currency = stripe.String("eur")
	open := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)
	if open.Status != "processing" || open.ClientSecret == "" {
		t.Errorf("got %+v", open)
	}
	open = must.Get(s.sc.V1PaymentIntents.Cancel(s.ctx, open.ID, nil))(t)
	if open.Status != "canceled" || open.CanceledAt == 0 {
		t.Errorf("got %+v", open)
	}
	later := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 200)))(t)
	list := &stripe.PaymentIntentListParams{
		Customer: &u.ID, CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: s.clock.now().Unix()},
	}
	list.AddExpand("data.latest_charge")
	var got []string
	for pi, err := range s.sc.V1PaymentIntents.List(s.ctx, list).All(s.ctx) {
		must.Do(t, err)
		got = append(got, pi.ID)
	}
	if !slices.Equal(got, []string{later.ID, open.ID, pi.ID}) {
		t.Errorf("the list is %v", got)
	}
	other := s.customer()
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, offSession(other.ID, m.ID, 500))
	refused(t, err, 400, "")
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 49))
	refused(t, err, 400, "amount_too_small")
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 100_000_000))
	refused(t, err, 400, "amount_too_large")
	b := s.d.Books().Currencies["usd"]
	if b.Captured != 1434 || b.Charges != 2 || b.Net != 1434-65-35 || b.Fees != 100 {
		t.Errorf("the books are %+v", b)
	}
}

func TestRefunds(t *testing.T) {
	s := start(t)
	ch := s.charge("pm_card_visa", 1000)
	part := must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{
		PaymentIntent: &ch.PaymentIntent.ID, Amount: stripe.Int64(400), Metadata: map[string]string{"k": "v"},
		Reason: stripe.String("requested_by_customer"),
	}))(t)
	if part.Status != "succeeded" || part.Amount != 400 || part.Charge.ID != ch.ID {
		t.Errorf("got %+v", part)
	}
	_, err := s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID, Amount: stripe.Int64(601)})
	refused(t, err, 400, "")
	s.fault(double.Fault{Kind: "refund", Object: ch.ID, Amount: 100})
	must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID}))(t)
	_, err = s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID})
	refused(t, err, 400, "charge_already_refunded")
	_, err = s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{})
	refused(t, err, 400, "parameter_missing")

	got := must.Get(s.sc.V1Charges.Retrieve(s.ctx, ch.ID, nil))(t)
	if !got.Refunded || got.AmountRefunded != 1000 {
		t.Errorf("got %+v", got)
	}
	sum := int64(0)
	for re, err := range s.sc.V1Refunds.List(s.ctx, &stripe.RefundListParams{Charge: &ch.ID}).All(s.ctx) {
		must.Do(t, err)
		sum += must.Get(s.sc.V1Refunds.Retrieve(s.ctx, re.ID, nil))(t).Amount
	}
	if b := s.d.Books(); sum != 1000 || b.Currencies["usd"].Refunded != 1000 || b.Payments[0].Refunded != 1000 {
		t.Errorf("the refunds are %d, the books %+v", sum, b)
	}
	if b := must.Get(s.sc.V1BalanceTransactions.Retrieve(s.ctx, part.BalanceTransaction.ID, nil))(t); b.Amount != -400 || b.Type != "refund" {
		t.Errorf("got %+v", b)
	}
}

func TestDisputes(t *testing.T) {
	s := start(t)
	ch := s.charge("pm_card_visa", 1000)
	s.fault(double.Fault{Kind: "dispute", Object: ch.ID, Reason: "product_not_received"})
	var dp *stripe.Dispute
	for d, err := range s.sc.V1Disputes.List(s.ctx, &stripe.DisputeListParams{Charge: &ch.ID}).All(s.ctx) {
		if dp = d; err != nil {
			t.Fatal(err)
		}
	}
	if dp.Status != "needs_response" || dp.Reason != "product_not_received" || dp.Amount != 1000 || len(dp.BalanceTransactions) != 1 {
		t.Fatalf("got %+v", dp)
	}
	_, err := s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID})
	refused(t, err, 400, "charge_disputed")
	if b := s.d.Books().Currencies["usd"]; b.Disputed != 1000 || b.Net != -59-1500 {
		t.Errorf("the books are %+v", b)
	}
	for _, kind := range []string{"won", "won", "lost"} { // only the first decision counts
		s.fault(double.Fault{Kind: kind, Object: dp.ID})
	}
	if dp = must.Get(s.sc.V1Disputes.Retrieve(s.ctx, dp.ID, nil))(t); dp.Status != "won" || len(dp.BalanceTransactions) != 2 {
		t.Errorf("got %+v", dp)
	}
	if b := s.d.Books().Currencies["usd"]; b.Disputed != 0 || b.Net != 1000-59 {
		t.Errorf("the books are %+v", b)
	}
	must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID, Amount: stripe.Int64(1)}))(t)

	lost := s.charge("pm_card_visa", 700)
	s.fault(double.Fault{Kind: "dispute", Object: lost.ID})
	for d, err := range s.sc.V1Disputes.List(s.ctx, &stripe.DisputeListParams{PaymentIntent: &lost.PaymentIntent.ID}).All(s.ctx) {
		must.Do(t, err)
		s.fault(double.Fault{Kind: "lost", Object: d.ID})
		if d = must.Get(s.sc.V1Disputes.Retrieve(s.ctx, d.ID, nil))(t); d.Status != "lost" {
			t.Errorf("not lost: %+v", d)
		}
	}
	want := []string{
		"charge.dispute.created", "charge.dispute.funds_withdrawn", "charge.dispute.updated", "charge.dispute.closed",
	}
	if got := s.eventTypes(); !slices.Equal(got[len(got)-4:], want) || !slices.Contains(got, "charge.dispute.funds_reinstated") {
		t.Errorf("events are %v", got)
	}
}

// A charge may be contested twice, in part, and a dispute may be over before anybody had to answer.
func TestDisputes_PartsAndPrevented(t *testing.T) {
	s := start(t)
	ch := s.charge("pm_card_visa", 1000)
	s.fault(double.Fault{Kind: "dispute", Object: ch.ID, Amount: 300})
	for _, refused := range []double.Fault{{Kind: "dispute"}, {Kind: "dispute", Amount: 701}, {Kind: "refund", Amount: 701}} {
		refused.Object = ch.ID
		if err := s.d.Fault(refused); err == nil {
			t.Errorf("%+v has happened", refused)
		}
	}
	s.fault(double.Fault{Kind: "prevented", Object: ch.ID, Amount: 700})
	var states []string
	for d, err := range s.sc.V1Disputes.List(s.ctx, &stripe.DisputeListParams{Charge: &ch.ID}).All(s.ctx) {
		must.Do(t, err)
		states = append(states, fmt.Sprint(d.Status, d.Amount, len(d.BalanceTransactions)))
	}
	if want := []string{"prevented700 1", "needs_response300 1"}; !slices.Equal(states, want) {
		t.Errorf("got %v, want %v", states, want)
	}
	if b := s.d.Books().Currencies["usd"]; b.Disputed != 1000 {
		t.Errorf("the books are %+v", b)
	}

	asked := s.charge("pm_card_visa", 500)
	s.fault(double.Fault{Kind: "inquiry", Object: asked.ID})
	for d, err := range s.sc.V1Disputes.List(s.ctx, &stripe.DisputeListParams{Charge: &asked.ID}).All(s.ctx) {
		must.Do(t, err)
		s.fault(double.Fault{Kind: "prevented", Object: d.ID})
		if d = must.Get(s.sc.V1Disputes.Retrieve(s.ctx, d.ID, nil))(t); d.Status != "prevented" || len(d.BalanceTransactions) != 0 {
			t.Errorf("got %+v", d)
		}
	}
}

// A refund that is pending can be canceled: its money stays with the account.
func TestRefunds_Canceled(t *testing.T) {
	s := start(t)
	ch := s.charge("pm_card_pendingRefund", 1000)
	re := must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID}))(t)
	s.fault(double.Fault{Kind: "refund_ends", Object: re.ID})
	s.later()
	re = must.Get(s.sc.V1Refunds.Retrieve(s.ctx, re.ID, nil))(t)
	if b := s.d.Books().Currencies["usd"]; re.Status != "canceled" || b.Refunded != 0 || b.Net != 1000-59 {
		t.Errorf("got %+v, and the books %+v", re, b)
	}
	if err := s.d.Fault(double.Fault{Kind: "refund_ends", Object: re.ID}); err == nil {
		t.Error("a refund ends twice")
	}
}

func TestEventsAndAccount(t *testing.T) {
	s := start(t, func(o *double.Options) {
		o.Webhooks = []double.Webhook{{URL: "http://127.0.0.1:1/hook", Secrets: []string{"whsec_a"}}}
	})
	ch := s.charge("pm_card_visa", 1000)
	before := s.clock.now().Unix()
	s.fault(double.Fault{Kind: "clock", Seconds: 60})
	must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID}))(t)
	list := func(p *stripe.EventListParams) (types []string) {
		t.Helper()
		for e, err := range s.sc.V1Events.List(s.ctx, p).All(s.ctx) {
			must.Do(t, err)
			if e.APIVersion != stripe.APIVersion || e.Data.Object["id"] == "" || e.Request.ID == "" {
				t.Errorf("got %+v", e)
			}
			types = append(types, string(must.Get(s.sc.V1Events.Retrieve(s.ctx, e.ID, nil))(t).Type))
		}
		return types
	}
	for name, c := range map[string]struct {
		p    *stripe.EventListParams
		want string
	}{
		"type":  {&stripe.EventListParams{Type: stripe.String("charge.refunded")}, "[charge.refunded]"},
		"types": {&stripe.EventListParams{Types: stripe.StringSlice([]string{"charge.succeeded", "refund.created"})}, "[refund.created charge.succeeded]"},
		"created": {&stripe.EventListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: before + 1}},
			"[charge.refunded refund.created]"},
	} {
		if got := fmt.Sprint(list(c.p)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	if a := must.Get(s.sc.V1Accounts.Retrieve(s.ctx, nil))(t); !strings.HasPrefix(a.ID, "acct_") || !a.ChargesEnabled {
		t.Errorf("got %+v", a)
	}
	n := 0
	for w, err := range s.sc.V1WebhookEndpoints.List(s.ctx, nil).All(s.ctx) {
		n++
		if err != nil || w.URL != "http://127.0.0.1:1/hook" || w.Secret != "" || w.Status != "enabled" {
			t.Errorf("got %+v, %v", w, err)
		}
	}
	if n != 1 {
		t.Errorf("%d webhooks", n)
	}
	s.fault(double.Fault{Kind: "clock", Seconds: 31 * 24 * 3600})
	must.Get(s.sc.V1Accounts.Retrieve(s.ctx, nil))(t)
	if got := s.eventTypes(); len(got) != 0 {
		t.Errorf("events after 31 days are %v", got)
	}
}
