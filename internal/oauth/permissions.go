package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
)

// errEnded is a permission that was revoked, or whose limits are used up: there is nothing to renew.
var errEnded = errors.New("oauth: the permission is revoked or used up")

// permission returns what a grant lets one access token do.
func permission(g *store.OAuthGrant, left time.Duration) *tokens.PermissionRequest {
	longest := loneAccessLife
	if g.Refreshes {
		longest = accessLife
	}
	secs := int64(min(left, longest) / time.Second)
	metadata, err := json.Marshal(map[string]string{"clientId": g.ClientID, "clientName": g.ClientName})
	if err != nil {
		metadata = nil // a map of texts is always JSON
	}
	p := &tokens.PermissionRequest{
		PlanID: g.PlanID, AgentID: g.AgentID, RedemptionLimit: g.RedemptionLimit, OrderLimit: g.OrderLimit,
		ExpiresInSecs: &secs, Metadata: metadata, TokenFormat: "jwt", Resource: g.Resource,
	}
	if g.DelegationID != "" {
		p.Delegation = &tokens.DelegationConfig{ID: g.DelegationID}
	}
	return p
}

// renew makes a permission that takes the place of an earlier one of the grant, which ends in the same transaction, with what
// its limits have left. Errors: [errEnded] also.
func (o *OAuth) renew(
	ctx context.Context, g *store.OAuthGrant, old toll.Hash, left time.Duration, issue *store.OAuthIssue,
) (*toll.AccessToken, error) {
	if o.BeforeRenewal != nil {
		o.BeforeRenewal()
	}
	p := permission(g, left)
	p.Issue = issue
	p.Delegation = nil // it stays the one of the earlier permission
	t, err := o.Tokens.Renew(ctx, auth.Caller{Address: g.Owner}, old, p)
	if errors.Is(err, tokens.ErrSpent) || isEnded(err) {
		return nil, errEnded
	}
	return t, err
}

// isEnded reports whether an error says that a permission is revoked or unknown.
func isEnded(err error) bool {
	e, ok := errors.AsType[*toll.Error](err)
	return ok && (e.Code == toll.CodePermissionAlreadyRevoked || e.Code == toll.CodePermissionNotFound)
}

// active reports whether a permission has neither ended nor been revoked.
func (o *OAuth) active(ctx context.Context, owner toll.Address, id toll.Hash) (bool, error) {
	p, err := o.Tokens.Get(ctx, owner, id)
	if err != nil {
		return false, err
	}
	return p.Status == toll.StatusActive || p.Status == toll.StatusExhausted, nil
}
