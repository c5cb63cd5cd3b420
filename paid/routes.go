package paid

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Route is one line of a price list: see [At], [Free], [Default] and [With].
type Route struct {
	key  string
	kind routeKind
	opts []Option
}

type routeKind int

const (
	routePaid routeKind = iota
	routeFree
	routeDefault
	routeOptions
)

// At is a paid route. Its key is "METHOD /path"; a segment ":name" or "{name}" matches any one segment and is set as the
// path value of the request. GET covers HEAD. Exact keys win over keys with names, which are tried in their order.
func At(key string, opts ...Option) Route { return Route{key: key, opts: opts} }

// Free is a route that costs nothing, for a [Proxy] or beside a [Default].
func Free(key string) Route { return Route{key: key, kind: routeFree} }

// Default is the paid route for everything that no key matches.
func Default(opts ...Option) Route { return Route{kind: routeDefault, opts: opts} }

// With holds options of every paid route of the list. Those of a route itself win.
func With(opts ...Option) Route { return Route{kind: routeOptions, opts: opts} }

// Routes puts prices on parts of next. What matches no key and no [Default] passes to next untouched, so next must read
// paths no more liberally than this: [http.ServeMux] does. Malformed keys and paid routes without [Plan] panic.
func Routes(f x402.Facilitator, next http.Handler, routes ...Route) http.Handler {
	t := newTable(f, next, routes, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		segments, err := cleanPath(r.URL)
		if err != nil {
			writeError(w, err, correlationID(r.Header))
			return
		}
		e, values := t.match(r.Method, segments)
		switch {
		case e != nil:
			e.serve(w, withValues(r, e, values))
		case t.paidPath(segments) && overridesMethod(r):
			// A router behind that honours the override would run the paid handler.
			writeError(w, toll.NewError(toll.CodeMethodNotAllowed), correlationID(r.Header))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

type entry struct {
	method   string
	segments []string // names keep their ":"
	gate     *gate    // nil: free
	next     http.Handler
}

func (e *entry) serve(w http.ResponseWriter, r *http.Request) {
	if e.gate == nil {
		e.next.ServeHTTP(w, r)
		return
	}
	e.gate.serve(w, r)
}

func sharedOptions(routes []Route) (opts []Option) {
	for _, r := range routes {
		if r.kind == routeOptions {
			opts = append(opts, r.opts...)
		}
	}
	return opts
}

type table struct {
	exact  map[string]*entry
	named  []*entry
	others *entry // the default, may be nil
}

func newTable(f x402.Facilitator, next http.Handler, routes []Route, extra []Option) *table {
	shared := slices.Concat([]Option{WithQueue(NewQueue())}, sharedOptions(routes), extra)
	t := &table{exact: map[string]*entry{}}
	for _, r := range routes {
		if r.kind == routeOptions {
			continue
		}
		e := &entry{next: next}
		if r.kind != routeFree {
			e.gate = newGate(f, next, newConfig(append(slices.Clone(shared), r.opts...)))
		}
		if r.kind == routeDefault {
			if t.others != nil {
				panic("paid: two default routes")
			}
			t.others = e
			continue
		}
		t.add(r.key, e)
	}
	return t
}

func (t *table) add(key string, e *entry) {
	method, path, ok := strings.Cut(key, " ")
	path = strings.TrimSpace(path)
	if !ok || method == "" || method != strings.ToUpper(method) || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "*?#%\\") {
		panic("paid: a route key is \"METHOD /path\", not " + key)
	}
	e.method = method
	named := false
	for s := range strings.SplitSeq(path, "/") {
		switch {
		case s == "":
			continue
		case s == "." || s == "..":
			panic("paid: a route key has no dot segments: " + key)
		case len(s) > 2 && s[0] == '{' && s[len(s)-1] == '}':
			s = ":" + s[1:len(s)-1]
		case strings.ContainsAny(s, "{}"):
			panic("paid: a name fills its segment: " + key)
		}
		named = named || s[0] == ':'
		e.segments = append(e.segments, s)
	}
	if named {
		t.named = append(t.named, e)
		return
	}
	k := exactKey(method, e.segments)
	if t.exact[k] != nil {
		panic("paid: two routes with the key " + key)
	}
	t.exact[k] = e
}

func exactKey(method string, segments []string) string {
	return method + " /" + strings.Join(segments, "/")
}

// match finds the route of a request. Methods are compared without case: a router behind might.
func (t *table) match(method string, segments []string) (*entry, []string) {
	methods := []string{strings.ToUpper(method)}
	if methods[0] == http.MethodHead {
		methods = append(methods, http.MethodGet)
	}
	for _, m := range methods {
		if e := t.exact[exactKey(m, segments)]; e != nil {
			return e, nil
		}
	}
	for _, m := range methods {
		for _, e := range t.named {
			if values, ok := e.fits(segments); ok && e.method == m {
				return e, values
			}
		}
	}
	return t.others, nil
}

func (e *entry) fits(segments []string) (values []string, ok bool) {
	if len(e.segments) != len(segments) {
		return nil, false
	}
	for i, s := range e.segments {
		if s[0] == ':' {
			values = append(values, segments[i])
		} else if s != segments[i] {
			return nil, false
		}
	}
	return values, true
}

// paidPath reports whether some method of the path is paid.
func (t *table) paidPath(segments []string) bool {
	fits := func(e *entry) bool {
		_, ok := e.fits(segments)
		return ok && e.gate != nil
	}
	for _, e := range t.exact {
		if fits(e) {
			return true
		}
	}
	return slices.ContainsFunc(t.named, fits)
}

func withValues(r *http.Request, e *entry, values []string) *http.Request {
	if len(values) == 0 {
		return r
	}
	r = r.WithContext(r.Context())
	i := 0
	for _, s := range e.segments {
		if s[0] == ':' {
			r.SetPathValue(s[1:], values[i])
			i++
		}
	}
	return r
}
