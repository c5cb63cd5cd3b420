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
	ChainID     int64
	Asset       toll.Address
	Payer       toll.Address
	Nonce       [32]byte
	OrderID     string
	Receiver    toll.Address
	Value       toll.Units
	ValidAfter  int64 // Unix seconds
	ValidBefore int64 // Unix seconds
	Signature   []byte
	CreatedAt   time.Time
}

// AuthorizationTaken is the error of an authorization that belongs to another order.
type AuthorizationTaken struct{ OrderID string }

func (e *AuthorizationTaken) Error() string {
	return fmt.Sprintf("store: the authorization belongs to order %s", e.OrderID)
}

// InsertAuthorization adds an authorization. Nothing happens when it is there for the same order, with the same content. The error
// is an [*AuthorizationTaken] when another order has it, and [IsUnique] when its order has another authorization.
func InsertAuthorization(ctx context.Context, tx *Tx, a *Authorization) error {
	_, err := tx.Exec(ctx, `INSERT INTO authorizations (chain_id, asset, payer, nonce, order_id, receiver, value, valid_after, valid_before, signature, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (chain_id, asset, payer, nonce) DO NOTHING`,
		a.ChainID, a.Asset.Lower(), a.Payer.Lower(), a.Nonce[:], a.OrderID, a.Receiver.Lower(), a.Value.String(), a.ValidAfter, a.ValidBefore,
		blob(a.Signature), Micros(a.CreatedAt))
	if err != nil {
		return err
	}
	is, err := AuthorizationByNonce(ctx, tx, a.ChainID, a.Asset, a.Payer, a.Nonce)
	if err == nil && (is.OrderID != a.OrderID || !is.same(a)) {
		err = &AuthorizationTaken{OrderID: is.OrderID}
	}
	return err
}

// same reports whether two authorizations with one nonce are one.
func (a *Authorization) same(b *Authorization) bool {
	return a.Receiver == b.Receiver && a.Value.Cmp(b.Value) == 0 && a.ValidAfter == b.ValidAfter && a.ValidBefore == b.ValidBefore &&
		bytes.Equal(a.Signature, b.Signature)
}

const authorizationColumns = "chain_id, asset, payer, nonce, order_id, receiver, value, valid_after, valid_before, signature, created_at"

// AuthorizationByNonce returns the authorization with a nonce of a payer at a token, or [ErrNotFound].
func AuthorizationByNonce(ctx context.Context, q Querier, chainID int64, asset, payer toll.Address, nonce [32]byte) (*Authorization, error) {
	return scanAuthorization(q.QueryRow(ctx, "SELECT "+authorizationColumns+` FROM authorizations
		WHERE chain_id = $1 AND asset = $2 AND payer = $3 AND nonce = $4`, chainID, asset.Lower(), payer.Lower(), nonce[:]).Scan)
}

// AuthorizationOfOrder returns the authorization that pays an order, or [ErrNotFound].
func AuthorizationOfOrder(ctx context.Context, q Querier, orderID string) (*Authorization, error) {
	return scanAuthorization(q.QueryRow(ctx, "SELECT "+authorizationColumns+" FROM authorizations WHERE order_id = $1", orderID).Scan)
}

func scanAuthorization(scan func(dest ...any) error) (*Authorization, error) {
	var a Authorization
	var asset, payer, receiver, value string
	var nonce []byte
	var created int64
	err := scan(&a.ChainID, &asset, &payer, &nonce, &a.OrderID, &receiver, &value, &a.ValidAfter, &a.ValidBefore, &a.Signature, &created)
	if err != nil {
		return nil, err
	}
	copy(a.Nonce[:], nonce)
	a.CreatedAt = FromMicros(created)
	if a.Asset, err = toll.ParseAddress(asset); err != nil {
		return nil, err
	}
	if a.Payer, err = toll.ParseAddress(payer); err != nil {
		return nil, err
	}
	if a.Receiver, err = toll.ParseAddress(receiver); err != nil {
		return nil, err
	}
	a.Value, err = toll.ParseUnits(value)
	return &a, err
}
