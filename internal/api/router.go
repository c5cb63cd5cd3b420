package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// router finds routes by exact path. It is our own, because the mux of the standard library redirects, cleans paths and
// answers 404 and 405 by itself (docs/decisions/0006-one-route-table.md).
type router struct {
	static  map[string]*resource
	dynamic [][]*resource // by number of segments
}

type resource struct {
	segments []string // "{name}" takes any segment
	routes   []*route
	allow    []string // value of the Allow header
	union    union
}

func newRouter(table []route) *router {
	r := &router{static: map[string]*resource{}}
	byPath := map[string]*resource{}
	for i := range table {
		t := &table[i]
		res := byPath[t.path]
		if res == nil {
			res = &resource{segments: split(t.path)}
			byPath[t.path] = res
			if strings.Contains(t.path, "{") {
				n := len(res.segments)
				for len(r.dynamic) <= n {
					r.dynamic = append(r.dynamic, nil)
				}
				r.dynamic[n] = append(r.dynamic[n], res)
			} else {
				r.static[t.path] = res
			}
		}
		res.routes = append(res.routes, t)
		res.union = max(res.union, t.union)
	}
	for _, candidates := range r.dynamic {
		slices.SortStableFunc(candidates, func(a, b *resource) int { return a.parameters() - b.parameters() })
	}
	for _, res := range byPath {
		methods := []string{http.MethodOptions}
		for _, t := range res.routes {
			methods = append(methods, t.method)
			if t.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
		}
		slices.Sort(methods)
		res.allow = []string{strings.Join(slices.Compact(methods), ", ")}
	}
	return r
}

func (res *resource) parameters() int {
	n := 0
	for _, s := range res.segments {
		if strings.HasPrefix(s, "{") {
			n++
		}
	}
	return n
}

func split(path string) []string { return strings.Split(strings.Trim(path, "/"), "/") }

// find returns the resource at an escaped path, nil when there is none, and leaves its parameters in c. Repeated slashes
// count as one and a trailing slash counts as none.
func (r *router) find(escaped string, c *call) *resource {
	if res, ok := r.static[escaped]; ok {
		return res
	}
	if !strings.HasPrefix(escaped, "/") {
		return nil
	}
	var segments []string
	for s := range strings.SplitSeq(escaped, "/") {
		if s == "" {
			continue
		}
		if strings.Contains(s, "%") {
			plain, err := url.PathUnescape(s)
			if err != nil {
				return nil
			}
			s = plain
		}
		if segments = append(segments, s); len(segments) >= len(r.dynamic)+1 {
			return nil
		}
	}
	if res, ok := r.static["/"+strings.Join(segments, "/")]; ok && !slices.ContainsFunc(segments, hasSlash) {
		return res
	}
	if len(segments) >= len(r.dynamic) {
		return nil
	}
	for _, res := range r.dynamic[len(segments)] {
		if res.match(segments, c) {
			return res
		}
	}
	return nil
}

func hasSlash(s string) bool { return strings.Contains(s, "/") }

func (res *resource) match(segments []string, c *call) bool {
	n := 0
	for i, want := range res.segments {
		if want[0] == '{' {
			c.params[n] = param{name: want[1 : len(want)-1], value: segments[i]}
			n++
		} else if want != segments[i] {
			return false
		}
	}
	return true
}

func (res *resource) route(method string) *route {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, t := range res.routes {
		if t.method == method {
			return t
		}
	}
	return nil
}

// anyVersion reports whether an unusable version header is passed over instead of refused.
func (res *resource) anyVersion() bool { return res != nil && res.routes[0].anyVersion }

// Page is a route that another room answers, in a form of its own: a page for people, an endpoint of OAuth. It gets the
// headers and limits of every answer here, and is no part of the OpenAPI document.
type Page struct {
	Method, Path string
	Handler      http.Handler
}

// served says that the answer has been written.
type served struct{}

func pageRoutes(pages []Page) []route {
	routes := make([]route, 0, len(pages))
	for _, p := range pages {
		routes = append(routes, route{
			op: "page", method: p.Method, path: p.Path, auth: open, right: public, anyVersion: true,
			action: action{run: func(c *call) (any, error) {
				c.written = true
				p.Handler.ServeHTTP(c.w, c.r.WithContext(c.context))
				return served{}, nil
			}},
		})
	}
	return routes
}

// fromPerson reports whether a person opened the address in a browser: programs do not ask for HTML first.
func (c *call) fromPerson() bool { return strings.HasPrefix(c.r.Header.Get("Accept"), "text/html") }

// forPrograms are the beginnings of paths that only programs call.
var forPrograms = []string{"/api/", "/.well-known/"}

// notServed answers requests with an unknown path or method: with a page for a browser, otherwise with JSON.
func (c *call) notServed(code toll.Code) {
	e := toll.NewError(code)
	if code == toll.CodePathNotFound && strings.HasPrefix(c.r.URL.Path, "/sdk/") {
		e = e.WithHint("This service does not have this SDK package. GET /sdk lists its packages.")
	}
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	forProgram := func(prefix string) bool { return strings.HasPrefix(c.r.URL.Path, prefix) }
	if c.h.noPage == nil || !reads || !c.fromPerson() || len(c.r.Header["Authorization"]) > 0 || slices.ContainsFunc(forPrograms, forProgram) {
		c.fail(e)
		return
	}
	c.written, c.answered = true, e.HTTPStatus()
	c.w.Header().Add("Vary", "Accept")
	c.h.noPage(c.w, c.r.WithContext(c.context), e.HTTPStatus())
}
