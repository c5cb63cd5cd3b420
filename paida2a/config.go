package paida2a

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2asrv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// ExtensionURI identifies x402 payments over A2A in the agent card and in the header X-A2A-Extensions.
const ExtensionURI = "https://github.com/google-a2a/a2a-x402/v0.1"

// Defaults of [Config].
const (
	DefaultTimeout      = seller.DefaultTimeout
	DefaultMaxTasks     = 10_000
	DefaultMaxBytes     = 256 << 20
	DefaultTaskLife     = time.Hour
	DefaultMaxBodyBytes = 256 << 10
)

const (
	pathOldCard     = "/.well-known/agent.json"
	protocolVersion = "0.3.0"
)

// Config sets the price of a task and the presentation of the agent.
type Config struct {
	// PlanID is the plan whose credits pay. It is required.
	PlanID toll.PlanID
	// AgentID is the agent that serves the tasks. It binds payments to the agent's endpoints.
	AgentID toll.AgentID
	// Credits is the price of one run of the agent, 0 for 1.
	Credits toll.Credits
	// Card describes the agent. The served card adds the capabilities, the extension, and, if they are empty, the protocol version
	// and the transport. Its Description and the first of its DefaultOutputModes are part of the demand.
	Card a2a.AgentCard
	// EndpointURL is the absolute URL of the paid resource, as registered for the agent; "" for the URL of the card. Access tokens
	// for other resources are rejected (RFC 8707).
	EndpointURL string
	// HoldSecs is the life of a hold in seconds, 1 to 900, 0 for 60. While the agent works, the hold is renewed at half of its
	// life, for at most 24 hours, even without a caller, because the task can be fetched later.
	HoldSecs int
	// Timeout bounds each call to the facilitator, 0 for 30 s.
	Timeout time.Duration
	// MaxTasks bounds the tasks in memory, 0 for 10,000. Unpaid tasks, open or ended, are evicted first, starting with addresses
	// that use more than a sixteenth of the memory.
	MaxTasks int
	// MaxBytes bounds the JSON of all tasks in bytes, 0 for 256 MiB. A new paid result is stored even if it exceeds the bound.
	MaxBytes int64
	// TaskLife is the time from the last change of a task until it is deleted, 0 for an hour.
	TaskLife time.Duration
	// MaxBodyBytes bounds a request body in bytes, 0 for 256 KiB.
	MaxBodyBytes int64
	// Namespace holds the brand words on the wire, zero for [x402.Default].
	Namespace x402.Namespace
	// OnDisconnect chooses what happens to work whose caller disconnects or cancels it, default paid.Settle. See "Disconnects"
	// in the package documentation.
	OnDisconnect paid.Disconnect
	// AfterSettle runs after every settlement: a success, a refusal, or a still unknown outcome. It may be nil.
	AfterSettle func(ctx context.Context, receipt *x402.SettleResponse)
	// Log is the log for the builder; nil logs warnings and errors to stderr. Access tokens are never logged.
	Log *slog.Logger
	// Clock returns the current time; nil for time.Now.
	Clock func() time.Time
}

// seller returns the seller of this configuration, and the configuration with its defaults.
func (c Config) seller(f x402.Facilitator) (*seller.Seller, Config) {
	s := &seller.Seller{
		Facilitator: f, AgentID: c.AgentID, HoldSecs: c.HoldSecs, Timeout: c.Timeout, Namespace: c.Namespace, OnDisconnect: c.OnDisconnect,
		Log: c.Log, Clock: c.Clock, Room: "paida2a", Item: "task",
	}
	s.SetDefaults()
	s.Terms = seller.NewTermsCache(f, s.Timeout, s.Clock)
	c.EndpointURL = cmp.Or(c.EndpointURL, c.Card.URL)
	c.Credits = cmp.Or(max(c.Credits, 0), 1)
	c.MaxTasks = cmp.Or(max(c.MaxTasks, 0), DefaultMaxTasks)
	c.MaxBytes = cmp.Or(max(c.MaxBytes, 0), DefaultMaxBytes)
	c.TaskLife = cmp.Or(max(c.TaskLife, 0), DefaultTaskLife)
	c.MaxBodyBytes = cmp.Or(max(c.MaxBodyBytes, 0), DefaultMaxBodyBytes)
	return s, c
}

// card returns the served card.
func (c *Config) card() *a2a.AgentCard {
	card := c.Card
	card.Capabilities.Streaming = true
	card.Capabilities.PushNotifications = false
	card.SupportsAuthenticatedExtendedCard = false
	card.Capabilities.Extensions = slices.DeleteFunc(slices.Clone(card.Capabilities.Extensions), func(e a2a.AgentExtension) bool {
		return e.URI == ExtensionURI
	})
	card.Capabilities.Extensions = append(card.Capabilities.Extensions, a2a.AgentExtension{
		URI: ExtensionURI, Description: "Tasks are paid with x402 payments.", Required: true,
	})
	card.ProtocolVersion = cmp.Or(card.ProtocolVersion, protocolVersion)
	card.PreferredTransport = cmp.Or(card.PreferredTransport, a2a.TransportProtocolJSONRPC)
	// Required arrays are empty rather than null, because clients in other languages do not expect null.
	card.DefaultInputModes = notNil(card.DefaultInputModes)
	card.DefaultOutputModes = notNil(card.DefaultOutputModes)
	card.Security = withScopes(card.Security)
	card.Skills = notNil(slices.Clone(card.Skills))
	for i := range card.Skills {
		card.Skills[i].Tags = notNil(card.Skills[i].Tags)
		card.Skills[i].Security = withScopes(card.Skills[i].Security)
	}
	return &card
}

// notNil returns s, or an empty slice for nil, which JSON would encode as null.
func notNil[S ~[]E, E any](s S) S {
	if s == nil {
		return S{}
	}
	return s
}

// withScopes returns a copy of security requirements without nil scopes.
func withScopes(all []a2a.SecurityRequirements) []a2a.SecurityRequirements {
	out := slices.Clone(all)
	for i, r := range out {
		out[i] = maps.Clone(r)
		for name, scopes := range r {
			out[i][name] = notNil(scopes)
		}
	}
	return out
}

// Handler serves an agent of the Go SDK for A2A. f verifies and settles payments: a client.Client, or the service in the same
// process. The handler serves JSON-RPC at POST / and the agent card at /.well-known/agent-card.json and /.well-known/agent.json.
// It is safe for concurrent use.
func Handler(f x402.Facilitator, agent a2asrv.AgentExecutor, cfg Config) http.Handler {
	d := newHandler(f, agent, cfg)
	mux := http.NewServeMux()
	card := a2asrv.NewStaticAgentCardHandler(d.cfg.card())
	mux.Handle(a2asrv.WellKnownAgentCardPath, card)
	mux.Handle(pathOldCard, card)
	mux.Handle("POST /{$}", &rpcHandler{log: d.Log, maxBody: d.cfg.MaxBodyBytes, rpc: seller.Pulsing(a2asrv.NewJSONRPCHandler(d))})
	return mux
}
