package x402

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tollhq/toll"
)

// MaxTokenBytes bounds an access token in any form, one header line (wire contract, section 21).
const MaxTokenBytes = 8 << 10

// maxPayloadBytes bounds the JSON of a PaymentPayload: one header block as base64, since other servers forward the received payload.
const maxPayloadBytes = 16 << 10

// Forms of an access token (wire contract, section 14).
const (
	RenderingJWT  = "jwt"  // the compact JWS
	RenderingX402 = "x402" // base64 of a PaymentPayload
)

// Token is a parsed access token. Only the JWS is signed: everything else is claimed by the sender and must agree with it (see
// [Token.Contradicts]).
type Token struct {
	JWS               string
	Rendering         string         // RenderingJWT or RenderingX402
	Nonce             string         // payload.nonce, "" when absent
	PaymentIdentifier string         // id of the extension payment-identifier, "" when absent
	ResourceURL       string         // resource.url, "" when absent
	Accepted          *Requirements  // nil when absent
	Authorization     *Authorization // nil when absent
	// IdentifierRequired reports whether the sender was required to send a payment identifier.
	IdentifierRequired bool
	// Resource and Extensions are as sent.
	Resource   *Resource
	Extensions map[string]json.RawMessage
}

// Authorization names payer and plan inside an access token.
type Authorization struct {
	From    string `json:"from,omitempty"`
	PlanID  string `json:"planId,omitempty"`
	AgentID string `json:"agentId,omitempty"`
}

// Signed are the claims of a verified access token that the outer object must repeat.
type Signed struct {
	From            toll.Address
	PlanID          toll.PlanID
	AgentID         toll.AgentID // "" when the token is not bound to one agent
	Scheme, Network string
}

type paymentPayload struct {
	X402Version toll.Int      `json:"x402Version"`
	Resource    *Resource     `json:"resource"`
	Accepted    *Requirements `json:"accepted"`
	Payload     *struct {
		Signature     string         `json:"signature"`
		Authorization *Authorization `json:"authorization"`
		Nonce         *string        `json:"nonce"`
	} `json:"payload"`
	Extensions map[string]json.RawMessage `json:"extensions"`
}

// DecodeToken decodes an access token in any form: the compact JWS, the base64 (standard or URL alphabet, padded or not) of a
// PaymentPayload, or its JSON text. It does not check the signature. Errors: [toll.CodeTokenUndecodable], [toll.CodeBadX402Version].
func DecodeToken(s string) (*Token, error) {
	switch isJSON := strings.HasPrefix(s, "{"); {
	case isJSON && len(s) > maxPayloadBytes:
		return nil, undecodable("the token is larger than 16 KiB")
	case !isJSON && len(s) > MaxTokenBytes:
		return nil, undecodable("the token is larger than 8 KiB")
	case isJWS(s):
		return &Token{JWS: s, Rendering: RenderingJWT}, nil
	}
	b, ok := headerText(s)
	if !ok || b[0] != '{' {
		return nil, undecodable("expected a JWS, a JSON object, or the base64 of a JSON object")
	}
	return decodePayload(b)
}

func decodePayload(b []byte) (*Token, error) {
	var p paymentPayload
	if err := Decode(b, &p); err != nil {
		return nil, undecodable("the payment payload is malformed").WithCause(err)
	}
	if p.X402Version != Version {
		return nil, toll.NewError(toll.CodeBadX402Version)
	}
	if p.Payload == nil || !isJWS(p.Payload.Signature) {
		return nil, undecodable("payload.signature is not a JWS")
	}
	t := &Token{
		JWS: p.Payload.Signature, Rendering: RenderingX402,
		Accepted: p.Accepted, Authorization: p.Payload.Authorization, Resource: p.Resource, Extensions: p.Extensions,
	}
	if p.Resource != nil {
		t.ResourceURL = p.Resource.URL
	}
	if n := p.Payload.Nonce; n != nil {
		if !ValidNonce(*n) {
			return nil, undecodable("payload.nonce must be 1 to 128 characters of A-Z a-z 0-9 . _ : ~ -")
		}
		t.Nonce = *n
	}
	var err error
	if t.PaymentIdentifier, t.IdentifierRequired, err = identifierOf(p.Extensions, undecodable); err != nil {
		return nil, err
	}
	return t, nil
}

// identifierOf reads the extension payment-identifier of a payload: the id, or "", and whether it was required. bad makes the errors.
func identifierOf(extensions map[string]json.RawMessage, bad func(why string) *toll.Error) (id string, required bool, err error) {
	raw := extensions[ExtensionPaymentIdentifier]
	if len(raw) == 0 || isNull(raw) {
		return "", false, nil
	}
	var e struct {
		Info struct {
			ID       *string `json:"id"`
			Required bool    `json:"required"`
		} `json:"info"`
	}
	if err := Decode(raw, &e); err != nil {
		return "", false, bad("the extension payment-identifier is malformed").WithCause(err)
	}
	if e.Info.ID == nil {
		return "", e.Info.Required, nil
	}
	if !ValidPaymentIdentifier(*e.Info.ID) {
		return "", false, bad("the payment identifier must be 16 to 128 characters of A-Z a-z 0-9 _ -")
	}
	return *e.Info.ID, e.Info.Required, nil
}

func undecodable(why string) *toll.Error {
	return toll.Errorf(toll.CodeTokenUndecodable, "The access token cannot be decoded: %s.", why)
}

// Classes of bytes in tokens, in one table so that each check is one pass.
const (
	classBase64URL = 1 << iota
	classNonce
	classJWS
)

var classes = func() (t [256]uint8) {
	for c := range 256 {
		switch b := byte(c); {
		case b >= '0' && b <= '9', b >= 'A' && b <= 'Z', b >= 'a' && b <= 'z', b == '-', b == '_':
			t[c] = classBase64URL | classNonce | classJWS
		case b == '.':
			t[c] = classNonce | classJWS
		case b == ':', b == '~':
			t[c] = classNonce
		}
	}
	return
}()

// isJWS reports whether s is three base64url texts separated by dots. It runs for each call with a token, so it checks four
// bytes at a time.
func isJWS(s string) bool {
	if strings.Count(s, ".") != 2 {
		return false
	}
	for ; len(s) >= 4; s = s[4:] {
		if classes[s[0]]&classes[s[1]]&classes[s[2]]&classes[s[3]]&classJWS == 0 {
			return false
		}
	}
	return s == "" || allOf(s, classJWS, 1, 3)
}

func allOf(s string, class uint8, least, most int) bool {
	if len(s) < least || len(s) > most {
		return false
	}
	for i := range len(s) {
		if classes[s[i]]&class == 0 {
			return false
		}
	}
	return true
}

// ValidNonce reports whether s is a payload nonce: 1 to 128 of A-Z a-z 0-9 . _ : ~ -
func ValidNonce(s string) bool { return allOf(s, classNonce, 1, 128) }

// ValidPaymentIdentifier reports whether s is an id of the extension payment-identifier: 16 to 128 of A-Z a-z 0-9 _ -
func ValidPaymentIdentifier(s string) bool { return allOf(s, classBase64URL, 16, 128) }

// decodeBase64 accepts the standard or the URL alphabet, padded or not. It rejects line breaks and stray bits.
func decodeBase64(s string) ([]byte, bool) {
	enc := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		enc = base64.RawURLEncoding
	}
	if n := len(s); n > 0 && n%4 == 0 && s[n-1] == '=' {
		s = strings.TrimSuffix(s[:n-1], "=")
	}
	if strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	b, err := enc.Strict().DecodeString(s)
	return b, err == nil
}

// Contradicts returns the first member of the outer object that disagrees with the signed claims, for example
// "accepted.planId", or "". The network "stripe" equals "stripe:" and the environment.
func (t *Token) Contradicts(c Signed, env toll.Environment) string {
	if a := t.Authorization; a != nil {
		if a.From != "" {
			if from, err := toll.ParseAddress(a.From); err != nil || from != c.From {
				return "payload.authorization.from"
			}
		}
		if a.PlanID != "" && a.PlanID != string(c.PlanID) {
			return "payload.authorization.planId"
		}
		if a.AgentID != "" && a.AgentID != string(c.AgentID) {
			return "payload.authorization.agentId"
		}
	}
	if a := t.Accepted; a != nil {
		if a.Scheme != "" && a.Scheme != c.Scheme {
			return "accepted.scheme"
		}
		if a.Network != "" && !SameNetwork(a.Network, c.Network, env) {
			return "accepted.network"
		}
		if a.PlanID != "" && a.PlanID != string(c.PlanID) {
			return "accepted.planId"
		}
		if a.Extra.PlanID != "" && a.Extra.PlanID != string(c.PlanID) {
			return "accepted.extra.planId"
		}
		if a.Extra.AgentID != "" && c.AgentID != "" && a.Extra.AgentID != string(c.AgentID) {
			return "accepted.extra.agentId"
		}
	}
	return ""
}

// SameNetwork reports whether two networks are equal: "stripe" and "stripe:" with this environment are.
func SameNetwork(a, b string, env toll.Environment) bool {
	if a == "stripe" {
		a = env.CardNetwork()
	}
	if b == "stripe" {
		b = env.CardNetwork()
	}
	return a == b
}

// EncodeToken returns the x402 form of a JWS: base64 of a PaymentPayload with this nonce, which for an issued token is its jti.
func EncodeToken(jws string, accepted Requirements, auth Authorization, nonce string) string {
	value, err := EncodeHeader(&struct {
		X402Version int            `json:"x402Version"`
		Accepted    Requirements   `json:"accepted"`
		Payload     CreditsPayload `json:"payload"`
		Extensions  struct{}       `json:"extensions"`
	}{Version, accepted, CreditsPayload{jws, &auth, nonce}, struct{}{}})
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return value
}

// WithNonce returns the x402 form of a token with another nonce, so that it pays for one request. It takes claims from the
// JWS without checking the signature. Errors: [toll.CodeBadRequest] for the nonce, and any error of [DecodeToken].
func WithNonce(token, nonce string) (string, error) {
	if !ValidNonce(nonce) {
		return "", toll.Errorf(toll.CodeBadRequest, "A nonce must be 1 to 128 characters of A-Z a-z 0-9 . _ : ~ -")
	}
	jws, c, err := unverified(token)
	if err != nil {
		return "", err
	}
	return EncodeToken(jws, c.Accepted, c.Authorization, nonce), nil
}

// CreditsPayload is the payload of an entry of our schemes: an access token for one request.
type CreditsPayload struct {
	Signature     string         `json:"signature"` // the compact JWS
	Authorization *Authorization `json:"authorization,omitempty"`
	Nonce         string         `json:"nonce,omitempty"` // may be ""
}

// NewCreditsPayload returns the payload with which an access token of any form pays for one request: a new nonce keeps the server from
// charging it twice. It does not check the signature. Errors: [toll.CodeTokenUndecodable], [toll.CodeBadX402Version].
func NewCreditsPayload(token string) (*CreditsPayload, error) {
	jws, c, err := unverified(token)
	if err != nil {
		return nil, err
	}
	return &CreditsPayload{jws, &c.Authorization, newNonce()}, nil
}

// claimed is the part of a JWS that the outer object repeats.
type claimed struct {
	Accepted      Requirements  `json:"accepted"`
	Authorization Authorization `json:"authorization"`
}

// unverified returns the JWS of an access token in any form, and its unverified claims.
func unverified(token string) (jws string, c *claimed, err error) {
	t, err := DecodeToken(token)
	if err != nil {
		return "", nil, err
	}
	c = new(claimed)
	if t.Claims(c) != nil {
		return "", nil, undecodable("the claims of the token are not JSON")
	}
	return t.JWS, c, nil
}

// Claims decodes the unverified claims of the token into v.
func (t *Token) Claims(v any) error {
	_, rest, _ := strings.Cut(t.JWS, ".")
	body, _, _ := strings.Cut(rest, ".")
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return err
	}
	return Decode(b, v)
}
