package gateway

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// Limits of the paid endpoint.
const (
	maxPaidRequests = 32       // in progress at once
	maxPaidBody     = 1 << 20  // bytes of a request
	shortPaidBody   = 64 << 10 // bytes; any number of bodies up to this size is read at once
	maxLongBodies   = 64       // longer bodies read at once
	maxPaidAnswer   = 4 << 20  // bytes of an answer
	maxPrompt       = 100_000  // characters
	maxHandlerTime  = 120 * time.Second
	paidHoldSecs    = 180 // maxHandlerTime plus a minute to settle
)

// endpoint is the paid endpoint. It is safe for concurrent use.
type endpoint struct {
	handlerTime time.Duration // limit for an agent handler

	mu      sync.Mutex
	of      *account     // account that handler serves
	handler http.Handler // nil if the account cannot serve
	running int          // requests in progress with a valid body
	long    int          // long bodies being read
}

// paidCall is the state of one paid request.
type paidCall struct {
	offersPayment bool
	counted       bool // included in endpoint.running
	prompt        string
	charge        *toll.Credits // nil means the full price
}

type paidCallKey struct{}

func paidCallOf(r *http.Request) *paidCall {
	c, _ := r.Context().Value(paidCallKey{}).(*paidCall)
	return c
}

// servePaid serves the paid endpoint. It performs the cheapest checks first, verifies the payment only after the body is valid,
// and responds only after the settlement.
func (c *Core) servePaid(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		answer(w, http.StatusMethodNotAllowed, endpointError{"use POST"})
		return
	}
	h := c.endpointHandler()
	if h == nil {
		notConfigured(w)
		return
	}
	pace.Body(w, r, maxPaidBody, pace.Patience, pace.MinRate)
	p := &paidCall{offersPayment: r.Header.Get(x402.HeaderSignature) != ""}
	defer c.endpoint.end(p)
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), paidCallKey{}, p)))
}

type endpointError struct {
	Error string `json:"error"`
}

func notConfigured(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "60")
	answer(w, http.StatusServiceUnavailable, endpointError{"not configured"})
}

// endpointHandler returns the handler for the current account, or nil if the key, plan, or agent handler is missing.
func (c *Core) endpointHandler() http.Handler {
	a, err := c.account()
	if err != nil {
		return nil
	}
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	if c.endpoint.of != a {
		c.endpoint.of, c.endpoint.handler = a, c.newEndpoint(a)
	}
	return c.endpoint.handler
}

// newEndpoint returns a handler that charges for the agent handler of an account, or nil if plan or agent handler is missing.
func (c *Core) newEndpoint(a *account) http.Handler {
	handle := c.agentHandler(a)
	if a.PlanID == "" || handle == nil {
		return nil
	}
	var once sync.Once
	opts := []paid.Option{
		paid.Plan(a.PlanID),
		paid.Agent(a.AgentID),
		paid.Namespace(c.opts.Names),
		paid.MaxCredits(a.CreditsPerRequest),
		paid.CreditsFunc(func(r *http.Request, _ paid.Response) toll.Credits {
			if p := paidCallOf(r); p.charge != nil {
				return *p.charge
			}
			return a.CreditsPerRequest
		}),
		paid.HoldSecs(paidHoldSecs),
		paid.MaxBody(maxPaidBody),
		paid.MaxBuffer(2 * maxPaidAnswer), // answers never stream
		paid.OnDisconnect(paid.Settle),
		paid.BeforeVerify(c.readPaid),
		paid.AfterSettle(func(_ *http.Request, s *x402.SettleResponse) {
			if s.Success {
				c.balanceChanged(a)
			}
		}),
		paid.OnClosed(func(w http.ResponseWriter, _ *http.Request, why *toll.Error) {
			once.Do(func() { c.log.Error("the paid endpoint cannot accept payments", "why", why.Text()) })
			notConfigured(w)
		}),
		paid.Log(c.log),
		paid.Clock(c.now),
	}
	if a.PublicURL != "" {
		opts = append(opts, paid.PublicURL(a.PublicURL))
	}
	return paid.Handler(a.service, c.answering(handle), opts...)
}

// readPaid reads the prompt of a request that offers a payment, before verification, and counts the request as in progress.
func (c *Core) readPaid(r *http.Request) error {
	p := paidCallOf(r)
	if !p.offersPayment {
		return nil // the response states the price
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return toll.NewError(toll.CodeMediaType)
	}
	if r.ContentLength < 0 || r.ContentLength > shortPaidBody {
		if err := c.endpoint.beginLong(); err != nil {
			return err
		}
		defer c.endpoint.endLong()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPaidBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return toll.NewError(toll.CodeRequestTimeout)
	case err != nil:
		return toll.Errorf(toll.CodeBadRequest, "The body could not be read.")
	case len(body) > maxPaidBody:
		return toll.NewError(toll.CodeBodyTooLarge)
	}
	var in struct {
		Prompt string `json:"prompt"`
	}
	if err := x402.DecodeRequired(body, &in, "prompt"); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(in.Prompt); n == 0 || n > maxPrompt {
		return toll.Errorf(toll.CodeBadRequest, "prompt must be a string of 1 to %d characters.", maxPrompt)
	}
	p.prompt = in.Prompt
	return c.endpoint.begin(p)
}

// begin counts a request whose body has arrived, so that slow bodies do not occupy slots. It fails if all slots are in use.
func (e *endpoint) begin(p *paidCall) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running >= maxPaidRequests {
		return busy(maxPaidRequests)
	}
	e.running++
	p.counted = true
	return nil
}

func busy(requests int) error {
	err := toll.Errorf(toll.CodeRateLimited, "Too many requests: %d are in progress.", requests)
	err.RetryAfterSecs = 1
	return err
}

// beginLong counts a long body while it is read. Its payment is not verified yet, so the limit keeps bodies from filling memory.
func (e *endpoint) beginLong() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.long >= maxLongBodies {
		return busy(maxLongBodies)
	}
	e.long++
	return nil
}

func (e *endpoint) endLong() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.long--
}

func (e *endpoint) end(p *paidCall) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.counted {
		e.running--
	}
}

// answering returns a handler that runs an agent handler for a verified request. It writes only complete answers and logs errors.
func (c *Core) answering(handle agentHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payment, _ := paid.FromContext(r.Context())
		ctx, cancel := context.WithTimeout(r.Context(), c.endpoint.handlerTime)
		defer cancel()
		subscriber, err := toll.ParseAddress(payment.Payer)
		var body []byte
		if err == nil {
			p := paidCallOf(r)
			body, p.charge, err = c.ask(ctx, handle, PaidRequest{
				Prompt:         p.prompt,
				AgentRequestID: payment.AgentRequestID,
				PlanID:         payment.PlanID,
				Subscriber:     subscriber,
			})
		}
		if err != nil {
			c.log.Error("the agent handler failed", "agentRequestId", payment.AgentRequestID, "error", err.Error())
			answer(w, http.StatusBadGateway, endpointError{"agent failed"})
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-store") // package paid adds private
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // buffered until settlement
	})
}

// CheckPaidEndpoint returns the reason that the paid endpoint cannot serve, or nil if it is disabled or ready. Every error is an
// [*Error]: [NotAuthenticated] for a missing key or right, [InvalidParams] for a wrong configuration, or an error of the service.
func (c *Core) CheckPaidEndpoint(ctx context.Context) error {
	s := c.set()
	if !s.paidEndpoint {
		return nil
	}
	a, err := c.account()
	switch {
	case err != nil:
		return err
	case a.PlanID == "":
		return invalid("planId", "is required for the paid endpoint")
	case c.agentHandler(a) == nil:
		return invalid("agentHandler", "is required for the paid endpoint in %s, and its kind must be http or host", a.environment)
	}
	if lacks, err := missingRights(ctx, a); err != nil {
		return asError(err)
	} else if lacks.Has(toll.RightSell) {
		return errorf(NotAuthenticated, "The key lacks the right sell, which is required to accept payments.").
			withHint("Log in again while the paid endpoint is enabled, and keep every right selected.")
	}
	t, err := a.service.Terms(ctx, a.PlanID)
	if err != nil {
		return asError(err)
	}
	if t.InBounds(a.CreditsPerRequest) != a.CreditsPerRequest {
		return invalid("creditsPerRequest", "must be %d to %d for plan %s; got %d",
			t.MinAmount, t.MaxAmount, a.PlanID, a.CreditsPerRequest)
	}
	return nil
}
