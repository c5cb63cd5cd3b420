package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

const (
	maxAgentURL   = 2048 // characters
	agentTimeout  = 120 * time.Second
	cardTimeout   = 5 * time.Second
	maxWarned     = 256 // hosts without https that were logged
	warnedForTime = 24 * time.Hour
)

// agentURL parses the address of an agent: an absolute http or https URL with a host, without user information, of at most
// 2,048 visible ASCII characters. It removes the fragment. warning is a sentence for the user if the URL is http to another
// machine, because requests can then be read on the way. agentURL does not resolve names, so it does not check whether requests
// to the address are allowed. The error describes the accepted form without the argument's name, which [call.agentURL] adds.
func agentURL(raw string) (u *url.URL, warning string, err error) {
	const form = "must be an absolute URL such as https://agent.example.com/ask"
	hidden := func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }
	switch {
	case len(raw) > maxAgentURL:
		return nil, "", fmt.Errorf("must have at most %d characters", maxAgentURL)
	case strings.ContainsFunc(raw, hidden):
		return nil, "", errors.New(form + ", in visible ASCII characters")
	}
	u, err = url.Parse(bracketed(raw))
	switch {
	case err != nil:
		return nil, "", errors.New(form)
	case !strings.EqualFold(u.Scheme, "https") && !strings.EqualFold(u.Scheme, "http"):
		return nil, "", fmt.Errorf("%s; its scheme is %q", form, plain.Text(u.Scheme, 20))
	case u.User != nil:
		return nil, "", errors.New(form + ", without user and password")
	case u.Hostname() == "" || u.Opaque != "" || strings.HasSuffix(u.Host, ":"):
		return nil, "", errors.New(form + ", with a host")
	}
	u.Fragment, u.RawFragment = "", ""
	if u.Scheme == "http" && !toll.IsLoopback(strings.ToLower(u.Hostname())) {
		warning = fmt.Sprintf("%s does not use https: the prompt and the payment token are sent unencrypted.", u.Host)
	}
	return u, warning, nil
}

// bracketed adds the missing brackets if the authority of a URL is a bare IPv6 address.
func bracketed(raw string) string {
	scheme, rest, found := strings.Cut(raw, "://")
	host := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		host = rest[:i]
	}
	if addr, err := netip.ParseAddr(host); !found || err != nil || !addr.Is6() {
		return raw
	}
	return scheme + "://[" + host + "]" + rest[len(host):]
}

// agentURL parses the argument name as the address of an agent, and warns if it is not https.
func (c *call) agentURL(name string) (*url.URL, error) {
	u, warning, err := agentURL(c.args.text(name, ""))
	if err != nil {
		return nil, invalid(name, "%s", err.Error())
	}
	if warning != "" {
		c.warn(warning)
		c.core.reach.logPlain(c.core, u.Host)
	}
	return u, nil
}

// reach sends the requests to agents. The zero value is ready to use. It is safe for concurrent use.
type reach struct {
	mu      sync.Mutex
	clients map[bool]*outbound.Client // key: whether private networks are allowed
	warned  *cache.Cache[string, struct{}]
	sent    *cache.Cache[toll.Hash, struct{}] // tokens with a spending limit that a query used
	adjust  func(*outbound.Config)            // for tests; nil changes nothing
}

// to returns the HTTP client for the agents of an account.
func (r *reach) to(c *Core, a *account) *outbound.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	private := a.privateAgents
	if o := r.clients[private]; o != nil {
		return o
	}
	cfg := outbound.Config{
		AnyPort: true,
		Private: private,
		Refuse:  c.isSelf,
		Timeout: agentTimeout,
	}
	if r.adjust != nil {
		r.adjust(&cfg)
	}
	if r.clients == nil {
		r.clients = map[bool]*outbound.Client{}
	}
	r.clients[private] = outbound.New(cfg)
	return r.clients[private]
}

// isSelf reports whether an address is the core itself. An agent there would be paid with credits that the core itself earns,
// and could call itself endlessly.
func (c *Core) isSelf(to netip.AddrPort) bool {
	host, port, err := net.SplitHostPort(c.opts.Listen)
	if err != nil || port != strconv.Itoa(int(to.Port())) {
		return false
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case to.Addr().IsLoopback():
		return true
	case host == "" || err == nil && addr.IsUnspecified():
		return isOwn(to.Addr())
	}
	return addr.Unmap() == to.Addr()
}

// isOwn reports whether an address belongs to this machine.
func isOwn(a netip.Addr) bool {
	own, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(own, func(n net.Addr) bool {
		p, err := netip.ParsePrefix(n.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// logPlain logs, at most once a day for each host, that an agent is called without https.
func (r *reach) logPlain(c *Core, host string) {
	now := c.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned == nil {
		r.warned = cache.New[string, struct{}](maxWarned)
	}
	if _, known := r.warned.Get(host, now); known {
		return
	}
	r.warned.Put(host, struct{}{}, now.Add(warnedForTime), now)
	c.log.Warn("an agent is called without https", "host", host)
}

// first reports whether no earlier query used this access token with a spending limit. Each confirmation allows one query, but
// a repeated call gets the same token.
func (r *reach) first(permission toll.Hash, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent == nil {
		r.sent = cache.New[toll.Hash, struct{}](maxActs)
	}
	if _, known := r.sent.Get(permission, now); known {
		return false
	}
	r.sent.Put(permission, struct{}{}, now.Add(actLife), now)
	return true
}

// reachError returns the error for a failed request to an agent: [AgentBlocked] or [AgentUnreachable].
func reachError(u *url.URL, err error) *Error {
	if errors.Is(err, outbound.ErrRefused) {
		return errorf(AgentBlocked, "requests to %s are not allowed", u.Host).
			withHint("The operator can allow agents in private networks with allowPrivateAgents. " +
				"Link-local addresses and the address of the core (this process) are always blocked.")
	}
	e := errorf(AgentUnreachable, "%s did not answer", u.Host).withHint("Check the address, or retry later.")
	e.Retryable = true
	return e
}

// card is the self-description of an agent. Its texts are untrusted; each is one line of limited length.
type card struct {
	Name string // at most 80 characters
	URL  string // at most 2,048 characters
}

// agentCard reads <agentUrl>/.well-known/agent.json within 5 s. It returns nil if the card, which is optional, cannot be read.
func (c *Core) agentCard(ctx context.Context, a *account, agent *url.URL) *card {
	ctx, cancel := context.WithTimeout(ctx, cardTimeout)
	defer cancel()
	at := agent.JoinPath(".well-known", "agent.json")
	at.RawQuery = ""
	res, err := c.reach.to(c, a).Do(ctx, http.MethodGet, at.String(), http.Header{"Accept": {"application/json"}}, nil)
	if err != nil || res.Status != http.StatusOK || len(res.Body) == outbound.MaxBody {
		return nil
	}
	var in struct {
		Name string `json:"name"`
		URL  string `json:"url"`
	}
	if x402.Decode(res.Body, &in) != nil {
		return nil
	}
	return &card{Name: plain.Name(in.Name), URL: plain.Text(in.URL, maxAgentURL)}
}
