package checkout

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// DelegationRecord returns a delegation as it is read.
func (c *Checkout) DelegationRecord(d *store.Delegation) *toll.Delegation { return c.record(d) }
