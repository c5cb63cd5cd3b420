package paid

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/tollhq/toll/internal/seller"
)

// Disconnect chooses what happens to a request whose caller disconnects before it has its response.
type Disconnect = seller.Disconnect

const (
	// DisconnectByMethod is the default: Release for GET, HEAD and OPTIONS, Settle for every other method.
	DisconnectByMethod = seller.DisconnectByMethod
	// Settle lets the handler finish, at most while the hold lasts, and settles a 2xx, because its effects cannot be undone.
	// The context of the handler ends with the caller only if it streams.
	Settle = seller.DisconnectSettle
	// Release ends the context of the handler and releases the hold. Work that still finishes is free.
	Release = seller.DisconnectRelease
)

// OnDisconnect chooses what happens to a request whose caller disconnects, default [DisconnectByMethod]. See "Disconnects"
// in the package documentation. Other values panic.
func OnDisconnect(g Disconnect) Option {
	g.Check("paid")
	return func(c *config) { c.OnDisconnect = g }
}

// settlesDisconnected reports whether successful work is settled although its caller disconnected.
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

// workContext returns the context of the handler, which ends with the request. A disconnect ends it only if the work would not
// be settled, once the response streams (begun), or when the hold ends, which bounds work without a caller.
func (x *exchange) workContext(begun *atomic.Bool) (context.Context, context.CancelCauseFunc) {
	request := context.WithValue(x.r.Context(), paymentKey{}, x.payment())
	if !x.settlesDisconnected() {
		return context.WithCancelCause(request)
	}
	return x.sale.WorkContext(request, func() bool { return !begun.Load() })
}

// worked reports whether the response for a disconnected caller is settled: the handler succeeded, with the whole request.
func (x *exchange) worked(a *writer, in *body, work context.Context) bool {
	switch {
	case !x.settlesDisconnected() || !x.disconnected() || !success(a.status) || in.tooLarge.Load() || in.cut.Load():
		return false
	case work.Err() != nil && !a.spoke:
		return false // a handler that gave up says nothing, and that is no 200
	}
	return a.left || !a.broken()
}
