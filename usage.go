package toll

import (
	"math/big"
	"time"
)

// Sum is a sum of credits or of token base units, 0 or more, which may exceed the range of a single amount. The zero value
// is 0. On the wire it is a decimal string.
type Sum struct{ n *big.Int }

// SumOf returns n as a sum, without a copy; nil is 0.
func SumOf(n *big.Int) Sum { return Sum{n} }

// ParseSum returns the sum in s, at most 1,000 digits, or an error with [CodeBadNumber].
func ParseSum(s string) (Sum, error) {
	if len(s) > 1000 || !decimal(s) {
		return Sum{}, badNumber("A sum", s)
	}
	n, _ := new(big.Int).SetString(s, 10)
	return Sum{n}, nil
}

// Int returns a copy as a big integer.
func (s Sum) Int() *big.Int {
	if s.n == nil {
		return new(big.Int)
	}
	return new(big.Int).Set(s.n)
}

// Add returns s + n.
func (s Sum) Add(n *big.Int) Sum { return Sum{new(big.Int).Add(s.Int(), n)} }

// String returns the decimal text.
func (s Sum) String() string {
	if s.n == nil {
		return "0"
	}
	return s.n.String()
}

// MarshalJSON writes a decimal string.
func (s Sum) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

// UnmarshalJSON takes a decimal string or a JSON integer.
func (s *Sum) UnmarshalJSON(b []byte) error { return readNumber(b, ParseSum, s) }

// UsageTimes are the upper bounds of the buckets of [Usage.HoldToSettle]; the last bucket has no bound. They must never
// change: settlement counts are stored by bucket.
var UsageTimes = [11]time.Duration{
	10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute,
}

// MaxLabelBytes bounds each member of [UsageLabels].
const MaxLabelBytes = 64

// UsageLabels name the upstream, the route, and the model of a settled request, to group [Usage]. Each is at most [MaxLabelBytes] of
// UTF-8 without control characters; empty if unknown.
type UsageLabels struct {
	Upstream string `json:"upstream,omitzero" maxLength:"64" doc:"Server behind a gate. Only the seller sees it."`
	Route    string `json:"route,omitzero" maxLength:"64" doc:"Pattern of the request, such as POST /v1/chat/completions."`
	Model    string `json:"model,omitzero" maxLength:"64" doc:"Model that the request named."`
}

// Usage counts settlements in one hour or day, or for one plan, agent, subscriber, or label. Only the member it is grouped by is set.
type Usage struct {
	Start             *Time    `json:"start,omitzero"` // of the hour or day, UTC
	PlanID            PlanID   `json:"planId,omitzero"`
	AgentID           AgentID  `json:"agentId,omitzero"` // by agent, "" groups settlements without an agent
	SubscriberAddress *Address `json:"subscriberAddress,omitzero"`
	Upstream          string   `json:"upstream,omitzero"` // by label, empty groups labeled settlements without it
	Route             string   `json:"route,omitzero"`
	Model             string   `json:"model,omitzero"`
	Settled           int64    `json:"settled"` // settlements
	Credits           Sum      `json:"credits"` // burned
	// HoldToSettle counts settlements with a hold by the time from hold to settlement: element i counts times below
	// UsageTimes[i] and at or above the previous bound. It is empty when not counted: as buyer, by subscriber, and by label.
	HoldToSettle  []int64 `json:"holdToSettle,omitempty" doc:"Settlements by the time since the hold, in 12 buckets: below 10 ms, 30 ms, 100 ms, 300 ms, 1 s, 3 s, 10 s, 30 s, 1 min, 5 min, and 30 min, and longer. Absent as buyer, by subscriber, and by label."`
	LastSettledAt *Time   `json:"lastSettledAt,omitzero"` // only as buyer, and by subscriber
}

// Refusals counts how often the service refused verify or settle in one hour or day, or for one plan, agent, or reason.
// Only the member it is grouped by is set.
type Refusals struct {
	Start   *Time   `json:"start,omitzero"` // of the hour or day, UTC
	PlanID  PlanID  `json:"planId,omitzero"`
	AgentID AgentID `json:"agentId,omitzero"` // by agent, "" groups requests without an agent
	Reason  string  `json:"reason,omitzero"`  // reason in the response, such as "insufficient_funds"
	Refused int64   `json:"refused"`
}

// Revenue is the amount paid in one currency for the orders of one hour or day, or of one plan.
type Revenue struct {
	Start    *Time  `json:"start,omitzero"` // of the hour or day, UTC
	PlanID   PlanID `json:"planId,omitzero"`
	Currency string `json:"currency"`
	Orders   int64  `json:"orders"` // paid orders
	Amount   Sum    `json:"amount"` // in base units of the currency
	// ReturnedOrders counts the orders with returned money, and Returned is its sum: refunds, payments with an open or lost
	// dispute, and payments that the chain reversed.
	ReturnedOrders int64 `json:"returnedOrders"`
	Returned       Sum   `json:"returned"`
}
