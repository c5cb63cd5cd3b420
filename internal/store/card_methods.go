package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// CardCustomer is the customer of a principal at the card processor.
type CardCustomer struct {
	Owner     toll.Address `db:"owner,key"`
	RowID     string       `db:"row_id"`               // UUID: the idempotency key with which it is made
	ID        string       `db:"customer_id,null,set"` // "" until it is made
	CreatedAt time.Time    `db:"created_at"`
}

var (
	cardCustomers   = newRecord[*CardCustomer]("card_customers")
	SetCardCustomer = cardCustomers.update
	CardCustomerOf  = by[toll.Address](cardCustomers, "owner = $1")
)

// EnsureCardCustomer adds the customer of a principal unless there is one, and returns the one that is there.
func EnsureCardCustomer(ctx context.Context, tx *Tx, c *CardCustomer) (*CardCustomer, error) {
	if _, err := cardCustomers.insertOr(ctx, tx, c, "ON CONFLICT (owner) DO NOTHING"); err != nil {
		return nil, err
	}
	return CardCustomerOf(ctx, tx, c.Owner)
}

// ForgetCardCustomer empties the customer of a principal, with a new RowID to make another one. It does
// nothing when the stored customer is not the one with this id any more.
func ForgetCardCustomer(ctx context.Context, tx *Tx, owner toll.Address, id, rowID string, now time.Time) error {
	return done(tx.Exec(ctx, `UPDATE card_customers SET customer_id = NULL, row_id = $3, created_at = $4
		WHERE owner = $1 AND customer_id = $2`, owner.Lower(), id, rowID, Micros(now)))
}

// CardSetup is an enrolment of a card, from the first request on.
type CardSetup struct {
	ID        string       `db:"setup_id,key"` // UUID: the idempotency key
	Owner     toll.Address `db:"owner"`
	Source    string       `db:"source"` // hash of the address that asked
	State     string       `db:"state,set"`
	Session   string       `db:"session_id,null,set"`
	Intent    string       `db:"intent_id,null,set"`
	Method    string       `db:"method_id,null,set"` // record of the card that was enrolled, "" before
	Failures  int64        `db:"failures,set"`       // cards that were declined in it
	CreatedAt time.Time    `db:"created_at"`
	ExpiresAt time.Time    `db:"expires_at,set"`
	MadeBy    toll.UUID    `db:"made_by,null"` // the person who enrols the card; zero: no person is known
}

var (
	cardSetups         = newRecord[*CardSetup]("card_setups")
	InsertCardSetup    = cardSetups.insert
	UpdateCardSetup    = cardSetups.update
	CardSetupByID      = by[string](cardSetups, "setup_id = $1")
	CardSetupBySession = by[string](cardSetups, "session_id = $1")
	CardSetupByIntent  = by[string](cardSetups, "intent_id = $1")
	CardSetupForUpdate = locked[string](cardSetups, "setup_id = $1")
	DropCardSetups     = dropOldest(cardSetups, "setup_id", "created_at")
	// DropCardSetup removes an enrolment that was refused before anything was asked.
	DropCardSetup = runs[string](found, "DELETE FROM card_setups WHERE setup_id = $1")
)

// CardSetupsOpen returns the enrolments in a state that an owner or a source have begun since a moment, the oldest first, at most limit.
func CardSetupsOpen(ctx context.Context, q Querier, state string, owner toll.Address, source string, since time.Time, limit int64) ([]*CardSetup, error) {
	return cardSetups.all(ctx, q, `WHERE state = $1 AND setup_id IN (
		SELECT setup_id FROM card_setups WHERE owner = $2 AND created_at >= $4 UNION
		SELECT setup_id FROM card_setups WHERE source = $3 AND created_at >= $4) ORDER BY created_at, setup_id LIMIT $5`,
		state, owner.Lower(), source, Micros(since), limit)
}

// CardTries returns how many enrolments, and declined cards in them, a principal and a source have made since a moment.
func CardTries(ctx context.Context, q Querier, owner toll.Address, source string, since time.Time) (byOwner, bySource int64, err error) {
	const count = "SELECT CAST(COALESCE(SUM(1 + failures), 0) AS BIGINT) FROM card_setups WHERE "
	if err = q.QueryRow(ctx, count+"owner = $1 AND created_at >= $2", owner.Lower(), Micros(since)).Scan(&byOwner); err != nil {
		return 0, 0, err
	}
	err = q.QueryRow(ctx, count+"source = $1 AND created_at >= $2", source, Micros(since)).Scan(&bySource)
	return byOwner, bySource, err
}

type CardMethod struct {
	Owner       toll.Address `db:"owner,key"`
	ID          string       `db:"method_id,key"` // of its [PaymentMethod]; it never changes
	StripeID    string       `db:"stripe_id,set"` // the payment method that is charged now
	Customer    string       `db:"customer_id,set"`
	Fingerprint string       `db:"fingerprint,null,set"` // "" once the card was removed
	CheckedAt   time.Time    `db:"checked_at,set"`       // when it was fetched last
}

var (
	cardMethods          = newRecord[*CardMethod]("card_methods")
	CardMethodByID       = by2[toll.Address, string](cardMethods, "owner = $1 AND method_id = $2")
	CardMethodByStripeID = by[string](cardMethods, "stripe_id = $1")
	// CardMethodOf returns what is behind the record with this id, whoever its owner is, or
	// [ErrNotFound]. Ids of records are unique at the processor.
	CardMethodOf = by[string](cardMethods, "method_id = $1")
	// CardMethodLike returns the card of an owner with this fingerprint that was not removed, or [ErrNotFound].
	CardMethodLike = by2[toll.Address, string](cardMethods, "owner = $1 AND fingerprint = $2")
	// PutCardMethod adds what is behind an enrolled card, or replaces it. The error is [IsUnique] when another card of the owner has
	// the fingerprint.
	PutCardMethod = cardMethods.puts(`ON CONFLICT (owner, method_id) DO UPDATE SET stripe_id = excluded.stripe_id,
		customer_id = excluded.customer_id, fingerprint = excluded.fingerprint, checked_at = excluded.checked_at`)
)

// RefreshPaymentMethod stores what the processor says of a card: brand, digits and date. ExpiredAt is zero for one that works.
func RefreshPaymentMethod(ctx context.Context, tx *Tx, m *PaymentMethod) error {
	return found(tx.Exec(ctx, `UPDATE payment_methods SET brand = $3, last4 = $4, exp_month = $5, exp_year = $6, expired_at = $7
		WHERE owner = $1 AND id = $2`, m.Owner.Lower(), m.ID, m.Brand, m.Last4, m.ExpMonth, m.ExpYear, Micros(m.ExpiredAt)))
}
