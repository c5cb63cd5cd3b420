package paid

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll/internal/sale"
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

// At is a paid route. Its key is "METHOD /path"; GET covers HEAD.
//
//   - A segment ":name" or "{name}" matches any one segment and is set as the path value of the request.
//   - A last segment "*" matches the path before it and everything below: "GET /files/*" covers /files, /files/a and
//     /files/a/b.
//
// Exact keys win over keys with names, which are tried in their order, and those over keys with "*", the longest first.
func At(key string, opts ...Option) Route { return Route{key: key, opts: opts} }

// Free is a route that costs nothing, for a [Proxy] or beside a [Default]. Access tokens do not get to its handler either, see
// [TokenHeaders].
func Free(key string) Route { return Route{key: key, kind: routeFree} }

// Default is the paid route for everything that no key matches.
func Default(opts ...Option) Route { return Route{kind: routeDefault, opts: opts} }

// With holds options of every paid route of the list. Those of a route itself win.
func With(opts ...Option) Route { return Route{kind: routeOptions, opts: opts} }

// Routes puts prices on parts of next. What matches no key and no [Default] passes to next untouched, so next must read
// paths no more liberally than this: [http.ServeMux] does. Malformed keys and paid routes without [Plan] panic.
func Routes(f x402.Facilitator, next http.Handler, routes ...Route) http.Handler {
	t := newTable(f, next, routes, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		segments, err := cleanPath(r.URL)
		if err != nil {
			writeError(w, err, correlationID(r.Header))
			return
		}
		e, values := t.match(r.Method, segments)
		if err := t.refuseOverride(r, e, segments); err != nil {
			writeError(w, err, correlationID(r.Header))
			return
		}
		if e == nil {
			next.ServeHTTP(w, r)
			return
		}
		e.serve(w, withValues(r, e, values))
	})
}

type entry struct {
	routeKey
	gate  *gate // nil: free
	table *table
	next  http.Handler
}

func (e *entry) serve(w http.ResponseWriter, r *http.Request) {
	if e.gate != nil {
		e.gate.serve(w, r)
		return
	}
	own := func(text string) bool { return owns(r.Context(), text, e.table.gates...) }
	if urlCarries(r.URL, own) {
		writeError(w, errTokenInURL, correlationID(r.Header))
		return
	}
	out := r.WithContext(r.Context())
	out.Header = r.Header.Clone()
	e.table.strip(out.Header, e.table.tokenHeaders, own)
	e.next.ServeHTTP(w, out)
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
	keys   map[string]bool // of all routes without names
	exact  map[string]*entry
	named  []*entry
	wild   []*entry // the longest first
	others *entry   // the default, may be nil

	gates        []*gate // of the paid routes
	tokenHeaders []string
	strip        func(http.Header, []string, func(string) bool) // for free routes
}

func newTable(f x402.Facilitator, next http.Handler, routes []Route, proxy bool) *table {
	shared := slices.Concat([]Option{WithQueue(NewQueue())}, sharedOptions(routes), []Option{func(c *config) { c.flushEventsOnly = proxy }})
	c := newConfig(shared)
	t := &table{keys: map[string]bool{}, exact: map[string]*entry{}, tokenHeaders: c.tokenHeaders, strip: stripPayment}
	terms := sale.NewTermsCache(f, c.Timeout, c.Clock)
	for _, r := range routes {
		if r.kind == routeOptions {
			continue
		}
		e := &entry{table: t, next: next}
		if r.kind != routeFree {
			e.gate = newGate(f, next, newConfig(append(slices.Clone(shared), r.opts...)), terms)
			t.gates = append(t.gates, e.gate)
		}
		if err := t.add(r, e); err != nil {
			panic("paid: " + err.Error())
		}
	}
	slices.SortStableFunc(t.wild, func(a, b *entry) int { return len(b.segments) - len(a.segments) })
	return t
}

// CheckRoutes returns why [Routes] and [Proxy] would panic over the keys of a price list: a key that is malformed or there
// twice, or two defaults. Other options are not looked at.
func CheckRoutes(routes ...Route) error {
	t := &table{keys: map[string]bool{}, exact: map[string]*entry{}}
	for _, r := range routes {
		if r.kind == routeOptions {
			continue
		}
		if err := t.add(r, &entry{}); err != nil {
			return fmt.Errorf("paid: %w", err)
		}
	}
	return nil
}

// add puts an entry where it is looked for. An error names the key.
func (t *table) add(r Route, e *entry) (err error) {
	if r.kind == routeDefault {
		if t.others != nil {
			return errors.New("two default routes")
		}
		t.others = e
		return nil
	}
	if e.routeKey, err = parseKey(r.key); err != nil {
		return err
	}
	if !e.named {
		k := e.exact()
		if t.keys[k] {
			return fmt.Errorf("route key %q: another route has it", r.key)
		}
		t.keys[k] = true
	}
	switch {
	case e.rest:
		t.wild = append(t.wild, e)
	case e.named:
		t.named = append(t.named, e)
	default:
		t.exact[e.exact()] = e
	}
	return nil
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
	for _, list := range [][]*entry{t.named, t.wild} {
		for _, m := range methods {
			for _, e := range list {
				if values, ok := e.fits(segments); ok && e.method == m {
					return e, values
				}
			}
		}
	}
	return t.others, nil
}

// paidPath reports whether some method of the path is paid.
func (t *table) paidPath(segments []string) bool {
	for e := range t.fitting(segments) {
		if e.gate != nil {
			return true
		}
	}
	return false
}

// fitting returns the routes of a path, whatever their methods.
func (t *table) fitting(segments []string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := range t.all() {
			if _, ok := e.fits(segments); ok && !yield(e) {
				return
			}
		}
	}
}

func (t *table) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range t.exact {
			if !yield(e) {
				return
			}
		}
		for _, list := range [][]*entry{t.named, t.wild} {
			for _, e := range list {
				if !yield(e) {
					return
				}
			}
		}
	}
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
