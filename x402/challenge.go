package x402

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/tollhq/toll"
)

// Challenge is the PaymentRequired of any server. A payment repeats parts of it byte for byte, as standard servers compare
// them, so they are kept as received.
type Challenge struct {
	Error      string
	Resource   json.RawMessage // null when the server named none
	URL        string          // of Resource, "" when there is none
	Entries    []Entry
	Extensions map[string]json.RawMessage
}

// Entry is one way to pay that a server offers, an untrusted element of accepts.
type Entry struct {
	Scheme            string          `json:"scheme"`
	Network           string          `json:"network"`
	Amount            string          `json:"amount"` // credits, or base units of the asset; "" when the server named none
	Asset             string          `json:"asset"`
	PayTo             string          `json:"payTo"`
	MaxTimeoutSeconds int64           `json:"maxTimeoutSeconds"`
	PlanID            string          `json:"planId"`
	Extra             json.RawMessage `json:"extra"`
	Raw               json.RawMessage `json:"-"` // the entry as it came
}

// maxChallengeBytes bounds a PaymentRequired and a receipt, as the header block of a server does.
const maxChallengeBytes = 64 << 10

// maxEntries bounds the considered ways to pay, each of which may cost its payer a call.
const maxEntries = 16

// ReadChallenge reads the PaymentRequired of a 402 from the header payment-required, else from the body. It skips malformed
// entries, and those after the sixteenth. Errors: [toll.CodeBadRequest] without a PaymentRequired of version 2 within 64 KiB.
func ReadChallenge(h http.Header, body []byte) (*Challenge, error) {
	value := h.Get(HeaderRequired)
	if len(value) > maxChallengeBytes {
		return nil, errNoChallenge
	}
	if value != "" {
		body, _ = headerText(value) // decodeChallenge rejects an empty body
	}
	if len(body) > maxChallengeBytes {
		return nil, errNoChallenge
	}
	return decodeChallenge(body)
}

var errNoChallenge = toll.Errorf(toll.CodeBadRequest, "The server requires payment, but not with x402 version 2.")

func decodeChallenge(text []byte) (*Challenge, error) {
	var p struct {
		X402Version toll.Int                   `json:"x402Version"`
		Error       string                     `json:"error"`
		Resource    json.RawMessage            `json:"resource"`
		Accepts     []json.RawMessage          `json:"accepts"`
		Extensions  map[string]json.RawMessage `json:"extensions"`
	}
	if err := Decode(text, &p); err != nil || p.X402Version != Version {
		return nil, errNoChallenge
	}
	c := &Challenge{Error: p.Error, Resource: p.Resource, Extensions: p.Extensions}
	var r struct {
		URL string `json:"url"`
	}
	if len(p.Resource) > 0 && Decode(p.Resource, &r) == nil {
		c.URL = r.URL
	}
	for _, raw := range p.Accepts[:min(len(p.Accepts), maxEntries)] {
		e := Entry{Raw: raw}
		if Decode(raw, &e) == nil && e.Scheme != "" && e.Network != "" {
			c.Entries = append(c.Entries, e)
		}
	}
	return c, nil
}

// Plan returns the plan of an entry of our schemes: extra.planId, else planId, else "".
func (e *Entry) Plan() toll.PlanID { return toll.PlanID(cmp.Or(e.member("planId"), e.PlanID)) }

// Agent returns extra.agentId, else "".
func (e *Entry) Agent() toll.AgentID { return toll.AgentID(e.member("agentId")) }

// member returns a string of extra.
func (e *Entry) member(name string) string {
	var extra map[string]json.RawMessage
	var s string
	if len(e.Extra) == 0 || Decode(e.Extra, &extra) != nil || len(extra[name]) == 0 || Decode(extra[name], &s) != nil {
		return ""
	}
	return s
}

// Answer returns the value of payment-signature that pays an entry of the challenge: base64 (standard alphabet, padded) of
// a PaymentPayload. It repeats the entry, the resource, and the extensions as received. It sends identifier to servers that
// accept payment identifiers; "" omits it. It returns an error when payload cannot be encoded as JSON.
func (c *Challenge) Answer(e *Entry, payload any, identifier string) (string, error) {
	extensions := make(map[string]json.RawMessage, len(c.Extensions))
	for name, raw := range c.Extensions {
		if name == ExtensionPaymentIdentifier && identifier != "" {
			raw = withIdentifier(raw, identifier)
		}
		extensions[name] = raw
	}
	return EncodeHeader(&struct {
		X402Version int                        `json:"x402Version"`
		Resource    json.RawMessage            `json:"resource,omitempty"`
		Accepted    json.RawMessage            `json:"accepted"`
		Payload     any                        `json:"payload"`
		Extensions  map[string]json.RawMessage `json:"extensions,omitempty"`
	}{Version, c.Resource, e.Raw, payload, extensions})
}

// withIdentifier adds the id to info of an extension.
func withIdentifier(extension json.RawMessage, id string) json.RawMessage {
	var members, info map[string]json.RawMessage
	if Decode(extension, &members) != nil || Decode(members["info"], &info) != nil {
		return extension
	}
	text, err := Encode(id)
	if err != nil {
		return extension
	}
	info["id"] = text
	if members["info"], err = Encode(info); err != nil {
		return extension
	}
	out, err := Encode(members)
	if err != nil {
		return extension
	}
	return out
}

// NewPaymentIdentifier returns a new id for the extension payment-identifier: "pay_" and 128 random bits in hex.
func NewPaymentIdentifier() string { return "pay_" + newNonce() }

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// Quote is the maximum cost of an entry.
type Quote struct {
	// Unit is "credits", or a token such as "USDC" whose base units have 6 decimals. Limits are kept per unit.
	Unit   string
	Amount toll.Units // credits, or base units
}

// UnitCredits is the unit of entries that are paid with credits of plans.
const UnitCredits = "credits"

// Payment is a payment for an entry.
type Payment struct {
	Payload any // of the PaymentPayload, JSON
	// Spent returns the cost of the payment after the server responded with r, the zero value without a receipt. It returns
	// false if it is not sure, so that the whole quote may be spent. It may ask the service, never the server.
	Spent func(ctx context.Context, r *Settlement) (toll.Units, bool)
	// Authorization is the transfer that a payment of scheme exact authorizes until it expires, else nil. Only the chain
	// knows whether it was used.
	Authorization *ExactAuthorization
	// Permission identifies the access token, whose service records the burned credits; nil for other payments.
	Permission *toll.Hash
}

// Settlement is the receipt of any server, the content of payment-response. It is not signed, and unlike in a [SettleResponse]
// amounts are unchecked text.
type Settlement struct {
	Success     bool   `json:"success"`
	Transaction string `json:"transaction"`
	Network     string `json:"network"`
	Payer       string `json:"payer"`
	Amount      string `json:"amount"` // credits, or base units of the token; "" from servers that do not tell it
	ErrorReason string `json:"errorReason"`
	Error       string `json:"errorMessage"`

	CreditsRedeemed string `json:"creditsRedeemed"` // of ours
}

// ReadSettlement reads the receipt in the header payment-response. Errors: [toll.CodeBadRequest] without a readable one within 64 KiB.
func ReadSettlement(h http.Header) (*Settlement, error) {
	r := new(Settlement)
	value := h.Get(HeaderResponse)
	if value == "" || len(value) > maxChallengeBytes {
		return nil, toll.Errorf(toll.CodeBadRequest, "The response has no receipt.")
	}
	if err := DecodeHeader(value, r); err != nil {
		return nil, err
	}
	return r, nil
}
