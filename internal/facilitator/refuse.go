package facilitator

import (
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// refuse returns a refusal: its code, the x402 reason word, and one sentence.
func refuse(code toll.Code, reason, message string) *toll.Error {
	return &toll.Error{Code: code, Reason: reason, Message: message}
}

// refusedBy says what a refusal of the ledger means on the wire. Faults pass through as errors with a code.
func (f *Facilitator) refusedBy(err error) *toll.Error {
	var r *ledger.Refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, ledger.ErrUnknownOutcome):
		e := refuse(toll.CodeSettlementPending, x402.ReasonPending, "").WithCause(err)
		e.RetryAfterSecs = 1
		return e
	case errors.Is(err, ledger.ErrBusy), errors.Is(err, ledger.ErrClosed):
		e := toll.NewError(toll.CodeUnavailable).WithCause(err)
		e.RetryAfterSecs = 1
		return e
	default:
		return toll.AsError(err)
	}
	switch r.Kind {
	case ledger.Insufficient:
		e := refuse(toll.CodeInsufficientCredits, x402.ReasonInsufficientFunds,
			fmt.Sprintf("%s needed, %d available.", r.Needed.Text(), r.Available))
		if r.NeverOrdered {
			// It has nothing to draw on even for a request of 0 credits.
			e.Message += " The subscriber has never ordered this plan."
		}
		return e
	case ledger.PeriodOver:
		e := refuse(toll.CodePlanPeriodOver, x402.ReasonPlanExpired, "")
		if r.NeverOrdered {
			e.Message = "The subscriber has never ordered this time plan."
		}
		return e
	case ledger.ExceedsHold:
		return refuse(toll.CodeAmountOutOfRange, x402.ReasonExceedsAmount, fmt.Sprintf("%d asked, %d held.", r.Needed, r.Available))
	case ledger.TooManyHolds:
		e := refuse(toll.CodeTooManyHolds, x402.ReasonTooManyHolds, "")
		e.RetryAfterSecs = 1
		return e
	case ledger.PermissionUnknown:
		return refuse(toll.CodePermissionUnknown, f.ns.ReasonUnknown(), "")
	case ledger.PermissionRevoked:
		return refuse(toll.CodePermissionRevoked, f.ns.ReasonRevoked(), "")
	case ledger.PermissionExpired:
		return refuse(toll.CodePermissionExpired, f.ns.ReasonExpired(), "")
	}
	if e, ok := refusals[r.Kind]; ok {
		return refuse(e.Code, e.Reason, e.Message)
	}
	return toll.NewError(toll.CodeInternal).WithCause(err)
}

// refusals are those of the ledger that always have the same words.
var refusals = map[ledger.Refused]*toll.Error{
	ledger.RedemptionLimit: refuse(toll.CodeRedemptionLimit, x402.ReasonRedemptionLimit, ""),
	ledger.InFlight:        refuse(toll.CodeRequestUsed, x402.ReasonInFlight, ""),
	ledger.Duplicate:       refuse(toll.CodeRequestUsed, x402.ReasonDuplicate, ""),
	ledger.Replay:          refuse(toll.CodeRequestUsed, x402.ReasonDuplicate, "This request is settled, and was not verified before."),
	ledger.Conflict:        refuse(toll.CodeSettleConflict, x402.ReasonConflict, ""),
	ledger.HoldExpired:     refuse(toll.CodeHoldExpired, x402.ReasonHoldExpired, ""),
	ledger.HoldOver:        refuse(toll.CodeHoldOver, "", ""),
	ledger.IdentifierConflict: refuse(toll.CodeSettleConflict, x402.ReasonIdentifierConflict,
		"This payment identifier was used before with other content."),
}

// isVerdict reports whether a failed verify is answered 200 with isValid false. The others leave 200: the caller is wrong
// about the call itself, or the service is (wire contract, section 16).
func isVerdict(e *toll.Error) bool {
	if e.Reason == "" || e.Reason == x402.ReasonInvalidPayload {
		return false
	}
	switch e.Code {
	case toll.CodeNotPlanOwner, toll.CodePaymentPlanNotFound, toll.CodePaymentAgentNotFound,
		toll.CodeTooManyHolds, toll.CodeSettlementPending:
		return false
	case toll.CodeSettleConflict:
		return e.Reason == x402.ReasonIdentifierConflict
	}
	return e.HTTPStatus() < 500
}
