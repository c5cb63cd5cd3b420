package double

import (
	"cmp"
	"slices"
	"strings"
)

// dispute is a payment that the owner of the card contests.
type dispute struct {
	base
	Amount                   int64                 `json:"amount"`
	BalanceTransactions      []*balanceTransaction `json:"balance_transactions"`
	Charge                   string                `json:"charge"`
	Currency                 string                `json:"currency"`
	EnhancedEligibilityTypes []string              `json:"enhanced_eligibility_types"`
	Evidence                 evidence              `json:"evidence"`
	EvidenceDetails          evidenceDetails       `json:"evidence_details"`
	IsChargeRefundable       bool                  `json:"is_charge_refundable"`
	Livemode                 bool                  `json:"livemode"`
	Metadata                 map[string]string     `json:"metadata"`
	PaymentIntent            text                  `json:"payment_intent"`
	PaymentMethodDetails     disputedCard          `json:"payment_method_details"`
	Reason                   string                `json:"reason"`
	Status                   string                `json:"status"`
}

// evidence has no texts: a fault decides a dispute.
type evidence struct {
	EnhancedEvidence struct{} `json:"enhanced_evidence"`
}

type evidenceDetails struct {
	DueBy               int64    `json:"due_by"`
	EnhancedEligibility struct{} `json:"enhanced_eligibility"`
	HasEvidence         bool     `json:"has_evidence"`
	PastDue             bool     `json:"past_due"`
	SubmissionCount     int64    `json:"submission_count"`
}

type disputedCard struct {
	Card struct {
		Brand             string `json:"brand"`
		CaseType          string `json:"case_type"`
		Network           text   `json:"network"`
		NetworkReasonCode text   `json:"network_reason_code"`
	} `json:"card"`
	Type string `json:"type"`
}

// disputeFee is what a dispute costs the account, in cents; a dispute that is won costs nothing.
const disputeFee = 1500

// left is what is neither refunded of a charge nor away because of a dispute.
func (c *call) left(ch *charge) int64 {
	left := ch.Amount - ch.AmountRefunded
	for dp := range each[*dispute](c.st) {
		if dp.Charge == ch.ID {
			for _, move := range dp.BalanceTransactions {
				left += move.Amount
			}
		}
	}
	return left
}

// dispute opens a dispute or an inquiry about a charge, about all that is left when amount is zero.
func (c *call) dispute(ch *charge, reason string, inquiry bool, amount int64) *dispute {
	dp := &dispute{
		base:                     base{newID("dp_1", 23), "dispute", c.now},
		Amount:                   cmp.Or(amount, c.left(ch)),
		BalanceTransactions:      []*balanceTransaction{},
		Charge:                   ch.ID,
		Currency:                 ch.Currency,
		EnhancedEligibilityTypes: []string{},
		EvidenceDetails:          evidenceDetails{DueBy: c.now + 9*24*60*60},
		IsChargeRefundable:       inquiry,
		Metadata:                 map[string]string{},
		PaymentIntent:            ch.PaymentIntent,
		Reason:                   reason,
		Status:                   "needs_response",
	}
	brand := ch.PaymentMethodDetails.Card.Brand
	details := &dp.PaymentMethodDetails
	details.Type, details.Card.CaseType = "card", "chargeback"
	details.Card.Brand, details.Card.Network = brand, text(brand)
	ch.Disputed = true
	c.st.add(dp)
	if inquiry {
		dp.Status, dp.PaymentMethodDetails.Card.CaseType = "warning_needs_response", "inquiry"
		c.emit("charge.dispute.created", dp)
		return dp
	}
	c.emit("charge.dispute.created", dp)
	c.withdraw(dp)
	return dp
}

// withdraw takes the money of a dispute from the account.
func (c *call) withdraw(dp *dispute) {
	dp.IsChargeRefundable = false
	dp.BalanceTransactions = append(dp.BalanceTransactions, c.move("adjustment", dp.ID, dp.Currency, -dp.Amount, disputeFee))
	c.emit("charge.dispute.funds_withdrawn", dp)
}

func (dp *dispute) inquiry() bool { return strings.HasPrefix(dp.Status, "warning_") }

func (dp *dispute) closed() bool {
	return slices.Contains([]string{"won", "lost", "warning_closed", "prevented"}, dp.Status)
}

// decide closes a dispute. Closing an inquiry moves no money.
func (c *call) decide(dp *dispute, won bool) {
	switch {
	case dp.closed():
		return
	case dp.inquiry():
		dp.Status = "warning_closed"
	case won:
		dp.Status = "won"
		dp.BalanceTransactions = append(dp.BalanceTransactions, c.move("adjustment", dp.ID, dp.Currency, dp.Amount, -disputeFee))
		c.emit("charge.dispute.funds_reinstated", dp)
	default:
		dp.Status = "lost"
	}
	c.emit("charge.dispute.updated", dp)
	c.emit("charge.dispute.closed", dp)
}

// prevent closes a dispute before anybody had to answer it. No more money moves.
func (c *call) prevent(dp *dispute) {
	if dp.closed() {
		return
	}
	dp.Status = "prevented"
	c.emit("charge.dispute.updated", dp)
	c.emit("charge.dispute.closed", dp)
}

// escalate turns an inquiry into a dispute.
func (c *call) escalate(dp *dispute) {
	if !dp.inquiry() || dp.closed() {
		return
	}
	ch, _ := find[*charge](c.st, dp.Charge)
	dp.Amount = min(dp.Amount, c.left(ch))
	dp.Status, dp.PaymentMethodDetails.Card.CaseType = "needs_response", "chargeback"
	c.withdraw(dp)
	c.emit("charge.dispute.updated", dp)
}
