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
	AgentID        toll.AgentID // "" when there is none
	AgentRequestID string       // id of this call, of its settlement and of its receipt
	Amount         toll.Credits // credits set aside, the most that this call can cost
	LogicalURL     string       // of the item, for example "mcp://demo/tools/ask"
	// Verdict is the verified response of the facilitator. It is shared: treat it as read-only.
	Verdict *x402.VerifyResponse
}

type (
	paymentKey struct{}
	callKey    struct{}
	bearerKey  struct{} // of the bearer token of a request, for the layer of payments
	streamKey  struct{}
)

// FromContext returns the payment of the current call, and false for free items and those without a price.
func FromContext(ctx context.Context) (Payment, bool) {
	p, ok := ctx.Value(paymentKey{}).(Payment)
	return p, ok
}
