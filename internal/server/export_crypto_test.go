package server

import (
	"cmp"
	"time"
)

// StopAt has f called between the steps of the crypto rail, so that a test ends the process there.
func (c *Config) StopAt(f func(step string)) { c.at = f }

// WaitForOrders sets how long a request waits for the order of missing credits.
func (c *Config) WaitForOrders(d time.Duration) { c.topUpWait = d }

// WaitLong has answers wait for orders as long as clients do, unless a test has said how long.
func (c *Config) WaitLong() {
	const long = 40 * time.Second
	c.OrderWait, c.topUpWait = cmp.Or(c.OrderWait, long), cmp.Or(c.topUpWait, long)
}
