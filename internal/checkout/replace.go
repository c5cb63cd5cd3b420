package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rail"
)

// Replace opens a page on which a person pays what an order of the owner was to buy that failed
// because the bank wanted the owner to confirm it. It is a new order of the same plan, amount and
// credits, which takes nothing of the delegation. A failed order has one open page at a time: a
// repeat returns it. The caller has checked the signed link, which names owner and order.
//
// Errors: [toll.CodeOrderNotFound] for an order of others, for one that did not fail in this way,
// and from an hour after the failure; [toll.CodeRecordChanged] when the plan has another price or
// other credits by now; those of [Checkout.Fiat].
func (c *Checkout) Replace(
	ctx context.Context, owner toll.Address, failedID string, page rail.SessionInput, wait time.Duration,
) (*toll.Checkout, error) {
	return nil, toll.Errorf(toll.CodeInternal, "Orders in the place of failed ones are not built yet.")
}
