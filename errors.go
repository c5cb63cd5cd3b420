package toll

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
)

// Code is the stable, machine-readable name of an error, for example "BCK.PROTOCOL.0003". Clients branch only on the code.
type Code string

// Category groups codes by the side that can resolve them.
type Category string

// Categories of errors (wire contract, section 3).
const (
	CategoryValidation  Category = "validation"
	CategoryAuth        Category = "auth"
	CategoryBusiness    Category = "business"
	CategoryIntegration Category = "integration"
	CategoryInternal    Category = "internal"
)

// CodeInfo is one row of the table of error codes.
type CodeInfo struct {
	Code     Code
	Status   int // HTTP status of the answer
	Category Category
	// Retryable reports that the same call may succeed later.
	Retryable bool
	// Message is the default message: one sentence, safe to show.
	Message string
	// Hint is the default hint: the next step for the caller.
	Hint string
}

// Codes returns the table of error codes in its documented order.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codes...) }

// Info returns the row of the code, or the row of [CodeInternal] when the code is unknown.
func (c Code) Info() CodeInfo {
	if i, ok := codeTable[c]; ok {
		return i
	}
	return codeTable[CodeInternal]
}

// Fault names one wrong member of a request.
type Fault struct {
	// Path is the member, dotted from the root of the body, for example "priceConfig.amounts[0]".
	Path string `json:"path"`
	// Message describes the fault.
	Message string `json:"message"`
}

// Error is the error type of the public API, sent by the service and returned by clients. The message and the hint are safe
// to show: they never contain a key, an access token, or internal details.
type Error struct {
	Code    Code
	Message string // one sentence; empty means the default of the code
	Hint    string // the next step; empty means the default of the code
	Details string // the record concerned, for example "planId 11111"; may be empty
	// Params are machine-readable details, sent as JSON in a string.
	Params map[string]any
	// Reason is the x402 reason word of a refused verify or settle, for example "insufficient_funds".
	Reason string
	// Status overrides the HTTP status of the code when it is not 0.
	Status int
	// RetryAfterSecs is the Retry-After to send, 0 when there is none.
	RetryAfterSecs int
	// CorrelationID is set on errors received from a service.
	CorrelationID string
	// Err is the cause. It is logged, never sent.
	Err error
}

// Errorf returns an error with this code and message. An argument that is an error becomes its cause.
func Errorf(code Code, format string, args ...any) *Error {
	e := &Error{Code: code, Message: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.Err = err
		}
	}
	return e
}

// NewError returns an error with this code and its default message.
func NewError(code Code) *Error { return &Error{Code: code} }

// WithHint returns a copy with the hint.
func (e *Error) WithHint(hint string) *Error { c := *e; c.Hint = hint; return &c }

// WithDetails returns a copy with details that identify the record concerned.
func (e *Error) WithDetails(format string, args ...any) *Error {
	c := *e
	c.Details = fmt.Sprintf(format, args...)
	return &c
}

// WithParam returns a copy with one more machine-readable detail.
func (e *Error) WithParam(name string, value any) *Error {
	c := *e
	c.Params = make(map[string]any, len(e.Params)+1)
	maps.Copy(c.Params, e.Params)
	c.Params[name] = value
	return &c
}

// WithReason returns a copy with the x402 reason word.
func (e *Error) WithReason(reason string) *Error { c := *e; c.Reason = reason; return &c }

// WithCause returns a copy with the cause, which is logged but never sent.
func (e *Error) WithCause(err error) *Error { c := *e; c.Err = err; return &c }

// Text returns the message, or the default message of the code.
func (e *Error) Text() string {
	if e.Message != "" {
		return e.Message
	}
	return e.Code.Info().Message
}

// HTTPStatus returns the HTTP status of the answer: 200 for nil.
func (e *Error) HTTPStatus() int {
	if e == nil {
		return 200
	}
	if e.Status != 0 {
		return e.Status
	}
	return e.Code.Info().Status
}

// Error implements error. The text excludes the cause, so that printing it does not leak internal details.
func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.Text()
	if e.Details != "" && e.Details != e.Text() {
		text += " (" + e.Details + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the target is an error with the same code, so that errors.Is works with the sentinels.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// AsError returns the first *Error in the chain of err, or an error with [CodeInternal] that wraps err. It returns nil for nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Err: err}
}

// Sentinels for errors.Is.
var (
	ErrNotAuthenticated    error = NewError(CodeNotAuthenticated)
	ErrInsufficientCredits error = NewError(CodeInsufficientCredits)
	ErrPlanNotFound        error = NewError(CodePlanNotFound)
	ErrAgentNotFound       error = NewError(CodeAgentNotFound)
	ErrNotPlanOwner        error = NewError(CodeNotPlanOwner)
	ErrSettleConflict      error = NewError(CodeSettleConflict)
	ErrSettlementPending   error = NewError(CodeSettlementPending)
	ErrPaymentRequired     error = NewError(CodePaymentRequired)
	ErrRateLimited         error = NewError(CodeRateLimited)
)

// ErrorBody is the wire form of an error (wire contract, section 3).
type ErrorBody struct {
	Code          Code     `json:"code"`
	Message       string   `json:"message"`
	HTTPStatus    int      `json:"httpStatus"`
	Category      Category `json:"category"`
	Hint          string   `json:"hint,omitempty"`
	Details       string   `json:"details,omitempty"`
	Retryable     bool     `json:"retryable"`
	CorrelationID string   `json:"correlationId"`
	DocsURL       string   `json:"docsUrl,omitempty"`
	Params        string   `json:"params,omitempty"`
}

// Body returns the wire form. docsBase is the URL of the page of errors, without the anchor; when it is empty, docsUrl is omitted.
func (e *Error) Body(correlationID, docsBase string) ErrorBody {
	i := e.Code.Info()
	b := ErrorBody{
		Code:          e.Code,
		Message:       e.Text(),
		HTTPStatus:    e.HTTPStatus(),
		Category:      i.Category,
		Hint:          withIDs(cmp.Or(e.Hint, i.Hint), e.Details),
		Details:       e.Details,
		Retryable:     i.Retryable,
		CorrelationID: correlationID,
	}
	if docsBase != "" {
		b.DocsURL = docsBase + "#" + strings.ToLower(strings.ReplaceAll(string(e.Code), ".", "-"))
	}
	if len(e.Params) > 0 {
		if p, err := json.Marshal(e.Params); err == nil {
			b.Params = string(p)
		}
	}
	return b
}

var (
	placeOfID = regexp.MustCompile(`\{(\w+Id)\}`)
	idIn      = regexp.MustCompile(`\b(\w+Id) ([0-9A-Za-z][0-9A-Za-z_-]{0,127})(?:$|, )`)
)

// withIDs replaces placeholders such as {planId} in a hint by the ids in details. A placeholder stays when details has no
// id that is safe in a path.
func withIDs(hint, details string) string {
	if details == "" || !strings.Contains(hint, "{") {
		return hint
	}
	ids := map[string]string{}
	for _, m := range idIn.FindAllStringSubmatch(details, -1) {
		ids[m[1]] = m[2]
	}
	return placeOfID.ReplaceAllStringFunc(
		hint,
		func(place string) string { return cmp.Or(ids[place[1:len(place)-1]], place) },
	)
}

// Err returns the error that the body describes.
func (b ErrorBody) Err() *Error {
	e := &Error{
		Code: b.Code, Message: b.Message, Hint: b.Hint, Details: b.Details, Status: b.HTTPStatus,
		CorrelationID: b.CorrelationID,
	}
	if b.Params != "" {
		_ = json.Unmarshal([]byte(b.Params), &e.Params) // params are optional: unreadable ones are dropped
	}
	return e
}

// Faults returns a 400 that names every wrong member of a body; nil when there is none.
func Faults(faults []Fault) *Error {
	if len(faults) == 0 {
		return nil
	}
	e := NewError(CodeBadRequest).WithParam("errors", faults)
	e.Message = faults[0].Path + ": " + faults[0].Message
	if len(faults) > 1 {
		e.Message = fmt.Sprintf("%s (and %d more)", e.Message, len(faults)-1)
	}
	return e
}
