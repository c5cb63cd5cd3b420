package api

import (
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
)

type permissions struct {
	tokens *tokens.Tokens
	bounds bounds
}

func (s permissions) routes() []route {
	const at = Base + "/x402/permissions"
	return []route{
		{
			op: "createPermission", method: "POST", path: at, auth: keyed, right: toll.RightSpend, status: 201, tag: "Permissions",
			summary: "Create a permission of the caller and its access token, which is shown once", action: creates(s.createPermission),
			codes: []toll.Code{
				toll.CodeBadID, toll.CodeBadUUID, toll.CodeBadNumber, toll.CodeAgentMismatch, toll.CodeWrongNetwork, toll.CodeUnsupportedScheme,
				toll.CodePaymentAgentNotFound, toll.CodePaymentPlanNotFound, toll.CodePaymentRequired, toll.CodeDelegationPlanMismatch,
				toll.CodeDelegationNotFound, toll.CodeDelegationRevoked, toll.CodeDelegationExpired, toll.CodeDelegationFrozen, toll.CodePaymentMethodUnusable,
				toll.CodePaymentMethodRevoked, toll.CodePaymentMethodNotAllowed,
				toll.CodeBadProvider, toll.CodeDelegationIncomplete, toll.CodeProviderMismatch, toll.CodePaymentMethodNotFound, toll.CodeKeyNotFound,
				toll.CodeRateLimited, toll.CodeSpendLimit, toll.CodeSpendLimitDelegation,
			},
		},
		{
			op: "listPermissions", export: toll.RightRead, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Permissions", summary: "Permissions of the caller",
			action: lists("PermissionList", list.Permissions, s.listPermissions), codes: []toll.Code{toll.CodeBadPage, toll.CodeBadID},
			query: append([]query{{"planId", "Only those of this plan."}, {"status", "Active, Revoked, Expired or Exhausted."}}, sortedBy(store.SortCreated)...),
		},
		{
			op: "readPermission", method: "GET", path: at + "/{hash}", auth: self, right: toll.RightRead, tag: "Permissions", summary: "One permission, with its last 100 settlements",
			action: reads(by("hash", toll.ParseHash, s.readPermission)), codes: []toll.Code{toll.CodePermissionNotFound},
		},
		{
			op: "revokePermission", method: "DELETE", path: at + "/{hash}", auth: self, right: toll.RightSpend, tag: "Permissions", summary: "Revoke an access token; open holds of it still settle",
			action: reads(by("hash", toll.ParseHash, s.revokePermission)), codes: []toll.Code{toll.CodePermissionNotFound, toll.CodePermissionAlreadyRevoked},
		},
	}
}

func (s permissions) createPermission(c *call, in *tokens.PermissionRequest, once *store.Once) (*toll.AccessToken, error) {
	if in.Delegation != nil && in.Delegation.New != nil {
		c.w.Header()["Deprecation"] = yes
		once.Quota = s.bounds.of(store.KindDelegation, c.caller.Address)
	}
	out, err := s.tokens.Create(c.context, c.caller, in, once)
	if err != nil {
		c.w.Header().Del("Deprecation")
	}
	return out, err
}

func (s permissions) listPermissions(c *call, p store.Page, q url.Values) (none store.List[*toll.Permission], err error) {
	asked := tokens.PermissionQuery{Status: q.Get("status"), Page: p}
	if id := q.Get("planId"); id != "" {
		if asked.PlanID, err = toll.ParsePlanID(id); err != nil {
			return none, err
		}
	}
	return s.tokens.List(c.context, c.caller.Address, asked)
}

func (s permissions) readPermission(c *call, hash toll.Hash) (*toll.Permission, error) {
	return s.tokens.Get(c.context, c.caller.Address, hash)
}

type PermissionRevoked struct {
	Success        bool                  `json:"success"`
	PermissionHash toll.Hash             `json:"permissionHash"`
	Status         toll.PermissionStatus `json:"status"`
}

func (s permissions) revokePermission(c *call, hash toll.Hash) (*PermissionRevoked, error) {
	err := s.tokens.Revoke(c.context, c.caller.Address, hash)
	return &PermissionRevoked{Success: true, PermissionHash: hash, Status: toll.StatusRevoked}, err
}

// delegationShape names a delegation. Members of createDelegation in its place make one; that is deprecated.
type delegationShape struct {
	DelegationID    string     `json:"delegationId,omitempty" doc:"A delegation of the caller, by its id or its signed reference."`
	DelegationToken string     `json:"delegationToken,omitempty" doc:"The signed reference of a delegation, instead of its id."`
	APIKeyID        *toll.Hash `json:"apiKeyId,omitempty" doc:"The API key of this call, or the one that a delegation made here is for."`

	SpendingLimitCents      *toll.Cents  `json:"spendingLimitCents,omitempty" deprecated:"true" doc:"Makes a delegation. Default 1000."`
	DurationSecs            *toll.Int    `json:"durationSecs,omitempty" deprecated:"true" doc:"Makes a delegation. Default 3600."`
	Currency                string       `json:"currency,omitempty" deprecated:"true" doc:"Makes a delegation. Default usdc, for cards usd."`
	CardID                  string       `json:"cardId,omitempty" deprecated:"true" doc:"Makes a delegation: another name of providerPaymentMethodId."`
	ProviderPaymentMethodID string       `json:"providerPaymentMethodId,omitempty" deprecated:"true" doc:"Makes a delegation."`
	MaxTransactions         *toll.Int    `json:"maxTransactions,omitempty" deprecated:"true" doc:"Makes a delegation."`
	PlanID                  *toll.PlanID `json:"planId,omitempty" deprecated:"true" doc:"Makes a delegation for this plan alone."`
	MerchantAccountID       string       `json:"merchantAccountId,omitempty" deprecated:"true" doc:"Makes a delegation."`
}

type acceptedShape struct {
	Scheme  string              `json:"scheme,omitempty"`
	Network string              `json:"network,omitempty"`
	PlanID  *toll.PlanID        `json:"planId,omitempty"`
	Extra   *acceptedExtraShape `json:"extra,omitempty"`
}

type acceptedExtraShape struct {
	Version string        `json:"version,omitempty"`
	PlanID  *toll.PlanID  `json:"planId,omitempty"`
	AgentID *toll.AgentID `json:"agentId,omitempty"`
}
