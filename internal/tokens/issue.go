package tokens

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// issue signs the access token of a permission and returns the answer with it.
func (t *Tokens) issue(d *draft) (*toll.AccessToken, error) {
	credits := &d.plan.Credits
	claims := auth.Claims{
		Subscriber: d.Subscriber, Hash: d.Hash, IssuedAt: d.CreatedAt.Truncate(time.Second), ExpiresAt: d.ExpiresAt, PlanID: d.plan.ID,
		AgentID: d.Agent, RedemptionLimit: d.RedemptionLimit, OrderLimit: d.OrderLimit, Scheme: d.Scheme, Network: d.Network,
		PlanMin: &credits.MinAmount, PlanMax: &credits.MaxAmount, PerOrder: &credits.Amount,
	}
	if d.req.Resource != "" {
		claims.Audience = []string{d.req.Resource}
	}
	jws, err := t.Auth.SignToken(claims)
	if err != nil {
		return nil, toll.AsError(err)
	}
	out := &toll.AccessToken{
		AccessToken: jws, TokenFormat: d.req.TokenFormat, PermissionHash: d.Hash, PlanID: d.Plan, SubscriberAddress: d.Subscriber,
		Scheme: d.Scheme, Network: d.Network, MaxCredits: d.RedemptionLimit, MaxOrders: d.OrderLimit, Status: toll.StatusActive,
		CreatedAt: toll.At(d.CreatedAt), ExpiresAt: toll.At(d.ExpiresAt), AgentID: store.NonZero(d.Agent), DelegationID: store.NonZero(d.DelegationID),
	}
	if out.TokenFormat == "" {
		out.TokenFormat = t.Format
		// Clients that send the nested form decode base64 JSON.
		if d.req.Nested {
			out.TokenFormat = formatX402
		}
	}
	if out.TokenFormat == formatX402 {
		out.AccessToken = x402.EncodeToken(jws,
			x402.Requirements{
				Scheme: d.Scheme, Network: d.Network, PlanID: string(d.Plan),
				Extra: x402.RequirementsExtra{Version: "1", AgentID: string(d.Agent)},
			},
			x402.Authorization{From: d.Subscriber.String(), PlanID: string(d.Plan), AgentID: string(d.Agent)}, d.Hash.String())
	}
	out.Token = out.AccessToken
	return out, nil
}

// ErrSpent says that a permission has no credits left to renew.
var ErrSpent = checkout.ErrSpent

// Check returns the errors with which [Tokens.Create] would refuse the request now. It does not check a delegation that is created
// in the same call.
func (t *Tokens) Check(ctx context.Context, caller auth.Caller, req *PermissionRequest) error {
	_, err := t.draft(ctx, caller, req)
	return err
}

// Renew is [Tokens.Create] for a permission that replaces an earlier one of the caller, which ends in the same transaction. The new
// limits are what the earlier permission has left, whatever the request says, and its delegation stays, usable or not. More errors:
// [toll.CodePermissionNotFound], [toll.CodePermissionAlreadyRevoked], [ErrSpent].
func (t *Tokens) Renew(ctx context.Context, caller auth.Caller, earlier toll.Hash, req *PermissionRequest) (*toll.AccessToken, error) {
	old, err := t.owned(ctx, caller.Address, earlier)
	if err != nil {
		return nil, err
	}
	d, err := t.draft(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	if d.Account() != old.Account() {
		return nil, toll.Errorf(toll.CodeBadRequest, "A permission can only be renewed for the same plan.")
	}
	if e := t.created.Take(d.Subscriber, d.weight()); e != nil {
		return nil, e
	}
	at := t.Clock().UTC().Truncate(time.Microsecond)
	// The lock comes before the limits are known, so the token is signed after it. This signature only shows that a key exists.
	if _, err := t.issue(d); err != nil {
		return nil, err
	}
	if d.Permission, err = t.Checkout.Permissions.Renew(ctx, old, *d.Permission, at, req.Issue); err != nil {
		return nil, t.notRevoked(err)
	}
	t.Snapshots.Forget(Key{old.Account(), earlier})
	return t.issue(d)
}

// Reissue returns the access token of a stored permission of a subscriber again. Errors: [toll.CodePermissionNotFound],
// [toll.CodePlanNotFound].
func (t *Tokens) Reissue(ctx context.Context, subscriber toll.Address, hash toll.Hash, req *PermissionRequest) (*toll.AccessToken, error) {
	p, err := t.owned(ctx, subscriber, hash)
	if err != nil {
		return nil, err
	}
	plan, e := t.Catalogue.Plan(ctx, p.Plan, toll.CodePlanNotFound)
	if e != nil {
		return nil, e
	}
	return t.issue(&draft{Permission: p, req: req, plan: plan})
}
