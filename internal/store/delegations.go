package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// Delegation is a limit on money.
type Delegation struct {
	ID               string // UUID
	Owner            toll.Address
	Provider         toll.Provider
	PaymentMethod    string      // id of the card, or the address of the wallet
	Currency         string      // in lower case
	Limit            int64       // cents
	Spent            int64       // cents that orders paid, and that the chain counted beside them
	Reserved         int64       // cents that orders under way will take
	Transactions     int64       // orders, paid and under way
	MaxTransactions  int64       // 0: no limit
	Plan             toll.PlanID // "": any
	APIKeyID         *toll.Hash  // nil: any
	MerchantAccount  string
	AllowedReceivers []toll.Address // empty: any
	CreatedAt        time.Time
	ExpiresAt        time.Time
	RevokedAt        time.Time // zero: not revoked
	LastUsedAt       time.Time // zero: never
	Revoking         bool      // permissions that name it may still have to be revoked

	OwnerAccount  toll.Address // account that the user holds; zero: the wallet that the service holds for Owner
	Signature     []byte       // of OwnerAccount; nil: not there, or not needed
	Authorization string       // signed EIP-7702 authorization of OwnerAccount, as JSON; "" for none
	DisableAt     time.Time    // when it is to be disabled on the chain next; zero: nothing to do

	Paid     int64 // cents of its paid orders
	Beyond   int64 // how much more than Paid the chain had counted when it was read last; negative for less
	Unclear  int64 // cents of the orders that were open when the chain was read last, and still are
	Readings int64 // how often the chain was read
}

// Pending reports whether it still waits for the signature of its account.
func (d *Delegation) Pending() bool { return !d.OwnerAccount.IsZero() && len(d.Signature) == 0 }

// Remaining is what new orders may take, in cents.
func (d *Delegation) Remaining() int64 { return max(d.Limit-d.Spent-d.Reserved, 0) }

// Status returns the state at t.
func (d *Delegation) Status(t time.Time) toll.PermissionStatus {
	switch {
	case !d.RevokedAt.IsZero():
		return toll.StatusRevoked
	case !t.Before(d.ExpiresAt):
		return toll.StatusExpired
	case d.Pending():
		return toll.StatusPending
	case d.Remaining() == 0, d.MaxTransactions > 0 && d.Transactions >= d.MaxTransactions:
		return toll.StatusExhausted
	}
	return toll.StatusActive
}

const delegationColumns = `delegation_id, owner, provider, payment_method_id, currency, limit_cents, spent_cents, reserved_cents,
	transactions, max_transactions, plan_id, api_key_id, merchant_account, allowed_recipients, created_at, expires_at, revoked_at,
	last_used_at, revoking, owner_account, signature, account_authorization, disable_at, paid_cents, beyond_cents, unclear_cents, readings`

// InsertDelegation adds a delegation.
func InsertDelegation(ctx context.Context, tx *Tx, d *Delegation) error {
	key, receivers, account := "", "", ""
	if !d.OwnerAccount.IsZero() {
		account = d.OwnerAccount.Lower()
	}
	if d.APIKeyID != nil {
		key = d.APIKeyID.String()
	}
	if len(d.AllowedReceivers) > 0 {
		var err error
		if receivers, err = encode(d.AllowedReceivers); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "INSERT INTO delegations ("+delegationColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13,
		$14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27)`,
		d.ID, d.Owner.Lower(), string(d.Provider), d.PaymentMethod, d.Currency, d.Limit, d.Spent, d.Reserved, d.Transactions,
		d.MaxTransactions, string(d.Plan), key, d.MerchantAccount, receivers, Micros(d.CreatedAt), Micros(d.ExpiresAt),
		Micros(d.RevokedAt), Micros(d.LastUsedAt), d.Revoking, account, d.Signature, d.Authorization, Micros(d.DisableAt),
		d.Paid, d.Beyond, d.Unclear, d.Readings)
	return err
}

// UpdateDelegation stores what is spent, reserved and counted, the last use, the signature, and the revocation. [ErrNotFound] when
// there is no such delegation.
func UpdateDelegation(ctx context.Context, tx *Tx, d *Delegation) error {
	n, err := tx.Exec(ctx, `UPDATE delegations SET spent_cents = $2, reserved_cents = $3, transactions = $4, last_used_at = $5, revoked_at = $6,
		revoking = $7, signature = $8, account_authorization = $9, disable_at = $10, paid_cents = $11, beyond_cents = $12,
		unclear_cents = $13, readings = $14 WHERE delegation_id = $1`,
		d.ID, d.Spent, d.Reserved, d.Transactions, Micros(d.LastUsedAt), Micros(d.RevokedAt), d.Revoking, d.Signature, d.Authorization,
		Micros(d.DisableAt), d.Paid, d.Beyond, d.Unclear, d.Readings)
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// DelegationByID returns a delegation, or [ErrNotFound].
func DelegationByID(ctx context.Context, q Querier, id string) (*Delegation, error) {
	return scanDelegation(q.QueryRow(ctx, "SELECT "+delegationColumns+" FROM delegations WHERE delegation_id = $1", id).Scan)
}

// DelegationForUpdate is [DelegationByID] for a delegation that the transaction is going to change: nobody else changes it
// meanwhile. It comes after the row of the account and that of the plan's orders.
func DelegationForUpdate(ctx context.Context, tx *Tx, id string) (*Delegation, error) {
	return scanDelegation(tx.QueryRow(ctx, "SELECT "+delegationColumns+" FROM delegations WHERE delegation_id = $1"+tx.ForUpdate(), id).Scan)
}

// Usable selects the delegations that an API key can pay with at a time.
type Usable struct {
	At      time.Time
	Key     toll.Hash
	Without []string // payment methods that the key must not use
}

// DelegationsOfOwner lists the delegations of an address; usable nil lists all.
func DelegationsOfOwner(ctx context.Context, q Querier, owner toll.Address, usable *Usable, p Page) (List[*Delegation], error) {
	l := Listing{
		Table: "delegations", Columns: delegationColumns, Where: "owner = $1", Args: []any{owner.Lower()}, ID: "delegation_id",
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "last_used_at"},
	}
	if usable != nil {
		l.Where += ` AND revoked_at = 0 AND (owner_account = '' OR signature IS NOT NULL) AND expires_at > $2 AND spent_cents + reserved_cents < limit_cents
			AND (max_transactions = 0 OR transactions < max_transactions) AND (api_key_id = '' OR api_key_id = $3)`
		l.Args = append(l.Args, Micros(usable.At), usable.Key.String())
		for _, method := range usable.Without {
			l.Args = append(l.Args, method)
			l.Where += fmt.Sprintf(" AND payment_method_id <> $%d", len(l.Args))
		}
	}
	return Select(ctx, q, l, p, scanDelegation)
}

// RevokeDelegationsOf revokes the delegations that pay with a payment method, and returns them.
func RevokeDelegationsOf(ctx context.Context, tx *Tx, owner toll.Address, method string, at time.Time) ([]*Delegation, error) {
	rows, err := tx.Query(ctx, `UPDATE delegations SET revoked_at = $3, revoking = TRUE
		WHERE owner = $1 AND payment_method_id = $2 AND revoked_at = 0 RETURNING `+delegationColumns, owner.Lower(), method, Micros(at))
	return scanAll(rows, err, scanDelegation)
}

// RevokingDelegations returns revoked delegations whose permissions may still have to be revoked, at most limit.
func RevokingDelegations(ctx context.Context, q Querier, limit int) ([]*Delegation, error) {
	rows, err := q.Query(ctx, "SELECT "+delegationColumns+" FROM delegations WHERE revoking LIMIT $1", int64(limit))
	return scanAll(rows, err, scanDelegation)
}

// DisablingDelegations returns revoked delegations that are to be disabled on the chain by now, at most limit, the longest
// waiting first.
func DisablingDelegations(ctx context.Context, q Querier, now time.Time, limit int) ([]*Delegation, error) {
	rows, err := q.Query(ctx, "SELECT "+delegationColumns+" FROM delegations WHERE disable_at > 0 AND disable_at <= $1 ORDER BY disable_at LIMIT $2",
		Micros(now), int64(limit))
	return scanAll(rows, err, scanDelegation)
}

func scanDelegation(scan func(dest ...any) error) (*Delegation, error) {
	var d Delegation
	var owner, provider, plan, key, receivers, account string
	var created, expires, revoked, used, disable int64
	err := scan(&d.ID, &owner, &provider, &d.PaymentMethod, &d.Currency, &d.Limit, &d.Spent, &d.Reserved, &d.Transactions,
		&d.MaxTransactions, &plan, &key, &d.MerchantAccount, &receivers, &created, &expires, &revoked, &used, &d.Revoking,
		&account, &d.Signature, &d.Authorization, &disable, &d.Paid, &d.Beyond, &d.Unclear, &d.Readings)
	if err != nil {
		return nil, err
	}
	d.Provider, d.Plan = toll.Provider(provider), toll.PlanID(plan)
	d.CreatedAt, d.ExpiresAt, d.RevokedAt, d.LastUsedAt = FromMicros(created), FromMicros(expires), FromMicros(revoked), FromMicros(used)
	d.DisableAt = FromMicros(disable)
	if account != "" {
		if d.OwnerAccount, err = toll.ParseAddress(account); err != nil {
			return nil, err
		}
	}
	if key != "" {
		h, err := toll.ParseHash(key)
		if err != nil {
			return nil, err
		}
		d.APIKeyID = &h
	}
	if receivers != "" {
		if err := json.Unmarshal([]byte(receivers), &d.AllowedReceivers); err != nil {
			return nil, fmt.Errorf("store: delegation %s: %w", d.ID, err)
		}
	}
	d.Owner, err = toll.ParseAddress(owner)
	return &d, err
}

// InsertDelegationTransaction adds the payment of an order under a delegation.
func InsertDelegationTransaction(ctx context.Context, tx *Tx, t *toll.DelegationTransaction) error {
	reason := ""
	if t.FailureReason != nil {
		reason = *t.FailureReason
	}
	_, err := tx.Exec(ctx, `INSERT INTO delegation_transactions (delegation_id, id, order_id, provider_id, cents, currency, status,
		failure_reason, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		t.DelegationID, t.ID, t.OrderID, t.ProviderTransactionID, int64(t.AmountCents), t.Currency, string(t.Status), reason, Micros(t.CreatedAt.Time))
	return err
}

// UpdateDelegationTransaction stores what became of the payment of an order.
func UpdateDelegationTransaction(ctx context.Context, tx *Tx, delegation, order string, status toll.TransactionStatus, providerID, reason string) error {
	_, err := tx.Exec(ctx, `UPDATE delegation_transactions SET status = $3, provider_id = $4, failure_reason = $5
		WHERE delegation_id = $1 AND order_id = $2`, delegation, order, string(status), providerID, reason)
	return err
}

// DelegationTransactions lists the payments under a delegation.
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
		if reason != "" {
			t.FailureReason = &reason
		}
		return &t, err
	})
}
