package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// PaymentMethod is an enrolled card, or what its owner noted of the wallet.
type PaymentMethod struct {
	Owner       toll.Address
	ID          string // the address in lower case for the wallet
	Provider    toll.Provider
	Brand       string
	Last4       string
	ExpMonth    int64
	ExpYear     int64
	Alias       string      // "" for none
	AllowedKeys []toll.Hash // empty: every key
	CreatedAt   time.Time
	RevokedAt   time.Time // zero: not revoked
}

const paymentMethodColumns = "owner, id, provider, brand, last4, exp_month, exp_year, alias, allowed_keys, created_at, revoked_at"

// PutPaymentMethod adds a payment method, or changes alias, keys and revocation of the one that is there.
func PutPaymentMethod(ctx context.Context, tx *Tx, m *PaymentMethod) error {
	keys := ""
	if len(m.AllowedKeys) > 0 {
		var err error
		if keys, err = encode(m.AllowedKeys); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "INSERT INTO payment_methods ("+paymentMethodColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (owner, id) DO UPDATE SET alias = excluded.alias, allowed_keys = excluded.allowed_keys, revoked_at = excluded.revoked_at`,
		m.Owner.Lower(), m.ID, string(m.Provider), m.Brand, m.Last4, m.ExpMonth, m.ExpYear, optional(m.Alias), keys,
		Micros(m.CreatedAt), Micros(m.RevokedAt))
	return err
}

// EnsurePaymentMethod adds a payment method unless it is there, and returns what is there as [PaymentMethodForUpdate] does.
func EnsurePaymentMethod(ctx context.Context, tx *Tx, m *PaymentMethod) (*PaymentMethod, error) {
	_, err := tx.Exec(ctx, "INSERT INTO payment_methods ("+paymentMethodColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, '', $9, $10)
		ON CONFLICT (owner, id) DO NOTHING`,
		m.Owner.Lower(), m.ID, string(m.Provider), m.Brand, m.Last4, m.ExpMonth, m.ExpYear, optional(m.Alias), Micros(m.CreatedAt), Micros(m.RevokedAt))
	if err != nil {
		return nil, err
	}
	return PaymentMethodForUpdate(ctx, tx, m.Owner, m.ID)
}

// PaymentMethodByID returns a payment method of an owner, or [ErrNotFound].
func PaymentMethodByID(ctx context.Context, q Querier, owner toll.Address, id string) (*PaymentMethod, error) {
	return scanPaymentMethod(q.QueryRow(ctx, "SELECT "+paymentMethodColumns+" FROM payment_methods WHERE owner = $1 AND id = $2", owner.Lower(), id).Scan)
}

// PaymentMethodForUpdate is [PaymentMethodByID] for one that the transaction is going to change.
func PaymentMethodForUpdate(ctx context.Context, tx *Tx, owner toll.Address, id string) (*PaymentMethod, error) {
	return scanPaymentMethod(tx.QueryRow(ctx, "SELECT "+paymentMethodColumns+" FROM payment_methods WHERE owner = $1 AND id = $2"+tx.ForUpdate(),
		owner.Lower(), id).Scan)
}

// PaymentMethods returns the payment methods of an owner, the oldest first.
func PaymentMethods(ctx context.Context, q Querier, owner toll.Address) ([]*PaymentMethod, error) {
	rows, err := q.Query(ctx, "SELECT "+paymentMethodColumns+" FROM payment_methods WHERE owner = $1 ORDER BY created_at, id", owner.Lower())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []*PaymentMethod
	for rows.Next() {
		m, err := scanPaymentMethod(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, rows.Err()
}

func scanPaymentMethod(scan func(dest ...any) error) (*PaymentMethod, error) {
	var m PaymentMethod
	var owner, provider, keys string
	var alias *string
	var created, revoked int64
	if err := scan(&owner, &m.ID, &provider, &m.Brand, &m.Last4, &m.ExpMonth, &m.ExpYear, &alias, &keys, &created, &revoked); err != nil {
		return nil, err
	}
	m.Provider, m.CreatedAt, m.RevokedAt = toll.Provider(provider), FromMicros(created), FromMicros(revoked)
	if alias != nil {
		m.Alias = *alias
	}
	if keys != "" {
		if err := json.Unmarshal([]byte(keys), &m.AllowedKeys); err != nil {
			return nil, fmt.Errorf("store: payment method: %w", err)
		}
	}
	var err error
	m.Owner, err = toll.ParseAddress(owner)
	return &m, err
}
