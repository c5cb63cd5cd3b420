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

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Proxy puts a price on an HTTP upstream without code in it: a reverse proxy with a price list. What no key matches takes
// the [Default] route, and without one is 404.
//
// A path that routers read in several ways ("%2F", "%5C", "//", ";") must have one route in all of them, and a query must be one that
// Go reads whole; otherwise the request is 400 and pays nothing. The upstream sees path and query as they were sent, without dot
// segments, its own Host, and X-Forwarded-For, -Proto and (with [PublicURL]) -Host as this
// proxy knows them; what the client sent there is dropped, as are the payment and headers that rewrite paths or methods.
// Options of the proxy itself (log, public address) are those of [With].
//
// Only event streams stream; other answers wait for their settlement up to [MaxBuffer].
func Proxy(f x402.Facilitator, upstream *url.URL, routes ...Route) http.Handler {
	if upstream == nil || upstream.Host == "" || (upstream.Scheme != "http" && upstream.Scheme != "https") {
		panic("paid: Proxy needs an absolute http or https URL")
	}
	p := &proxy{c: newConfig(sharedOptions(routes)), upstream: *upstream}
	next := p.reverse()
	p.table = newTable(f, next, routes, true)
	p.table.strip = stripRequest
	return p
}

type proxy struct {
	c        *config
	upstream url.URL
	table    *table
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	correlation := correlationID(r.Header)
	err := checkRequest(r, -1) // of the body the route decides
	var e *entry
	var values []string
	var path requestPath
	if err == nil {
		e, values, path, err = p.table.find(r)
	}
	if _, bad := url.ParseQuery(r.URL.RawQuery); err == nil && bad != nil {
		// The reverse proxy would drop such a parameter, and the caller would pay for another request.
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
	u.Path, _ = url.PathUnescape(path.sent) // it was escaped or read before
	out.URL = &u
	e.serve(w, withValues(out, e, values))
}

// proxiedBody is the key of the body that a caller sends through the proxy.
type proxiedBody struct{}

func (p *proxy) reverse() http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	return &httputil.ReverseProxy{
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(p.c.Log.Handler(), slog.LevelWarn),
		Rewrite:   p.rewrite,
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode == http.StatusSwitchingProtocols {
				return errors.New("the upstream changed the protocol")
			}
			stripAnswer(res.Header)
			if seller.IsEvents(res.Header) {
				seller.NoBuffering(res.Header)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if in, ok := r.Context().Value(proxiedBody{}).(*body); ok && in.late.Load() {
				writeError(w, toll.NewError(toll.CodeRequestTimeout), correlationID(r.Header))
				return
			}
			// An answer that is not written would be a 200. One that a caller who left ended is nothing to look into.
			if !errors.Is(err, context.Canceled) || r.Context().Err() == nil {
				p.c.Log.Error("paid: the upstream failed", "error", err)
			}
			// Not CodeUnavailable: its callers may repeat, and the upstream may have done its work.
			e := toll.NewError(toll.CodeInternal)
			e.Message, e.Status = "The upstream did not answer.", http.StatusBadGateway
			writeError(w, e, correlationID(r.Header))
		},
	}
}

func (p *proxy) rewrite(pr *httputil.ProxyRequest) {
	h := pr.Out.Header
	for name := range h {
		if n := dashed(name); strings.HasPrefix(n, "x-forwarded") || n == "forwarded" || n == "x-real-ip" || n == "true-client-ip" {
			delete(h, name)
		}
	}
	pr.Out.Trailer = nil // a payment header could travel there too
	pr.SetURL(&p.upstream)
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
