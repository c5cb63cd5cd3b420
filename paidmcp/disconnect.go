package paidmcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/paid"
)

// OnDisconnect sets how to handle a call of the item whose caller disconnects or cancels it. It overrides [Config.OnDisconnect].
// See "Disconnects" in the package documentation.
func OnDisconnect(g paid.Disconnect) Option {
	g.Check("paidmcp")
	return func(pr *price) { pr.disconnect = g }
}

// settlesDisconnected reports whether a successful call is settled even if its caller disconnected.
func (c *call) settlesDisconnected(ctx context.Context) bool {
	g := c.price.disconnect
	if g == paid.DisconnectByMethod {
		g = c.OnDisconnect
	}
	if g == paid.DisconnectByMethod {
		return c.kind == Tools && !c.isReadOnly(ctx)
	}
	return g == paid.Settle
}

// workContext returns the context of the handler, which ends with the context of the call. A disconnect ends it only if the work would not
// be settled, once a stream has begun, or when the hold ends, which bounds work without a caller. settles is called after the disconnect.
func (c *call) workContext(call context.Context, settles func() bool) (context.Context, context.CancelCauseFunc) {
	return c.sale.WorkContext(call, func() bool { return c.notices.delivered() == 0 && settles() })
}

// maxListed bounds the pages of one list.
const maxListed = 1000

// isReadOnly reports whether the tool of a call has the annotation readOnlyHint. It lists the tools each time, because annotations
// may change. For an unknown tool, or if listing fails, it returns false.
func (c *call) isReadOnly(ctx context.Context) bool {
	session, ok := c.req.GetSession().(*mcp.ServerSession)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
	defer cancel()
	params := &mcp.ListToolsParams{}
	for range maxListed {
		res, err := c.next(ctx, methodListTools, &mcp.ListToolsRequest{Session: session, Params: params})
		list, ok := res.(*mcp.ListToolsResult)
		if err != nil || !ok || list == nil {
			return false
		}
		for _, t := range list.Tools {
			if t != nil && t.Name == c.name {
				return t.Annotations != nil && t.Annotations.ReadOnlyHint
			}
		}
		if params.Cursor = list.NextCursor; params.Cursor == "" {
			return false
		}
	}
	return false
}
