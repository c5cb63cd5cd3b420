package client

import "time"

// Remembered returns how many registrations of agents the payer remembers.
func (p *CreditsPayer) Remembered() int {
	return p.agents.Len()
}

// SetClock replaces the clock of a client.
func (c *Client) SetClock(now func() time.Time) { c.now = now }
