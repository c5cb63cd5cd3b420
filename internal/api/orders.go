package api

import (
	"encoding/json"

	"github.com/tollhq/toll"
)

func orderRoutes() []route {
	const at = Base + "/protocol/plans"
	return []route{
		{
			op: "orderPlan", method: "POST", path: at + "/{planId}/order", auth: keyed, tag: "Orders", summary: "Buy a plan for the caller",
			action: takes((*handler).orderPlan), codes: []toll.Code{
				toll.CodeBadID, toll.CodeBadUUID, toll.CodePlanNotFound, toll.CodeFiatPlanOnCryptoRoute, toll.CodePlanUnlisted, toll.CodePlanSoldOut,
				toll.CodeTrialUsed, toll.CodeCreditsOverflow, toll.CodeChainUnreachable,
			},
		},
		{
			op: "readOrder", method: "GET", path: Base + "/protocol/orders/{orderId}", auth: ends, tag: "Orders", summary: "One order",
			action: reads((*handler).readOrder), codes: []toll.Code{toll.CodeBadUUID, toll.CodeOrderNotFound},
		},
		{
			op: "mintCredits", method: "POST", path: at + "/mint", auth: owners, tag: "Orders", summary: "Grant credits of a plan to an address",
			action: takes((*handler).mint), codes: mintCodes,
		},
		{
			op: "mintExpirableCredits", method: "POST", path: at + "/mintExpirable", auth: owners, tag: "Orders", summary: "Grant credits that end",
			action: takes((*handler).mintExpirable), codes: mintCodes,
		},
	}
}

var mintCodes = []toll.Code{
	toll.CodeBadID, toll.CodeBadAddress, toll.CodeBadNumber, toll.CodeMintNotPositive, toll.CodeCreditsOverflow, toll.CodeNotPlanOwner, toll.CodePlanNotFound,
}

// OrderInput is the body of an order, all of it optional.
type OrderInput struct {
	DelegationID *string `json:"delegationId,omitzero" format:"uuid" doc:"Limit on money to pay with. A free plan needs none."`
}

func (h *handler) orderPlan(c *call, in *OrderInput) (*toll.Order, error) {
	if in.DelegationID != nil {
		if _, err := toll.ParseUUID(*in.DelegationID); err != nil {
			return nil, err
		}
	}
	plan, err := h.plan(c, toll.CodePlanNotFound)
	if err != nil {
		return nil, err
	}
	return h.Checkout.Order(c.r.Context(), c.caller.Address, plan)
}

func (h *handler) readOrder(c *call) (*toll.Order, error) {
	return h.Checkout.OrderByID(c.r.Context(), c.caller.Address, c.param("orderId"))
}

// MintInput grants credits.
type MintInput struct {
	PlanID          toll.PlanID   `json:"planId"`
	Amount          toll.Credits  `json:"amount"`
	CreditsReceiver *toll.Address `json:"creditsReceiver,omitzero" doc:"Who gets them. This or holderAddress is required."`
	HolderAddress   *toll.Address `json:"holderAddress,omitzero" doc:"Another name of creditsReceiver."`
}

func (*MintInput) required() []string { return []string{"planId", "amount"} }

// MintExpirableInput grants credits that end.
type MintExpirableInput struct {
	PlanID          toll.PlanID     `json:"planId"`
	CreditsAmount   *toll.Credits   `json:"creditsAmount,omitzero" doc:"This or amount is required."`
	Amount          *toll.Credits   `json:"amount,omitzero" doc:"Another name of creditsAmount."`
	CreditsReceiver *toll.Address   `json:"creditsReceiver,omitzero" doc:"Who gets them. This or holderAddress is required."`
	HolderAddress   *toll.Address   `json:"holderAddress,omitzero" doc:"Another name of creditsReceiver."`
	CreditsDuration toll.Units      `json:"creditsDuration,omitzero" doc:"Seconds until they end. Default 0: never."`
	ExpirationBlock json.RawMessage `json:"expirationBlock,omitzero" doc:"Refused: credits end by time." deprecated:"true"`
}

func (*MintExpirableInput) required() []string { return []string{"planId"} }

func (h *handler) mint(c *call, in *MintInput) (*toll.ActResult, error) {
	holder, err := either("creditsReceiver", in.CreditsReceiver, "holderAddress", in.HolderAddress)
	if err != nil {
		return nil, err
	}
	return h.Checkout.Mint(c.r.Context(), c.caller.Address, in.PlanID, holder, in.Amount, toll.Units{})
}

func (h *handler) mintExpirable(c *call, in *MintExpirableInput) (*toll.ActResult, error) {
	if len(in.ExpirationBlock) > 0 && string(in.ExpirationBlock) != "null" {
		return nil, toll.Faults([]toll.Fault{{Path: "expirationBlock", Message: "is not served: credits end by time, see creditsDuration"}})
	}
	holder, err := either("creditsReceiver", in.CreditsReceiver, "holderAddress", in.HolderAddress)
	if err != nil {
		return nil, err
	}
	amount, err := either("creditsAmount", in.CreditsAmount, "amount", in.Amount)
	if err != nil {
		return nil, err
	}
	return h.Checkout.Mint(c.r.Context(), c.caller.Address, in.PlanID, holder, amount, in.CreditsDuration)
}

// either returns a member that has two names: it must be there, and not with two values.
func either[T comparable](name string, value *T, other string, otherValue *T) (v T, err error) {
	switch {
	case value == nil && otherValue == nil:
		return v, toll.Faults([]toll.Fault{{Path: name, Message: "is required"}})
	case value == nil:
		return *otherValue, nil
	case otherValue != nil && *otherValue != *value:
		return v, toll.Faults([]toll.Fault{{Path: other, Message: "differs from " + name}})
	}
	return *value, nil
}
