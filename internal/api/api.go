// Package api is the REST surface: one table of routes, and around it the things that every answer has in common. It
// reads records from the store and leaves acts on credits to the rooms that know their rules.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/apiversion"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/facilitator"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Base is the path under which the API lives. Documents about the service lie at the root.
const Base = "/api/v1"

// Deps is what the API is built on.
type Deps struct {
	Store       *store.Store
	Auth        *auth.Auth
	Facilitator *facilitator.Facilitator
	Checkout    *checkout.Checkout
	Ledger      *ledger.Ledger
	Events      *events.Events
	People      *people.People // nil: there are none, and no sessions
	// Seal hides upstream secrets of agents and kept answers at rest, bound to the second argument, and Open reads them again.
	Seal        func(plain, aad []byte) ([]byte, error)
	Open        func(sealed, aad []byte) ([]byte, error)
	Namespace   x402.Namespace   // zero: x402.Default
	Environment toll.Environment // zero: toll.Sandbox
	// PublicURL is the address of the service as callers know it, without a path. Host and forwarding headers are never
	// believed.
	PublicURL string
	Release   string                                  // version of the program
	Clock     func() time.Time                        // nil: the clock of the machine
	Log       *slog.Logger                            // nil: silence
	Ready     func(context.Context) map[string]string // words ok, failing and off by check
	// Proof proves that a burn is in the mirror on the chain; one that is not there yet has the status open alone. nil: nothing
	// is mirrored.
	Proof func(context.Context, toll.Hash) (*toll.BurnProof, error)
	// Chain is where crypto plans are paid; nil: nowhere.
	Chain        *Chain
	StripeEvents StripeEvents // nil: there is no card rail
	// Pages are answered by other rooms.
	Pages []Page
	// NoPage shows a person that an address has no page (404), or takes only forms (405). nil: people get JSON, as programs do.
	NoPage func(w http.ResponseWriter, r *http.Request, status int)
	// Traced says that requests have spans, which are told what they are about.
	Traced bool
	// Quotas bound what one account may have, and what it may add in an hour.
	Quotas Quotas
	// OrderWait is how long the answer to an order waits for its credits, 0 = 30 s.
	OrderWait time.Duration
	// CloseReads asks for a key where plans, agents and balances are read, which otherwise anybody may.
	CloseReads bool
	// IgnoreOrganizations accepts a call even if its X-Current-Org-Id header names another workspace than its API key belongs to.
	IgnoreOrganizations bool
	// TestClock is the clock of a sandbox behind Clock; nil: it cannot be moved, and has no routes.
	TestClock *TestClock
	// Limits bound the rate of calls; zero: no limit.
	Limits Limits
	// Refused is called once for each answer that refuses or fails, with its code, and must not block; nil: nobody counts.
	Refused func(toll.Code)
	// Patience is how long a body may take on its way, besides a second for each 16 KiB; 0 = 10 s.
	Patience time.Duration
}

type handler struct {
	Deps
	log          *slog.Logger
	authenticate func(context.Context, []string) (auth.Caller, error)
	routes       *router
	gatekeeper   *gatekeeper // nil: no limits
	network      string
	cookie       string // name of that with the session of a browser
	docsBase     string
	flows        map[string]*meter.Quota // by their names
	exports      exports
	recent       recentCalls
	started      time.Time
	large        chan struct{} // a place for each large answer that is being made
	bodies       *x402.Bodies  // of verify and settle

	versionHeader, fromHeader string // in the form of http.Header keys
	versionTexts              map[apiversion.Version][]string
	corsMethods, corsHeaders  []string
	exposed                   []string

	documents *documents
}

// New returns the whole public handler: the documents at the root and the API under [Base].
func New(d Deps) http.Handler {
	h := newHandler(d, table())
	h.authenticate = d.Auth.Authenticate
	return h
}

func newHandler(d Deps, routes []route) *handler {
	d.Namespace = cmp.Or(d.Namespace, x402.Default)
	d.Environment = cmp.Or(d.Environment, toll.Sandbox)
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Refused == nil {
		d.Refused = func(toll.Code) {}
	}
	d.OrderWait, d.Patience = cmp.Or(d.OrderWait, orderWait), cmp.Or(d.Patience, pace.Patience)
	if d.CloseReads {
		routes = closeReads(routes)
	}
	d.PublicURL = strings.TrimRight(d.PublicURL, "/")
	h := &handler{
		Deps: d, log: cmp.Or(d.Log, slog.New(slog.DiscardHandler)), network: d.Environment.Network(), docsBase: d.PublicURL + "/docs/errors",
		flows: newFlows(d.Quotas), large: make(chan struct{}, maxLarge), bodies: x402.NewBodies(), started: d.Clock(),
	}
	pages := pageRoutes(slices.Concat(d.Pages, h.docRoutes()))
	h.routes = newRouter(append(routesFor(routes, d.Environment == toll.Sandbox && d.TestClock != nil), pages...))
	if u, err := url.Parse(d.PublicURL); err == nil {
		h.cookie = people.CookieName(u)
	}
	h.gatekeeper = newGatekeeper(d.Limits)
	h.prepareHeaders()
	h.documents = newDocuments(routes, d.Namespace)
	return h
}

// routesFor leaves out what a live service does not have.
func routesFor(routes []route, sandbox bool) []route {
	return slices.DeleteFunc(slices.Clone(routes), func(r route) bool { return r.sandbox && !sandbox })
}
