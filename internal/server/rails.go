package server

import (
	"context"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/fiat"
	"github.com/tollhq/toll/internal/ledger"
)

// connect opens the chain and the card processor of the settings, and takes them as rails, unless those were given.
func (s *Server) connect(ctx context.Context) (err error) {
	chain, cards := s.cfg.Chain, s.cfg.Card
	if s.cfg.Rails.Crypto != nil {
		chain = crypto.Config{Mode: crypto.Off}
	}
	if s.cfg.Rails.Card != nil {
		cards = fiat.Config{Mode: fiat.Off}
	}
	deps := s.base.chainDeps(s.cfg, s.ledger)
	deps.Jobs = s.jobs
	if s.chain, err = crypto.New(ctx, chain, deps); err != nil {
		return err
	}
	s.jobs.OnStop("chain", s.chain.Close)
	cardDeps := s.base.cardDeps(s.cfg)
	cardDeps.Jobs = s.jobs
	if s.cards, err = fiat.New(ctx, cards, cardDeps); err != nil {
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

// chainDeps is what the chain has of a database; books are nil where nothing is mirrored.
func (f *foundation) chainDeps(cfg Config, books *ledger.Ledger) crypto.Deps {
	return crypto.Deps{
		Store: f.store, Ring: f.ring, Auth: f.auth, Ledger: books,
		Clock: f.clock.now, Machine: f.clock.machine, Log: cfg.Log, Data: cfg.Data, At: cfg.at,
	}
}

// cardDeps is what the card rail has of a database.
func (f *foundation) cardDeps(cfg Config) fiat.Deps {
	return fiat.Deps{
		Store: f.store, Ring: f.ring, Auth: f.auth, Clock: f.clock.now, Machine: f.clock.machine, Log: cfg.Log, Data: cfg.Data, At: cfg.at,
		PublicURL: publicURL(f.auth.Issuer()), Listen: cfg.listenURL(), Webhook: api.PathStripeEvent,
	}
}
