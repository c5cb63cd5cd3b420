package paidmcp

import (
	"regexp"
	"strings"
	"sync"

	"github.com/tollhq/toll/internal/mcpwire"
)

// priceList holds the prices of the items.
type priceList struct {
	mu        sync.RWMutex
	exact     map[Type]map[string]*price   // by type and name; for resources only "*"
	resources map[string]map[string]*price // by canonical uri (mcpwire.ReadAs), and by uri
	templates map[string]template          // templates of resource uris, by their text
}

type template struct {
	matches *regexp.Regexp
	price   *price
}

func (l *priceList) set(t Type, name string, pr *price) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t != Resources || name == mcpwire.AnyName:
		l.exact = put(l.exact, t, name, pr)
	case mcpwire.IsTemplate(name):
		if l.templates == nil {
			l.templates = map[string]template{}
		}
		l.templates[name] = template{matches: mcpwire.TemplateRegexp(name), price: pr}
	default:
		l.resources = put(l.resources, mcpwire.ReadAs(name), name, pr)
	}
}

func put[K comparable](m map[K]map[string]*price, k K, name string, pr *price) map[K]map[string]*price {
	if m == nil {
		m = map[K]map[string]*price{}
	}
	if m[k] == nil {
		m[k] = map[string]*price{}
	}
	m[k][name] = pr
	return m
}

func (l *priceList) remove(t Type, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.exact[t], name)
	if t == Resources {
		delete(l.templates, name)
		delete(l.resources[mcpwire.ReadAs(name)], name)
	}
}

// of returns the price of an item, or nil if it has no price. For a resource it considers every spelling of the uri, with or
// without a query and trailing slash; the highest price wins.
func (l *priceList) of(t Type, name string) *price {
	l.mu.RLock()
	defer l.mu.RUnlock()
	own := l.exact[t][name]
	if t == Resources {
		dearest := func(pr *price) {
			if pr.dearer(own) {
				own = pr
			}
		}
		whole := mcpwire.ReadAs(name)
		bare := whole
		if i := strings.IndexAny(bare, "?#"); i >= 0 { // an encoded separator counts as well
			bare = mcpwire.ReadAs(bare[:i])
		}
		for _, key := range []string{whole, bare} {
			for _, pr := range l.resources[key] {
				dearest(pr)
			}
		}
		if len(l.templates) > 0 {
			for _, uri := range mcpwire.Spellings(name) {
				for _, tm := range l.templates {
					if tm.matches.MatchString(uri) {
						dearest(tm.price)
					}
				}
			}
		}
	}
	if own == nil {
		own = l.exact[t][mcpwire.AnyName]
	}
	return own
}

// isPriced reports whether a call of an item must be paid.
func (l *priceList) isPriced(t Type, name string) bool {
	if t == Resources && resourceFault(name) != "" {
		return false
	}
	pr := l.of(t, name)
	return pr != nil && !pr.isFree()
}

// maxURI bounds the uri of a resource in bytes, which is compared with the templates of all prices.
const maxURI = 8 << 10

// resourceFault returns a message for an invalid resource uri, or "". A uri must not contain dot segments, because a handler that
// resolves them would read a different resource.
func resourceFault(uri string) string {
	if len(uri) > maxURI {
		return "The uri is longer than 8192 bytes."
	}
	path, _, _ := strings.Cut(uri, "#")
	path, _, _ = strings.Cut(path, "?")
	_, path, _ = strings.Cut(path, ":")
	for segment := range strings.FieldsFuncSeq(mcpwire.Decoded(path), func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return "The uri must not contain dot segments."
		}
	}
	return ""
}
