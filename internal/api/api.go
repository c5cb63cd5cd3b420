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
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/pay"
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
	Facilitator *pay.Facilitator
	Checkout    *checkout.Checkout
	Ledger      *ledger.Ledger
	Events      *events.Events
	People      *people.People // nil: there are none, and no sessions
	Vault       Vault
	Service     Service
	Rails       Rails
	Policy      Policy
	Site        Site
	Telemetry   Telemetry
}

// Vault encrypts upstream secrets of agents and stored answers, bound to the second argument.
type Vault interface {
	Seal(plain, aad []byte) ([]byte, error)
	Open(sealed, aad []byte) ([]byte, error)
}

type Service struct {
	Namespace   x402.Namespace                          // zero: x402.Default
	Environment toll.Environment                        // zero: toll.Sandbox
	PublicURL   string                                  // as callers know it, without a path. Host and forwarding headers are ignored
	Release     string                                  // version of the program
	Clock       func() time.Time                        // nil: the clock of the machine
	TestClock   *TestClock                              // moves Clock in a sandbox; nil: it cannot be moved, and has no routes
	Ready       func(context.Context) map[string]string // words ok, failing and off by check
}

// Rails are the ways to pay, as far as the API shows them. Proof proves that a burn is in the mirror on the chain; a burn that is not
// there yet has only the status open.
type Rails struct {
	Chain        *Chain                                                    // nil: no plan is paid on a chain
	StripeEvents StripeEvents                                              // nil: there is no card rail
	Proof        func(context.Context, toll.Hash) (*toll.BurnProof, error) // nil: there is no mirror
}

// Policy limits what callers may do.
type Policy struct {
	Quotas      Quotas        // of one account
	Limits      Limits        // rate of calls; zero: no limit
	OrderWait   time.Duration // how long the answer to an order waits for its credits, 0 = 30 s
	BodyTimeout time.Duration // how long a body may take to arrive, besides a second for each 16 KiB; 0 = 10 s
	CloseReads  bool          // plans, agents and balances, which are public otherwise, need a key
	// IgnoreOrganizations accepts a call even if its X-Current-Org-Id header names another workspace than its API key belongs to.
	IgnoreOrganizations bool
}

// Site has the pages that are served beside the API. NoPage shows a person that an address has no page (404), or takes only forms
// (405); nil: people get JSON, as programs do.
type Site struct {
	Pages  []Page
	Look   Look // of the documentation; nil: it has no styles
	NoPage func(w http.ResponseWriter, r *http.Request, status int)
}

// Telemetry observes calls. Refused is called once for each answer that refuses or fails, with its code, and must not block.
type Telemetry struct {
	Log     *slog.Logger // nil: silence
	Traced  bool         // requests have spans, which get the operation and its correlation id
	Refused func(toll.Code)
}

func (d Deps) withDefaults() Deps {
	d.Service.Namespace, d.Service.Environment = cmp.Or(d.Service.Namespace, x402.Default), cmp.Or(d.Service.Environment, toll.Sandbox)
	d.Service.PublicURL = strings.TrimRight(d.Service.PublicURL, "/")
	if d.Service.Clock == nil {
		d.Service.Clock = time.Now
	}
	d.Policy.OrderWait, d.Policy.BodyTimeout = cmp.Or(d.Policy.OrderWait, orderWait), cmp.Or(d.Policy.BodyTimeout, pace.Patience)
	d.Telemetry.Log = cmp.Or(d.Telemetry.Log, slog.New(slog.DiscardHandler))
	if d.Telemetry.Refused == nil {
		d.Telemetry.Refused = func(toll.Code) {}
	}
	return d
}

// handler is what all routes share: it finds the route of a request, lets the caller in, and writes the answer.
type handler struct {
	Service
	Policy
	Telemetry
	store        *store.Store
	people       *people.People
	vault        Vault
	clock        clock
	noPage       func(w http.ResponseWriter, r *http.Request, status int)
	authenticate func(context.Context, []string) (auth.Caller, error)
	routes       *router
	gatekeeper   *gatekeeper // nil: no limits
	network      string
	cookie       string // name of that with the session of a browser
	docsBase     string
	flows        map[string]*meter.Quota // by their names
	exports      exports
	recent       *recentCalls
	large        chan struct{} // a place for each large answer that is being made
	bodies       *x402.Bodies  // of verify and settle

	versionHeader, fromHeader string // in the form of http.Header keys
	versionTexts              map[apiversion.Version][]string
	corsMethods, corsHeaders  []string
	exposed                   []string
	documents                 *documents
}

// New returns the whole public handler: the documents at the root and the API under [Base].
func New(d Deps) http.Handler {
	d = d.withDefaults()
	recent := &recentCalls{since: d.Service.Clock()}
	h := newHandler(d, table(d, recent))
	h.authenticate, h.recent = d.Auth.Authenticate, recent
	return h
}

func newHandler(d Deps, routes []route) *handler {
	d = d.withDefaults()
	if d.Policy.CloseReads {
		routes = closeReads(routes)
	}
	h := &handler{
		Service: d.Service, Policy: d.Policy, Telemetry: d.Telemetry, store: d.Store, people: d.People, vault: d.Vault, clock: d.Service.Clock, noPage: d.Site.NoPage,
		network: d.Service.Environment.Network(), docsBase: d.Service.PublicURL + "/docs/errors",
		flows: newFlows(d.Policy.Quotas), large: make(chan struct{}, maxLarge), bodies: x402.NewBodies(), recent: &recentCalls{},
		documents: newDocuments(routes, d.Service.Namespace, d.Service.PublicURL, d.Site.Look), gatekeeper: newGatekeeper(d.Policy.Limits),
	}
	pages := pageRoutes(slices.Concat(d.Site.Pages, h.documents.docRoutes()))
	live := h.Environment != toll.Sandbox || h.TestClock == nil
	served := slices.DeleteFunc(slices.Clone(routes), func(r route) bool { return r.sandbox && live })
	h.routes = newRouter(append(served, pages...))
	if u, err := url.Parse(h.PublicURL); err == nil {
		h.cookie = people.CookieName(u)
	}
	h.prepareHeaders()
	return h
}
