package paidmcp

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	methodComplete = "completion/complete"
	completionRate = 120 // a minute
	maxRated       = 10_000
	// codeLimit is what other servers of JSON-RPC answer with, too.
	codeLimit = -32005
)

// completions lets each caller make so many calls of completion/complete a minute: they have no price.
type completions struct {
	most  int // below 0: any number
	clock func() time.Time

	mu    sync.Mutex
	since time.Time
	calls map[string]int // in this minute, by caller
}

func (c *completions) pass(who string) bool {
	if c.most < 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.clock(); c.calls == nil || now.Sub(c.since) >= time.Minute || now.Before(c.since) {
		c.since, c.calls = now, make(map[string]int)
	}
	if _, known := c.calls[who]; !known && len(c.calls) >= maxRated {
		who = "" // those who come late share one rate
	}
	if c.calls[who] >= c.most {
		return false
	}
	c.calls[who]++
	return true
}

// limit is the middleware that refuses completions above the rate.
func (c *completions) limit(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == methodComplete && !c.pass(callerOf(ctx)) {
			return nil, &jsonrpc.Error{Code: codeLimit, Message: "There are too many completions. Retry in a minute."}
		}
		return next(ctx, method, req)
	}
}
