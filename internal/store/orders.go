package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// Order is the record of a purchase.
type Order struct {
	ID            string           `db:"order_id,key"`   // UUID
	Account       [16]byte         `db:"account_id,key"` // ledger account of the plan and the subscriber
	Plan          toll.PlanID      `db:"plan_id"`
	Subscriber    toll.Address     `db:"subscriber"`
	Seller        toll.Address     `db:"seller,null"` // owner of the plan; zero only in the zero value
	Status        toll.OrderStatus `db:"status,set"`
	TxHash        string           `db:"tx_hash,set"` // "" while none exists
	Credits       toll.Credits     `db:"credits,set"`
	Amount        toll.Units       `db:"amount"`
	Currency      string           `db:"currency"`
	FailureReason string           `db:"failure_reason,set"`
	CreatedAt     time.Time        `db:"created_at"`
	UpdatedAt     time.Time        `db:"updated_at,set"`

	Open    bool   // not decided yet
	OpenKey string // of the open orders of an account each has another; "" once it is finished
	// Slot is how both are stored: NULL of a finished order, else a letter before OpenKey. Only this package uses it.
	Slot string `db:"open_key,null,set"`

	Rail          string     `db:"rail,null"`               // what pays it; "" when nothing is paid
	DelegationID  string     `db:"delegation_id,null"`      // "" when none pays
	Cents         int64      `db:"cents"`                   // what it takes of DelegationID, or what it counts of the month of OrderedBy; 0 without both
	OrderedBy     toll.UUID  `db:"ordered_by,null"`         // who had the wallet of the workspace pay; zero: nobody, or a delegation pays
	Permission    *toll.Hash `db:"permission_hash"`         // the permission on which it counts
	RequestID     string     `db:"request_id,null"`         // the request for which it was made, "" for none
	Session       string     `db:"session,null,set"`        // JSON of the page on which a person pays, "" for none
	FailureCode   toll.Code  `db:"failure_code,null,set"`   // of a failure
	FailureParams string     `db:"failure_params,null,set"` // JSON, or ""

	Reading int64 `db:"reading"` // how often the chain had been read for the delegation when the order was made
	// Of an order whose credits were taken back: what came back, what had been used up, and what open holds keep for now.
	Reversed  bool         `db:"reversed,number,set"`
	TakenBack toll.Credits `db:"taken_back,set"`
	Loss      toll.Credits `db:"loss,set"`
	HeldBack  toll.Credits `db:"held_back,set"`
	// HeldCents is what DelegationID still reserves for a failed order whose payment may show up.
	HeldCents int64 `db:"held_cents,set"`

	// Of a confirmed order of the card rail: what was given back since, which the order survives.
	RefundedCents   int64        `db:"refunded_cents,set"`
	RefundedCredits toll.Credits `db:"refunded_credits,set"`
	Dispute         string       `db:"dispute,null,set"` // "", or one of the words below
	// DisputedCents is what an open or lost dispute is about; 0 with such a dispute: the whole payment.
	DisputedCents int64  `db:"disputed_cents,set"`
	Replaces      string `db:"replaces,null"` // the failed order in whose place a person pays this one; "" for none

	Withdrawn toll.Credits `db:"withdrawn"` // of a free order: what its seller took back by hand, see [CountWithdrawn]
}

// What [Order.Dispute] says of a payment that was contested.
const (
	DisputeOpen = "open" // the money is withdrawn, and nobody has decided
	DisputeWon  = "won"
	DisputeLost = "lost"
)

// CentsBack returns how many cents of a paid order went back, by refunds and by disputes that are open or lost. price is what the
// order cost, in cents, and the most that it returns.
func (o *Order) CentsBack(price int64) int64 {
	back := o.RefundedCents
	if o.Dispute == DisputeOpen || o.Dispute == DisputeLost {
		if o.DisputedCents == 0 {
			return price
		}
		back += o.DisputedCents
	}
	return min(back, price)
}

var (
	orders         = newRecord[*Order]("orders")
	InsertOrder    = orders.insert // [IsUnique] when the account has an open order of this key
	UpdateOrder    = orders.update
	OrderOfAccount = by2[[16]byte, string](orders, "account_id = $1 AND order_id = $2")
	OrderForUpdate = locked2[[16]byte, string](orders, "account_id = $1 AND order_id = $2")
	// OrdersOfRequest returns the orders that were made for a request, the oldest first.
	OrdersOfRequest = listBy2[[16]byte, string](orders,
		"account_id = $1 AND request_id = $2 ORDER BY created_at, order_id")
	// OrderByID returns an order of whatever account, or [ErrNotFound]. It asks every part of a distributed database.
	OrderByID = by[string](orders, "order_id = $1")
)

func (o *Order) storing() {
	if o.Slot = ""; o.Open {
		o.Slot = "k" + o.OpenKey
	}
}

func (o *Order) loaded() {
	o.OpenKey, o.Open = strings.CutPrefix(o.Slot, "k")
	o.Slot = ""
}

// CountWithdrawn adds credits that a seller took back by hand to orders of an account, by their ids. Other ids are passed over.
func CountWithdrawn(ctx context.Context, tx *Tx, account [16]byte, of map[string]toll.Credits) error {
	stmts := make([]Stmt, 0, len(of))
	for _, id := range slices.Sorted(maps.Keys(of)) {
		stmts = append(stmts, Stmt{
			SQL:  "UPDATE orders SET withdrawn = COALESCE(withdrawn, 0) + $3 WHERE account_id = $1 AND order_id = $2",
			Args: []any{account[:], id, int64(of[id])},
		})
	}
	return tx.Run(ctx, stmts...)
}

// OpenOrder returns the open order of an account with this key, or [ErrNotFound].
func OpenOrder(ctx context.Context, q Querier, account [16]byte, key string) (*Order, error) {
	return orders.one(ctx, q, "WHERE account_id = $1 AND open_key = $2", account[:], "k"+key)
}

// unpaidFor is how long after its order a page can be open, at most.
const unpaidFor = 3 * time.Hour

// UnpaidPages returns the open orders of a plan that persons pay on a page and that were made before a moment, the oldest first, at
// most limit.
func UnpaidPages(ctx context.Context, q Querier, plan toll.PlanID, before time.Time, limit int64) ([]*Order, error) {
	return orders.all(ctx, q, `WHERE plan_id = $1 AND created_at > $2 AND created_at <= $3 AND open_key IS NOT NULL AND session IS NOT NULL
		ORDER BY created_at, order_id LIMIT $4`, string(plan), Micros(before.Add(-unpaidFor)), Micros(before), limit)
}

// OrderFilter selects orders by one of Seller, Subscriber, Plan and Account, the last that is not zero.
type OrderFilter struct {
	Seller, Subscriber toll.Address
	Plan               toll.PlanID
	Account            [16]byte
	Since, Until       time.Time // of creation, from Since to before Until; zero: no bound
}

// PendingOrders counts the orders of a seller or a subscriber that are not decided, or whose payment is disputed. It reads all their
// orders: no transaction that writes should do that.
func PendingOrders(ctx context.Context, q Querier, of toll.Address) (int64, error) {
	return value[int64](ctx, q, "SELECT COUNT(*) FROM orders WHERE (seller = $1 OR subscriber = $1) AND (open_key IS NOT NULL OR dispute = $2)",
		of.Lower(), DisputeOpen)
}

// OrdersSince counts the orders of a seller or a subscriber that were made at a moment or later, and that a rail pays.
func OrdersSince(ctx context.Context, q Querier, of toll.Address, since time.Time) (int64, error) {
	return value[int64](ctx, q, "SELECT COUNT(*) FROM orders WHERE (seller = $1 OR subscriber = $1) AND created_at >= $2 AND rail IS NOT NULL",
		of.Lower(), Micros(since))
}

// Orders lists the orders that the filter selects, by the time of their creation. Unless the filter
// names an account it asks every part of a distributed database.
func Orders(ctx context.Context, q Querier, f OrderFilter, p Page) (List[*Order], error) {
	l := Listing{ID: "order_id", Sorts: map[Sort]string{SortCreated: "created_at"}}
	switch {
	case f.Account != [16]byte{}:
		l.Where, l.Args = "account_id = $1", []any{f.Account[:]}
	case f.Plan != "":
		l.Where, l.Args = "plan_id = $1", []any{string(f.Plan)}
	case !f.Subscriber.IsZero():
		l.Where, l.Args = "subscriber = $1", []any{f.Subscriber.Lower()}
	default:
		l.Where, l.Args = "seller = $1", []any{f.Seller.Lower()}
	}
	l.Between("created_at", f.Since, f.Until)
	return orders.list(ctx, q, l, p)
}

// OrderReplacing returns the order of an account that was made in the place of a failed one and did not fail itself, or [ErrNotFound].
func OrderReplacing(ctx context.Context, q Querier, account [16]byte, failed string) (*Order, error) {
	return orders.one(ctx, q, "WHERE account_id = $1 AND replaces = $2 AND status <> $3 ORDER BY created_at LIMIT 1",
		account[:], failed, string(toll.OrderFailed))
}
