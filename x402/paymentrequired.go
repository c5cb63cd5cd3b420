package x402

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tollhq/toll"
)

// Options shape a PaymentRequired (wire contract, section 15). A zero field omits its member or takes it from the plan.
type Options struct {
	Namespace      Namespace        // zero: Default
	Environment    toll.Environment // network of entries without a plan; zero: sandbox
	Endpoint       string           // resource.url
	AgentID        toll.AgentID
	HTTPVerb       string
	Scheme         string // wins over the plan
	Network        string // wins over the plan
	Description    string
	MimeType       string
	Error          string
	Amount         *toll.Credits // most credits that the request may burn; nil: the maximum of the plan
	MaxTimeoutSecs int           // 1 to 900, life of the hold; 0: 60
	Extensions     map[string]json.RawMessage
	Minimal        bool // scheme, network, planId and extra only
}

// NewPaymentRequired returns a demand with one entry per plan in this order, or one entry without a plan.
func NewPaymentRequired(terms []*Terms, o Options) *PaymentRequired {
	o.Namespace, o.Environment = cmp.Or(o.Namespace, Default), cmp.Or(o.Environment, toll.Sandbox)
	o.MaxTimeoutSecs = cmp.Or(o.MaxTimeoutSecs, DefaultHoldSecs)
	if len(terms) == 0 {
		terms = []*Terms{{}}
	}
	p := &PaymentRequired{
		X402Version: Version, Error: o.Error,
		Resource:   Resource{URL: o.Endpoint, Description: o.Description, MimeType: o.MimeType},
		Accepts:    make([]Requirements, 0, len(terms)),
		Extensions: o.Extensions,
	}
	if p.Extensions == nil {
		p.Extensions = map[string]json.RawMessage{}
	}
	for _, t := range terms {
		p.Accepts = append(p.Accepts, o.entry(t))
	}
	return p
}

// noReceiver is the receiver of an entry without one; it has no effect on payments with credits.
const noReceiver = "merchant"

func (o *Options) entry(t *Terms) Requirements {
	r := Requirements{
		Scheme:  cmp.Or(o.Scheme, t.Scheme, o.Namespace.SchemeCrypto()),
		Network: cmp.Or(o.Network, t.Network),
		PlanID:  string(t.PlanID),
		Extra:   RequirementsExtra{Version: "1", AgentID: string(o.AgentID), HTTPVerb: o.HTTPVerb},
	}
	if r.Network == "" {
		r.Network = o.Environment.Network()
		if r.Scheme == o.Namespace.SchemeCard() {
			r.Network = o.Environment.CardNetwork()
		}
	}
	if o.Minimal {
		return r
	}
	r.Extra.PlanID = string(t.PlanID)
	r.Extra.address(t)
	switch {
	case o.Amount != nil:
		r.Amount = o.Amount.String()
	case t.MaxAmount > 0:
		r.Amount = t.MaxAmount.String()
	}
	r.Asset = o.Namespace.Asset()
	r.PayTo = cmp.Or(t.PayTo, noReceiver)
	r.MaxTimeoutSeconds = toll.Int(o.MaxTimeoutSecs)
	return r
}

// EncodeHeader returns the base64 (standard alphabet, padded) of the compact JSON of v, as in payment-required and payment-response.
func EncodeHeader(v any) (string, error) {
	b, err := Encode(v)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// DecodeHeader decodes a header value into v: base64 of JSON in either alphabet, padded or not, or JSON.
func DecodeHeader(s string, v any) error {
	b, ok := headerText(s)
	if !ok {
		return toll.Errorf(toll.CodeBadRequest, "The header must be JSON or base64 of JSON.")
	}
	return Decode(b, v)
}

// headerText returns the JSON in a header value, see [DecodeHeader].
func headerText(s string) ([]byte, bool) {
	if strings.HasPrefix(s, "{") {
		return []byte(s), true
	}
	b, ok := decodeBase64(s)
	return b, ok && len(b) > 0
}

func (p *PaymentRequired) check() error {
	if p.X402Version != Version {
		return toll.NewError(toll.CodeBadX402Version)
	}
	return nil
}
