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
	Evidence                 map[string]any        `json:"evidence"`
	EvidenceDetails          evidenceDetails       `json:"evidence_details"`
	IsChargeRefundable       bool                  `json:"is_charge_refundable"`
	Livemode                 bool                  `json:"livemode"`
	Metadata                 map[string]string     `json:"metadata"`
	PaymentIntent            text                  `json:"payment_intent"`
	PaymentMethodDetails     disputedCard          `json:"payment_method_details"`
	Reason                   string                `json:"reason"`
	Status                   string                `json:"status"`
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

// evidenceTexts are the members of evidence that are texts.
var evidenceTexts = []string{
	"access_activity_log", "billing_address", "cancellation_policy_disclosure",
	"cancellation_rebuttal",
	"customer_email_address", "customer_name", "customer_purchase_ip",
	"duplicate_charge_explanation", "duplicate_charge_id",
	"product_description", "refund_policy_disclosure", "refund_refusal_explanation",
	"shipping_address",
	"shipping_carrier", "shipping_date", "shipping_tracking_number", "uncategorized_text",
}

func updateDisputeParams() string {
	return "submit:bool metadata:map evidence." + strings.Join(evidenceTexts, " evidence.")
}

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
		Evidence:                 map[string]any{},
		EvidenceDetails:          evidenceDetails{DueBy: c.now + 9*24*60*60},
		IsChargeRefundable:       inquiry,
		Metadata:                 map[string]string{},
		PaymentIntent:            ch.PaymentIntent,
		Reason:                   reason,
		Status:                   "needs_response",
	}
	for _, name := range evidenceTexts {
		dp.Evidence[name] = nil
	}
	dp.Evidence["enhanced_evidence"] = struct{}{}
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
	dp.BalanceTransactions = append(dp.BalanceTransactions,
		c.move("adjustment", dp.ID, dp.Currency, -dp.Amount, disputeFee))
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
		dp.BalanceTransactions = append(dp.BalanceTransactions,
			c.move("adjustment", dp.ID, dp.Currency, dp.Amount, -disputeFee))
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
	if dp.Status != "warning_needs_response" && dp.Status != "warning_under_review" {
		return
	}
	ch, _ := find[*charge](c.st, dp.Charge)
	dp.Amount = min(dp.Amount, c.left(ch))
	dp.Status, dp.PaymentMethodDetails.Card.CaseType = "needs_response", "chargeback"
	c.withdraw(dp)
	c.emit("charge.dispute.updated", dp)
}

// review decides a dispute by its evidence, with the words that Stripe has for tests.
func (c *call) review(dp *dispute) {
	switch dp.Evidence["uncategorized_text"] {
	case "winning_evidence":
		c.decide(dp, true)
	case "losing_evidence":
		c.decide(dp, false)
	case "escalate_inquiry_evidence":
		c.escalate(dp)
	}
}

func (c *call) openDispute() (*dispute, error) {
	id := c.r.PathValue("id")
	dp, ok := find[*dispute](c.st, id)
	switch {
	case !ok:
		return nil, missing("dispute", id, "id")
	case dp.closed():
		return nil, invalidRequest("", "", "This dispute is already closed")
	}
	return dp, nil
}

func (c *call) updateDispute() (any, error) {
	dp, err := c.openDispute()
	if err != nil {
		return nil, err
	}
	dp.Metadata = c.p.setMetadata(dp.Metadata)
	evidence := c.p.below("evidence")
	for name, value := range evidence {
		dp.Evidence[name] = value
		dp.EvidenceDetails.HasEvidence = true
	}
	if len(evidence) > 0 && (c.p.flag("submit") || !c.p.has("submit")) {
		dp.EvidenceDetails.SubmissionCount++
		if dp.inquiry() {
			dp.Status = "warning_under_review"
		} else {
			dp.Status = "under_review"
		}
		c.later("review", dp.ID)
	}
	c.emit("charge.dispute.updated", dp)
	return dp, nil
}

func (c *call) closeDispute() (any, error) {
	dp, err := c.openDispute()
	if err == nil {
		c.decide(dp, false)
	}
	return dp, err
}
