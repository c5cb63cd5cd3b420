package seller

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	maxUnbound  = 4096 // cached hashes of tokens without a resource
	unboundLife = time.Hour
)

// Claims are the unverified claims of an access token (wire contract, section 14).
type Claims struct {
	Issuer      string          `json:"iss"`
	Audience    json.RawMessage `json:"aud"`
	ID          string          `json:"jti"`
	PlanID      string          `json:"planId"`
	X402Version toll.Int        `json:"x402Version"`
}

// ClaimsOf returns the claims of a token, or false if they cannot be decoded.
func ClaimsOf(t *x402.Token) (c Claims, ok bool) {
	return c, t.Claims(&c) == nil
}

// ReadToken decodes an access token in any of its forms.
func ReadToken(text string) (*x402.Token, *Refusal) {
	t, err := x402.DecodeToken(text)
	if err != nil {
		return nil, Undecodable(err)
	}
	return t, nil
}

// Undecodable returns the refusal of a payment that cannot be decoded.
func Undecodable(err error) *Refusal {
	r := &Refusal{Reason: x402.ReasonInvalidPayload, Err: toll.AsError(err)}
	if r.Err.Code == toll.CodeBadX402Version {
		r.Reason = x402.ReasonInvalidVersion
	}
	return r
}

// CheckResource refuses a token for different resources, see [Claims.IsFor]. It accepts malformed claims, which the service refuses.
func (s *Seller) CheckResource(t *x402.Token, base string, resource func() string) *Refusal {
	now, key := s.Clock(), sha256.Sum256([]byte(t.JWS))
	if _, known := s.unbound.Get(key, now); known {
		return nil
	}
	c, ok := ClaimsOf(t)
	if !ok || len(c.Audience) == 0 {
		return nil
	}
	if c.IsFor("", "") {
		s.unbound.Put(key, struct{}{}, now.Add(unboundLife), now)
		return nil
	}
	if c.IsFor(base, resource()) {
		return nil
	}
	e := toll.Errorf(toll.CodeEndpointMismatch, "The access token is for another resource.").
		WithHint("Create an access token for this resource, or without a resource.")
	return &Refusal{Reason: s.Namespace.ReasonResourceMismatch(), Err: e}
}

// MinTokenBytes is a lower bound for the size of an access token, which contains two ids, an issuer, and a signature.
const MinTokenBytes = 200

// AccessToken returns the unverified claims of an access token in any of its forms, or false for any other text.
func AccessToken(text string) (c Claims, ok bool) {
	if len(text) < MinTokenBytes || text[0] != 'e' && text[0] != '{' { // every form begins with "{", also in base64
		return c, false
	}
	token, err := x402.DecodeToken(text)
	if err != nil {
		return c, false
	}
	c, ok = ClaimsOf(token)
	// The service also signs API keys, offers, and receipts.
	return c, ok && c.X402Version == x402.Version && c.PlanID != ""
}

// IsOf reports whether the service with these terms issued the token. After a service has moved to a new URL, it still accepts its
// older tokens, which IsOf recognizes by the plan. IsOf returns true for nil terms and terms without a service URL, because it is
// safer to withhold a credential than to pass it on.
func (c *Claims) IsOf(t *x402.Terms) bool {
	return t == nil || t.ServiceURL == "" || c.Issuer == strings.TrimRight(t.ServiceURL, "/") || c.PlanID == string(t.PlanID)
}

// IsFor reports whether the token is valid for a resource of a server. Its audience must contain the service. If it also contains
// resources, one of them must equal the resource or be above it, within the base of the server (RFC 8707, section 2). Without a
// base, only tokens without a resource are valid. Queries are ignored.
func (c *Claims) IsFor(base, resource string) bool {
	many := make([]string, 1)
	var err error
	if len(c.Audience) > 0 && c.Audience[0] == '"' {
		err = x402.Decode(c.Audience, &many[0])
	} else {
		err = x402.Decode(c.Audience, &many)
	}
	if err != nil {
		return false
	}
	others, here, ours := 0, false, false
	for _, aud := range many {
		if service, ok := strings.CutSuffix(aud, "/x402"); ok && service == c.Issuer {
			ours = true
			continue
		}
		others++
		here = here || base != "" && x402.Above(base, aud) && x402.Above(aud, resource)
	}
	return ours && (others == 0 || here)
}
