package server

import "time"

// StopAt has f called between the steps of the crypto rail, so that a test ends the process there.
func (c *Config) StopAt(f func(step string)) { c.at = f }

// WaitForOrders sets how long a request waits for the order of missing credits.
func (c *Config) WaitForOrders(d time.Duration) { c.topUpWait = d }
