package api

import (
	"encoding/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/facilitator"
)

func permissionRoutes() []route {
	const at = Base + "/x402/permissions"
	return []route{
		{
			op: "createPermission", method: "POST", path: at, auth: keyed, status: 201, tag: "Permissions",
			summary: "Create a permission of the caller and its access token, which is shown once", action: takes((*handler).createPermission),
			codes: []toll.Code{
				toll.CodeBadID, toll.CodeBadNumber, toll.CodeAgentMismatch, toll.CodeWrongNetwork, toll.CodeUnsupportedScheme, toll.CodeDelegationNotFound,
				toll.CodePaymentAgentNotFound, toll.CodePaymentPlanNotFound,
			},
		},
		{
			op: "listPermissions", method: "GET", path: at, auth: keyed, tag: "Permissions", summary: "Permissions of the caller",
			action: reads((*handler).listPermissions), codes: []toll.Code{toll.CodeBadPage, toll.CodeBadID},
			query: append([]query{{"planId", "Only those of this plan."}, {"status", "Active, Revoked, Expired or Exhausted."}}, paging...),
		},
		{
			op: "readPermission", method: "GET", path: at + "/{hash}", auth: self, tag: "Permissions", summary: "One permission, with its last 100 settlements",
			action: reads((*handler).readPermission), codes: []toll.Code{toll.CodePermissionNotFound},
		},
		{
			op: "revokePermission", method: "DELETE", path: at + "/{hash}", auth: self, tag: "Permissions", summary: "Revoke an access token; open holds of it still settle",
			action: reads((*handler).revokePermission), codes: []toll.Code{toll.CodePermissionNotFound, toll.CodePermissionAlreadyRevoked},
		},
	}
}

func (h *handler) createPermission(c *call, in *facilitator.PermissionRequest) (*toll.AccessToken, error) {
	return h.Facilitator.CreatePermission(c.r.Context(), c.caller, in)
}

// PermissionList is a list of permissions.
type PermissionList struct {
	Permissions []*toll.Permission `json:"permissions"`
	Paging
}

func (h *handler) listPermissions(c *call) (*PermissionList, error) {
	p, q, err := c.page()
	if err != nil {
		return nil, err
	}
	asked := facilitator.PermissionQuery{Status: q.Get("status"), Page: p}
	if id := q.Get("planId"); id != "" {
		if asked.PlanID, err = toll.ParsePlanID(id); err != nil {
			return nil, err
		}
	}
	list, err := h.Facilitator.Permissions(c.r.Context(), c.caller.Address, asked)
	if err != nil {
		return nil, err
	}
	return &PermissionList{Permissions: list.Items, Paging: pagingOf(p, list)}, nil
}

func (h *handler) readPermission(c *call) (*toll.Permission, error) {
	hash, err := toll.ParseHash(c.param("hash"))
	if err != nil {
		return nil, err
	}
	return h.Facilitator.Permission(c.r.Context(), c.caller.Address, hash)
}

// PermissionRevoked is the answer to the revocation of a permission.
type PermissionRevoked struct {
	Success        bool                  `json:"success"`
	PermissionHash toll.Hash             `json:"permissionHash"`
	Status         toll.PermissionStatus `json:"status"`
}

func (h *handler) revokePermission(c *call) (*PermissionRevoked, error) {
	hash, err := toll.ParseHash(c.param("hash"))
	if err != nil {
		return nil, err
	}
	if err := h.Facilitator.RevokePermission(c.r.Context(), c.caller.Address, hash); err != nil {
		return nil, err
	}
	return &PermissionRevoked{Success: true, PermissionHash: hash, Status: toll.StatusRevoked}, nil
}

// permissionShape is the body that creates a permission.
type permissionShape struct {
	PlanID          *toll.PlanID     `json:"planId,omitempty" doc:"Required, here or in accepted."`
	AgentID         *toll.AgentID    `json:"agentId,omitempty" doc:"Bind the access token to this agent."`
	AllowedAgents   []toll.AgentID   `json:"allowedAgents,omitempty" maxItems:"64" doc:"Bind the access token to these agents."`
	RedemptionLimit *toll.Credits    `json:"redemptionLimit,omitempty" doc:"Credits that the access token may burn in its life, holds counted."`
	MaxCredits      *toll.Credits    `json:"maxCredits,omitempty" doc:"Another name of redemptionLimit."`
	OrderLimit      *toll.Int        `json:"orderLimit,omitempty" doc:"Top-up orders that the access token may cause."`
	Expiration      *toll.Int        `json:"expiration,omitempty" doc:"Life in seconds, 60 to 365 days. Default a day."`
	ExpiresInSecs   *toll.Int        `json:"expiresInSecs,omitempty" doc:"Another name of expiration."`
	ExpiresAt       *toll.Time       `json:"expiresAt,omitempty" doc:"Instead of expiration."`
	Metadata        *json.RawMessage `json:"metadata,omitempty" doc:"An object of at most 16 KiB, returned and never interpreted."`
	Scheme          string           `json:"scheme,omitempty" doc:"Default that of the plan."`
	Network         string           `json:"network,omitempty" doc:"Default that of the plan."`
	TokenFormat     string           `json:"tokenFormat,omitempty" enum:"jwt,x402" doc:"Rendering of the access token. Default x402 with accepted, else jwt."`
	Resource        string           `json:"resource,omitempty" format:"uri" doc:"Added to the audience."`
	Accepted        *acceptedShape   `json:"accepted,omitempty" doc:"The same members as clients of the nested dialect send them."`
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
