package double

import (
	"cmp"
	"strings"
)

// maxAttempts bounds the cards that a person can try in one session.
const maxAttempts = 20

// pay tries a card for a session. Its intent says whether the card was taken, or has to be authenticated.
func (c *call) pay(s *session, m *paymentMethod) *failure {
	if s.Mode == "setup" {
		m.AllowRedisplay = "limited"
		si, _ := find[*setupIntent](c.st, string(s.SetupIntent))
		if f := c.setUp(si, m); f != nil {
			return f
		}
		c.complete(s)
		return nil
	}
	pi, ok := find[*intent](c.st, string(s.PaymentIntent))
	if !ok {
		if s.Customer == "" && s.InvoiceCreation.Enabled {
			s.Customer = text(c.newCustomer().ID)
		}
		data := c.st.hide(s.ID).IntentData
		pi = c.newIntent(*s.AmountTotal, string(s.Currency), s.Customer, data)
		s.PaymentIntent = text(pi.ID)
	}
	if f := c.confirm(pi, m, false); f != nil {
		return f
	}
	c.complete(s)
	return nil
}

// complete ends a session whose intent needs nothing more from the person.
func (c *call) complete(s *session) {
	pi, paying := find[*intent](c.st, string(s.PaymentIntent))
	si, settingUp := find[*setupIntent](c.st, string(s.SetupIntent))
	switch {
	case paying && pi.Status == "succeeded":
		s.PaymentStatus = "paid"
	case paying && pi.Status == "processing", settingUp && si.Status == "succeeded":
	default:
		return
	}
	s.Status, s.URL = "complete", ""
	c.emit("checkout.session.completed", s)
}

// processed ends a payment that took longer, and tells the session that it belongs to.
func (c *call) processed(pi *intent, failed bool) {
	m, ok := find[*paymentMethod](c.st, string(pi.PaymentMethod))
	if !ok || pi.Status != "processing" {
		return
	}
	kind := "checkout.session.async_payment_succeeded"
	if failed {
		kind = "checkout.session.async_payment_failed"
		const code = "card_declined"
		c.paymentFailed(pi, m, cardError(code, "generic_decline", messages[code]))
	} else {
		c.capture(pi, m)
	}
	if s, ok := c.sessionOf(pi); ok {
		if !failed {
			s.PaymentStatus = "paid"
		}
		c.emit(kind, s)
	}
}

// challenge is the intent of a session that a person authenticates.
type challenge struct {
	session *session
	pi      *intent      // of a payment
	si      *setupIntent // of a card that is saved
	method  string
	action  *nextAction
}

// challenge finds an intent by its secret.
func (c *call) challenge(secret string) (challenge, bool) {
	id, _, _ := strings.Cut(secret, "_secret_")
	if pi, ok := find[*intent](c.st, id); ok && pi.ClientSecret == secret {
		s, ok := c.sessionOf(pi)
		return challenge{session: s, pi: pi, method: string(pi.PaymentMethod), action: pi.NextAction}, ok
	}
	si, ok := find[*setupIntent](c.st, id)
	if !ok || si.ClientSecret != secret {
		return challenge{}, false
	}
	s, ok := first(c.st, func(s *session) bool { return s.SetupIntent == text(id) })
	return challenge{session: s, si: si, method: string(si.PaymentMethod), action: si.NextAction}, ok
}

// sessionOf returns the session whose page made a payment intent.
func (c *call) sessionOf(pi *intent) (*session, bool) {
	return first(c.st, func(s *session) bool { return s.PaymentIntent == text(pi.ID) })
}

// answer carries on with an intent after the bank asked the person.
func (c *call) answer(ch challenge, approved bool) {
	m, _ := find[*paymentMethod](c.st, ch.method)
	switch {
	case ch.pi != nil && approved:
		c.charge(ch.pi, m)
	case ch.pi != nil:
		kept := authenticationFailure("payment_intent")
		kept.PaymentMethod = new(*m)
		ch.pi.Status, ch.pi.PaymentMethod, ch.pi.NextAction = "requires_payment_method", "", nil
		ch.pi.LastPaymentError = kept
		c.emit("payment_intent.payment_failed", ch.pi)
	case approved:
		c.setupSucceeded(ch.si)
	default:
		c.setupFailed(ch.si, authenticationFailure("setup_intent"))
	}
	c.complete(ch.session)
}

func authenticationFailure(of string) *failure {
	return invalidRequest("", of+"_authentication_failure", "We are unable to authenticate your payment method. Please choose a different one.")
}

// expire closes a session that is open, with its intents.
func (c *call) expire(s *session) {
	if s.Status != "open" {
		return
	}
	s.Status, s.URL = "expired", ""
	if pi, ok := find[*intent](c.st, string(s.PaymentIntent)); ok {
		c.cancelPayment(pi, "automatic")
	}
	if si, ok := find[*setupIntent](c.st, string(s.SetupIntent)); ok {
		c.cancelSetup(si, "abandoned")
	}
	c.emit("checkout.session.expired", s)
}

// back is where the browser goes when a session is complete.
func (s *session) back() string {
	to := cmp.Or(s.ReturnURL, string(s.SuccessURL))
	return strings.ReplaceAll(to, "{CHECKOUT_SESSION_ID}", s.ID)
}
