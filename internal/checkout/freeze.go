package checkout

import (
	"context"

	"github.com/tollhq/toll"
)

// Unfreeze lets a frozen delegation of the owner pay again. One that is not frozen stays as it is.
// Errors: [toll.CodeBadUUID], [toll.CodeUnknownDelegation], and [toll.CodeDelegationFrozen] while a
// payment of it is disputed.
func (c *Checkout) Unfreeze(ctx context.Context, owner toll.Address, id string) (*toll.Delegation, error) {
	return nil, toll.Errorf(toll.CodeInternal, "Freezing is not built yet.")
}
