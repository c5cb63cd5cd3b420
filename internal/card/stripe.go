package card

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/form"

	"github.com/tollhq/toll/internal/store"
)

// api speaks to Stripe. It never retries, logs nothing, and sends stored bytes as they are.
type api struct {
	backend stripe.Backend
	secrets atomic.Pointer[Secrets]
	slots   chan struct{} // requests at a time
}

// Secrets are the secret key of the account at Stripe, and the secrets of its webhooks: none, one, or two while they are rotated.
type Secrets struct {
	Key      string
	Webhooks []string
}

// SetSecrets replaces the secrets for all calls and webhooks that begin from now on. The caller has checked that they belong to the
// same account and mode.
func (r *Rail) SetSecrets(s Secrets) { r.stripe.api.secrets.Store(&s) }

const (
	apiTimeout = 20 * time.Second // of one request
	apiSlots   = 8                // requests at a time, of one process
	apiAnswer  = 1 << 20          // bytes of an answer
)

func newAPI(cfg *Config) *api {
	client := http.Client{}
	if cfg.HTTP != nil {
		client = *cfg.HTTP
	}
	client.Transport = bounded{client.Transport}
	client.Timeout = apiTimeout
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return errRedirect }
	c := &stripe.BackendConfig{
		HTTPClient: &client, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		// Its log lines have errors in full, and so the client secrets in them.
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if cfg.URL != "" {
		c.URL = stripe.String(cfg.URL)
	}
	a := &api{backend: stripe.GetBackendWithConfig(stripe.APIBackend, c), slots: make(chan struct{}, apiSlots)}
	a.secrets.Store(&Secrets{cfg.SecretKey, cfg.WebhookSecrets})
	return a
}

var errRedirect = errors.New("card: the processor redirected the request, which is not allowed")

// bounded reads at most [apiAnswer] bytes of an answer.
type bounded struct{ by http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	by := b.by
	if by == nil {
		by = http.DefaultTransport
	}
	a, err := by.RoundTrip(r)
	if err == nil {
		a.Body = http.MaxBytesReader(nil, a.Body, apiAnswer)
	}
	return a, err
}

// do sends one request when there is a slot for it.
func (a *api) do(ctx context.Context, method, path string, body []byte, params *stripe.Params, into stripe.LastResponseSetter) error {
	select {
	case a.slots <- struct{}{}:
	case <-ctx.Done():
		return &answer{kind: unclear, code: notSent}
	}
	defer func() { <-a.slots }()
	params.Context = ctx
	return answerOf(a.backend.CallRaw(method, "/v1/"+path, a.secrets.Load().Key, body, params, into))
}

// encode returns the parameters of a call as the bytes that are stored and sent.
func encode(params any) string {
	v := &form.Values{}
	form.AppendTo(v, params)
	return v.Encode()
}

// post sends a stored call, under its key and with its bytes, and reads the object that it made or changed.
func (a *api) post(ctx context.Context, c *store.CardCall, into stripe.LastResponseSetter) error {
	return a.do(ctx, http.MethodPost, c.Path, []byte(c.Params), &stripe.Params{IdempotencyKey: &c.Key}, into)
}

// get fetches an object or a list.
func (a *api) get(ctx context.Context, path string, params any, into stripe.LastResponseSetter) error {
	query := ""
	if params != nil {
		query = encode(params)
	}
	return a.do(ctx, http.MethodGet, path, []byte(query), &stripe.Params{}, into)
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
	wait                     time.Duration
	cause                    string // of the network, when there was no answer
	replayed                 bool   // it is what the key was answered with before
	unsent                   bool   // no request of this run was executed: each was refused before that
}

// pause is how long to wait before the same request is sent again.
func (e *answer) pause() time.Duration {
	pause := busyPause
	if e.kind == denied {
		pause = deniedPause
	}
	return min(max(e.wait, pause), maxPause)
}

// temporary reports whether Stripe cannot be used now.
func (e *answer) temporary() bool { return e.kind == busy || e.kind == denied || e.kind == unclear }

// final reports whether the same request would never be granted.
func (e *answer) final() bool {
	return e.kind == missing || e.kind == refused || e.kind == card || e.kind == owner
}

// failed reports whether Stripe answered that it failed, which it may do for a day to every repeat
// of the request, and may have done what was asked.
func (e *answer) failed() bool { return e.status >= http.StatusInternalServerError }

// maxPause bounds the pause that an answer may ask for.
const maxPause = 5 * time.Minute

func (e *answer) Error() string {
	if e.status == 0 {
		if e.code == notSent {
			return "the request to Stripe was not sent"
		}
		if e.cause != "" {
			return "Stripe did not respond: " + e.cause
		}
		return "Stripe did not respond"
	}
	said := fmt.Sprintf("Stripe responded with %d", e.status)
	if e.code != "" {
		said += " " + e.code
	}
	if e.declineCode != "" && e.declineCode != e.code {
		said += " " + e.declineCode
	}
	if e.request != "" {
		said += " (request " + e.request + ")"
	}
	return said
}

// notSent is the code of an answer to a request that was not sent.
const notSent = "not_sent"

// IsSilence reports whether an error of [Rail.Check] says that nothing answered.
func IsSilence(err error) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && a.status == 0
}

// IsDenied reports whether an error of [Rail.Check] says that Stripe does not accept the key.
func IsDenied(err error) bool { return hasKind(err, denied) }

// hasKind reports whether an error is an answer of a kind.
func hasKind(err error, k kind) bool {
	a, ok := errors.AsType[*answer](err)
	return ok && a.kind == k
}

// answerOf returns what an error of stripe-go means. The error that it returns does not wrap it.
func answerOf(err error) error {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok {
		a := &answer{kind: unclear, code: "no_answer"}
		if u, ok := errors.AsType[*url.Error](err); ok {
			a.cause = u.Err.Error() // without the address
		}
		return a
	}
	return answerTo(e)
}

// answerTo returns what an error of Stripe means.
func answerTo(e *stripe.Error) *answer {
	a := &answer{
		kind: refused, status: e.HTTPStatusCode, code: string(e.Code), declineCode: string(e.DeclineCode), param: e.Param,
		request: e.RequestID, charge: e.ChargeID,
	}
	if e.PaymentIntent != nil {
		a.intent = e.PaymentIntent.ID
	}
	if e.LastResponse != nil {
		a.replayed = e.LastResponse.Header.Get("Idempotent-Replayed") == "true"
		seconds, _ := strconv.Atoi(e.LastResponse.Header.Get("Retry-After"))
		a.wait = time.Duration(min(max(seconds, 0), int(maxPause/time.Second))) * time.Second
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
