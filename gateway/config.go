package gateway

import (
	"encoding/json"

	"github.com/tollhq/toll"
)

// Config is what an operator sets, in the file of the core or in the configuration of the plugin
// (wire names as JSON). A zero field is not set: the next source decides, then the default.
// Precedence: login, plugin, environment and file of the core.
type Config struct {
	// APIKey is "<prefix>:<jwt>" or a bare JWT. It has a second name on the wire, the one of the
	// interface, which the namespace holds.
	APIKey string `json:"apiKey,omitempty"`
	// Environment is sandbox or live, default sandbox. The prefix of a key wins over it.
	Environment toll.Environment `json:"environment,omitempty"`
	// PlanID and AgentID are the defaults of tools, context and paid endpoint.
	PlanID  toll.PlanID  `json:"planId,omitempty"`
	AgentID toll.AgentID `json:"agentId,omitempty"`
	// CreditsPerRequest is what the paid endpoint burns, default 1, at least 1.
	CreditsPerRequest toll.Credits `json:"creditsPerRequest,omitzero"`

	EnablePaidEndpoint *bool  `json:"enablePaidEndpoint,omitempty"` // default false
	AgentEndpointPath  string `json:"agentEndpointPath,omitempty"`  // default "/" + word + "/agent"
	// PublicURL is the public address of the paid endpoint, without its path.
	PublicURL string `json:"publicUrl,omitempty"`
	// BaseURL is the address of the service; its default follows from the environment.
	BaseURL string `json:"baseUrl,omitempty"`

	PaymentType     string `json:"paymentType,omitempty"` // "crypto" (default) or "fiat"
	PaymentMethodID string `json:"paymentMethodId,omitempty"`

	DefaultSpendingLimitCents     *toll.Cents `json:"defaultSpendingLimitCents,omitempty"`     // default 1000; a proposal in quotes
	DefaultDelegationDurationSecs *int64      `json:"defaultDelegationDurationSecs,omitempty"` // default 3600
	MaxSpendingLimitCents         *toll.Cents `json:"maxSpendingLimitCents,omitempty"`         // default 1000
	MaxOrderCents                 *toll.Cents `json:"maxOrderCents,omitempty"`                 // default 0: no cap

	OwnerOnlySpending  *bool  `json:"ownerOnlySpending,omitempty"`  // default true
	SpendApproval      string `json:"spendApproval,omitempty"`      // "confirm" (default) or "host"
	AllowKeyPaste      *bool  `json:"allowKeyPaste,omitempty"`      // default true
	AllowPrivateAgents *bool  `json:"allowPrivateAgents,omitempty"` // default true on sandbox, false on live

	AgentHandler *HandlerConfig `json:"agentHandler,omitempty"` // default demo on sandbox, none on live

	// Of the plugin; the core checks and otherwise ignores them.
	CoreURL       string `json:"coreUrl,omitempty"`
	CoreTokenFile string `json:"coreTokenFile,omitempty"`
	StartCore     *bool  `json:"startCore,omitempty"`
	CoreBinary    string `json:"coreBinary,omitempty"`
}

// HandlerConfig says who answers paid requests.
type HandlerConfig struct {
	Kind  string `json:"kind"`            // "demo", "http" or "host"
	URL   string `json:"url,omitempty"`   // of "http"; of "host" the base address of the host's chat completions
	Agent string `json:"agent,omitempty"` // of "host": the name of an agent without tools
	// Token is the bearer token of "host"; Headers go with each request of "http".
	Token   string            `json:"token,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// PaidRequest is a verified request of the paid endpoint.
type PaidRequest struct {
	Prompt         string       `json:"prompt"`
	AgentRequestID string       `json:"agentRequestId"`
	PlanID         toll.PlanID  `json:"planId"`
	Subscriber     toll.Address `json:"subscriber"`
}

// settings are a Config with all defaults, checked. They are immutable.
type settings struct {
	Config
	paidEndpoint, ownerOnly, keyPaste, privateAgents bool
	handler                                          HandlerConfig // Kind "" for none
	proposedLimit, maxLimit, maxOrder                toll.Cents
	delegationSecs                                   int64
}

// decodeConfig reads a Config strictly: unknown and repeated members are refused by name.
func decodeConfig(raw json.RawMessage) (Config, error) {
	panic("G1")
}

// over returns c with what is not set in it taken from lower.
func (c Config) over(lower Config) Config { panic("G1") }

// resolve checks c and fills in the defaults. Errors name the field and the accepted form.
func (c Config) resolve() (settings, error) { panic("G1") }
