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

// TokenOption shapes an access token.
type TokenOption func(*tokenBody)

// WithAgent binds the access token to one agent.
func WithAgent(id toll.AgentID) TokenOption { return func(b *tokenBody) { b.AgentID = id } }

// WithAgents lists the agents at which the access token is good.
func WithAgents(ids ...toll.AgentID) TokenOption {
	return func(b *tokenBody) { b.AllowedAgents = ids }
}

// WithRedemptionLimit bounds the credits that the access token may burn in its life.
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

// WithTokenFormat chooses the rendering: "jwt" or "x402".
func WithTokenFormat(f string) TokenOption { return func(b *tokenBody) { b.TokenFormat = f } }

// WithResource adds a resource to the audience.
func WithResource(u string) TokenOption { return func(b *tokenBody) { b.Resource = u } }

// WithMetadata stores a JSON object with the permission.
func WithMetadata(object json.RawMessage) TokenOption {
	return func(b *tokenBody) { b.Metadata = object }
}

// AccessToken creates a permission and its access token for the caller. The token is shown here only. Without a delegation
// it spends existing credits and free plans.
func (c *Client) AccessToken(ctx context.Context, plan toll.PlanID, opts ...TokenOption) (*toll.AccessToken, error) {
	b := tokenBody{PlanID: plan}
	for _, o := range opts {
		o(&b)
	}
	return create[toll.AccessToken](ctx, c, api("/x402/permissions"), b)
}

// Permissions lists what the caller's access tokens may spend.
func (c *Client) Permissions(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Permission, error] {
	return list[toll.Permission](ctx, c, api("/x402/permissions"), "permissions", opts)
}

// Permission returns one permission with its last settlements.
func (c *Client) Permission(ctx context.Context, hash toll.Hash) (*toll.Permission, error) {
	return get[toll.Permission](ctx, c, api("/x402/permissions/%s", hash.String()))
}

// RevokePermission ends a permission at once. Open holds of it still settle, for at most what they
// hold: Closed of its record says when none is left.
func (c *Client) RevokePermission(ctx context.Context, hash toll.Hash) error {
	_, err := remove[json.RawMessage](ctx, c, api("/x402/permissions/%s", hash.String()))
	return err
}

// KeyParams is an API key to create.
type KeyParams struct {
	Name      string        `json:"name,omitempty"`    // at most 100 characters
	ExpiresIn time.Duration `json:"-"`                 // at least 60 s; 0: never
	Version   string        `json:"version,omitempty"` // pinned API version; "": the current one
	Prefix    string        `json:"prefix,omitempty"`  // one of the prefixes of the service; "": the operator's
	Rights    toll.Rights   `json:"rights,omitzero"`   // nil: those of the caller's key but export and members
}

// CreateKey creates an API key for the caller. Key is in this answer only. The new key has at most the rights of the caller's key
// and ends no later; it ends with that key, too.
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

// RecentCalls returns the last 200 calls of a key, the last one first, as far as the process of the service that answers knows them.
func (c *Client) RecentCalls(ctx context.Context, id toll.Hash) ([]toll.RecentCall, error) {
	out, err := get[struct {
		Calls []toll.RecentCall `json:"calls"`
	}](ctx, c, api("/api-keys/%s/calls", id.String()))
	if err != nil {
		return nil, err
	}
	return out.Calls, nil
}

// UpdateKey changes the name or the pinned API version of a key; nil leaves a member as it is.
func (c *Client) UpdateKey(ctx context.Context, id toll.Hash, name, version *string) (*toll.APIKey, error) {
	in := struct {
		Name    *string `json:"name,omitzero"`
		Version *string `json:"version,omitzero"`
	}{name, version}
	return fetch[toll.APIKey](ctx, c, call{method: http.MethodPatch, path: api("/api-keys/%s", id.String()), body: in, idempotent: true})
}

// RevokeKey ends an API key at once, with what it made: keys, access tokens and consents to programs, which the answer counts.
func (c *Client) RevokeKey(ctx context.Context, id toll.Hash) (*toll.KeyRevoked, error) {
	return remove[toll.KeyRevoked](ctx, c, api("/api-keys/%s", id.String()))
}

// RotateKey makes an API key in the place of another one, with the same name, rights and end: the old one works until the overlap is
// over, 0 to 30 days, and what it made moves to the new one. The caller is a person, or a key that is not the old one and did not come
// of it. The answer is the only place where the new key ever is.
//
// Errors: [toll.CodeKeyNotFound], [toll.CodeKeyAlreadyRevoked], [toll.CodeRightMissing], [toll.CodeForbidden].
func (c *Client) RotateKey(ctx context.Context, id toll.Hash, overlap time.Duration) (*toll.KeyRotated, error) {
	in := struct {
		OverlapSecs int64 `json:"overlapSecs"`
	}{int64(overlap / time.Second)}
	return create[toll.KeyRotated](ctx, c, api("/api-keys/%s/rotate", id.String()), in)
}

// RevokeKeyOnly ends an API key at once. The caller's key becomes the parent of what it made; it must have the rights of that.
func (c *Client) RevokeKeyOnly(ctx context.Context, id toll.Hash) (*toll.KeyRevoked, error) {
	return remove[toll.KeyRevoked](ctx, c, api("/api-keys/%s", id.String())+"?keep=true")
}
