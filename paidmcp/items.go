package paidmcp

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
)

// Type is a kind of item, as it stands in logical urls.
type Type string

// Types of items.
const (
	Tools     Type = "tools"
	Resources Type = "resources"
	Prompts   Type = "prompts"
)

// RedeemError says what a caller gets when the credits of a call that ran could not be burned. Its content never leaves.
type RedeemError int

// What becomes of a failed settlement.
const (
	Ignore    RedeemError = iota // the payment error: a tool result with isError, -32003 for resources and prompts
	Propagate                    // the JSON-RPC error -32002
)

// CreditsContext is what a function that prices a call looks at.
type CreditsContext struct {
	// Args are the arguments as JSON: of a tool as they were sent, of a prompt an object of texts, of a resource its uri.
	Args json.RawMessage
	// Result is a [*mcp.CallToolResult], [*mcp.ReadResourceResult] or [*mcp.GetPromptResult], to be read only; nil for a stream
	// that was cut.
	Result  mcp.Result
	Request CallRequest
}

// CallRequest names the item that was called.
type CallRequest struct {
	LogicalURL string // for example "mcp://demo/tools/ask"
	ToolName   string // name of the tool or prompt, uri of the resource
}

// Option sets the price of an item and how it is taken.
type Option func(*price)

type price struct {
	credits     toll.Credits
	creditsFunc func(CreditsContext) toll.Credits
	maxAmount   toll.Credits
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

// isFree reports whether nothing ever has to be paid, so that no access token is asked for.
func (pr *price) isFree() bool { return pr.creditsFunc == nil && pr.credits == 0 }

// dearer reports whether pr is to be taken where both apply. A function may charge whatever its plan allows.
func (pr *price) dearer(other *price) bool {
	if other == nil || (pr.creditsFunc != nil) != (other.creditsFunc != nil) {
		return other == nil || pr.creditsFunc != nil
	}
	return pr.credits > other.credits
}

// Credits sets what one call costs, default 1. A free item, of 0 credits, is called without an access token. Other prices
// should lie within the bounds of the plan, into which they are brought otherwise.
func Credits(n toll.Credits) Option {
	return func(pr *price) { pr.credits, pr.creditsFunc = max(n, 0), nil }
}

// CreditsFunc prices a call after the item ran. The maximum of the plan is held meanwhile, and what the function returns is
// capped at it; 0 or less burns nothing. It must not block.
func CreditsFunc(f func(CreditsContext) toll.Credits) Option {
	return func(pr *price) { pr.creditsFunc = f }
}

// Plan names the plan whose credits pay for the item, in place of that of the server.
func Plan(id toll.PlanID) Option { return func(pr *price) { pr.plan = id } }

// MaxAmount is how many credits are held at least while an item with a fixed price runs, default 1.
func MaxAmount(n toll.Credits) Option { return func(pr *price) { pr.maxAmount = max(n, 0) } }

// OnRedeemError says what a caller gets when a settlement fails, default [Ignore].
func OnRedeemError(e RedeemError) Option { return func(pr *price) { pr.onError = e } }

// Stream lets notifications of the item, its progress and log messages, leave as they come, on the strength of the hold.
// Without it they wait until the call is settled, since they may carry what is paid for. A stream cannot outlast its hold,
// and one that is cut after something was delivered is settled all the same.
func Stream() Option { return func(pr *price) { pr.stream = true } }

// Description describes the item in a demand for payment, by default as it is registered.
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

// AddResourceTemplate adds resources that a template names and their price. It counts for every uri that the template could
// stand for, also when another one serves it: where prices disagree, the dearest is taken. See
// [mcp.Server.AddResourceTemplate].
func (p *Payments) AddResourceTemplate(s *mcp.Server, t *mcp.ResourceTemplate, h mcp.ResourceHandler, opts ...Option) {
	p.priceItem(s, Resources, t.URITemplate, describe(t.Description, t.MIMEType), opts)
	s.AddResourceTemplate(t, h)
}

// AddPrompt adds a prompt and its price. See [mcp.Server.AddPrompt].
func (p *Payments) AddPrompt(s *mcp.Server, pr *mcp.Prompt, h mcp.PromptHandler, opts ...Option) {
	p.priceItem(s, Prompts, pr.Name, describe(pr.Description, ""), opts)
	s.AddPrompt(pr, h)
}

// Price sets the price of the items of a type with this name, in place of an earlier one. It is for items that are added to
// the server by other means; see [Payments.Protect]. Names are compared exactly, uris of resources in all their spellings and
// without query and slash at the end. The name of a resource is its uri, or a
// template of uris, in which {...} stands for anything. The name "*" sets the price of all items of the type that have none
// of their own.
func (p *Payments) Price(t Type, name string, opts ...Option) { p.prices.set(t, name, newPrice(opts)) }

// Unprice takes a price away that [Payments.Price] or the addition of an item has set.
func (p *Payments) Unprice(t Type, name string) { p.prices.remove(t, name) }

func (p *Payments) priceItem(s *mcp.Server, t Type, name string, by Option, opts []Option) {
	p.Protect(s)
	p.Price(t, name, append([]Option{by}, opts...)...)
}

func describe(description, mimeType string) Option {
	return func(pr *price) { pr.description, pr.mimeType = description, mimeType }
}
