package checkout

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Record returns a delegation as it is read.
func (c *Delegations) Record(d *store.Delegation) *toll.Delegation { return c.record(d) }

// orderEvents are those of an order, for its subscriber and the owner of its plan. Events are the last thing that a transaction writes.
func orderEvents(o *store.Order, owner toll.Address, types ...toll.EventType) []store.NewEvent {
	var out []store.NewEvent
	for _, t := range types {
		e := store.NewEvent{Principal: o.Subscriber, Type: t, Kind: "order", ID: o.ID, Data: Rendered(o), At: o.UpdatedAt}
		out = append(out, e)
		if owner != o.Subscriber {
			e.Principal = owner
			out = append(out, e)
		}
	}
	return out
}

func (c *Delegations) delegationEvent(d *store.Delegation, t toll.EventType, at time.Time) store.NewEvent {
	return store.NewEvent{Principal: d.Owner, Type: t, Kind: "delegation", ID: d.ID, Data: c.record(d), At: at}
}
