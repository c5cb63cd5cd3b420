package records

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Offer is a plan that a person may let a program spend from.
type Offer struct {
	Plan    *toll.Plan
	Balance *toll.Balance
	Server  bool // its owner says that it is for the resource that the program asks for
}

// Offers returns at most n plans: the one that is asked for, else those of the agent in the order in which its server takes them,
// else those of which the owner has credits.
func (r *Records) Offers(ctx context.Context, owner toll.Address, in oauth.Asked, n int) ([]Offer, error) {
	ids, err := r.planIDs(ctx, owner, in, n)
	if err != nil {
		return nil, err
	}
	out := make([]Offer, 0, len(ids))
	for _, id := range ids {
		p, err := store.PlanByID(ctx, r.Store, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		o := Offer{Plan: p}
		if err == nil {
			o.Balance, err = r.Checkout.Balance(ctx, p, owner, false)
		}
		if err == nil && in.PlanID == "" && in.AgentID == "" && in.Resource != "" {
			o.Server, err = r.isOfServer(ctx, id, in.Resource)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func (r *Records) planIDs(ctx context.Context, owner toll.Address, in oauth.Asked, n int) (ids []toll.PlanID, err error) {
	switch {
	case in.PlanID != "":
		return []toll.PlanID{in.PlanID}, nil
	case in.AgentID != "":
		a, err := store.AgentByID(ctx, r.Store, in.AgentID)
		if err != nil {
			return nil, err
		}
		for _, p := range a.Plans[:min(len(a.Plans), n)] {
			ids = append(ids, p.PlanID)
		}
		return ids, nil
	}
	accounts, err := r.Ledger.AccountsOf(ctx, owner, n)
	for _, a := range accounts {
		ids = append(ids, a.Plan)
	}
	return ids, err
}

// mostServers is how many agents of one plan are compared with the resource of a request, the oldest first.
const mostServers = 5

// isOfServer reports whether an agent with the plan has an endpoint at the resource, or below it. Only the owner of the agent says so.
func (r *Records) isOfServer(ctx context.Context, plan toll.PlanID, resource string) (bool, error) {
	agents, err := store.AgentsOfPlan(ctx, r.Store, plan, store.Page{Size: mostServers, Ascending: true})
	if err != nil {
		return false, err
	}
	for _, a := range agents.Items {
		urls := a.API.OpenEndpoints
		for _, e := range a.API.Endpoints {
			urls = append(urls, e.URL)
		}
		if slices.ContainsFunc(urls, func(url string) bool { return isAt(url, resource) }) {
			return true, nil
		}
	}
	return false, nil
}

// isAt reports whether an absolute endpoint is at the resource or below it, or is a pattern that the resource falls under.
func isAt(endpoint, resource string) bool {
	e, err1 := url.Parse(endpoint)
	r, err2 := url.Parse(resource)
	if err1 != nil || err2 != nil || e.Scheme != "http" && e.Scheme != "https" ||
		e.Scheme != r.Scheme || hostPort(e) != hostPort(r) {
		return false
	}
	if below := strings.TrimSuffix(r.Path, "/") + "/"; strings.HasPrefix(e.Path+"/", below) {
		return true
	}
	p, err := x402.ParsePattern(e.Path)
	return err == nil && p.Match(r.Path)
}

// hostPort returns the host and the port of an address. The names of this computer count as one.
func hostPort(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = u.Scheme
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		host = "localhost"
	}
	switch {
	case port == "443" && u.Scheme == "https", port == "80" && u.Scheme == "http":
		port = u.Scheme
	}
	return host + " " + port
}

// Program is a grant with what its program has now.
type Program struct {
	oauth.Grant
	Plan       string        // name of the plan; "" for an API key
	Left       *toll.Credits // of the limit of the access token; nil: no limit
	LastUsedAt time.Time     // zero: not yet
}

// Programs lists what the owner let in and what is not over, newest first, at most n. A grant whose key or token was not issued yet
// has what it allows.
func (r *Records) Programs(ctx context.Context, owner toll.Address, n int) ([]Program, error) {
	grants, err := r.OAuth.Grants(ctx, owner, n)
	out := make([]Program, len(grants))
	for i, g := range grants {
		out[i] = Program{Grant: g, Left: g.RedemptionLimit}
		if g.Kind == oauth.KindAPIKey {
			err = r.readKey(ctx, &out[i])
		} else {
			err = r.readToken(ctx, &out[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return out, err
}

func (r *Records) readKey(ctx context.Context, p *Program) error {
	key, err := r.Auth.Key(ctx, p.Owner, p.Access)
	if err != nil {
		return unless(err, toll.AsError(err).Code == toll.CodeKeyNotFound)
	}
	if p.Rights = key.Rights; key.LastUsedAt != nil {
		p.LastUsedAt = key.LastUsedAt.Time
	}
	return nil
}

func (r *Records) readToken(ctx context.Context, p *Program) error {
	plan, err := store.PlanByID(ctx, r.Store, p.PlanID)
	if err != nil {
		return err
	}
	p.Plan = plan.Metadata.Name
	t, err := r.Ledger.PermissionByHash(ctx, p.Access)
	if err != nil {
		return unless(err, errors.Is(err, store.ErrNotFound))
	}
	if p.RedemptionLimit != nil {
		if p.Left = nil; t.RedemptionLimit != nil {
			p.Left = new(*t.RedemptionLimit - t.Redeemed)
		}
	}
	uses, err := r.Ledger.PermissionUses(ctx, t.Account(), p.Access, 1)
	if len(uses) > 0 {
		p.LastUsedAt = uses[0].CreatedAt.Time
	}
	return err
}

func unless(err error, expected bool) error {
	if expected {
		return nil
	}
	return err
}
