package paid

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Handler requires payment for all requests to h. The package documentation describes the steps. Handler panics without [Plan].
func Handler(f x402.Facilitator, h http.Handler, opts ...Option) http.Handler {
	c := newConfig(opts)
	return newGate(f, h, c, seller.NewTermsCache(f, c.Timeout, c.Clock))
}

type gate struct {
	next http.Handler
	c    *config
	// offers caches the offers of recent resources.
	offers offerCache
	last   atomic.Pointer[asked]
	// outside logs once that the price lies outside the bounds of the plan.
	outside sync.Once
	// unlisted logs once that the entries for wallets are invalid.
	unlisted sync.Once
	// unnamed logs once that the public URL is missing.
	unnamed sync.Once
	// takesExact caches whether the service settles the entries for wallets.
	takesExact *seller.Cache[struct{}, bool]
}

func newGate(f x402.Facilitator, next http.Handler, c *config, terms *seller.TermsCache) *gate {
	if _, err := toll.ParsePlanID(string(c.plan)); err != nil {
		panic("paid: a paid route needs paid.Plan with a plan id")
	}
	if len(c.perCall) > 0 {
		seller.CheckOfferer(f, "paid")
	}
	c.Facilitator, c.Terms = f, terms
	g := &gate{next: next, c: c, takesExact: seller.NewCache[struct{}, bool](nil, nil, c.Timeout, c.Clock)}
	g.offers.kept = cache.New[offerKey, []x402.SignedOffer](maxOffers)
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, err := readPath(r.URL); err != nil {
		writeError(w, err, correlationID(r.Header))
		return
	}
	g.serve(w, r)
}

// serve handles a request with a valid path.
func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{gate: g, w: w, r: r, correlation: correlationID(r.Header)}
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// The server dropped any Content-Length. The next bytes on this connection may belong to this request.
		w.Header().Set("Connection", "close")
	}
	if err := checkRequest(r, g.c.maxBody); err != nil {
		x.fail(err)
		return
	}
	last, owned := "", false // decoding a token is expensive
	own := func(text string) bool {
		if text != last {
			last, owned = text, owns(r.Context(), text, g)
		}
		return owned
	}
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
	if !x.price(cred.token != "") || !x.pay(cred) {
		return
	}
	x.run()
}

// exchange is one request.
type exchange struct {
	*gate
	w           http.ResponseWriter
	r           *http.Request // without the credential, once it was read
	correlation string

	terms    *x402.Terms
	asks     *asked
	required *x402.PaymentRequired // of asks
	asked    *toll.Credits         // credits to verify, within the bounds of the plan; nil for its maximum
	sale     *seller.Sale

	exact  []x402.ExactRequirements // entries for wallets
	wallet *walletPayment           // nil if credits pay

	// first is the settlement before the first byte of a stream with a known price, else nil. known is false if its outcome is unknown.
	first *x402.SettleResponse
	known bool
}

func (x *exchange) fail(e *toll.Error) {
	if x.c.onError != nil {
		retryAfter(x.w.Header(), e)
		if x.c.onError(x.w, x.r, e) {
			return
		}
	}
	writeError(x.w, e, x.correlation)
}

// price reads the terms of the plan and sets the price of the request. It returns false after it wrote an error response.
func (x *exchange) price(paid bool) bool {
	t, err := x.c.Terms.Of(x.r.Context(), x.c.plan)
	if err != nil {
		x.unavailable(x.c.Unavailable("reading the terms of the plan", &seller.Offer{PlanID: x.c.plan, Item: x.correlation}, err))
		return false
	}
	x.terms = t
	price := &x.c.credits
	if x.c.creditsFunc != nil {
		price = x.c.maxCredits // nil: the maximum of the plan
	}
	if paid && (x.c.maxFunc != nil || x.c.replay != nil) && x.c.maxBody >= 0 {
		x.r.Body = http.MaxBytesReader(x.w, x.r.Body, x.c.maxBody)
	}
	if paid && x.c.maxFunc != nil {
		n, err := x.c.maxFunc(x.r, nil)
		if err != nil {
			x.fail(toll.AsError(err))
			return false
		}
		price = &n
	}
	x.demand(price)
	if price != nil && *x.asked != *price && x.c.maxFunc == nil {
		if x.c.onClosed != nil {
			x.c.onClosed(x.w, x.r, toll.Errorf(toll.CodeBadRequirements,
				"The price must be %d to %d credits for plan %s; got %d.",
				t.MinAmount, t.MaxAmount, t.PlanID, *price))
			return false
		}
		x.gate.outside.Do(func() {
			x.c.Log.Warn("paid: the plan does not allow the price of a route: using the nearest allowed price", "credits", int64(*price),
				"min", int64(t.MinAmount), "max", int64(t.MaxAmount), "planId", string(t.PlanID))
		})
	}
	if x.exact, err = x.c.exactEntries(t); err != nil {
		x.gate.unlisted.Do(func() {
			x.c.Log.Error("paid: the PerCall prices cannot be offered, so the 402 response omits them",
				"plan", string(x.c.plan), "error", err)
		})
	}
	return true
}

// asked is the demand of a route for a resource. Requests share it, so required is read-only.
type asked struct {
	terms     *x402.Terms
	url, verb string
	amount    toll.Credits // -1 without one
	required  *x402.PaymentRequired
	// plain is the encoded 402 for requests without a payment, or nil until the first such request.
	plain atomic.Pointer[encoded]
}

// demand sets the amount to verify, and the demand of the request. nil means the maximum of the plan. It reuses the previous demand if
// terms, URL, verb, and amount are the same.
func (x *exchange) demand(price *toll.Credits) {
	verb := x.r.Method
	if verb == http.MethodHead {
		verb = http.MethodGet
	}
	effective, amount := seller.Price(x.terms, price)
	url, n := x.resource(), toll.Credits(-1)
	if amount != nil {
		n = *amount
	}
	a := x.gate.last.Load()
	if a == nil || a.terms != x.terms || a.url != url || a.verb != verb || a.amount != n {
		a = &asked{terms: x.terms, url: url, verb: verb, amount: n, required: x402.NewPaymentRequired([]*x402.Terms{x.terms}, x402.Options{
			Namespace: x.c.Namespace, Endpoint: url, AgentID: x.c.AgentID, HTTPVerb: verb, Scheme: x.c.scheme,
			Network: x.c.network, Description: x.c.description, MimeType: x.c.mimeType, Amount: amount,
			MaxTimeoutSecs: x.c.HoldSecs,
		})}
		x.gate.last.Store(a)
	}
	x.asked, x.asks, x.required = effective, a, a.required
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

// pay verifies the credential with a hold. It returns false after it wrote the response to an unpaid request.
func (x *exchange) pay(cred credential) bool {
	switch {
	case cred.v1:
		x.refuse(x402.ReasonInvalidVersion, toll.NewError(toll.CodeBadX402Version), nil)
		return false
	case cred.token == "":
		x.refuse("", toll.NewError(toll.CodePaymentRequired).WithHint(x.terms.TokenHint(x.c.tokenHeaders...)), nil)
		return false
	}
	if len(x.exact) > 0 && seller.SchemeOf(cred.token) == x402.SchemeExact {
		return x.payExact(cred.token)
	}
	sent, refusal := seller.ReadToken(cred.token)
	if refusal == nil {
		if !x.extensionsFit(sent.PaymentIdentifier, sent.Extensions) {
			return false
		}
		refusal = x.c.CheckResource(sent, x.c.publicURL, x.served)
	}
	if refusal == nil && x.c.replay != nil {
		respond, err := x.c.replay(x.r, sent.JWS)
		if err != nil {
			x.fail(toll.AsError(err))
			return false
		}
		if respond != nil {
			if refusal = x.check(sent.JWS); refusal == nil && respond(x.w) {
				return false
			}
		}
	}
	if refusal == nil {
		refusal = x.open(cred.token)
	}
	return x.isPaid(refusal)
}

// check verifies an access token without a hold. A shortfall of credits is not a refusal.
func (x *exchange) check(token string) *seller.Refusal {
	o := x.offer()
	o.PlanID, o.Max, o.Unheld = x.c.plan, new(toll.Credits), true
	_, refusal := x.c.Open(x.r.Context(), o, token)
	if refusal != nil && refusal.Class == seller.Unpaid && seller.IsShortfall(refusal.Reason) {
		return nil
	}
	return refusal
}

// open verifies the payment with a hold of the demanded credits. After a shortfall, it tries once more with the lower bound that
// [MaxCreditsFunc] returns for the available credits.
func (x *exchange) open(token string) (refusal *seller.Refusal) {
	for lowered := false; ; lowered = true {
		o := x.offer()
		o.PlanID, o.Max, o.Unheld = x.c.plan, x.asked, !x.c.hold
		x.sale, refusal = x.c.Open(x.r.Context(), o, token)
		if lowered || x.c.maxFunc == nil || refusal == nil || refusal.Reason != x402.ReasonInsufficientFunds {
			return refusal
		}
		if r := lower(x, refusal); r != nil {
			return r
		}
	}
}

// lower sets the demand to the lower bound for the available credits, or returns a refusal; without a lower bound, that is r.
func lower(x *exchange, r *seller.Refusal) *seller.Refusal {
	f, ok := x.c.Facilitator.(interface {
		BalanceOf(ctx context.Context, id toll.PlanID, holder toll.Address) (*toll.Balance, error)
	})
	payer, err := toll.ParseAddress(r.Payer)
	if !ok || err != nil {
		return r
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), x.c.Timeout)
	defer cancel()
	b, err := f.BalanceOf(ctx, x.c.plan, payer)
	if err != nil {
		return x.c.Unavailable("reading a balance", &seller.Offer{PlanID: x.c.plan, Item: x.correlation}, err)
	}
	n, err := x.c.maxFunc(x.r, &b.Available)
	if err != nil {
		return &seller.Refusal{Class: seller.Unpaid, Reason: r.Reason, Err: toll.AsError(err), Payer: r.Payer}
	}
	if n >= *x.asked {
		return r
	}
	x.demand(&n)
	return nil
}

// offer returns the fields that both kinds of payments share.
func (x *exchange) offer() seller.Offer {
	o := seller.Offer{Required: x.required, Item: x.correlation}
	if f := x.c.afterVerify; f != nil {
		o.Verified = func(v *x402.VerifyResponse) { f(x.r, v) }
	}
	if x.c.labels != nil {
		o.Labels = x.c.labels(x.r)
	}
	if f := x.c.afterSettle; f != nil {
		o.Settled = func(_ context.Context, s *x402.SettleResponse) { f(x.r, s) }
	}
	return o
}

func (x *exchange) payment() Payment {
	p := x.sale
	out := Payment{Payer: p.Payer, PlanID: p.PlanID, AgentID: p.AgentID, AgentRequestID: p.AgentRequestID, Held: p.Amount, Verdict: p.Verdict}
	if x.wallet != nil {
		out.Exact, out.Held = x.wallet.entry, 0
	}
	return out
}

// run runs the handler and then settles or releases.
func (x *exchange) run() {
	a := &writer{w: x.w, rc: http.NewResponseController(x.w), header: x.w.Header().Clone(), declared: -1}
	a.max, a.stream, a.only, a.head = x.c.maxBuffer, x.c.hold, x.c.flushEventsOnly, x.r.Method == http.MethodHead
	ctx, cancel := x.workContext(&a.begun)
	defer cancel(nil)

	keeper := x.sale.Keep(x.r.Context())
	a.early = x.isPriced()
	a.begin = func() error {
		a.begun.Store(true) // before the check below, so that a later disconnect ends the work
		if err := x.r.Context().Err(); err != nil {
			a.left = true
			cancel(context.Cause(x.r.Context()))
			return err
		}
		if a.early = a.early || !success(a.status); a.early {
			keeper.Stop()
			return x.settleFirst(a.status)
		}
		if !keeper.Deliver(func() { a.cutOff(func() { cancel(ErrHoldEnded) }) }) {
			return ErrHoldEnded
		}
		return nil
	}
	a.mark = func(h http.Header) {
		switch {
		case !success(a.status):
		case x.first != nil:
			setReceipt(h, x.first)
		default:
			h.Set(x.c.Namespace.HeaderRequestID(), x.sale.AgentRequestID)
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
		keeper.Stop()
		aborted := v == http.ErrAbortHandler // as reverse proxies do after a failed write
		switch {
		case a.streaming:
			x.endStream(a, returned || aborted, returned)
		case returned:
		case aborted && x.unsettled():
			x.notSettled(x.first, x.known)
			return
		case aborted && (a.left || a.begun.Load() && x.disconnected()):
			x.endBuffered(a, in, ctx)
		default:
			x.sale.Release(x.r.Context())
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

// endBuffered settles and sends a buffered response, or releases the hold. work is the handler's context.
func (x *exchange) endBuffered(a *writer, in *body, work context.Context) {
	switch {
	case x.unsettled():
		x.notSettled(x.first, x.known)
	case x.worked(a, in, work):
		x.settleBuffered(a)
	case in.late.Load(): // net/http then ends the context, as if the caller had disconnected
		x.sale.Release(x.r.Context())
		x.fail(toll.NewError(toll.CodeRequestTimeout))
	case x.r.Context().Err() != nil:
		x.sale.Release(x.r.Context())
		if !x.disconnected() { // a deadline that the program set
			// Not CodeUnavailable, which clients retry: the handler may have done its work.
			e := toll.NewError(toll.CodeInternal)
			e.Message, e.Status = "The answer was not ready in time. No credits were burned.", http.StatusServiceUnavailable
			x.fail(e)
		}
	case in.tooLarge.Load():
		x.sale.Release(x.r.Context())
		x.fail(toll.NewError(toll.CodeBodyTooLarge))
	case a.broken() || a.status == http.StatusSwitchingProtocols:
		x.sale.Release(x.r.Context())
		x.c.Log.Error("paid: the handler's answer cannot be sent", "correlationId", x.correlation, "agentRequestId", x.sale.AgentRequestID,
			"error", a.err, "declared", a.declared, "written", a.size)
		x.fail(toll.NewError(toll.CodeInternal))
	case !success(a.status):
		x.sale.Release(x.r.Context())
		a.commit(func(http.Header) {})
	default:
		x.settleBuffered(a)
	}
}

func (x *exchange) settleBuffered(a *writer) {
	priced := false
	defer func() {
		if !priced { // the builder's function panicked
			x.sale.Release(x.r.Context())
		}
	}()
	resp := Response{Status: a.status, Header: a.sent, Body: a.buf.Bytes(), Size: a.size}
	if a.left {
		resp.Body, resp.Streamed = nil, true
	}
	amount := x.amount(resp)
	priced = true
	s, known := x.sale.Settle(x.r.Context(), amount, seller.Tries)
	if known && s.Success {
		if !a.left {
			a.commit(func(h http.Header) { setReceipt(h, s) })
		}
		return
	}
	if known {
		x.sale.Release(x.r.Context())
	}
	x.notSettled(s, known)
}

// settleRefused responds to a refused settlement. No part of the handler's response is sent.
func (x *exchange) settleRefused(s *x402.SettleResponse) {
	e := toll.NewError(s.Code)
	if s.Code == "" {
		e.Code = toll.CodePaymentRequired
	}
	e.Message = plain.Text(s.ErrorMessage, maxErrorText)
	if s.Extra != nil {
		e = seller.WithPage(e, s.Extra.CheckoutURL)
	}
	if s.ErrorReason == x402.ReasonUnauthorizedServer || x.wallet != nil && seller.RefusesSeller(s.ErrorReason) {
		x.w.Header().Set(x402.HeaderResponse, receiptHeader(s))
		x.unavailable(x.c.Unavailable("settle", &x.sale.Offer, e))
		return
	}
	x.refuse(s.ErrorReason, e, s)
}

// pending responds with 503 to a settlement with an unknown outcome. A 402 would make a client pay again.
func (x *exchange) pending(s *x402.SettleResponse) {
	h := x.w.Header()
	setReceipt(h, s)
	e := toll.NewError(toll.CodeSettlementPending)
	if x.wallet == nil {
		e = e.WithDetails("agentRequestId %s", x.sale.AgentRequestID)
	} else {
		x.c.Log.Error("paid: a wallet may have paid for an answer that it did not receive", "correlationId", x.correlation, "payer", x.sale.Payer,
			"nonce", x.wallet.nonce.String(), "amount", x.wallet.entry.Amount, "asset", x.wallet.entry.Asset, "transaction", s.Transaction)
	}
	e.Status = http.StatusServiceUnavailable
	x.fail(e)
}

// amount returns the price of a response: the signed amount of a wallet, or credits up to the held amount.
func (x *exchange) amount(resp Response) toll.Credits {
	if x.wallet != nil {
		return x.sale.Amount
	}
	if x.c.creditsFunc == nil {
		return x.terms.InBounds(x.c.credits)
	}
	resp.Header = resp.Header.Clone()
	return min(x.terms.InBounds(max(x.c.creditsFunc(x.r, resp), 0)), x.sale.Amount)
}

// endStream settles a stream that is complete, delivered at least one byte, was cut with its hold, or lost its caller with [Settle].
// It releases the hold of other streams. ended is false after a panic of the handler other than [http.ErrAbortHandler].
func (x *exchange) endStream(a *writer, ended, returned bool) {
	whole := returned && !a.broken() && !a.cut.Load() && x.r.Context().Err() == nil
	left := ended && x.disconnected() && x.settlesDisconnected()
	switch {
	case a.early: // settled before its first byte, or a free error response
	case !whole && a.delivered == 0 && !left && !(a.cut.Load() && a.size > 0): // a stalled reader pays
		x.sale.Release(x.r.Context())
	default:
		x.settleStream(a)
	}
	if whole {
		a.putTrailers(a.trailers())
		return
	}
	if returned {
		// Only a broken connection tells the client that the response is incomplete.
		panic(http.ErrAbortHandler)
	}
}

func (x *exchange) settleStream(a *writer) {
	amount := x.sale.Amount
	func() {
		defer func() {
			if v := recover(); v != nil {
				// The subscriber agreed to the held amount.
				x.c.Log.Error("paid: the price function of a stream panicked, so the held credits are charged", "agentRequestId", x.sale.AgentRequestID)
			}
		}()
		amount = x.amount(Response{Status: a.status, Header: a.sent, Size: a.delivered, Streamed: true})
	}()
	s, known := x.sale.Settle(x.r.Context(), amount, 1)
	if known && s.Success {
		return
	}
	x.sale.Later(amount, a.delivered, s, known)
}
