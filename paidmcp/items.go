package paidmcp

import (
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
)

// Type is a kind of item, as in logical urls.
type Type string

// Types of items.
const (
	Tools     Type = "tools"
	Resources Type = "resources"
	Prompts   Type = "prompts"
)

// RedeemError chooses the response to a call that ran, but whose credits could not be burned. The result is never sent.
type RedeemError int

// Responses to a failed settlement.
const (
	Ignore    RedeemError = iota // the payment error: a tool result with isError, -32003 for resources and prompts
	Propagate                    // the JSON-RPC error -32002
)

// CreditsContext is the input of a function that prices a call.
type CreditsContext struct {
	// Args are the arguments as JSON: for a tool as sent by the caller, for a prompt an object of strings, and for a resource {"uri": ...}.
	Args json.RawMessage
	// Result is a [*mcp.CallToolResult], [*mcp.ReadResourceResult] or [*mcp.GetPromptResult], read-only; nil for a stream that was cut.
	Result  mcp.Result
	Request CallRequest
	// Elapsed is the time since the item was called, 0 in [MaxCreditsFunc].
	Elapsed time.Duration
}

// CallRequest names the called item.
type CallRequest struct {
	LogicalURL string // for example "mcp://demo/tools/ask"
	ToolName   string // name of the tool or prompt, uri of the resource
}

// Option sets the price of an item and how it is charged.
type Option func(*price)

type price struct {
	credits     toll.Credits
	creditsFunc func(CreditsContext) toll.Credits
	maxFunc     func(CreditsContext) (toll.Credits, error)
	maxAmount   toll.Credits
	perCall     []seller.Exact
	plan        toll.PlanID
	onError     RedeemError
	stream      bool
	disconnect  paid.Disconnect
	description string
	mimeType    string
}

func newPrice(opts []Option) *price {
	pr := &price{credits: 1, maxAmount: 1}
	for _, o := range opts {
		if o != nil {
			o(pr)
		}
	}
	return pr
}

// isFree reports whether an item never costs anything, so that it needs no access token.
func (pr *price) isFree() bool { return pr.creditsFunc == nil && pr.credits == 0 }

// dearer reports whether pr applies if both match: a function, which may charge up to the maximum of the plan, or the higher price.
func (pr *price) dearer(other *price) bool {
	if other == nil || (pr.creditsFunc != nil) != (other.creditsFunc != nil) {
		return other == nil || pr.creditsFunc != nil
	}
	return pr.credits > other.credits
}

// Credits sets the price of one call, default 1. An item of 0 credits is free and needs no access token. Other prices are
// adjusted to the bounds of the plan.
func Credits(n toll.Credits) Option {
	return func(pr *price) { pr.credits, pr.creditsFunc = max(n, 0), nil }
}

// CreditsFunc prices a call after the item ran. Until then [MaxCreditsFunc], or else the maximum of the plan, is held, which caps the
// price. A price of 0 or less burns no credits. f must not block.
func CreditsFunc(f func(CreditsContext) toll.Credits) Option {
	return func(pr *price) { pr.creditsFunc = f }
}

// MaxCreditsFunc bounds the price from a [CreditsFunc], and therefore the hold, by a function of the arguments. Result is nil. An error
// of f rejects the call before its payment is verified: with its text in a tool result, or as invalid params. f must not block.
func MaxCreditsFunc(f func(CreditsContext) (toll.Credits, error)) Option {
	return func(pr *price) { pr.maxFunc = f }
}

// Plan sets the plan that pays for the item. It overrides [Config.PlanID].
func Plan(id toll.PlanID) Option { return func(pr *price) { pr.plan = id } }

// MaxAmount sets the minimum hold for an item with a fixed price, in credits, default 1.
func MaxAmount(n toll.Credits) Option { return func(pr *price) { pr.maxAmount = max(n, 0) } }

// OnRedeemError chooses the response to a failed settlement, default [Ignore].
func OnRedeemError(e RedeemError) Option { return func(pr *price) { pr.onError = e } }

// Stream sends the progress and log messages of the item at once, backed by the hold. Without it they wait for the settlement,
// because they may hold paid content. A stream ends with its hold. If it is cut after a delivery, it is settled.
func Stream() Option { return func(pr *price) { pr.stream = true } }

// Description describes the item in a demand for payment. The default is its registered description.
func Description(s string) Option { return func(pr *price) { pr.description = s } }

// AddTool adds a tool with typed arguments and results, and its price, to s. See [mcp.AddTool].
func AddTool[In, Out any](p *Payments, s *mcp.Server, t *mcp.Tool, h mcp.ToolHandlerFor[In, Out], opts ...Option) {
	p.priceItem(s, Tools, t.Name, describe(t.Description, ""), opts)
	mcp.AddTool(s, t, h)
}

// AddTool adds a tool that reads its own arguments, and its price. See [mcp.Server.AddTool].
func (p *Payments) AddTool(s *mcp.Server, t *mcp.Tool, h mcp.ToolHandler, opts ...Option) {
	p.priceItem(s, Tools, t.Name, describe(t.Description, ""), opts)
	s.AddTool(t, h)
}

// AddResource adds a resource and its price. See [mcp.Server.AddResource].
func (p *Payments) AddResource(s *mcp.Server, r *mcp.Resource, h mcp.ResourceHandler, opts ...Option) {
	p.priceItem(s, Resources, r.URI, describe(r.Description, r.MIMEType), opts)
	s.AddResource(r, h)
}

// AddResourceTemplate adds the resources of a template and their price. The price applies to every uri that matches the
// template, also if another template serves it; the highest price wins. See [mcp.Server.AddResourceTemplate].
func (p *Payments) AddResourceTemplate(s *mcp.Server, t *mcp.ResourceTemplate, h mcp.ResourceHandler, opts ...Option) {
	p.priceItem(s, Resources, t.URITemplate, describe(t.Description, t.MIMEType), opts)
	s.AddResourceTemplate(t, h)
}

// AddPrompt adds a prompt and its price. See [mcp.Server.AddPrompt].
func (p *Payments) AddPrompt(s *mcp.Server, pr *mcp.Prompt, h mcp.PromptHandler, opts ...Option) {
	p.priceItem(s, Prompts, pr.Name, describe(pr.Description, ""), opts)
	s.AddPrompt(pr, h)
}

// Price sets the price of the items of a type with this name, and replaces an earlier one. Use it for items that are added by
// other means; see [Payments.Protect]. Names must be equal. Uris match in any spelling, with or without query and trailing slash.
// The name of a resource is its uri, or a template of uris in which {...} matches any text. The name "*" sets the price of all
// items of the type without a price under their name.
func (p *Payments) Price(t Type, name string, opts ...Option) {
	pr := newPrice(opts)
	if len(pr.perCall) > 0 {
		seller.CheckOfferer(p.seller.Facilitator, "paidmcp")
	}
	p.prices.set(t, name, pr)
}

// Unprice removes a price.
func (p *Payments) Unprice(t Type, name string) { p.prices.remove(t, name) }

func (p *Payments) priceItem(s *mcp.Server, t Type, name string, by Option, opts []Option) {
	p.Protect(s)
	p.Price(t, name, append([]Option{by}, opts...)...)
}

func describe(description, mimeType string) Option {
	return func(pr *price) { pr.description, pr.mimeType = description, mimeType }
}
