package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// PaymentMethod is an enrolled card, or what its owner noted of the wallet.
type PaymentMethod struct {
	Owner       toll.Address  `db:"owner"`
	ID          string        `db:"id"` // the address in lower case for the wallet
	Provider    toll.Provider `db:"provider"`
	Brand       string        `db:"brand"`
	Last4       string        `db:"last4"`
	ExpMonth    int64         `db:"exp_month"`
	ExpYear     int64         `db:"exp_year"`
	Alias       string        `db:"alias,null"`        // "" for none
	AllowedKeys []toll.Hash   `db:"allowed_keys,json"` // empty: every key
	CreatedAt   time.Time     `db:"created_at"`
	RevokedAt   time.Time     `db:"revoked_at"`   // zero: not revoked
	ExpiredAt   time.Time     `db:"expired_at"`   // since when the processor cannot charge it; zero: it can
	MadeBy      toll.UUID     `db:"made_by,null"` // the person who enrolled the card; zero: no person is known
}

// Ends returns the first moment after the date of a card.
func (m *PaymentMethod) Ends() time.Time {
	return time.Date(int(m.ExpYear), time.Month(m.ExpMonth)+1, 1, 0, 0, 0, 0, time.UTC)
}

var (
	paymentMethods    = newRecord[*PaymentMethod]("payment_methods")
	PaymentMethodByID = by2[toll.Address, string](paymentMethods, "owner = $1 AND id = $2")
	// PaymentMethodForUpdate is [PaymentMethodByID] for one that the transaction is going to change.
	PaymentMethodForUpdate = locked2[toll.Address, string](paymentMethods, "owner = $1 AND id = $2")
	PaymentMethods         = listBy[toll.Address](paymentMethods, "owner = $1 ORDER BY created_at, id")
	// PutPaymentMethod adds a payment method, or changes alias, keys and revocation of the one that is there.
	PutPaymentMethod = paymentMethods.puts(`ON CONFLICT (owner, id) DO UPDATE
		SET alias = excluded.alias, allowed_keys = excluded.allowed_keys, revoked_at = excluded.revoked_at`)
)

// EnsurePaymentMethod adds a payment method unless it is there, and returns what is there as [PaymentMethodForUpdate] does.
func EnsurePaymentMethod(ctx context.Context, tx *Tx, m *PaymentMethod) (*PaymentMethod, error) {
	if _, err := paymentMethods.insertOr(ctx, tx, m, "ON CONFLICT (owner, id) DO NOTHING"); err != nil {
		return nil, err
	}
	return PaymentMethodForUpdate(ctx, tx, m.Owner, m.ID)
}
