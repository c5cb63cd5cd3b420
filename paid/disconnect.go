package paid

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/tollhq/toll/internal/seller"
)

// Disconnect says what becomes of a request whose caller goes away before it has its answer.
type Disconnect = seller.Disconnect

// What becomes of such a request.
const (
	// DisconnectByMethod is the default: Release for GET, HEAD and OPTIONS, Settle for every other method.
	DisconnectByMethod = seller.DisconnectByMethod
	// Settle lets the handler work to its end, at most as long as the hold lasts, and settles a 2xx: what it did cannot be
	// taken back. The context of the handler does not end with the caller, unless it streams.
	Settle = seller.DisconnectSettle
	// Release ends the context of the handler and gives the hold back. Work that is finished all the same is free.
	Release = seller.DisconnectRelease
)

// OnDisconnect says what becomes of a request whose caller goes away, default [DisconnectByMethod]. See "Callers who leave" in the
// documentation of the package. Other values panic.
func OnDisconnect(g Disconnect) Option {
	g.Check("paid")
	return func(c *config) { c.OnDisconnect = g }
}

// settlesDisconnected reports whether work that succeeds is settled although its caller has gone.
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

// disconnected reports whether the caller has gone away.
func (x *exchange) disconnected() bool { return seller.Left(x.r.Context()) }

// workContext is the context of the handler. It ends with that of the request, but a caller who leaves ends it only
//
//   - where the work would not be settled,
//   - once the answer streams (begun), as nobody reads on, and
//   - when the hold is over, which bounds what callers who left can keep running.
func (x *exchange) workContext(begun *atomic.Bool) (context.Context, context.CancelCauseFunc) {
	request := context.WithValue(x.r.Context(), paymentKey{}, x.payment())
	if !x.settlesDisconnected() {
		return context.WithCancelCause(request)
	}
	return x.sale.WorkContext(request, func() bool { return !begun.Load() })
}

// worked reports whether an answer for a caller who left is to be settled: the handler succeeded, with the whole request.
func (x *exchange) worked(a *writer, in *body, work context.Context) bool {
	switch {
	case !x.settlesDisconnected() || !x.disconnected() || !success(a.status) || in.tooLarge.Load() || in.cut.Load():
		return false
	case work.Err() != nil && !a.spoke:
		return false // a handler that gave up says nothing, and that is no 200
	}
	return a.left || !a.broken()
}
