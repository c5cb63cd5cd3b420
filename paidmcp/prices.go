package paidmcp

import (
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
)

// anyName is the name of the price that counts for items without one.
const anyName = "*"

// priceList holds the prices of the items, by type and name.
type priceList struct {
	mu        sync.RWMutex
	exact     map[Type]map[string]*price
	templates map[string]template // of uris of resources, by their text
}

type template struct {
	matches *regexp.Regexp
	price   *price
}

func (l *priceList) set(t Type, name string, pr *price) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t == Resources && name != anyName && expression.MatchString(name) {
		if l.templates == nil {
			l.templates = map[string]template{}
		}
		l.templates[name] = template{matches: templateRegexp(name), price: pr}
		return
	}
	if l.exact == nil {
		l.exact = map[Type]map[string]*price{}
	}
	if l.exact[t] == nil {
		l.exact[t] = map[string]*price{}
	}
	l.exact[t][name] = pr
}

func (l *priceList) remove(t Type, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.exact[t], name)
	if t == Resources {
		delete(l.templates, name)
	}
}

// of returns the price of an item, nil for one that has none. A resource has every price under which its uri could be read,
// also when it is spelled in another way, and the dearest is taken.
func (l *priceList) of(t Type, name string) *price {
	l.mu.RLock()
	defer l.mu.RUnlock()
	own := l.exact[t][name]
	if t == Resources {
		for _, uri := range spellings(name) {
			if pr := l.exact[t][uri]; pr != nil && pr.dearer(own) {
				own = pr
			}
			for _, tm := range l.templates {
				if tm.matches.MatchString(uri) && tm.price.dearer(own) {
					own = tm.price
				}
			}
		}
	}
	if own == nil {
		own = l.exact[t][anyName]
	}
	return own
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

// spellings returns a uri as it is and, where that differs, as a handler that decodes and cleans it may read it.
func spellings(uri string) []string {
	out := []string{uri}
	u, err := url.Parse(uri)
	if err != nil {
		return out
	}
	scheme, rest, _ := strings.Cut(uri, ":")
	plain := strings.ToLower(scheme) + ":" + rest
	if u.Opaque == "" {
		clean := u.Path // decoded once
		if clean != "" {
			clean = path.Clean(clean)
			if strings.HasSuffix(u.Path, "/") && clean != "/" {
				clean += "/"
			}
		}
		plain = strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Host) + clean
		if u.RawQuery != "" {
			plain += "?" + u.RawQuery
		}
	} else if decoded, err := url.PathUnescape(plain); err == nil {
		plain = decoded
	}
	if plain != uri {
		out = append(out, plain)
	}
	return out
}
