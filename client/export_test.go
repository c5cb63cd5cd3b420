package client

// Remembered returns how many registrations of agents the payer remembers.
func (p *CreditsPayer) Remembered() int {
	p.agents.mu.Lock()
	defer p.agents.mu.Unlock()
	return len(p.agents.known)
}
