package server

import (
	"cmp"
	"time"
)

// StopAt has f called between the steps of the crypto rail, so that a test ends the process there.
func (c *Config) StopAt(f func(step string)) { c.at = f }

// WaitForOrders sets how long a request waits for the order of missing credits.
func (c *Config) WaitForOrders(d time.Duration) { c.topUpWait = d }

// WaitLong has answers wait for orders as long as clients do, unless a test has said how long, and gives a shutdown minutes: the times
// of a service can be too few on a slow machine, or one that stands still for a while.
func (c *Config) WaitLong() {
	const long = 40 * time.Second
	c.OrderWait, c.topUpWait = cmp.Or(c.OrderWait, long), cmp.Or(c.topUpWait, long)
	c.end = 2 * time.Minute
}
