package toll

import (
	"log/slog"
	"slices"
	"time"
)

// Limits of an agent (wire contract, section 1). MaxCredentialsBytes bounds the header block that carries upstream secrets.
const (
	MaxEndpoints        = 256
	MaxPlansPerAgent    = 64
	MaxCredentialsBytes = 16 << 10
)

// AgentAPI describes how to reach an agent.
type AgentAPI struct {
	Endpoints          EndpointList `json:"endpoints"`
	OpenEndpoints      []string     `json:"openEndpoints"`
	AgentDefinitionURL string       `json:"agentDefinitionUrl,omitempty"`
	AuthType           string       `json:"authType"` // none, basic, oauth or bearer
	StrictEndpoints    bool         `json:"strictEndpoints"`
	HasCredentials     bool         `json:"hasCredentials"` // upstream secrets are stored, write-only
}

// Credentials are the upstream secrets of an agent. They are write-only: no record shows them. They are sealed before they
// are stored, and print as a fixed word.
type Credentials struct {
	Username string            `json:"username,omitempty"`
	Password string            `json:"password,omitempty"`
	Token    string            `json:"token,omitempty"`
	APIKey   string            `json:"apiKey,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
}

const redacted = "[credentials]"

// String hides the secrets.
func (Credentials) String() string { return redacted }

// GoString hides the secrets.
func (Credentials) GoString() string { return redacted }

// LogValue hides the secrets.
func (Credentials) LogValue() slog.Value { return slog.StringValue(redacted) }

// PlanRef names a plan of an agent.
type PlanRef struct {
	PlanID PlanID `json:"planId"`
	Name   string `json:"name"`
}

// Agent is the paid service of a builder. Its JSON is the union of both dialects (wire contract, section 7).
type Agent struct {
	ID        AgentID
	Owner     Address
	Metadata  Metadata
	API       AgentAPI
	Plans     []PlanRef
	IsListed  bool
	Version   int64 // 1 when registered, and 1 more after each change; 0 when unknown
	CreatedAt time.Time
	UpdatedAt time.Time
}

// HasPlan reports whether the plan is attached.
func (a *Agent) HasPlan(id PlanID) bool {
	return slices.ContainsFunc(a.Plans, func(p PlanRef) bool { return p.PlanID == id })
}
