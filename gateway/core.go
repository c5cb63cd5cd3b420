package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tollhq/toll/x402"
)

// Options make a [Core]. Only Dir is required.
type Options struct {
	Config Config // of the core's file and environment
	// Dir is the data directory: core token, key store, its master key. It is made with mode 0700.
	Dir string
	// Names are the words of the wire; the zero value is [x402.Default].
	Names x402.Namespace
	// Handler answers paid requests when the core is part of another program; it wins over
	// Config.AgentHandler. Its result is encoded as JSON.
	Handler func(ctx context.Context, r PaidRequest) (any, error)
	// CoreToken is the core token; "" reads it from Dir, where the first start writes it.
	CoreToken string
	// Listen is the address on which the core is served, such as 127.0.0.1:8791. Requests to agents
	// do not go there.
	Listen string
	// Hosts are values of the Host header that are allowed besides those of loopback.
	Hosts   []string
	Version string           // of the program, in /gateway/v1/health
	Log     *slog.Logger     // nil discards
	Now     func() time.Time // nil: time.Now
	// ServiceClient makes the requests to the service; nil for the default. For tests.
	ServiceClient *http.Client
}

// Core is the core of the chat gateway. It is safe for concurrent use.
type Core struct {
	opts Options
	now  func() time.Time
	log  *slog.Logger

	reach reach

	mu       sync.Mutex
	plugin   Config   // of the last hello
	settings settings // Options.Config and plugin, resolved
	// current is nil without a key. Whoever changes settings sets it to nil: account makes it anew.
	current *account
}

// Call runs a tool by its full name. params is one JSON object or empty. The result is one JSON
// object; every error is an [*Error].
func (c *Core) Call(ctx context.Context, name string, params []byte, callID string, caller Caller) (any, error) {
	panic("G1")
}
