package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// Delegation is a limit on money.
type Delegation struct {
	ID               string         `db:"delegation_id,key"` // UUID
	Owner            toll.Address   `db:"owner"`
	Provider         toll.Provider  `db:"provider"`
	PaymentMethod    string         `db:"payment_method_id"`    // id of the card, or the address of the wallet
	Currency         string         `db:"currency"`             // in lower case
	Limit            int64          `db:"limit_cents"`          // cents
	Spent            int64          `db:"spent_cents,set"`      // cents that orders paid, and that the chain counted beside them
	Reserved         int64          `db:"reserved_cents,set"`   // cents that orders under way will take
	Transactions     int64          `db:"transactions,set"`     // orders, paid and under way
	MaxTransactions  int64          `db:"max_transactions"`     // 0: no limit
	Plan             toll.PlanID    `db:"plan_id"`              // "": any
	APIKeyID         *toll.Hash     `db:"api_key_id,hex,empty"` // nil: any
	MerchantAccount  string         `db:"merchant_account"`
	AllowedReceivers []toll.Address `db:"allowed_recipients,json"` // empty: any
	MadeBy           toll.UUID      `db:"made_by,null"`            // zero: nobody who is known
	CreatedAt        time.Time      `db:"created_at"`
	ExpiresAt        time.Time      `db:"expires_at"`
	RevokedAt        time.Time      `db:"revoked_at,set"`   // zero: not revoked
	LastUsedAt       time.Time      `db:"last_used_at,set"` // zero: never
	Revoking         bool           `db:"revoking,set"`     // permissions that name it may still have to be revoked

	OwnerAccount  toll.Address `db:"owner_account,empty"`       // account that the user holds; zero: the wallet that the service holds for Owner
	Signature     []byte       `db:"signature,null,set"`        // of OwnerAccount; nil: not there, or not needed
	Authorization string       `db:"account_authorization,set"` // signed EIP-7702 authorization of OwnerAccount, as JSON; "" for none
	DisableAt     time.Time    `db:"disable_at,set"`            // when it is to be disabled on the chain next; zero: nothing to do

	Paid      int64 `db:"paid_cents,set"`    // cents of its paid orders
	Beyond    int64 `db:"beyond_cents,set"`  // how much more than Paid the chain had counted when it was read last; negative for less
	OpenCents int64 `db:"unclear_cents,set"` // cents of the orders that were open when the chain was read last, and still are
	Readings  int64 `db:"readings,set"`      // how often the chain was read

	FrozenAt  time.Time `db:"frozen_at,set"`       // zero: not frozen; of cards only
	FrozenFor string    `db:"frozen_for,null,set"` // "", or one of the words below
	Declines  int64     `db:"declines,set"`        // charges in a row that were declined
}

// What [Delegation.FrozenFor] says.
const (
	FrozenForDeclines = "declines" // its owner may unfreeze it
	FrozenForDispute  = "dispute"  // its owner may unfreeze it once no dispute is open
)

var (
	delegations      = newRecord[*Delegation]("delegations")
	InsertDelegation = delegations.insert
	UpdateDelegation = delegations.update
	DelegationByID   = by[string](delegations, "delegation_id = $1")
	// DelegationForUpdate is [DelegationByID] for a delegation that the transaction is going to change: nobody else changes it meanwhile.
	// It comes after the row of the account and that of the plan's orders.
	DelegationForUpdate = locked[string](delegations, "delegation_id = $1")
)

// Pending reports whether it still waits for the signature of its account.
func (d *Delegation) Pending() bool { return !d.OwnerAccount.IsZero() && len(d.Signature) == 0 }

// Frozen reports whether it pays nothing for now.
func (d *Delegation) Frozen() bool { return !d.FrozenAt.IsZero() }

// Remaining is what new orders may take, in cents.
func (d *Delegation) Remaining() int64 { return max(d.Limit-d.Spent-d.Reserved, 0) }

// Status returns the state at t.
func (d *Delegation) Status(t time.Time) toll.PermissionStatus {
	switch {
	case !d.RevokedAt.IsZero():
		return toll.StatusRevoked
	case !t.Before(d.ExpiresAt):
		return toll.StatusExpired
	case d.Frozen():
		return toll.StatusFrozen
	case d.Pending():
		return toll.StatusPending
	case d.Remaining() == 0, d.MaxTransactions > 0 && d.Transactions >= d.MaxTransactions:
		return toll.StatusExhausted
	}
	return toll.StatusActive
}

// Usable selects the delegations that an API key can pay with at a time.
type Usable struct {
	At      time.Time
	Key     toll.Hash
	Without []string  // payment methods that the key must not use
	MadeBy  toll.UUID // only those of this person; zero: of everybody
}

// DelegationsOfOwner lists the delegations of an address; usable nil lists all.
func DelegationsOfOwner(ctx context.Context, q Querier, owner toll.Address, usable *Usable, p Page) (List[*Delegation], error) {
	l := Listing{
		Where: "owner = $1", Args: []any{owner.Lower()}, ID: "delegation_id",
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "last_used_at"},
	}
	if usable != nil {
		l.Where += ` AND revoked_at = 0 AND (owner_account = '' OR signature IS NOT NULL) AND expires_at > $2 AND spent_cents + reserved_cents < limit_cents
			AND (max_transactions = 0 OR transactions < max_transactions) AND (api_key_id = '' OR api_key_id = $3)
			AND COALESCE(frozen_at, 0) = 0`
		l.Args = append(l.Args, Micros(usable.At), usable.Key.String())
		if !usable.MadeBy.IsZero() {
			l.Args = append(l.Args, usable.MadeBy[:])
			l.Where += fmt.Sprintf(" AND made_by = $%d", len(l.Args))
		}
		for _, method := range usable.Without {
			l.Args = append(l.Args, method)
			l.Where += fmt.Sprintf(" AND payment_method_id <> $%d", len(l.Args))
		}
	}
	return delegations.list(ctx, q, l, p)
}

// OpenDisputes returns the orders that a delegation has paid and whose payment is disputed now. It
// asks every part of a distributed database.
func OpenDisputes(ctx context.Context, q Querier, delegation string) ([]string, error) {
	return values[string](ctx, q, `SELECT o.order_id FROM delegation_transactions t JOIN orders o ON o.order_id = t.order_id
		WHERE t.delegation_id = $1 AND o.dispute = $2 ORDER BY o.order_id`, delegation, DisputeOpen)
}

// RevokeDelegation writes a delegation that the caller has just revoked. A caller who finishes revokes the permissions that name it
// after that, up to [EndDelegation]; the job [JobEndDelegation] does so in its place when it does not get there, or does not finish.
func RevokeDelegation(ctx context.Context, tx *Tx, d *Delegation, finishes bool) error {
	d.Revoking = true
	if err := UpdateDelegation(ctx, tx, d); err != nil {
		return err
	}
	if !finishes {
		return PutJob(ctx, tx, Job{Kind: JobEndDelegation, Key: []byte(d.ID), Due: d.RevokedAt})
	}
	return putOwnJob(ctx, tx, JobEndDelegation, []byte(d.ID), d.RevokedAt)
}

// EndDelegation notes that every permission which names a revoked delegation is revoked.
func EndDelegation(ctx context.Context, tx *Tx, id string) error {
	if _, err := tx.Exec(ctx, "UPDATE delegations SET revoking = $2 WHERE delegation_id = $1", id, false); err != nil {
		return err
	}
	return DropJob(ctx, tx, JobEndDelegation, []byte(id))
}

// RevokeDelegationsOf revokes the delegations that pay with a payment method like [RevokeDelegation], and returns them.
func RevokeDelegationsOf(ctx context.Context, tx *Tx, owner toll.Address, method string, at time.Time) ([]*Delegation, error) {
	revoked, err := All(ctx, tx, delegations.scan, `UPDATE delegations SET revoked_at = $3, revoking = TRUE
		WHERE owner = $1 AND payment_method_id = $2 AND revoked_at = 0 RETURNING `+delegations.columns, owner.Lower(), method, Micros(at))
	if err != nil {
		return nil, err
	}
	for _, d := range revoked {
		if err := putOwnJob(ctx, tx, JobEndDelegation, []byte(d.ID), at); err != nil {
			return nil, err
		}
	}
	return revoked, nil
}

// ExpiredDelegations returns the delegations that ended by time after from and not after until, neither revoked nor used up
// before, the earliest first, at most limit.
func ExpiredDelegations(ctx context.Context, q Querier, from, until time.Time, limit int) ([]*Delegation, error) {
	return delegations.all(ctx, q, `WHERE expires_at > $1 AND expires_at <= $2 AND revoked_at = 0
		AND (owner_account = '' OR signature IS NOT NULL) AND spent_cents < limit_cents ORDER BY expires_at, delegation_id LIMIT $3`,
		Micros(from), Micros(until), int64(limit))
}

// InsertDelegationTransaction adds the payment of an order under a delegation.
func InsertDelegationTransaction(ctx context.Context, tx *Tx, t *toll.DelegationTransaction) error {
	reason := ""
	if t.FailureReason != nil {
		reason = *t.FailureReason
	}
	return done(tx.Exec(ctx, `INSERT INTO delegation_transactions (delegation_id, id, order_id, provider_id, cents, currency, status,
		failure_reason, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		t.DelegationID, t.ID, t.OrderID, t.ProviderTransactionID, int64(t.AmountCents), t.Currency, string(t.Status), reason, Micros(t.CreatedAt.Time)))
}

// UpdateDelegationTransaction stores what became of the payment of an order.
func UpdateDelegationTransaction(ctx context.Context, tx *Tx, delegation, order string, status toll.TransactionStatus, providerID, reason string) error {
	return done(tx.Exec(ctx, `UPDATE delegation_transactions SET status = $3, provider_id = $4, failure_reason = $5
		WHERE delegation_id = $1 AND order_id = $2`, delegation, order, string(status), providerID, reason))
}

func DelegationTransactions(ctx context.Context, q Querier, delegation string, p Page) (List[*toll.DelegationTransaction], error) {
	return Select(ctx, q, Listing{
		Table: "delegation_transactions", Columns: "delegation_id, id, order_id, provider_id, cents, currency, status, failure_reason, created_at",
		Where: "delegation_id = $1", Args: []any{delegation}, ID: "id", Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "created_at"},
	}, p, func(scan func(dest ...any) error) (*toll.DelegationTransaction, error) {
		var t toll.DelegationTransaction
		var status, reason string
		var cents, created int64
		err := scan(&t.DelegationID, &t.ID, &t.OrderID, &t.ProviderTransactionID, &cents, &t.Currency, &status, &reason, &created)
		t.AmountCents, t.Status, t.CreatedAt = toll.Cents(cents), toll.TransactionStatus(status), toll.At(FromMicros(created))
		t.FailureReason = NonZero(reason)
		return &t, err
	})
}
