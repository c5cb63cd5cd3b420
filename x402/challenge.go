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

// Challenge is what any server asks for before it answers: a PaymentRequired as it came, ours or that of other software. A
// payment repeats parts of it byte for byte, as standard servers compare them, so they are kept as they are.
type Challenge struct {
	Error      string
	Resource   json.RawMessage // null when the server named none
	URL        string          // of Resource, "" when there is none
	Entries    []Entry
	Extensions map[string]json.RawMessage
}

// Entry is one way to pay that a server offers: an element of accepts. Nothing of it is trusted.
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

// maxChallengeBytes bounds a PaymentRequired, and a receipt: what a header block of a server could carry.
const maxChallengeBytes = 64 << 10

// maxEntries is how many ways to pay are looked at: each may cost its payer a call.
const maxEntries = 16

// ReadChallenge takes the PaymentRequired out of an answer 402: the header payment-required, or the body when it has none.
// Entries that cannot be read are left out, and so are those after the sixteenth. Errors: [toll.CodeBadRequest] when there is
// no PaymentRequired of version 2, or one of more than 64 KiB.
func ReadChallenge(h http.Header, body []byte) (*Challenge, error) {
	value := h.Get(HeaderRequired)
	if len(value) > maxChallengeBytes {
		return nil, errNoChallenge
	}
	if value != "" {
		body, _ = headerText(value) // no text is no challenge
	}
	if len(body) > maxChallengeBytes {
		return nil, errNoChallenge
	}
	return decodeChallenge(body)
}

var errNoChallenge = toll.Errorf(toll.CodeBadRequest, "The server asks for payment, and not by version 2 of x402.")

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

// Plan returns the plan of an entry whose scheme is ours: extra.planId, else planId; "" when it names none.
func (e *Entry) Plan() toll.PlanID { return toll.PlanID(cmp.Or(e.member("planId"), e.PlanID)) }

// Agent returns extra.agentId, "" when the entry names none.
func (e *Entry) Agent() toll.AgentID { return toll.AgentID(e.member("agentId")) }

// member returns a text of extra.
func (e *Entry) member(name string) string {
	var extra map[string]json.RawMessage
	var s string
	if len(e.Extra) == 0 || Decode(e.Extra, &extra) != nil || len(extra[name]) == 0 || Decode(extra[name], &s) != nil {
		return ""
	}
	return s
}

// Answer returns the value of payment-signature that pays an entry of the challenge: base64 (standard alphabet, padded) of
// a PaymentPayload. The entry, the resource and the extensions are repeated as they came. A server that takes a payment
// identifier gets the given one; "" leaves it out. It fails for a payload that is no JSON.
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

// withIdentifier adds the id to info of an extension, and changes nothing else of it.
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

// NewPaymentIdentifier returns a fresh id for the extension payment-identifier: "pay_" and 128 random bits in hex.
func NewPaymentIdentifier() string { return "pay_" + newNonce() }

func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// Quote is the most that paying an entry can cost.
type Quote struct {
	// Unit is what is paid with: "credits", or a token as "USDC" whose base units have 6 decimals. Limits are kept per unit.
	Unit   string
	Amount toll.Units // credits, or base units
}

// UnitCredits is the unit of entries that are paid with credits of plans.
const UnitCredits = "credits"

// Payment is one that was made for an entry.
type Payment struct {
	Payload any // of the PaymentPayload, JSON
	// Spent says what the payment cost, once the server has answered with r, which is the zero value when there was no receipt.
	// false: it is not sure, and the whole quote may be taken. It may ask the service, never the server.
	Spent func(ctx context.Context, r *Settlement) (toll.Units, bool)
	// Authorization is what a payment of scheme exact lets the server do, until it ends: the chain alone knows whether it was
	// used. nil of other schemes.
	Authorization *ExactAuthorization
	// Permission is what an access token may spend, by which its service can be asked what was
	// burned. nil of other payments.
	Permission *toll.Hash
}

// Settlement is the receipt of any server, ours or that of other software: the content of payment-response. Nothing of it
// is signed, and unlike in a [SettleResponse] amounts are text that nobody has checked.
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

// ReadSettlement takes the receipt out of the header payment-response of an answer. Errors: [toll.CodeBadRequest] when there is
// none of at most 64 KiB that can be read.
func ReadSettlement(h http.Header) (*Settlement, error) {
	r := new(Settlement)
	value := h.Get(HeaderResponse)
	if value == "" || len(value) > maxChallengeBytes {
		return nil, toll.Errorf(toll.CodeBadRequest, "The answer has no receipt.")
	}
	if err := DecodeHeader(value, r); err != nil {
		return nil, err
	}
	return r, nil
}
