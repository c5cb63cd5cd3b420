package paidmcp

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Payment describes the payment of a call to its handler. It does not contain the access token.
type Payment struct {
	Payer          string // address of the subscriber
	PlanID         toll.PlanID
	AgentID        toll.AgentID // "" without an agent
	AgentRequestID string       // id of this call, its settlement and its receipt
	Amount         toll.Credits // credits held, the maximum that this call can cost
	// Exact is the entry of [PerCall] that a wallet pays, or nil if credits pay. With Exact, PlanID, AgentRequestID, and Amount are zero.
	Exact      *x402.ExactRequirements
	LogicalURL string // url of the item, for example "mcp://demo/tools/ask"
	// Verdict is the verified response of the facilitator. It is shared: treat it as read-only.
	Verdict *x402.VerifyResponse
}

type (
	paymentKey struct{}
	callKey    struct{}
	bearerKey  struct{} // bearer token of a request, as a string
	streamKey  struct{}
)

// FromContext returns the payment of the current call. It returns false for free items and items without a price.
func FromContext(ctx context.Context) (Payment, bool) {
	p, ok := ctx.Value(paymentKey{}).(Payment)
	return p, ok
}
