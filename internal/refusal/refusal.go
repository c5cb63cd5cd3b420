// Package refusal says why a payment was refused: the code, and the reason word and sentence of x402.
package refusal

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/x402"
)

// New returns a refusal: its code, the x402 reason word, and one sentence.
func New(code toll.Code, reason, message string) *toll.Error {
	return &toll.Error{Code: code, Reason: reason, Message: message}
}

// Malformed refuses a body: a 400, whatever the act.
func Malformed(path, message string) *toll.Error {
	return toll.Faults([]toll.Fault{{Path: path, Message: message}}).WithReason(x402.ReasonInvalidPayload)
}

// Undecodable adds the reason word to the error of a payment that cannot be decoded.
func Undecodable(err error) *toll.Error {
	e := toll.AsError(err)
	if e.Code == toll.CodeBadX402Version {
		return e.WithReason(x402.ReasonInvalidVersion)
	}
	return e.WithReason(x402.ReasonInvalidPayload)
}

// maxURL bounds what is stored with every request: the longest URL that the service itself takes.
const maxURL = 8 << 10 // bytes

// BadURL refuses a resource that cannot be stored. It returns nil for others.
func BadURL(url string) *toll.Error {
	if len(url) > maxURL {
		return Malformed("resource.url", "must be at most 8,192 bytes")
	}
	// PostgreSQL cannot store other text, and would fail together with the whole batch.
	if strings.IndexByte(url, 0) >= 0 || !utf8.ValidString(url) {
		return Malformed("resource.url", "must be UTF-8 without NUL characters")
	}
	return nil
}

// Suspended refuses a plan that the operator suspended, by itself or with its owner.
func Suspended(plan *toll.Plan) *toll.Error {
	return toll.NewError(toll.CodeSuspended).WithDetails("planId %s", plan.ID)
}

// By turns a refusal of the ledger into words of a brand. Other errors get a code.
func By(names x402.Namespace, err error) *toll.Error {
	var r *ledger.Refusal
	switch {
	case errors.As(err, &r):
	case errors.Is(err, ledger.ErrUnknownOutcome):
		return soon(New(toll.CodeSettlementPending, x402.ReasonPending, "").WithCause(err))
	case errors.Is(err, ledger.ErrBusy), errors.Is(err, ledger.ErrClosed):
		return soon(toll.NewError(toll.CodeUnavailable).WithCause(err))
	default:
		return toll.AsError(err)
	}
	switch r.Kind {
	case ledger.Insufficient:
		e := New(toll.CodeInsufficientCredits, x402.ReasonInsufficientFunds, fmt.Sprintf("%s needed, %d available.", r.Needed.Text(), r.Available))
		if r.NeverOrdered {
			e.Message += " The subscriber has never ordered this plan."
		}
		return e
	case ledger.PeriodOver:
		e := New(toll.CodePlanPeriodOver, x402.ReasonPlanExpired, "")
		if r.NeverOrdered {
			e.Message = "The subscriber has never ordered this time plan."
		}
		return e
	case ledger.ExceedsHold:
		return New(toll.CodeAmountOutOfRange, x402.ReasonExceedsAmount, fmt.Sprintf("%d credits requested, %d on hold.", r.Needed, r.Available))
	case ledger.TooManyHolds:
		return soon(New(toll.CodeTooManyHolds, x402.ReasonTooManyHolds, ""))
	case ledger.PermissionUnknown:
		return New(toll.CodePermissionUnknown, names.ReasonUnknown(), "")
	case ledger.PermissionRevoked:
		return New(toll.CodePermissionRevoked, names.ReasonRevoked(), "")
	case ledger.PermissionExpired:
		return New(toll.CodePermissionExpired, names.ReasonExpired(), "")
	}
	if e, ok := refusals[r.Kind]; ok {
		return New(e.Code, e.Reason, e.Message)
	}
	return toll.NewError(toll.CodeInternal).WithCause(err)
}

// soon asks the caller to repeat the call after a second.
func soon(e *toll.Error) *toll.Error {
	e.RetryAfterSecs = 1
	return e
}

var refusals = map[ledger.Refused]*toll.Error{
	ledger.RedemptionLimit: New(toll.CodeRedemptionLimit, x402.ReasonRedemptionLimit, ""),
	ledger.InFlight:        New(toll.CodeRequestUsed, x402.ReasonInFlight, ""),
	ledger.Duplicate:       New(toll.CodeRequestUsed, x402.ReasonDuplicate, ""),
	ledger.Replay:          New(toll.CodeRequestUsed, x402.ReasonDuplicate, "This request is already settled and was not verified before."),
	ledger.Conflict:        New(toll.CodeSettleConflict, x402.ReasonConflict, ""),
	ledger.HoldExpired:     New(toll.CodeHoldExpired, x402.ReasonHoldExpired, ""),
	ledger.HoldOver:        New(toll.CodeHoldOver, "", ""),
	ledger.IdentifierConflict: New(toll.CodeSettleConflict, x402.ReasonIdentifierConflict,
		"This payment identifier was already used with different content."),
}
