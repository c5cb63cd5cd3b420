package paid

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/hold"
	"github.com/tollhq/toll/x402"
)

// Handler puts a price on h: every request that reaches it is paid. See the package documentation for the order of steps.
// It panics without [Plan], and with [Transport], which is for proxies.
func Handler(f x402.Facilitator, h http.Handler, opts ...Option) http.Handler {
	c := newConfig(opts)
	if c.transport != nil {
		panic(misplacedTransport)
	}
	return newGate(f, h, c, c.termsCache(f))
}

type gate struct {
	f     x402.Facilitator
	next  http.Handler
	c     *config
	terms *hold.TermsCache
	// offers are those of the resources that were asked for last.
	offers offerCache
	// outside is done when the builder was told of a price that the plan does not allow.
	outside sync.Once
	// unlisted is done when the builder was told that the entries of wallets cannot be made.
	unlisted sync.Once
	// unnamed is done when the builder was told that the public address is missing.
	unnamed    sync.Once
	exactCheck exactCheck
}

func newGate(f x402.Facilitator, next http.Handler, c *config, terms *hold.TermsCache) *gate {
	if _, err := toll.ParsePlanID(string(c.plan)); err != nil {
		panic("paid: a paid route needs paid.Plan with a plan id")
	}
	if _, ok := f.(x402.Offerer); !ok && len(c.perCall) > 0 {
		panic("paid: PerCall needs a facilitator that signs offers, as client.Client does")
	}
	return &gate{f: f, next: next, c: c, terms: terms}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := cleanPath(r.URL); err != nil {
		writeError(w, err, correlationID(r.Header))
		return
	}
	g.serve(w, r)
}

// serve handles a request whose path was read already.
func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{gate: g, w: w, correlation: correlationID(r.Header)}
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// The server has silently dropped a Content-Length that stood beside it. Nothing that follows on this connection
		// can be trusted to be a request of its own.
		w.Header().Set("Connection", "close")
	}
	if err := checkRequest(r, g.c.maxBody); err != nil {
		x.fail(err)
		return
	}
	own := func(text string) bool { return owns(r.Context(), text, g) }
	cred, err := takeCredential(r.Header, g.c.tokenHeaders, own)
	if err != nil {
		x.fail(err)
		return
	}
	if cred.token != "" && urlCarries(r.URL, own) {
		x.fail(errTokenInURL)
		return
	}
	clean := r.WithContext(r.Context())
	clean.Header = r.Header.Clone()
	stripRequest(clean.Header, g.c.tokenHeaders, own)
	x.r = clean

	if g.c.beforeVerify != nil {
		if err := g.c.beforeVerify(clean); err != nil {
			x.fail(toll.AsError(err))
			return
		}
	}
	if !x.price() || !x.pay(cred) {
		return
	}
	x.run()
}

// exchange is one request on its way through the gate.
type exchange struct {
	*gate
	w           http.ResponseWriter
	r           *http.Request // without the credential
	correlation string

	terms    *x402.Terms
	required *x402.PaymentRequired
	payment  Payment
	hold     hold.Payment
	holdEnd  time.Time // when the hold ends at the latest that we may rely on; zero without a hold

	exact  []x402.ExactRequirements // what the route asks of wallets
	wallet *walletPayment           // nil when credits pay
}

func (x *exchange) fail(e *toll.Error) { writeError(x.w, e, x.correlation) }

// price reads the terms of the plan and says what the request costs.
func (x *exchange) price() bool {
	t, err := x.gate.terms.Of(x.r.Context(), x.c.plan)
	if err != nil {
		x.faulty("reading the terms of the plan", err)
		return false
	}
	x.terms = t
	verb := x.r.Method
	if verb == http.MethodHead {
		verb = http.MethodGet
	}
	amount := x.offered()
	x.required = x402.NewPaymentRequired([]*x402.Terms{t}, x402.Options{
		Namespace: x.c.namespace, Endpoint: x.resource(), AgentID: x.c.agent, HTTPVerb: verb, Scheme: x.c.scheme,
		Network: x.c.network, Description: x.c.description, MimeType: x.c.mimeType, Amount: amount,
		MaxTimeoutSecs: x.c.holdSecs,
	})
	if x.exact, err = x.c.exactEntries(t); err != nil {
		x.gate.unlisted.Do(func() {
			x.c.log.Error("paid: PerCall cannot be listed, and the 402 goes without its entries", "plan", string(x.c.plan), "error", err)
		})
	}
	return true
}

// offered is what the 402 asks for: the price as the service is going to take it, within the bounds of the plan.
func (x *exchange) offered() *toll.Credits {
	t, asked := x.terms, x.asked()
	if asked == nil {
		return t.MaxAmount.Ptr()
	}
	if t.IsTime && t.MaxAmount > 0 {
		return new(toll.Credits)
	}
	return asked
}

// asked returns the credits to verify, within the bounds of the plan: the fixed price, or the bound of a function; nil is the
// maximum of the plan.
func (x *exchange) asked() *toll.Credits {
	n := x.c.credits
	if x.c.creditsFunc != nil {
		if x.c.maxCredits == nil {
			return nil
		}
		n = *x.c.maxCredits
	}
	in := x.terms.InBounds(n)
	if in != n {
		x.gate.outside.Do(func() {
			x.c.log.Warn("the price of a route lies outside of its plan, whose bounds count", "credits", int64(n),
				"min", int64(x.terms.MinAmount), "max", int64(x.terms.MaxAmount), "planId", string(x.terms.PlanID))
		})
	}
	return &in
}

func (x *exchange) resource() string {
	path := x.r.URL.EscapedPath()
	if x.c.publicURL == "" {
		return path
	}
	if x.r.URL.RawQuery != "" {
		path += "?" + x.r.URL.RawQuery
	}
	return x.c.publicURL + path
}

// pay verifies the credential with a hold. It answers when the request is not paid.
func (x *exchange) pay(cred credential) bool {
	switch {
	case cred.v1:
		x.refuse(x402.ReasonInvalidVersion, toll.NewError(toll.CodeBadX402Version), nil)
		return false
	case cred.token == "":
		x.refuse("", toll.NewError(toll.CodePaymentRequired).WithHint(x.terms.TokenHint(x.c.tokenHeaders...)), nil)
		return false
	}
	if len(x.exact) > 0 && schemeOf(cred.token) == x402.SchemeExact {
		return x.payExact(cred.token)
	}
	sent, err := x402.DecodeToken(cred.token)
	if err != nil {
		x.undecodable(err)
		return false
	}
	if !x.extensionsFit(sent.PaymentIdentifier, sent.Extensions) || !x.forResource(sent) {
		return false
	}

	// The hold's own end is on the clock of the service. Counted from before the call, ours is never later.
	holdEnd := x.c.clock().Add(time.Duration(x.c.holdSecs) * time.Second)
	req := &x402.VerifyRequest{PaymentRequired: *x.required, AccessToken: cred.token, MaxAmount: x.asked(), Hold: x.c.hold}
	if x.c.hold {
		req.HoldSecs = x.c.holdSecs
	}
	// A client that leaves must not leave a hold behind that nobody knows of.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), x.c.timeout)
	v, err := x.f.Verify(ctx, req)
	cancel()
	if err != nil {
		x.faulty("verify", err)
		return false
	}
	if x.c.afterVerify != nil {
		x.c.afterVerify(x.r, v)
	}
	if !v.IsValid {
		x.unpaid(v)
		return false
	}
	x.hold = hold.Payment{
		Facilitator: x.f, Timeout: x.c.timeout, Required: x.required, Token: cred.token, PlanID: x.c.plan, AgentID: x.c.agent,
		Log: x.c.log, Room: "paid", About: []any{"correlationId", x.correlation},
	}
	if err := x.hold.Accept(v, x.c.hold); err != nil {
		x.faulty("verify", err)
		x.release()
		return false
	}
	x.payment = Payment{
		Payer: x.hold.Payer, PlanID: x.hold.PlanID, AgentID: x.hold.AgentID, AgentRequestID: x.hold.AgentRequestID, Held: x.hold.Amount,
		Verdict: v,
	}
	if x.c.hold {
		x.holdEnd = holdEnd
	}
	if x.r.Context().Err() != nil {
		x.release()
		return false
	}
	return true
}

// run lets the handler work and then decides what becomes of its answer.
func (x *exchange) run() {
	a := newWriter(x.w)
	a.max, a.stream, a.only, a.head = x.c.maxBuffer, x.c.hold, x.c.flushEventsOnly, x.r.Method == http.MethodHead
	var begun atomic.Bool
	ctx, cancel := x.workContext(&begun)
	defer cancel(nil)

	var guard holdGuard
	a.begin = func() error {
		begun.Store(true) // before the look at the request: a caller who leaves after it ends the work
		if err := x.r.Context().Err(); err != nil {
			a.left = true
			cancel(context.Cause(x.r.Context()))
			return err
		}
		if x.wallet != nil {
			return x.settleFirst(a.status)
		}
		left := x.holdEnd.Sub(x.c.clock())
		if left <= 0 {
			return ErrHoldEnded
		}
		guard.start(left, func() {
			a.cut.Store(true)
			cancel(ErrHoldEnded)
			_ = a.rc.SetWriteDeadline(time.Unix(1, 0)) // wakes a write that a slow reader blocks
		})
		return nil
	}
	a.mark = func(h http.Header) {
		switch {
		case !success(a.status):
		case x.wallet != nil:
			setReceipt(h, x.wallet.first)
		default:
			h.Set(x.c.namespace.HeaderRequestID(), x.payment.AgentRequestID)
		}
	}
	r := x.r.WithContext(ctx)
	in := &body{ReadCloser: r.Body}
	if r.Body != nil {
		if x.c.maxBody >= 0 {
			in.ReadCloser = http.MaxBytesReader(x.w, r.Body, x.c.maxBody)
		}
		r.Body = in
	}

	returned := false
	defer func() {
		v := recover()
		a.close()
		guard.stop()
		aborted := v == http.ErrAbortHandler // as reverse proxies do when they can write no more
		switch {
		case a.streaming:
			x.endStream(a, returned || aborted, returned)
		case returned:
		case aborted && x.unsettled():
			x.notSettled(x.wallet.first, x.wallet.known)
			return
		case aborted && a.left:
			x.endBuffered(a, in, ctx)
		default:
			x.release()
		}
		if v != nil {
			panic(v)
		}
	}()
	x.next.ServeHTTP(a, r)
	returned = true
	a.close()
	if !a.streaming {
		x.endBuffered(a, in, ctx)
	}
}

// endBuffered decides about an answer of which nothing has left. work is the context that the handler had.
func (x *exchange) endBuffered(a *writer, in *body, work context.Context) {
	switch {
	case x.unsettled():
		x.notSettled(x.wallet.first, x.wallet.known)
	case x.worked(a, in, work):
		x.settleBuffered(a)
	case in.late.Load(): // net/http ends the context then, as if the caller had left
		x.release()
		x.fail(toll.NewError(toll.CodeRequestTimeout))
	case x.r.Context().Err() != nil:
		x.release()
		if !x.gone() { // a deadline of the program, which may have answered for itself
			// Not CodeUnavailable: its callers may repeat, and the handler may have done its work.
			e := toll.NewError(toll.CodeInternal)
			e.Message, e.Status = "The answer was not ready in time. No credits were burned.", http.StatusServiceUnavailable
			x.fail(e)
		}
	case in.tooLarge.Load():
		x.release()
		x.fail(toll.NewError(toll.CodeBodyTooLarge))
	case a.broken() || a.status == http.StatusSwitchingProtocols:
		x.release()
		x.c.log.Error("paid: the handler's answer cannot be sent", "correlationId", x.correlation, "agentRequestId", x.payment.AgentRequestID,
			"error", a.err, "declared", a.declared, "written", a.size)
		x.fail(toll.NewError(toll.CodeInternal))
	case !success(a.status):
		x.release()
		a.commit(func(http.Header) {})
	default:
		x.settleBuffered(a)
	}
}

func (x *exchange) settleBuffered(a *writer) {
	priced := false
	defer func() {
		if !priced { // the builder's function panicked
			x.release()
		}
	}()
	resp := Response{Status: a.status, Header: a.sent, Body: a.buf.Bytes(), Size: a.size}
	if a.left {
		resp.Body, resp.Streamed = nil, true
	}
	amount := x.amount(resp)
	priced = true
	s, known := x.settle(amount, hold.Tries)
	if known && s.Success {
		if !a.left {
			a.commit(func(h http.Header) { setReceipt(h, s) })
		}
		return
	}
	if known {
		x.release()
	}
	x.notSettled(s, known)
}

// settleRefused answers a refused settlement. None of the handler's answer leaves.
func (x *exchange) settleRefused(s *x402.SettleResponse) {
	e := toll.NewError(s.Code)
	if s.Code == "" {
		e.Code = toll.CodePaymentRequired
	}
	e.Message = sentence(s.ErrorMessage)
	x.c.log.Warn("paid: the settlement was refused", "correlationId", x.correlation, "agentRequestId", x.payment.AgentRequestID,
		"reason", s.ErrorReason, "code", string(s.Code))
	if s.ErrorReason == x402.ReasonUnauthorizedServer || x.wallet != nil && refusesRoute(s.ErrorReason) {
		x.w.Header().Set(x402.HeaderResponse, receiptHeader(s))
		x.faulty("settle", e)
		return
	}
	x.refuse(s.ErrorReason, e, s)
}

// pending answers a settlement whose outcome is unknown. It is never a 402, which would make a client pay again.
func (x *exchange) pending(s *x402.SettleResponse) {
	h := x.w.Header()
	setReceipt(h, s)
	e := toll.NewError(toll.CodeSettlementPending)
	if x.wallet == nil {
		e = e.WithDetails("agentRequestId %s", x.payment.AgentRequestID)
	} else {
		x.c.log.Error("paid: a wallet may have paid for an answer that it did not get", "correlationId", x.correlation, "payer", x.payment.Payer,
			"nonce", x.wallet.nonce.String(), "amount", x.wallet.entry.Amount, "asset", x.wallet.entry.Asset, "transaction", s.Transaction)
	}
	e.Status = http.StatusServiceUnavailable
	x.fail(e)
}

// amount prices an answer, within what is held. That of a wallet is the one it has signed for.
func (x *exchange) amount(resp Response) toll.Credits {
	if x.wallet != nil {
		return x.hold.Amount
	}
	if x.c.creditsFunc == nil {
		return x.terms.InBounds(x.c.credits)
	}
	resp.Header = resp.Header.Clone()
	return min(x.terms.InBounds(max(x.c.creditsFunc(x.r, resp), 0)), x.payment.Held)
}

// holdGuard cuts a stream when its hold ends.
type holdGuard struct {
	timer *time.Timer
	fired chan struct{}
}

func (g *holdGuard) start(after time.Duration, cut func()) {
	fired := make(chan struct{})
	g.fired = fired
	g.timer = time.AfterFunc(after, func() {
		defer close(fired)
		cut()
	})
}

// stop waits for a cut under way: afterwards the connection may belong to the next request.
func (g *holdGuard) stop() {
	if g.timer != nil && !g.timer.Stop() {
		<-g.fired
	}
	g.timer = nil
}

// endStream settles a stream: at its end, and at an abort when some of it was delivered, or when its caller has left work that
// is to be settled. ended is false after a panic of the handler, other than that of an abort.
func (x *exchange) endStream(a *writer, ended, returned bool) {
	whole := returned && !a.broken() && !a.cut.Load() && x.r.Context().Err() == nil
	left := ended && x.gone() && x.settlesGone()
	switch {
	case x.wallet != nil: // it was paid before its first byte left, or is an error that costs nothing
	case !success(a.status), !whole && a.delivered == 0 && !left:
		x.release()
	default:
		x.settleStream(a)
	}
	if whole {
		a.putTrailers(a.trailers())
		return
	}
	if returned {
		// The end of the answer is missing: only a broken connection tells the client so.
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) settleStream(a *writer) {
	amount := x.payment.Held
	if x.c.creditsFunc == nil {
		amount = x.terms.InBounds(x.c.credits)
	}
	func() {
		defer func() {
			if v := recover(); v != nil {
				// What was delivered costs something, and what was held is what the subscriber agreed to.
				x.c.log.Error("paid: the price of a stream panicked; the held amount is charged", "agentRequestId", x.payment.AgentRequestID)
			}
		}()
		amount = x.amount(Response{Status: a.status, Header: a.sent, Size: a.delivered, Streamed: true})
	}()
	s, known := x.settle(amount, 1)
	if known && s.Success {
		return
	}
	u := Unsettled{
		AgentRequestID: x.payment.AgentRequestID, PlanID: x.payment.PlanID, Payer: x.payment.Payer, Credits: amount,
		Bytes: a.delivered, Attempts: 1, Since: x.c.clock(), Reason: s.ErrorReason, Final: known,
	}
	x.c.queue.add(x, u)
}
