package store

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// Authorization is a transfer that a wallet has signed for a token (EIP-3009), and the order that it pays. The token takes each
// nonce of a payer once, and so does this record: for all time, and for one order.
type Authorization struct {
	ChainID     int64        `db:"chain_id"`
	Asset       toll.Address `db:"asset"`
	Payer       toll.Address `db:"payer"`
	Nonce       [32]byte     `db:"nonce"`
	OrderID     string       `db:"order_id"`
	Receiver    toll.Address `db:"receiver"`
	Value       toll.Units   `db:"value"`
	ValidAfter  int64        `db:"valid_after"`  // Unix seconds
	ValidBefore int64        `db:"valid_before"` // Unix seconds
	Signature   []byte       `db:"signature"`
	CreatedAt   time.Time    `db:"created_at"`
}

var (
	authorizations       = newRecord[*Authorization]("authorizations")
	AuthorizationOfOrder = by[string](authorizations, "order_id = $1")
)

// AuthorizationTaken is the error of an authorization that belongs to another order.
type AuthorizationTaken struct{ OrderID string }

func (e *AuthorizationTaken) Error() string {
	return fmt.Sprintf("store: the authorization belongs to order %s", e.OrderID)
}

// InsertAuthorization adds an authorization. Nothing happens when it is there for the same order, with the same content. The error
// is an [*AuthorizationTaken] when another order has it, and [IsUnique] when its order has another authorization.
func InsertAuthorization(ctx context.Context, tx *Tx, a *Authorization) error {
	_, err := authorizations.insertOr(ctx, tx, a, "ON CONFLICT (chain_id, asset, payer, nonce) DO NOTHING")
	if err != nil {
		return err
	}
	is, err := AuthorizationByNonce(ctx, tx, a.ChainID, a.Asset, a.Payer, a.Nonce)
	if err == nil && (is.OrderID != a.OrderID || !is.same(a)) {
		err = &AuthorizationTaken{OrderID: is.OrderID}
	}
	return err
}

func (a *Authorization) same(b *Authorization) bool {
	return a.Receiver == b.Receiver && a.Value.Cmp(b.Value) == 0 && a.ValidAfter == b.ValidAfter && a.ValidBefore == b.ValidBefore &&
		bytes.Equal(a.Signature, b.Signature)
}

// AuthorizationByNonce returns the authorization with a nonce of a payer at a token, or [ErrNotFound].
func AuthorizationByNonce(ctx context.Context, q Querier, chainID int64, asset, payer toll.Address, nonce [32]byte) (*Authorization, error) {
	return authorizations.one(ctx, q, "WHERE chain_id = $1 AND asset = $2 AND payer = $3 AND nonce = $4",
		chainID, asset.Lower(), payer.Lower(), nonce[:])
}
