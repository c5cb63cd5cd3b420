package checkout

// Failpoint has f called at every step of an order, so that a test stops the machine there; nil ends that.
func (c *Checkout) Failpoint(f func(at string)) {
	if f == nil {
		c.onFailpoint.Store(nil)
		return
	}
	c.onFailpoint.Store(&f)
}
