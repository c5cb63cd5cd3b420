package client

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	// directoryLife is the life of a cached registration.
	directoryLife = time.Minute
	// directorySize bounds the cache.
	directorySize = 256
	// maxPlanAgents bounds the agents that are checked for an entry without an agent.
	maxPlanAgents = 100
)

type directoryKey struct {
	called string // origin
	plan   toll.PlanID
	agent  toll.AgentID // "" for any agent of the plan
}

// registration is where the agents of an entry are registered.
type registration struct {
	here      bool   // at the server that demands payment
	elsewhere string // the host of the first endpoint with one, or ""
}

// checkAgent returns an error for an entry whose agent is not registered at the called server: that server could have copied the
// demand of another server, to spend the payment there. Errors are safe to show.
func (p *CreditsPayer) checkAgent(ctx context.Context, called *url.URL, plan toll.PlanID, e *x402.Entry) error {
	k := directoryKey{called: origin(called), plan: plan}
	whose := "an agent of plan " + string(plan)
	if named := cmp.Or(e.Agent(), p.agent); named != "" {
		var err error
		if k.agent, err = toll.ParseAgentID(string(named)); err != nil {
			return fmt.Errorf("the payment option has an invalid agent id: %.90q", string(named))
		}
		whose = "agent " + string(k.agent)
	}
	if p.agent != "" && k.agent != p.agent {
		return fmt.Errorf("the server requires payment for %s, but this client may pay only agent %s", whose, p.agent)
	}
	r, ok := p.agents.Get(k, p.c.now())
	if !ok {
		var err error
		if r, err = p.register(ctx, k); err != nil {
			return fmt.Errorf("cannot read where %s is registered: %w", whose, err)
		}
		now := p.c.now()
		p.agents.Put(k, r, now.Add(directoryLife), now)
	}
	here := HostOf(called)
	vouched := func(host string) bool { return strings.EqualFold(host, here) }
	switch {
	case r.here:
		return nil
	case r.elsewhere != "":
		return fmt.Errorf("%s is registered at %s and has no endpoint at %s",
			whose, r.elsewhere, here)
	case len(p.plans) > 0 && slices.ContainsFunc(p.at, vouched):
		return nil
	}
	return fmt.Errorf("cannot verify that %s is served at %s: no registered endpoint has a host; "+
		"if you trust this server, set its plan and its host explicitly", whose, here)
}

// register reads from the service where the agents of an entry are registered.
func (p *CreditsPayer) register(ctx context.Context, k directoryKey) (r registration, err error) {
	if k.agent != "" {
		a, err := p.c.Agent(ctx, k.agent)
		if err != nil {
			return r, err
		}
		r.add(a, k.called)
		return r, nil
	}
	n := 0
	for a, err := range p.c.PlanAgents(ctx, k.plan, Ascending()) {
		if err != nil {
			return r, err
		}
		if r.add(a, k.called); r.here {
			break
		}
		if n++; n == maxPlanAgents {
			break
		}
	}
	return r, nil
}

func (r *registration) add(a *toll.Agent, called string) {
	for _, e := range a.API.Endpoints {
		if at := endpointServer(e.URL); at != nil {
			r.here = r.here || origin(at) == called
			r.elsewhere = cmp.Or(r.elsewhere, HostOf(at))
		}
	}
}
