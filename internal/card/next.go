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
	// pollEvery is how often a payment is looked at that waits for the bank or the buyer, and pollPage how often an old page is.
	pollEvery, pollPage = 30 * time.Second, 5 * time.Minute
	// retryPage is how old a call may be whose page Stripe refuses because it would end too early.
	retryPage = time.Minute
	// missingTime is how long Stripe may not list an attempt whose answer was lost before the order fails. missingSends is how
	// long the same call is still sent in this time.
	missingTime, missingSends = 10 * time.Minute, 9 * time.Minute
	// failingTime is how far apart two look-ups are that give up an attempt which Stripe keeps answering with the same failure.
	failingTime = time.Minute
)

// payment is a row of card_payments with its details. A captured payment of this service has this installation and mode.
type payment struct {
	store.CardPayment
	d            details
	installation string
	live         bool
}

// question is what a step asks next.
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

// facts are what a step knows besides the row: the answer to the last question, and earlier ones that it needs. The zero value
// is the begin of a step.
type facts struct {
	to question // the last question; askNothing for a captured payment that an event reported

	call    *store.CardCall   // of the attempt; stored with the next write once Status is set
	barred  *failure          // why the call may not be sent; nil when it may
	method  *store.CardMethod // of a new charge; nil when the card was removed
	unsent  bool              // no request of this attempt was executed, those of this step included
	found   string            // id of the listed object; "" for none
	session *stripe.CheckoutSession
	intent  *stripe.PaymentIntent // with a session: the payment on it
	changes []change              // of a captured payment before it was settled
	read    bool                  // changes were read

	refusal   *answer // Stripe did not do what was asked
	forgotten bool    // Stripe may have forgotten the key of the call
	gone      bool    // Stripe no longer has the object
	noPlace   bool    // the plan has no place for the late payment
	replace   bool    // the buyer needs a page of Stripe in the place of the open page
	unpaid    bool    // another buyer waits for the place of the open page in the plan
}

// writing is what a transition stores. Each is one transaction.
type writing int

const (
	writeNothing writing = iota
	writeRow             // the row, which stays open, with the answered and the next call
	writeOutcome         // the decided row with its order, the move, the refund and the changes
	writeRefund          // the refund of a payment beside the one that decided the order
	writeMove            // the move alone, which Stripe made after the capture
)

// transition is what follows from facts: the payment afterwards, what is stored, and what is asked next.
type transition struct {
	payment
	write    writing
	answered *store.CardCall       // stored with its answer, unless it has none
	call     *store.CardCall       // stored before it is sent
	method   *store.CardMethod     // that the stored call charges
	captured *stripe.PaymentIntent // whose move is stored; the transition follows whatever became of the row meanwhile
	move     string                // kind of that move
	refund   *store.CardRefund     // of a payment that buys nothing; the writer sets id and times
	changes  []change
	release  bool // the delegation reserves the amount for missingTime more

	ask   question
	again time.Duration // when nothing is asked: the time to the next look; 0 for none
	err   error
	alarm *notice
}

// notice is an alarm that is logged before a transition is stored.
type notice struct {
	id   alarm.ID
	text string
	args []any
}

// next decides what becomes of a payment. It is the only place that does, and touches neither the database nor Stripe. now is the time
// of the machine. A captured payment counts in every state. A step begins with the zero value of facts.
func next(p payment, a facts, now time.Time) transition {
	t := transition{payment: p, answered: a.call}
	state, s, pi := State(p.State), a.session, a.intent
	switch {
	case a.gone:
		t.notify(alarm.CardPaymentLost, "the card processor does not have a payment any more; the order fails", "order", p.OrderID, "state", p.State)
		t.fail(&failure{Code: toll.CodeCheckoutFailed, Reason: "The card processor does not know the payment any more."}, "")
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

func (t *transition) notify(id alarm.ID, text string, args ...any) {
	t.alarm = &notice{id, text, args}
}

// keep stores the row, which stays open and no longer waits for Stripe.
func (t *transition) keep() { t.write, t.d.Delay = writeRow, nil }

// decide stores the outcome of the payment with its order.
func (t *transition) decide(s State, f *failure) {
	t.write, t.State, t.Undecided = writeOutcome, string(s), false
	t.d.Then, t.d.Failure, t.d.Delay = "", f, nil
}

// fail fails an open order for which nothing was or will be captured. tried is the id of the intent that failed, "" for none.
func (t *transition) fail(f *failure, tried string) {
	if !State(t.State).open() {
		return
	}
	t.decide(Failed, f)
	t.Intent, t.release = cmp.Or(tried, t.Intent), f.Unsure && t.Delegation != ""
}

// end begins to end an attempt: its intent is cancelled, or its page expired. then is what follows: [Failed] for f, or [Created] for
// another attempt.
func (t *transition) end(then State, f *failure) {
	t.keep()
	t.State, t.d.Then, t.d.Failure = string(Ending), then, f
	t.call = &store.CardCall{Key: attemptKey(&t.CardPayment) + keyCancel, Subject: t.OrderID, Path: "payment_intents/" + t.Intent + "/cancel"}
	if t.d.Session != nil {
		t.call.Key, t.call.Path = attemptKey(&t.CardPayment)+keyExpire, "checkout/sessions/"+t.Session+"/expire"
	}
}

// retry begins another attempt in the place of one that has ended.
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

// calling sends the call of an attempt, and looks for what it made when the answer was lost.
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

// waiting looks at a payment that waits for the bank or the buyer.
func (t *transition) waiting(a facts) {
	switch {
	case a.replace:
		t.d.Hosted = true
		t.end(Created, nil)
	case a.unpaid:
		t.end(Failed, &failure{
			Code: toll.CodeCheckoutFailed, Reason: "The page ended unpaid, because another buyer waited for its place in the plan.",
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

// begin sends the stored call, unless that is barred or was tried for long enough.
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
		// Each request changes the version, so that a refusal of one says nothing once another is sent.
		t.write, t.d.Unsent = writeRow, false
	}
}

// refused acts on the answer to a call that was not carried out.
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
	f := &failure{Code: toll.CodeCheckoutFailed, Reason: "The card processor refused the request."}
	if r.kind == missing || r.param == "payment_method" || r.param == "customer" {
		f = &failure{Code: toll.CodePaymentMethodUnusable, Reason: "The card processor does not know the card any more."}
	}
	t.notify(alarm.CardRequestRefused, "the card processor refuses a payment that this service asked for", "order", t.OrderID, "answer", r)
	t.fail(f, "")
}

// notListed acts on an attempt without an answer that Stripe does not list. r is its last answer, nil for a call that is too old to be
// sent. After [missingTime] the order fails. It fails after [failingTime] when Stripe answers the key with a stored failure, because no
// repeat is executed then. If the first request was, its payment is refunded when it shows up.
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
		t.notify(alarm.CardPaymentLost, "the card processor does not know a payment whose answer was lost; the order fails", "order", t.OrderID)
		c := *t.answered
		c.Status, t.answered = http.StatusNotFound, &c
		t.fail(&failure{
			Code: toll.CodeCardUnreachable, Reason: "The card processor did not answer, and does not know the payment.", Unsure: giveUp,
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

// judge acts on an intent that is not captured.
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
	// It needs another card, or its owner. Neither is there, and nothing was captured.
	a := answerOfError(pi.LastPaymentError)
	if status == stripe.PaymentIntentStatusRequiresAction {
		a = &answer{kind: owner}
	}
	t.Intent = pi.ID
	t.end(Failed, failureOf(a))
}

// judgePage acts on a page whose payment is not captured. An open page stays as it is.
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
		t.fail(cmp.Or(t.d.Failure, &failure{Code: toll.CodeCheckoutFailed, Reason: "The page has expired without a payment."}), tried)
	case s.Status != stripe.CheckoutSessionStatusComplete:
	case pi == nil:
		t.notify(alarm.CardOddPage, "a page was completed without a payment", "order", t.OrderID, "session", s.ID, "payment", s.PaymentStatus)
		t.fail(&failure{Code: toll.CodeCheckoutFailed, Reason: "The page was completed without a payment."}, "")
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
		t.notify(alarm.CardRejected, "a captured payment buys nothing and is refunded", "order", t.OrderID, "intent", pi.ID, "why", why)
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
			Code: toll.CodeCheckoutFailed, Reason: "The payment does not fit the order and buys nothing. The money goes back to the card.",
		})
	default:
		if was == Failed {
			t.notify(alarm.LatePayment, "a payment of an order that had failed is captured", "order", t.OrderID, "intent", pi.ID)
		}
		t.decide(Paid, nil)
		if t.PaidAt = capturedAt(pi); a.session != nil {
			t.Session = a.session.ID
		}
	}
	t.Intent, t.Charge, t.changes = pi.ID, chargeOf(pi), a.changes
	if a.read {
		t.alarm = nil // it was logged before the question
	} else if c := pi.LatestCharge; t.d.Lost || c != nil && (c.AmountRefunded != 0 || c.Disputed) {
		t.write, t.ask = writeNothing, askMoney // their events may have been read already
	}
}

// rejection returns why a captured payment buys nothing, "" when it pays the order.
func (t *transition) rejection(a facts, decided bool) string {
	pi := a.intent
	switch {
	case decided:
		return "a second payment of the order"
	case a.noPlace:
		return "paid late, and the plan has no place"
	}
	if member := wrong(t.terms(), pi, a.session); member != "" {
		return "other terms: " + member
	}
	switch {
	case pi.LatestCharge != nil && pi.LatestCharge.Refunded:
		return "refunded before it was seen"
	case State(t.State) == Failed && t.d.Failure != nil && t.d.Failure.Unsure:
		return "the order was given up before it was seen"
	}
	return ""
}

// pauseOf returns the time to the next look at a payment: 5, 10, 20, and then 30 seconds. A page that stays unpaid is looked at less and
// less, because everyone can have many of them made: the loop that reads events sees the payment anyway.
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

// attemptKey is the idempotency key of the attempt of a payment.
func attemptKey(p *store.CardPayment) string {
	return p.OrderID + "-" + strconv.FormatInt(p.Attempt, 10)
}
