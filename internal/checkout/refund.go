package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// RefundRef is what is kept of a refund under an Idempotency-Key.
type RefundRef struct {
	OrderID  string `json:"orderId"`
	RefundID string `json:"refundId"`
}

// Refund gives money of a paid card order back, by the owner of its plan: cents, or all that is
// left when cents is nil. The answer is the order, with status 202 in it while the processor has
// not taken the refund after wait. Credits are taken back then. once, which may be nil, keeps a
// [RefundRef].
//
// Errors: [toll.CodeBadUUID], [toll.CodeOrderNotFound] for everybody but the subscriber and the
// owner of the plan, [toll.CodeNotPlanOwner], [toll.CodeBadNumber] for no cents,
// [toll.CodeRefundRefused] for an order that no card has paid, during a dispute, for more than is
// left, and when the processor refuses; [toll.CodeCardOff].
func (c *Checkout) Refund(
	ctx context.Context, caller toll.Address, orderID string, cents *toll.Cents, once *store.Once, wait time.Duration,
) (*toll.Order, error) {
	return nil, toll.Errorf(toll.CodeInternal, "Refunds are not built yet.")
}

// RefundAgain answers as [Checkout.Refund] did, or would by now, when it made this refund.
func (c *Checkout) RefundAgain(ctx context.Context, caller toll.Address, earlier RefundRef, wait time.Duration) (*toll.Order, error) {
	return nil, toll.Errorf(toll.CodeInternal, "Refunds are not built yet.")
}
