package paidmcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	maxRegistration = 16 << 10 // bytes of a request
	maxRegistered   = 64 << 10 // bytes of the answer of the service
	registerRate    = 60       // registrations a minute that are passed on
)

// Errors of a registration (RFC 7591, section 3.2.2).
const (
	errRequest  = "invalid_request"
	errRedirect = "invalid_redirect_uri"
	errMetadata = "invalid_client_metadata"
)

// registrar passes registrations of clients on to the service, which alone knows clients and their redirects.
type registrar struct {
	to     string
	client *http.Client
	limit  limiter
}

// limiter lets so many pass a minute, all callers together: behind a proxy they have one address.
type limiter struct {
	clock func() time.Time

	mu    sync.Mutex
	since time.Time
	count int
}

func (l *limiter) pass() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock(); now.Sub(l.since) >= time.Minute || now.Before(l.since) {
		l.since, l.count = now, 0
	}
	l.count++
	return l.count <= registerRate
}

func (s *Server) serveRegister(w http.ResponseWriter, r *http.Request) {
	if !s.sameSite(w, r, "POST") {
		return
	}
	if r.Method != http.MethodPost {
		notFound(w, r)
		return
	}
	body, done, ok := s.readBody(w, r, maxRegistration)
	if !ok {
		return
	}
	defer done()
	if code, what := checkRegistration(body); code != "" {
		refuse(w, http.StatusBadRequest, code, what)
		return
	}
	if !s.register.limit.pass() {
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusTooManyRequests, "temporarily_unavailable", "There are too many registrations.")
		return
	}
	if s.pay.seller.AgentID != "" {
		body = s.named(body)
	}
	status, header, answer, err := s.register.pass(r.Context(), body)
	if err != nil {
		s.log.Warn("mcp: a registration could not be passed on", "error", err)
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "The authorization server cannot be reached.")
		return
	}
	h := w.Header()
	if after := header.Get("Retry-After"); after != "" {
		h.Set("Retry-After", after)
	}
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(answer) // a client that has gone away
}

// pass sends a registration on. An answer that is none of a registration is an error.
func (g *registrar) pass(ctx context.Context, body []byte) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.to, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := g.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxRegistered))
	if err != nil {
		return 0, nil, nil, err
	}
	switch res.StatusCode {
	case http.StatusCreated, http.StatusBadRequest, http.StatusTooManyRequests:
		if json.Valid(answer) {
			return res.StatusCode, res.Header, answer, nil
		}
	}
	return 0, nil, nil, &statusError{res.StatusCode}
}

type statusError struct{ status int }

func (e *statusError) Error() string {
	return "the authorization server answered " + http.StatusText(e.status)
}

// checkRegistration judges a registration (wire contract, section 22): the code of an error and what is wrong, or nothing. It
// is refused here so that what the service refuses is told in the same words everywhere.
func checkRegistration(body []byte) (code, what string) {
	var in map[string]json.RawMessage
	if x402.Decode(body, &in) != nil {
		return errRequest, "The body must be a JSON object."
	}
	for name, raw := range in {
		if string(raw) == "null" {
			delete(in, name)
		}
	}
	if !slices.ContainsFunc([]string{"redirect_uris", "grant_types", "token_endpoint_auth_method", "response_types", "client_name"},
		func(name string) bool { return in[name] != nil }) {
		return errRequest, "redirect_uris is missing: the body is no registration of a client."
	}
	for _, c := range []struct {
		name string
		of   []string
		must string // one of it has to be there
	}{
		{"grant_types", []string{"authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code", "client_credentials"}, ""},
		{"response_types", []string{"code", "token"}, "code"},
	} {
		if in[c.name] == nil {
			continue
		}
		var list []string
		if x402.Decode(in[c.name], &list) != nil || slices.ContainsFunc(list, func(v string) bool { return !slices.Contains(c.of, v) }) {
			return errMetadata, c.name + " is a list of " + strings.Join(c.of, ", ") + "."
		}
		if c.must != "" && !slices.Contains(list, c.must) {
			return errMetadata, c.name + " must hold " + c.must + "."
		}
	}
	var method string
	if raw := in["token_endpoint_auth_method"]; raw != nil &&
		(x402.Decode(raw, &method) != nil || !slices.Contains([]string{"none", "client_secret_post", "client_secret_basic"}, method)) {
		return errMetadata, "token_endpoint_auth_method is none, client_secret_post or client_secret_basic."
	}
	for _, name := range []string{"client_name", "scope", "client_uri", "logo_uri"} {
		var text string
		if raw := in[name]; raw != nil && (x402.Decode(raw, &text) != nil || utf8.RuneCountInString(text) > 256) {
			return errMetadata, name + " is a text of at most 256 characters."
		}
	}
	var contacts []string
	if raw := in["contacts"]; raw != nil && (x402.Decode(raw, &contacts) != nil || len(contacts) > 5 ||
		slices.ContainsFunc(contacts, func(c string) bool { return utf8.RuneCountInString(c) > 256 })) {
		return errMetadata, "contacts is a list of at most 5 texts of at most 256 characters."
	}
	return checkRedirects(in["redirect_uris"])
}

func checkRedirects(raw json.RawMessage) (code, what string) {
	var uris []string
	if raw == nil || x402.Decode(raw, &uris) != nil || len(uris) == 0 {
		return errRequest, "redirect_uris is a list of at least one address."
	}
	if len(uris) > 10 {
		return errRedirect, "redirect_uris has more than 10 addresses."
	}
	for _, uri := range uris {
		if !toll.ValidRedirect(uri) {
			return errRedirect, "A redirect is https, http on this machine, or of a scheme of the program, without fragment and user."
		}
	}
	return "", ""
}

// named tells the service for which agent the client asks: that is its client_id then.
func (s *Server) named(body []byte) []byte {
	var in map[string]json.RawMessage
	if x402.Decode(body, &in) != nil {
		return body
	}
	in["agent_id"] = json.RawMessage(`"` + string(s.pay.seller.AgentID) + `"`)
	out, err := json.Marshal(in)
	if err != nil {
		return body
	}
	return out
}
