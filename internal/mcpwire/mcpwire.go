// Package mcpwire has the parts of the protocol that the priced MCP server (paidmcp) and the proxy of toll mcp (mcpproxy)
// share: protocol versions, the caller in a context, and the spellings of a uri.
package mcpwire

import "context"

// Up to 2025-11-25 a client initializes a session and names it in each request; from 2026-07-28 each request stands alone.
// MCP-Protocol-Version selects the version; without it the older one applies.
const (
	FirstModern      = "2026-07-28"
	LastWithSessions = "2025-11-25"
)

// AnyName is the name of the price for items without their own.
const AnyName = "*"

type callerKey struct{}

// WithCaller returns a context with the sender of a message: the holder of a bearer token, or an address.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Caller returns the sender of [WithCaller], else "".
func Caller(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
