package paid

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
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
	routeCased
)

// At is a paid route. Its key is "METHOD /path". GET also matches HEAD.
//
//   - A segment ":name" or "{name}" matches any one segment and is set as the path value of the request.
//   - A last segment "*" matches the path before it and everything below: "GET /files/*" matches /files, /files/a, and
//     /files/a/b.
//
// Matching is case-insensitive, as in routers such as Express, unless the list has [CaseSensitive]. Path values keep their case.
//
// Exact keys win over keys with names, which are tried in their order, and keys with names win over keys with "*", longest first.
func At(key string, opts ...Option) Route { return Route{key: key, opts: opts} }

// Free is a free route, for a [Proxy] or beside a [Default]. Access tokens are removed from its requests too; see [TokenHeaders]. Only the
// option [Upstream] applies.
func Free(key string, opts ...Option) Route { return Route{key: key, kind: routeFree, opts: opts} }

// Default is the paid route for requests without a matching key.
func Default(opts ...Option) Route { return Route{kind: routeDefault, opts: opts} }

// With sets options for every paid route of the list. The options of a route override them.
func With(opts ...Option) Route { return Route{kind: routeOptions, opts: opts} }

// CaseSensitive makes the paths of a list case-sensitive. The wrapped handler or upstream must be case-sensitive too: otherwise
// /Ask bypasses the price of /ask.
func CaseSensitive() Route { return Route{kind: routeCased} }

// Routes puts a price list in front of next. Without a matching key or a [Default], a request passes to next unchanged, so next must
// not match paths more liberally; [http.ServeMux] does not. Routes panics for malformed keys and paid routes without [Plan].
func Routes(f x402.Facilitator, next http.Handler, routes ...Route) http.Handler {
	t := newTable(f, func(*config) http.Handler { return next }, routes, false)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, values, _, err := t.find(r)
		if err != nil {
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
	entries []*entry // sorted by class, then keys with "*" longest first
	others  *entry   // the default, or nil
	cased   bool     // see [CaseSensitive]

	gates        []*gate // of the paid routes
	tokenHeaders []string
	strip        func(http.Header, []string, func(string) bool) // for free routes
}

func isCased(routes []Route) bool {
	return slices.ContainsFunc(routes, func(r Route) bool { return r.kind == routeCased })
}

func newTable(f x402.Facilitator, next func(*config) http.Handler, routes []Route, proxy bool) *table {
	shared := slices.Concat([]Option{WithQueue(NewQueue())}, sharedOptions(routes), []Option{func(c *config) { c.flushEventsOnly = proxy }})
	c := newConfig(shared)
	t := &table{tokenHeaders: c.tokenHeaders, strip: stripPayment, cased: isCased(routes)}
	terms := seller.NewTermsCache(f, c.Timeout, c.Clock)
	for _, r := range routes {
		if r.kind >= routeOptions {
			continue
		}
		rc := newConfig(append(slices.Clone(shared), r.opts...))
		e := &entry{table: t, next: next(rc)}
		if r.kind != routeFree {
			e.gate = newGate(f, e.next, rc, terms)
			t.gates = append(t.gates, e.gate)
		}
		if err := t.add(r, e); err != nil {
			panic("paid: " + err.Error())
		}
	}
	slices.SortStableFunc(t.entries, func(a, b *entry) int {
		if a.rest && b.rest {
			return len(b.segments) - len(a.segments)
		}
		return a.class() - b.class()
	})
	return t
}

// CheckRoutes returns an error if [Routes] and [Proxy] would panic for the keys of a price list: a malformed or duplicate key, two
// keys that differ only in case without [CaseSensitive], or two defaults. It does not check options.
func CheckRoutes(routes ...Route) error {
	t := &table{cased: isCased(routes)}
	for _, r := range routes {
		if r.kind >= routeOptions {
			continue
		}
		if err := t.add(r, &entry{}); err != nil {
			return fmt.Errorf("paid: %w", err)
		}
	}
	return nil
}

// add registers an entry. Its errors contain the key.
func (t *table) add(r Route, e *entry) (err error) {
	if r.kind == routeDefault {
		if t.others != nil {
			return errors.New("more than one default route")
		}
		t.others = e
		return nil
	}
	if e.routeKey, err = parseKey(r.key); err != nil {
		return err
	}
	text := e.text()
	for _, o := range t.entries {
		switch other := o.text(); {
		case !e.named && other == text:
			return fmt.Errorf("route key %q: already used by another route", r.key)
		case !t.cased && other != text && strings.EqualFold(other, text):
			return fmt.Errorf("route key %q: differs from %q only in case", r.key, o.key)
		}
	}
	t.entries = append(t.entries, e)
	return nil
}

// find returns the route of a request, or nil. Errors: 400 if readings of the path match different routes, and refuseOverride's.
func (t *table) find(r *http.Request) (e *entry, values []string, p requestPath, err *toll.Error) {
	if p, err = readPath(r.URL); err != nil {
		return nil, nil, p, err
	}
	e, values = t.match(r.Method, p.segments)
	for _, segments := range p.others {
		if o, _ := t.match(r.Method, segments); o != e {
			return nil, nil, p, errBadPath
		}
	}
	return e, values, p, t.refuseOverride(r, e, p)
}

// match returns the route of a request and its path values. It compares methods case-insensitively, as a downstream router may.
func (t *table) match(method string, segments []string) (*entry, []string) {
	methods := []string{strings.ToUpper(method)}
	if methods[0] == http.MethodHead {
		methods = append(methods, http.MethodGet)
	}
	var found *entry
	var values []string
	for _, m := range methods {
		for _, e := range t.entries {
			if found != nil && e.class() >= found.class() {
				break
			}
			if v, ok := e.fits(segments, t.cased); ok && e.method == m {
				found, values = e, v
			}
		}
	}
	if found == nil {
		found = t.others
	}
	return found, values
}

// paidPath reports whether the path matches a paid key for any method.
func (t *table) paidPath(segments []string) bool {
	for e := range t.fitting(segments) {
		if e.gate != nil {
			return true
		}
	}
	return false
}

// fitting returns the routes of a path for all methods.
func (t *table) fitting(segments []string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range t.entries {
			if _, ok := e.fits(segments, t.cased); ok && !yield(e) {
				return
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
