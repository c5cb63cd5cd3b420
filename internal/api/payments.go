package api

import (
	"encoding/base64"
	"net/http"
	"reflect"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// bodyCodes are the refusals of what a payment says of itself.
var bodyCodes = []toll.Code{
	toll.CodeTokenUndecodable, toll.CodeBodyDialect, toll.CodeBadX402Version, toll.CodeBadRequirements, toll.CodePaymentPlanNotFound,
	toll.CodeSettleConflict, toll.CodeBadNumber, toll.CodeBadID,
}

// tokenCodes are the refusals of an access token and of what it pays for.
var tokenCodes = append([]toll.Code{
	toll.CodeNotPlanOwner, toll.CodePaymentAgentNotFound, toll.CodeTooManyHolds, toll.CodeSettlementPending,
}, bodyCodes...)

// verifyCodes are the errors of a verify; its other refusals are verdicts.
var verifyCodes = append([]toll.Code{toll.CodeSuspended, toll.CodeChainUnreachable, toll.CodeCardUnreachable}, tokenCodes...)

func paymentRoutes() []route {
	const at = Base + "/x402"
	settleCodes := append([]toll.Code{
		toll.CodeTokenSignature, toll.CodePermissionUnknown, toll.CodePermissionRevoked, toll.CodePermissionExpired, toll.CodePlanMismatch, toll.CodeAgentMismatch,
		toll.CodeEndpointMismatch, toll.CodeUnsupportedScheme, toll.CodeAgentUnlisted, toll.CodeInsufficientCredits, toll.CodePlanPeriodOver, toll.CodeRedemptionLimit,
		toll.CodeOrderLimit, toll.CodeRequestUsed, toll.CodeHoldExpired, toll.CodeAmountOutOfRange, toll.CodeAmountAndMargin,
		toll.CodeMarginOnFixedPlan, toll.CodeMarginWithoutSubTasks, toll.CodeDelegationNotFound, toll.CodeDelegationRevoked,
		toll.CodeDelegationExpired, toll.CodeDelegationFrozen, toll.CodeDelegationExhausted, toll.CodeDelegationInsufficient, toll.CodeTopUpRefused,
		toll.CodePaymentMethodUnusable, toll.CodePaymentMethodRevoked, toll.CodePaymentMethodNotAllowed, toll.CodeSuspended, toll.CodePlanUnlisted,
		toll.CodePlanSoldOut, toll.CodeTrialUsed, toll.CodeCardOff, toll.CodeCardUnreachable, toll.CodeChainUnreachable,
	}, tokenCodes...)
	return []route{
		{
			op: "verify", method: "POST", path: at + "/verify", auth: owners, right: toll.RightSell, tag: "Payments", union: unionVerify,
			summary: "Say whether a request is payable, and optionally set its credits aside. Burns nothing", codes: verifyCodes,
			action: pays((*handler).verify, func(in *x402.VerifyRequest) bool { return in.Stock != nil }, (*handler).badVerify),
		},
		{
			op: "settle", method: "POST", path: at + "/settle", auth: owners, right: toll.RightSell, tag: "Payments", union: unionSettle,
			summary: "Burn the credits of a request, once", codes: settleCodes,
			action: pays((*handler).settle, func(in *x402.SettleRequest) bool { return in.Stock != nil }, (*handler).badSettle),
		},
		{
			op: "release", method: "POST", path: at + "/release", auth: owners, right: toll.RightSell, tag: "Payments", summary: "Give a hold back without a burn",
			action: takes((*handler).release), codes: append([]toll.Code{toll.CodeReleaseOfSettled, toll.CodeSettlementNotFound, toll.CodeTokenSignature}, bodyCodes...),
		},
		{
			op: "renew", method: "POST", path: at + "/renew", auth: owners, right: toll.RightSell, tag: "Payments", summary: "Move the end of an open hold",
			action: takes((*handler).renew), codes: []toll.Code{
				toll.CodeHoldOver, toll.CodeSettlementNotFound, toll.CodeSettleConflict, toll.CodeSettlementPending, toll.CodeBadNumber,
			},
		},
		{
			op: "supported", method: "GET", path: at + "/supported", auth: open, right: public, tag: "Payments", summary: "What this facilitator serves, for standard x402 servers",
			action: reads((*handler).supported),
		},
		{
			op: "readSettlement", method: "GET", path: at + "/settlements/{agentRequestId}", auth: ends, right: toll.RightRead, tag: "Payments", summary: "Outcome of a request",
			action: reads((*handler).readSettlement), codes: []toll.Code{toll.CodeSettlementNotFound, toll.CodeSettlementGone},
		},
		{
			op: "findSettlement", method: "GET", path: at + "/settlements", auth: ends, right: toll.RightRead, tag: "Payments", summary: "Outcome of a request, by its transaction",
			action: reads((*handler).findSettlement), query: []query{{"transaction", "Transaction of the receipt. Required."}},
			codes: []toll.Code{toll.CodeBadRequest, toll.CodeSettlementNotFound, toll.CodeSettlementGone},
		},
	}
}

// pays is takes for the two bodies of verify and settle. Standard servers read verdicts only, so what is wrong with a stock
// body is one, too.
func pays[In any](f func(h *handler, c *call, in *In) (any, error), isStock func(in *In) bool, refused func(h *handler, e *toll.Error) any) action {
	a := takes(f)
	a.out = reflect.TypeOf(refused(&handler{}, toll.NewError(toll.CodeInternal)))
	a.run = func(h *handler, c *call) (any, error) {
		in := new(In)
		err := c.decode(in)
		if e := toll.AsError(err); e != nil && isStock(in) && e.HTTPStatus() < http.StatusInternalServerError {
			return refused(h, e), nil
		}
		if err != nil {
			return nil, err
		}
		return f(h, c, in)
	}
	return a
}

func (h *handler) verify(c *call, in *x402.VerifyRequest) (any, error) {
	out, err := h.Facilitator.Verify(c.context, c.caller.Address, in)
	if err != nil {
		return nil, err
	}
	if len(out.ExtensionResponses) > 0 {
		c.w.Header()[extensionsHeader] = []string{base64.StdEncoding.EncodeToString(out.ExtensionResponses)}
	}
	return out, nil
}

// extensionsHeader tells a server what became of extensions of a payment, in the form of http.Header keys.
var extensionsHeader = http.CanonicalHeaderKey(x402.HeaderExtensions)

func (h *handler) badVerify(e *toll.Error) any {
	return &x402.VerifyResponse{InvalidReason: x402.ReasonOf(h.Namespace, e, x402.ActVerify), InvalidMessage: e.Text(), Code: e.Code}
}

func (h *handler) badSettle(e *toll.Error) any {
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonOf(h.Namespace, e, x402.ActSettle), ErrorMessage: e.Text(), Code: e.Code, Network: h.network,
	}
}

// settle answers a receipt in the bytes that are stored for it, and a refusal as an error, unless a standard server asked.
func (h *handler) settle(c *call, in *x402.SettleRequest) (any, error) {
	out, err := h.Facilitator.Settle(c.context, c.caller.Address, in)
	if err != nil {
		return nil, err
	}
	if !out.Success && in.Stock != nil {
		return out, nil
	}
	if !out.Success {
		c.refused = out
		e := &toll.Error{Code: out.Code, Message: out.ErrorMessage, Details: out.Details, Reason: out.ErrorReason}
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

func (h *handler) release(c *call, in *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	return h.Facilitator.Release(c.context, c.caller.Address, in)
}

func (h *handler) renew(c *call, in *x402.RenewRequest) (*x402.RenewResponse, error) {
	return h.Facilitator.Renew(c.context, c.caller.Address, in)
}

func (h *handler) supported(*call) (*x402.Supported, error) { return h.Facilitator.Supported(), nil }

func (h *handler) readSettlement(c *call) (*toll.Settlement, error) {
	return h.Facilitator.Settlement(c.context, c.caller.Address, c.param("agentRequestId"))
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
	return h.Facilitator.SettlementByTransaction(c.context, c.caller.Address, tx)
}
