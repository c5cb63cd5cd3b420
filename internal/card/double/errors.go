package double

import (
	"fmt"
	"net/http"
	"strings"
)

// failure is an error as Stripe answers it. Some objects keep one, such as last_payment_error.
type failure struct {
	status  int  // of the answer
	invalid bool // refused before execution began: not kept under an idempotency key

	Charge        string         `json:"charge,omitempty"`
	Code          string         `json:"code,omitempty"`
	DeclineCode   string         `json:"decline_code,omitempty"`
	DocURL        string         `json:"doc_url,omitempty"`
	Message       string         `json:"message"`
	Param         string         `json:"param,omitempty"`
	PaymentIntent *intent        `json:"payment_intent,omitempty"`
	PaymentMethod *paymentMethod `json:"payment_method,omitempty"`
	SetupIntent   *setupIntent   `json:"setup_intent,omitempty"`
	Type          string         `json:"type"`
}

func (f *failure) Error() string { return f.Message }

// invalidRequest refuses a request in its present state. The outcome is kept under its key.
func invalidRequest(param, code, format string, args ...any) *failure {
	f := &failure{
		status:  http.StatusBadRequest,
		Type:    "invalid_request_error",
		Code:    code,
		Param:   param,
		Message: fmt.Sprintf(format, args...),
	}
	f.DocURL = docURL(code)
	return f
}

// invalidParam refuses a parameter before execution begins.
func invalidParam(param, code, format string, args ...any) *failure {
	f := invalidRequest(param, code, format, args...)
	f.invalid = true
	return f
}

func missing(what, id, param string) *failure {
	f := invalidRequest(param, "resource_missing", "No such %s: '%s'", what, id)
	f.status = http.StatusNotFound
	if param != "id" {
		f.status = http.StatusBadRequest
	}
	return f
}

func cardError(code, declineCode, message string) *failure {
	return &failure{
		status:      http.StatusPaymentRequired,
		Type:        "card_error",
		Code:        code,
		DeclineCode: declineCode,
		DocURL:      docURL(code),
		Message:     message,
	}
}

func apiError(message string) *failure {
	return &failure{status: http.StatusInternalServerError, Type: "api_error", Message: message}
}

func tooMany(message string) *failure {
	return &failure{
		status: http.StatusTooManyRequests, invalid: true, Type: "invalid_request_error",
		Code: "rate_limit", DocURL: docURL("rate_limit"), Message: message,
	}
}

func unauthorized(format string, args ...any) *failure {
	return &failure{
		status: http.StatusUnauthorized, invalid: true, Type: "invalid_request_error",
		Message: fmt.Sprintf(format, args...),
	}
}

// docURL is Stripe's page about a code; codes are written there with hyphens.
func docURL(code string) string {
	if code == "" {
		return ""
	}
	return "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(code, "_", "-")
}
