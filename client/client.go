package client

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Version is the API version of this release; [WithVersion] overrides it.
const Version = "1.1"

const (
	defaultURL     = "http://127.0.0.1:8402"
	defaultTimeout = 45 * time.Second // above the 30 s for which the service may wait for an order
	defaultAgent   = "toll-go"
)

// Client calls one service with one API key. It is safe for concurrent use.
type Client struct {
	key       string
	base      *url.URL // origin and prefix of the service, without /api/v1
	baseErr   error    // a malformed base address is an error of every call
	http      *http.Client
	timeout   time.Duration
	version   string
	userAgent string
	workspace string      // of every call; "" for the workspace of the API key
	header    http.Header // of every call; requests share the values, which are read-only
	retries   int
	maxWait   time.Duration
	names     x402.Namespace
	log       *slog.Logger
	sleep     func(d time.Duration) <-chan time.Time
	now       func() time.Time
	info      atomic.Pointer[Info]
	address   atomic.Pointer[toll.Address] // that the service returned, see [Client.Address]
	// deprecated is set after the first warning about a deprecated form.
	deprecated atomic.Bool
}

// Option configures a client.
type Option func(*Client)

// WithURL sets the address of the service, for example "https://pay.example.com", with or without /api/v1. Default: TOLL_URL,
// else http://127.0.0.1:8402.
func WithURL(address string) Option {
	return func(c *Client) {
		u, err := parseBase(address)
		c.base, c.baseErr = u, err
	}
}

// WithHTTPClient sets the HTTP client, which determines transport, proxy, and TLS. The client never follows redirects.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		if h != nil {
			c.http = h
		}
	}
}

// WithoutKey makes calls without an API key, ignoring TOLL_API_KEY, for public reads and sign-ins.
func WithoutKey() Option { return func(c *Client) { c.key = "" } }

// WithVersion overrides the requested API version; "" uses the version that is pinned to the API key.
func WithVersion(v string) Option { return func(c *Client) { c.version = v } }

// WithTimeout bounds one attempt of a call, default 45 s; 0 leaves it to the context.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = max(d, 0) } }

// WithRetries sets the retries of a call after 408, 429, 502, 503, 504 and network failures, default 2. Only safe calls are retried.
func WithRetries(n int) Option { return func(c *Client) { c.retries = max(n, 0) } }

// WithMaxRetryWait bounds the wait before a retry, including Retry-After, default 5 s. A longer Retry-After ends the retries.
func WithMaxRetryWait(d time.Duration) Option { return func(c *Client) { c.maxWait = max(d, 0) } }

// WithUserAgent adds a product to the User-Agent.
func WithUserAgent(product string) Option {
	return func(c *Client) { c.userAgent = strings.TrimSpace(product + " " + defaultAgent) }
}

// WithNamespace sets the brand words on the wire, default [x402.Default].
func WithNamespace(n x402.Namespace) Option { return func(c *Client) { c.names = n } }

// WithLog logs a line per retry, without keys and access tokens.
func WithLog(l *slog.Logger) Option {
	return func(c *Client) {
		if l != nil {
			c.log = l
		}
	}
}

// New returns a client for an API key. If key is empty, New reads TOLL_API_KEY; without a key, only public reads and sign-ins
// work. New does not call the service.
func New(key string, opts ...Option) *Client {
	c := &Client{
		key: strings.TrimSpace(cmp.Or(key, os.Getenv("TOLL_API_KEY"))), http: &http.Client{Transport: newTransport()}, timeout: defaultTimeout, version: Version,
		userAgent: defaultAgent, retries: 2, maxWait: 5 * time.Second, names: x402.Default,
		log: slog.New(slog.DiscardHandler), sleep: time.After, now: time.Now,
	}
	c.base, c.baseErr = parseBase(cmp.Or(os.Getenv("TOLL_URL"), defaultURL))
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	// A redirect would send the key elsewhere, and the service never redirects.
	h := *c.http
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	h.Timeout = 0
	c.http = &h
	c.header = c.newHeader()
	return c
}

func (c *Client) newHeader() http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {c.userAgent}}
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	if c.workspace != "" {
		h.Set("X-Current-Org-Id", c.workspace)
	}
	if c.version != "" {
		h.Set(c.names.HeaderVersion(), c.version)
	}
	return h
}

// newTransport returns a transport that keeps up to 256 idle connections to the service. The default transport keeps two per
// host, so an agent under load would often dial a new one.
func newTransport() http.RoundTripper {
	d, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program replaced the default transport
		return http.DefaultTransport
	}
	t := d.Clone()
	t.MaxIdleConnsPerHost = 256
	t.MaxIdleConns = 256
	t.WriteBufferSize = 8 << 10 // so that a call with a long access token leaves in one write
	return t
}

// URL returns the address of the service.
func (c *Client) URL() string {
	if c.base == nil {
		return ""
	}
	return c.base.String()
}

// String returns the address without the key.
func (c *Client) String() string { return "toll client for " + c.URL() }

// GoString keeps %#v from printing the key.
func (c *Client) GoString() string { return c.String() }
