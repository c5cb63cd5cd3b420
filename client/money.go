package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/tollhq/toll"
)

// DelegationParams is a new delegation: a limit on the money that access tokens may spend.
type DelegationParams struct {
	Provider      toll.Provider `json:"provider"`
	SpendingLimit toll.Cents    `json:"spendingLimitCents"`
	Lifetime      time.Duration `json:"-"`        // 60 s to 365 days
	Currency      string        `json:"currency"` // usdc (default) or eurc (erc4337), usd (default) or eur (stripe)
	// PaymentMethodID is from [Client.PaymentMethods], required for cards.
	PaymentMethodID string      `json:"providerPaymentMethodId,omitempty"`
	PlanID          toll.PlanID `json:"planId,omitempty"`         // the only plan that it pays for; "" for any
	MaxTransactions int64       `json:"maxTransactions,omitzero"` // 0 = no limit
	APIKeyID        *toll.Hash  `json:"apiKeyId,omitzero"`        // only this key may use it
	// AllowedRecipients are the only payable addresses; nil for any. erc4337 only.
	AllowedRecipients []toll.Address `json:"allowedRecipients,omitempty"`
	MerchantAccountID string         `json:"merchantAccountId,omitempty"` // only this account; stripe only
	// OwnerAccount is an account that the caller controls and whose money is spent; zero for the wallet that the service controls.
	// With an account, the delegation waits for its signature: see [Client.SignDelegation]. erc4337 only.
	OwnerAccount toll.Address `json:"ownerAccount,omitzero"`
}

// CreateDelegation creates a delegation of the caller. [WithDelegation] and [PaidBy] use it.
func (c *Client) CreateDelegation(ctx context.Context, p DelegationParams) (*toll.DelegationCreated, error) {
	return create[toll.DelegationCreated](ctx, c, api("/delegation/create"), struct {
		DelegationParams
		DurationSecs int64 `json:"durationSecs"`
	}{p, int64(p.Lifetime / time.Second)})
}

// SignDelegation submits the signature of OwnerAccount for a new delegation: over the TypedData of its creation, in hex with 0x. An account
// without code also needs a signed EIP-7702 authorization, a JSON object; otherwise it is nil. A repeat gets the same response.
func (c *Client) SignDelegation(ctx context.Context, id, signature string, authorization json.RawMessage) (*toll.Delegation, error) {
	return fetch[toll.Delegation](ctx, c, call{method: http.MethodPost, path: api("/delegation/%s/signature", id), idempotent: true, body: struct {
		Signature     string          `json:"signature"`
		Authorization json.RawMessage `json:"authorization,omitzero"`
	}{signature, authorization}})
}

// Delegations returns the delegations of the caller. [Accessible] selects the delegations that this key can spend now.
func (c *Client) Delegations(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Delegation, error] {
	return list[toll.Delegation](ctx, c, api("/delegation"), "delegations", opts)
}

// Delegation returns one delegation of the caller.
func (c *Client) Delegation(ctx context.Context, id string) (*toll.Delegation, error) {
	return get[toll.Delegation](ctx, c, api("/delegation/%s", id))
}

// RevokeDelegation revokes a delegation and its permissions. Repeating it returns the same response. An account that the caller
// controls can send the transaction in Data to disable the delegation on the chain too.
func (c *Client) RevokeDelegation(ctx context.Context, id string) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodDelete, api("/delegation/%s", id), nil)
}

// UnfreezeDelegation unfreezes a delegation after three declined charges or a dispute. A repeat gets the same response. During
// a dispute the error is [toll.CodeDelegationFrozen].
func (c *Client) UnfreezeDelegation(ctx context.Context, id string) (*toll.Delegation, error) {
	return fetch[toll.Delegation](ctx, c, call{method: http.MethodPost, path: api("/delegation/%s/unfreeze", id), idempotent: true})
}

// DelegationTransactions returns the payments of a delegation, also pending and failed ones.
func (c *Client) DelegationTransactions(ctx context.Context, id string, opts ...ListOption) iter.Seq2[*toll.DelegationTransaction, error] {
	return list[toll.DelegationTransaction](ctx, c, api("/delegation/%s/transactions", id), "transactions", opts)
}

// PaymentMethods returns the cards of the caller, then the wallet. It supports [Accessible] and [OfProvider].
func (c *Client) PaymentMethods(ctx context.Context, opts ...ListOption) ([]toll.PaymentMethod, error) {
	q := url.Values{}
	for _, o := range opts {
		o(q)
	}
	var out []toll.PaymentMethod
	if _, err := c.do(ctx, call{method: http.MethodGet, path: api("/payment-methods"), query: q, idempotent: true}, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// PaymentMethodUpdate changes a payment method. Unset fields stay unchanged.
type PaymentMethodUpdate struct {
	Alias            toll.Change[string]      `json:"alias,omitzero"`
	AllowedAPIKeyIDs toll.Change[[]toll.Hash] `json:"allowedApiKeyIds,omitzero"` // cleared or empty: every key
}

// UpdatePaymentMethod changes the alias and the allowed API keys of a card or the wallet.
func (c *Client) UpdatePaymentMethod(ctx context.Context, id string, u PaymentMethodUpdate) (*toll.PaymentMethod, error) {
	return fetch[toll.PaymentMethod](ctx, c, call{method: http.MethodPatch, path: api("/payment-methods/%s", id), body: u, idempotent: true})
}

// RemovePaymentMethod revokes a card and its delegations. The wallet cannot be removed.
func (c *Client) RemovePaymentMethod(ctx context.Context, id string) error {
	_, err := remove[json.RawMessage](ctx, c, api("/payment-methods/%s", id))
	return err
}

// SubTaskParams is a part of the work for a request. Recording it does not burn credits; settling with a margin adds them up.
type SubTaskParams struct {
	AgentRequestID string             `json:"agentRequestId"`
	Credits        toll.Credits       `json:"creditsToRedeem"`
	Tag            string             `json:"tag,omitempty"`         // at most 256 characters
	Description    string             `json:"description,omitempty"` // at most 16 KiB
	Status         toll.SubTaskStatus `json:"status,omitempty"`      // "": PENDING
	Metadata       json.RawMessage    `json:"metadata,omitempty"`    // an object of at most 16 KiB
}

// RecordSubTask records a part of a request to an agent of the caller.
func (c *Client) RecordSubTask(ctx context.Context, p SubTaskParams) (*toll.ActResult, error) {
	return create[toll.ActResult](ctx, c, api("/protocol/agent-sub-tasks"), p)
}

// SubTasks returns the recorded parts of a request.
func (c *Client) SubTasks(ctx context.Context, agentRequestID string, opts ...ListOption) iter.Seq2[*toll.SubTask, error] {
	return list[toll.SubTask](ctx, c, api("/protocol/agent-sub-tasks"), "subTasks", append(opts, Filter("agentRequestId", agentRequestID)))
}
