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
			summary: "Create a permission and its access token, which is returned only once", action: creates(s.createPermission),
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
			op: "listPermissions", export: toll.RightRead, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Permissions", summary: "List your permissions",
			action: lists("PermissionList", list.Permissions, s.listPermissions), codes: []toll.Code{toll.CodeBadPage, toll.CodeBadID},
			query: append([]query{{"planId", "Only permissions of this plan."}, {"status", "Active, Revoked, Expired, or Exhausted."}}, sortedBy(store.SortCreated)...),
		},
		{
			op: "readPermission", method: "GET", path: at + "/{hash}", auth: self, right: toll.RightRead, tag: "Permissions", summary: "Read a permission with its last 100 settlements",
			action: reads(by("hash", toll.ParseHash, s.readPermission)), codes: []toll.Code{toll.CodePermissionNotFound},
		},
		{
			op: "revokePermission", method: "DELETE", path: at + "/{hash}", auth: self, right: toll.RightSpend, tag: "Permissions", summary: "Revoke an access token; its open holds can still be settled",
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
	DelegationID    string     `json:"delegationId,omitempty" doc:"One of your delegations: its id or its signed reference."`
	DelegationToken string     `json:"delegationToken,omitempty" doc:"The signed reference of a delegation, instead of its id."`
	APIKeyID        *toll.Hash `json:"apiKeyId,omitempty" doc:"The API key of this call, or the API key to which a delegation created here is restricted."`

	SpendingLimitCents      *toll.Cents  `json:"spendingLimitCents,omitempty" deprecated:"true" doc:"Spending limit of a new delegation, in cents. Defaults to 1000."`
	DurationSecs            *toll.Int    `json:"durationSecs,omitempty" deprecated:"true" doc:"Lifetime of a new delegation, in seconds. Defaults to 3600."`
	Currency                string       `json:"currency,omitempty" deprecated:"true" doc:"Currency of a new delegation. Defaults to usdc, or to usd for cards."`
	CardID                  string       `json:"cardId,omitempty" deprecated:"true" doc:"Alias of providerPaymentMethodId."`
	ProviderPaymentMethodID string       `json:"providerPaymentMethodId,omitempty" deprecated:"true" doc:"Payment method of a new delegation."`
	MaxTransactions         *toll.Int    `json:"maxTransactions,omitempty" deprecated:"true" doc:"Maximum number of orders that a new delegation pays for."`
	PlanID                  *toll.PlanID `json:"planId,omitempty" deprecated:"true" doc:"Restricts a new delegation to this plan."`
	MerchantAccountID       string       `json:"merchantAccountId,omitempty" deprecated:"true" doc:"Restricts a new delegation to this Stripe account."`
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
