package cli

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/paid"
)

type gateFlags struct {
	upstream, plan, agent, credits, listen, publicURL, logLevel string
	routes, free                                                []string
	holdSecs                                                    int
}

func (a *app) gateCommand() *cobra.Command {
	var f gateFlags
	c := command("gate", "Put a price on an HTTP service without changing it", nil)
	c.Long = `Run a reverse proxy that asks for payment: it verifies, passes the request on, settles, and only then answers.

Each --route names a method, a path and its credits; --credits is the price of everything else. With routes and without
--credits, other paths are 404. Without both, every request costs 1 credit.`
	c.Example = `toll gate --upstream http://127.0.0.1:3000 --plan 4474 --route "POST /ask=2" --route "GET /files/:name=1" --free "GET /health"`
	fl := c.Flags()
	fl.StringVar(&f.upstream, "upstream", "", "address of the service behind")
	fl.StringVar(&f.plan, "plan", "", "plan whose credits pay")
	fl.StringVar(&f.agent, "agent", "", "agent that takes the payment")
	fl.StringVar(&f.credits, "credits", "", "price of a request that no route names")
	fl.StringArrayVar(&f.routes, "route", nil, `price of a route, as "POST /path=2"`)
	fl.StringArrayVar(&f.free, "free", nil, `route without a price, as "GET /health"`)
	fl.StringVar(&f.listen, "listen", "127.0.0.1:8403", "address to listen on")
	fl.StringVar(&f.publicURL, "public-url", "", "address under which callers reach the gate")
	fl.IntVar(&f.holdSecs, "hold-secs", paid.DefaultHoldSecs, "longest time that an answer may take, 1 to 900")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	require(c, "upstream", "plan")
	c.RunE = func(cmd *cobra.Command, _ []string) error { return a.gate(cmd.Context(), f) }
	return c
}

func (a *app) gate(ctx context.Context, f gateFlags) error {
	log, err := newLog(a.err, f.logLevel)
	if err != nil {
		return err
	}
	upstream, err := url.Parse(f.upstream)
	if err != nil || upstream.Host == "" || upstream.Scheme != "http" && upstream.Scheme != "https" {
		return usagef("--upstream must be an absolute http or https url")
	}
	plan, err := toll.ParsePlanID(f.plan)
	if err != nil {
		return err
	}
	queue := paid.NewQueue()
	common := []paid.Option{paid.Plan(plan), paid.Log(log), paid.WithQueue(queue), paid.HoldSecs(f.holdSecs), paid.Namespace(a.set.names)}
	if f.agent != "" {
		agent, err := toll.ParseAgentID(f.agent)
		if err != nil {
			return err
		}
		common = append(common, paid.Agent(agent))
	}
	if f.publicURL != "" {
		if u, err := url.Parse(f.publicURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usagef("--public-url must be an absolute http or https url")
		}
		common = append(common, paid.PublicURL(f.publicURL))
	}
	routes := []paid.Route{paid.With(common...)}
	priced, err := priceList(f)
	if err != nil {
		return err
	}
	if f.holdSecs < 1 || f.holdSecs > paid.MaxHoldSecs {
		return usagef("--hold-secs is 1 to %d", paid.MaxHoldSecs)
	}

	c := a.client()
	// A key or a plan that is wrong should be known before the first caller comes.
	terms, err := c.Terms(ctx, plan)
	if err != nil {
		return err
	}
	if err := ownsPlan(ctx, c, plan); err != nil {
		return err
	}
	ln, err := listen(ctx, f.listen)
	if err != nil {
		return err
	}
	log.Info("gate", "listen", ln.Addr().String(), "upstream", upstream.Scheme+"://"+upstream.Host, "service", c.URL(), "plan", terms.PlanID, "name", terms.PlanName)
	h := &http.Server{Handler: paid.Proxy(c, upstream, append(routes, priced...)...), ReadHeaderTimeout: 15 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- h.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(h.Shutdown(end), queue.Drain(end))
}

// ownsPlan tells a missing, wrong or foreign key at the start. Callers would see it as a service that cannot be reached.
func ownsPlan(ctx context.Context, c *client.Client, id toll.PlanID) error {
	plan, err := c.Plan(ctx, id)
	if err != nil {
		return err
	}
	for key, err := range c.Keys(ctx, client.PageSize(1)) {
		if err != nil {
			return err
		}
		if key.Address != plan.Owner {
			return toll.NewError(toll.CodeNotPlanOwner).WithHint("The gate takes payment with the API key of the builder who owns the plan.")
		}
		return nil
	}
	return toll.NewError(toll.CodeNotAuthenticated)
}

// priceList reads the flags of routes.
func priceList(f gateFlags) ([]paid.Route, error) {
	var routes []paid.Route
	for _, r := range f.routes {
		key, price, ok := cutLast(r, "=")
		if !ok || !isRouteKey(key) {
			return nil, usagef(`a route is written as "POST /path=2": %q`, r)
		}
		n, err := toll.ParseCredits(strings.TrimSpace(price))
		if err != nil {
			return nil, usagef(`a route is written as "POST /path=2": %q`, r)
		}
		routes = append(routes, paid.At(key, paid.Credits(n)))
	}
	for _, key := range f.free {
		if !isRouteKey(key) {
			return nil, usagef(`a free route is written as "GET /path": %q`, key)
		}
		routes = append(routes, paid.Free(key))
	}
	switch {
	case f.credits != "":
		n, err := toll.ParseCredits(f.credits)
		if err != nil {
			return nil, usagef("--credits must be a number")
		}
		routes = append(routes, paid.Default(paid.Credits(n)))
	case len(f.routes) == 0:
		routes = append(routes, paid.Default(paid.Credits(1)))
	}
	return routes, nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return strings.TrimSpace(s[:i]), s[i+len(sep):], true
}

func isRouteKey(key string) bool {
	method, path, ok := strings.Cut(key, " ")
	return ok && method != "" && strings.HasPrefix(path, "/")
}
