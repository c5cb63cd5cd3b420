package x402

import (
	"cmp"
	"context"
	"maps"
	"strings"

	"github.com/tollhq/toll"
)

// StandardRequirements are an entry of accepts in the standard. The fields have the names, types, and order of the x402 Go
// SDK, so that the types convert.
type StandardRequirements struct {
	Scheme            string         `json:"scheme"`
	Network           string         `json:"network"`
	Asset             string         `json:"asset"`
	Amount            string         `json:"amount"` // base units of the asset, decimal; of ours, credits
	PayTo             string         `json:"payTo"`
	MaxTimeoutSeconds int            `json:"maxTimeoutSeconds"`
	Extra             map[string]any `json:"extra,omitempty"`
}

// text returns a string of extra, else "".
func (r *StandardRequirements) text(name string) string {
	s, _ := r.Extra[name].(string)
	return s
}

// TokenSource returns the access token for a payment. It is called for every payment: cache the token until it expires.
type TokenSource func(ctx context.Context, r StandardRequirements) (string, error)

// StaticToken is a [TokenSource] that always returns the same access token.
func StaticToken(token string) TokenSource {
	return func(context.Context, StandardRequirements) (string, error) { return token, nil }
}

// ClientScheme pays with access tokens of plans, as a plug-in for other x402 clients. In Go without such a client, use client.Transport.
type ClientScheme struct {
	scheme string
	token  TokenSource
}

// NewClientScheme returns the plug-in of a scheme: [Namespace.SchemeCrypto] or [Namespace.SchemeCard].
func NewClientScheme(scheme string, token TokenSource) *ClientScheme {
	return &ClientScheme{scheme, token}
}

// Scheme returns the name of the scheme.
func (s *ClientScheme) Scheme() string { return s.scheme }

// CreatePaymentPayload returns the member payload of a payment, with a new nonce. It rejects an access token for a different plan than the
// server requires. Errors: any error of the token source, [toll.CodeTokenUndecodable], [toll.CodeBadX402Version], [toll.CodePlanMismatch].
func (s *ClientScheme) CreatePaymentPayload(ctx context.Context, r StandardRequirements) (map[string]any, error) {
	token, err := s.token(ctx, r)
	if err != nil {
		return nil, err
	}
	p, err := NewCreditsPayload(token)
	if err != nil {
		return nil, err
	}
	asked, paid := r.text("planId"), p.Authorization.PlanID
	if asked != "" && paid != "" && asked != paid {
		return nil, toll.Errorf(toll.CodePlanMismatch, "The access token is for plan %s, but the server requires plan %s.", paid, asked)
	}
	return map[string]any{"signature": p.Signature, "authorization": *p.Authorization, "nonce": p.Nonce}, nil
}

// ServerScheme is paid with credits of a plan, as a plug-in for other x402 servers. In Go without such a server, use package paid.
type ServerScheme struct {
	// Name is the scheme: [Namespace.SchemeCrypto] or [Namespace.SchemeCard].
	Name string
	// PlanID is the plan whose credits pay; extra.planId of a route overrides it.
	PlanID toll.PlanID
	// AgentID is the agent that serves the request, or ""; extra.agentId of a route overrides it.
	AgentID toll.AgentID
	// Facilitator is needed for [ServerScheme.Release].
	Facilitator Facilitator
}

// Scheme returns the name of the scheme.
func (s *ServerScheme) Scheme() string { return s.Name }

// ParsePrice returns asset and amount of a price: a whole number of credits, at most [toll.MaxCredits], as text or as
// [toll.Credits], not a sum of money. Errors: [toll.CodeBadNumber].
func (s *ServerScheme) ParsePrice(price any) (asset, amount string, err error) {
	switch p := price.(type) {
	case string:
		amount = p
	case toll.Credits:
		amount = p.String()
	}
	if _, err := toll.ParseCredits(amount); err != nil {
		return "", "", toll.Errorf(toll.CodeBadNumber, "A price must be a whole number of credits, not an amount of money.")
	}
	prefix, _, _ := strings.Cut(s.Name, ":")
	return Namespace{Scheme: prefix}.Asset(), amount, nil
}

// EnhanceRequirements completes an entry. Plan and agent are only in extra, because software that drops nonstandard members
// would not find its own entry again. Errors: [toll.CodeBadRequest] without a plan.
func (s *ServerScheme) EnhanceRequirements(r StandardRequirements) (StandardRequirements, error) {
	extra := map[string]any{"version": "1", "planId": string(s.PlanID)}
	if s.AgentID != "" {
		extra["agentId"] = string(s.AgentID)
	}
	maps.Copy(extra, r.Extra)
	r.Extra = extra
	if r.text("planId") == "" {
		return StandardRequirements{}, toll.Errorf(toll.CodeBadRequest,
			"The plan id is missing. Set PlanID of the scheme, or extra.planId of the route.")
	}
	r.PayTo = cmp.Or(r.PayTo, noReceiver)
	return r, nil
}

// Release releases the hold of a payment whose work failed, before it expires. payment is the PaymentPayload, as JSON or as
// a header value. Errors: any error of [Facilitator], and of [Decode] for a malformed entry.
func (s *ServerScheme) Release(ctx context.Context, payment string, r StandardRequirements) error {
	text, err := Encode(r)
	if err != nil {
		return err
	}
	req := &ReleaseRequest{Stock: &StockPayment{Payload: payment}}
	if err := Decode(text, &req.Stock.Requirements); err != nil {
		return err
	}
	_, err = s.Facilitator.Release(ctx, req)
	return err
}
