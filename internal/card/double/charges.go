package double

import "cmp"

// charge is one attempt to take money with one card.
type charge struct {
	base
	Amount                    int64             `json:"amount"`
	AmountCaptured            int64             `json:"amount_captured"`
	AmountRefunded            int64             `json:"amount_refunded"`
	BalanceTransaction        text              `json:"balance_transaction"`
	BillingDetails            billing           `json:"billing_details"`
	Captured                  bool              `json:"captured"`
	Currency                  string            `json:"currency"`
	Customer                  text              `json:"customer"`
	Disputed                  bool              `json:"disputed"`
	FailureCode               text              `json:"failure_code"`
	FailureMessage            text              `json:"failure_message"`
	Livemode                  bool              `json:"livemode"`
	Metadata                  map[string]string `json:"metadata"`
	Outcome                   *chargeOutcome    `json:"outcome"`
	Paid                      bool              `json:"paid"`
	PaymentIntent             text              `json:"payment_intent"`
	PaymentMethod             text              `json:"payment_method"`
	PaymentMethodDetails      chargeDetails     `json:"payment_method_details"`
	Refunded                  bool              `json:"refunded"`
	StatementDescriptorSuffix text              `json:"statement_descriptor_suffix"`
	Status                    string            `json:"status"`
}

type chargeOutcome struct {
	NetworkStatus text   `json:"network_status"`
	Reason        text   `json:"reason"`
	RiskLevel     string `json:"risk_level"`
	SellerMessage text   `json:"seller_message"`
	Type          string `json:"type"`
}

type chargeDetails struct {
	Card chargedCard `json:"card"`
	Type string      `json:"type"`
}

type chargedCard struct {
	AmountAuthorized int64  `json:"amount_authorized"`
	Brand            string `json:"brand"`
	Checks           checks `json:"checks"`
	Country          text   `json:"country"`
	ExpMonth         int64  `json:"exp_month"`
	ExpYear          int64  `json:"exp_year"`
	Fingerprint      text   `json:"fingerprint"`
	Funding          string `json:"funding"`
	Last4            string `json:"last4"`
	Network          string `json:"network"`
}

// balanceTransaction is one change of the money that the account has.
type balanceTransaction struct {
	base
	Amount            int64    `json:"amount"`
	AvailableOn       int64    `json:"available_on"`
	BalanceType       string   `json:"balance_type"`
	Currency          string   `json:"currency"`
	Description       text     `json:"description"`
	Fee               int64    `json:"fee"`
	FeeDetails        []feeFor `json:"fee_details"`
	Net               int64    `json:"net"`
	ReportingCategory string   `json:"reporting_category"`
	Source            text     `json:"source"`
	Status            string   `json:"status"`
	Type              string   `json:"type"`
}

type feeFor struct {
	Amount      int64  `json:"amount"`
	Application text   `json:"application"`
	Currency    string `json:"currency"`
	Description text   `json:"description"`
	Type        string `json:"type"`
}

// newCharge makes a charge of an intent that has not moved money yet.
func (c *call) newCharge(pi *intent, m *paymentMethod) *charge {
	ch := &charge{
		base:                      base{newID("ch_3", 23), "charge", c.now},
		Amount:                    pi.Amount,
		BillingDetails:            m.BillingDetails,
		Currency:                  pi.Currency,
		Customer:                  pi.Customer,
		Metadata:                  pi.Metadata,
		PaymentIntent:             text(pi.ID),
		PaymentMethod:             text(m.ID),
		StatementDescriptorSuffix: pi.StatementDescriptorSuffix,
		PaymentMethodDetails: chargeDetails{Type: "card", Card: chargedCard{
			AmountAuthorized: pi.Amount,
			Brand:            m.Card.Brand, Checks: m.Card.Checks, Country: m.Card.Country,
			ExpMonth: m.Card.ExpMonth, ExpYear: m.Card.ExpYear, Fingerprint: m.Card.Fingerprint,
			Funding: m.Card.Funding, Last4: m.Card.Last4, Network: m.Card.Brand,
		}},
	}
	c.st.add(ch)
	return ch
}

func outcomeOf(f *failure) *chargeOutcome {
	if f == nil {
		const message = "Payment complete."
		return &chargeOutcome{"approved_by_network", "", "normal", message, "authorized"}
	}
	const message = "The bank declined the payment."
	reason := text(cmp.Or(f.DeclineCode, f.Code))
	return &chargeOutcome{"declined_by_network", reason, "normal", message, "issuer_declined"}
}

// capture takes the money of an intent, and schedules the dispute that its card asks for.
func (c *call) capture(pi *intent, m *paymentMethod) {
	ch := c.newCharge(pi, m)
	ch.Status, ch.Paid, ch.Captured, ch.AmountCaptured = "succeeded", true, true, ch.Amount
	ch.Outcome = outcomeOf(nil)
	if pi.CaptureMethod == captureAsync {
		c.later("balance", ch.ID)
	} else {
		c.moveCharge(ch)
	}
	pi.Status, pi.AmountReceived, pi.LatestCharge = "succeeded", ch.Amount, text(ch.ID)
	c.emit("charge.succeeded", ch)
	c.emit("payment_intent.succeeded", pi)
	if c.testCard(m).dispute != "" {
		c.later("dispute", ch.ID)
	}
}

// moveCharge books a captured charge.
func (c *call) moveCharge(ch *charge) {
	fee := ch.Amount*29/1000 + 30
	ch.BalanceTransaction = text(c.move("charge", ch.ID, ch.Currency, ch.Amount, fee).ID)
}

// move writes a change of the account's money: amount less fee.
func (c *call) move(kind, source, currency string, amount, fee int64) *balanceTransaction {
	b := &balanceTransaction{
		base:              base{newID("txn_3", 23), "balance_transaction", c.now},
		Amount:            amount,
		AvailableOn:       c.now,
		BalanceType:       "payments",
		Currency:          currency,
		Fee:               fee,
		FeeDetails:        []feeFor{},
		Net:               amount - fee,
		ReportingCategory: kind,
		Source:            text(source),
		Status:            "available",
		Type:              kind,
	}
	if kind == "adjustment" {
		b.ReportingCategory = "dispute"
	}
	if fee != 0 {
		const why = "Stripe processing fees"
		b.FeeDetails = append(b.FeeDetails, feeFor{fee, "", currency, why, "stripe_fee"})
	}
	c.st.add(b)
	return b
}

func (c *call) charged(id, param string) (*charge, error) {
	if ch, ok := find[*charge](c.st, id); ok {
		return ch, nil
	}
	return nil, missing("charge", id, param)
}
