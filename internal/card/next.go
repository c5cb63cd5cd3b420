package card

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/store"
)

const (
	// A payment that waits for the bank or the buyer is read every pollEvery, and an old page every pollPage.
	pollEvery, pollPage = 30 * time.Second, 5 * time.Minute
	// retryPage is the age from which an attempt is repeated when Stripe refuses its page because the page would end too early.
	retryPage = time.Minute
	// The order fails when Stripe has not listed an attempt without an answer for missingTime. The call is sent again for missingSends.
	missingTime, missingSends = 10 * time.Minute, 9 * time.Minute
	// failingTime separates the two look-ups that give up an attempt when Stripe repeats a stored failure.
	failingTime = time.Minute
)

// payment is a row of card_payments with its details. A captured payment of this service has this installation and mode.
type payment struct {
	store.CardPayment
	d            details
	installation string
	live         bool
}

// question names the source of the next answer.
type question int

const (
	askNothing question = iota
	askStart            // the database: may the call of this attempt be sent?
	askSend             // Stripe: carry out the call of this attempt
	askList             // Stripe: which object did this attempt make?
	askState            // Stripe: what is the state of the page, or of the intent?
	askEnd              // Stripe: carry out the call that ends this attempt
	askMoney            // Stripe: which refunds and disputes does the captured payment have?
)

// facts hold the answer to the last question of a step, and earlier answers. A step begins with the zero value.
type facts struct {
	to question // the last question; askNothing with an intent: an event reported a captured payment

	call    *store.CardCall   // of the attempt; stored with the next write once Status is set
	barred  *failure          // why the call may not be sent; nil when it may
	method  *store.CardMethod // of a new charge; nil when the card was removed
	unsent  bool              // Stripe has executed no request of this attempt
	found   string            // id of the listed object; "": Stripe lists no object of this attempt
	session *stripe.CheckoutSession
	intent  *stripe.PaymentIntent // with a session: the payment on it
	changes []change              // of a captured payment before it was settled
	read    bool                  // changes were read

	refusal   *answer // Stripe did not carry out the call
	forgotten bool    // Stripe may have forgotten the key of the call
	gone      bool    // Stripe no longer has the object
	noPlace   bool    // the plan has no place for the late payment
	replace   bool    // the buyer needs a page of Stripe in the place of the open page
	unpaid    bool    // another buyer waits for the place of the open page in the plan
}

// writing names the rows of a transition. They are written in one transaction.
type writing int

const (
	writeNothing writing = iota
	writeRow             // the row, which stays open, with the answered and the next call
	writeOutcome         // the decided row with its order, the move, the refund and the changes
	writeRefund          // the refund of a second payment of the order
	writeMove            // the move alone, which Stripe made after the capture
)

// transition is the result of [next]: the new row, the related rows to store, and the next question.
type transition struct {
	payment
	write    writing
	answered *store.CardCall       // stored with its answer once it has a status
	call     *store.CardCall       // stored before it is sent
	method   *store.CardMethod     // that the stored call charges
	captured *stripe.PaymentIntent // its move is stored; the transition is computed again when the row has changed
	move     string                // kind of that move
	refund   *store.CardRefund     // of a payment that buys nothing; the writer sets id and times
	changes  []change
	release  bool // a job releases the amount of the delegation after missingTime

	ask   question
	again time.Duration // the pause before the next step, once no question is left; 0: no pause
	err   error
	alarm *notice
}

// notice is an alarm that is logged before a transition is stored.
type notice struct {
	id   alarm.ID
	text string
	args []any
}

// next returns the transition of a payment for these facts. Every change of a payment is decided here, without the database or Stripe. now
// is the time of the machine. A captured payment counts in every state.
func next(p payment, a facts, now time.Time) transition {
	t := transition{payment: p, answered: a.call}
	state, s, pi := State(p.State), a.session, a.intent
	switch {
	case a.gone:
		t.notify(alarm.CardPaymentLost, "the card processor no longer has the payment of an order; the order fails", "order", p.OrderID, "state", p.State)
		t.fail(&failure{Code: toll.CodeCheckoutFailed, Reason: "The card processor no longer has the payment."}, "")
	case state == Calling && s != nil && (a.to == askSend || a.to == askState):
		t.keep()
		if t.State, t.Session = string(Page), s.ID; s.ExpiresAt > 0 {
			t.d.PageEnd = time.Unix(s.ExpiresAt, 0).UTC()
		}
	case state == Ending && s != nil && s.Status == stripe.CheckoutSessionStatusOpen && a.to == askState:
		t.err = &answer{kind: unclear, status: http.StatusOK, code: "still_open"}
	case pi != nil && (pi.Status == stripe.PaymentIntentStatusSucceeded || a.noPlace):
		t.settle(a)
	case state == Created:
		t.created(a, now)
	case state == Calling:
		t.calling(a, now)
	case state == Page, state == Pending:
		t.waiting(a)
	case state == Ending:
		t.ending(a)
	}
	if a.to == askState && (state == Page || state == Pending) {
		t.again = pauseOf(&p.d, now)
	}
	return t
}

func (t *transition) notify(id alarm.ID, text string, args ...any) { t.alarm = &notice{id, text, args} }

// keep stores the open row without its delay.
func (t *transition) keep() { t.write, t.d.Delay = writeRow, nil }

// decide stores the outcome of the payment with its order.
func (t *transition) decide(s State, f *failure) {
	t.write, t.State, t.Undecided = writeOutcome, string(s), false
	t.d.Then, t.d.Failure, t.d.Delay = "", f, nil
}

// fail fails an open order without a captured payment. tried is the id of the intent that failed, or "".
func (t *transition) fail(f *failure, tried string) {
	if !State(t.State).open() {
		return
	}
	t.decide(Failed, f)
	t.Intent, t.release = cmp.Or(tried, t.Intent), f.Unsure && t.Delegation != ""
}

// end stores the call that cancels the intent of an attempt or expires its page. Then the order fails with f, or, when then is [Created],
// a new attempt begins.
func (t *transition) end(then State, f *failure) {
	t.keep()
	t.State, t.d.Then, t.d.Failure = string(Ending), then, f
	t.call = &store.CardCall{Key: attemptKey(&t.CardPayment) + keyCancel, Subject: t.OrderID, Path: "payment_intents/" + t.Intent + "/cancel"}
	if t.d.Session != nil {
		t.call.Key, t.call.Path = attemptKey(&t.CardPayment)+keyExpire, "checkout/sessions/"+t.Session+"/expire"
	}
}

// retry replaces an attempt that has ended.
func (t *transition) retry() {
	t.keep()
	t.Attempt, t.State = t.Attempt+1, string(Created)
}

// created prepares the call of an attempt.
func (t *transition) created(a facts, now time.Time) {
	charge := t.d.Session == nil
	switch {
	case a.to == askNothing:
		t.ask = askStart
		return
	case a.to != askStart:
		return
	case a.barred != nil:
		t.fail(a.barred, "")
		return
	case charge && a.method == nil:
		t.fail(&failure{Code: toll.CodePaymentMethodUnusable, Reason: "The card was removed."}, "")
		return
	}
	t.keep()
	t.State, t.call = string(Calling), &store.CardCall{Key: attemptKey(&t.CardPayment), Subject: t.OrderID, Path: "checkout/sessions"}
	t.d.TriedAt, t.d.Missing, t.d.Failing = now.UTC().Truncate(time.Second), time.Time{}, time.Time{}
	if charge {
		t.d.Unsent, t.Customer, t.method, t.call.Path = true, a.method.Customer, a.method, "payment_intents"
	} else {
		t.d.PageEnd = t.d.TriedAt.Add(pageTime)
	}
}

// calling sends the call of an attempt. When the answer is lost, it looks for the object of the attempt.
func (t *transition) calling(a facts, now time.Time) {
	switch {
	case a.to == askNothing:
		t.ask = askStart
	case a.to == askStart:
		t.begin(a, now)
	case a.to == askSend && a.forgotten:
		t.ask = askList
	case a.to == askSend && a.refusal != nil:
		t.refused(a, now)
	case a.to == askList && a.found != "":
		t.ask = askState
	case a.to == askList:
		t.notListed(a.refusal, now)
	case a.to == askSend, a.to == askState:
		t.judge(a.intent, a.intent.Status)
	}
}

// waiting handles a payment that waits for the bank or the buyer.
func (t *transition) waiting(a facts) {
	switch {
	case a.replace:
		t.d.Hosted = true
		t.end(Created, nil)
	case a.unpaid:
		t.end(Failed, &failure{
			Code: toll.CodeCheckoutFailed, Reason: "The payment page was closed unpaid, because the plan had reached its maximum number of orders and another buyer was waiting.",
		})
	case a.to == askNothing:
		t.ask = askState
	case a.to == askState && a.session != nil:
		t.judgePage(a.session)
	case a.to == askState:
		t.judge(a.intent, a.intent.Status)
	}
}

// ending ends an attempt. If it was paid meanwhile, that counts.
func (t *transition) ending(a facts) {
	switch r := a.refusal; {
	case a.to == askNothing:
		t.ask = askEnd
	case a.to == askEnd && r != nil && r.temporary() && !r.failed():
		t.err = r
	case a.to == askEnd && (r != nil || a.forgotten || a.session != nil):
		// It ended, cannot be ended, or ended before: its state says which. A page answers without its payment.
		t.ask = askState
	case a.to == askEnd:
		t.judge(a.intent, a.intent.Status)
	case a.to == askState && a.session != nil:
		t.judgePage(a.session)
	case a.to == askState && a.intent.Status != stripe.PaymentIntentStatusProcessing:
		t.judge(a.intent, stripe.PaymentIntentStatusCanceled) // it could not be cancelled, and cannot be confirmed any more
	case a.to == askState:
		t.judge(a.intent, a.intent.Status)
	}
}

// begin sends the stored call, unless the call is barred or its time is over.
func (t *transition) begin(a facts, now time.Time) {
	switch missing := t.d.Missing; {
	case a.barred != nil && t.d.Unsent:
		t.fail(a.barred, "")
		return
	case a.barred == revokedFailure, !missing.IsZero() && now.Sub(missing) >= missingSends:
		t.ask = askList
		return
	}
	if t.ask = askSend; t.Delegation != "" {
		// Each request changes the version, so the refusal of an earlier request no longer counts.
		t.write, t.d.Unsent = writeRow, false
	}
}

// refused handles a call that Stripe did not carry out.
func (t *transition) refused(a facts, now time.Time) {
	r := a.refusal
	switch r.kind {
	case busy, denied:
		if t.err = r; a.unsent {
			t.write, t.d.Unsent = writeRow, true
		}
		return
	case unclear, conflict:
		t.ask = askList
		return
	case card:
		t.fail(failureOf(r), r.intent)
		return
	case owner:
		if r.intent == "" {
			t.fail(failureOf(r), "")
			return
		}
		t.Intent = r.intent
		t.end(Failed, failureOf(r))
		return
	}
	if r.param == "expires_at" && now.Sub(t.d.TriedAt) >= retryPage {
		t.retry() // the page was prepared long ago, and was never made
		return
	}
	f := &failure{Code: toll.CodeCheckoutFailed, Reason: "The card processor rejected the payment."}
	if r.kind == missing || r.param == "payment_method" || r.param == "customer" {
		f = &failure{Code: toll.CodePaymentMethodUnusable, Reason: "The card processor no longer has the card."}
	}
	t.notify(alarm.CardRequestRefused, "the card processor rejected a payment", "order", t.OrderID, "answer", r)
	t.fail(f, "")
}

// notListed handles an attempt without an answer that Stripe does not list. r is its last answer, or nil when the call is too old to be
// sent. The order fails after [missingTime]. It fails after [failingTime] when Stripe answers the key with a stored failure, because then
// Stripe executes no repeat. If Stripe executed the first request, its payment is refunded once it is seen.
func (t *transition) notListed(r *answer, now time.Time) {
	stored := r != nil && r.failed() && r.replayed
	giveUp := stored && !t.d.Failing.IsZero() && now.Sub(t.d.Failing) >= failingTime
	switch {
	case t.d.Missing.IsZero(), stored && t.d.Failing.IsZero():
		if t.d.Missing.IsZero() {
			t.d.Missing = now.UTC()
		}
		if stored {
			t.d.Failing = now.UTC()
		}
		t.write, t.answered = writeRow, nil
	case giveUp, now.Sub(t.d.Missing) >= missingTime:
		t.notify(alarm.CardPaymentLost, "the card processor has no record of a payment whose response was lost; the order fails", "order", t.OrderID)
		c := *t.answered
		c.Status, t.answered = http.StatusNotFound, &c
		t.fail(&failure{
			Code: toll.CodeCardUnreachable, Reason: "The card processor returned no usable response and has no record of the payment.", Unsure: giveUp,
		}, "")
		return
	}
	again := answer{kind: unclear, code: "not_listed"}
	if r != nil && r.kind != conflict {
		again = *r
	}
	if stored {
		again.wait = failingTime - now.Sub(t.d.Failing)
	}
	t.err = &again
}

// judge handles an intent without a captured charge.
func (t *transition) judge(pi *stripe.PaymentIntent, status stripe.PaymentIntentStatus) {
	switch status {
	case stripe.PaymentIntentStatusProcessing:
		if State(t.State) != Pending {
			t.keep()
			t.State, t.Intent, t.d.Then, t.d.Failure = string(Pending), pi.ID, "", nil
		}
		return
	case stripe.PaymentIntentStatusCanceled:
		t.fail(cmp.Or(t.d.Failure, cancelled(pi)), pi.ID)
		return
	}
	// It needs another card or its owner, and neither is present.
	a := answerOfError(pi.LastPaymentError)
	if status == stripe.PaymentIntentStatusRequiresAction {
		a = &answer{kind: owner}
	}
	t.Intent = pi.ID
	t.end(Failed, failureOf(a))
}

// judgePage handles a page without a captured payment. An open page stays as it is.
func (t *transition) judgePage(s *stripe.CheckoutSession) {
	pi, tried := s.PaymentIntent, ""
	if pi != nil {
		tried = pi.ID
	}
	switch {
	case s.Status == stripe.CheckoutSessionStatusExpired && State(t.State) == Ending && t.d.Then == Created:
		t.retry()
		t.Session, t.d.Then = "", ""
	case s.Status == stripe.CheckoutSessionStatusExpired:
		t.fail(cmp.Or(t.d.Failure, &failure{Code: toll.CodeCheckoutFailed, Reason: "The payment page expired before it was paid.", Class: pageExpired}), tried)
	case s.Status != stripe.CheckoutSessionStatusComplete:
	case pi == nil:
		t.notify(alarm.CardOddPage, "a payment page was completed without a payment", "order", t.OrderID, "session", s.ID, "payment", s.PaymentStatus)
		t.fail(&failure{Code: toll.CodeCheckoutFailed, Reason: "The payment page was completed without a payment."}, "")
	case pi.Status != stripe.PaymentIntentStatusProcessing:
		t.fail(failureOf(answerOfError(pi.LastPaymentError)), tried)
	case State(t.State) != Pending:
		t.keep()
		t.State, t.Intent, t.d.Then = string(Pending), pi.ID, ""
	}
}

// settle confirms the order of a captured payment. A payment with other terms, a late one without a place, and a second one buy nothing
// and are refunded. A repeat changes nothing.
func (t *transition) settle(a facts) {
	was, pi := State(t.State), a.intent
	decided := was == Paid || was == Rejected
	t.captured, t.move = pi, moveCharge
	if decided && t.Intent == pi.ID {
		t.write, t.answered = writeMove, nil
		return
	}
	why := t.rejection(a, decided)
	switch {
	case why != "":
		t.notify(alarm.CardRejected, "a captured payment does not match its order and is refunded", "order", t.OrderID, "intent", pi.ID, "why", why)
		t.refund = &store.CardRefund{
			OrderID: t.OrderID, Account: t.Account, Origin: originRejected, State: refundCreated, Cents: pi.AmountReceived, Intent: pi.ID, Reason: why,
		}
		if pi.LatestCharge != nil {
			t.refund.Cents -= pi.LatestCharge.AmountRefunded
		}
		if decided {
			t.write, t.move = writeRefund, moveRejected
			return
		}
		t.decide(Rejected, &failure{
			Code: toll.CodeCheckoutFailed, Reason: "The payment does not match the order, so it is refunded to the card.",
		})
	default:
		if was == Failed {
			t.notify(alarm.LatePayment, "a payment was captured after its order had failed", "order", t.OrderID, "intent", pi.ID)
		}
		t.decide(Paid, nil)
		if t.PaidAt = capturedAt(pi); a.session != nil {
			t.Session = a.session.ID
		}
	}
	t.Intent, t.Charge, t.changes = pi.ID, "", a.changes
	c := pi.LatestCharge
	if c != nil {
		t.Charge = c.ID
	}
	if a.read {
		t.alarm = nil // it was logged before the question
	} else if t.d.Lost || c != nil && (c.AmountRefunded != 0 || c.Disputed) {
		t.write, t.ask = writeNothing, askMoney // their events may have been read already
	}
}

// rejection returns why a captured payment buys nothing, "" when it pays the order.
func (t *transition) rejection(a facts, decided bool) string {
	pi := a.intent
	switch {
	case decided:
		return "a second payment for the order"
	case a.noPlace:
		return "the payment came after the plan reached its maximum number of orders"
	}
	if member := wrong(t.terms(), pi, a.session); member != "" {
		return "the payment does not match the order: " + member
	}
	switch {
	case pi.LatestCharge != nil && pi.LatestCharge.Refunded:
		return "the payment was refunded before it was settled"
	case State(t.State) == Failed && t.d.Failure != nil && t.d.Failure.Unsure:
		return "the order failed before the payment was found"
	}
	return ""
}

// pauseOf returns the pause before a payment is read again: 5, 10, 20, and then 30 seconds. An unpaid page is read less and less often,
// because a buyer can open many pages. The loop that reads events sees the payment anyway.
func pauseOf(d *details, now time.Time) time.Duration {
	age := now.Sub(d.TriedAt)
	for _, s := range []time.Duration{5, 10, 20} {
		if age < s*time.Second {
			return s * time.Second
		}
	}
	if d.Session == nil {
		return pollEvery
	}
	return min(max(pollEvery, age/6), pollPage)
}

func attemptKey(p *store.CardPayment) string {
	return p.OrderID + "-" + strconv.FormatInt(p.Attempt, 10)
}
