package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/x402"
)

// AgentURL is agentURL.
var AgentURL = agentURL

// Asker is a core with an account, as far as requests to agents need them.
type Asker struct {
	c *Core
	a *account
}

// NewAsker returns an asker that may reach private networks, whose core is served on listen.
func NewAsker(private bool, listen string, log *slog.Logger, adjust func(*outbound.Config)) Asker {
	c := &Core{now: time.Now, log: log, opts: Options{Listen: listen}}
	c.reach.adjust = adjust
	return Asker{c, &account{settings: settings{privateAgents: private}}}
}

// Close closes connections that are not in use.
func (k Asker) Close() { k.c.reach.to(k.c, k.a).Close() }

// Get asks an address. Errors are those of a tool.
func (k Asker) Get(raw string) error {
	u, _, err := agentURL(raw)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	res, err := k.c.reach.to(k.c, k.a).RoundTrip(req)
	if err == nil {
		return res.Body.Close()
	}
	return reachError(u, err)
}

// Argument reads an address as a tool does, and returns the warnings of the call.
func (k Asker) Argument(raw string) ([]string, error) {
	q := &call{core: k.c, args: arguments{"agentUrl": raw}}
	_, err := q.agentURL("agentUrl")
	return q.warnings, err
}

// Card reads the card of an agent.
func (k Asker) Card(ctx context.Context, raw string) (name, url string, ok bool) {
	u, _, err := agentURL(raw)
	if err != nil {
		return "", "", false
	}
	got := k.c.agentCard(ctx, k.a, u)
	if got == nil {
		return "", "", false
	}
	return got.Name, got.URL, true
}

// SetHandlerTime sets how long an agent handler may take, before the first request.
func (c *Core) SetHandlerTime(d time.Duration) { c.endpoint.handlerTime = d }

// Idle waits until no paid request is in progress.
func (c *Core) Idle() {
	for {
		c.endpoint.mu.Lock()
		n := c.endpoint.running
		c.endpoint.mu.Unlock()
		if n == 0 {
			return
		}
		runtime.Gosched()
	}
}

// BalanceChanged says that the balance of the account may have changed.
func (c *Core) BalanceChanged() {
	if a, err := c.account(); err == nil {
		c.balanceChanged(a)
	}
}

// ContextOf is the text about a balance in the sandbox.
func ContextOf(b *toll.Balance) string { return contextOf(x402.Default, toll.Sandbox, b) }

// ResponseJSON is responseJSON.
var ResponseJSON = responseJSON

// AdjustReach adjusts how agents are reached, before the first one is.
func (c *Core) AdjustReach(f func(*outbound.Config)) { c.reach.adjust = f }

// Context is the text for the next prompt.
func (c *Core) Context(ctx context.Context) string { return c.promptContext(ctx) }

// AsksPrivate reports whether a login to an environment may ask agents in private networks, at a core
// whose configuration is for the sandbox.
func AsksPrivate(set *bool, env toll.Environment) (bool, error) {
	config, err := Config{AllowPrivateAgents: set}.resolve(x402.Default)
	if err != nil {
		return false, err
	}
	c := &Core{opts: Options{Names: x402.Default}, settings: config}
	s, err := c.loginSettings(env)
	return s.privateAgents, err
}
