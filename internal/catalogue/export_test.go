package catalogue

import "github.com/tollhq/toll"

// WithinRoom chooses the agents that fit into the listing.
var WithinRoom = withinRoom

// Listed returns what the listing holds of an agent.
func (c *Catalogue) Listed(id toll.AgentID) any { return c.last.agents[id] }

// TakeSearch takes the slot of the one search that runs at a time. The caller calls done.
func (c *Catalogue) TakeSearch() (done func()) {
	c.searching <- struct{}{}
	return func() { <-c.searching }
}
