package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Kinds of jobs of the card rail. The job that carries an open order on is [JobPay] and [RailCard].
const (
	// JobCardSync fetches an object of the processor, whose id is the key, and acts on its state.
	JobCardSync = "card.sync"
	// JobCardDecide has an order take what became of its payment, which it could not take before.
	JobCardDecide = "card.decide"
	// JobCardRefund sends a refund, whose refund_id is the key.
	JobCardRefund = "card.refund"
	// JobCardRelease ends the wait for a payment of an order that was given up.
	JobCardRelease = "card.release"
	// JobCardDetach detaches a removed card. The key is the id of its payment method.
	JobCardDetach = "card.detach"
)

type CardPayment struct {
	OrderID    string       `db:"order_id,key"`
	Account    [16]byte     `db:"order_account"` // of the order
	Seller     toll.Address `db:"seller"`        // owner of the plan
	Payer      toll.Address `db:"payer"`
	State      string       `db:"state,set"`
	Version    int64        `db:"version,version"` // counts the writes; [UpdateCardPayment] is conditional on it
	Attempt    int64        `db:"attempt,set"`     // from 1; part of the idempotency key
	Cents      int64        `db:"cents"`
	Currency   string       `db:"currency"`             // in lower case
	Customer   string       `db:"customer_id,null,set"` // "" when the page knows nobody
	Method     string       `db:"method_id,null"`       // record of the card that is charged; "" when a person pays
	Delegation string       `db:"delegation_id,null"`   // "" when a person pays
	Session    string       `db:"session_id,null,set"`  // of the page that is live, or was last
	Intent     string       `db:"intent_id,null,set"`
	Charge     string       `db:"charge_id,null,set"`
	Undecided  bool         `db:"undecided,set"` // its order has yet to take what became of it
	CreatedAt  time.Time    `db:"created_at"`
	UpdatedAt  time.Time    `db:"updated_at,set"`
	PaidAt     time.Time    `db:"paid_at,set"`   // by the clock of the processor; zero: not paid
	Data       []byte       `db:"data,text,set"` // JSON
}

var (
	cardPayments        = newRecord[*CardPayment]("card_payments")
	CardPaymentByOrder  = by[string](cardPayments, "order_id = $1")
	CardPaymentByIntent = by[string](cardPayments, "intent_id = $1")
	// InsertCardPayment adds the payment of an order. A repeat changes nothing.
	InsertCardPayment = cardPayments.puts("ON CONFLICT (order_id) DO NOTHING")
	// UpdateCardPayment stores a payment whose Version is still the stored one, and counts that up there, not in the payment.
	// [ErrNotFound] when it is another one: read the payment again.
	UpdateCardPayment = cardPayments.update
)

// CardPaymentsUndecided counts the payments that their orders could not take yet, by the jobs that try again.
func CardPaymentsUndecided(ctx context.Context, q Querier) (int64, error) {
	return value[int64](ctx, q, "SELECT COUNT(*) FROM jobs WHERE kind = $1", JobCardDecide)
}

// CardCall is a request to the processor that changes something there.
type CardCall struct {
	Key        string    `db:"call_key,key"` // idempotency key
	Subject    string    `db:"subject"`      // what it is for: an order, a refund, a setup, a customer row
	Path       string    `db:"path"`         // below /v1/
	Params     string    `db:"params,set"`   // form-encoded, byte for byte; "" once Status is known
	Status     int64     `db:"status,set"`   // of the HTTP answer; 0: not known
	Object     string    `db:"object_id,set"`
	CreatedAt  time.Time `db:"created_at"`
	AnsweredAt time.Time `db:"answered_at,set"` // zero: not known
}

var (
	cardCalls      = newRecord[*CardCall]("card_calls")
	AnswerCardCall = cardCalls.update
	CardCallByKey  = by[string](cardCalls, "call_key = $1")
	DropCardCalls  = dropOldest(cardCalls, "call_key", "answered_at")
)

// EnsureCardCall stores a call before it is sent, and returns the one that is there under its key: a repeat sends those bytes.
func EnsureCardCall(ctx context.Context, tx *Tx, c *CardCall) (*CardCall, error) {
	if _, err := cardCalls.insertOr(ctx, tx, c, "ON CONFLICT (call_key) DO NOTHING"); err != nil {
		return nil, err
	}
	return CardCallByKey(ctx, tx, c.Key)
}

// CardUsed reports whether a record is about an object at the card processor.
func CardUsed(ctx context.Context, q Querier) (bool, error) {
	n, err := value[int64](ctx, q, `SELECT CASE WHEN EXISTS (SELECT 1 FROM card_customers) OR EXISTS (SELECT 1 FROM card_payments)
		THEN 1 ELSE 0 END`)
	return n == 1, err
}

// CardChargesFailed counts the charges by delegations of a payer that were placed since a moment and failed, at most limit.
func CardChargesFailed(ctx context.Context, q Querier, payer toll.Address, since time.Time, limit int64) (int64, error) {
	return value[int64](ctx, q, `SELECT COUNT(*) FROM (SELECT 1 FROM card_payments WHERE payer = $1 AND created_at >= $2 AND state = 'failed'
		AND delegation_id IS NOT NULL LIMIT $3) f`, payer.Lower(), Micros(since), limit)
}
