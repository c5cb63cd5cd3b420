package api

import (
	"context"
	"encoding/base64"
	"net/http"
	"reflect"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/pay"
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

type payments struct {
	facilitator *pay.Facilitator
	namespace   x402.Namespace
	network     string
}

func (s payments) routes() []route {
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
			summary: "Check whether a request can be paid, and optionally hold its credits, without burning credits", codes: verifyCodes,
			action: pays(s.verify, func(in *x402.VerifyRequest) bool { return in.Stock != nil }, s.badVerify),
		},
		{
			op: "settle", method: "POST", path: at + "/settle", auth: owners, right: toll.RightSell, tag: "Payments", union: unionSettle,
			summary: "Burn the credits of a request, exactly once", codes: settleCodes,
			action: pays(s.settle, func(in *x402.SettleRequest) bool { return in.Stock != nil }, s.badSettle),
		},
		{
			op: "release", method: "POST", path: at + "/release", auth: owners, right: toll.RightSell, tag: "Payments", summary: "Release a hold without burning credits",
			action: takes(withBody(s.facilitator.Release)), codes: append([]toll.Code{toll.CodeReleaseOfSettled, toll.CodeSettlementNotFound, toll.CodeTokenSignature}, bodyCodes...),
		},
		{
			op: "renew", method: "POST", path: at + "/renew", auth: owners, right: toll.RightSell, tag: "Payments", summary: "Extend an open hold",
			action: takes(withBody(s.facilitator.Renew)), codes: []toll.Code{
				toll.CodeHoldOver, toll.CodeSettlementNotFound, toll.CodeSettleConflict, toll.CodeSettlementPending, toll.CodeBadNumber,
			},
		},
		{
			op: "supported", method: "GET", path: at + "/supported", auth: open, right: public, tag: "Payments", summary: "List the payment kinds that this facilitator supports, for standard x402 servers",
			action: reads(s.supported),
		},
		{
			op: "readSettlement", method: "GET", path: at + "/settlements/{agentRequestId}", auth: ends, right: toll.RightRead, tag: "Payments", summary: "Read the outcome of a request",
			action: reads(byText("agentRequestId", s.facilitator.Requests.Settlement)), codes: []toll.Code{toll.CodeSettlementNotFound, toll.CodeSettlementGone},
		},
		{
			op: "findSettlement", method: "GET", path: at + "/settlements", auth: ends, right: toll.RightRead, tag: "Payments", summary: "Find the outcome of a request by its transaction",
			action: reads(s.findSettlement), query: []query{{"transaction", "Transaction from the receipt. Required."}},
			codes: []toll.Code{toll.CodeBadRequest, toll.CodeSettlementNotFound, toll.CodeSettlementGone},
		},
	}
}

// pays is takes for the two bodies of verify and settle. Standard servers read verdicts only, so what is wrong with a stock
// body is one, too.
func pays[In any](f func(c *call, in *In) (any, error), isStock func(in *In) bool, refused func(e *toll.Error) any) action {
	a := takes(f)
	a.out = reflect.TypeOf(refused(toll.NewError(toll.CodeInternal)))
	a.run = func(c *call) (any, error) {
		in := new(In)
		err := c.decode(in)
		if e := toll.AsError(err); e != nil && isStock(in) && e.HTTPStatus() < http.StatusInternalServerError {
			return refused(e), nil
		}
		if err != nil {
			return nil, err
		}
		return f(c, in)
	}
	return a
}

func (s payments) verify(c *call, in *x402.VerifyRequest) (any, error) {
	out, err := s.facilitator.Verify(c.context, c.caller.Address, in)
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

func (s payments) badVerify(e *toll.Error) any {
	return &x402.VerifyResponse{InvalidReason: x402.ReasonOf(s.namespace, e, x402.ActVerify), InvalidMessage: e.Text(), Code: e.Code}
}

func (s payments) badSettle(e *toll.Error) any {
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonOf(s.namespace, e, x402.ActSettle), ErrorMessage: e.Text(), Code: e.Code, Network: s.network,
	}
}

// settle answers a receipt in the bytes that are stored for it, and a refusal as an error, unless a standard server asked.
func (s payments) settle(c *call, in *x402.SettleRequest) (any, error) {
	out, err := s.facilitator.Settle(c.context, c.caller.Address, in)
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
			e.Code = x402.CodeOf(s.namespace, out.ErrorReason)
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

func (s payments) supported(*call) (*x402.Supported, error) { return s.facilitator.Supported(), nil }

func (s payments) findSettlement(c *call) (*toll.Settlement, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	if len(q["transaction"]) != 1 {
		return nil, toll.Faults([]toll.Fault{{Path: "transaction", Message: "must be sent exactly once in the query"}})
	}
	tx, err := toll.ParseHash(q.Get("transaction"))
	if err != nil {
		return nil, err
	}
	return s.facilitator.Requests.SettlementByTransaction(c.context, c.caller.Address, tx)
}

// proofs prove burns; prove is that of [Rails].
type proofs struct {
	prove func(context.Context, toll.Hash) (*toll.BurnProof, error)
}

func (s proofs) routes() []route {
	return []route{{
		op: "readProof", method: "GET", path: Base + "/credits/proofs/{transaction}", auth: open, right: public, tag: "Payments", further: http.StatusAccepted,
		summary: "Read the proof that a burn is mirrored on the chain; the status is 202 while the proof is pending", action: readsAs[toll.BurnProof](by("transaction", toll.ParseHash, s.readProof)),
		codes: []toll.Code{toll.CodeBurnNotMirrored},
	}}
}

// openProof is the answer before there is a proof.
type openProof struct {
	Status toll.ProofStatus `json:"status"`
}

func (s proofs) readProof(c *call, transaction toll.Hash) (any, error) {
	if s.prove == nil {
		return nil, toll.NewError(toll.CodeBurnNotMirrored).WithDetails("transaction %s", transaction).
			WithHint("This service does not mirror burns. Ask the operator to enable the mirror.")
	}
	p, err := s.prove(c.context, transaction)
	if err != nil {
		return nil, err
	}
	if p.Status == toll.ProofOpen {
		c.status = http.StatusAccepted
		return openProof{p.Status}, nil
	}
	return p, nil
}
