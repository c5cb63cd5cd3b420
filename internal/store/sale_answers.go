package store

import (
	"context"

	"github.com/tollhq/toll"
)

// SaleIdentifier is the name that a wallet gave to a purchase.
type SaleIdentifier struct {
	Subscriber toll.Address
	Identifier string
	Content    toll.Hash // of what is bought, and for how much
	OrderID    string
}

// PutSaleIdentifier adds a name. The error is [IsUnique] when the subscriber used it before.
func PutSaleIdentifier(ctx context.Context, tx *Tx, s *SaleIdentifier) error {
	_, err := tx.Exec(ctx, "INSERT INTO sale_identifiers (subscriber, identifier, content, order_id) VALUES ($1, $2, $3, $4)",
		s.Subscriber.Lower(), s.Identifier, s.Content[:], s.OrderID)
	return err
}

// SaleByIdentifier returns the purchase that a subscriber gave a name, or [ErrNotFound].
func SaleByIdentifier(ctx context.Context, q Querier, subscriber toll.Address, identifier string) (*SaleIdentifier, error) {
	s := &SaleIdentifier{Subscriber: subscriber, Identifier: identifier}
	var content []byte
	err := q.QueryRow(ctx, "SELECT content, order_id FROM sale_identifiers WHERE subscriber = $1 AND identifier = $2", subscriber.Lower(), identifier).
		Scan(&content, &s.OrderID)
	if err != nil {
		return nil, err
	}
	copy(s.Content[:], content)
	return s, nil
}

// FreeSaleIdentifier removes the name that a subscriber gave to a purchase, if it has one.
func FreeSaleIdentifier(ctx context.Context, tx *Tx, subscriber toll.Address, orderID string) error {
	_, err := tx.Exec(ctx, "DELETE FROM sale_identifiers WHERE subscriber = $1 AND order_id = $2", subscriber.Lower(), orderID)
	return err
}

// KeepSaleReceipt stores the receipt of an order unless there is one, and returns the one that is there.
func KeepSaleReceipt(ctx context.Context, tx *Tx, orderID string, receipt []byte) (kept []byte, err error) {
	if _, err := tx.Exec(ctx, "INSERT INTO sale_receipts (order_id, receipt) VALUES ($1, $2) ON CONFLICT (order_id) DO NOTHING",
		orderID, blob(receipt)); err != nil {
		return nil, err
	}
	return SaleReceipt(ctx, tx, orderID)
}

// SaleReceipt returns the receipt of an order, or [ErrNotFound].
func SaleReceipt(ctx context.Context, q Querier, orderID string) (receipt []byte, err error) {
	err = q.QueryRow(ctx, "SELECT receipt FROM sale_receipts WHERE order_id = $1", orderID).Scan(&receipt)
	return receipt, err
}
