package api

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/store"
)

// Limits say how many calls a second one caller may make. The zero value limits nobody. They count in this process alone.
type Limits struct {
	// PerKey is for each API key, PerIP for each address without a valid one (of IPv6 for each /64); 0 = no limit.
	PerKey, PerIP int
	// KeyBurst and IPBurst are how many calls may come at once, 0 = four times as many as in a second.
	KeyBurst, IPBurst int
	// Proxies are the peers whose X-Forwarded-For is believed. None: a caller is who is connected.
	Proxies []netip.Prefix
	// Clock is the time by which calls are counted; nil: the one of this process, which nobody sets.
	Clock func() time.Time
}

// ParseProxies reads addresses and prefixes, separated by commas.
func ParseProxies(text string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := netip.ParsePrefix(part)
		if err != nil {
			a, e := netip.ParseAddr(part)
			if e != nil {
				return nil, fmt.Errorf("%q is neither an IP address nor a prefix such as 10.0.0.0/8", part)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// burstSeconds is how many seconds of its rate a caller may use at once.
const burstSeconds = 4

func newMeter(perSecond, burst int) *meter.Meter[[16]byte] {
	if perSecond <= 0 {
		return nil
	}
	if burst <= 0 {
		burst = burstSeconds * perSecond
	}
	return meter.New[[16]byte](time.Second/time.Duration(perSecond), int64(burst))
}

type gatekeeper struct {
	keys, addresses *meter.Meter[[16]byte]
	proxies         []netip.Prefix
	clock           func() time.Time
	began           time.Time
}

func newGatekeeper(l Limits) *gatekeeper {
	g := &gatekeeper{keys: newMeter(l.PerKey, l.KeyBurst), addresses: newMeter(l.PerIP, l.IPBurst), proxies: l.Proxies, clock: l.Clock}
	if g.keys == nil && g.addresses == nil {
		return nil
	}
	if g.clock == nil {
		g.clock = time.Now
	}
	g.began = g.clock()
	return g
}

// admit counts the call for its API key, or without a valid one for its address, and says how things stand in headers.
// Whether a key is valid is known by then: that costs no query for a key that is not of this service, and an address says
// too little of a caller to refuse a good key for it.
func (g *gatekeeper) admit(c *call) error {
	m := g.addresses
	var who [16]byte
	if c.known {
		m = g.keys
		copy(who[:], c.caller.KeyID[:])
		if c.caller.KeyID.IsZero() {
			who = c.caller.UserID // by a page
		}
	} else if m != nil {
		who = g.source(c.r)
	}
	if p := c.browser; m == nil || c.resource.unlimited() || p != nil && p.Counted != nil && *p.Counted {
		return nil
	}
	r := m.Take(who, 1, g.clock().Sub(g.began))
	header := c.w.Header()
	header["Ratelimit-Limit"] = []string{strconv.FormatInt(m.Burst(), 10)}
	header["Ratelimit-Remaining"] = []string{strconv.FormatInt(r.Left, 10)}
	header["Ratelimit-Reset"] = []string{strconv.Itoa(seconds(r.Full))}
	if r.OK {
		if p := c.browser; p != nil && p.Counted != nil {
			*p.Counted = true
		}
		return nil
	}
	e := toll.NewError(toll.CodeRateLimited)
	e.RetryAfterSecs = max(seconds(r.Retry), 1)
	return e
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// unlimited reports whether everybody may ask at any rate: what supervises the service asks without a key, often from the
// address of a proxy.
func (res *resource) unlimited() bool { return res != nil && res.routes[0].unlimited }

// source is the address that a call counts for, of IPv6 without its last 64 bits, which a caller chooses.
func (g *gatekeeper) source(r *http.Request) [16]byte {
	a := Source(r, g.proxies)
	if a.Is6() && !a.Is4In6() {
		p, _ := a.Prefix(64) // 64 bits fit
		return p.Addr().As16()
	}
	return a.As16()
}

// Source is the address of the caller. Whoever is connected is the caller, except that a trusted proxy speaks for the last
// address in X-Forwarded-For that is not such a proxy itself; what stands before it anybody may have written.
func Source(r *http.Request, proxies []netip.Prefix) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	peer, err := parseIP(host)
	if err != nil || !contained(proxies, peer) {
		return peer
	}
	entries := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, entry := range slices.Backward(entries) {
		a, err := parseIP(strings.TrimSpace(entry))
		if err != nil {
			return peer
		}
		if peer = a; !contained(proxies, peer) {
			return peer
		}
	}
	return peer
}

func parseIP(text string) (netip.Addr, error) {
	if text == "" {
		return netip.IPv6Unspecified(), errors.New("api: no address")
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		// Some proxies add the port.
		p, e := netip.ParseAddrPort(text)
		if e != nil {
			return netip.IPv6Unspecified(), err
		}
		a = p.Addr()
	}
	return a.Unmap().WithZone(""), nil
}

func contained(in []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(in, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Quotas bound what one account may have at a time, and what it may add in an hour, so that nobody fills the database. 0 is the
// default of a kind, a negative number lifts the limit.
type Quotas struct {
	Agents      int64 // default 10,000
	Plans       int64 // default 10,000
	APIKeys     int64 // default 1,000, those that are neither revoked nor expired
	Delegations int64 // default 10,000, those that are neither revoked nor expired

	// In an hour, in this process. Who was idle for an hour may do all at once.
	Orders      int64 // default 3,600, free ones and those that fail too
	Permissions int64 // default 36,000; the facilitator counts them
	FreeHolds   int64 // default 36,000, holds that burn nothing; the facilitator counts them
	SubTasks    int64 // default 360,000
	Changes     int64 // default 36,000, all other calls that add or change records
}

// countedBytes is how many bytes of a body count as one more call.
const countedBytes = 4 << 10

// What calls add, by the names of the quotas.
const (
	flowOrders   = "orders"
	flowSubTasks = "sub-tasks"
	flowChanges  = "changes"
)

func newFlows(q Quotas) map[string]*meter.Quota {
	return map[string]*meter.Quota{
		flowOrders:   meter.NewQuota(flowOrders, q.Orders, 3_600),
		flowSubTasks: meter.NewQuota(flowSubTasks, q.SubTasks, 360_000),
		flowChanges:  meter.NewQuota(flowChanges, q.Changes, 36_000),
	}
}

// flow names the quota of the calls of a route, "" for none. What only reads or ends something is never refused, and payments are
// counted by the facilitator.
func (r *route) flow() string {
	switch r.op {
	case "verify", "settle", "release", "renew", "signOffers", "createPermission", "advanceClock", "startSimulation", "finishSimulation":
		return ""
	case "orderPlan", "openCheckout", "openStripePayment":
		return flowOrders
	case "recordSubTask":
		return flowSubTasks
	}
	if r.auth == open {
		return ""
	}
	switch r.method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return flowChanges
	}
	return ""
}

// count counts the call for the quota of its route. A large body counts for several calls.
func (c *call) count() error {
	if !c.known {
		return nil // nobody to count for
	}
	n := c.r.ContentLength
	if n < 0 || n > maxBodyBytes {
		n = maxBodyBytes
	}
	if e := c.h.flows[c.route.flow()].Take(c.caller.Address, 1+n/countedBytes); e != nil {
		return e
	}
	return nil
}

func (q Quotas) of(kind store.Kind) int64 {
	n, usual := int64(0), int64(10_000)
	switch kind {
	case store.KindAgent:
		n = q.Agents
	case store.KindPlan:
		n = q.Plans
	case store.KindAPIKey:
		n, usual = q.APIKeys, 1000
	case store.KindDelegation:
		n = q.Delegations
	}
	if n == 0 {
		return usual
	}
	return n
}

// quotaRetrySecs is the Retry-After of a refusal: nothing changes by itself soon.
const quotaRetrySecs = 3600

// bounds are [Quotas] at a time.
type bounds struct {
	quotas Quotas
	clock  clock
}

// of bounds the records of a kind that an owner may have; nil when nothing does.
func (b bounds) of(kind store.Kind, owner toll.Address) *store.Quota {
	most := b.quotas.of(kind)
	if most < 0 {
		return nil
	}
	e := toll.Errorf(toll.CodeRateLimited, "A workspace can have at most %d %s.", most, kind).
		WithParam("quota", kind).WithParam("limit", most).WithHint("Ask the operator to raise the limit.")
	if kind == store.KindAPIKey || kind == store.KindDelegation {
		e = e.WithHint("Revoke records that you no longer need, or ask the operator to raise the limit.")
	}
	e.RetryAfterSecs = quotaRetrySecs
	return &store.Quota{Kind: kind, Owner: owner, Most: most, At: b.clock.now(), Full: e}
}
