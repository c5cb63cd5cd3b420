package x402

import (
	"net/url"
	"strings"

	"github.com/tollhq/toll"
)

// MaxURLBytes bounds the urls that are compared.
const MaxURLBytes = 8 << 10

// Pattern is the url of a registered endpoint, which matches in time linear in the url.
type Pattern struct {
	text   string // as registered
	target        // path is that before a wildcard, without what begins the rest
	rest   bool   // the pattern ends with a wildcard
	bare   bool   // nothing stands before the rest, not even an empty segment
	prefix string // of the rest
	rank   int    // 0 literal, 1 with parameters, 2 with a wildcard
}

// target is a url in its comparable form.
type target struct {
	scheme string // http, https, mcp, or "" for a path
	host   string // lower case, without the default port
	kind   string // mcp: tools, resources or prompts; prompts count as tools
	path   string // decoded once, "" or "/" and segments; mcp: the name
}

func badURL(why string) error {
	return toll.Errorf(toll.CodeBadRequest, "The url %s.", why)
}

// ParsePattern parses the url of an endpoint: absolute (http, https, mcp) or a path. ":name" and "{name}" match one segment,
// "*" or "(.*)" at the end matches the rest. Errors: [toll.CodeBadRequest].
func ParsePattern(text string) (Pattern, error) {
	t, err := parseTarget(text)
	if err != nil {
		return Pattern{}, err
	}
	p := Pattern{text: text, target: t}
	path := t.path
	for {
		cut := strings.TrimSuffix(strings.TrimSuffix(path, "(.*)"), "*")
		if cut == path {
			break
		}
		path, p.rest, p.rank = cut, true, 2
	}
	if t.scheme != "mcp" && strings.ContainsAny(path, "*") {
		return Pattern{}, badURL("may contain a wildcard only at the end")
	}
	all := strings.Split(path, "/")
	if p.rest {
		// The text between the last slash and the wildcard is the prefix of the rest, unless it is a parameter.
		last := all[len(all)-1]
		if !isParameter(last) {
			p.prefix = last
		}
		all = all[:len(all)-1]
	}
	for _, s := range all {
		switch {
		case isParameter(s):
			p.rank = max(p.rank, 1)
		case t.scheme != "mcp" && (strings.ContainsAny(s, "{}") || strings.HasPrefix(s, ":")):
			return Pattern{}, badURL("has a parameter that does not fill its path segment")
		}
	}
	p.bare, p.path = len(all) == 0, strings.Join(all, "/")
	return p, nil
}

// isParameter reports whether a segment is :name or {name}.
func isParameter(s string) bool {
	switch {
	case len(s) > 2 && s[0] == '{' && s[len(s)-1] == '}':
		return allOf(s[1:len(s)-1], classBase64URL, 1, MaxURLBytes)
	case len(s) > 1 && s[0] == ':':
		return allOf(s[1:], classBase64URL, 1, MaxURLBytes)
	}
	return false
}

// String returns the registered url.
func (p Pattern) String() string { return p.text }

// Match reports whether a url matches the pattern. An absolute url matches a path on any host; a path matches an absolute http
// or https pattern by its path. Malformed urls, and ambiguous ones (user information, empty or dot segments, encoded slashes,
// backslashes, control characters), never match.
func (p Pattern) Match(text string) bool {
	t, err := parseTarget(text)
	return err == nil && p.match(t)
}

func (p *Pattern) match(t target) bool {
	if p.scheme == "mcp" || t.scheme == "mcp" {
		if p.scheme != t.scheme || p.host != t.host || p.kind != t.kind {
			return false
		}
	} else if p.scheme != "" && t.scheme != "" && (p.scheme != t.scheme || p.host != t.host) {
		return false
	}
	if p.rank == 0 {
		return t.path == p.path
	}
	// The pattern is split during the match: a list of segments would take many times the memory of its text.
	path, left := t.path, p.path
	for more := !p.bare; more; {
		var want, seg string
		var deeper bool
		want, left, more = strings.Cut(left, "/")
		seg, path, deeper = strings.Cut(path, "/")
		if param := isParameter(want); param && seg == "" || !param && seg != want {
			return false
		}
		if !deeper {
			// The url is read to its end: a wildcard after a slash may match nothing.
			return !more && (!p.rest || p.prefix == "")
		}
	}
	return p.rest && strings.HasPrefix(path, p.prefix)
}

// parseTarget converts a url to its comparable form (wire contract, section 16).
func parseTarget(s string) (target, error) {
	if len(s) > MaxURLBytes {
		return target{}, badURL("is longer than 8 KiB")
	}
	if len(s) > 6 && strings.EqualFold(s[:6], "mcp://") {
		return parseMCP(s[6:])
	}
	u, err := url.Parse(s)
	if err != nil {
		return target{}, badURL("is malformed")
	}
	t := target{scheme: u.Scheme, path: u.Path} // url.Parse lowers the scheme
	switch {
	case u.User != nil:
		return target{}, badURL("contains user information")
	case t.scheme == "" && u.Host == "" && strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//"):
	case (t.scheme == "http" || t.scheme == "https") && u.Hostname() != "":
		t.host = lowerASCII(u.Host)
		port := ":80"
		if t.scheme == "https" {
			port = ":443"
		}
		t.host = strings.TrimSuffix(strings.TrimSuffix(t.host, port), ":")
	default:
		return target{}, badURL("must be absolute (http, https, or mcp) or a path")
	}
	if u.RawPath != "" && strings.Contains(strings.ToLower(u.RawPath), "%2f") {
		return target{}, badURL("has an encoded slash")
	}
	t.path = strings.TrimSuffix(t.path, "/")
	return t, checkPath(t.path)
}

// Above reports whether two absolute http or https urls are equal, or the first is above the second in its path. It ignores the
// case of scheme and host, default ports, queries and a trailing slash. Urls with a fragment, and ambiguous ones, see
// [Pattern.Match], do not count.
func Above(above, below string) bool {
	a, errA := parseTarget(above)
	b, errB := parseTarget(below)
	return errA == nil && errB == nil && strings.HasPrefix(a.scheme, "http") && a.scheme == b.scheme && a.host == b.host &&
		(b.path == a.path || strings.HasPrefix(b.path, a.path+"/")) && !strings.Contains(above+below, "#")
}

// checkPath rejects paths that an agent may read differently.
func checkPath(path string) error {
	if path == "" {
		return nil
	}
	start := 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			if c := path[i]; c < 0x20 || c == 0x7f || c == '\\' {
				return badURL("has a control character or a backslash in its path")
			}
			continue
		}
		switch path[start:i] {
		case "":
			return badURL("has an empty segment")
		case ".", "..":
			return badURL("has a dot segment")
		}
		start = i + 1
	}
	return nil
}

// parseMCP parses <server>/<kind>/<name>, each percent-decoded once. The name of a resource is its URI, with slashes, queries
// and fragments.
func parseMCP(s string) (target, error) {
	host, rest, ok := strings.Cut(s, "/")
	kind, name, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 || host == "" || name == "" {
		return target{}, badURL("must have the form mcp://server/type/name")
	}
	switch kind {
	case "tools", "prompts":
		// Deployed servers also send tools/ for prompts.
		kind = "tools"
		if i := strings.IndexAny(name, "?#"); i >= 0 {
			name = name[:i]
		}
		name = strings.TrimSuffix(name, "/")
	case "resources":
	default:
		return target{}, badURL("must have the type tools, resources, or prompts")
	}
	host, err := url.PathUnescape(host)
	if err == nil {
		name, err = url.PathUnescape(name)
	}
	if err != nil || name == "" {
		return target{}, badURL("is malformed")
	}
	return target{scheme: "mcp", host: lowerASCII(host), kind: kind, path: name}, nil
}

// lowerASCII leaves other letters unchanged, because lowering some of them yields ASCII.
func lowerASCII(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for j := i; j < len(b); j++ {
				if b[j] >= 'A' && b[j] <= 'Z' {
					b[j] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// Endpoints are the parsed endpoints of an agent. They are safe for concurrent use.
type Endpoints struct {
	verbs    []string // as registered
	lower    []string
	patterns []Pattern
}

// NewEndpoints parses the endpoints of an agent. Malformed urls match nothing.
func NewEndpoints(list []toll.Endpoint) *Endpoints {
	es := &Endpoints{}
	for _, e := range list {
		if p, err := ParsePattern(e.URL); err == nil {
			es.verbs = append(es.verbs, e.Verb)
			es.lower = append(es.lower, lowerASCII(e.Verb))
			es.patterns = append(es.patterns, p)
		}
	}
	return es
}

// Match returns the registered url and verb that a request matches: a url without parameters wins over one with parameters, and
// that over one with a wildcard, then the first. An empty verb matches every verb; mcp urls ignore verbs.
func (es *Endpoints) Match(url, verb string) (pattern, matchedVerb string, ok bool) {
	t, err := parseTarget(url)
	if err != nil {
		return "", "", false
	}
	verb = lowerASCII(verb)
	best := 3
	for i := range es.patterns {
		p := &es.patterns[i]
		if verb != "" && t.scheme != "mcp" && verb != es.lower[i] {
			continue
		}
		if p.rank < best && p.match(t) {
			pattern, matchedVerb, ok, best = p.text, es.verbs[i], true, p.rank
		}
	}
	return pattern, matchedVerb, ok
}
