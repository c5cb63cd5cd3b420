package card

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

var (
	nextNow   = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	allStates = []State{Created, Calling, Page, Pending, Ending, Paid, Failed, Rejected}
)

// nextRow returns the payment of an order of 5.00 by a delegation, 40 seconds after its call.
func nextRow(state State) payment {
	p := payment{installation: "ours", d: details{TriedAt: nextNow.Add(-40 * time.Second), Delay: &rail.Delay{}}}
	p.CardPayment = store.CardPayment{
		OrderID: "order", State: string(state), Attempt: 1, Cents: 500, Currency: "usd", Customer: "cus_1", Delegation: "delegation",
	}
	switch state {
	case Ending:
		p.d.Then, p.d.Failure, p.Intent = Failed, &failure{Code: "earlier"}, "pi_1"
	case Failed:
		p.d.Failure = &failure{Code: "earlier"}
	case Pending, Paid, Rejected:
		p.Intent = "pi_1"
	}
	return p
}

// nextPage returns the payment of an order of 5.00 on a page.
func nextPage(state State) payment {
	p := nextRow(state)
	p.d.Session, p.Customer, p.Delegation = &rail.SessionInput{}, "", ""
	if state != Created && state != Calling {
		p.Session = "cs_1"
	}
	return p
}

func nextIntent(status stripe.PaymentIntentStatus) *stripe.PaymentIntent {
	return &stripe.PaymentIntent{
		ID: "pi_1", Status: status, Amount: 500, AmountReceived: 500, Currency: "usd", Customer: &stripe.Customer{ID: "cus_1"},
		Metadata:     map[string]string{metaOrder: "order", metaInstallation: "ours"},
		LatestCharge: &stripe.Charge{ID: "ch_1", Created: nextNow.Unix()},
	}
}

func nextSession(status stripe.CheckoutSessionStatus, pi *stripe.PaymentIntent) *stripe.CheckoutSession {
	return &stripe.CheckoutSession{
		ID: "cs_1", Status: status, Mode: "payment", PaymentStatus: "paid", PaymentIntent: pi, AmountTotal: 500, Currency: "usd", ClientReferenceID: "order",
		Metadata: map[string]string{metaOrder: "order", metaInstallation: "ours"}, ExpiresAt: nextNow.Add(time.Hour).Unix(),
	}
}

// since lists the changes, the writes, and the question of a transition of p.
func (t *transition) since(p payment) string {
	var b []string
	say := func(is bool, format string, args ...any) {
		if is {
			b = append(b, fmt.Sprintf(format, args...))
		}
	}
	say(t.write != writeNothing, "%s", []string{"", "row", "outcome", "refund", "move"}[t.write])
	say(t.State != p.State, "%s", t.State)
	say(t.Attempt != p.Attempt, "attempt %d", t.Attempt)
	say(t.Intent != p.Intent || t.write == writeOutcome && t.Intent != "", "%s", t.Intent)
	say(t.Session != p.Session && t.write != writeOutcome, "session %q", t.Session)
	say(t.Customer != p.Customer, "%s", t.Customer)
	say(!t.PaidAt.Equal(p.PaidAt), "paid at %s", t.PaidAt.Format("15:04"))
	say(t.d.TriedAt != p.d.TriedAt, "tried at %s", t.d.TriedAt.Format("15:04"))
	say(t.d.PageEnd != p.d.PageEnd, "page until %s", t.d.PageEnd.Format("15:04"))
	say(t.d.Missing != p.d.Missing, "missing")
	say(t.d.Failing != p.d.Failing, "failing")
	say(t.d.Hosted != p.d.Hosted, "hosted")
	say(t.d.Unsent != p.d.Unsent, "unsent %t", t.d.Unsent)
	say(t.d.Then != p.d.Then && t.d.Then != "", "then %s", t.d.Then)
	if f := t.d.Failure; f != nil && f != p.d.Failure {
		say(true, "%s", strings.Join(strings.Fields(fmt.Sprintf("%s %s", f.Code, f.Class)), " "))
		say(f.Unsure, "unsure")
	}
	say(t.d.Delay != nil && (t.write == writeOutcome || t.State != p.State), "delayed")
	say(t.answered != nil && t.answered.Status != 0 && t.write != writeNothing, "answered %d", safe(t.answered).Status)
	say(t.call != nil, "store %s at %s", safe(t.call).Key, safe(t.call).Path)
	say(t.captured != nil && t.move != moveCharge, "move %s", t.move)
	say(t.refund != nil, "refund %d: %s", safe(t.refund).Cents, safe(t.refund).Reason)
	say(len(t.changes) > 0, "changes")
	say(t.release, "release")
	say(t.ask != askNothing, "ask %s", []string{"", "start", "send", "list", "state", "end", "money"}[t.ask])
	say(t.again != 0, "again %s", t.again)
	say(t.err != nil, "error %v", t.err)
	say(t.alarm != nil, "alarm")
	return strings.Join(b, ", ")
}

func safe[T any](v *T) *T {
	if v == nil {
		return new(T)
	}
	return v
}

// Every answer in every state leads to these writes and this question. A state without a row changes nothing.
func TestNext(t *testing.T) {
	succeeded := func(change func(pi *stripe.PaymentIntent)) *stripe.PaymentIntent {
		pi := nextIntent(stripe.PaymentIntentStatusSucceeded)
		if change != nil {
			change(pi)
		}
		return pi
	}
	back := succeeded(func(pi *stripe.PaymentIntent) { pi.LatestCharge.AmountRefunded = 100 })
	disputed := succeeded(func(pi *stripe.PaymentIntent) { pi.LatestCharge.Disputed = true })
	open, done, expired := stripe.CheckoutSessionStatusOpen, stripe.CheckoutSessionStatusComplete, stripe.CheckoutSessionStatusExpired
	confirm, canceled, processing := stripe.PaymentIntentStatusRequiresAction, stripe.PaymentIntentStatusCanceled, stripe.PaymentIntentStatusProcessing
	call := func(status int64) *store.CardCall { return &store.CardCall{Key: "order-1", Status: status} }
	refusal := func(k kind, change func(*answer)) facts {
		a := facts{to: askSend, call: call(0), refusal: &answer{kind: k, status: 400}}
		if a.refusal.final() {
			a.call.Status = 400
		}
		if change != nil {
			change(a.refusal)
		}
		return a
	}
	stored := &answer{kind: unclear, status: 500, replayed: true}
	kindMissing := missing
	missing := func(d time.Duration) func(*payment) { return func(p *payment) { p.d.Missing = nextNow.Add(-d) } }
	failing := func(d time.Duration) func(*payment) {
		return func(p *payment) { p.d.Missing, p.d.Failing = nextNow.Add(-d), nextNow.Add(-d) }
	}
	onPage := func(s *stripe.CheckoutSession) facts {
		return facts{to: askState, call: call(200), session: s, intent: s.PaymentIntent}
	}
	type want map[string]string // by states
	for _, c := range []struct {
		name   string
		row    func(State) payment
		change func(*payment)
		a      facts
		want   want
	}{
		{"a new step", nextRow, nil, facts{}, want{
			"created calling": "ask start",
			"page pending":    "ask state",
			"ending":          "ask end",
		}},
		{"a new step of a page", nextPage, nil, facts{}, want{
			"created calling": "ask start",
			"page pending":    "ask state",
			"ending":          "ask end",
		}},
		{"the object is gone", nextRow, nil, facts{gone: true}, want{
			"created calling page": "outcome, failed, BCK.STRIPE.0002, alarm",
			"pending ending":       "outcome, failed, pi_1, BCK.STRIPE.0002, alarm",
			"paid failed rejected": "alarm",
		}},
		{"the delegation was revoked", nextRow, nil, facts{to: askStart, barred: revokedFailure}, want{
			"created": "outcome, failed, BCK.X402.0020",
			"calling": "ask list",
		}},
		{"revoked before a request was executed", nextRow, func(p *payment) { p.d.Unsent = true }, facts{to: askStart, barred: revokedFailure}, want{
			"created calling": "outcome, failed, BCK.X402.0020",
		}},
		{"beyond the limit", nextRow, nil, facts{to: askStart, barred: limitFailure}, want{
			"created": "outcome, failed, BCK.X402.0023",
			"calling": "row, ask send",
		}},
		{"the card was removed", nextRow, nil, facts{to: askStart, call: call(0)}, want{
			"created": "outcome, failed, BCK.X402.0027",
			"calling": "row, ask send",
		}},
		{"a charge may be sent", nextRow, func(p *payment) { p.d.Unsent = true }, facts{to: askStart, call: call(0), method: &store.CardMethod{Customer: "cus_2"}}, want{
			"created": "row, calling, cus_2, tried at 12:00, store order-1 at payment_intents",
			"calling": "row, unsent false, ask send",
		}},
		{"a page may be made", nextPage, nil, facts{to: askStart, call: call(0)}, want{
			"created": "row, calling, tried at 12:00, page until 13:00, store order-1 at checkout/sessions",
			"calling": "ask send",
		}},
		{"missing for 9 minutes", nextRow, missing(missingSends), facts{to: askStart, call: call(0)}, want{
			"created": "outcome, failed, BCK.X402.0027",
			"calling": "ask list",
		}},
		{"missing for less", nextRow, missing(missingSends - 1), facts{to: askStart, call: call(0)}, want{
			"created": "outcome, failed, BCK.X402.0027",
			"calling": "row, ask send",
		}},
		{"the key is in use", nextRow, nil, refusal(busy, nil), want{
			"calling": "error Stripe responded with 400",
		}},
		{"no request was executed", nextRow, nil, func() facts { a := refusal(denied, nil); a.unsent = true; return a }(), want{
			"calling": "row, unsent true, error Stripe responded with 400",
		}},
		{"no answer", nextRow, nil, refusal(unclear, nil), want{
			"calling": "ask list",
		}},
		{"another request has the key", nextRow, nil, refusal(conflict, nil), want{
			"calling": "ask list",
		}},
		{"a forgotten key", nextRow, nil, facts{to: askSend, call: call(0), forgotten: true}, want{
			"calling": "ask list",
		}},
		{"the bank declines", nextRow, nil, refusal(card, func(r *answer) { r.declineCode, r.intent = "insufficient_funds", "pi_9" }), want{
			"calling": "outcome, failed, pi_9, BCK.STRIPE.0902 insufficient_funds, answered 400",
		}},
		{"the owner has to confirm", nextRow, nil, refusal(owner, func(r *answer) { r.intent = "pi_9" }), want{
			"calling": "row, ending, pi_9, then failed, BCK.STRIPE.0903, answered 400, store order-1-cancel at payment_intents/pi_9/cancel",
		}},
		{"... without an intent", nextRow, nil, refusal(owner, nil), want{
			"calling": "outcome, failed, BCK.STRIPE.0903, answered 400",
		}},
		{"the card is unknown", nextRow, nil, refusal(kindMissing, nil), want{
			"calling": "outcome, failed, BCK.X402.0027, answered 400, alarm",
		}},
		{"the request is refused", nextPage, nil, refusal(refused, nil), want{
			"calling": "outcome, failed, BCK.STRIPE.0002, answered 400, alarm",
		}},
		{"the page ends too early", nextPage, nil, refusal(refused, func(r *answer) { r.param = "expires_at" }), want{
			"calling": "outcome, failed, BCK.STRIPE.0002, answered 400, alarm",
		}},
		{"... and is old", nextPage, func(p *payment) { p.d.TriedAt = nextNow.Add(-retryPage) }, refusal(refused, func(r *answer) { r.param = "expires_at" }), want{
			"calling": "row, created, attempt 2, answered 400",
		}},
		{"listed", nextRow, nil, facts{to: askList, call: call(200), found: "pi_1"}, want{
			"calling": "ask state",
		}},
		{"not listed", nextRow, nil, facts{to: askList, call: call(200)}, want{
			"calling": "row, missing, error Stripe did not respond",
		}},
		{"not listed after a stored 500", nextRow, missing(time.Minute), facts{to: askList, call: call(200), refusal: stored}, want{
			"calling": "row, failing, error Stripe responded with 500",
		}},
		{"not listed a minute after a stored 500", nextRow, failing(failingTime), facts{to: askList, call: call(200), refusal: stored}, want{
			"calling": "outcome, failed, BCK.STRIPE.0023, unsure, answered 404, release, alarm",
		}},
		{"not listed soon after a stored 500", nextRow, failing(failingTime - time.Second), facts{to: askList, call: call(200), refusal: stored}, want{
			"calling": "error Stripe responded with 500",
		}},
		{"not listed for 10 minutes", nextRow, missing(missingTime), facts{to: askList, call: call(200), refusal: &answer{kind: conflict}}, want{
			"calling": "outcome, failed, BCK.STRIPE.0023, answered 404, alarm",
		}},
		{"an open page", nextPage, nil, onPage(nextSession(open, nil)), want{
			"calling":      "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page pending": "again 30s",
			"ending":       "error Stripe responded with 200 still_open",
		}},
		{"an expired page", nextPage, nil, onPage(nextSession(expired, nil)), want{
			"calling": "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page":    "outcome, failed, BCK.STRIPE.0002 page_expired, answered 200, again 30s",
			"pending": "outcome, failed, pi_1, BCK.STRIPE.0002 page_expired, answered 200, again 30s",
			"ending":  "outcome, failed, pi_1, answered 200",
		}},
		{"an expired page, and another one follows", nextPage, func(p *payment) { p.d.Then, p.d.Failure = Created, nil }, onPage(nextSession(expired, nextIntent(canceled))), want{
			"calling":      "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page pending": "outcome, failed, pi_1, BCK.STRIPE.0002 page_expired, answered 200, again 30s",
			"ending":       "row, created, attempt 2, session \"\", answered 200",
		}},
		{"a page without a payment", nextPage, nil, onPage(nextSession(done, nil)), want{
			"calling": "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page":    "outcome, failed, BCK.STRIPE.0002, answered 200, again 30s, alarm",
			"pending": "outcome, failed, pi_1, BCK.STRIPE.0002, answered 200, again 30s, alarm",
			"ending":  "outcome, failed, pi_1, BCK.STRIPE.0002, answered 200, alarm",
		}},
		{"a page whose bank decides", nextPage, nil, onPage(nextSession(done, nextIntent(processing))), want{
			"calling": "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page":    "row, pending, pi_1, answered 200, again 30s",
			"pending": "again 30s",
			"ending":  "row, pending, answered 200",
		}},
		{"a page whose payment was declined", nextPage, nil, onPage(nextSession(done, nextIntent(confirm))), want{
			"calling":      "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page pending": "outcome, failed, pi_1, BCK.STRIPE.0902 declined, answered 200, again 30s",
			"ending":       "outcome, failed, pi_1, BCK.STRIPE.0902 declined, answered 200",
		}},
		{"a paid page", nextPage, nil, onPage(nextSession(done, succeeded(nil))), want{
			"created ending": "outcome, paid, pi_1, paid at 12:00, answered 200",
			"calling":        "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page pending":   "outcome, paid, pi_1, paid at 12:00, answered 200, again 30s",
			"paid rejected":  "move",
			"failed":         "outcome, paid, pi_1, paid at 12:00, answered 200, alarm",
		}},
		{"a discounted page", nextPage, nil, onPage(func() *stripe.CheckoutSession { s := nextSession(done, succeeded(nil)); s.AmountTotal = 100; return s }()), want{
			"created ending failed": "outcome, rejected, pi_1, BCK.STRIPE.0002, answered 200, refund 500: the payment does not match the order: session.amount_total, alarm",
			"calling":               "row, page, session \"cs_1\", page until 13:00, answered 200",
			"page pending":          "outcome, rejected, pi_1, BCK.STRIPE.0002, answered 200, refund 500: the payment does not match the order: session.amount_total, again 30s, alarm",
			"paid rejected":         "move",
		}},
		{"the bank decides", nextRow, nil, facts{to: askState, call: call(200), intent: nextIntent(processing)}, want{
			"calling": "row, pending, pi_1, answered 200",
			"page":    "row, pending, pi_1, answered 200, again 30s",
			"pending": "again 30s",
			"ending":  "row, pending, answered 200",
		}},
		{"the intent needs its owner", nextRow, nil, facts{to: askState, call: call(200), intent: nextIntent(confirm)}, want{
			"calling": "row, ending, pi_1, then failed, BCK.STRIPE.0903, answered 200, store order-1-cancel at payment_intents/pi_1/cancel",
			"page":    "row, ending, pi_1, then failed, BCK.STRIPE.0903, answered 200, store order-1-cancel at payment_intents/pi_1/cancel, again 30s",
			"pending": "row, ending, then failed, BCK.STRIPE.0903, answered 200, store order-1-cancel at payment_intents/pi_1/cancel, again 30s",
			"ending":  "outcome, failed, pi_1, answered 200",
		}},
		{"the intent was cancelled", nextRow, nil, facts{to: askState, call: call(200), intent: nextIntent(canceled)}, want{
			"calling":      "outcome, failed, pi_1, BCK.STRIPE.0902 declined, answered 200",
			"page pending": "outcome, failed, pi_1, BCK.STRIPE.0902 declined, answered 200, again 30s",
			"ending":       "outcome, failed, pi_1, answered 200",
		}},
		{"the charge is made", nextRow, nil, facts{to: askSend, call: call(200), intent: succeeded(nil)}, want{
			"created calling page pending ending": "outcome, paid, pi_1, paid at 12:00, answered 200",
			"paid rejected":                       "move",
			"failed":                              "outcome, paid, pi_1, paid at 12:00, answered 200, alarm",
		}},
		{"the page is made", nextPage, nil, facts{to: askSend, call: call(200), session: nextSession(open, nil)}, want{
			"calling": "row, page, session \"cs_1\", page until 13:00, answered 200",
		}},
		{"the end has no answer", nextRow, nil, facts{to: askEnd, refusal: &answer{kind: unclear}}, want{
			"ending": "error Stripe did not respond",
		}},
		{"the end failed", nextRow, nil, facts{to: askEnd, refusal: &answer{kind: unclear, status: 500}}, want{
			"ending": "ask state",
		}},
		{"the end is refused", nextRow, nil, facts{to: askEnd, refusal: &answer{kind: refused, status: 400}}, want{
			"ending": "ask state",
		}},
		{"the end is forgotten", nextRow, nil, facts{to: askEnd, forgotten: true}, want{
			"ending": "ask state",
		}},
		{"the intent is ended", nextRow, nil, facts{to: askEnd, intent: nextIntent(canceled)}, want{
			"ending": "outcome, failed, pi_1",
		}},
		{"the page is ended", nextPage, nil, facts{to: askEnd, session: nextSession(expired, nil)}, want{
			"ending": "ask state",
		}},
		{"a page of Stripe is needed", nextPage, nil, facts{replace: true}, want{
			"created calling": "ask start",
			"page pending":    "row, ending, hosted, then created, store order-1-expire at checkout/sessions/cs_1/expire",
			"ending":          "ask end",
		}},
		{"another buyer waits", nextPage, nil, facts{unpaid: true}, want{
			"created calling": "ask start",
			"page pending":    "row, ending, then failed, BCK.STRIPE.0002, store order-1-expire at checkout/sessions/cs_1/expire",
			"ending":          "ask end",
		}},
		{"an event: captured", nextRow, nil, facts{intent: succeeded(nil)}, want{
			"created calling page pending ending": "outcome, paid, pi_1, paid at 12:00",
			"paid rejected":                       "move",
			"failed":                              "outcome, paid, pi_1, paid at 12:00, alarm",
		}},
		{"another payment", nextRow, nil, facts{intent: succeeded(func(pi *stripe.PaymentIntent) { pi.ID = "pi_2" })}, want{
			"created calling page pending ending": "outcome, paid, pi_2, paid at 12:00",
			"paid rejected":                       "refund, move rejected, refund 500: a second payment for the order, alarm",
			"failed":                              "outcome, paid, pi_2, paid at 12:00, alarm",
		}},
		{"another amount", nextRow, nil, facts{intent: succeeded(func(pi *stripe.PaymentIntent) { pi.AmountReceived = 499 })}, want{
			"created calling page pending ending failed": "outcome, rejected, pi_1, BCK.STRIPE.0002, refund 499: the payment does not match the order: amount_received, alarm",
			"paid rejected": "move",
		}},
		{"refunded before it settled", nextRow, nil, facts{intent: succeeded(func(pi *stripe.PaymentIntent) { pi.LatestCharge.Refunded = true })}, want{
			"created calling page pending ending failed": "outcome, rejected, pi_1, BCK.STRIPE.0002, refund 500: the payment was refunded before it was settled, alarm",
			"paid rejected": "move",
		}},
		{"refunded in part before it settled", nextRow, nil, facts{intent: back}, want{
			"created calling page": "paid, pi_1, paid at 12:00, ask money",
			"pending ending":       "paid, paid at 12:00, ask money",
			"paid rejected":        "move",
			"failed":               "paid, pi_1, paid at 12:00, ask money, alarm",
		}},
		{"... and the refunds were read", nextRow, nil, facts{to: askMoney, intent: back, changes: make([]change, 1), read: true}, want{
			"created calling page pending ending failed": "outcome, paid, pi_1, paid at 12:00, changes",
			"paid rejected": "move",
		}},
		{"disputed", nextRow, nil, facts{intent: disputed}, want{
			"created calling page": "paid, pi_1, paid at 12:00, ask money",
			"pending ending":       "paid, paid at 12:00, ask money",
			"paid rejected":        "move",
			"failed":               "paid, pi_1, paid at 12:00, ask money, alarm",
		}},
		{"... and the disputes were read", nextRow, nil, facts{to: askMoney, intent: disputed, changes: make([]change, 1), read: true}, want{
			"created calling page pending ending failed": "outcome, paid, pi_1, paid at 12:00, changes",
			"paid rejected": "move",
		}},
		{"its record was lost", nextRow, func(p *payment) { p.d.Lost = true }, facts{intent: succeeded(nil)}, want{
			"created calling page": "paid, pi_1, paid at 12:00, ask money",
			"pending ending":       "paid, paid at 12:00, ask money",
			"paid rejected":        "move",
			"failed":               "paid, pi_1, paid at 12:00, ask money, alarm",
		}},
		{"the order was given up", nextRow, func(p *payment) { p.d.Failure = &failure{Code: "earlier", Unsure: true} }, facts{intent: succeeded(nil)}, want{
			"created calling page pending ending": "outcome, paid, pi_1, paid at 12:00",
			"paid rejected":                       "move",
			"failed":                              "outcome, rejected, pi_1, BCK.STRIPE.0002, refund 500: the order failed before the payment was found, alarm",
		}},
		{"the plan has no place", nextRow, nil, facts{intent: succeeded(nil), noPlace: true}, want{
			"created calling page pending ending failed": "outcome, rejected, pi_1, BCK.STRIPE.0002, refund 500: the payment came after the plan reached its maximum number of orders, alarm",
			"paid rejected": "move",
		}},
	} {
		want := func(state State) string {
			for states, does := range c.want {
				if slices.Contains(strings.Fields(states), string(state)) {
					return does
				}
			}
			return ""
		}
		for _, state := range allStates {
			p := c.row(state)
			if c.change != nil {
				c.change(&p)
			}
			was := p
			tr := next(p, c.a, nextNow)
			if got, want := tr.since(p), want(state); got != want {
				t.Errorf("%s, %s:\n got %q\nwant %q", c.name, state, got, want)
			}
			if was.State != p.State || was.d != p.d {
				t.Errorf("%s, %s: the payment is changed", c.name, state)
			}
		}
	}
}
