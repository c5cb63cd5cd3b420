package double

import (
	"cmp"
	"strings"
)

// intent is a payment intent: one payment, however many cards are tried.
type intent struct {
	base
	Amount                    int64             `json:"amount"`
	AmountReceived            int64             `json:"amount_received"`
	CanceledAt                stamp             `json:"canceled_at"`
	CancellationReason        text              `json:"cancellation_reason"`
	CaptureMethod             string            `json:"capture_method"`
	ClientSecret              string            `json:"client_secret"`
	ConfirmationMethod        string            `json:"confirmation_method"`
	Currency                  string            `json:"currency"`
	Customer                  text              `json:"customer"`
	LastPaymentError          *failure          `json:"last_payment_error"`
	LatestCharge              text              `json:"latest_charge"`
	Livemode                  bool              `json:"livemode"`
	Metadata                  map[string]string `json:"metadata"`
	NextAction                *nextAction       `json:"next_action"`
	PaymentMethod             text              `json:"payment_method"`
	PaymentMethodTypes        []string          `json:"payment_method_types"`
	StatementDescriptorSuffix text              `json:"statement_descriptor_suffix"`
	Status                    string            `json:"status"`
}

// Bounds on amounts, in cents.
const (
	minAmount = 50
	maxAmount = 99_999_999
)

// intentParams are those of a payment off session. A page makes the intents of the others.
const intentParams = "amount:int! currency:currency! customer! payment_method! confirm:true! off_session:true! payment_method_types.* " +
	"capture_method:automatic|automatic_async metadata:map statement_descriptor_suffix"

// captureAsync is the default: the money of a charge is moved some time after its capture.
const captureAsync = "automatic_async"

func (c *call) createIntent() (any, error) {
	amount, currency := c.p.number("amount"), string(c.p.text("currency"))
	if err := checkAmount("amount", amount, currency); err != nil {
		return nil, err
	}
	if err := c.checkTypes(); err != nil {
		return nil, err
	}
	if err := checkSuffix(c.p, "statement_descriptor_suffix"); err != nil {
		return nil, err
	}
	u, err := c.customer(string(c.p.text("customer")), "customer")
	if err != nil {
		return nil, err
	}
	m, err := c.usable(string(c.p.text("payment_method")), text(u.ID))
	if err != nil {
		return nil, err
	}
	pi := c.newIntent(amount, currency, text(u.ID), c.p)
	if f := c.confirm(pi, m, true); f != nil {
		f.PaymentIntent = new(*pi)
		return nil, f
	}
	return pi, nil
}

// checkTypes refuses types of payment methods other than cards.
func (c *call) checkTypes() error {
	for _, kind := range c.p.list("payment_method_types") {
		if kind != "card" {
			return invalidParam("payment_method_types", "", "The payment method type %s is invalid. Use card", kind)
		}
	}
	return nil
}

func checkAmount(param string, amount int64, currency string) error {
	switch {
	case amount < minAmount:
		return invalidParam(param, "amount_too_small", "Amount must be at least %s %s", byNumber(minAmount), currency)
	case amount > maxAmount:
		return invalidParam(param, "amount_too_large", "Amount must be no more than %s %s", byNumber(maxAmount), currency)
	}
	return nil
}

// checkSuffix refuses a suffix of the text on a bank statement that card networks do not take.
func checkSuffix(p params, path string) error {
	suffix := string(p.text(path))
	if len(suffix) > 22 || strings.ContainsAny(suffix, `<>\'"*`) {
		return invalidParam(bracketed(path), "",
			"The statement descriptor suffix must be at most 22 characters, "+
				`and cannot contain any of <, >, \, ', ", *`)
	}
	return nil
}

func (c *call) newIntent(amount int64, currency string, customer text, data params) *intent {
	id := newID("pi_3", 23)
	pi := &intent{
		base:                      base{id, "payment_intent", c.now},
		Amount:                    amount,
		CaptureMethod:             cmp.Or(string(data.text("capture_method")), captureAsync),
		ClientSecret:              newID(id+"_secret_", 25),
		ConfirmationMethod:        "automatic",
		Currency:                  currency,
		Customer:                  customer,
		Metadata:                  data.metadata(),
		PaymentMethodTypes:        []string{"card"},
		StatementDescriptorSuffix: data.text("statement_descriptor_suffix"),
		Status:                    "requires_payment_method",
	}
	c.st.add(pi)
	c.emit("payment_intent.created", pi)
	return pi
}

// confirm tries a card for a payment intent. The status of the intent says whether its owner has to
// authenticate, or whether the payment takes longer.
func (c *call) confirm(pi *intent, m *paymentMethod, off bool) *failure {
	t, h := c.testCard(m), c.st.hide(m.ID)
	pi.PaymentMethod = text(m.ID)
	if m.Customer == "" {
		h.Used = true
	}
	if t.auth == authAlways || t.auth == authUnlessSetUp && !(off && h.SetUp) {
		if off {
			const code = "authentication_required"
			return c.paymentFailed(pi, m, cardError(code, code, "Your card was declined. This transaction requires authentication."))
		}
		pi.Status, pi.NextAction = "requires_action", c.authenticateAt(pi.ClientSecret)
		c.emit("payment_intent.requires_action", pi)
		return nil
	}
	return c.charge(pi, m)
}

// charge takes the money of an intent whose owner needs no more authentication.
func (c *call) charge(pi *intent, m *paymentMethod) *failure {
	if f := c.testCard(m).decline(); f != nil {
		return c.paymentFailed(pi, m, f)
	}
	if f := c.checkExpiry(m.Card.ExpMonth, m.Card.ExpYear); f != nil {
		return c.paymentFailed(pi, m, cardError("expired_card", "", "Your card has expired."))
	}
	pi.NextAction, pi.LastPaymentError = nil, nil
	if f := c.takeFault("processing", ""); f != nil {
		pi.Status = "processing"
		c.emit("payment_intent.processing", pi)
		c.later("capture_"+f.Reason, pi.ID)
		return nil
	}
	c.capture(pi, m)
	return nil
}

// paymentFailed records a charge that failed, and returns its failure for the answer.
func (c *call) paymentFailed(pi *intent, m *paymentMethod, f *failure) *failure {
	ch := c.newCharge(pi, m)
	ch.Status, ch.FailureCode, ch.FailureMessage = "failed", text(f.Code), text(f.Message)
	ch.Outcome = outcomeOf(f)
	f.Charge = ch.ID
	f.PaymentMethod = new(*m)
	pi.LastPaymentError, pi.LatestCharge = new(*f), text(ch.ID)
	pi.Status, pi.PaymentMethod, pi.NextAction = "requires_payment_method", "", nil
	c.emit("charge.failed", ch)
	c.emit("payment_intent.payment_failed", pi)
	return f
}

func (c *call) cancelIntent() (any, error) {
	id := c.r.PathValue("id")
	pi, ok := find[*intent](c.st, id)
	if !ok {
		return nil, missing("payment_intent", id, "id")
	}
	if pi.Status == "succeeded" || pi.Status == "canceled" {
		f := invalidRequest("", "payment_intent_unexpected_state", "You cannot cancel this PaymentIntent because it has a status of %s.", pi.Status)
		f.PaymentIntent = new(*pi)
		return nil, f
	}
	if _, ok := c.sessionOf(pi); ok {
		return nil, invalidRequest("", "payment_intent_unexpected_state", "You cannot cancel a PaymentIntent of a Checkout Session. Expire the session instead.")
	}
	c.cancelPayment(pi, "")
	return pi, nil
}

func (c *call) cancelPayment(pi *intent, reason text) {
	pi.Status, pi.CancellationReason, pi.CanceledAt = "canceled", reason, stamp(c.now)
	pi.NextAction = nil
	c.emit("payment_intent.canceled", pi)
}
