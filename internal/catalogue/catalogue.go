// Package catalogue keeps what is sold: plans and agents as payments are checked against them, and the public list of what can be
// bought. A record is at most a second old, the list five seconds; a change made by this process shows at once.
package catalogue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/recent"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	recordTTL   = time.Second // a stale "yes" is harmless for so long
	recordBound = 1 << 14
)

// Catalogue reads plans and agents, and lists what can be bought. Safe for concurrent use.
type Catalogue struct {
	Brand Brand
	store *store.Store
	clock func() time.Time
	log   *slog.Logger

	plans    *recent.Reader[toll.PlanID, *toll.Plan]
	agents   *recent.Reader[toll.AgentID, *Agent]
	agentsOf *recent.Reader[toll.PlanID, []toll.AgentID]

	listing      *recent.Reader[struct{}, *listing]
	last         *listing // the next one shares with it what did not change
	changedMu    sync.Mutex
	changed      map[string]bool // see [Catalogue.noteChange]
	searching    chan struct{}   // has a value while a search runs
	declarations *recent.Reader[declaredKey, store.Discovered]
}

// Agent is an agent with its endpoints ready to be matched.
type Agent struct {
	*toll.Agent
	Endpoints *x402.Endpoints
}

// New returns the catalogue of a store. log may be nil.
func New(st *store.Store, b Brand, clock func() time.Time, log *slog.Logger) *Catalogue {
	b.Names, b.Environment = cmp.Or(b.Names, x402.Default), cmp.Or(b.Environment, toll.Sandbox)
	c := &Catalogue{Brand: b, store: st, clock: clock, log: cmp.Or(log, slog.New(slog.DiscardHandler)), searching: make(chan struct{}, 1)}
	c.plans = recent.New(clock, recordTTL, recordBound, func(ctx context.Context, id toll.PlanID) (*toll.Plan, error) {
		return store.PlanByID(ctx, st, id)
	})
	c.agents = recent.New(clock, recordTTL, recordBound, func(ctx context.Context, id toll.AgentID) (*Agent, error) {
		a, err := store.AgentByID(ctx, st, id)
		if err != nil {
			return nil, err
		}
		return &Agent{a, x402.NewEndpoints(a.API.Endpoints)}, nil
	})
	c.agentsOf = recent.New(clock, recordTTL, recordBound, func(ctx context.Context, id toll.PlanID) ([]toll.AgentID, error) {
		return store.AgentIDsOfPlan(ctx, st, id, 2)
	})
	c.listing = recent.New(clock, listingTTL, 1, c.readListing)
	c.declarations = recent.New(clock, declaredEvery, declaredBound, func(ctx context.Context, k declaredKey) (store.Discovered, error) {
		d, err := store.DiscoveredOf(ctx, st, k.agent, k.verb, k.url)
		return d, store.NotFoundAs(err, nil) // the zero value while no payment has described the endpoint
	})
	return c
}

// Plan returns a plan, or an error with the code unknown when it does not exist.
func (c *Catalogue) Plan(ctx context.Context, id toll.PlanID, unknown toll.Code) (*toll.Plan, *toll.Error) {
	p, _, err := c.plans.Get(ctx, id)
	return found(p, err, unknown, "planId "+string(id))
}

// Agent returns an agent, or [toll.CodePaymentAgentNotFound]. cached reports that it was not read for this call.
func (c *Catalogue) Agent(ctx context.Context, id toll.AgentID) (a *Agent, cached bool, e *toll.Error) {
	a, cached, err := c.agents.Get(ctx, id)
	a, e = found(a, err, toll.CodePaymentAgentNotFound, "agentId "+string(id))
	return a, cached, e
}

// AgentNow is [Catalogue.Agent] from a read that began after the call.
func (c *Catalogue) AgentNow(ctx context.Context, id toll.AgentID) (*Agent, *toll.Error) {
	a, err := c.agents.Read(ctx, id)
	return found(a, err, toll.CodePaymentAgentNotFound, "agentId "+string(id))
}

// AgentsOf returns at most two agents of a plan: enough to know whether it has exactly one.
func (c *Catalogue) AgentsOf(ctx context.Context, id toll.PlanID) (ids []toll.AgentID, cached bool, err error) {
	return c.agentsOf.Get(ctx, id)
}

// found turns the result of a read into a record or an error with this code.
func found[T any](v *T, err error, unknown toll.Code, details string) (*T, *toll.Error) {
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, store.ErrNotFound):
		return nil, toll.NewError(unknown).WithDetails("%s", details)
	}
	return nil, toll.AsError(err)
}

// Reread makes the next calls read an agent and the agents of a plan again.
func (c *Catalogue) Reread(agent toll.AgentID, plan toll.PlanID) {
	c.agents.Forget(agent)
	c.agentsOf.Forget(plan)
}

// ForgetPlan makes a change to a plan by this process visible at once. Other processes see it within a second.
func (c *Catalogue) ForgetPlan(id toll.PlanID) {
	c.plans.Forget(id)
	c.agentsOf.Forget(id)
	c.noteChange(string(id))
}

// ForgetAgent makes a change to an agent by this process visible at once. Other processes see it within a second. A caller that
// attached or detached plans forgets those too.
func (c *Catalogue) ForgetAgent(id toll.AgentID) {
	c.agents.Forget(id)
	c.noteChange(string(id))
}
