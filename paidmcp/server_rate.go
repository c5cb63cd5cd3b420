package paidmcp

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/mcpwire"
	"github.com/tollhq/toll/internal/meter"
)

const (
	methodComplete = "completion/complete"
	completionRate = 120 // a minute
	// codeLimit is the code for a rate limit, as in other JSON-RPC servers.
	codeLimit = -32005
)

// perMinute returns a meter that allows most calls per minute and key.
func perMinute[K comparable](most int) *meter.Meter[K] {
	return meter.New[K](time.Minute/time.Duration(most), int64(most))
}

// now returns the time in the form that meters take: the duration since the Unix epoch.
func now(clock func() time.Time) time.Duration { return time.Duration(clock().UnixNano()) }

// limitCompletions returns middleware that limits completion/complete to 120 calls per minute and caller, as they have no price.
func limitCompletions(clock func() time.Time) mcp.Middleware {
	calls := perMinute[string](completionRate)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == methodComplete && !calls.Take(mcpwire.Caller(ctx), 1, now(clock)).OK {
				return nil, &jsonrpc.Error{Code: codeLimit, Message: "Too many completion requests. Retry in a minute."}
			}
			return next(ctx, method, req)
		}
	}
}
