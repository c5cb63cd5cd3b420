package card

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

// State is where a payment stands. A change of state is one transaction of the database.
//
//	created ─► calling ─┬─► page ────┬─► paid
//	              ▲     ├─► pending ─┤
//	              │     └────────────┼─► failed ──► paid      late, within the limits of the plan
//	              └──── ending ◄─────┴─► rejected             captured, but with other terms, or late without a place
type State string

const (
	Created  State = "created"  // nothing was sent for this attempt
	Calling  State = "calling"  // the call of this attempt is stored; whether Stripe has it is not known
	Page     State = "page"     // a session is open; a person may pay
	Pending  State = "pending"  // Stripe has the payment and has not decided it
	Ending   State = "ending"   // the attempt is being ended: its intent cancelled, or its session expired
	Paid     State = "paid"     // captured, with the terms of the order
	Failed   State = "failed"   // nothing was captured, and the order has failed
	Rejected State = "rejected" // captured, bought nothing, and is refunded
)

// status returns the state in the words of orders.
func (s State) status() toll.OrderStatus {
	switch s {
	case Paid:
		return toll.OrderConfirmed
	case Failed, Rejected:
		return toll.OrderFailed
	}
	return toll.OrderCreated
}

// open reports whether the payment is undecided.
func (s State) open() bool { return s != Paid && s != Failed && s != Rejected }

// details is the JSON of a card_payments row: what no query asks for. Documents are permanent, later releases read them.
type details struct {
	Session *rail.SessionInput `json:"session,omitempty"` // how a person pays; nil: a card is charged
	Plan    toll.PlanID        `json:"plan,omitempty"`
	Name    string             `json:"name,omitempty"`    // of the plan, as it was ordered
	Hosted  bool               `json:"hosted,omitempty"`  // the live session is a page of Stripe
	TriedAt time.Time          `json:"triedAt,omitzero"`  // when this attempt was prepared, by the clock of the machine
	PageEnd time.Time          `json:"pageEnd,omitzero"`  // when the live session ends, by the clock of the machine
	Missing time.Time          `json:"missing,omitzero"`  // since when Stripe does not list the attempt, by the clock of the machine
	Failing time.Time          `json:"failing,omitzero"`  // since when Stripe repeats that it failed and lists nothing, by the clock of the machine
	Unsent  bool               `json:"unsent,omitempty"`  // of Calling by a delegation: no request of this attempt can have been executed
	Lost    bool               `json:"lost,omitempty"`    // its record was lost, so events of its money were read without it
	Then    State              `json:"then,omitempty"`    // of Ending: Failed, or Created for another page
	Delay   *rail.Delay        `json:"delay,omitempty"`   // why it cannot go on now
	Failure *failure           `json:"failure,omitempty"` // of Failed, Rejected, and of Ending before Failed
}

// failure is why a payment failed, without a raw code of Stripe: those are in the log alone.
type failure struct {
	Code     toll.Code `json:"code"`
	Reason   string    `json:"reason"`
	Class    class     `json:"class,omitempty"`
	Declined bool      `json:"declined,omitempty"` // counts for the freeze of the delegation
	Unsure   bool      `json:"unsure,omitempty"`   // the attempt was given up: a payment of it that shows up buys nothing
}

// class is why a payment failed, without the words of the bank.
type class string

const (
	insufficientFunds class = rail.ClassFunds
	cardLost          class = "card_lost" // or stolen
	cardExpired       class = "card_expired"
	declined          class = "declined" // every other refusal of a bank
	pageExpired       class = rail.ClassPageExpired
)

// States of a refund.
const (
	refundCreated   = "created" // Stripe may not have it
	refundPending   = "pending" // Stripe has it; it counts from here on
	refundSucceeded = "succeeded"
	refundFailed    = "failed" // it counts no more
)

// States of an enrolment.
const (
	setupCreated = "created"
	setupOpen    = "open"
	setupDone    = "done"
	setupFailed  = "failed"
	setupExpired = "expired"
)

// Points at which tests stop the process: each is between two writes, or between a write and a call.
const (
	atCalling   = "card.calling"   // the call is stored, not sent
	atAnswered  = "card.answered"  // Stripe has answered, nothing is stored
	atDeciding  = "card.deciding"  // in the transaction that decides
	atDecided   = "card.decided"   // after it
	atKeeping   = "card.keeping"   // in the transaction that keeps what an order cannot take
	atEnding    = "card.ending"    // Ending is stored, nothing is cancelled
	atRefunding = "card.refunding" // the refund is stored, not sent
	atRefunded  = "card.refunded"  // Stripe has refunded, no credits are taken back
	atAdjusting = "card.adjusting" // in the transaction that stores a refund or a dispute
	atEvent     = "card.event"     // the event is stored, its object is not fetched
	atCursor    = "card.cursor"    // a page of events is stored, the cursor has not moved
)
