// Package fiat starts, checks and reports the card rail of a service: its settings and keys, the account at Stripe that a
// database belongs to, and, in a sandbox without keys, the double of Stripe in this process. Orders are paid by [card].
package fiat

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
)

// Mode says whether fiat plans can be bought.
type Mode string

// Modes of the card rail.
const (
	Auto Mode = ""    // the keys; without them the double in a sandbox, off on live
	Off  Mode = "off" // no fiat plans
)

// Config says through which account fiat plans are paid. The zero value is the double in a sandbox, and off on live.
type Config struct {
	Mode Mode
	// SecretKey is that of the account, or a restricted one; SecretKeyFile names a file with it, of mode 0600. One of them.
	SecretKey, SecretKeyFile string
	PublishableKey           string // "": every page is Stripe's own
	// WebhookSecrets are one or two, the second while they are rotated. None: events are read by polling alone.
	WebhookSecrets []string
	// URL is that of a double (toll card-double); live refuses it. Empty is Stripe's, or the double in this process.
	URL string
	// DoubleListen is a loopback address for the pages of the double in this process; empty is a free port.
	DoubleListen string
	Tax          bool   // Stripe computes taxes, which prices include
	Invoices     bool   // Stripe makes an invoice of each page
	Descriptor   string // suffix on statements of the bank, at most 10 characters
}

// Check refuses settings that are wrong in every environment.
func (c *Config) Check() error { return errUnbuilt }

// CheckLive refuses keys of the test mode, the double, and a missing webhook secret on a public address.
func (c *Config) CheckLive() error { return errUnbuilt }

// Deps is what the rail has of the service.
type Deps struct {
	Store          *store.Store
	Ring           *seal.Ring // seals the keys of the double
	Auth           *auth.Auth // signs links, and has the key of hashes
	Clock, Machine func() time.Time
	Log            *slog.Logger
	Jobs           *jobs.Group // runs the loop, and ends the double
	Data           string      // directory of the double's state, "" for none
	PublicURL      string
	Webhook        string // path of the route of events, where the double sends them
	At             func(step string)
}

// Processor is the card rail of a service. A service without one has one, too, which is off. Its methods may be called at the
// same time.
type Processor struct {
	rail *card.Rail // nil: off
}

var errUnbuilt = errors.New("fiat: not built yet")

// New checks keys and environment, and makes the rail. It asks nobody, and starts nothing but the listener of a double.
func New(ctx context.Context, cfg Config, deps Deps) (*Processor, error) { return nil, errUnbuilt }

// Start pins the account of the database, as far as Stripe answers, and starts the loop. Errors: a database that was used with
// another account.
func (p *Processor) Start(ctx context.Context) error { return errUnbuilt }

// Rail returns the rail as checkout sees it, nil when it is off.
func (p *Processor) Rail() rail.Rail {
	if p.rail == nil {
		return nil
	}
	return p.rail
}

// Handle has the queue run the jobs of the rail. It does nothing when the rail is off.
func (p *Processor) Handle(q *jobs.Queue) {
	if r := p.rail; r != nil {
		q.Handle(store.JobCardSync, r.Sync)
		q.Handle(store.JobCardDecide, r.DecideAgain)
		q.Handle(store.JobCardRefund, r.SendRefund)
		q.Handle(store.JobCardDetach, r.Detach)
	}
}

// Receive returns what takes the webhooks of Stripe, nil when the rail is off.
func (p *Processor) Receive() func(ctx context.Context, signature string, body []byte) error {
	if p.rail == nil {
		return nil
	}
	return p.rail.Receive
}

// State is what /ready says: ok, double, failing, off.
func (p *Processor) State() string { return "off" }

// Finding is one line of doctor.
type Finding struct{ Level, Text string }

// Inspect checks keys, mode, account, permissions, webhook endpoints against the public address, version, orphans, and orders
// that could not take their payment.
func Inspect(ctx context.Context, cfg Config, deps Deps) []Finding { return nil }
