package double

// refund gives back money of a charge.
type refund struct {
	base
	Amount                    int64             `json:"amount"`
	BalanceTransaction        text              `json:"balance_transaction"`
	Charge                    text              `json:"charge"`
	Currency                  string            `json:"currency"`
	DestinationDetails        refundDestination `json:"destination_details"`
	FailureBalanceTransaction string            `json:"failure_balance_transaction,omitempty"`
	FailureReason             string            `json:"failure_reason,omitempty"`
	Metadata                  map[string]string `json:"metadata"`
	PaymentIntent             text              `json:"payment_intent"`
	PendingReason             string            `json:"pending_reason,omitempty"`
	Reason                    text              `json:"reason"`
	Status                    string            `json:"status"`
}

type refundDestination struct {
	Card struct {
		Type string `json:"type"`
	} `json:"card"`
	Type string `json:"type"`
}

const refundParams = "amount:int charge payment_intent metadata:map reason:duplicate|fraudulent|requested_by_customer "

func (c *call) createRefund() (any, error) {
	ch, err := c.chargeToRefund()
	if err != nil {
		return nil, err
	}
	left := ch.Amount - ch.AmountRefunded
	amount := left
	if c.p.has("amount") {
		amount = c.p.number("amount")
	}
	_, disputed := first(c.st, func(dp *dispute) bool {
		return dp.Charge == ch.ID && !dp.IsChargeRefundable && dp.Status != "won"
	})
	switch {
	case !ch.Paid:
		return nil, invalidRequest("", "", "This charge has not been paid, and cannot be refunded.")
	case disputed:
		return nil, invalidRequest("", "charge_disputed", "Charge %s has been charged back; cannot issue a refund.", ch.ID)
	case left == 0:
		return nil, invalidRequest("", "charge_already_refunded", "Charge %s has already been refunded.", ch.ID)
	case amount < 1:
		return nil, invalidRequest("amount", "parameter_invalid_integer", "This value must be greater than or equal to 1.")
	case amount > left:
		return nil, invalidRequest("amount", "",
			"Refund amount (%s) is greater than unrefunded amount on charge (%s)",
			byNumber(amount), byNumber(left))
	}
	return c.refund(ch, amount), nil
}

func (c *call) chargeToRefund() (*charge, error) {
	id, of := string(c.p.text("charge")), string(c.p.text("payment_intent"))
	switch {
	case id != "" && of != "":
		return nil, invalidParam("charge", "", "You may only specify one of these parameters: charge, payment_intent.")
	case id != "":
		return c.charged(id, "charge")
	case of == "":
		return nil, invalidParam("charge", "parameter_missing", "One of these parameters is required: payment_intent or charge.")
	}
	pi, ok := find[*intent](c.st, of)
	if !ok {
		return nil, missing("payment_intent", of, "payment_intent")
	}
	if pi.Status != "succeeded" {
		return nil, invalidRequest("", "", "This PaymentIntent (%s) does not have a successful charge to refund.", of)
	}
	return c.charged(string(pi.LatestCharge), "charge")
}

func (c *call) refund(ch *charge, amount int64) *refund {
	re := &refund{
		base:          base{newID("re_3", 23), "refund", c.now},
		Amount:        amount,
		Charge:        text(ch.ID),
		Currency:      ch.Currency,
		Metadata:      c.p.metadata(),
		PaymentIntent: ch.PaymentIntent,
		Reason:        c.p.text("reason"),
		Status:        "succeeded",
	}
	re.DestinationDetails.Type, re.DestinationDetails.Card.Type = "card", "refund"
	re.BalanceTransaction = text(c.move("refund", re.ID, re.Currency, -amount, 0).ID)
	ch.AmountRefunded += amount
	ch.Refunded = ch.AmountRefunded == ch.Amount
	m, _ := find[*paymentMethod](c.st, string(ch.PaymentMethod))
	switch c.testCard(m).refund {
	case "pending":
		re.Status, re.PendingReason = "pending", "processing"
		c.later("refund_succeeds", re.ID)
	case "fails":
		c.later("refund_fails", re.ID)
	}
	c.st.add(re)
	c.emit("refund.created", re)
	c.emit("charge.refunded", ch)
	for dp := range each[*dispute](c.st) {
		if dp.Charge == ch.ID && dp.inquiry() && ch.Refunded {
			c.decide(dp, false) // there is nothing left to inquire about
		}
	}
	return re
}

// refundSucceeded ends the wait of a refund that was pending.
func (c *call) refundSucceeded(re *refund) {
	if re.Status != "pending" {
		return
	}
	re.Status, re.PendingReason = "succeeded", ""
	c.emit("refund.updated", re)
	c.emit("charge.refund.updated", re)
}

// refundFailed gives the money of a refund back to the account. status is failed or canceled.
func (c *call) refundFailed(re *refund, status string) {
	if re.void() {
		return
	}
	ch, _ := find[*charge](c.st, string(re.Charge))
	re.Status, re.PendingReason, re.FailureReason = status, "", "expired_or_canceled_card"
	if status == "canceled" {
		re.FailureReason = "merchant_request"
	}
	re.FailureBalanceTransaction = c.move("refund_failure", re.ID, re.Currency, re.Amount, 0).ID
	ch.AmountRefunded -= re.Amount
	ch.Refunded = false
	if status == "failed" {
		c.emit("refund.failed", re)
	}
	c.emit("refund.updated", re)
	c.emit("charge.refund.updated", re)
}

// void reports whether a refund gave nothing back in the end.
func (re *refund) void() bool { return re.Status == "failed" || re.Status == "canceled" }
