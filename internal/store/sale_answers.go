package store

import (
	"context"

	"github.com/tollhq/toll"
)

// SaleIdentifier is the name that a wallet gave to a purchase.
type SaleIdentifier struct {
	Subscriber toll.Address `db:"subscriber"`
	Identifier string       `db:"identifier"`
	Content    toll.Hash    `db:"content"` // of what is bought, and for how much
	OrderID    string       `db:"order_id"`
}

var (
	saleIdentifiers = newRecord[*SaleIdentifier]("sale_identifiers")
	// PutSaleIdentifier adds a name. The error is [IsUnique] when the subscriber used it before.
	PutSaleIdentifier = saleIdentifiers.insert
	// SaleByIdentifier returns the purchase that a subscriber gave a name, or [ErrNotFound].
	SaleByIdentifier = by2[toll.Address, string](saleIdentifiers,
		"subscriber = $1 AND identifier = $2")
	// FreeSaleIdentifier removes the name that a subscriber gave to a purchase, if it has one.
	FreeSaleIdentifier = runs2[toll.Address, string](done,
		"DELETE FROM sale_identifiers WHERE subscriber = $1 AND order_id = $2")
)

// KeepSaleReceipt stores the receipt of an order unless there is one, and returns the one that is there.
func KeepSaleReceipt(ctx context.Context, tx *Tx, orderID string, receipt []byte) (kept []byte, err error) {
	if _, err := tx.Exec(ctx, "INSERT INTO sale_receipts (order_id, receipt) VALUES ($1, $2) ON CONFLICT (order_id) DO NOTHING",
		orderID, blob(receipt)); err != nil {
		return nil, err
	}
	return SaleReceipt(ctx, tx, orderID)
}

// SaleReceipt returns the receipt of an order, or [ErrNotFound].
var SaleReceipt = valueBy[[]byte, string]("SELECT receipt FROM sale_receipts WHERE order_id = $1")
