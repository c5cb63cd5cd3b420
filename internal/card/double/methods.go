package double

import (
	"cmp"
	"time"
)

// paymentMethod is a card.
type paymentMethod struct {
	base
	AllowRedisplay string            `json:"allow_redisplay"`
	BillingDetails billing           `json:"billing_details"`
	Card           card              `json:"card"`
	Customer       text              `json:"customer"`
	Livemode       bool              `json:"livemode"`
	Metadata       map[string]string `json:"metadata"`
	Type           string            `json:"type"`
}

type billing struct {
	Address address `json:"address"`
	Email   text    `json:"email"`
	Name    text    `json:"name"`
	Phone   text    `json:"phone"`
	TaxID   text    `json:"tax_id"`
}

type address struct {
	City       text `json:"city"`
	Country    text `json:"country"`
	Line1      text `json:"line1"`
	Line2      text `json:"line2"`
	PostalCode text `json:"postal_code"`
	State      text `json:"state"`
}

type card struct {
	Brand           string      `json:"brand"`
	Checks          checks      `json:"checks"`
	Country         text        `json:"country"`
	DisplayBrand    text        `json:"display_brand"`
	ExpMonth        int64       `json:"exp_month"`
	ExpYear         int64       `json:"exp_year"`
	Fingerprint     text        `json:"fingerprint"`
	Funding         string      `json:"funding"`
	Last4           string      `json:"last4"`
	RegulatedStatus text        `json:"regulated_status"`
	ThreeDSecure    threeDUsage `json:"three_d_secure_usage"`
}

type checks struct {
	AddressLine1      text `json:"address_line1_check"`
	AddressPostalCode text `json:"address_postal_code_check"`
	CVC               text `json:"cvc_check"`
}

type threeDUsage struct {
	Supported bool `json:"supported"`
}

// newMethod keeps brand, end and fingerprint of a card, never its number.
func (c *call) newMethod(t testCard, expMonth, expYear int64, owner billing) *paymentMethod {
	brand := cmp.Or(t.brand, "visa")
	m := &paymentMethod{
		base:           base{newID("pm_1", 23), "payment_method", c.now},
		AllowRedisplay: "unspecified",
		BillingDetails: owner,
		Card: card{
			Brand: brand, Checks: checks{CVC: "pass"}, Country: "US", DisplayBrand: text(brand),
			ExpMonth: expMonth, ExpYear: expYear, Fingerprint: c.st.fingerprint(t.number),
			Funding: "credit", Last4: t.number[len(t.number)-4:], RegulatedStatus: "unregulated",
			ThreeDSecure: threeDUsage{Supported: true},
		},
		Metadata: map[string]string{},
		Type:     "card",
	}
	c.st.hide(m.ID).Card = t.name
	c.st.add(m)
	return m
}

// method finds a payment method. A name such as pm_card_visa makes a new one.
func (c *call) method(id, param string) (*paymentMethod, error) {
	if m, ok := find[*paymentMethod](c.st, id); ok {
		return m, nil
	}
	if t, ok := cardNamed(id); ok {
		return c.newMethod(t, 12, int64(time.Unix(c.now, 0).UTC().Year())+4, billing{}), nil
	}
	return nil, missing("PaymentMethod", id, param)
}

// testCard is the card that a payment method stands for.
func (c *call) testCard(m *paymentMethod) testCard {
	t, _ := cardNamed(c.st.hide(m.ID).Card)
	return t
}

func (c *call) attachMethod() (any, error) {
	u, err := c.customer(string(c.p.text("customer")), "customer")
	if err != nil {
		return nil, err
	}
	m, err := c.method(c.r.PathValue("id"), "id")
	switch {
	case err != nil:
		return nil, err
	case m.Customer == text(u.ID):
		return m, nil
	case m.Customer != "":
		return nil, invalidRequest("", "", "The payment method you provided has already been attached to a customer.")
	case c.st.hide(m.ID).Used:
		return nil, invalidRequest("", "", "This PaymentMethod was used before, or was detached, and may not be used again.")
	}
	if t := c.testCard(m); t.code != "" && !t.attaches {
		return nil, t.decline()
	}
	c.attach(m, u.ID)
	return m, nil
}

func (c *call) attach(m *paymentMethod, customer string) {
	if m.Customer == text(customer) {
		return
	}
	m.Customer = text(customer)
	c.emit("payment_method.attached", m)
}

func (c *call) detachMethod() (any, error) {
	m, err := c.method(c.r.PathValue("id"), "id")
	if err == nil && m.Customer == "" {
		err = invalidRequest("", "", "The payment method you provided is not attached to a customer.")
	}
	if err != nil {
		return nil, err
	}
	c.detach(m)
	return m, nil
}

func (c *call) detach(m *paymentMethod) {
	m.Customer = ""
	c.st.hide(m.ID).Used = true
	c.emit("payment_method.detached", m)
}

// checkExpiry refuses a date that is none, or is over.
func (c *call) checkExpiry(month, year int64) *failure {
	now := time.Unix(c.now, 0).UTC()
	this := int64(now.Year())
	switch {
	case month < 1 || month > 12, year == this && month < int64(now.Month()):
		return cardError("invalid_expiry_month", "", "Your card's expiration month is invalid.")
	case year < this || year > this+50:
		return cardError("invalid_expiry_year", "", "Your card's expiration year is invalid.")
	}
	return nil
}

// usable returns the payment method of a charge of a customer.
func (c *call) usable(id string, customer text) (*paymentMethod, error) {
	m, err := c.method(id, "payment_method")
	switch {
	case err != nil:
		return nil, err
	case m.Customer == customer:
		return m, nil
	case m.Customer != "":
		return nil, invalidRequest("payment_method", "", "The PaymentMethod %s does not belong to the Customer you supplied %s.", id, customer)
	case c.st.hide(m.ID).Used:
		return nil, invalidRequest("payment_method", "", "This PaymentMethod was used before, or was detached, and may not be used again.")
	}
	return m, nil
}
