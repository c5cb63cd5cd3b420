package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/mcpproxy"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/paidmcp"
)

type mcpFlags struct {
	sellerFlags
	config, upstreamToken, credits, name string

	prices, origins, hosts   []string
	register, signIn, stream bool
	stateless                bool
}

func mcpCommand(a *app) *cobra.Command {
	var f mcpFlags
	c := &cobra.Command{Use: "mcp [-- COMMAND...]", Short: "Put a price on an MCP server without changing it"}
	c.Long = `Run a proxy that charges credits for the tools, resources, and prompts of an upstream MCP server. The upstream server is a
command that speaks MCP over its standard input and output, or a URL with streamable HTTP. It needs no change and does not see payments.

--credits is the default price; --price sets the price of one item, or of all items of a type, such as tools/*. Payment credentials of
callers never reach the upstream server, and its responses pass through unchanged. All callers share one connection to the upstream server.

With --config, a file in YAML sets the items and their prices, such as prices by the results or the arguments of a tool. The proxy offers
only these items, and loads their prices again on SIGHUP. --plan, --agent, --listen, and --public-url take precedence over the file.

Clients connect to the proxy at /mcp. With --register, the command adds mcp://NAME/tools/*, and the same URLs for resources and prompts,
to the endpoints of the agent, so that the agent can receive payments for these items.`
	c.Example = `toll mcp --plan 4474 --agent 5063 --credits 2 --price tools/search=5 --register -- npx -y some-mcp-server
toll mcp --plan 4474 --upstream https://tools.example.com/mcp --free tools/ping --public-url https://paid.example.com
toll mcp --config mcp.yaml -- npx -y some-mcp-server`
	f.add(a, c, "127.0.0.1:8404")
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "file with items and prices, in place of flags")
	fl.StringVar(&f.upstream, "upstream", "", "URL of the upstream server, instead of a command")
	secret(c, &f.upstreamToken, "upstream-token")
	fl.StringVar(&f.credits, "credits", "1", "credits per call without a matching --price")
	fl.StringArrayVar(&f.prices, "price", nil,
		`price of an item in credits, such as "tools/search=5", "resources/file:///a=1", or "prompts/*=0"`)
	fl.StringArrayVar(&f.free, "free", nil, `free item, such as "tools/ping"`)
	fl.StringVar(&f.name, "name", "", "server name in the URLs of items; default the name that the upstream server reports")
	fl.BoolVar(&f.register, "register", false, "add the address of the proxy and the URLs of the items to the endpoints of the agent")
	fl.StringVar(&f.publicURL, "public-url", "", "public address of the proxy, without /mcp")
	fl.BoolVar(&f.signIn, "require-sign-in", false, "refuse requests without an access token, even for free items")
	fl.StringArrayVar(&f.origins, "allow-origin", nil, "origin of web pages that may call the proxy; default this machine and --public-url")
	fl.StringArrayVar(&f.hosts, "allow-host", nil, "Host header to accept; default this machine and --public-url")
	fl.BoolVar(&f.stream, "stream", false, "forward progress while a call runs, before it is settled")
	fl.BoolVar(&f.stateless, "stateless", false, "run without sessions, for replicas behind a load balancer without session affinity")
	fl.StringVar(&f.callerGone, "caller-gone", "",
		"whether to settle or release a call whose caller disconnects; default settle for tools without readOnlyHint, otherwise release")
	c.Args = func(cmd *cobra.Command, args []string) error {
		if at := cmd.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
			return usagef("%s takes a command only after --, not %q", cmd.CommandPath(), args[0])
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := configOr(cmd, f.config, []string{"plan"}, []string{"upstream", "credits", "price", "free", "hold-secs"})
		if err != nil {
			return err
		}
		return runMCP(cmd.Context(), a, f, args)
	}
	c.Annotations = map[string]string{annotationOwnArgs: ""}
	c.AddCommand(gateCheckCommand(a, "mcp"))
	return c
}

func runMCP(ctx context.Context, a *app, f mcpFlags, command []string) error {
	var file *mcpFile // nil without --config
	var err error
	if f.config != "" {
		if file, err = openMCPFile(ctx, a, &f); err != nil {
			return err
		}
	}
	if err := f.resolve(ctx, a); err != nil {
		return err
	}
	seller, err := newSeller(a, f.sellerFlags)
	if err != nil {
		return err
	}
	log := seller.log
	u, err := openUpstream(ctx, &a.console, f, command, log, file.header())
	switch {
	case err != nil:
		return err
	case f.register && f.agent == "":
		return usagef("--register needs --agent")
	case f.name != "" && f.name != serverName(f.name):
		return usagef("--name may contain only lowercase letters, digits, dots, and hyphens")
	}
	prices, err := itemPrices(f)
	if err != nil {
		return err
	}
	if file != nil {
		u.Offers, u.Accepts, prices = file.offers, file.accepts, file.prices(log)
	}

	var flagPrices []flagPrice
	for _, p := range prices {
		flagPrices = append(flagPrices, p.flagPrice)
	}
	c := a.client()
	terms, err := seller.check(ctx, c, flagPrices...)
	if err != nil {
		return err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	if err := u.Connect(ctx); err != nil {
		return fmt.Errorf("connect to the upstream server: %w", err)
	}
	if err := namesItems(ctx, &a.console, u, prices); err != nil {
		return err
	}
	cfg := paidmcp.Config{
		PlanID: seller.plan, AgentID: seller.agent, ServerName: cmp.Or(f.name, serverName(u.Name())), HoldSecs: f.holdSecs,
		OnDisconnect: seller.gone, Namespace: a.set.names, Log: log,
	}
	pay, m := paidmcp.New(c, cfg), u.Server()
	for _, p := range prices {
		pay.Price(p.kind, p.name, p.options...)
	}
	s, err := paidmcp.NewServer(pay, m, paidmcp.ServerConfig{
		BaseURL: f.publicURL, ServiceURL: info.APIBase, RequireSignIn: f.signIn, AllowedOrigins: f.origins, AllowedHosts: f.hosts,
		Description: "Priced by Toll", Stateless: f.stateless,
	})
	if err != nil {
		return usageError{err}
	}
	// What is being served when the end comes still needs the server behind.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended, err := u.Offer(running, m)
	if err != nil {
		stop()
		return err
	}
	defer func() {
		stop()
		<-ended
	}()
	if file != nil {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		go file.reload(running, hup, pay, u, log)
	}
	if f.register {
		if err := registerItems(ctx, &a.console, c, cfg.AgentID, pay, addressOf(f)); err != nil {
			return err
		}
	}
	ln, err := server.Listen(ctx, f.listen)
	if err != nil {
		return err
	}
	log.Info("mcp", "listen", ln.Addr().String(), "url", cmp.Or(strings.TrimSuffix(f.publicURL, "/"), "http://"+ln.Addr().String())+"/mcp", "service", c.URL(),
		"plan", terms.PlanID, "name", cfg.ServerName)
	return s.Serve(ctx, ln)
}

// openUpstream returns the server that gets a price.
func openUpstream(ctx context.Context, con *console, f mcpFlags, command []string, log *slog.Logger, header http.Header) (*mcpproxy.Upstream, error) {
	switch {
	case (f.upstream == "") == (len(command) == 0):
		return nil, usagef("set the MCP server: either a command after --, or --upstream (with --config, upstreams in the file)")
	case f.upstream == "":
		hideProcess() // the command must not read our API key there
		return mcpproxy.Command(log, func() *exec.Cmd {
			// It ends when its connection does, and not before: its last calls may be paid.
			c := exec.CommandContext(context.WithoutCancel(ctx), command[0], command[1:]...)
			c.Stderr = con.err
			return c
		}), nil
	}
	if u, err := httpURL(f.upstream); err != nil || u.User != nil {
		return nil, usagef("--upstream must be an absolute http or https URL without a user name")
	}
	if f.upstreamToken != "" && header.Get("Authorization") == "" {
		header.Set("Authorization", "Bearer "+f.upstreamToken)
	}
	return mcpproxy.Remote(log, f.upstream, header), nil
}

// serverName makes of what a server calls itself a name that can stand in a url.
func serverName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 64)], ".-")
}

type itemPrice struct {
	flagPrice
	kind    paidmcp.Type
	name    string
	options []paidmcp.Option
}

var itemTypes = []paidmcp.Type{paidmcp.Tools, paidmcp.Resources, paidmcp.Prompts}

// itemPrices reads the flags of prices, the general one first.
func itemPrices(f mcpFlags) ([]itemPrice, error) {
	general, err := toll.ParseCredits(f.credits)
	if err != nil {
		return nil, usagef("--credits must be a number")
	}
	price := func(flag string, kind paidmcp.Type, name string, n toll.Credits) itemPrice {
		p := itemPrice{flagPrice{flag, n}, kind, name, []paidmcp.Option{paidmcp.Credits(n)}}
		if f.stream {
			p.options = append(p.options, paidmcp.Stream())
		}
		return p
	}
	var out []itemPrice
	for _, kind := range itemTypes {
		out = append(out, price("--credits", kind, "*", general))
	}
	one := func(flag, item string, n toll.Credits) error {
		kind, name, ok := strings.Cut(item, "/")
		if !ok || name == "" || !slices.Contains(itemTypes, paidmcp.Type(kind)) {
			return usagef(`an item must look like "tools/NAME", "resources/URI", or "prompts/NAME"; got %q`, item)
		}
		out = append(out, price(flag, paidmcp.Type(kind), name, n))
		return nil
	}
	for _, p := range f.prices {
		item, n, ok := priced(p)
		if !ok {
			return nil, usagef(`a price must look like "tools/NAME=5"; got %q`, p)
		}
		if err := one(fmt.Sprintf("--price %q", p), item, n); err != nil {
			return nil, err
		}
	}
	for _, item := range f.free {
		if err := one("--free", item, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

const maxShownNames = 20 // of items, in an error

// namesItems refuses a price for an item that the server behind does not have. One whose items may change gets a warning.
func namesItems(ctx context.Context, con *console, u *mcpproxy.Upstream, prices []itemPrice) error {
	for _, kind := range itemTypes {
		if !slices.ContainsFunc(prices, func(p itemPrice) bool { return p.kind == kind && p.name != "*" }) {
			continue
		}
		items, err := u.Items(ctx, kind)
		if err != nil {
			return fmt.Errorf("list the %s of the upstream server: %w", kind, err)
		}
		known := slices.Sorted(slices.Values(items.Names))
		has := "its list is empty"
		if n := len(known); n > maxShownNames {
			has = fmt.Sprintf("it has %q and %d more", known[:maxShownNames], n-maxShownNames)
		} else if n > 0 {
			has = fmt.Sprintf("it has %q", known)
		}
		for _, p := range prices {
			if p.kind != kind || items.Has(p.name) {
				continue
			}
			missing := fmt.Sprintf("the upstream server has no %s %q, for which a price is set: %s", strings.TrimSuffix(string(kind), "s"), p.name, has)
			if !items.Changes {
				return usagef("%s", missing)
			}
			con.say("warning", "%s; the server may add it later", missing)
		}
	}
	return nil
}

// addressOf returns the URL that clients use for the MCP server, or "" if it becomes known only after Listen.
func addressOf(f mcpFlags) string {
	if f.publicURL != "" {
		return strings.TrimRight(f.publicURL, "/") + "/mcp"
	}
	host, port, err := net.SplitHostPort(f.listen)
	ip, _ := netip.ParseAddr(host)
	if err != nil || port == "0" || !ip.IsLoopback() && host != "localhost" {
		return ""
	}
	return "http://" + net.JoinHostPort(host, port) + "/mcp"
}

// registerItems adds the urls of all items to the endpoints of the agent, and the address of the server to its open ones, by which the
// consent page knows whose plan a client needs. Endpoints that the agent has stay as they are.
func registerItems(
	ctx context.Context, con *console,
	c *client.Client,
	id toll.AgentID,
	pay *paidmcp.Payments,
	address string,
) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var in toll.EndpointsInput
	for _, kind := range itemTypes {
		in.Endpoints = append(in.Endpoints, toll.Endpoint{Verb: "POST", URL: pay.LogicalURL(kind, "*")})
	}
	if address != "" {
		in.OpenEndpoints = []string{address}
	}
	if _, err := c.AddEndpoints(ctx, id, in); err != nil {
		return err
	}
	con.say("note", "the agent can now receive payments for %s, and for resources and prompts", pay.LogicalURL(paidmcp.Tools, "*"))
	return nil
}
