package server

import (
	"time"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/metrics"
)

// seenChain is what the metrics say of the chain.
func (s *Server) seenChain() metrics.Chain {
	seen := s.chain.Seen()
	out := metrics.Chain{Head: seen.Head, Relayers: map[string]float64{}, Cap: seen.Cap, Signed: seen.Signed}
	for address, wei := range seen.Relayers {
		out.Relayers[address.String()], _ = wei.Float64()
	}
	return out
}

// shownChain is what the API shows of the chain, nil when it is off.
func (s *Server) shownChain() *api.Chain {
	if s.chain.Rail() == nil {
		return nil
	}
	c := &api.Chain{Contracts: s.chain.Contracts(), Explorer: s.chain.Explorer(), Balances: s.chain.Balances}
	if s.chain.Embedded() {
		c.Faucet = s.chain.Faucet
	}
	return c
}

// orderWait is how long the answer to an order waits; 0 is the default of the API. The embedded chain pays at once or never.
func (s *Server) orderWait() time.Duration {
	if s.cfg.OrderWait == 0 && s.chain.Embedded() {
		return 10 * time.Second
	}
	return s.cfg.OrderWait
}
