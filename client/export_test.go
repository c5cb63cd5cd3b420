package client

// Remembered returns how many registrations of agents the payer remembers.
func (p *CreditsPayer) Remembered() int {
	return p.agents.Len()
}
