package web

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/auth"
)

// newAPI returns a client of the API that calls its handler inside the process. A page has no rules
// of its own: it reads and acts as any program does, with the rights of the person or of the API
// key that signed in. Each call needs the context of [visit.acting].
func newAPI(d Deps) *client.Client {
	return client.New("", client.WithoutKey(), client.WithURL(d.PublicURL), client.WithNamespace(d.Namespace),
		client.WithHTTPClient(&http.Client{Transport: inside{d.Handler}}), client.WithRetries(0), client.WithLog(d.Log))
}

// acting is the context for calls of [Web.API] on behalf of the visitor.
func (v *visit) acting() context.Context {
	p := auth.Page{Source: v.w.Address(v.r)}
	if v.person != nil {
		p.Caller, p.Proof, p.ProvedAt = v.person.Caller, v.person.Proof, v.person.Since
	}
	return auth.WithPage(v.ctx(), p)
}

// inside is a transport that calls a handler in place of a server.
type inside struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. It refuses a request without a [auth.Page], for which the
// handler would take the caller from headers.
func (t inside) RoundTrip(r *http.Request) (*http.Response, error) {
	page := auth.PageOf(r.Context())
	if page == nil {
		return nil, http.ErrNotSupported
	}
	in := r.Clone(r.Context())
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), net.JoinHostPort(page.Source, "0")
	if in.Body == nil {
		in.Body = http.NoBody
	}
	rec := &recorder{header: http.Header{}}
	t.handler.ServeHTTP(rec, in)
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	return &http.Response{
		Status: http.StatusText(rec.status), StatusCode: rec.status, Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(&rec.body), ContentLength: int64(rec.body.Len()), Request: r,
	}, nil
}

// recorder keeps an answer in memory. The API bounds its answers.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
}
