package checkout

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// budget is the money of a delegation. Money spent elsewhere is known only if a reading of the chain tells it from orders open then.
type budget struct{ *store.Delegation }

func (b budget) read(o *store.Order) bool { return o.Reading < b.Readings }

// tally sets what is spent, which never goes beyond the limit.
func (b budget) tally() {
	b.Spent = min(b.Paid+max(b.Beyond-b.OpenCents, 0), b.Limit-b.Reserved)
}

func (b budget) reserve(o *store.Order) {
	b.Reserved += o.Cents
	b.Transactions++
	o.Reading = b.Readings
	b.tally()
}

func (b budget) pay(o *store.Order) {
	b.Reserved -= o.Cents
	b.Paid += o.Cents
	if b.read(o) {
		b.OpenCents -= o.Cents
		b.Beyond -= o.Cents
	}
	b.tally()
}

// giveBack is pay for an order that failed.
func (b budget) giveBack(o *store.Order) {
	b.Reserved -= o.Cents
	b.Transactions--
	if b.read(o) {
		b.OpenCents -= o.Cents
	}
	b.tally()
}

// payLate counts an order that had failed and is paid after all.
func (b budget) payLate(o *store.Order) {
	b.Paid += o.Cents
	b.Transactions++
	if b.read(o) {
		b.Beyond -= o.Cents
	}
	b.tally()
}

// undo gives back what a paid order took, which the chain does not count any more either.
func (b budget) undo(o *store.Order) {
	b.Paid -= o.Cents
	b.Transactions--
	b.tally()
}

// count takes a reading of the chain, in cents.
func (b budget) count(cents int64) {
	b.Readings++
	b.Beyond = cents - b.Paid
	b.OpenCents = b.Reserved
	b.tally()
}

// usedUp reports whether a delegation can pay nothing any more: nothing is left, and no order under way could give something back.
func usedUp(d *store.Delegation) bool {
	return d.Reserved == 0 && (d.Spent >= d.Limit || d.MaxTransactions > 0 && d.Transactions >= d.MaxTransactions)
}

// changeBudget changes the money of a delegation and returns its events. Lock the account and the orders of the plan first.
func (c *Delegations) changeBudget(ctx context.Context, tx *store.Tx, id string, change func(b budget) error) ([]store.NewEvent, error) {
	d, err := store.DelegationForUpdate(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	usedUpBefore, frozenBefore := usedUp(d), d.Frozen()
	if err := change(budget{d}); err != nil {
		return nil, err
	}
	if err := store.UpdateDelegation(ctx, tx, d); err != nil {
		return nil, err
	}
	var events []store.NewEvent
	if !usedUpBefore && usedUp(d) {
		events = append(events, c.delegationEvent(d, toll.EventDelegationExhausted, c.now()))
	}
	switch {
	case frozenBefore == d.Frozen():
	case d.Frozen():
		events = append(events, c.delegationEvent(d, toll.EventDelegationFrozen, c.now()))
	default:
		events = append(events, c.delegationEvent(d, toll.EventDelegationUnfrozen, c.now()))
	}
	return events, nil
}

// Spent implements [rail.Orders]. It counts what was spent elsewhere; own orders count rounded up to a cent each. Repeats change nothing.
func (c *Delegations) Spent(ctx context.Context, tx *store.Tx, delegationID string, units toll.Units) error {
	cents, ok := centsOf(units)
	if !ok {
		cents = int64(toll.MaxCents)
	}
	events, err := c.changeBudget(ctx, tx, delegationID, func(b budget) error {
		was := b.Spent
		if b.count(cents); b.Spent > was {
			c.log.WarnContext(ctx, "a delegation made a payment outside this service", "delegation", b.ID, "cents", b.Spent-was)
		}
		c.failpoint("counting")
		return nil
	})
	if err != nil {
		return unknown(err, toll.CodeUnknownDelegation, "delegationId", delegationID)
	}
	return store.InsertEvent(ctx, tx, events...)
}
