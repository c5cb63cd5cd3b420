package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// maxDeclines is how many declined charges in a row freeze a delegation, so that an agent in a loop does not get the card blocked.
const maxDeclines = 3

// decline counts a charge that the bank refused.
func (b budget) decline(now time.Time) {
	if b.Declines++; b.Declines >= maxDeclines {
		b.freeze(store.FrozenForDeclines, now)
	}
}

// freeze stops a delegation from paying, unless it is revoked. A dispute outranks declines: it must end before the owner may unfreeze.
func (b budget) freeze(why string, now time.Time) {
	if !b.RevokedAt.IsZero() {
		return
	}
	if !b.Frozen() {
		b.FrozenAt = now
	}
	if b.FrozenFor != store.FrozenForDispute {
		b.FrozenFor = why
	}
}

// disputeWon lets a delegation pay again that was frozen for disputes alone.
func (b budget) disputeWon() {
	switch {
	case b.FrozenFor != store.FrozenForDispute:
	case b.Declines >= maxDeclines:
		b.FrozenFor = store.FrozenForDeclines
	default:
		b.FrozenAt, b.FrozenFor = time.Time{}, ""
	}
}

// Unfreeze lets a frozen delegation of the owner pay again. One that is not frozen stays as it is. Errors: [toll.CodeBadUUID],
// [toll.CodeUnknownDelegation], and [toll.CodeDelegationFrozen] while a payment of it is disputed.
func (c *Delegations) Unfreeze(ctx context.Context, owner toll.Address, id string) (*toll.Delegation, error) {
	d, err := c.ownDelegation(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	err = c.store.Tx(ctx, func(tx *store.Tx) error {
		if d, err = store.DelegationForUpdate(ctx, tx, d.ID); err != nil || !d.Frozen() {
			return err
		}
		open, err := store.OpenDisputes(ctx, tx, d.ID)
		if err != nil {
			return err
		}
		if len(open) > 0 {
			return toll.Errorf(toll.CodeDelegationFrozen, "A payment made with the delegation is disputed.").
				WithDetails("delegationId %s, orderId %s", d.ID, open[0]).
				WithHint("Wait until the dispute is closed, or create another delegation.")
		}
		d.FrozenAt, d.FrozenFor, d.Declines = time.Time{}, "", 0
		if err := store.UpdateDelegation(ctx, tx, d); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, c.delegationEvent(d, toll.EventDelegationUnfrozen, c.now()))
	})
	return c.recordOf(d, Fault(unknown(err, toll.CodeUnknownDelegation, "delegationId", id)))
}
