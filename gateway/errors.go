package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Word is the code of an error of the core. Errors of the service keep their own codes (BCK.…).
type Word string

// Codes of the errors of tools.
const (
	NotAuthenticated   Word = "not_authenticated"
	PlanRequired       Word = "plan_required"
	NotOwner           Word = "not_owner"
	InvalidParams      Word = "invalid_params" // the message names the argument and its accepted form
	UnknownTool        Word = "unknown_tool"
	NoPaymentMethod    Word = "no_payment_method"
	PaymentRequired    Word = "payment_required"
	AgentError         Word = "agent_error"
	AgentUnreachable   Word = "agent_unreachable"
	AgentBlocked       Word = "agent_blocked"
	AgentTooLarge      Word = "agent_too_large"
	OrderFailed        Word = "order_failed"
	OrderPending       Word = "order_pending"
	OverCap            Word = "over_cap"
	ServiceUnavailable Word = "service" + "_unavailable" // the English word, not the brand
)

// Error is an error of a tool. Message and Hint are safe to display: they never contain keys or access tokens.
type Error struct {
	Code          Word            `json:"code"`
	Message       string          `json:"message"`
	Hint          string          `json:"hint,omitempty"`
	Retryable     bool            `json:"retryable"`
	Status        int             `json:"status,omitzero"`   // HTTP status of the agent's answer
	Details       json.RawMessage `json:"details,omitempty"` // one JSON value
	CorrelationID string          `json:"correlationId,omitempty"`
}

// Error returns the message, code, and hint on one line.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s (%s).", strings.TrimSuffix(e.Message, "."), e.Code)
	if e.Hint != "" {
		text += " " + e.Hint
	}
	return text
}

func errorf(code Word, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) withHint(hint string) *Error {
	e.Hint = hint
	return e
}

// invalid returns an [InvalidParams] error that names an argument and its accepted form.
func invalid(name, form string, args ...any) *Error {
	return errorf(InvalidParams, "%s %s", name, fmt.Sprintf(form, args...))
}

// asError converts any error to an [Error]. Errors of the service keep their code, message, hint, and params. An unreachable or
// failing service is [ServiceUnavailable].
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := toll.AsError(err)
	if e.HTTPStatus() >= 500 {
		return &Error{
			Code:          ServiceUnavailable,
			Message:       "The service failed or could not be reached.",
			Hint:          "Retry later.",
			Retryable:     true,
			CorrelationID: e.CorrelationID,
		}
	}
	out := &Error{
		Code:          Word(e.Code),
		Message:       e.Text(),
		Hint:          cmp.Or(e.Hint, e.Code.Info().Hint),
		Retryable:     e.Code.Info().Retryable,
		CorrelationID: e.CorrelationID,
	}
	if e.Code == toll.CodeNotAuthenticated { // its own hint requests a key, which must not appear in a chat
		out.Message = "The service rejected the API key: it is unknown, expired, or revoked."
		out.Hint = "The user must log in again. Only the operator can replace a key in the configuration."
	}
	if len(e.Params) > 0 { // hints can refer to them
		out.Details, _ = x402.Encode(map[string]any{"params": e.Params})
	}
	return out
}
