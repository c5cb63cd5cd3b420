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

// At is a paid route. Its key is "METHOD /path"; GET covers HEAD.
//
//   - A segment ":name" or "{name}" matches any one segment and is set as the path value of the request.
//   - A last segment "*" matches the path before it and everything below: "GET /files/*" covers /files, /files/a and
//     /files/a/b.
//
// Letters are compared without case, as routers such as Express do, unless the list has [CaseSensitive]. Path values keep theirs.
//
// Exact keys win over keys with names, which are tried in their order, and those over keys with "*", the longest first.
func At(key string, opts ...Option) Route { return Route{key: key, opts: opts} }

// Free is a route that costs nothing, for a [Proxy] or beside a [Default]. Its handler sees no access tokens either, see
// [TokenHeaders].
func Free(key string) Route { return Route{key: key, kind: routeFree} }

// Default is the paid route for requests without a matching key.
func Default(opts ...Option) Route { return Route{kind: routeDefault, opts: opts} }

// With holds options of every paid route of the list. Options of a route win.
func With(opts ...Option) Route { return Route{kind: routeOptions, opts: opts} }

// CaseSensitive compares the paths of a list case-sensitively. The server behind must do so too: otherwise /Ask bypasses the
// price of /ask.
func CaseSensitive() Route { return Route{kind: routeCased} }

// Routes prices parts of next. Requests without a matching key and [Default] pass to next unchanged, so next must not match
// paths more liberally: [http.ServeMux] does not. Malformed keys and paid routes without [Plan] panic.
func Routes(f x402.Facilitator, next http.Handler, routes ...Route) http.Handler {
	t := newTable(f, next, routes, false)
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
	entries []*entry // by their class; those with "*" the longest first
	others  *entry   // the default, may be nil
	cased   bool     // see [CaseSensitive]

	gates        []*gate // of the paid routes
	tokenHeaders []string
	strip        func(http.Header, []string, func(string) bool) // for free routes
}

func isCased(routes []Route) bool {
	return slices.ContainsFunc(routes, func(r Route) bool { return r.kind == routeCased })
}

func newTable(f x402.Facilitator, next http.Handler, routes []Route, proxy bool) *table {
	shared := slices.Concat([]Option{WithQueue(NewQueue())}, sharedOptions(routes), []Option{func(c *config) { c.flushEventsOnly = proxy }})
	c := newConfig(shared)
	t := &table{tokenHeaders: c.tokenHeaders, strip: stripPayment, cased: isCased(routes)}
	terms := seller.NewTermsCache(f, c.Timeout, c.Clock)
	for _, r := range routes {
		if r.kind >= routeOptions {
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
	slices.SortStableFunc(t.entries, func(a, b *entry) int {
		if a.rest && b.rest {
			return len(b.segments) - len(a.segments)
		}
		return a.class() - b.class()
	})
	return t
}

// CheckRoutes returns why [Routes] and [Proxy] would panic for the keys of a price list: a malformed or duplicate key, two keys
// that differ only in case without [CaseSensitive], or two defaults. It ignores other options.
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

// add registers an entry. An error names the key.
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
	text := e.text()
	for _, o := range t.entries {
		switch other := o.text(); {
		case !e.named && other == text:
			return fmt.Errorf("route key %q: another route has it", r.key)
		case !t.cased && other != text && strings.EqualFold(other, text):
			return fmt.Errorf("route key %q: it differs from %q only in case", r.key, o.key)
		}
	}
	t.entries = append(t.entries, e)
	return nil
}

// find returns the route of a request, nil for none. A path with several readings must have one route in all of them.
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

// match finds the route of a request. Methods are compared case-insensitively, as a router behind may do.
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

// paidPath reports whether the path is paid for some method.
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
