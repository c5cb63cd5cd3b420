package paidmcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"runtime/debug"
	"sync"

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

	offers  []*x402.Terms         // the plans that may pay
	demand  *x402.PaymentRequired // what the caller is asked for
	plan    toll.PlanID           // the one that is to pay
	terms   *x402.Terms           // of the plan that pays
	cred    credential
	sale    *seller.Sale // nil of a free item
	notices *outbox
}

// receive is the middleware that demands payment. One payment covers everything inside it, also a second run of a handler with
// the input that it asked for.
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

// withCodes sets the code of an internal error on errors without a code; the SDK sends 0.
func withCodes(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if e, ok := wireError(err); err != nil && (!ok || e.Code == 0) {
			err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		}
		return res, err
	}
}

// LogicalURL returns the url under which an agent registers an item, for example "mcp://demo/tools/ask"; the name "*" stands
// for all items of the type.
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
	if refusal := c.pay(ctx); refusal != nil {
		return refusal.answer()
	}
	c.notices = &outbox{flows: c.price.stream}
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
	if c.price.stream {
		// The hold pays what leaves, only while it lasts.
		cut := func() {
			cancel(paid.ErrHoldEnded)
			c.notices.cut()
		}
		if !keeper.Deliver(cut) {
			cut()
		}
	}
	res, err := run(inner)
	if gone := context.Cause(inner); gone != nil {
		res, err = nil, gone
	} else if ctx.Err() != nil && !(seller.Left(ctx) && settles()) {
		res, err = nil, context.Cause(ctx) // it came to its end before it learned that the caller left
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

// fail ends a call whose handler returned an error: nothing is burned.
func (c *call) fail(ctx context.Context, err error) (mcp.Result, error) {
	c.stop(ctx)
	if why, ok := demandsPayment(err); ok {
		return c.refuse(wordRequired, "", why).answer()
	}
	if _, ok := wireError(err); !ok && c.kind == Tools && ctx.Err() == nil {
		// A model sees the error in this form of the protocol.
		res := c.newToolResult()
		res.SetError(err)
		return res, nil
	}
	return nil, err
}

// failTool ends a call of a tool whose result is an error. The caller gets the result.
func (c *call) failTool(ctx context.Context, res mcp.Result) (mcp.Result, error) {
	c.stop(ctx)
	if r, ok := res.(*mcp.CallToolResult); ok {
		if why, ok := demandsPayment(r.GetError()); ok {
			return c.refuse(wordRequired, "", why).answer()
		}
	}
	return res, nil
}

// stop ends a call without a settlement, unless notifications have left already. It drops those that wait, which may hold paid
// content.
func (c *call) stop(ctx context.Context) {
	c.notices.shut()
	if sent := c.notices.delivered(); sent > 0 {
		c.settleCut(ctx, sent)
		return
	}
	c.sale.Release(ctx)
}

// settled burns the credits of a call, and only then returns its result.
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

// amount returns the price of a result, at most what is held.
func (c *call) amount(res mcp.Result) (amount toll.Credits, err error) {
	if c.price.creditsFunc == nil {
		return c.terms.InBounds(c.price.credits), nil
	}
	defer func() {
		if v := recover(); v != nil {
			c.Log.Error("paidmcp: the price of a call panicked", "item", c.url, "panic", v, "stack", string(debug.Stack()))
			err = errInternal
		}
	}()
	amount = max(c.price.creditsFunc(CreditsContext{
		Args: c.args, Result: res, Request: CallRequest{LogicalURL: c.url, ToolName: c.name},
	}), 0)
	if c.terms != nil && !c.terms.Kind.Charges() {
		return amount, nil // a plan for a period holds nothing, and burns nothing whatever is asked
	}
	return min(c.terms.InBounds(amount), c.sale.Amount), nil
}

// settleCut settles a stream that ended before its result, after some of it was delivered.
func (c *call) settleCut(ctx context.Context, sent int64) {
	amount, err := c.amount(nil)
	if err != nil {
		amount = c.sale.Amount // what was held is what the subscriber agreed to
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

// failed reports whether a result is the error of a tool.
func failed(res mcp.Result) bool {
	r, ok := res.(*mcp.CallToolResult)
	return ok && r != nil && r.IsError
}

// needsInput reports whether a result asks for input before there is anything to pay.
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
