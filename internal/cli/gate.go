package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// sellerFlags are those of every command that puts a price on a server.
type sellerFlags struct {
	upstream, plan, agent, listen, publicURL, callerGone, logLevel string

	free     []string
	holdSecs int
}

func (f *sellerFlags) add(a *app, c *cobra.Command, listen string) {
	fl := c.Flags()
	fl.StringVar(&f.plan, "plan", "", "plan whose credits pay")
	fl.StringVar(&f.agent, "agent", "", "agent that receives the payment")
	fl.StringVar(&f.listen, "listen", listen, "address to listen on")
	fl.IntVar(&f.holdSecs, "hold-secs", paid.DefaultHoldSecs, "lifetime of a hold in seconds, 1 to 900; a hold is renewed while its call runs, for at most 24 hours")
	fl.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn, or error")
	for name, k := range map[string]kind{"plan": planID, "agent": agentID, "log-level": word.offering("debug", "info", "warn", "error")} {
		a.completeFlag(c, flag{name: name, kind: k})
	}
}

// resolve puts ids in place of the names of the plan and the agent.
func (f *sellerFlags) resolve(ctx context.Context, a *app) (err error) {
	if f.plan, err = a.resolve(ctx, references[planID.ref], f.plan); err != nil {
		return flagError("plan", err)
	}
	if f.agent, err = a.resolve(ctx, references[agentID.ref], f.agent); err != nil {
		return flagError("agent", err)
	}
	return nil
}

// seller is what sellerFlags say.
type seller struct {
	plan  toll.PlanID
	agent toll.AgentID // "" for none
	gone  paid.Disconnect
	log   *slog.Logger
}

func newSeller(a *app, f sellerFlags) (s seller, err error) {
	if s.log, err = a.newLog(f.logLevel); err != nil {
		return s, err
	}
	if f.holdSecs < 1 || f.holdSecs > paid.MaxHoldSecs {
		return s, usagef("--hold-secs must be 1 to %d; got %d", paid.MaxHoldSecs, f.holdSecs)
	}
	var known bool
	s.gone, known = map[string]paid.Disconnect{"": paid.DisconnectByMethod, "settle": paid.Settle, "release": paid.Release}[f.callerGone]
	if !known {
		return s, usagef("--caller-gone must be settle or release; got %q", f.callerGone)
	}
	if s.plan, err = toll.ParsePlanID(f.plan); err == nil && f.agent != "" {
		s.agent, err = toll.ParseAgentID(f.agent)
	}
	return s, err
}

// check finds out before the first caller comes whether the key and the prices are those of the plan. Callers would see a
// missing, wrong or foreign key as a service that cannot be reached.
func (s *seller) check(ctx context.Context, c *client.Client, prices ...flagPrice) (*x402.Terms, error) {
	terms, err := c.Terms(ctx, s.plan)
	if err != nil {
		return nil, err
	}
	plan, err := c.Plan(ctx, s.plan)
	if err != nil {
		return nil, err
	}
	caller, err := callerAddress(ctx, c)
	if err != nil {
		return nil, err
	}
	if caller != plan.Owner {
		return nil, toll.NewError(toll.CodeNotPlanOwner).
			WithHint("Use an API key of the workspace that owns the plan.")
	}
	return terms, inPlan(terms, prices...)
}

type gateFlags struct {
	sellerFlags
	config  string
	credits string
	routes  []string
	cors    []string
	cased   bool
}

func gateCommand(a *app) *cobra.Command {
	var f gateFlags
	c := command("gate", "Put a price on an HTTP service without changing it", nil)
	c.Long = `Run a reverse proxy that requires payment: it verifies the payment, forwards the request, settles the payment, and then
returns the response.

Each --route sets the credits of a method and path; --credits is the price of every other request. With --route but without
--credits, other paths return 404. Without both, every request costs 1 credit. A path may end in /*, which matches the path
before it and everything below. An exact path takes precedence over a path with named parameters, and both take precedence over a
path with /*. Of several paths with /*, the longest applies. Paths are not case-sensitive.

If a caller disconnects while the upstream service works on the request, the gate by default waits for the response and settles the
payment if the request succeeds. It cancels GET, HEAD, and OPTIONS requests, which are then free. --caller-gone applies settle or
release to all methods.

Callers send an access token in the payment-signature header, or as a bearer token in Authorization. The gate does not forward access
tokens to the upstream service, but it forwards other credentials in Authorization. With --public-url, a 402 response contains the full
address of the resource, and the gate rejects access tokens that were created for another address.

A person who opens a paid address in a browser gets a page with the price and a link to the plan instead of JSON. With --cors,
pages of that origin may call the gate from a browser and read the payment headers.

With --config, a file in YAML sets upstream servers, routes, and prices by usage, such as tokens, search results, or seconds. The gate
loads it again on SIGHUP. --plan, --agent, --listen, and --public-url take precedence over the file.

A caller has 10 s to send a request and to read a response, plus 1 s for each 16 KiB. Time in
which a stream has nothing to send does not count.`
	c.Example = `toll gate --upstream http://127.0.0.1:3000 --plan 4474 --route "POST /ask=2" --route "GET /files/:name=1" --free "GET /health"
toll gate --upstream http://127.0.0.1:3000 --plan 4474 --credits 2 --free "GET /public/*" --public-url https://paid.example.com
toll gate --config gate.yaml`
	f.add(a, c, "127.0.0.1:8403")
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "file with upstream servers, routes, and prices, in place of flags")
	fl.StringVar(&f.upstream, "upstream", "", "address of the upstream service")
	fl.StringVar(&f.credits, "credits", "", "credits for a request that matches no --route")
	fl.StringArrayVar(&f.routes, "route", nil, `route and its credits per request, such as "POST /path=2"`)
	fl.StringArrayVar(&f.free, "free", nil, `free route, such as "GET /health"`)
	fl.BoolVar(&f.cased, "case-sensitive", false, "compare paths case-sensitively; only for an upstream service that does too")
	fl.StringArrayVar(&f.cors, "cors", nil, `origin whose pages may call the gate from a browser, such as https://app.example.com, or "*"`)
	fl.StringVar(&f.publicURL, "public-url", "", "address at which callers reach the gate")
	fl.StringVar(&f.callerGone, "caller-gone", "",
		"whether to settle or release a request whose caller disconnects; default release for GET, HEAD, and OPTIONS, otherwise settle")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := configOr(cmd, f.config, []string{"upstream", "plan"}, excludedByConfig); err != nil {
			return err
		}
		if f.config == "" {
			return runGate(cmd.Context(), a, f)
		}
		if !cmd.Flags().Changed("listen") {
			f.listen = "" // the file decides
		}
		return runGateFile(cmd.Context(), a, f)
	}
	c.AddCommand(gateCheckCommand(a, "gate"), gateSchemaCommand(a))
	return c
}

func runGate(ctx context.Context, a *app, f gateFlags) error {
	if err := f.resolve(ctx, a); err != nil {
		return err
	}
	g, err := settingsOfGate(a, f)
	if err != nil {
		return err
	}
	c, queue := a.client(), paid.NewQueue()
	terms, err := g.check(ctx, c, g.prices...)
	if err != nil {
		return err
	}
	ln, err := server.Listen(ctx, f.listen)
	if err != nil {
		return err
	}
	g.log.Info("gate", "listen", ln.Addr().String(), "upstream", g.upstream.Scheme+"://"+g.upstream.Host, "service", c.URL(), "plan", terms.PlanID, "name", terms.PlanName)
	proxy := paid.Proxy(c, g.upstream, append(g.routes, paid.With(append(g.options, paid.WithQueue(queue))...))...)
	if len(f.cors) > 0 {
		proxy = paid.CORS(proxy, f.cors...)
	}
	return serveGate(ctx, ln, nil, proxy, queue)
}

// serveGate serves until ctx ends, and then lets what runs finish and settle for up to 20 s. Callers who send or read too slowly
// lose their connection; streams last as long as they are read. Without secure, the gate serves plain HTTP.
func serveGate(ctx context.Context, ln net.Listener, secure *tls.Config, proxy http.Handler, queue *paid.Queue) error {
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pace.Body(w, r, paid.DefaultMaxBody, pace.Patience, pace.MinRate)
			proxy.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: pace.Patience,
		IdleTimeout:       2 * time.Minute,
		ConnState:         pace.ConnState,
	}
	most := pace.Descriptors(2) // its own, and one of the service behind
	ln = pace.Limit(pace.Listen(ln, pace.Patience, pace.MinRate), most, most/4)
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	return server.ServeUntil(ctx, h, ln, 20*time.Second, queue.Drain)
}

// callerAddress returns the wallet address of the workspace whose API key is used.
func callerAddress(ctx context.Context, c *client.Client) (toll.Address, error) {
	for key, err := range c.Keys(ctx, client.PageSize(1)) {
		if err != nil {
			return toll.Address{}, err
		}
		return key.Address, nil
	}
	return toll.Address{}, toll.NewError(toll.CodeNotAuthenticated)
}

type gateSettings struct {
	seller
	upstream *url.URL
	options  []paid.Option // of all routes
	routes   []paid.Route
	prices   []flagPrice
}

type flagPrice struct {
	flag    string
	credits toll.Credits
}

// gateSettings reads the flags. Everything that the gate could not do is a usage error.
func settingsOfGate(a *app, f gateFlags) (g gateSettings, err error) {
	if g.upstream, err = httpURL(f.upstream); err != nil {
		return g, usagef("--upstream %w", err)
	}
	if g.seller, err = newSeller(a, f.sellerFlags); err != nil {
		return g, err
	}
	g.options = []paid.Option{
		paid.Plan(g.plan), paid.Agent(g.agent), paid.HoldSecs(f.holdSecs), paid.OnDisconnect(g.gone),
		paid.TokenHeaders(x402.HeaderSignature, "authorization", "x-api-key"), paid.Log(g.log), paid.Namespace(a.set.names),
	}
	for _, origin := range f.cors {
		if err := paid.CheckOrigin(origin); err != nil {
			return g, usagef("--cors %w", err)
		}
	}
	if f.publicURL != "" {
		if err := paid.CheckPublicURL(f.publicURL); err != nil {
			return g, usagef("--public-url %w", err)
		}
		g.options = append(g.options, paid.PublicURL(f.publicURL))
	}
	return g, g.readPrices(f)
}

func (g *gateSettings) readPrices(f gateFlags) error {
	add := func(flag string, route paid.Route) error {
		g.routes = append(g.routes, route)
		if err := paid.CheckRoutes(g.routes...); err != nil {
			return usagef("%s: %w", flag, err)
		}
		return nil
	}
	if f.cased {
		g.routes = append(g.routes, paid.CaseSensitive())
	}
	for _, r := range f.routes {
		flag := fmt.Sprintf("--route %q", r)
		key, n, ok := priced(r)
		if !ok {
			return usagef(`%s: a route must look like "POST /path=2"`, flag)
		}
		g.prices = append(g.prices, flagPrice{flag, n})
		if err := add(flag, paid.At(key, paid.Credits(n))); err != nil {
			return err
		}
	}
	for _, key := range f.free {
		if err := add(fmt.Sprintf("--free %q", key), paid.Free(key)); err != nil {
			return err
		}
	}
	general := toll.Credits(1)
	switch {
	case f.credits != "":
		var err error
		if general, err = toll.ParseCredits(f.credits); err != nil {
			return usagef("--credits must be a whole number of credits; got %q", f.credits)
		}
	case len(f.routes) > 0:
		return nil
	}
	g.prices = append(g.prices, flagPrice{"--credits", general})
	return add("--credits", paid.Default(paid.Credits(general)))
}

// inPlan refuses prices that lie outside of a plan: callers would be asked for another amount than the flag says. 0 is free,
// and a plan for a period burns nothing.
func inPlan(t *x402.Terms, prices ...flagPrice) error {
	for _, p := range prices {
		switch {
		case t.InBounds(p.credits) == p.credits:
		case t.MinAmount == t.MaxAmount:
			return usagef("%s is %s, but the plan charges %s credits per request", p.flag, p.credits, t.MinAmount)
		default:
			return usagef("%s is %s, but the plan charges %s to %s credits per request", p.flag, p.credits, t.MinAmount, t.MaxAmount)
		}
	}
	return nil
}

// priced takes apart what is written as NAME=CREDITS.
func priced(s string) (name string, n toll.Credits, ok bool) {
	name, price, ok := cutLast(s, "=")
	n, err := toll.ParseCredits(strings.TrimSpace(price))
	return name, n, ok && err == nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return strings.TrimSpace(s[:i]), s[i+len(sep):], true
}
