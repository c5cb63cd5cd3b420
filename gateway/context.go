package gateway

import "context"

// promptContext returns the text that stands before the next prompt, "" for none.
func (c *Core) promptContext(ctx context.Context, caller Caller) string { return "" } // G3

// balanceChanged says that the balance of an account may have changed: the context of the next
// prompt reads it again.
func (c *Core) balanceChanged(a *account) {} // G3
