package paid

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

// routeKey is a parsed key of a price list.
type routeKey struct {
	key      string
	method   string
	segments []string // names keep their ":"
	rest     bool     // the key ends in "/*"
	named    bool
}

// parseKey parses "METHOD /path". It returns an error for a malformed key and for a key that can never match.
func parseKey(key string) (k routeKey, err error) {
	bad := func(rule string) (routeKey, error) {
		return routeKey{}, fmt.Errorf("route key %q: %s", key, rule)
	}
	method, path, ok := strings.Cut(key, " ")
	path = strings.TrimLeft(path, " ")
	switch {
	case !ok || !strings.HasPrefix(path, "/"):
		return bad(`must be "METHOD /path", for example "GET /files/:name"`)
	case method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "":
		return bad("the method must be uppercase, for example POST")
	case method == http.MethodConnect || method == http.MethodTrace:
		return bad("CONNECT and TRACE are not supported")
	case !utf8.ValidString(path) || strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return bad("the path must be UTF-8 without control characters")
	case strings.ContainsAny(path, `?#%;\`):
		return bad(`the path must not be percent-encoded or contain a query, fragment, ";", or "\"`)
	}
	k.key, k.method = key, method
	if path, k.rest = strings.CutSuffix(path, "/*"); strings.Contains(path, "*") {
		return bad(`"*" must be the last segment, as in "GET /files/*"`)
	}
	for s := range strings.SplitSeq(path, "/") {
		switch {
		case s == "":
			continue
		case s == "." || s == "..":
			return bad("the path must not contain dot segments, which are resolved before routing")
		case len(s) > 2 && s[0] == '{' && s[len(s)-1] == '}':
			s = ":" + s[1:len(s)-1]
		}
		if s == ":" || strings.ContainsAny(s, "{}") {
			return bad(`a parameter must be a whole segment, such as ":name" or "{name}"`)
		}
		k.named = k.named || s[0] == ':'
		k.segments = append(k.segments, s)
	}
	return k, nil
}

// text returns the key without the names of its parameters.
func (k *routeKey) text() string {
	text := k.method + " "
	for _, s := range k.segments {
		if s[0] == ':' {
			s = ":"
		}
		text += "/" + s
	}
	if k.rest {
		text += "/*"
	}
	return text
}

// class orders keys: exact keys win over keys with parameters, which win over keys with "*".
func (k *routeKey) class() int {
	switch {
	case k.rest:
		return 2
	case k.named:
		return 1
	}
	return 0
}

// fits reports whether a path matches the key, and returns the values of its parameters. With cased, it compares case-sensitively.
func (k *routeKey) fits(segments []string, cased bool) (values []string, ok bool) {
	if len(segments) < len(k.segments) || len(segments) > len(k.segments) && !k.rest {
		return nil, false
	}
	for i, s := range k.segments {
		if s[0] == ':' {
			values = append(values, segments[i])
		} else if s != segments[i] && (cased || !strings.EqualFold(s, segments[i])) {
			return nil, false
		}
	}
	return values, true
}
