package paid

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Proxy returns a reverse proxy with a price list, which puts a price on an HTTP upstream without changing it. A request without
// a matching key takes the [Default] route, or gets 404 if there is no default.
//
// If routers read a path in different ways ("%2F", "%5C", "//", ";"), all readings must match the same route, and Go must be able to
// parse the complete query; otherwise the request gets 400 and pays nothing. The upstream receives path and query as sent, with dot
// segments resolved, and its own Host. The proxy sets X-Forwarded-For, X-Forwarded-Proto, and (with [PublicURL]) X-Forwarded-Host.
// It removes these headers from the request, as well as the payment and headers that rewrite paths or methods. [With] contains the
// options of the proxy itself, such as Log and PublicURL.
//
// Only event streams and JSON lines (application/x-ndjson) stream. Other responses wait for their settlement, up to [MaxBuffer].
func Proxy(f x402.Facilitator, upstream *url.URL, routes ...Route) http.Handler {
	checkUpstream(upstream)
	p := &proxy{c: newConfig(append([]Option{Upstream(upstream, nil)}, sharedOptions(routes)...))}
	next := p.reverse(p.c)
	p.table = newTable(f, func(c *config) http.Handler {
		if c.upstream == nil {
			return next
		}
		return p.reverse(c)
	}, routes, true)
	p.table.strip = stripRequest
	return p
}

func checkUpstream(u *url.URL) {
	if u == nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		panic("paid: an upstream must be an absolute http or https URL")
	}
}

type proxy struct {
	c     *config
	table *table
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	correlation := correlationID(r.Header)
	err := checkRequest(r, -1) // the route bounds the body
	var e *entry
	var values []string
	var path requestPath
	if err == nil {
		e, values, path, err = p.table.find(r)
	}
	if _, bad := url.ParseQuery(r.URL.RawQuery); err == nil && bad != nil {
		// The reverse proxy would drop the malformed parameter, so the caller would pay for a different request.
		err = toll.Errorf(toll.CodeBadRequest, "The query is malformed.")
	}
	if err != nil {
		writeError(w, err, correlation)
		return
	}
	if e == nil {
		writeError(w, toll.NewError(toll.CodePathNotFound), correlation)
		return
	}
	if e.gate == nil {
		if err := checkRequest(r, p.c.maxBody); err != nil {
			writeError(w, err, correlation)
			return
		}
	}
	// From here on resource, price and upstream see the same path.
	in := &body{ReadCloser: r.Body}
	out := r.WithContext(context.WithValue(r.Context(), proxiedBody{}, in))
	if r.Body != nil {
		out.Body = in
	}
	u := *r.URL
	u.RawPath = path.sent
	u.Path, _ = url.PathUnescape(path.sent) // cannot fail: find has parsed the path
	out.URL = &u
	e.serve(w, withValues(out, e, values))
}

// proxiedBody is the context key of the request body.
type proxiedBody struct{}

// reverse returns the reverse proxy for the upstream of a route.
func (p *proxy) reverse(c *config) http.Handler {
	transport := c.transport
	if transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConnsPerHost = 64
		transport = own
	}
	return &httputil.ReverseProxy{
		Transport:  transport,
		BufferPool: buffers{},
		ErrorLog:   slog.NewLogLogger(p.c.Log.Handler(), slog.LevelWarn),
		Rewrite:    func(pr *httputil.ProxyRequest) { p.rewrite(pr, c.upstream) },
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode == http.StatusSwitchingProtocols {
				return errors.New("the upstream server switched protocols, which paid routes do not support")
			}
			stripAnswer(res.Header)
			if seller.IsStream(res.Header) {
				seller.NoBuffering(res.Header)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if in, ok := r.Context().Value(proxiedBody{}).(*body); ok && in.late.Load() {
				writeError(w, toll.NewError(toll.CodeRequestTimeout), correlationID(r.Header))
				return
			}
			// Without a response, net/http would send 200. A disconnect of the caller is not logged as a failure.
			if !errors.Is(err, context.Canceled) || r.Context().Err() == nil {
				p.c.Log.Error("paid: the request to the upstream server failed", "error", err)
			}
			// Not CodeUnavailable, which clients retry: the upstream may have done its work.
			e := toll.NewError(toll.CodeInternal)
			e.Message, e.Status = "The upstream server did not answer.", http.StatusBadGateway
			if c.onError == nil || !c.onError(w, r, e) {
				writeError(w, e, correlationID(r.Header))
			}
		},
	}
}

// buffers is the [httputil.BufferPool] of all proxies.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

func (buffers) Get() []byte  { return *bufferPool.Get().(*[]byte) }
func (buffers) Put(b []byte) { bufferPool.Put(&b) }

func (p *proxy) rewrite(pr *httputil.ProxyRequest, upstream *url.URL) {
	h := pr.Out.Header
	for name := range h {
		if n := dashed(name); strings.HasPrefix(n, "x-forwarded") || n == "forwarded" || n == "x-real-ip" || n == "true-client-ip" {
			delete(h, name)
		}
	}
	pr.Out.Trailer = nil // it could contain a payment header
	pr.SetURL(upstream)
	if ip, _, err := net.SplitHostPort(pr.In.RemoteAddr); err == nil {
		h.Set("X-Forwarded-For", ip)
	}
	proto := "http"
	if pr.In.TLS != nil {
		proto = "https"
	}
	if public, err := url.Parse(p.c.publicURL); err == nil && public.Host != "" {
		proto = public.Scheme
		h.Set("X-Forwarded-Host", public.Host)
	}
	h.Set("X-Forwarded-Proto", proto)
}
