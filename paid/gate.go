package paid

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Handler puts a price on h: every request to it is paid.
func Handler(f x402.Facilitator, h http.Handler, opts ...Option) http.Handler {
	_ = newConfig(opts)
	return h
}

// Unsettled is a stream that was delivered and is not settled.
type Unsettled struct {
	AgentRequestID string
	PlanID         toll.PlanID
	Payer          string
	Credits        toll.Credits
	Bytes          int64 // body bytes that were delivered
	Attempts       int
	Since          time.Time
	Final          bool // the queue has given up
	Err            error
}

// Queue holds streams that wait for their settlement.
type Queue struct{}

// NewQueue returns an empty queue.
func NewQueue() *Queue { return &Queue{} }

// Len returns how many streams wait.
func (q *Queue) Len() int { return 0 }

// Drain tries to settle everything that waits, and returns when the queue is empty or ctx ends.
func (q *Queue) Drain(ctx context.Context) error { return nil }

// Route is one entry of a price list.
type Route struct{}

// At is a paid route with a key "METHOD /path".
func At(key string, opts ...Option) Route { return Route{} }

// Free is a route with a key "METHOD /path" that costs nothing.
func Free(key string) Route { return Route{} }

// Default is the paid route for everything that no key matches.
func Default(opts ...Option) Route { return Route{} }

// With holds options of all routes.
func With(opts ...Option) Route { return Route{} }

// Routes puts prices on parts of next; what matches no key passes untouched.
func Routes(f x402.Facilitator, next http.Handler, routes ...Route) http.Handler { return next }

// Proxy is a reverse proxy with a price list.
func Proxy(f x402.Facilitator, upstream *url.URL, routes ...Route) http.Handler { return nil }
