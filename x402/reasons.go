package x402

import (
	"strings"

	"github.com/tollhq/toll"
)

// Act is the call that an error belongs to.
type Act string

// Acts.
const (
	ActVerify Act = "verify"
	ActSettle Act = "settle"
)

// reasons is the table of reason words and codes (wire contract, section 16). Where several words share a code, the
// first is the word of the code; where several codes share a word, the first is the code of the word.
var reasons = []struct {
	word    string
	branded bool // the word follows "invalid_<scheme prefix>_"
	code    toll.Code
}{
	{"payload_signature", true, toll.CodeTokenSignature},
	{"payload_expired", true, toll.CodePermissionExpired},
	{"payload_revoked", true, toll.CodePermissionRevoked},
	{"payload_unknown", true, toll.CodePermissionUnknown},
	{"plan_mismatch", true, toll.CodePlanMismatch},
	{"agent_mismatch", true, toll.CodeAgentMismatch},
	{"resource_mismatch", true, toll.CodeEndpointMismatch},
	{ReasonInvalidRequirements, false, toll.CodeBadRequirements},
	{ReasonInvalidRequirements, false, toll.CodePaymentPlanNotFound},
	{ReasonInvalidRequirements, false, toll.CodePaymentAgentNotFound},
	{ReasonEchoMismatch, false, toll.CodeBadRequirements},
	{ReasonUnsupportedScheme, false, toll.CodeUnsupportedScheme},
	{ReasonInvalidNetwork, false, toll.CodeUnsupportedScheme},
	{ReasonAgentInactive, false, toll.CodeAgentUnlisted},
	{ReasonInsufficientFunds, false, toll.CodeInsufficientCredits},
	{ReasonPlanExpired, false, toll.CodePlanPeriodOver},
	{ReasonRedemptionLimit, false, toll.CodeRedemptionLimit},
	{ReasonOrderLimit, false, toll.CodeOrderLimit},
	{ReasonInvalidPayload, false, toll.CodeTokenUndecodable},
	{ReasonInvalidVersion, false, toll.CodeBadX402Version},
	{ReasonRateLimited, false, toll.CodeRateLimited},
	{ReasonDelegationNotFound, false, toll.CodeDelegationNotFound},
	{ReasonDelegationRevoked, false, toll.CodeDelegationRevoked},
	{ReasonDelegationExpired, false, toll.CodeDelegationExpired},
	{ReasonDelegationExhausted, false, toll.CodeDelegationExhausted},
	{ReasonDelegationShort, false, toll.CodeDelegationInsufficient},
	{ReasonPaymentUnavailable, false, toll.CodePaymentMethodUnusable},
	{ReasonPaymentUnavailable, false, toll.CodePaymentMethodRevoked},
	{ReasonPaymentDeclined, false, toll.CodeTopUpRefused},
	{ReasonPaymentDeclined, false, toll.CodeDelegationFrozen},
	{ReasonPaymentDeclined, false, toll.CodeCardDeclined},
	{ReasonPaymentDeclined, false, toll.CodeCardAuthentication},
	{ReasonKeyNotAllowed, false, toll.CodePaymentMethodNotAllowed},
	{ReasonPlanUnlisted, false, toll.CodePlanUnlisted},
	{ReasonTrialUsed, false, toll.CodeTrialUsed},
	{ReasonInFlight, false, toll.CodeRequestUsed},
	{ReasonDuplicate, false, toll.CodeRequestUsed},
	{ReasonConflict, false, toll.CodeSettleConflict},
	{ReasonIdentifierConflict, false, toll.CodeSettleConflict},
	{ReasonHoldExpired, false, toll.CodeHoldExpired},
	{ReasonTooManyHolds, false, toll.CodeTooManyHolds},
	{ReasonExceedsAmount, false, toll.CodeAmountOutOfRange},
	{ReasonAmountOutOfRange, false, toll.CodeAmountOutOfRange},
	{ReasonUnauthorizedServer, false, toll.CodeNotPlanOwner},
	{ReasonUnauthorizedServer, false, toll.CodeNotAgentOwner},
	{ReasonPending, false, toll.CodeSettlementPending},
	{ReasonVerifyFault, false, toll.CodeInternal},
	{ReasonSettleFault, false, toll.CodeInternal},
}

// ReasonOf returns the reason word for an error of verify or settle: its own reason, else the word for its code, else the
// word for its HTTP status.
func ReasonOf(n Namespace, err *toll.Error, act Act) string {
	if err.Reason != "" {
		return err.Reason
	}
	status := err.HTTPStatus()
	switch code := string(err.Code); {
	case err.Code == toll.CodeInternal:
	case strings.HasPrefix(code, "BCK.AUTH."), strings.HasPrefix(code, "BCK.APIKEY."):
		return ReasonUnauthorizedServer
	default:
		for _, r := range reasons {
			if r.code == err.Code {
				if r.branded {
					return "invalid_" + n.Scheme + "_" + r.word
				}
				return r.word
			}
		}
	}
	switch {
	case status == 429:
		return ReasonRateLimited
	case status < 500:
		return ReasonInvalidPayload
	case act == ActSettle:
		return ReasonSettleFault
	}
	return ReasonVerifyFault
}

// CodeOf returns the code of a reason word, or [toll.CodeInternal] for an unknown word.
func CodeOf(n Namespace, reason string) toll.Code {
	word, branded := strings.CutPrefix(reason, "invalid_"+n.Scheme+"_")
	for _, r := range reasons {
		if r.branded == branded && r.word == word {
			return r.code
		}
	}
	return toll.CodeInternal
}
