package toll

import (
	"math/big"
	"time"
)

// Sum is a sum of amounts of credits or of token base units, 0 or more, which may be greater than each of them can be. The zero value
// is 0. On the wire it is a decimal string.
type Sum struct{ n *big.Int }

// SumOf returns a sum. It keeps n; nil is 0.
func SumOf(n *big.Int) Sum { return Sum{n} }

// ParseSum returns the sum in s, of at most 1,000 digits, or an error with [CodeBadNumber].
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

// UsageTimes are the upper bounds of the buckets of [Usage.HoldToSettle] but for the last one, which has none. They are permanent:
// the numbers of settlements are stored by bucket.
var UsageTimes = [11]time.Duration{
	10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second,
	10 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute,
}

// Usage is what was settled in one hour or day, or of one plan, agent or subscriber. Of these it names the one that it is of.
type Usage struct {
	Start             *Time    `json:"start,omitzero"` // of the hour or day, UTC
	PlanID            PlanID   `json:"planId,omitzero"`
	AgentID           AgentID  `json:"agentId,omitzero"` // "" by agent: settlements that name none
	SubscriberAddress *Address `json:"subscriberAddress,omitzero"`
	Settled           int64    `json:"settled"` // settlements
	Credits           Sum      `json:"credits"` // burned
	// HoldToSettle counts the settlements that had a hold by the time from hold to settlement: element i those that took less than
	// UsageTimes[i] and not less than the one before. It is empty where it is not counted: as buyer, and by subscriber.
	HoldToSettle  []int64 `json:"holdToSettle,omitempty"`
	LastSettledAt *Time   `json:"lastSettledAt,omitzero"` // as buyer, and by subscriber
}

// Refusals is how often the service refused verify or settle in one hour or day, or of one plan or agent, or for one reason. Of these
// it names the one that it is of.
type Refusals struct {
	Start   *Time   `json:"start,omitzero"` // of the hour or day, UTC
	PlanID  PlanID  `json:"planId,omitzero"`
	AgentID AgentID `json:"agentId,omitzero"` // "" by agent: requests that name none
	Reason  string  `json:"reason,omitzero"`  // as the answer said it, such as "insufficient_funds"
	Refused int64   `json:"refused"`
}

// Revenue is what was paid in one currency for orders that were made in one hour or day, or of one plan.
type Revenue struct {
	Start    *Time  `json:"start,omitzero"` // of the hour or day, UTC
	PlanID   PlanID `json:"planId,omitzero"`
	Currency string `json:"currency"`
	Orders   int64  `json:"orders"` // that were paid
	Amount   Sum    `json:"amount"` // in base units of the currency
	// ReturnedOrders are those of Orders of which money went back, and Returned how much: refunds, payments with a dispute that is
	// open or lost, and payments that the chain undid.
	ReturnedOrders int64 `json:"returnedOrders"`
	Returned       Sum   `json:"returned"`
}
