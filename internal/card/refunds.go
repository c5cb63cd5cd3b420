package card

import (
	"context"

	"github.com/tollhq/toll/internal/rail"
)

// BeginRefund implements [rail.Refunder].
func (r *Rail) BeginRefund(ctx context.Context, t *rail.Tx, in rail.Refund) error { return errUnbuilt }

// Refunded implements [rail.Refunder].
func (r *Rail) Refunded(ctx context.Context, refundID string) (decided bool, failure string, err error) {
	return false, "", errUnbuilt
}
