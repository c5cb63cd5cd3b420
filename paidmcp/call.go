package paidmcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// call is one call of an item with a price.
type call struct {
	*Payments
	*seller.Seller
	kind  Type
	name  string
	price *price
	req   mcp.Request
	next  mcp.MethodHandler
	args  json.RawMessage
	url   string

	offers []*x402.Terms         // terms of the plans that can pay
	demand *x402.PaymentRequired // response to an unpaid call
	plan   toll.PlanID           // plan that pays
	terms  *x402.Terms           // terms of that plan
	most   *toll.Credits         // of the [MaxCreditsFunc]
	began  time.Time             // when the item was called
	cred   credential
	sale   *seller.Sale // nil for a free item

	exact      []x402.ExactRequirements // entries for wallets
	entry      *x402.ExactRequirements  // the entry that a wallet pays, or nil
	takesExact func() bool              // whether the service settles the entries
	notices    *outbox
}

// receive is the middleware that demands payment for items with a price. It also adapts the list of tools, see listed. One payment
// covers all inner middleware, including a second run of a handler with the input that it requested.
func (p *Payments) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return withCodes(func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		c := &call{Payments: p, Seller: p.seller, req: req, next: next}
		switch params := req.GetParams().(type) {
		case *mcp.CallToolParamsRaw:
			c.kind, c.name, c.args = Tools, params.Name, params.Arguments
		case *mcp.ReadResourceParams:
			c.kind, c.name = Resources, params.URI
			if fault := resourceFault(params.URI); fault != "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fault}
			}
			c.args, _ = x402.Encode(map[string]string{"uri": params.URI})
		case *mcp.GetPromptParams:
			c.kind, c.name = Prompts, params.Name
			c.args, _ = x402.Encode(params.Arguments)
		case *mcp.ListToolsParams:
			res, err := next(ctx, method, req)
			if err != nil {
				return nil, err
			}
			return p.listed(res), nil
		default:
			return next(ctx, method, req)
		}
		token := takePayment(req.GetParams())
		c.price = p.prices.of(c.kind, c.name)
		if c.price == nil {
			return next(ctx, method, req)
		}
		c.cred = takeCredential(ctx, req, token)
		c.url = p.LogicalURL(c.kind, c.name)
		run := func(ctx context.Context) (mcp.Result, error) { return c.run(ctx, method) }
		if c.price.isFree() {
			return c.serveFree(ctx, run)
		}
		return c.serve(ctx, run)
	})
}

// withCodes sets the code of an internal error on errors without a code, for which the SDK would send 0.
func withCodes(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if e, ok := wireError(err); err != nil && (!ok || e.Code == 0) {
			err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
		return res, err
	}
}

// LogicalURL returns the url under which an agent registers an item, for example "mcp://demo/tools/ask". The name "*" means all
// items of the type.
func (p *Payments) LogicalURL(t Type, name string) string {
	if name != mcpwire.AnyName {
		name = url.PathEscape(name)
	}
	return "mcp://" + p.cfg.ServerName + "/" + string(t) + "/" + name
}

func (c *call) serveFree(ctx context.Context, run func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	res, err := run(ctx)
	if err != nil || failed(res) || needsInput(res) {
		return res, err
	}
	return c.withMeta(res, nil, c.free()), nil
}

func (c *call) serve(ctx context.Context, run func(context.Context) (mcp.Result, error)) (mcp.Result, error) {
	if err := setMost(c); err != nil {
		return reject(c, err)
	}
	if refusal := c.pay(ctx); refusal != nil {
		return refusal.answer()
	}
	stream := c.price.stream && c.entry == nil // a wallet has no hold that could cover a delivery before the settlement
	c.notices = &outbox{flows: stream}
	c.enter()
	defer c.leave()

	settles := sync.OnceValue(func() bool { return c.settlesDisconnected(ctx) })
	work, cancel := c.workContext(ctx, settles)
	defer cancel(nil)
	payment := c.payment()
	inner := context.WithValue(context.WithValue(work, paymentKey{}, payment), callKey{}, c)
	if payment.Payer != "" {
		inner = mcpwire.WithCaller(inner, "subscriber "+payment.Payer)
	}
	keeper := c.sale.Keep(ctx)
	defer keeper.Stop()
	if stream {
		// Notifications are covered only while the hold lasts.
		cut := func() {
			cancel(paid.ErrHoldEnded)
			c.notices.cut()
		}
		if !keeper.Deliver(cut) {
			cut()
		}
	}
	c.began = c.Clock()
	res, err := run(inner)
	if gone := context.Cause(inner); gone != nil {
		res, err = nil, gone
	} else if ctx.Err() != nil && !(seller.Left(ctx) && settles()) {
		res, err = nil, context.Cause(ctx) // the handler returned before it noticed that the caller had left
	}
	switch {
	case err != nil:
		return c.fail(ctx, err)
	case isNil(res):
		return c.fail(ctx, errInternal)
	case failed(res):
		return c.failTool(ctx, res)
	case needsInput(res):
		c.stop(ctx)
		return res, nil
	}
	return c.settled(ctx, res)
}

// run calls the item. It logs a panic and returns an internal error.
func (c *call) run(ctx context.Context, method string) (res mcp.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.Log.Error("paidmcp: a handler panicked", "item", c.url, "panic", v, "stack", string(debug.Stack()))
			res, err = nil, errInternal
		}
	}()
	return c.next(ctx, method, c.req)
}

// fail ends a call whose handler returned an error. No credits are burned, unless part of a stream was delivered.
func (c *call) fail(ctx context.Context, err error) (mcp.Result, error) {
	c.stop(ctx)
	if why, ok := demandsPayment(err); ok {
		return c.refuse(wordRequired, "", why).answer()
	}
	if _, ok := wireError(err); !ok && c.kind == Tools && ctx.Err() == nil {
		return toolError(c, err), nil
	}
	return nil, err
}

// toolError returns the tool result for an error: a model sees an error only there.
func toolError(c *call, err error) mcp.Result {
	res := c.newToolResult()
	res.SetError(err)
	return res
}

// failTool ends a call of a tool whose result has isError. It returns the result, or a demand for payment if the error is one.
func (c *call) failTool(ctx context.Context, res mcp.Result) (mcp.Result, error) {
	c.stop(ctx)
	if r, ok := res.(*mcp.CallToolResult); ok {
		if why, ok := demandsPayment(r.GetError()); ok {
			return c.refuse(wordRequired, "", why).answer()
		}
	}
	return res, nil
}

// stop ends a call and releases its hold, or settles it if notifications were already delivered. It drops waiting notifications,
// which may hold paid content.
func (c *call) stop(ctx context.Context) {
	c.notices.shut()
	if sent := c.notices.delivered(); sent > 0 {
		c.settleCut(ctx, sent)
		return
	}
	c.sale.Release(ctx)
}

// settled burns the credits of a call and returns its result, or the payment error if the settlement failed.
func (c *call) settled(ctx context.Context, res mcp.Result) (mcp.Result, error) {
	amount, err := c.amount(res)
	if err != nil {
		return c.fail(ctx, err)
	}
	if amount == 0 {
		c.sale.Release(ctx)
		c.notices.open()
		return c.withMeta(res, nil, c.free()), nil
	}
	s, known := c.sale.Settle(ctx, amount, seller.Tries)
	if s.Success {
		if st, ok := ctx.Value(streamKey{}).(*stream); ok {
			st.backlog.pay(st)
		}
		c.notices.open()
		return c.withMeta(res, s, c.burned(s)), nil
	}
	c.notices.shut()
	if sent := c.notices.delivered(); sent > 0 {
		c.sale.Later(amount, sent, s, known)
	} else if known {
		c.sale.Release(ctx)
	}
	return c.redeemFailed(s, known).answer()
}

// amount returns the price of a result, capped at the hold. It returns errInternal if the price function panics.
func (c *call) amount(res mcp.Result) (amount toll.Credits, err error) {
	if c.entry != nil {
		return c.sale.Amount, nil
	}
	if c.price.creditsFunc == nil {
		return c.terms.InBounds(c.price.credits), nil
	}
	defer recoverPrice(c, &err)
	in := priced(c)
	in.Result, in.Elapsed = res, c.Clock().Sub(c.began)
	amount = max(c.price.creditsFunc(in), 0)
	if c.terms != nil && !c.terms.Kind.Charges() {
		return amount, nil // plans for a period do not burn credits
	}
	return min(c.terms.InBounds(amount), c.sale.Amount), nil
}

// setMost sets the largest price of the call. It returns the error of the builder's function, which rejects the call.
func setMost(c *call) (err error) {
	if c.price.maxFunc == nil {
		return nil
	}
	defer recoverPrice(c, &err)
	most, err := c.price.maxFunc(priced(c))
	c.most = most.Ptr()
	return err
}

// reject responds to a call whose arguments have no price.
func reject(c *call, err error) (mcp.Result, error) {
	text := err.Error()
	if e, ok := errors.AsType[*toll.Error](err); ok {
		text = e.Text()
	}
	switch _, ok := wireError(err); {
	case ok:
		return nil, err
	case c.kind == Tools:
		return toolError(c, errors.New(text)), nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: text}
}

func priced(c *call) CreditsContext {
	return CreditsContext{Args: c.args, Request: CallRequest{LogicalURL: c.url, ToolName: c.name}}
}

// recoverPrice turns a panic of a price function into errInternal.
func recoverPrice(c *call, err *error) {
	if v := recover(); v != nil {
		c.Log.Error("paidmcp: the price function of a call panicked", "item", c.url, "panic", v, "stack", string(debug.Stack()))
		*err = errInternal
	}
}

// settleCut settles a stream that ended before its result, after sent bytes were delivered.
func (c *call) settleCut(ctx context.Context, sent int64) {
	amount, err := c.amount(nil)
	if err != nil {
		amount = c.sale.Amount // the subscriber agreed to the hold
	}
	if amount == 0 {
		c.sale.Release(ctx)
		return
	}
	if s, known := c.sale.Settle(ctx, amount, seller.Tries); !s.Success {
		c.sale.Later(amount, sent, s, known)
	}
}

var errInternal error = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}

func isNil(res mcp.Result) bool {
	v := reflect.ValueOf(res)
	return res == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// failed reports whether a result is a tool result with isError.
func failed(res mcp.Result) bool {
	r, ok := res.(*mcp.CallToolResult)
	return ok && r != nil && r.IsError
}

// needsInput reports whether a result requests input from the caller. Such a result is free.
func needsInput(res mcp.Result) bool {
	switch r := res.(type) {
	case *mcp.CallToolResult:
		return r != nil && r.InputRequests != nil
	case *mcp.ReadResourceResult:
		return r != nil && r.InputRequests != nil
	case *mcp.GetPromptResult:
		return r != nil && r.InputRequests != nil
	}
	return false
}

// demandsPayment reports whether the error of a handler demands payment, and returns its text.
func demandsPayment(err error) (string, bool) {
	if err == nil {
		return "", false
	}
	if e, ok := errors.AsType[*toll.Error](err); ok && e.Code == toll.CodePaymentRequired {
		return e.Text(), true
	}
	if e, ok := wireError(err); ok && e.Code == CodePaymentRequired {
		return e.Message, true
	}
	return "", false
}
