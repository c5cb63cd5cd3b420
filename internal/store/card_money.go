package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// CardRefund is money of a payment that goes back.
type CardRefund struct {
	ID        string    `db:"refund_id,key"` // UUID: the idempotency key of one that we make
	OrderID   string    `db:"order_id"`
	Account   [16]byte  `db:"order_account"` // of the order
	Origin    string    `db:"origin"`        // seller, processor, or rejected: the money bought nothing
	State     string    `db:"state,set"`
	Cents     int64     `db:"cents"`
	Intent    string    `db:"intent_id"`          // the payment that it is of; an order may have a second one
	StripeID  string    `db:"stripe_id,null,set"` // "" until the processor has made it
	Reason    string    `db:"reason,set"`         // why it was made, or failed
	CreatedAt time.Time `db:"created_at"`
	UpdatedAt time.Time `db:"updated_at,set"`
}

var (
	cardRefunds = newRecord[*CardRefund]("card_refunds")
	// InsertCardRefund adds a refund. The error is [IsUnique] when there is one with its id, or with that of the processor.
	InsertCardRefund = cardRefunds.insert
	UpdateCardRefund = cardRefunds.update
	CardRefundByID   = by[string](cardRefunds, "refund_id = $1")
	CardRefundsOf    = listBy[string](cardRefunds, "order_id = $1 ORDER BY created_at, refund_id")
)

// CountCardRefundFee adds the fee of a payment, in cents, to those of the payments of which a seller began a refund on the day of a
// moment in UTC. It returns their sum, and locks the row of the seller.
func CountCardRefundFee(ctx context.Context, tx *Tx, seller toll.Address, at time.Time, cents int64) (sum int64, err error) {
	err = tx.QueryRow(ctx, `INSERT INTO card_refund_fees (seller, day, cents) VALUES ($1, $2, $3)
		ON CONFLICT (seller) DO UPDATE SET day = excluded.day,
			cents = excluded.cents + CASE WHEN card_refund_fees.day = excluded.day THEN card_refund_fees.cents ELSE 0 END
		RETURNING cents`, seller.Lower(), at.Unix()/toll.DaySecs, cents).Scan(&sum)
	return sum, err
}

// CardDispute is a payment that the holder of the card contests.
type CardDispute struct {
	ID        string    `db:"dispute_id"`
	OrderID   string    `db:"order_id"`
	Account   [16]byte  `db:"order_account"` // of the order
	State     string    `db:"state"`         // the word of the processor
	Cents     int64     `db:"cents"`
	Reason    string    `db:"reason"`
	Withdrawn bool      `db:"withdrawn"` // the money has left, and has not come back
	DueAt     time.Time `db:"due_at"`    // of an answer; zero: none is possible
	CreatedAt time.Time `db:"created_at"`
	UpdatedAt time.Time `db:"updated_at"`
}

var (
	cardDisputes = newRecord[*CardDispute]("card_disputes")
	// CardDisputesOf returns the disputes of an order, the oldest first.
	CardDisputesOf = listBy[string](cardDisputes, "order_id = $1 ORDER BY created_at, dispute_id")
	// PutCardDispute adds a dispute, or stores how it stands.
	PutCardDispute = cardDisputes.puts(`ON CONFLICT (dispute_id) DO UPDATE SET state = excluded.state, cents = excluded.cents,
		reason = excluded.reason, withdrawn = excluded.withdrawn, due_at = excluded.due_at, updated_at = excluded.updated_at`)
)

// CardMove is a change of the operator's balance at the processor.
type CardMove struct {
	ID       string    `db:"move_id"` // of the balance transaction
	OrderID  string    `db:"order_id"`
	Kind     string    `db:"kind"`  // charge, refund, refund_failure, dispute, reinstated, or rejected: of another payment than that of the order
	Cents    int64     `db:"cents"` // negative when money left
	Fee      int64     `db:"fee"`
	Currency string    `db:"currency"`
	At       time.Time `db:"at"`
}

var (
	cardMoves   = newRecord[*CardMove]("card_moves")
	CardMovesOf = listBy[string](cardMoves, "order_id = $1 ORDER BY at, move_id")
	// InsertCardMove adds a move. A repeat changes nothing.
	InsertCardMove = cardMoves.puts("ON CONFLICT (move_id) DO NOTHING")
)

// CardMoveSum adds up the moves of a kind that belong to the orders of a seller.
type CardMoveSum struct {
	Seller         toll.Address
	Currency, Kind string
	Moves          int64
	Cents, Fee     int64
}

// CardMoveSums adds up what moved in [from, until) for orders that were paid, by seller, currency and kind. Money that bought
// nothing is left out.
func CardMoveSums(ctx context.Context, q Querier, from, until time.Time) ([]CardMoveSum, error) {
	return All(ctx, q, func(scan func(dest ...any) error) (s CardMoveSum, err error) {
		var seller string
		if err = scan(&seller, &s.Currency, &s.Kind, &s.Moves, &s.Cents, &s.Fee); err == nil {
			s.Seller, err = toll.ParseAddress(seller)
		}
		return s, err
	}, `SELECT p.seller, m.currency, m.kind, COUNT(*), CAST(SUM(m.cents) AS BIGINT), CAST(SUM(m.fee) AS BIGINT)
		FROM card_moves m JOIN card_payments p ON p.order_id = m.order_id WHERE m.at >= $1 AND m.at < $2
		AND p.state = 'paid' AND m.kind <> 'rejected'
		GROUP BY p.seller, m.currency, m.kind ORDER BY p.seller, m.currency, m.kind`, Micros(from), Micros(until))
}

// CardEvent is an event of the processor. Of its object only the id counts.
type CardEvent struct {
	ID        string    `db:"event_id"`
	Type      string    `db:"type"`
	Object    string    `db:"object_id"`
	CreatedAt time.Time `db:"created_at"` // by the clock of the processor
}

var (
	cardEvents     = newRecord[*CardEvent]("card_events")
	DropCardEvents = dropOldest(cardEvents, "event_id", "created_at")
)

// TakeCardEvents stores the events that were not taken before, and for each of their objects the job that fetches it, due at now.
// It returns how many events are new.
func TakeCardEvents(ctx context.Context, tx *Tx, now time.Time, events ...*CardEvent) (taken int, err error) {
	// Transactions that take the same events lock in the same order.
	events = slices.SortedFunc(slices.Values(events), func(a, b *CardEvent) int { return strings.Compare(a.ID, b.ID) })
	var objects []string
	for _, e := range events {
		first, err := cardEvents.insertOr(ctx, tx, e, "ON CONFLICT (event_id) DO NOTHING")
		if err != nil {
			return 0, err
		}
		if first {
			taken++
			objects = append(objects, e.Object)
		}
	}
	return taken, SyncCardObjects(ctx, tx, now, objects...)
}

// SyncCardObjects puts the jobs that fetch these objects of the processor, due at now.
func SyncCardObjects(ctx context.Context, tx *Tx, now time.Time, ids ...string) error {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	for _, id := range ids {
		if err := PutJob(ctx, tx, Job{Kind: JobCardSync, Key: []byte(id), Due: now}); err != nil {
			return err
		}
	}
	return nil
}

// UnsettledCardObjects returns the ids of disputes that are not closed, and of refunds that may still change: those of which the
// processor has not said the last word, and those that were made since a moment.
func UnsettledCardObjects(ctx context.Context, q Querier, since time.Time) ([]string, error) {
	return values[string](ctx, q, `SELECT dispute_id FROM card_disputes WHERE state NOT IN ('won', 'lost', 'warning_closed', 'prevented')
		UNION SELECT stripe_id FROM card_refunds WHERE stripe_id IS NOT NULL AND (state = 'pending' OR created_at >= $1) ORDER BY 1`, Micros(since))
}

// CardOrphan is money at the processor that no order explains.
type CardOrphan struct {
	Object     string    `db:"object_id,key"` // a payment intent, refund or dispute
	OrderID    string    `db:"order_id"`      // what the object claims, "" for nothing
	Cents      int64     `db:"cents"`
	Currency   string    `db:"currency"`
	Reason     string    `db:"reason"`
	SeenAt     time.Time `db:"seen_at"`
	ResolvedAt time.Time `db:"resolved_at,set"` // zero: an operator has to look at it
	// What the metadata of the payment say of its order: "" and zero for nothing.
	Plan       toll.PlanID  `db:"plan_id,null"`
	Subscriber toll.Address `db:"subscriber,null"`
	Resolution string       `db:"resolution,null,set"` // "", or one of the words below
	Delegation string       `db:"delegation_id,null"`  // that the metadata name
	Counted    int64        `db:"counted_cents,set"`   // cents that Delegation counts as paid for it
	// What became of the money at ReadAt: cents that were refunded, and cents that disputes withdrew and did not return.
	Refunded int64     `db:"refunded_cents,set"`
	Disputed int64     `db:"disputed_cents,set"`
	ReadAt   time.Time `db:"read_at,set"`
}

// Left returns the cents of a payment that are still at the processor.
func (o *CardOrphan) Left() int64 { return max(o.Cents-o.Refunded-o.Disputed, 0) }

// What an operator did about money without an order.
const (
	OrphanGranted   = "granted"   // its order was recorded
	OrphanRefunding = "refunding" // the processor is asked to give it back; not resolved yet
	OrphanRefunded  = "refunded"
	OrphanSettled   = "settled" // by other means
)

var (
	cardOrphans = newRecord[*CardOrphan]("card_orphans")
	// CardOrphans returns the orphans that nobody has dealt with, the oldest first, at most limit.
	CardOrphans         = listBy[int64](cardOrphans, "resolved_at = 0 ORDER BY seen_at, object_id LIMIT $1")
	CardOrphanByID      = by[string](cardOrphans, "object_id = $1")
	CardOrphanForUpdate = locked[string](cardOrphans, "object_id = $1")
	UpdateCardOrphan    = cardOrphans.update
	// InsertCardOrphan adds an orphan, and reports whether it is a new one.
	InsertCardOrphan = cardOrphans.adds("ON CONFLICT (object_id) DO NOTHING")
)

// CardPayout is money that the operator paid to a seller by other means.
type CardPayout struct {
	ID       string       `db:"payout_id"` // UUID
	Seller   toll.Address `db:"seller"`
	Month    string       `db:"month"` // YYYY-MM in UTC
	Currency string       `db:"currency"`
	Cents    int64        `db:"cents"`
	Note     string       `db:"note"`
	PaidAt   time.Time    `db:"paid_at"`
}

var (
	cardPayouts      = newRecord[*CardPayout]("card_payouts")
	InsertCardPayout = cardPayouts.insert
	// CardPayouts returns the payouts for a month, by seller.
	CardPayouts = listBy[string](cardPayouts,
		"month = $1 ORDER BY seller, currency, paid_at, payout_id")
)
