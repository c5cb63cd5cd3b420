package server

import (
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/metrics"
	"github.com/tollhq/toll/internal/rails"
)

// railDeps returns the parts of a database that rails use, without loops and books.
func (f *foundation) railDeps(cfg Config) rails.Deps {
	return rails.Deps{
		Store: f.store, Ring: f.ring, Auth: f.auth, Clock: f.clock.now, Machine: f.clock.machine, Log: cfg.Log, Data: cfg.Data, At: cfg.at,
		PublicURL: publicURL(f.auth.Issuer()), Listen: cfg.listenURL(), Webhook: api.PathStripeEvent,
	}
}

// seenChain is what the metrics say of the chain.
func (s *Server) seenChain() metrics.Chain {
	seen := s.rails.Chain.Seen()
	out := metrics.Chain{Head: seen.Head, Relayers: map[string]float64{}, Cap: seen.Cap, Signed: seen.Signed}
	for address, wei := range seen.Relayers {
		out.Relayers[toll.Address(address).String()], _ = wei.Float64()
	}
	return out
}

// shownChain is what the API shows of the chain, nil when it is off.
func (s *Server) shownChain() *api.Chain {
	if s.rails.Chain.Rail() == nil {
		return nil
	}
	c := &api.Chain{Contracts: s.rails.Chain.Contracts(), Explorer: s.rails.Chain.Explorer(), Balances: s.rails.Chain.Balances}
	if s.rails.Chain.Embedded() {
		c.Faucet = s.rails.Chain.Faucet
	}
	return c
}

// orderWait is how long the answer to an order waits; 0 is the default of the API. The embedded chain pays at once or never.
func (s *Server) orderWait() time.Duration {
	if s.cfg.OrderWait == 0 && s.rails.Chain.Embedded() {
		return 10 * time.Second
	}
	return s.cfg.OrderWait
}
