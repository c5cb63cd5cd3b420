package paidmcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/sale"
	"github.com/tollhq/toll/x402"
)

// caller is who sent a request: the holder of its bearer token.
type caller struct {
	subscriber toll.Address // zero when the service did not confirm the token
	digest     string       // of the token
}

// owner names to whom a session belongs: the subscriber, with whichever of their tokens. A token that was not confirmed is
// only itself. A nil caller owns what was opened without a credential.
func (c *caller) owner() string {
	switch {
	case c == nil:
		return ""
	case c.subscriber.IsZero():
		return "token " + c.digest
	}
	return ownSubscriber + c.subscriber.String()
}

const ownSubscriber = "subscriber "

// signedIn reads the Authorization header. Whatever is wrong with it is a 401, so that clients sign in again; payments in
// the message are never looked at here. It returns nil for a request without the header.
func (s *Server) signedIn(w http.ResponseWriter, r *http.Request) (*caller, bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return nil, true
	}
	kind, token, _ := strings.Cut(strings.TrimSpace(headers[0]), " ")
	token = strings.TrimSpace(token)
	switch {
	case len(headers) > 1 || !strings.EqualFold(kind, "Bearer"):
		s.challenge(w, r, "invalid_request", "Bearer token required")
		return nil, false
	case token == "":
		s.challenge(w, r, "invalid_request", "Bearer token cannot be empty")
		return nil, false
	}
	who, problem := s.bearers.check(r.Context(), token, s.baseOf(r))
	switch {
	case problem == "", !s.cfg.RequireSignIn && (problem == problemAway || problem == problemForeign):
		return who, true
	case problem == problemAway:
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "The service that issues access tokens cannot be reached.")
		return nil, false
	}
	s.challenge(w, r, "invalid_token", problem)
	return nil, false
}

// challenge is a 401 (RFC 6750, section 3; RFC 9728, section 5.1). A request without a credential gets no error code.
func (s *Server) challenge(w http.ResponseWriter, r *http.Request, code, description string) {
	if base := s.baseOf(r); base != "" {
		value := `Bearer resource_metadata="` + base + pathResource + pathMCP + `"`
		if code != "" {
			value += `, error="` + code + `"`
		}
		w.Header().Set("WWW-Authenticate", value)
	}
	w.Header().Set("Cache-Control", "no-store")
	refuse(w, http.StatusUnauthorized, "unauthorized", description)
}

// What is told about a bearer token that is not taken.
const (
	problemExpired   = "The access token has expired"
	problemRevoked   = "The access token was revoked"
	problemSignature = "The access token is not one of the service"
	problemAudience  = "The access token is for another resource"
	problemForeign   = "The access token is for another server"
	problemAway      = "away" // not told: the service could not be asked
)

const (
	maxVerdicts = 10_000
	verdictLife = 5 * time.Second // how late a revocation may be seen
	holderLife  = time.Hour       // how long a holder is known while the service cannot be asked
)

// bearers check bearer tokens by asking the service, which alone knows its keys and what was revoked.
type bearers struct {
	f     x402.Facilitator
	agent toll.AgentID
	names x402.Namespace
	clock func() time.Time

	verdicts *cache.Cache[string, verdict] // by digest of the token
}

// verdict is what the service said of a bearer token.
type verdict struct {
	holder  toll.Address // zero when it was not confirmed
	problem string
	at      time.Time
}

func newBearers(p *Payments) *bearers {
	s := p.seller
	return &bearers{f: s.Facilitator, agent: s.AgentID, names: s.Namespace, clock: s.Clock, verdicts: cache.New[string, verdict](maxVerdicts)}
}

// claims are what the HTTP layer reads of an access token (wire contract, section 14).
type claims struct {
	sale.Claims
	Expiry   toll.Int          `json:"exp"`
	Accepted x402.Requirements `json:"accepted"`
}

// check returns who sent the token, and what is wrong with it. base is the address of this server, "" when it is unknown. The
// claims are not verified here, so they can only refuse a token; the service confirms the holder.
func (b *bearers) check(ctx context.Context, token, base string) (*caller, string) {
	var c claims
	t, err := x402.DecodeToken(token)
	// The service signs API keys, offers and receipts as well.
	if err != nil || !sale.ReadClaims(t, &c) || c.X402Version != x402.Version || c.PlanID == "" || c.Issuer == "" {
		return nil, problemSignature
	}
	now := b.clock()
	switch {
	case now.Unix() >= int64(c.Expiry):
		return nil, problemExpired
	case !c.IsFor(base, base+pathMCP):
		return nil, problemAudience
	}
	sum := sha256.Sum256([]byte(token))
	who := &caller{digest: hex.EncodeToString(sum[:])}
	v, known := b.verdicts.Get(who.digest, now)
	if !known || now.Sub(v.at) >= verdictLife {
		said := b.ask(ctx, token, &c)
		if said.problem != problemAway || !known {
			v = said
		}
	}
	if v.problem != problemAway {
		b.verdicts.Put(who.digest, v, v.at.Add(holderLife), now)
	}
	who.subscriber = v.holder
	return who, v.problem
}

// ask has the service verify a token for no credits and without a hold. What it says of agent and balance is for the call that
// is to be paid: those checks come after that of the signature, so they confirm the holder.
func (b *bearers) ask(ctx context.Context, token string, c *claims) verdict {
	required := x402.PaymentRequired{
		X402Version: x402.Version,
		Accepts: []x402.Requirements{{
			Scheme: c.Accepted.Scheme, Network: c.Accepted.Network, PlanID: c.PlanID,
			Extra: x402.RequirementsExtra{Version: "1", PlanID: c.PlanID, AgentID: string(b.agent)},
		}},
	}
	v := verdict{problem: problemForeign, at: b.clock()}
	answer, err := b.f.Verify(ctx, &x402.VerifyRequest{PaymentRequired: required, AccessToken: token, MaxAmount: new(toll.Credits)})
	if err != nil {
		switch toll.AsError(err).HTTPStatus() {
		case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound:
		default:
			v.problem = problemAway
		}
		return v
	}
	switch reason := answer.InvalidReason; {
	case reason == b.names.ReasonExpired():
		v.problem = problemExpired
	case reason == b.names.ReasonRevoked(), reason == b.names.ReasonUnknown():
		v.problem = problemRevoked
	case reason == b.names.ReasonSignature():
		v.problem = problemSignature
	case answer.IsValid, reason == b.names.ReasonAgentMismatch(), reason == x402.ReasonAgentInactive, sale.Lacks(reason):
		if holder, err := toll.ParseAddress(answer.Payer); err == nil && !holder.IsZero() {
			v.problem, v.holder = "", holder
		}
	}
	return v
}

// withoutCredentials hands the bearer token of each message to the layer of payments and takes the headers of credentials
// away, so that no handler passes them on. Messages of a session come in requests of their own, so its context cannot carry
// them.
func withoutCredentials(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		extra := req.GetExtra()
		if extra == nil || extra.Header == nil {
			return next(ctx, method, req)
		}
		if token := bearerToken(extra.Header); token != "" {
			ctx = context.WithValue(ctx, bearerKey{}, token)
		}
		h := extra.Header.Clone()
		if who := h[headerCaller]; len(who) > 0 {
			ctx = context.WithValue(ctx, callerKey{}, who[0])
		}
		delete(h, headerCaller)
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", x402.HeaderSignature} {
			h.Del(name)
		}
		extra.Header = h
		return next(ctx, method, req)
	}
}
