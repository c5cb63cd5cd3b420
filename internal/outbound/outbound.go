// Package outbound sends requests to addresses that other parties chose, such as webhooks. It checks an address as text and,
// when it dials, as an IP address. It follows no redirects, and bounds responses in size and time.
package outbound

import (
	"cmp"
	"context"
	"errors"
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

// ErrRefused means that the service sends no requests to this address. It is the same for every reason, so that it reveals
// nothing about the network of the service.
var ErrRefused = errors.New("outbound: the address is not allowed")

// ErrNoAnswer means that there was no valid response in time, for any reason.
var ErrNoAnswer = errors.New("outbound: no answer")

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
	// AnyPort also allows http and every port, for addresses that a person of this machine chose.
	AnyPort bool
	// Private also allows this machine, private networks, and names of one label that lead there. Link-local addresses and
	// cloud metadata addresses are never allowed.
	Private bool
	// Refuse refuses more addresses; nil refuses none.
	Refuse func(netip.AddrPort) bool
	// Resolver is nil for the resolver of the machine.
	Resolver Resolver
	// Timeout bounds a whole request, 0 for [DefaultTimeout].
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
		Proxy:                  nil, // a proxy would dial what is checked here
		DialContext:            c.dial,
		TLSHandshakeTimeout:    cfg.Timeout,
		ResponseHeaderTimeout:  cfg.Timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           256,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true, // a small answer stays small
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

// Close closes connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Check reports whether requests may go to a url by its text: https, a plain host name or public IP address, a usual port, no
// user. It does not resolve the name, which would reveal the network. Every refusal is [ErrRefused].
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

// odd reports characters on which url parsers disagree.
func odd(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }

// plainName reports whether host is a name of at least two labels of the public internet.
func plainName(host string) bool {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	return HostName(host) && strings.Contains(host, ".") && last != "localhost" && last != "local" && last != "internal"
}

// HostName reports whether host is an ASCII host name of letters, digits and hyphens. The last label must not begin with a
// digit: some programs would read such a name as an IP address.
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

// special are networks outside the public internet that netip does not know.
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

// shared are the addresses between a carrier and its customers, which count as private.
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

// dial resolves a name, checks every address and connects to the first one, without resolving again. One address that is not
// allowed refuses the name.
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
		return nil, ErrNoAnswer
	}
	if len(addrs) == 0 {
		return nil, ErrNoAnswer
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
	return nil, ErrNoAnswer
}

// RoundTrip implements [http.RoundTripper]: the response is unchanged, and its body unbounded. It checks the url again. Errors:
// [ErrRefused] before anything was sent, else [ErrNoAnswer].
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	_, err := c.parse(req.URL.String())
	var res *http.Response
	if err == nil {
		res, err = c.http.Transport.RoundTrip(req)
	} else if req.Body != nil {
		_ = req.Body.Close()
	}
	switch {
	case errors.Is(err, ErrRefused):
		return nil, ErrRefused
	case err != nil:
		return nil, ErrNoAnswer
	}
	return res, nil
}

// Answer is a response. Redirects are responses.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // at most [MaxBody] bytes; what is longer is cut
}

// Do sends a request and reads its response. It checks the url again, and ignores a Host header. Errors are [ErrRefused] and
// [ErrNoAnswer].
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
		if errors.Is(err, ErrRefused) {
			return nil, ErrRefused
		}
		return nil, ErrNoAnswer
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
