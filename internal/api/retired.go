package api

import "github.com/tollhq/toll"

// retiredRoutes are paths that clients of other services call. They say where to go.
func retiredRoutes() []route {
	refuses := func(code toll.Code, op, method, path, hint string) route {
		return route{
			op: op, method: method, path: Base + path, auth: open, right: public, tag: "Retired", summary: hint, retired: true, codes: []toll.Code{code},
			action: reads(func(*call) (*struct{}, error) { return nil, toll.NewError(code).WithHint(hint) }),
		}
	}
	gone := func(op, method, path, hint string) route { return refuses(toll.CodeGone, op, method, path, hint) }
	const mpp = "This service takes x402 payments: POST /api/v1/x402/verify and /settle."
	const settle = "Only settle burns credits: POST /api/v1/x402/settle."
	const verify = "Use POST /api/v1/x402/verify."
	const permissions = "Use POST /api/v1/x402/permissions to get an access token."
	return []route{
		gone("retiredRedeem", "POST", "/protocol/plans/redeem", settle),
		gone("retiredBurn", "POST", "/protocol/plans/burn", settle),
		gone("retiredInitialize", "POST", "/protocol/agents/initialize/{agentId}", verify),
		gone("retiredToken", "GET", "/protocol/token/{planId}/{agentId}", permissions),
		refuses(toll.CodeMPPOff, "retiredMPP", "POST", "/mpp/{action}", mpp),
		refuses(toll.CodeMPPOff, "retiredMPPOf", "POST", "/mpp/{action}/{id}", mpp),
		gone("retiredValidate", "GET", "/protocol/token/validate/{agentId}", verify),
	}
}
