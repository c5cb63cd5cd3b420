package cli

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync/atomic"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/mcpproxy"
	"github.com/tollhq/toll/paidmcp"
)

// mcpFile is the configuration of toll mcp --config.
type mcpFile struct {
	a      *app
	f      mcpFlags // before the file completed them
	config *gate.Config
	items  atomic.Pointer[[]gate.Item]
}

// openMCPFile reads the configuration, and completes the flags with it.
func openMCPFile(ctx context.Context, a *app, f *mcpFlags) (*mcpFile, error) {
	m := &mcpFile{a: a, f: *f}
	c, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	m.config = c
	f.plan, f.agent, f.publicURL, f.listen, f.holdSecs = c.Plan, c.Agent, c.PublicURL, c.Listen, c.HoldSecs
	if u := c.UpstreamServer(); u != nil {
		f.upstream = u.URL
	}
	items := c.Items()
	m.items.Store(&items)
	return m, nil
}

func (m *mcpFile) read(ctx context.Context) (*gate.Config, error) {
	c, _, err := readGateFile(ctx, m.a, m.f.config, m.f.sellerFlags)
	if err == nil && !c.IsMCP() {
		err = usagef("%s prices HTTP routes: use toll gate", m.f.config)
	}
	return c, err
}

// header returns the headers of requests to the upstream server. m may be nil.
func (m *mcpFile) header() http.Header {
	if m != nil {
		if u := m.config.UpstreamServer(); u != nil {
			return u.Header().Clone()
		}
	}
	return http.Header{}
}

// reload loads the file again on SIGHUP. It keeps the old prices if the new file has an error. Running calls keep the old prices.
func (m *mcpFile) reload(ctx context.Context, hup <-chan os.Signal, pay *paidmcp.Payments, u *mcpproxy.Upstream, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		c, err := m.read(ctx)
		if err == nil && !c.SameServer(m.config) {
			err = errors.New("a change of anything but routes, meters, and credit needs a restart")
		}
		if err != nil {
			log.Error("mcp: the configuration was not reloaded", "error", err)
			continue
		}
		items := c.Items()
		old := m.items.Swap(&items)
		for _, p := range m.prices(log) {
			pay.Price(p.kind, p.name, p.options...)
		}
		for _, i := range *old { // an item without its own price has the price of "*"
			if !slices.ContainsFunc(items, i.Same) && i.Name != "*" {
				pay.Unprice(paidmcp.Type(i.Type), i.Name)
			}
		}
		u.Reread()
		log.Info("mcp: reloaded", "items", len(items))
	}
}

// prices returns the prices of all items, first the refusal of items that the file does not name.
func (m *mcpFile) prices(log *slog.Logger) (out []itemPrice) {
	add := func(kind paidmcp.Type, name string, options ...paidmcp.Option) {
		if m.f.stream {
			options = append(options, paidmcp.Stream())
		}
		out = append(out, itemPrice{kind: kind, name: name, options: options})
	}
	for _, kind := range itemTypes {
		add(kind, "*", paidmcp.CreditsFunc(func(paidmcp.CreditsContext) toll.Credits { return 0 }),
			paidmcp.MaxCreditsFunc(func(paidmcp.CreditsContext) (toll.Credits, error) { return 0, errNotOffered }))
	}
	for _, i := range *m.items.Load() {
		add(paidmcp.Type(i.Type), i.Name, itemOptions(i, log)...)
	}
	return out
}

var errNotOffered = toll.Errorf(toll.CodePathNotFound, "The seller does not offer this item.")

func itemOptions(i gate.Item, log *slog.Logger) []paidmcp.Option {
	if n, fixed := i.Fixed(); fixed {
		options := []paidmcp.Option{paidmcp.Credits(n)}
		if e := i.Exact(); e != nil {
			options = append(options, paidmcp.PerCall(*e))
		}
		return options
	}
	return []paidmcp.Option{
		paidmcp.MaxCreditsFunc(func(c paidmcp.CreditsContext) (toll.Credits, error) { return i.Hold(c.Args) }),
		paidmcp.CreditsFunc(func(c paidmcp.CreditsContext) toll.Credits {
			price, over, err := i.Price(c.Args, resultJSON(c.Result), c.Elapsed)
			if err != nil { // a result that was delivered before a reload
				return toll.MaxCredits // the hold
			}
			if over > 0 {
				log.Warn("mcp: a call used more than its hold", "item", c.Request.LogicalURL, "held", price.String(), "uncovered", over.String())
			}
			return price
		}),
	}
}

// resultJSON returns the JSON of a result, or nil without one.
func resultJSON(result any) []byte {
	if result == nil {
		return nil
	}
	text, _ := json.Marshal(result)
	return text
}

// offers implements [mcpproxy.Upstream.Offers].
func (m *mcpFile) offers(t paidmcp.Type, name string) bool {
	one := mcpproxy.Items{Type: t, Names: []string{name}}
	return slices.ContainsFunc(*m.items.Load(), func(i gate.Item) bool { return i.Type == string(t) && one.Has(i.Name) })
}

// accepts implements [mcpproxy.Upstream.Accepts].
func (m *mcpFile) accepts(tool string, args json.RawMessage, result any) error {
	var own *gate.Item
	for _, i := range *m.items.Load() {
		if i.Type == string(paidmcp.Tools) && (i.Name == tool || i.Name == "*" && own == nil) {
			own = &i
		}
	}
	if own == nil || !own.RefusesResults() {
		return nil
	}
	_, _, err := own.Price(args, resultJSON(result), 0)
	return err
}
