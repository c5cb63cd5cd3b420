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
	// codeLimit is the code that other JSON-RPC servers use.
	codeLimit = -32005
)

// perMinute returns a meter of so many acts a minute for each key.
func perMinute[K comparable](most int) *meter.Meter[K] {
	return meter.New[K](time.Minute/time.Duration(most), int64(most))
}

// now is the time in the form that meters take.
func now(clock func() time.Time) time.Duration { return time.Duration(clock().UnixNano()) }

// limitCompletions is the middleware that limits the calls of completion/complete per caller, as they have no price.
func limitCompletions(clock func() time.Time) mcp.Middleware {
	calls := perMinute[string](completionRate)
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == methodComplete && !calls.Take(mcpwire.Caller(ctx), 1, now(clock)).OK {
				return nil, &jsonrpc.Error{Code: codeLimit, Message: "There are too many completions. Retry in a minute."}
			}
			return next(ctx, method, req)
		}
	}
}
