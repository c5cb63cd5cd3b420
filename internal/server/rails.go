package server

import (
	"context"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/rails"
)

// connect opens the chain and the card processor of the settings and uses them as rails, except where the caller gave a rail.
func (s *Server) connect(ctx context.Context) (err error) {
	chain, cards := s.cfg.Chain, s.cfg.Card
	if s.cfg.Rails.Crypto != nil {
		chain = rails.ChainConfig{Mode: rails.ChainOff}
	}
	if s.cfg.Rails.Card != nil {
		cards = rails.CardConfig{Mode: rails.CardOff}
	}
	deps := s.base.railDeps(s.cfg)
	deps.Jobs, deps.Ledger = s.jobs, s.ledger
	if s.chain, err = rails.NewChain(ctx, chain, deps); err != nil {
		return err
	}
	s.jobs.OnStop("chain", s.chain.Close)
	if s.cards, err = rails.NewCards(ctx, cards, deps); err != nil {
		return err
	}
	if s.cfg.Rails.Crypto == nil {
		s.cfg.Rails.Crypto = s.chain.Rail()
	}
	if s.cfg.Rails.Card == nil {
		s.cfg.Rails.Card = s.cards.Rail()
	}
	return nil
}

// railDeps returns the parts of a database that rails use, without loops and books.
func (f *foundation) railDeps(cfg Config) rails.Deps {
	return rails.Deps{
		Store: f.store, Ring: f.ring, Auth: f.auth, Clock: f.clock.now, Machine: f.clock.machine, Log: cfg.Log, Data: cfg.Data, At: cfg.at,
		PublicURL: publicURL(f.auth.Issuer()), Listen: cfg.listenURL(), Webhook: api.PathStripeEvent,
	}
}
