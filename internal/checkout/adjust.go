package checkout

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
)

// adjust implements [rail.Tx.Adjust] under the lock of the account: it compares refunds and disputes with the order's row, sets
// what is taken back of its credits, freezes the delegation during a dispute, and adds the events.
func (c *Checkout) adjust(context.Context, *ledger.Tx, [16]byte, string, rail.Adjustment) error {
	return toll.Errorf(toll.CodeInternal, "Refunds and disputes are not built yet.")
}
