// Package mcpwire has what the priced MCP server (paidmcp) and the proxy of toll mcp (mcpproxy) both know of the protocol: its two eras,
// the name of a caller in a context, and the spellings of a uri.
package mcpwire

import "context"

// The protocol has two eras. Up to 2025-11-25 a client initializes a session and names it in each request; from 2026-07-28
// each request stands alone. MCP-Protocol-Version chooses, and a request without it is of the older one.
const (
	FirstModern      = "2026-07-28"
	LastWithSessions = "2025-11-25"
)

// AnyName is the name of the price that counts for items without one.
const AnyName = "*"

type callerKey struct{}

// WithCaller returns a context that names the sender of a message: the holder of a bearer token, or an address.
func WithCaller(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, callerKey{}, name)
}

// Caller returns the name that [WithCaller] has put into a context, "" without one.
func Caller(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}
