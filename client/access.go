package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/tollhq/toll"
)

type tokenBody struct {
	PlanID           toll.PlanID     `json:"planId"`
	AgentID          toll.AgentID    `json:"agentId,omitempty"`
	AllowedAgents    []toll.AgentID  `json:"allowedAgents,omitempty"`
	RedemptionLimit  *toll.Credits   `json:"redemptionLimit,omitzero"`
	OrderLimit       *int64          `json:"orderLimit,omitzero"`
	ExpiresInSecs    int64           `json:"expiresInSecs,omitzero"`
	Metadata         json.RawMessage `json:"metadata,omitempty"`
	DelegationConfig *delegationBody `json:"delegationConfig,omitzero"`
	TokenFormat      string          `json:"tokenFormat,omitempty"`
	Resource         string          `json:"resource,omitempty"`
}

type delegationBody struct {
	DelegationID string `json:"delegationId"`
}

// TokenOption configures an access token.
type TokenOption func(*tokenBody)

// WithAgent binds the access token to one agent.
func WithAgent(id toll.AgentID) TokenOption { return func(b *tokenBody) { b.AgentID = id } }

// WithAgents restricts the access token to these agents.
func WithAgents(ids ...toll.AgentID) TokenOption {
	return func(b *tokenBody) { b.AllowedAgents = ids }
}

// WithRedemptionLimit bounds the credits that the access token may burn in total.
func WithRedemptionLimit(n toll.Credits) TokenOption {
	return func(b *tokenBody) { b.RedemptionLimit = &n }
}

// WithOrderLimit bounds the orders that the access token may cause; 0 allows none.
func WithOrderLimit(n int64) TokenOption { return func(b *tokenBody) { b.OrderLimit = &n } }

// WithExpiry sets the life of the access token, 60 s to 365 days, default one day.
func WithExpiry(d time.Duration) TokenOption {
	return func(b *tokenBody) { b.ExpiresInSecs = int64(d / time.Second) }
}

// WithDelegation lets the access token buy credits through a delegation.
func WithDelegation(id string) TokenOption {
	return func(b *tokenBody) { b.DelegationConfig = &delegationBody{id} }
}

// WithTokenFormat chooses the form: "jwt" or "x402".
func WithTokenFormat(f string) TokenOption { return func(b *tokenBody) { b.TokenFormat = f } }

// WithResource adds a resource to the audience.
func WithResource(u string) TokenOption { return func(b *tokenBody) { b.Resource = u } }

// WithMetadata stores a JSON object with the permission.
func WithMetadata(object json.RawMessage) TokenOption {
	return func(b *tokenBody) { b.Metadata = object }
}

// AccessToken creates a permission and its access token for the caller. Only this response contains the token. Without a
// delegation, the token spends existing credits and orders free plans.
func (c *Client) AccessToken(ctx context.Context, plan toll.PlanID, opts ...TokenOption) (*toll.AccessToken, error) {
	b := tokenBody{PlanID: plan}
	for _, o := range opts {
		o(&b)
	}
	return create[toll.AccessToken](ctx, c, api("/x402/permissions"), b)
}

// Permissions lists the permissions of the caller's access tokens.
func (c *Client) Permissions(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Permission, error] {
	return list[toll.Permission](ctx, c, api("/x402/permissions"), "permissions", opts)
}

// Permission returns one permission with its last settlements.
func (c *Client) Permission(ctx context.Context, hash toll.Hash) (*toll.Permission, error) {
	return get[toll.Permission](ctx, c, api("/x402/permissions/%s", hash.String()))
}

// RevokePermission revokes a permission. Its open holds can still be settled, up to the held amount. Once no request can burn
// credits under the permission, its record has Closed set.
func (c *Client) RevokePermission(ctx context.Context, hash toll.Hash) error {
	_, err := remove[json.RawMessage](ctx, c, api("/x402/permissions/%s", hash.String()))
	return err
}

// KeyParams is an API key to create.
type KeyParams struct {
	Name      string        `json:"name,omitempty"`    // at most 100 characters
	ExpiresIn time.Duration `json:"-"`                 // at least 60 s; 0: never
	Version   string        `json:"version,omitempty"` // pinned API version; "": the current one
	Form      toll.KeyForm  `json:"form,omitempty"`    // "": the long form with a Prefix, else the default of the service
	Prefix    string        `json:"prefix,omitempty"`  // of a long key, one of the prefixes of the service; "": the operator's
	Rights    toll.Rights   `json:"rights,omitzero"`   // nil: the rights of the caller's key, without export and members
}

// CreateKey creates an API key for the caller. Only this response contains Key. The new key has at most the rights of the
// caller's key, expires no later, and is revoked with it.
func (c *Client) CreateKey(ctx context.Context, p KeyParams) (*toll.APIKey, error) {
	return create[toll.APIKey](ctx, c, api("/api-keys"), struct {
		KeyParams
		Secs int64 `json:"expiresInSecs,omitzero"`
	}{p, int64(p.ExpiresIn / time.Second)})
}

// Keys lists the API keys of the caller.
func (c *Client) Keys(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.APIKey, error] {
	return list[toll.APIKey](ctx, c, api("/api-keys"), "apiKeys", opts)
}

// Key returns the record of an API key.
func (c *Client) Key(ctx context.Context, id toll.Hash) (*toll.APIKey, error) {
	return get[toll.APIKey](ctx, c, api("/api-keys/%s", id.String()))
}

// RecentCalls returns the last 200 calls of a key, except verify and settle, newest first. It only covers the responding process.
func (c *Client) RecentCalls(ctx context.Context, id toll.Hash) ([]toll.RecentCall, error) {
	out, err := get[struct {
		Calls []toll.RecentCall `json:"calls"`
	}](ctx, c, api("/api-keys/%s/calls", id.String()))
	if err != nil {
		return nil, err
	}
	return out.Calls, nil
}

// UpdateKey changes the name or the pinned API version of a key. A nil argument leaves the value unchanged.
func (c *Client) UpdateKey(ctx context.Context, id toll.Hash, name, version *string) (*toll.APIKey, error) {
	in := struct {
		Name    *string `json:"name,omitzero"`
		Version *string `json:"version,omitzero"`
	}{name, version}
	return fetch[toll.APIKey](ctx, c, call{method: http.MethodPatch, path: api("/api-keys/%s", id.String()), body: in, idempotent: true})
}

// RevokeKey revokes an API key and the keys, access tokens, and consents that it created. The response contains their numbers.
func (c *Client) RevokeKey(ctx context.Context, id toll.Hash) (*toll.KeyRevoked, error) {
	return remove[toll.KeyRevoked](ctx, c, api("/api-keys/%s", id.String()))
}

// RotateKey replaces an API key with a new key that has the same name, rights, and expiry. The old key works until the overlap
// ends, 0 to 30 days, and its keys, access tokens, and consents move to the new key. The caller must be a person, or a key other
// than the old key and its descendants. Only this response contains the new key.
//
// Errors: [toll.CodeKeyNotFound], [toll.CodeKeyAlreadyRevoked], [toll.CodeRightMissing], [toll.CodeForbidden].
func (c *Client) RotateKey(ctx context.Context, id toll.Hash, overlap time.Duration) (*toll.KeyRotated, error) {
	in := struct {
		OverlapSecs int64 `json:"overlapSecs"`
	}{int64(overlap / time.Second)}
	return create[toll.KeyRotated](ctx, c, api("/api-keys/%s/rotate", id.String()), in)
}

// RevokeKeyOnly revokes an API key and moves the records that it created to the caller's key, which must have its rights.
func (c *Client) RevokeKeyOnly(ctx context.Context, id toll.Hash) (*toll.KeyRevoked, error) {
	return remove[toll.KeyRevoked](ctx, c, api("/api-keys/%s", id.String())+"?keep=true")
}
