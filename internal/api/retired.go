package api

import "github.com/tollhq/toll"

// retiredRoutes are paths that clients of earlier services still call. They say where to go.
func retiredRoutes() []route {
	gone := func(op, method, path, hint string) route {
		return route{
			op: op, method: method, path: Base + path, auth: open, tag: "Retired", summary: hint, retired: true, codes: []toll.Code{toll.CodeGone},
			action: reads(func(*handler, *call) (*struct{}, error) { return nil, toll.NewError(toll.CodeGone).WithHint(hint) }),
		}
	}
	const settle = "Only settle burns credits: POST /api/v1/x402/settle."
	const verify = "Use POST /api/v1/x402/verify."
	const permissions = "Use POST /api/v1/x402/permissions to get an access token."
	return []route{
		gone("retiredRedeem", "POST", "/protocol/plans/redeem", settle),
		gone("retiredBurn", "POST", "/protocol/plans/burn", settle),
		gone("retiredInitialize", "POST", "/protocol/agents/initialize/{agentId}", verify),
		gone("retiredToken", "GET", "/protocol/token/{planId}/{agentId}", permissions),
		gone("retiredValidate", "GET", "/protocol/token/validate/{agentId}", verify),
	}
}
