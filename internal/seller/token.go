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
	maxUnbound  = 4096 // tokens that are known to be for no resource
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

// ClaimsOf reads the claims of a token; false if they are not the claims of an access token.
func ClaimsOf(t *x402.Token) (c Claims, ok bool) {
	return c, t.Claims(&c) == nil
}

// ReadToken reads an access token in any of its forms.
func ReadToken(text string) (*x402.Token, *Refusal) {
	t, err := x402.DecodeToken(text)
	if err != nil {
		return nil, Undecodable(err)
	}
	return t, nil
}

// Undecodable is the refusal of a payment that cannot be decoded.
func Undecodable(err error) *Refusal {
	r := &Refusal{Reason: x402.ReasonInvalidPayload, Err: toll.AsError(err)}
	if r.Err.Code == toll.CodeBadX402Version {
		r.Reason = x402.ReasonInvalidVersion
	}
	return r
}

// CheckResource refuses a token for other resources, see [Claims.IsFor]. The service refuses malformed claims.
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
		WithHint("Get an access token that is made for this resource, or for none.")
	return &Refusal{Reason: s.Namespace.ReasonResourceMismatch(), Err: e}
}

// MinTokenBytes is below the size of any access token: two ids, an issuer and a signature.
const MinTokenBytes = 200

// AccessToken reads the claims of a text in the form of an access token; false for any other text.
func AccessToken(text string) (c Claims, ok bool) {
	if len(text) < MinTokenBytes || text[0] != 'e' && text[0] != '{' { // every form begins with "{", also in base64
		return c, false
	}
	token, err := x402.DecodeToken(text)
	if err != nil {
		return c, false
	}
	c, ok = ClaimsOf(token)
	// The service signs API keys, offers and receipts as well.
	return c, ok && c.X402Version == x402.Version && c.PlanID != ""
}

// IsOf reports whether the service with these terms issued the token. A service that moved accepts the tokens of its previous
// address, which are recognized by the plan. The result is true for nil terms and terms without a service address: it is safer
// to withhold a credential than to pass it on.
func (c *Claims) IsOf(t *x402.Terms) bool {
	return t == nil || t.ServiceURL == "" || c.Issuer == strings.TrimRight(t.ServiceURL, "/") || c.PlanID == string(t.PlanID)
}

// IsFor reports whether the token is valid for a resource of a server: its audience holds the service, and if it holds
// resources, one of them equals the resource or is above it, within the base of the server (RFC 8707, section 2). Without a
// base only tokens for the service alone are valid. Queries do not count.
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
