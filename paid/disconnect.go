package paid

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/tollhq/toll/internal/seller"
)

// Disconnect chooses what happens to a request whose caller disconnects before receiving the response.
type Disconnect = seller.Disconnect

const (
	// DisconnectByMethod is the default: Release for GET, HEAD and OPTIONS, Settle for every other method.
	DisconnectByMethod = seller.DisconnectByMethod
	// Settle lets the handler finish, at most until the hold ends, and settles a 2xx, because its effects cannot be undone. A
	// disconnect ends the handler's context only if the response streams.
	Settle = seller.DisconnectSettle
	// Release ends the handler's context and releases the hold. Work that still finishes is free.
	Release = seller.DisconnectRelease
)

// OnDisconnect chooses what happens to a request whose caller disconnects, default [DisconnectByMethod]. See "Disconnects"
// in the package documentation. It panics for other values.
func OnDisconnect(g Disconnect) Option {
	g.Check("paid")
	return func(c *config) { c.OnDisconnect = g }
}

// settlesDisconnected reports whether successful work is settled even if its caller has disconnected.
func (x *exchange) settlesDisconnected() bool {
	if x.c.OnDisconnect != DisconnectByMethod {
		return x.c.OnDisconnect == Settle
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

func (x *exchange) disconnected() bool { return seller.Left(x.r.Context()) }

// workContext returns the handler's context, which ends with the request. If work for a disconnected caller is settled, a disconnect
// ends it at once only while the response streams (begun), and otherwise when the hold ends, which bounds work without a caller.
func (x *exchange) workContext(begun *atomic.Bool) (context.Context, context.CancelCauseFunc) {
	request := context.WithValue(x.r.Context(), paymentKey{}, x.payment())
	if !x.settlesDisconnected() {
		return context.WithCancelCause(request)
	}
	return x.sale.WorkContext(request, func() bool { return !begun.Load() })
}

// worked reports whether to settle the response for a disconnected caller: the handler succeeded and the request was complete.
func (x *exchange) worked(a *writer, in *body, work context.Context) bool {
	switch {
	case !x.settlesDisconnected() || !x.disconnected() || !success(a.status) || in.tooLarge.Load() || in.cut.Load():
		return false
	case work.Err() != nil && !a.spoke:
		return false // the handler gave up without a response, so the implicit 200 does not count
	}
	return a.left || !a.broken()
}
