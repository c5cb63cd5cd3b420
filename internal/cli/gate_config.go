package cli

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/paid"
)

// gateFile is a gate with the configuration of a file.
type gateFile struct {
	a       *app
	f       gateFlags
	log     *slog.Logger
	queue   *paid.Queue
	metrics *gate.Metrics
	replays *gate.Replays
	handler atomic.Pointer[http.Handler]
	cert    atomic.Pointer[tls.Certificate]
}

// excludedByConfig are the flags of a gate without a file.
var excludedByConfig = []string{"upstream", "credits", "route", "free", "cors", "case-sensitive", "caller-gone", "hold-secs"}

// configOr checks the flags of a command that reads a configuration file: the needed flags without one, and the excluded flags with one.
func configOr(cmd *cobra.Command, config string, needed, excluded []string) error {
	for _, name := range needed {
		if config == "" && !cmd.Flags().Changed(name) {
			return usagef("required flag --%s is not set; or set --config", name)
		}
	}
	for _, name := range excluded {
		if config != "" && cmd.Flags().Changed(name) {
			return usagef("--%s and --config exclude each other: set it in the file", name)
		}
	}
	return nil
}

func runGateFile(ctx context.Context, a *app, f gateFlags) error {
	g := &gateFile{a: a, f: f, queue: paid.NewQueue(), metrics: gate.NewMetrics(), replays: gate.NewReplays(nil)}
	var err error
	if g.log, err = a.newLog(f.logLevel); err != nil {
		return err
	}
	c, err := g.load(ctx)
	if err != nil {
		return err
	}
	ln, err := server.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	if c.Metrics != "" {
		m, err := server.Listen(ctx, c.Metrics)
		if err != nil {
			return err
		}
		page := &http.Server{Handler: g.metrics.Handler(), ReadHeaderTimeout: 10 * time.Second}
		defer page.Close()
		go func() { _ = page.Serve(m) }()
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	go g.reload(ctx, hup, c)
	g.log.Info("gate", "listen", ln.Addr().String(), "config", f.config, "routes", len(c.Routes), "service", a.client().URL(), "plan", c.Plan)
	var secure *tls.Config
	if c.TLS != nil {
		secure = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.cert.Load(), nil },
		}
	}
	return serveGate(ctx, ln, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*g.handler.Load()).ServeHTTP(w, r) }), g.queue)
}

// load reads the file and installs its handler. Requests that run keep the handler with which they began.
func (g *gateFile) load(ctx context.Context) (*gate.Config, error) {
	c, s, err := readGateFile(ctx, g.a, g.f.config, g.f.sellerFlags)
	switch {
	case err != nil:
		return nil, err
	case c.IsMCP():
		return nil, usagef("%s prices the items of an MCP server: use toll mcp", g.f.config)
	}
	if c.TLS != nil {
		cert, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
		if err != nil {
			return nil, err
		}
		g.cert.Store(&cert)
	}
	h := gate.New(c, gate.Deps{
		Facilitator: g.a.client(), Plan: s.plan, Agent: s.agent, Queue: g.queue, Metrics: g.metrics, Replays: g.replays, Log: g.log, BuyAt: s.buyAt,
		Options: []paid.Option{paid.Namespace(g.a.set.names)},
	})
	g.handler.Store(&h)
	return c, nil
}

// reload loads the file again on SIGHUP. It keeps the old configuration if the new one has an error.
func (g *gateFile) reload(ctx context.Context, hup <-chan os.Signal, running *gate.Config) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		c, err := g.load(ctx)
		switch {
		case err != nil:
			g.log.Error("gate: the configuration was not reloaded", "error", err)
		case c.Listen != running.Listen || c.Metrics != running.Metrics || (c.TLS == nil) != (running.TLS == nil):
			g.log.Warn("gate: reloaded; a change of listen, metrics, or tls needs a restart")
		default:
			g.log.Info("gate: reloaded", "routes", len(c.Routes))
		}
	}
}

// configSeller is the plan and the agent of a file.
type configSeller struct {
	seller
	buyAt string
}

// readGateFile reads the file, applies the flags, and checks plan and prices at the service.
func readGateFile(ctx context.Context, a *app, config string, f sellerFlags) (c *gate.Config, s configSeller, err error) {
	if c, err = gate.Load(config); err != nil {
		return nil, s, usageError{err}
	}
	for _, o := range []struct {
		set  string
		into *string
	}{{f.plan, &c.Plan}, {f.agent, &c.Agent}, {f.publicURL, &c.PublicURL}, {f.listen, &c.Listen}} {
		if o.set != "" {
			*o.into = o.set
		}
	}
	f.plan, f.agent = c.Plan, c.Agent
	if err = f.resolve(ctx, a); err != nil {
		return nil, s, err
	}
	if s.seller, err = newSeller(a, f); err != nil {
		return nil, s, err
	}
	terms, err := s.check(ctx, a.client())
	if err != nil {
		return nil, s, err
	}
	s.buyAt = terms.PlanPage(s.agent)
	if err = c.CheckPlan(terms); err != nil {
		return nil, s, usagef("%s: %w", config, err)
	}
	return c, s, nil
}

func gateSchemaCommand(a *app) *cobra.Command {
	return command("schema", "Print the JSON schema of a gate configuration, for editors", func(*cobra.Command, []string) error {
		_, err := io.WriteString(a.out, gate.Schema)
		return err
	})
}

// gateCheckCommand is the command check of the command gate or mcp, which read the same configuration.
func gateCheckCommand(a *app, of string) *cobra.Command {
	var f gateFlags
	c := command("check", "Check a configuration, and print the price of each route or tool", nil)
	c.Long = `Load a configuration, read its plan from the service, and print every route or tool with its price, the largest price of one call,
and an example. The command fails if a price lies outside the limits of the plan for one request.`
	c.Example = `toll ` + of + ` check --config ` + of + `.yaml`
	fl := c.Flags()
	fl.StringVar(&f.config, "config", "", "configuration file")
	fl.StringVar(&f.plan, "plan", "", "plan whose credits pay, in place of the plan in the file")
	require(c, "config")
	f.holdSecs, f.logLevel = paid.DefaultHoldSecs, "info"
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		file, _, err := readGateFile(cmd.Context(), a, f.config, f.sellerFlags)
		if err != nil {
			return err
		}
		lines := file.Lines()
		if a.asJSON() {
			return a.show(map[string]any{"routes": lines})
		}
		rows := make([][]string, len(lines))
		for i, l := range lines {
			example := ""
			if l.Example != "" {
				example = l.Example + " = " + l.Credits.String()
				if l.Worth != "" {
					example += " (" + l.Worth + ")"
				}
			}
			rows[i] = []string{l.Route, l.When, l.Price, l.Most.String(), example}
		}
		return a.writeRows([]string{"ROUTE", "WHEN", "CREDITS", "AT MOST", "EXAMPLE"}, rows)
	}
	return c
}
