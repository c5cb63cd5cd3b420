// Package rails starts, checks, and reports the two rails of a service: the chain, on which wallets pay (package chain), and the card
// processor (package card). It holds their settings, keys, and supervision, and lists payments without an order.
package rails

import (
	"context"
	"log/slog"
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

// Settings are the settings of one rail: [ChainConfig] or [CardConfig].
type Settings interface {
	// Check rejects settings that are wrong in every environment. No error contains a secret.
	Check() error
	// CheckIn rejects settings that are wrong in one environment.
	CheckIn(toll.Environment) error
	// Inspect reports what the rail lacks. It writes nothing and starts nothing.
	Inspect(context.Context, Deps, check.Report)
}

// Service is one running rail: [Chain] or [Cards]. A rail that is off has a service too.
type Service interface {
	Rail() rail.Rail    // nil when the rail is off
	Handle(*jobs.Queue) // registers the jobs of the rail, before Start
	Start(context.Context) error
	State() string // for /ready: off, ok, or failing
}

var (
	_ Settings = (*ChainConfig)(nil)
	_ Settings = (*CardConfig)(nil)
	_ Service  = (*Chain)(nil)
	_ Service  = (*Cards)(nil)
)

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
