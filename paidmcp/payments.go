package paidmcp

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// Defaults of [Config].
const (
	DefaultServerName = "mcp-server"
	DefaultTimeout    = seller.DefaultTimeout
)

// Config is what all paid items of a server share.
type Config struct {
	// PlanID names the plan whose credits pay for items that name none themselves. Without it AgentID must be there: a call is
	// then paid with the plan of its access token, which the service takes when the agent has that plan. With neither, paid
	// items answer "Server misconfiguration: missing planId".
	PlanID toll.PlanID
	// AgentID names the agent that serves the items. It binds payments to the agent's endpoints.
	AgentID toll.AgentID
	// ServerName is the host of the logical urls mcp://<ServerName>/<type>/<name>, "" for mcp-server.
	ServerName string
	// EndpointURL is the absolute address of the MCP endpoint, for example "https://tools.example.com/mcp". A payment that the
	// service refuses for the logical url is verified once more for it, so that an agent may register either. A token that is for
	// other resources only is refused (RFC 8707); "" asks none.
	EndpointURL string
	// HoldSecs is the life of a hold in seconds, 1 to 900, 0 for 60. A call that takes longer may fail to settle.
	HoldSecs int
	// Timeout bounds each call to the facilitator, 0 for 30 s.
	Timeout time.Duration
	// Namespace holds the brand words on the wire, zero for [x402.Default].
	Namespace x402.Namespace
	// Queue settles streams that were delivered while the service was away; nil for one of its own. Drain it before the program
	// exits.
	Queue *paid.Queue
	// OnUnsettled is the alarm for such streams, see [paid.OnUnsettled].
	OnUnsettled func(paid.Unsettled)
	// OnDisconnect says what becomes of a call whose caller goes away or cancels it. The zero value,
	// paid.DisconnectByMethod, is paid.Release for resources, prompts and tools with the annotation
	// readOnlyHint, and paid.Settle for other tools. See [OnDisconnect].
	OnDisconnect paid.Disconnect
	// AfterSettle runs after every settlement: a success, a refusal, or an outcome that is still unknown.
	AfterSettle func(ctx context.Context, receipt *x402.SettleResponse)
	// Log receives what the builder should know; nil writes warnings and errors to stderr. Access tokens are never logged.
	Log *slog.Logger
	// Clock is the time; nil for time.Now.
	Clock func() time.Time
}

// Payments puts prices on tools, resources and prompts. One may serve several servers of the SDK, and is safe for concurrent
// use.
type Payments struct {
	seller  *seller.Seller
	cfg     Config
	prices  priceList
	plans   *seller.Cache[toll.AgentID, []toll.PlanID]
	callers sync.Map // of streams that talk: speaker -> *call
	servers sync.Map // weak.Pointer[mcp.Server] -> struct{}: those that are protected
}

// bearerWarned is done when the process was told once that a bearer token as payment is deprecated.
var bearerWarned atomic.Bool

// New returns payments that f decides about: a client.Client of a service, or the service itself in the same process.
func New(f x402.Facilitator, cfg Config) *Payments {
	cfg.ServerName = cmp.Or(cfg.ServerName, DefaultServerName)
	s := &seller.Seller{
		Facilitator: f, AgentID: cfg.AgentID, HoldSecs: cfg.HoldSecs, Timeout: cfg.Timeout, Namespace: cfg.Namespace, OnDisconnect: cfg.OnDisconnect,
		Queue: cfg.Queue, OnUnsettled: cfg.OnUnsettled, Log: cfg.Log, Clock: cfg.Clock, Room: "paidmcp", Item: "item",
	}
	s.SetDefaults()
	s.Terms = seller.NewTermsCache(f, s.Timeout, s.Clock)
	return &Payments{seller: s, cfg: cfg, plans: newPlans(s)}
}

// Protect makes s ask for payment for whatever has a price. The functions that add items call it; it is for servers whose
// items are added by other means, with [Payments.Price] for their prices. A second call does nothing.
func (p *Payments) Protect(s *mcp.Server) {
	key := weak.Make(s)
	if _, done := p.servers.LoadOrStore(key, struct{}{}); done {
		return
	}
	runtime.AddCleanup(s, func(k weak.Pointer[mcp.Server]) { p.servers.Delete(k) }, key)
	s.AddReceivingMiddleware(p.receive)
	s.AddSendingMiddleware(p.send)
}
