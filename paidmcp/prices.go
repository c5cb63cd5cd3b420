package paidmcp

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// anyName is the name of the price that counts for items without one.
const anyName = "*"

// priceList holds the prices of the items.
type priceList struct {
	mu        sync.RWMutex
	exact     map[Type]map[string]*price   // by type and name, of resources "*" alone
	resources map[string]map[string]*price // by what their uri can be read as, and by uri
	templates map[string]template          // of uris of resources, by their text
}

type template struct {
	matches *regexp.Regexp
	price   *price
}

func (l *priceList) set(t Type, name string, pr *price) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case t != Resources || name == anyName:
		l.exact = put(l.exact, t, name, pr)
	case expression.MatchString(name):
		if l.templates == nil {
			l.templates = map[string]template{}
		}
		l.templates[name] = template{matches: templateRegexp(name), price: pr}
	default:
		l.resources = put(l.resources, readAs(name), name, pr)
	}
}

// put sets a price in a map of maps, which may be nil.
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
		delete(l.resources[readAs(name)], name)
	}
}

// of returns the price of an item, nil for one that has none. A resource has every price under which
// its uri could be read, also when it is spelled in another way, with a query or with a slash at its
// end, and the dearest is taken.
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
		whole := readAs(name)
		bare := whole
		if i := strings.IndexAny(bare, "?#"); i >= 0 { // also one that was encoded
			bare = readAs(bare[:i])
		}
		for _, key := range []string{whole, bare} {
			for _, pr := range l.resources[key] {
				dearest(pr)
			}
		}
		if len(l.templates) > 0 {
			for _, uri := range spellings(name) {
				for _, tm := range l.templates {
					if tm.matches.MatchString(uri) {
						dearest(tm.price)
					}
				}
			}
		}
	}
	if own == nil {
		own = l.exact[t][anyName]
	}
	return own
}

// isPriced reports whether a call of an item has to be paid.
func (l *priceList) isPriced(t Type, name string) bool {
	if t == Resources && resourceFault(name) != "" {
		return false
	}
	pr := l.of(t, name)
	return pr != nil && !pr.isFree()
}

// maxURI bounds the uri of a resource, in bytes. Each is compared with the templates of all prices.
const maxURI = 8 << 10

// resourceFault says what is wrong with the uri of a resource, "" for nothing. A dot segment leads
// elsewhere than the uri says, for handlers that resolve it, so no handler sees one.
func resourceFault(uri string) string {
	if len(uri) > maxURI {
		return "The uri is longer than 8192 bytes."
	}
	path, _, _ := strings.Cut(uri, "#")
	path, _, _ = strings.Cut(path, "?")
	_, path, _ = strings.Cut(path, ":")
	for segment := range strings.FieldsFuncSeq(decoded(path), func(r rune) bool { return r == '/' || r == '\\' }) {
		segment, _, _ = strings.Cut(segment, ";")
		if segment == "." || segment == ".." {
			return "The uri has a dot segment. Write it without."
		}
	}
	return ""
}

// readAs returns what a uri can be read as by a handler that decodes and cleans it: the same text for
// all its spellings. Host and path are one for schemes of programs, which have no hosts.
func readAs(uri string) string {
	uri, _, _ = strings.Cut(uri, "#")
	uri, query, asked := strings.Cut(uri, "?")
	scheme, rest, _ := strings.Cut(uri, ":")
	scheme = strings.ToLower(scheme)
	rest = strings.ReplaceAll(decoded(rest), `\`, "/")
	rest = strings.TrimPrefix(path.Clean("/"+rest), "/")
	host, rest, _ := strings.Cut(rest, "/")
	key := scheme + "://" + strings.ToLower(host) + "/" + rest
	if asked {
		key += "?" + decoded(query)
	}
	return key
}

// decoded removes percent-encoding, also one of an encoding. What is no encoding stays.
func decoded(s string) string {
	for range 3 {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					i += 2
					continue
				}
			}
			b.WriteByte(s[i])
		}
		if b.Len() == len(s) {
			break
		}
		s = b.String()
	}
	return s
}

// expression is one of RFC 6570.
var expression = regexp.MustCompile(`\{[^{}]*\}`)

// templateRegexp matches every uri that a template can stand for, and more: what has a price must not be read without one.
func templateRegexp(template string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`(?s)^`)
	last := 0
	for _, at := range expression.FindAllStringIndex(template, -1) {
		b.WriteString(regexp.QuoteMeta(template[last:at[0]]))
		b.WriteString(`.*`)
		last = at[1]
	}
	b.WriteString(regexp.QuoteMeta(template[last:]))
	b.WriteString(`$`)
	return regexp.MustCompile(b.String())
}

// spellings returns a uri as it is and, where that differs, as a handler that decodes and cleans it may
// read it: with and without a query and a slash at its end, with and without a host.
func spellings(uri string) []string {
	out := []string{uri}
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	key := readAs(uri)
	bare, query, asked := strings.Cut(key, "?")
	scheme, path, _ := strings.Cut(bare, "://")
	forms := []string{bare, scheme + ":" + path}
	if scheme != "http" && scheme != "https" {
		forms = append(forms, scheme+":///"+path)
	}
	for _, form := range forms {
		form = strings.TrimSuffix(form, "/")
		add(form)
		add(form + "/")
		if asked {
			add(form + "?" + query)
		}
	}
	return out
}
