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
	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// caller is the sender of a request: the holder of its bearer token.
type caller struct {
	subscriber toll.Address // zero if the keys of the service could not be read
	digest     string       // SHA-256 of the token, hexadecimal
}

// owner returns the name of the owner of a session: the subscriber, with any of their tokens, or the token if it could not be
// checked. For a nil caller, who has no credential, it returns "".
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

// signedIn returns the sender named by the Authorization header, nil without the header. It returns false after it responded: with
// 401 to an invalid token, and with 503 if sign-in is required and no keys can be read. It does not check payments in the message.
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
	case problem == problemKeys && s.cfg.RequireSignIn:
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "temporarily_unavailable", "The service that issues access tokens cannot be reached.")
		return nil, false
	case problem != "" && problem != problemKeys:
		s.challenge(w, r, "invalid_token", problem)
		return nil, false
	}
	return who, true
}

// challenge responds with 401 (RFC 6750, section 3; RFC 9728, section 5.1), without an error code for a request without a credential.
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

// Faults of a bearer token.
const (
	problemExpired   = "The access token has expired"
	problemRevoked   = "The access token was revoked"
	problemSignature = "The access token was not issued by the service"
	problemAudience  = "The access token is for another resource"
	problemKeys      = "keys" // internal: the token could not be checked
)

const (
	maxVerdicts = 10_000
	verdictLife = 5 * time.Second // maximum delay of a revocation
)

// bearers checks bearer tokens: signature and claims with the published keys of the service, and revocation with a call to it.
type bearers struct {
	f     x402.Facilitator
	keys  *keys
	agent toll.AgentID
	names x402.Namespace
	clock func() time.Time

	verdicts *cache.Cache[string, string] // problem or "", by digest of the token
}

// claims are the claims that the HTTP layer reads (wire contract, section 14).
type claims struct {
	seller.Claims
	Subject  string            `json:"sub"`
	Expiry   toll.Int          `json:"exp"`
	Accepted x402.Requirements `json:"accepted"`
}

// check returns the sender of a token, or a problem. base is the address of this server, "" if unknown.
func (b *bearers) check(ctx context.Context, token, base string) (*caller, string) {
	sum := sha256.Sum256([]byte(token))
	who := &caller{digest: hex.EncodeToString(sum[:])}
	t, err := x402.DecodeToken(token)
	if err != nil {
		return nil, problemSignature
	}
	c, problem := b.signed(ctx, t.JWS)
	if problem == problemKeys {
		return who, problemKeys
	}
	if problem != "" {
		return nil, problem
	}
	switch {
	case b.clock().Unix() >= int64(c.Expiry):
		return nil, problemExpired
	case !c.IsFor(base, base+pathMCP):
		return nil, problemAudience
	}
	if who.subscriber, err = toll.ParseAddress(c.Subject); err != nil {
		return nil, problemSignature
	}
	if problem := b.revoked(ctx, who.digest, token, c); problem != "" {
		return nil, problem
	}
	return who, ""
}

// signed verifies that a key of the service signed a JWS, and returns its claims or a problem. The header of the JWS only selects
// the key (RFC 8725, section 3.1).
func (b *bearers) signed(ctx context.Context, jws string) (*claims, string) {
	id := x402.KeyID(jws)
	if id == "" || len(id) > 128 {
		return nil, problemSignature
	}
	var c claims
	key, err := b.keys.find(ctx, id)
	switch {
	case err != nil:
		return nil, problemKeys
	case x402.VerifyJWS(jws, key, &c) != nil || c.X402Version != x402.Version || c.PlanID == "" || c.Issuer == "":
		return nil, problemSignature // the service signs API keys, offers and receipts as well
	}
	return &c, ""
}

// revoked returns a problem if the service considers the token expired, revoked or forged. It ignores refusals because of plan,
// agent or balance, and an unreachable service: the paid call reports them.
func (b *bearers) revoked(ctx context.Context, digest, token string, c *claims) string {
	began := b.clock()
	if problem, known := b.verdicts.Get(digest, began); known {
		return problem
	}
	required := x402.PaymentRequired{
		X402Version: x402.Version,
		Accepts: []x402.Requirements{{
			Scheme: c.Accepted.Scheme, Network: c.Accepted.Network, PlanID: c.PlanID,
			Extra: x402.RequirementsExtra{Version: "1", PlanID: c.PlanID, AgentID: string(b.agent)},
		}},
	}
	none := toll.Credits(0)
	answer, err := b.f.Verify(ctx, &x402.VerifyRequest{PaymentRequired: required, AccessToken: token, MaxAmount: &none})
	if err != nil {
		return ""
	}
	problem := ""
	if !answer.IsValid {
		switch answer.InvalidReason {
		case b.names.ReasonExpired():
			problem = problemExpired
		case b.names.ReasonRevoked(), b.names.ReasonUnknown():
			problem = problemRevoked
		case b.names.ReasonSignature():
			problem = problemSignature
		}
	}
	// The service may have decided before a revocation and answered after it, so the life of its verdict starts with the call.
	b.verdicts.Put(digest, problem, began.Add(verdictLife), began)
	return problem
}

// withoutCredentials passes the bearer token of each message to the payments and removes the headers with credentials, so that no handler
// forwards them. Each message of a session has its own request, so the context of the session cannot carry the token.
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
			ctx = mcpwire.WithCaller(ctx, who[0])
		}
		delete(h, headerCaller)
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", x402.HeaderSignature} {
			h.Del(name)
		}
		extra.Header = h
		return next(ctx, method, req)
	}
}
