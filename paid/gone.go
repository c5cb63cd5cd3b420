package paid

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/tollhq/toll/internal/seller"
)

// Gone says what becomes of a request whose caller goes away before it has its answer.
type Gone = seller.Gone

// What becomes of such a request.
const (
	// GoneByMethod is the default: Release for GET, HEAD and OPTIONS, Settle for every other method.
	GoneByMethod = seller.GoneByMethod
	// Settle lets the handler work to its end, at most as long as the hold lasts, and settles a 2xx: what it did cannot be
	// taken back. The context of the handler does not end with the caller, unless it streams.
	Settle = seller.GoneSettle
	// Release ends the context of the handler and gives the hold back. Work that is finished all the same is free.
	Release = seller.GoneRelease
)

// CallerGone says what becomes of a request whose caller goes away, default [GoneByMethod]. See "Callers who leave" in the
// documentation of the package. Other values panic.
func CallerGone(g Gone) Option {
	g.Check("paid")
	return func(c *config) { c.CallerGone = g }
}

// settlesGone reports whether work that succeeds is settled although its caller has gone.
func (x *exchange) settlesGone() bool {
	if x.c.CallerGone != GoneByMethod {
		return x.c.CallerGone == Settle
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// gone reports whether the caller has gone away.
func (x *exchange) gone() bool { return seller.Left(x.r.Context()) }

// workContext is the context of the handler. It ends with that of the request, but a caller who leaves ends it only
//
//   - where the work would not be settled,
//   - once the answer streams (begun), as nobody reads on, and
//   - when the hold is over, which bounds what callers who left can keep running.
func (x *exchange) workContext(begun *atomic.Bool) (context.Context, context.CancelCauseFunc) {
	request := context.WithValue(x.r.Context(), paymentKey{}, x.payment())
	if !x.settlesGone() {
		return context.WithCancelCause(request)
	}
	return x.sale.WorkContext(request, func() bool { return !begun.Load() })
}

// worked reports whether an answer for a caller who left is to be settled: the handler succeeded, with the whole request.
func (x *exchange) worked(a *writer, in *body, work context.Context) bool {
	switch {
	case !x.settlesGone() || !x.gone() || !success(a.status) || in.tooLarge.Load() || in.cut.Load():
		return false
	case work.Err() != nil && !a.spoke:
		return false // a handler that gave up says nothing, and that is no 200
	}
	return a.left || !a.broken()
}
