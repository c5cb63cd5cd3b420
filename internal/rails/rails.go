// Package rails starts, checks, and reports the two rails of a service: the chain, on which wallets pay (package chain), and the card
// processor (package card). It holds their settings, keys, and supervision, and lists payments without an order.
package rails

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// Kind describes a rail to operators: its name in orders, its check in GET /ready, the plans that it pays, and the owner of its settings.
type Kind struct{ Name, Check, Plans, Settings string }

// Kinds lists the rails.
var Kinds = []Kind{
	{Name: rail.Crypto, Check: "chain", Plans: "crypto plans", Settings: "the chain"},
	{Name: rail.Card, Check: "card", Plans: "plans in USD and EUR", Settings: "Stripe"},
}

// Config holds the settings of every rail. The zero value has the rails of a sandbox.
type Config struct {
	Chain ChainConfig
	Card  CardConfig
	Given rail.Rails // in place of those of the settings, for tests
}

// All returns the settings of each rail.
func (c *Config) All() []Settings { return []Settings{&c.Chain, &c.Card} }

// Check rejects settings that are wrong in every environment. No error contains a secret.
func (c *Config) Check() (err error) {
	for _, s := range c.All() {
		err = errors.Join(err, s.Check())
	}
	return err
}

// CheckIn rejects settings that are wrong in one environment.
func (c *Config) CheckIn(env toll.Environment) (err error) {
	for _, s := range c.All() {
		err = errors.Join(err, s.CheckIn(env))
	}
	return err
}

// Settings are the settings of one rail.
type Settings interface {
	Check() error
	CheckIn(toll.Environment) error
	Inspect(context.Context, Deps, check.Report) // reports what the rail lacks, and writes and starts nothing
}

// Service is one running rail. A rail that is off has a service too.
type Service interface {
	Rail() rail.Rail    // nil when the rail is off
	Handle(*jobs.Queue) // registers the jobs of the rail, before Start
	Start(context.Context) error
	State() string // for /ready: off, ok, or failing
}

// Running are the rails of a service.
type Running struct {
	Chain *Chain
	Cards *Cards
	Rails rail.Rails // that are not off
}

// Open opens the rails of the settings, except those that were given.
func Open(ctx context.Context, cfg Config, deps Deps) (r *Running, err error) {
	if cfg.Given[rail.Crypto] != nil {
		cfg.Chain = ChainConfig{Mode: ChainOff}
	}
	if cfg.Given[rail.Card] != nil {
		cfg.Card = CardConfig{Mode: CardOff}
	}
	r = &Running{Rails: rail.Rails{}}
	if r.Chain, err = NewChain(ctx, cfg.Chain, deps); err != nil {
		return nil, err
	}
	deps.Jobs.OnStop("chain", r.Chain.Close)
	if r.Cards, err = NewCards(ctx, cfg.Card, deps); err != nil {
		return nil, err
	}
	for i, s := range r.All() {
		if by := s.Rail(); by != nil {
			r.Rails[Kinds[i].Name] = by
		}
	}
	maps.Copy(r.Rails, cfg.Given)
	return r, nil
}

// All returns the rails in the order of [Kinds].
func (r *Running) All() []Service { return []Service{r.Chain, r.Cards} }

// Deps are the parts of the service that rails use.
type Deps struct {
	Store  *store.Store
	Ring   *seal.Ring     // seals the keys of the accounts on the chain and of the card double
	Auth   *auth.Auth     // holds wallets of workspaces, signs links, and has the key of hashes
	Ledger *ledger.Ledger // chain only: the burns for the mirror; nil for inspection
	// Clock is the clock of the service. In a sandbox it may be ahead of Machine, the clock of the machine.
	Clock, Machine func() time.Time
	Log            *slog.Logger
	Jobs           *jobs.Group // runs the loops, and stops the card double
	// Data is the directory of the embedded chain and of the card double, empty for none.
	Data string
	// PublicURL is the origin of the service for browsers, Listen its origin on this machine, and Webhook the path of Stripe's events.
	PublicURL, Listen, Webhook string
	// At is called between the steps of a rail by tests, nil otherwise.
	At func(step string)
}
