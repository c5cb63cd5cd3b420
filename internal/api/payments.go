package api

import (
	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// tokenCodes are the refusals of an access token and of what it pays for.
var tokenCodes = []toll.Code{
	toll.CodeTokenUndecodable, toll.CodeBodyDialect, toll.CodeBadX402Version, toll.CodeBadRequirements, toll.CodeNotPlanOwner,
	toll.CodePaymentPlanNotFound, toll.CodePaymentAgentNotFound, toll.CodeSettleConflict, toll.CodeTooManyHolds, toll.CodeSettlementPending, toll.CodeBadNumber,
}

func paymentRoutes() []route {
	const at = Base + "/x402"
	settleCodes := append([]toll.Code{
		toll.CodeTokenSignature, toll.CodePermissionUnknown, toll.CodePermissionRevoked, toll.CodePermissionExpired, toll.CodePlanMismatch, toll.CodeAgentMismatch,
		toll.CodeEndpointMismatch, toll.CodeUnsupportedScheme, toll.CodeAgentUnlisted, toll.CodeInsufficientCredits, toll.CodePlanPeriodOver, toll.CodeRedemptionLimit,
		toll.CodeOrderLimit, toll.CodeRequestUsed, toll.CodeHoldExpired, toll.CodeAmountOutOfRange,
	}, tokenCodes...)
	return []route{
		{
			op: "verify", method: "POST", path: at + "/verify", auth: owners, tag: "Payments", union: unionVerify,
			summary: "Say whether a request is payable, and optionally set its credits aside. Burns nothing", action: takes((*handler).verify), codes: tokenCodes,
		},
		{
			op: "settle", method: "POST", path: at + "/settle", auth: owners, tag: "Payments", union: unionSettle,
			summary: "Burn the credits of a request, once", action: replyAs[x402.SettleRequest, *x402.SettleResponse]((*handler).settle), codes: settleCodes,
		},
		{
			op: "release", method: "POST", path: at + "/release", auth: owners, tag: "Payments", summary: "Give a hold back without a burn",
			action: takes((*handler).release), codes: []toll.Code{toll.CodeReleaseOfSettled, toll.CodeSettlementNotFound},
		},
		{
			op: "readSettlement", method: "GET", path: at + "/settlements/{agentRequestId}", auth: ends, tag: "Payments", summary: "Outcome of a request",
			action: reads((*handler).readSettlement), codes: []toll.Code{toll.CodeSettlementNotFound},
		},
		{
			op: "findSettlement", method: "GET", path: at + "/settlements", auth: ends, tag: "Payments", summary: "Outcome of a request, by its transaction",
			action: reads((*handler).findSettlement), query: []query{{"transaction", "Transaction of the receipt. Required."}},
			codes: []toll.Code{toll.CodeBadRequest, toll.CodeSettlementNotFound},
		},
	}
}

func (h *handler) verify(c *call, in *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	return h.Facilitator.Verify(c.r.Context(), c.caller.Address, in)
}

// settle answers a receipt in the bytes that are stored for it, and a refusal as an error.
func (h *handler) settle(c *call, in *x402.SettleRequest) (any, error) {
	out, err := h.Facilitator.Settle(c.r.Context(), c.caller.Address, in)
	if err != nil {
		return nil, err
	}
	if !out.Success {
		c.refused = out
		e := &toll.Error{Code: out.Code, Message: out.ErrorMessage, Reason: out.ErrorReason}
		if e.Code == "" {
			e.Code = x402.CodeOf(h.Namespace, out.ErrorReason)
		}
		return nil, e
	}
	if out.Replayed {
		c.w.Header()["Idempotency-Replayed"] = yes
	}
	if len(out.Raw) > 0 {
		return stored(out.Raw), nil
	}
	return out, nil
}

// ReleaseInput names the request whose hold is given back.
type ReleaseInput struct {
	AgentRequestID string `json:"agentRequestId"`
}

func (*ReleaseInput) required() []string { return []string{"agentRequestId"} }

func (h *handler) release(c *call, in *ReleaseInput) (*x402.ReleaseResponse, error) {
	return h.Facilitator.Release(c.r.Context(), c.caller.Address, &x402.ReleaseRequest{AgentRequestID: in.AgentRequestID})
}

func (h *handler) readSettlement(c *call) (*toll.Settlement, error) {
	return h.Facilitator.Settlement(c.r.Context(), c.caller.Address, c.param("agentRequestId"))
}

func (h *handler) findSettlement(c *call) (*toll.Settlement, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	if len(q["transaction"]) != 1 {
		return nil, toll.Faults([]toll.Fault{{Path: "transaction", Message: "is required once in the query"}})
	}
	tx, err := toll.ParseHash(q.Get("transaction"))
	if err != nil {
		return nil, err
	}
	return h.Facilitator.SettlementByTransaction(c.r.Context(), c.caller.Address, tx)
}
