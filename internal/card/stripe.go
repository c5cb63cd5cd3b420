package card

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/form"

	"github.com/tollhq/toll/internal/store"
)

// api speaks to Stripe. It never retries, logs nothing, and sends stored bytes as they are.
type api struct {
	backend stripe.Backend
	key     string
}

func newAPI(cfg *Config) *api {
	c := &stripe.BackendConfig{
		HTTPClient: cfg.HTTP, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		// Its log lines have errors in full, and so the client secrets in them.
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if cfg.URL != "" {
		c.URL = stripe.String(cfg.URL)
	}
	return &api{stripe.GetBackendWithConfig(stripe.APIBackend, c), cfg.SecretKey}
}

// encode returns the parameters of a call as the bytes that are stored and sent.
func encode(params any) string {
	v := &form.Values{}
	form.AppendTo(v, params)
	return v.Encode()
}

// post sends a stored call, under its key and with its bytes, and reads the object that it made or changed.
func (a *api) post(ctx context.Context, c *store.CardCall, into stripe.LastResponseSetter) error {
	params := &stripe.Params{Context: ctx, IdempotencyKey: &c.Key}
	return answerOf(a.backend.CallRaw(http.MethodPost, "/v1/"+c.Path, a.key, []byte(c.Params), params, into))
}

// get fetches an object or a list.
func (a *api) get(ctx context.Context, path string, params any, into stripe.LastResponseSetter) error {
	query := ""
	if params != nil {
		query = encode(params)
	}
	return answerOf(a.backend.CallRaw(http.MethodGet, "/v1/"+path, a.key, []byte(query), &stripe.Params{Context: ctx}, into))
}

// kind is what an answer without success means for what was asked.
type kind int

const (
	unclear  kind = iota // no answer, or a 5xx: Stripe may have done it
	busy                 // the key is in use, a lock, or too many requests: nothing was done, send the same again
	denied               // the key may not do this: nothing was done, an operator has to act
	missing              // there is no such object in this account
	conflict             // the key was used with other bytes: a fault of ours
	refused              // the parameters or the state of the object do not allow it
	card                 // the bank declined
	owner                // the bank wants the owner of the card to confirm
)

// answer is an answer without success. It has no text of Stripe: the text of a stripe.Error is its whole JSON, and that can hold
// the secret of a payment intent. Code, decline code and id of the request may be logged, and go nowhere else.
type answer struct {
	kind                     kind
	status                   int
	code, declineCode, param string
	request                  string
	intent, charge           string // ids, of a payment that was tried
}

func (e *answer) Error() string {
	return fmt.Sprintf("stripe answered %d %s %s (request %s)", e.status, e.code, e.declineCode, e.request)
}

// answerOf tells what an error of stripe-go means. The error that it returns does not wrap it.
func answerOf(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok {
		return &answer{kind: unclear, code: "no_answer"}
	}
	a := &answer{
		kind: refused, status: e.HTTPStatusCode, code: string(e.Code), declineCode: string(e.DeclineCode), param: e.Param,
		request: e.RequestID, charge: e.ChargeID,
	}
	if e.PaymentIntent != nil {
		a.intent = e.PaymentIntent.ID
	}
	switch {
	case e.HTTPStatusCode >= 500:
		a.kind = unclear
	case e.HTTPStatusCode == http.StatusTooManyRequests, e.HTTPStatusCode == http.StatusConflict:
		a.kind = busy
	case e.HTTPStatusCode == http.StatusUnauthorized, e.HTTPStatusCode == http.StatusForbidden:
		a.kind = denied
	case e.Type == stripe.ErrorTypeIdempotency:
		a.kind = conflict
	case e.Code == stripe.ErrorCodeAuthenticationRequired, e.DeclineCode == "authentication_required":
		a.kind = owner
	case e.Type == stripe.ErrorTypeCard:
		a.kind = card
	case e.HTTPStatusCode == http.StatusNotFound, e.Code == stripe.ErrorCodeResourceMissing:
		a.kind = missing
	}
	return a
}
