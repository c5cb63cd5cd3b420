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

	"github.com/tollhq/toll/x402"
)

// Version is the API version that this release was tested with; [WithVersion] overrides it.
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
	workspace string      // of every call; "": that of the API key
	header    http.Header // of every call; the values are shared, so they are replaced and never changed
	retries   int
	maxWait   time.Duration
	names     x402.Namespace
	log       *slog.Logger
	sleep     func(d time.Duration) <-chan time.Time
	now       func() time.Time
	info      atomic.Pointer[Info]
	// deprecated says that a deprecated form was reported.
	deprecated atomic.Bool
}

// Option configures a client.
type Option func(*Client)

// WithURL sets the address of the service, for example "https://pay.example.com"; a trailing /api/v1 is taken too.
// Default: TOLL_URL, else http://127.0.0.1:8402.
func WithURL(address string) Option {
	return func(c *Client) {
		u, err := parseBase(address)
		c.base, c.baseErr = u, err
	}
}

// WithHTTPClient sets the HTTP client, and so transport, proxy and TLS. Redirects are never followed, whatever it says.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		if h != nil {
			c.http = h
		}
	}
}

// WithoutKey makes a client that has no API key, not even that of TOLL_API_KEY, for what needs none: open reads and sign-ins.
func WithoutKey() Option { return func(c *Client) { c.key = "" } }

// WithVersion overrides the API version that is asked for; "" leaves it to the API key.
func WithVersion(v string) Option { return func(c *Client) { c.version = v } }

// WithTimeout bounds one attempt of a call, default 45 s; 0 leaves it to the context.
func WithTimeout(d time.Duration) Option { return func(c *Client) { c.timeout = max(d, 0) } }

// WithRetries sets how often a call that is safe to repeat is repeated after 408, 429, 502, 503, 504 and failures of the
// network, default 2.
func WithRetries(n int) Option { return func(c *Client) { c.retries = max(n, 0) } }

// WithMaxRetryWait bounds the wait before a repeat, Retry-After included, default 5 s. A service that asks for more gets no
// repeat: its answer is returned at once.
func WithMaxRetryWait(d time.Duration) Option { return func(c *Client) { c.maxWait = max(d, 0) } }

// WithUserAgent puts a product in front of the User-Agent.
func WithUserAgent(product string) Option {
	return func(c *Client) { c.userAgent = strings.TrimSpace(product + " " + defaultAgent) }
}

// WithNamespace sets the brand words on the wire, default [x402.Default].
func WithNamespace(n x402.Namespace) Option { return func(c *Client) { c.names = n } }

// WithLog receives one line per repeat. Keys and access tokens are never logged.
func WithLog(l *slog.Logger) Option {
	return func(c *Client) {
		if l != nil {
			c.log = l
		}
	}
}

// New returns a client for an API key; an empty key is read from TOLL_API_KEY, and without that only open reads work.
// It does not call the service.
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
	// A redirect of an API call would carry the key elsewhere, and the service never sends one.
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

// newTransport keeps a connection for each of many concurrent calls to the one service: the default transport keeps two,
// and an agent under load would dial for every other verify and settle.
func newTransport() http.RoundTripper {
	d, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // somebody replaced it, and knows why
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

// String names the service and never the key.
func (c *Client) String() string { return "toll client for " + c.URL() }

// GoString is String, so that %#v does not print the key.
func (c *Client) GoString() string { return c.String() }
