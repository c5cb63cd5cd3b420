// Package mcpwire has the parts of MCP that the priced server (paidmcp) and the proxy of toll mcp (mcpproxy) share: protocol
// versions, the caller in a context ([WithCaller]), and the spellings of a uri ([ReadAs], [Spellings]).
package mcpwire

import "context"

// Up to 2025-11-25 a client initializes a session and names it in each request; from 2026-07-28 requests are stateless. The
// MCP-Protocol-Version header selects the version. Without it, the older version applies.
const (
	FirstModern      = "2026-07-28"
	LastWithSessions = "2025-11-25"
)

// AnyName is the name of the price that applies to items without a price under their name.
const AnyName = "*"

type callerKey struct{}

// WithCaller returns a context with the sender of a message: the holder of a bearer token, or an address.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Caller returns the sender stored by [WithCaller], or "".
func Caller(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
