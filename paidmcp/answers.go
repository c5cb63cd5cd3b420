package paidmcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Codes of JSON-RPC errors (wire contract, section 22).
const (
	// CodePaymentRequired is the code for unpaid resources and prompts. Its data is the [x402.PaymentRequired]. A handler may
	// return it to demand payment itself.
	CodePaymentRequired = -32003
	// CodeMisconfigured is the code for a server without a plan, and for failed settlements with [Propagate].
	CodeMisconfigured = -32002
)

// cachePrivate keeps a result out of shared caches; the default of the protocol is public.
const cachePrivate = "private"

// Prefixes of the error in a demand for payment.
const (
	wordRequired    = "payment required"
	wordUnavailable = "plans unavailable"
	wordFailed      = "settlement failed"
	wordPending     = "settlement pending"
)

// Bounds for text from other parties that a model reads, in characters, and for the plans that an error names.
const (
	maxNameRunes     = 80
	maxSentenceRunes = 300
	maxNamedPlans    = 3
)

// unpaid is the response to an unpaid call.
type unpaid struct {
	call   *call
	word   string      // prefix of the error
	reason string      // x402 reason word, may be empty
	text   string      // one sentence, may be empty
	err    *toll.Error // error of the refused sale, may be nil
	meta   *creditsMeta
	wire   error // JSON-RPC error to return instead of the demand, or nil
}

func (c *call) refuse(word, reason, text string) *unpaid {
	return &unpaid{call: c, word: word, reason: reason, text: text}
}

func (r *unpaid) answer() (mcp.Result, error) {
	if r.wire != nil {
		return nil, r.wire
	}
	c := r.call
	pr := *c.demand
	pr.Error = r.because(r.word)
	if order := seller.OrderExtension(c.terms, r.reason, r.err); order != nil {
		pr.Extensions = map[string]json.RawMessage{c.Namespace.PlanExtension(): order}
	}
	b, err := x402.Encode(demandOf(c, &pr))
	if err != nil {
		return nil, errInternal
	}
	if c.kind != Tools {
		return nil, &jsonrpc.Error{Code: CodePaymentRequired, Message: c.message(), Data: b}
	}
	res := c.newToolResult()
	res.IsError = true
	res.StructuredContent = json.RawMessage(b)
	res.Content = []mcp.Content{&mcp.TextContent{Text: string(b)}}
	if r.meta != nil {
		res.Meta = mcp.Meta{c.Namespace.MetaCredits(): r.meta}
	}
	return res, nil
}

// because joins word, the reason and the sentence of a refusal with colons.
func (r *unpaid) because(word string) string {
	for _, s := range []string{r.reason, plain.Text(r.text, maxSentenceRunes)} {
		if s != "" {
			word += ": " + s
		}
	}
	return word
}

// redeemFailed returns the response to a call that ran, but whose settlement was refused or has no known outcome. It contains no
// part of the result.
func (c *call) redeemFailed(s *x402.SettleResponse, known bool) *unpaid {
	r := c.refuse(wordFailed, s.ErrorReason, s.ErrorMessage)
	if s.Extra != nil {
		r.err = seller.WithPage(toll.NewError(s.Code), s.Extra.CheckoutURL)
	}
	if !known {
		r.word = wordPending
	}
	r.meta = &creditsMeta{
		PlanID: c.sale.PlanID, SubscriberAddress: c.sale.Payer, ErrorReason: s.ErrorReason, AgentRequestID: c.sale.AgentRequestID,
	}
	if c.price.onError == Propagate {
		r.wire = &jsonrpc.Error{Code: CodeMisconfigured, Message: r.because("Failed to redeem credits")}
	}
	return r
}

// message returns the text of a JSON-RPC error that demands payment.
func (c *call) message() string {
	text := "Payment required."
	if c.cred.token == "" {
		text = "Authorization required."
	}
	var plans []string
	for _, t := range c.offers {
		plan := string(t.PlanID)
		if name := quoted(t.PlanName); name != "" {
			plan += " (" + name + ")"
		}
		if plans = append(plans, plan); len(plans) == maxNamedPlans {
			break
		}
	}
	if len(plans) > 0 {
		text += " Available plans: " + strings.Join(plans, ", ")
	}
	if advice := c.demand.Accepts[0].Advice(); advice != "" {
		text += ". " + advice
	}
	return text
}

// newToolResult returns an empty result. From 2026-07-28 a result must be marked as complete, in a field that only the decoder of
// the SDK can set.
func (c *call) newToolResult() *mcp.CallToolResult {
	res := new(mcp.CallToolResult)
	if r, ok := c.req.(*mcp.CallToolRequest); ok && r.ProtocolVersion() >= mcpwire.FirstModern {
		if x402.Decode([]byte(`{"content":[],"resultType":"complete"}`), res) != nil {
			return new(mcp.CallToolResult)
		}
	}
	return res
}

// creditsMeta reports the credits of a call in the _meta of its result.
type creditsMeta struct {
	Success           bool          `json:"success"`
	TxHash            string        `json:"txHash,omitempty"`
	CreditsRedeemed   *toll.Credits `json:"creditsRedeemed,omitempty"`
	RemainingBalance  *toll.Credits `json:"remainingBalance,omitempty"`
	PlanID            toll.PlanID   `json:"planId,omitempty"`
	SubscriberAddress string        `json:"subscriberAddress,omitempty"`
	ErrorReason       string        `json:"errorReason,omitempty"`
	AgentRequestID    string        `json:"agentRequestId,omitempty"`
}

func (c *call) free() *creditsMeta {
	m := &creditsMeta{Success: true, CreditsRedeemed: new(toll.Credits), PlanID: cmp.Or(c.price.plan, c.cfg.PlanID)}
	if c.sale != nil {
		m.PlanID, m.SubscriberAddress = c.sale.PlanID, c.sale.Payer
	}
	return m
}

func (c *call) burned(s *x402.SettleResponse) *creditsMeta {
	return &creditsMeta{
		Success: true, TxHash: s.Transaction, CreditsRedeemed: s.CreditsRedeemed, RemainingBalance: s.RemainingBalance,
		PlanID: c.sale.PlanID, SubscriberAddress: c.sale.Payer,
	}
}

// withMeta returns a copy of a result with the outcome of the payment in _meta. It copies because the handler may keep the result.
func (c *call) withMeta(res mcp.Result, s *x402.SettleResponse, credits *creditsMeta) mcp.Result {
	if isNil(res) {
		return res
	}
	meta := mcp.Meta(maps.Clone(res.GetMeta()))
	if meta == nil {
		meta = mcp.Meta{}
	}
	delete(meta, x402.MetaResponse) // a proxy may pass on the receipt of an upstream call
	if s != nil {
		meta[x402.MetaResponse] = seller.Receipt(s)
	}
	meta[c.Namespace.MetaCredits()] = credits
	switch r := res.(type) {
	case *mcp.CallToolResult:
		out := *r
		out.Meta = meta
		return &out
	case *mcp.ReadResourceResult:
		out := *r
		out.Meta = meta
		if s != nil {
			out.Cacheable = mcp.Cacheable{CacheScope: cachePrivate} // other readers must pay
		}
		return &out
	case *mcp.GetPromptResult:
		out := *r
		out.Meta = meta
		return &out
	}
	return res
}

func wireError(err error) (*jsonrpc.Error, bool) { return errors.AsType[*jsonrpc.Error](err) }

// quoted returns an untrusted name as data for a model: one quoted line of at most 80 characters, or "".
func quoted(name string) string {
	name = strings.ReplaceAll(plain.Text(name, maxNameRunes), `"`, "'")
	if name == "" {
		return ""
	}
	return `"` + name + `"`
}
