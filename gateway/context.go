package gateway

// balanceChanged says that the balance of an account may have changed: the context of the next
// prompt reads it again.
func (c *Core) balanceChanged(a *account) { panic("G3") }
