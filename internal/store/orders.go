package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Order is the record of a purchase.
type Order struct {
	ID            string   // UUID
	Account       [16]byte // ledger account of the plan and the subscriber
	Plan          toll.PlanID
	Subscriber    toll.Address
	Status        toll.OrderStatus
	TxHash        string // "" while none exists
	Credits       toll.Credits
	Amount        toll.Units
	Currency      string
	FailureReason string
	CreatedAt     time.Time
	UpdatedAt     time.Time

	Open          bool       // not decided yet
	OpenKey       string     // of the open orders of an account each has another; "" once it is finished
	Rail          string     // what pays it; "" when nothing is paid
	DelegationID  string     // "" when none pays
	Cents         int64      // what it takes of the delegation
	Permission    *toll.Hash // the permission on which it counts
	RequestID     string     // the request for which it was made, "" for none
	Session       string     // JSON of the page on which a person pays, "" for none
	FailureCode   toll.Code  // of a failure; of an open order, why its rail could not be used
	FailureParams string     // JSON, or ""
	TryAt         time.Time  // when it is to be looked at while it is open
	Tries         int64

	Reading int64 // how often the chain had been read for the delegation when the order was made
	// Of an order whose credits were taken back: what came back, what had been used up, and what open holds keep for now.
	Reversed  bool
	TakenBack toll.Credits
	Loss      toll.Credits
	HeldBack  toll.Credits
}

const orderColumns = `order_id, account_id, plan_id, subscriber, status, tx_hash, credits, amount, currency, failure_reason,
	created_at, updated_at, open_key, rail, delegation_id, cents, permission_hash, request_id, session, failure_code, failure_params,
	try_at, tries, reading, reversed, taken_back, loss, held_back`

// openKey keeps an empty key apart from none.
func (o *Order) openKey() *string {
	if !o.Open {
		return nil
	}
	key := "k" + o.OpenKey
	return &key
}

// InsertOrder adds an order. The error is [IsUnique] when the account has an open order of this key.
func InsertOrder(ctx context.Context, tx *Tx, o *Order) error {
	var permission []byte
	if o.Permission != nil {
		permission = o.Permission[:]
	}
	_, err := tx.Exec(ctx, "INSERT INTO orders ("+orderColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
		$15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28)`,
		o.ID, o.Account[:], string(o.Plan), o.Subscriber.Lower(), string(o.Status), o.TxHash, int64(o.Credits), o.Amount.String(),
		o.Currency, o.FailureReason, Micros(o.CreatedAt), Micros(o.UpdatedAt), o.openKey(), optional(o.Rail), optional(o.DelegationID), o.Cents,
		permission, optional(o.RequestID), optional(o.Session), optional(string(o.FailureCode)), optional(o.FailureParams), Micros(o.TryAt), o.Tries,
		o.Reading, o.reversed(), int64(o.TakenBack), int64(o.Loss), int64(o.HeldBack))
	return err
}

func (o *Order) reversed() int64 {
	if o.Reversed {
		return 1
	}
	return 0
}

// UpdateOrder stores the status, the transaction, the credits, what is known of a failure, the page, whether it is open, when
// it is looked at again, what became of credits that were taken back, and the time of the update. [ErrNotFound] when the account
// has no such order.
func UpdateOrder(ctx context.Context, tx *Tx, o *Order) error {
	n, err := tx.Exec(ctx, `UPDATE orders SET status = $3, tx_hash = $4, credits = $5, failure_reason = $6, updated_at = $7, open_key = $8,
		session = $9, failure_code = $10, failure_params = $11, try_at = $12, tries = $13, reversed = $14, taken_back = $15, loss = $16,
		held_back = $17
		WHERE account_id = $1 AND order_id = $2`,
		o.Account[:], o.ID, string(o.Status), o.TxHash, int64(o.Credits), o.FailureReason, Micros(o.UpdatedAt), o.openKey(),
		optional(o.Session), optional(string(o.FailureCode)), optional(o.FailureParams), Micros(o.TryAt), o.Tries,
		o.reversed(), int64(o.TakenBack), int64(o.Loss), int64(o.HeldBack))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// ClaimOrder moves the time at which an open order is looked at again, counts the try, and forgets why the last one came to
// nothing. It reports whether the order was
// still to be looked at when it was read: of several processes one gets it.
func ClaimOrder(ctx context.Context, tx *Tx, o *Order, until time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE orders SET try_at = $3, tries = tries + 1, failure_code = NULL
		WHERE account_id = $1 AND order_id = $2 AND open_key IS NOT NULL AND try_at = $4`,
		o.Account[:], o.ID, Micros(until), Micros(o.TryAt))
	return n == 1, err
}

// OrderOfAccount returns an order of an account, or [ErrNotFound].
func OrderOfAccount(ctx context.Context, q Querier, account [16]byte, id string) (*Order, error) {
	return scanOrder(q.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE account_id = $1 AND order_id = $2", account[:], id).Scan)
}

// OrderForUpdate is [OrderOfAccount] for an order that the transaction is going to change: nobody else changes it meanwhile.
func OrderForUpdate(ctx context.Context, tx *Tx, account [16]byte, id string) (*Order, error) {
	return scanOrder(tx.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE account_id = $1 AND order_id = $2"+tx.ForUpdate(),
		account[:], id).Scan)
}

// OpenOrder returns the open order of an account with this key, or [ErrNotFound].
func OpenOrder(ctx context.Context, q Querier, account [16]byte, key string) (*Order, error) {
	return scanOrder(q.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE account_id = $1 AND open_key = $2", account[:], "k"+key).Scan)
}

// OrdersOfRequest returns the orders that were made for a request, the oldest first.
func OrdersOfRequest(ctx context.Context, q Querier, account [16]byte, requestID string) ([]*Order, error) {
	rows, err := q.Query(ctx, "SELECT "+orderColumns+" FROM orders WHERE account_id = $1 AND request_id = $2 ORDER BY created_at, order_id",
		account[:], requestID)
	return scanOrders(rows, err)
}

// DueOrders returns open orders of a rail that are to be looked at, at most limit, the longest waiting first. It asks every part
// of a distributed database.
func DueOrders(ctx context.Context, q Querier, rail string, now time.Time, limit int) ([]*Order, error) {
	rows, err := q.Query(ctx, "SELECT "+orderColumns+" FROM orders WHERE open_key IS NOT NULL AND rail = $1 AND try_at <= $2 ORDER BY try_at LIMIT $3",
		rail, Micros(now), int64(limit))
	return scanOrders(rows, err)
}

// OrdersHeldBack returns orders whose credits were taken back but for what open holds keep, at most limit, the one that was looked
// at longest ago first. It asks every part of a distributed database.
func OrdersHeldBack(ctx context.Context, q Querier, limit int) ([]*Order, error) {
	rows, err := q.Query(ctx, "SELECT "+orderColumns+" FROM orders WHERE held_back > 0 ORDER BY updated_at LIMIT $1", int64(limit))
	return scanOrders(rows, err)
}

// OrderByID returns an order of whatever account, or [ErrNotFound]. It asks every part of a distributed database.
func OrderByID(ctx context.Context, q Querier, id string) (*Order, error) {
	return scanOrder(q.QueryRow(ctx, "SELECT "+orderColumns+" FROM orders WHERE order_id = $1", id).Scan)
}

// given returns what a column holds, the zero value for NULL.
func given[T any](v *T) (t T) {
	if v != nil {
		t = *v
	}
	return t
}

func scanOrders(rows *Rows, err error) ([]*Order, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*Order
	for rows.Next() {
		o, err := scanOrder(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, rows.Err()
}

func scanOrder(scan func(dest ...any) error) (*Order, error) {
	var o Order
	var account, permission []byte
	var plan, subscriber, status, amount string
	var openKey, rail, delegation, request, session, code, params *string
	var credits, created, updated int64
	var cents, tryAt, tries, reading, reversed, taken, loss, heldBack *int64
	err := scan(&o.ID, &account, &plan, &subscriber, &status, &o.TxHash, &credits, &amount, &o.Currency, &o.FailureReason, &created, &updated,
		&openKey, &rail, &delegation, &cents, &permission, &request, &session, &code, &params, &tryAt, &tries,
		&reading, &reversed, &taken, &loss, &heldBack)
	if err != nil {
		return nil, err
	}
	copy(o.Account[:], account)
	o.Plan, o.Status, o.Credits = toll.PlanID(plan), toll.OrderStatus(status), toll.Credits(credits)
	o.CreatedAt, o.UpdatedAt, o.TryAt = FromMicros(created), FromMicros(updated), FromMicros(given(tryAt))
	o.Rail, o.DelegationID, o.RequestID, o.Session, o.FailureParams = given(rail), given(delegation), given(request), given(session), given(params)
	o.FailureCode, o.Cents, o.Tries = toll.Code(given(code)), given(cents), given(tries)
	o.Reading, o.Reversed = given(reading), given(reversed) == 1
	o.TakenBack, o.Loss, o.HeldBack = toll.Credits(given(taken)), toll.Credits(given(loss)), toll.Credits(given(heldBack))
	if openKey != nil {
		o.Open, o.OpenKey = true, (*openKey)[1:]
	}
	if len(permission) == len(toll.Hash{}) {
		o.Permission = (*toll.Hash)(permission)
	}
	if o.Subscriber, err = toll.ParseAddress(subscriber); err != nil {
		return nil, err
	}
	o.Amount, err = toll.ParseUnits(amount)
	return &o, err
}
