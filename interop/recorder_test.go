package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// call is a request to the facilitator with its answer.
type call struct {
	operation string // verify, settle, release, supported
	path      string
	sent      []byte
	status    int
	header    http.Header
	answer    []byte
}

// text returns a member of the answer that is a text or a truth value, "" when there is none.
func (c *call) text(name string) string {
	var members map[string]any
	if json.Unmarshal(c.answer, &members) != nil {
		return ""
	}
	switch v := members[name].(type) {
	case string:
		return v
	case bool:
		return map[bool]string{true: "true", false: "false"}[v]
	}
	return ""
}

// recorder stands between a server and the facilitator.
type recorder struct {
	url    string
	target *url.URL

	mu    sync.Mutex
	calls []*call
	// before an answer goes on: false drops it, and the connection with it.
	before func(*call) bool
	// ahead of a call: what happens before it goes on.
	ahead func(operation string)
}

func newRecorder(t *testing.T, target string) *recorder {
	t.Helper()
	u := must.Get(url.Parse(target))(t)
	r := &recorder{target: u}
	// Connections are not kept: a service that was killed and started again would be met through a dead one.
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(r.target)
			p.Out.URL.Path, p.Out.URL.RawPath = p.In.URL.Path, p.In.URL.RawPath
		},
		ModifyResponse: r.record,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, _ error) {
			panic(http.ErrAbortHandler)
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		q.Body = io.NopCloser(bytes.NewReader(body))
		c := &call{operation: path.Base(q.URL.Path), path: q.URL.Path, sent: body}
		if r.ahead != nil {
			r.ahead(c.operation)
		}
		proxy.ServeHTTP(w, q.WithContext(contextWith(q.Context(), c)))
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *recorder) record(res *http.Response) error {
	c := callOf(res.Request.Context())
	var err error
	if c.answer, err = io.ReadAll(res.Body); err != nil {
		return err
	}
	res.Body = io.NopCloser(bytes.NewReader(c.answer))
	c.status, c.header = res.StatusCode, res.Header.Clone()
	r.mu.Lock()
	r.calls = append(r.calls, c)
	before := r.before
	r.mu.Unlock()
	if before != nil && !before(c) {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// of returns the calls of an operation so far.
func (r *recorder) of(operation string) []*call {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*call
	for _, c := range r.calls {
		if c.operation == operation {
			out = append(out, c)
		}
	}
	return out
}

// intercept lets f see each answer before it goes on.
func (r *recorder) intercept(f func(*call) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before = f
}

type callKey struct{}

func contextWith(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }
