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

// Config is shared by all paid items of a server.
type Config struct {
	// PlanID pays for items without the option [Plan]. If it is empty, AgentID is required and the plan of the access token pays, which the
	// service accepts if the agent has that plan. If both are empty, paid items return "Server misconfiguration: missing planId".
	PlanID toll.PlanID
	// AgentID names the agent that serves the items. It binds payments to the agent's endpoints.
	AgentID toll.AgentID
	// ServerName is the host of the logical urls mcp://<ServerName>/<type>/<name>, "" for mcp-server.
	ServerName string
	// EndpointURL is the absolute address of the MCP endpoint, for example "https://tools.example.com/mcp". A payment that the
	// service refuses for the logical url is verified again for it, so an agent may register either. A token for other
	// resources is refused (RFC 8707); "" skips that check.
	EndpointURL string
	// HoldSecs is the life of a hold in seconds, 1 to 900, 0 for 60. A call that takes longer may fail to settle.
	HoldSecs int
	// Timeout bounds each call to the facilitator, 0 for 30 s.
	Timeout time.Duration
	// Namespace holds the brand words on the wire, zero for [x402.Default].
	Namespace x402.Namespace
	// Queue settles streams that were delivered while the service was unreachable; nil for a new one. Drain it before exit.
	Queue *paid.Queue
	// OnUnsettled is the alarm for such streams, see [paid.OnUnsettled].
	OnUnsettled func(paid.Unsettled)
	// OnDisconnect sets how to handle a call whose caller disconnects or cancels it. The default is paid.Release for
	// resources, prompts and tools with the annotation readOnlyHint, and paid.Settle for other tools. See [OnDisconnect].
	OnDisconnect paid.Disconnect
	// AfterSettle runs after every settlement: a success, a refusal, or an outcome that is still unknown.
	AfterSettle func(ctx context.Context, receipt *x402.SettleResponse)
	// Log receives messages for the builder; nil logs warnings and errors to stderr. Access tokens are never logged.
	Log *slog.Logger
	// Clock returns the time; nil for time.Now.
	Clock func() time.Time
}

// Payments prices tools, resources and prompts. It may serve several servers of the SDK, and is safe for concurrent use.
type Payments struct {
	seller  *seller.Seller
	cfg     Config
	prices  priceList
	plans   *seller.Cache[toll.AgentID, []toll.PlanID]
	taken   *seller.Cache[string, bool] // whether the service settles entries for wallets, by their JSON
	callers sync.Map                    // running calls with a progress token: speaker -> *call
	servers sync.Map                    // protected servers: weak.Pointer[mcp.Server] -> struct{}
}

// bearerWarned is set after the one warning that bearer tokens as payments are deprecated.
var bearerWarned atomic.Bool

// New returns payments that f verifies and settles. f is a client.Client of a service, or the service in the same process.
func New(f x402.Facilitator, cfg Config) *Payments {
	cfg.ServerName = cmp.Or(cfg.ServerName, DefaultServerName)
	s := &seller.Seller{
		Facilitator: f, AgentID: cfg.AgentID, HoldSecs: cfg.HoldSecs, Timeout: cfg.Timeout, Namespace: cfg.Namespace, OnDisconnect: cfg.OnDisconnect,
		Queue: cfg.Queue, OnUnsettled: cfg.OnUnsettled, Log: cfg.Log, Clock: cfg.Clock, Room: "paidmcp", Item: "item",
	}
	s.SetDefaults()
	s.Terms = seller.NewTermsCache(f, s.Timeout, s.Clock)
	return &Payments{seller: s, cfg: cfg, plans: newPlans(s), taken: seller.NewCache[string, bool](nil, nil, s.Timeout, s.Clock)}
}

// Protect makes s demand payment for items with a price. The functions that add items call it; call it for items that are added
// by other means, with [Payments.Price] for their prices. A second call does nothing.
func (p *Payments) Protect(s *mcp.Server) {
	key := weak.Make(s)
	if _, done := p.servers.LoadOrStore(key, struct{}{}); done {
		return
	}
	runtime.AddCleanup(s, func(k weak.Pointer[mcp.Server]) { p.servers.Delete(k) }, key)
	s.AddReceivingMiddleware(p.receive)
	s.AddSendingMiddleware(p.send)
}
