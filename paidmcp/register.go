package paidmcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/x402"
)

const (
	maxRegistration = 16 << 10 // maximum size of a request, in bytes
	maxRegistered   = 64 << 10 // maximum size of the response of the service, in bytes
	registerRate    = 60       // maximum forwarded registrations per minute
)

// registrar forwards client registrations to the service, which stores clients and their redirects.
type registrar struct {
	to     string
	client *http.Client
	limit  *meter.Meter[struct{}] // shared by all callers, who have the same address behind a proxy
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
	// The service checks everything else.
	var in map[string]json.RawMessage
	if x402.Decode(body, &in) != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "The body must be a JSON object.")
		return
	}
	if !s.register.limit.Take(struct{}{}, 1, now(s.clock)).OK {
		w.Header().Set("Retry-After", "60")
		refuse(w, http.StatusTooManyRequests, "temporarily_unavailable", "Too many registrations. Retry in a minute.")
		return
	}
	if agent := s.pay.seller.AgentID; agent != "" {
		// The client belongs to this agent, so its client_id is the agent id.
		in["agent_id"] = json.RawMessage(`"` + string(agent) + `"`)
		if text, err := json.Marshal(in); err == nil {
			body = text
		}
	}
	status, header, answer, err := s.register.pass(r.Context(), body)
	if err != nil {
		s.log.Warn("mcp: a client registration could not be forwarded to the authorization server", "error", err)
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
	_, _ = w.Write(answer) // fails only if the client has disconnected
}

// pass forwards a registration. It returns an error unless the response is JSON with the status 201, 400 or 429.
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
	return 0, nil, nil, fmt.Errorf("the authorization server answered %s", http.StatusText(res.StatusCode))
}
