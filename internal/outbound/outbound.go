// Package outbound sends requests to URLs that other parties chose, such as webhooks. A [Client] checks a URL as text and again
// as an IP address when it dials. It does not follow redirects, and bounds the size and time of responses.
package outbound

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrRefused means that requests to this address are not allowed. It does not include the reason, which could reveal the network
// of the service.
var ErrRefused = errors.New("outbound: the address is not allowed")

// ErrNoAnswer means that no valid response arrived before the deadline, for any reason.
var ErrNoAnswer = errors.New("outbound: no valid response")

// ErrNoConnection is an [ErrNoAnswer] without a connection: nothing was sent. Its text is the same, so logs and events do not reveal
// which ports are open.
var ErrNoConnection = fmt.Errorf("%w", ErrNoAnswer)

const (
	maxURL = 2048
	// MaxBody bounds a response body, in bytes.
	MaxBody = 1 << 20
	// DefaultTimeout bounds a request whose context has no earlier deadline.
	DefaultTimeout = 5 * time.Second
)

// ports are the usual https ports of public services.
var ports = map[string]bool{"": true, "443": true, "8443": true}

// Resolver resolves names, as [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Config sets the allowed addresses.
type Config struct {
	// Loopback also allows http and https to this machine, on every port, for developer sandboxes.
	Loopback bool
	// AnyPort also allows http and every port, for addresses chosen by a user of this machine.
	AnyPort bool
	// Private also allows this machine, private networks, and host names of one label that resolve to them. Link-local addresses
	// and cloud metadata addresses are never allowed.
	Private bool
	// Refuse reports addresses to refuse in addition, if not nil.
	Refuse func(netip.AddrPort) bool
	// Resolver resolves host names, nil for [net.DefaultResolver].
	Resolver Resolver
	// Timeout bounds a request up to the end of its response, 0 for [DefaultTimeout].
	Timeout time.Duration
	// IgnoreBody leaves response bodies unread.
	IgnoreBody bool
	// Transport may adjust the transport, for example its trusted certificates. For tests.
	Transport func(*http.Transport)
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	cfg  Config
	http *http.Client
}

// New returns a client.
func New(cfg Config) *Client {
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	c := &Client{cfg: cfg}
	t := &http.Transport{
		Proxy:                  nil, // a proxy would dial the address without these checks
		DialContext:            c.dial,
		TLSHandshakeTimeout:    cfg.Timeout,
		ResponseHeaderTimeout:  cfg.Timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // a small body must not expand to a large one
		ForceAttemptHTTP2:      true,
	}
	if cfg.Transport != nil {
		cfg.Transport(t)
	}
	c.http = &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check returns [ErrRefused] unless the text of a url is allowed: https, a plain host name or public IP address, port 443 or 8443,
// no user, at most 2,048 bytes. [Config] allows more. It does not resolve the name, which would reveal the network.
func (c *Client) Check(raw string) error {
	_, err := c.parse(raw)
	return err
}

func (c *Client) parse(raw string) (*url.URL, error) {
	if raw == "" || len(raw) > maxURL || strings.ContainsFunc(raw, odd) {
		return nil, ErrRefused
	}
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.Opaque != "" || u.Host == "" || strings.HasSuffix(u.Host, ":") {
		return nil, ErrRefused
	}
	host := u.Hostname()
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, ErrRefused
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		switch {
		case c.cfg.Loopback && isLoopback(addr):
			return u, nil
		case !c.allows(addr):
			return nil, ErrRefused
		}
	} else if !plainName(host) && !(c.cfg.Private && HostName(host)) {
		if c.cfg.Loopback && host == "localhost" {
			return u, nil
		}
		return nil, ErrRefused
	}
	if !c.cfg.AnyPort && (u.Scheme != "https" || !ports[u.Port()]) {
		return nil, ErrRefused
	}
	return u, nil
}

// odd reports whether url parsers disagree on a character.
func odd(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }

// plainName reports whether host may be a name on the public internet: at least two labels, not under localhost, local or internal.
func plainName(host string) bool {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	return HostName(host) && strings.Contains(host, ".") && last != "localhost" && last != "local" && last != "internal"
}

// HostName reports whether host is an ASCII host name of letters, digits and hyphens. The last label must not begin with a
// digit, because some programs would read such a name as an IP address.
func HostName(host string) bool {
	labels := strings.Split(strings.ToLower(host), ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		for _, r := range l {
			if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
				return false
			}
		}
	}
	last := labels[len(labels)-1]
	return len(host) <= 253 && (last[0] < '0' || last[0] > '9')
}

// special are networks outside the public internet that the methods of [netip.Addr] do not exclude.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	// Only 2000::/3 of IPv6 is allocated; these parts of it lead elsewhere, or contain an IPv4 address.
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"),
}

// metadata are addresses that serve cloud credentials, outside the link-local network.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("fd00:c1::/32"),       // Oracle
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
}

var given = netip.MustParsePrefix("2000::/3")

// public reports whether an address is on the public internet.
func public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	if !a.IsValid() || !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && !given.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

func isLoopback(a netip.Addr) bool { return a.Unmap().IsLoopback() && a.Zone() == "" }

// shared is the network between a carrier and its customers (RFC 6598), which counts as private.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// allows reports whether connections to an address are allowed.
func (c *Client) allows(a netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(a.Unmap()) }
	switch {
	case slices.ContainsFunc(metadata, in):
		return false
	case public(a):
		return true
	case isLoopback(a):
		return c.cfg.Loopback || c.cfg.Private
	}
	a = a.Unmap()
	return c.cfg.Private && a.Zone() == "" && (a.IsPrivate() || shared.Contains(a))
}

// dial resolves a name, checks every address, and connects to the first address that accepts, without resolving again. If any
// address is not allowed, it refuses the name.
func (c *Client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, ErrRefused
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, ErrRefused
	}
	var addrs []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{a}
	} else if addrs, err = c.cfg.Resolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, ErrNoConnection
	}
	if len(addrs) == 0 {
		return nil, ErrNoConnection
	}
	for _, a := range addrs {
		refused := c.cfg.Refuse != nil && c.cfg.Refuse(netip.AddrPortFrom(a.Unmap(), uint16(number)))
		if refused || !c.allows(a) {
			return nil, ErrRefused
		}
	}
	var d net.Dialer
	for _, a := range addrs {
		var conn net.Conn
		if conn, err = d.DialContext(ctx, network, netip.AddrPortFrom(a.Unmap(), uint16(number)).String()); err == nil {
			return conn, nil
		}
	}
	return nil, ErrNoConnection
}

// kindOf returns the error of this package that err wraps, without its details.
func kindOf(err error) error {
	for _, kind := range []error{ErrRefused, ErrNoConnection} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return ErrNoAnswer
}

// RoundTrip implements [http.RoundTripper]: the response is unchanged, and its body unbounded. It checks the url again. Errors:
// [ErrRefused] and [ErrNoConnection] before anything was sent, else [ErrNoAnswer].
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	_, err := c.parse(req.URL.String())
	var res *http.Response
	if err == nil {
		res, err = c.http.Transport.RoundTrip(req)
	} else if req.Body != nil {
		_ = req.Body.Close()
	}
	if err != nil {
		return nil, kindOf(err)
	}
	return res, nil
}

// Answer is a response. Redirects are responses.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // cut after [MaxBody] bytes
}

// Do sends a request and reads its response. It checks the url again, and ignores a Host header. Errors are [ErrRefused],
// [ErrNoConnection], and [ErrNoAnswer].
func (c *Client) Do(ctx context.Context, method, raw string, header http.Header, body []byte) (*Answer, error) {
	u, err := c.parse(raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(string(body)))
	if err != nil {
		return nil, ErrRefused
	}
	maps.Copy(req.Header, header)
	res, err := c.http.Do(req)
	if err != nil {
		return nil, kindOf(err)
	}
	defer res.Body.Close()
	answer := &Answer{Status: res.StatusCode, Header: res.Header}
	if c.cfg.IgnoreBody {
		return answer, nil
	}
	if answer.Body, err = io.ReadAll(io.LimitReader(res.Body, MaxBody)); err != nil {
		return nil, ErrNoAnswer
	}
	return answer, nil
}
