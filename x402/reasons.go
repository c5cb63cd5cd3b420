package x402

import "github.com/tollhq/toll"

// Act is the call that a fault belongs to.
type Act string

// Acts.
const (
	ActVerify Act = "verify"
	ActSettle Act = "settle"
)

type reasonCode struct {
	reason string
	code   toll.Code
}

// reasons is the table of reason words and codes (wire contract, section 16). Where several words share a code, the
// first is the answer for the code; where several codes share a word, the first is the answer for the word.
func (n Namespace) reasons() []reasonCode {
	return []reasonCode{
		{n.ReasonSignature(), toll.CodeTokenSignature},
		{n.ReasonExpired(), toll.CodePermissionExpired},
		{n.ReasonRevoked(), toll.CodePermissionRevoked},
		{n.ReasonUnknown(), toll.CodePermissionUnknown},
		{n.ReasonPlanMismatch(), toll.CodePlanMismatch},
		{n.ReasonAgentMismatch(), toll.CodeAgentMismatch},
		{n.ReasonResourceMismatch(), toll.CodeEndpointMismatch},
		{ReasonInvalidRequirements, toll.CodeBadRequirements},
		{ReasonUnsupportedScheme, toll.CodeUnsupportedScheme},
		{ReasonInvalidNetwork, toll.CodeUnsupportedScheme},
		{ReasonAgentInactive, toll.CodeAgentUnlisted},
		{ReasonInsufficientFunds, toll.CodeInsufficientCredits},
		{ReasonPlanExpired, toll.CodePlanPeriodOver},
		{ReasonRedemptionLimit, toll.CodeRedemptionLimit},
		{ReasonOrderLimit, toll.CodeOrderLimit},
		{ReasonInvalidPayload, toll.CodeTokenUndecodable},
		{ReasonInvalidVersion, toll.CodeBadX402Version},
		{ReasonRateLimited, toll.CodeRateLimited},
		{ReasonDelegationNotFound, toll.CodeDelegationNotFound},
		{ReasonDelegationRevoked, toll.CodeDelegationRevoked},
		{ReasonDelegationExpired, toll.CodeDelegationExpired},
		{ReasonDelegationExhausted, toll.CodeDelegationExhausted},
		{ReasonDelegationShort, toll.CodeDelegationInsufficient},
		{ReasonPaymentUnavailable, toll.CodePaymentMethodUnusable},
		{ReasonPaymentUnavailable, toll.CodePaymentMethodRevoked},
		{ReasonPaymentDeclined, toll.CodeTopUpRefused},
		{ReasonKeyNotAllowed, toll.CodePaymentMethodNotAllowed},
		{ReasonPlanUnlisted, toll.CodePlanUnlisted},
		{ReasonTrialUsed, toll.CodeTrialUsed},
		{ReasonInFlight, toll.CodeRequestUsed},
		{ReasonDuplicate, toll.CodeRequestUsed},
		{ReasonConflict, toll.CodeSettleConflict},
		{ReasonIdentifierConflict, toll.CodeSettleConflict},
		{ReasonHoldExpired, toll.CodeHoldExpired},
		{ReasonTooManyHolds, toll.CodeTooManyHolds},
		{ReasonExceedsAmount, toll.CodeAmountOutOfRange},
		{ReasonAmountOutOfRange, toll.CodeAmountOutOfRange},
		{ReasonUnauthorizedServer, toll.CodeNotPlanOwner},
		{ReasonUnauthorizedServer, toll.CodeNotAgentOwner},
		{ReasonPending, toll.CodeSettlementPending},
		{ReasonVerifyFault, toll.CodeInternal},
		{ReasonSettleFault, toll.CodeInternal},
	}
}

// ReasonOf returns the reason word of an error in an act: the one it carries, else the one of its code, else the one of
// its status.
func ReasonOf(n Namespace, err *toll.Error, act Act) string { return "" }

// CodeOf returns the code of a reason word; an unknown word has the code of an internal fault.
func CodeOf(n Namespace, reason string) toll.Code { return "" }
