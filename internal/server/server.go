package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/metrics"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/purchases"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/internal/traces"
	"github.com/tollhq/toll/x402"
)

// Times of a shutdown. Their sum stays below 25 s (F22), and so below the 30 s after which supervisors kill.
const (
	drainTime = 18 * time.Second // for Config.Drain and then requests in flight
	closeTime = 5 * time.Second  // for background work and the queue of the ledger
	// MaxDrain is the longest Config.Drain. It leaves 8 s for requests in flight.
	MaxDrain = 10 * time.Second
	// lastConnections is the end of Config.Drain in which connections that were begun are accepted and their requests read: net/http closes
	// those whose request it reads later. It is below the second after which a client repeats its request for a connection.
	lastConnections = 900 * time.Millisecond
)

// Server is a running service, but for the listener. It is made by [New] and ends with [Server.Close].
type Server struct {
	cfg         Config
	base        *foundation
	ledger      *ledger.Ledger
	checkout    *checkout.Checkout
	keysFrom    ledger.KeyCursor // where the loop ledger.retain goes on
	facilitator *pay.Facilitator
	events      *events.Events
	oauth       *oauth.OAuth
	people      *people.People
	rails       *rails.Running
	handler     http.Handler
	metrics     *metrics.Metrics // nil: not wanted
	probe       probe
	queue       *jobs.Queue
	jobs        *jobs.Group // everything that a shutdown stops
	draining    atomic.Bool // a shutdown has begun
	restored    atomic.Bool // the database is marked: see Recovery
	backing     sync.Mutex  // one backup at a time
	backedUp    backupNotes
	backupDue   jobs.Signal // somebody asked for one
	alarms      recentAlarms
}

// New opens the database, brings its schema up to date, and starts the work in the background. The caller listens
// afterwards. Errors say what to set.
func New(ctx context.Context, cfg Config) (_ *Server, err error) {
	cfg = cfg.withDefaults()
	base, err := open(ctx, cfg, serving)
	if err != nil {
		return nil, err
	}
	cfg.Clock, cfg.Namespace = base.clock.now, base.names
	s := &Server{cfg: cfg, base: base, backupDue: jobs.NewSignal()}
	cfg.Log = slog.New(alarm.Count(traces.Log(cfg.Log.Handler()), s.alarms.note))
	s.cfg.Log, s.jobs = cfg.Log, jobs.NewGroup(cfg.Log)
	s.jobs.OnStop("database", func(context.Context) error { return base.store.Close() })
	defer func() {
		if err != nil {
			err = errors.Join(err, s.jobs.Stop(context.WithoutCancel(ctx)))
		}
	}()
	tracer, err := s.trace(ctx)
	if err != nil {
		return nil, err
	}
	a := base.auth
	follow := jobs.NewSignal()
	if cfg.Metrics {
		s.metrics = metrics.New(base.store, func() bool { return s.databaseFailure() == nil }, s.jobs)
		cfg.Log = slog.New(s.metrics.Alarms(cfg.Log.Handler()))
		s.cfg.Log = cfg.Log
	}
	s.ledger = ledger.New(base.store, ledger.Config{
		Clock: cfg.Clock, Log: cfg.Log, MACKey: a.MACKey(), Timer: s.metrics.TimeHandle, TimeBatch: s.metrics.TimeBatch, Counted: s.metrics.Settled,
		Changed: func(ledger.AccountID) { follow.Fire() },
	})
	s.metrics.Watch(s.ledger)
	s.metrics.Build(cfg.Release, base.ring.KeyID())
	s.metrics.Unmatched(func(ctx context.Context) (map[string]int64, error) { return store.CountOrphans(ctx, base.store) })
	s.metrics.Recovery(&s.restored)
	s.metrics.Money(base.store, base.clock.now)
	s.metrics.Chain(s.seenChain, base.clock.now)
	scheduled := s.lastBackup
	if cfg.Backups.Dir == "" {
		scheduled = nil
	}
	s.metrics.Backups(base.store, scheduled, base.clock.machine)
	s.jobs.OnStop("ledger", s.ledger.Close)
	deps := base.railDeps(cfg)
	deps.Jobs, deps.Ledger = s.jobs, s.ledger
	if s.rails, err = rails.Open(ctx, cfg.Rails, deps); err != nil {
		return nil, err
	}
	s.queue = jobs.NewQueue(base.store, base.clock.now, cfg.Log)
	if tracer != nil {
		s.queue.Under(traces.With(context.Background(), tracer))
	}
	s.checkout = checkout.New(checkout.Deps{
		Store: base.store, Ledger: s.ledger, Queue: s.queue, Rails: s.rails.Rails, Environment: a.Environment(), Clock: cfg.Clock, Log: cfg.Log,
		SignReference: a.SignReference, OpenReference: a.OpenReference, MaxSpendingCents: cfg.Rails.Chain.MaxLimitCents, MaxDelegationSecs: int64(cfg.Rails.Chain.MaxDuration / time.Second),
	})
	treasury, err := cfg.treasury()
	if err != nil {
		return nil, err
	}
	sold := catalogue.New(base.store, catalogue.Brand{Names: cfg.Namespace, Environment: a.Environment()}, cfg.Clock, cfg.Log)
	access := tokens.New(tokens.Deps{Store: base.store, Ledger: s.ledger, Auth: a, Checkout: s.checkout, Catalogue: sold, Clock: cfg.Clock, Format: cfg.TokenFormat, Quota: cfg.Quotas.Permissions})
	wallets := purchases.New(purchases.Deps{
		Store: base.store, Auth: a, Checkout: s.checkout, Catalogue: sold, Tokens: access, Clock: cfg.Clock, Log: cfg.Log,
		Policy: purchases.Policy(cfg.Exact), Treasury: treasury, Receipts: cfg.SignedReceipts, Wait: cfg.topUpWait,
	})
	s.facilitator = pay.New(pay.Deps{
		Store: base.store, Ledger: s.ledger, Auth: a, Checkout: s.checkout, Catalogue: sold, Tokens: access, Purchases: wallets, Clock: cfg.Clock, Log: cfg.Log,
		Pending: s.metrics.Pending, TopUpWait: cfg.topUpWait, Service: s.rails.Chain.Account(), FreeHolds: cfg.Quotas.FreeHolds, Horizon: cfg.horizon(),
	})
	if s.people, err = people.New(people.Deps{
		Store: base.store, Auth: a, Registration: cfg.Registration, NoPasswords: cfg.NoPasswords, PublicURL: s.PublicURL(), Seal: base.ring.Seal, Open: base.ring.Open,
		Clock: cfg.Clock, Log: cfg.Log, Mail: cfg.Mail, OIDC: cfg.OIDC, Accepts: s.acceptsByCode(),
	}); err != nil {
		return nil, err
	}
	s.events = events.New(events.Config{
		Store: base.store, Ledger: s.ledger, Settlements: s.facilitator.Requests.Settlements, Permission: s.facilitator.Tokens.Get,
		Delegation: s.checkout.Delegations.Record, Seal: base.ring.Seal, Open: base.ring.Open, Outbound: outbound.Config{Loopback: cfg.LoopbackWebhooks},
		Namespace: cfg.Namespace, Clock: cfg.Clock, Log: cfg.Log, Mail: s.people.Notices, PublicURL: s.PublicURL(), Horizon: cfg.horizon(), Removed: func(n int) { s.metrics.Retained("event", n) },
	})
	s.oauth = s.newOAuth()
	site, err := s.site()
	if err != nil {
		return nil, err
	}
	stripeEvents, _ := s.rails.Cards.Rail().(api.StripeEvents) // nil: there is no card rail
	limits := cfg.limits()
	limits.Clock = base.clock.machine // who moves the clock of a sandbox gets no more calls
	s.handler = s.metrics.Count(api.New(api.Deps{
		Store: base.store, Auth: a, Facilitator: s.facilitator, Checkout: s.checkout, Ledger: s.ledger, Events: s.events, People: s.people, Vault: base.ring,
		Service: api.Service{
			Namespace: cfg.Namespace, Environment: a.Environment(), PublicURL: s.PublicURL(), Release: cfg.Release, Clock: cfg.Clock,
			TestClock: &api.TestClock{Ahead: base.clock.ahead, Advance: s.advance}, Ready: s.ready,
		},
		Rails: api.Rails{Chain: s.shownChain(), StripeEvents: stripeEvents, Proof: s.rails.Chain.Proof()}, Site: site,
		Policy:    api.Policy{Quotas: cfg.Quotas, Limits: limits, OrderWait: s.orderWait(), CloseReads: cfg.CloseReads, IgnoreOrganizations: cfg.IgnoreOrganizations},
		Telemetry: api.Telemetry{Log: cfg.Log, Traced: tracer != nil, Refused: s.metrics.Refused},
	}))
	if tracer != nil {
		s.handler = traces.Handler(s.handler, tracer)
	}
	s.queue.Handle(store.JobEndKey, a.FinishKey)
	s.queue.Handle(store.JobEndGrant, s.oauth.FinishGrant)
	for _, r := range s.rails.All() {
		r.Handle(s.queue)
	}
	if base.store.Engine() == store.SQLite { // there is one service on a directory
		if err := base.store.Tx(ctx, func(tx *store.Tx) error { return store.FreeHeld(ctx, tx) }); err != nil {
			return nil, err
		}
	}
	for _, r := range s.rails.All() {
		if err := r.Start(ctx); err != nil {
			return nil, err
		}
	}
	s.jobs.OnStop("oauth", func(context.Context) error { s.oauth.Close(); return nil })
	s.jobs.Start(s.loops()...)
	s.jobs.Start(s.queue.Loops()...)
	s.jobs.Start(jobs.Loop{
		Name: "ledger.follow", Every: time.Second, Gather: 20 * time.Millisecond, Wake: follow,
		Run: jobs.Sweep(func(ctx context.Context) (bool, error) { return s.ledger.Follow(ctx, s.events.Consumer()) }),
	})
	// Nothing wakes this loop: the more entries it finds, the fewer rows it writes for each.
	s.jobs.Start(jobs.Loop{Name: "usage.count", Every: 2 * time.Second, Run: jobs.Sweep(s.ledger.CountUsage)})
	s.jobs.Start(jobs.Loop{Name: "refusals.write", Every: pay.RefusalsEvery, Run: jobs.Do(s.facilitator.WriteRefusals), End: s.facilitator.WriteRefusals})
	s.jobs.Start(s.events.Loops()...)
	s.jobs.Start(s.people.Notices.Loops()...)
	return s, nil
}

// Handler returns the public handler: documents at the root and the API.
func (s *Server) Handler() http.Handler { return s.handler }

// Namespace returns the brand words of the service, which are those of its database.
func (s *Server) Namespace() x402.Namespace { return s.cfg.Namespace }

// PublicURL returns the address under which callers reach the service, without a path of the API.
func (s *Server) PublicURL() string { return publicURL(s.base.auth.Issuer()) }

// Chain returns the chain of the service, which may be off.
func (s *Server) Chain() *rails.Chain { return s.rails.Chain }

// Cards returns the card rail of the service, which may be off.
func (s *Server) Cards() *rails.Cards { return s.rails.Cards }

// Reload reads the files with secrets again that may change while the service runs: those of the card processor. The key of an object
// store is read for each backup. On an error the old secrets stay in use.
func (s *Server) Reload(ctx context.Context) error { return s.rails.Cards.Reload(ctx) }

func (s *Server) Environment() toll.Environment { return s.base.auth.Environment() }

// Engine returns the word of the database: "sqlite" or "postgres".
func (s *Server) Engine() string { return string(s.base.store.Engine()) }

// Metrics returns the handler of the operator's own listener, which must not be reachable for callers of the service.
func (s *Server) Metrics() http.Handler { return metrics.Handler(s.metrics, s.jobs) }

// Facilitator returns the facilitator as a caller sees it, without a network between.
func (s *Server) Facilitator(caller toll.Address) x402.Facilitator { return s.facilitator.As(caller) }

// ready says what works, from memory: it waits for nothing. Only the database, and a shutdown that
// has begun, decide whether requests can be served.
func (s *Server) ready(context.Context) map[string]string {
	checks := map[string]string{"database": "ok"}
	for i, r := range s.rails.All() {
		checks[rails.Kinds[i].Check] = r.State()
	}
	if s.databaseFailure() != nil {
		checks["database"] = "failing"
	}
	if s.restored.Load() {
		checks["recovery"] = "open"
	}
	if s.draining.Load() {
		checks[api.CheckShutdown] = "draining"
	}
	return checks
}

// Close ends the work in the background, empties the queue of the ledger and closes the database. Callers have stopped
// serving before. It takes 5 s at most, unless ctx has a deadline. It may be called more than once.
func (s *Server) Close(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, closeTime)
		defer cancel()
	}
	return s.jobs.Stop(ctx)
}
