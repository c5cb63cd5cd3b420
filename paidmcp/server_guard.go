package paidmcp

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tollhq/toll"
)

// plainHost matches a Host that may appear in a response: a name or an IP address, and optionally a port.
var plainHost = regexp.MustCompile(`^(\[[0-9a-fA-F:]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?$`)

// guard checks Host and Origin against DNS rebinding and cross-site requests: web pages must not call a server on the machine of
// their reader.
type guard struct {
	anyHost bool
	hosts   []string // lower case, with or without a port; nil: loopback and base
	origins []string // scheme and host in lower case; nil: loopback and base
	base    *url.URL
}

func newGuard(hosts, origins []string, base *url.URL) (guard, error) {
	g := guard{base: base}
	for _, h := range hosts {
		if h == "*" {
			g.anyHost = true
			continue
		}
		if !plainHost.MatchString(h) {
			return g, errors.New("paidmcp: AllowedHosts must contain names or addresses, with or without a port, or *")
		}
		g.hosts = append(g.hosts, strings.ToLower(h))
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return g, errors.New(`paidmcp: AllowedOrigins must contain origins, for example "https://chat.example.com"`)
		}
		g.origins = append(g.origins, strings.ToLower(u.Scheme+"://"+u.Host))
	}
	return g, nil
}

// host reports whether the server accepts this Host.
func (g *guard) host(host string) bool {
	if g.anyHost {
		return true
	}
	host = strings.ToLower(host)
	name := (&url.URL{Host: host}).Hostname()
	if g.hosts != nil {
		return slices.Contains(g.hosts, host) || slices.Contains(g.hosts, name)
	}
	return toll.IsLoopback(name) || g.base != nil && withPort(host, g.base.Scheme) == withPort(strings.ToLower(g.base.Host), g.base.Scheme)
}

// withPort adds the default port of a scheme.
func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if scheme == "https" {
		return host + ":443"
	}
	return host + ":80"
}

// origin reports whether pages of this origin may call the server.
func (g *guard) origin(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return false // sandboxed and local pages send "null"
	}
	origin = strings.ToLower(u.Scheme + "://" + u.Host)
	if g.origins != nil {
		return slices.Contains(g.origins, origin)
	}
	if g.base != nil && origin == strings.ToLower(g.base.Scheme+"://"+g.base.Host) {
		return true
	}
	return (u.Scheme == "http" || u.Scheme == "https") && toll.IsLoopback(strings.ToLower(u.Hostname()))
}

// admit reports whether the server accepts the Host of a request. If not, it responds with 403.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) bool {
	if s.guard.host(r.Host) {
		return true
	}
	refuse(w, http.StatusForbidden, "forbidden", "This server does not accept this Host header. The operator of the server can allow it.")
	return false
}

// sameSite rejects requests from other sites and answers preflight requests. It returns false if it has written a response.
func (s *Server) sameSite(w http.ResponseWriter, r *http.Request, methods string) bool {
	origins := r.Header.Values("Origin")
	h := w.Header()
	h.Add("Vary", "Origin")
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case len(origins) > 1 || len(origins) == 1 && !s.guard.origin(origins[0]):
		refuse(w, http.StatusForbidden, "forbidden", "Requests from this origin are not allowed. The operator of the server can allow them.")
		return false
	case len(origins) == 0 && (site == "cross-site" || site == "same-site"):
		refuse(w, http.StatusForbidden, "forbidden", "Requests from other sites are not allowed.")
		return false
	case len(origins) == 1:
		h.Set("Access-Control-Allow-Origin", origins[0])
		h.Set("Access-Control-Expose-Headers", "mcp-session-id, www-authenticate")
	}
	if r.Method != http.MethodOptions {
		return true
	}
	if len(origins) == 1 && r.Header.Get("Access-Control-Request-Method") != "" {
		h.Set("Access-Control-Allow-Methods", methods)
		if asked := r.Header.Get("Access-Control-Request-Headers"); len(asked) <= 1000 && headerNames.MatchString(asked) {
			h.Set("Access-Control-Allow-Headers", asked)
		}
		h.Set("Access-Control-Max-Age", "600")
		h.Add("Vary", "Access-Control-Request-Headers")
	} else {
		h.Set("Allow", methods)
	}
	w.WriteHeader(http.StatusNoContent)
	return false
}

// headerNames matches a list of header names; tools may define their own. Its length is checked separately: a pattern with that
// number has thousands of states.
var headerNames = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~, -]+$")

// webError is the body of an error outside of JSON-RPC (RFC 6749, section 5.2).
type webError struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitempty"`
}

func refuse(w http.ResponseWriter, status int, code, description string) {
	writeJSON(w, status, webError{code, description})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // structs of strings always encode
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(text) // fails only if the client has disconnected
}
