package toll

import "encoding/json"

// PermissionStatus is the state of a permission.
type PermissionStatus string

// States of a permission, an API key, or another record that expires.
const (
	StatusActive    PermissionStatus = "Active"
	StatusRevoked   PermissionStatus = "Revoked"
	StatusExpired   PermissionStatus = "Expired"
	StatusExhausted PermissionStatus = "Exhausted"
)

// PermissionUse is one settlement under a permission.
type PermissionUse struct {
	Transaction     Hash    `json:"transaction"`
	AgentRequestID  string  `json:"agentRequestId"`
	CreditsRedeemed Credits `json:"creditsRedeemed"`
	CreatedAt       Time    `json:"createdAt"`
}

// Permission is the spending limit of one access token (wire contract, section 13). The names orderLimit, planCost, and
// creditsPerOrder are reserved for a version gate.
//
// Closed reports that no request can burn credits under the permission any more, so that UsedCredits is final. false guarantees nothing: a
// hold may be open, or the service may be an older release that does not send the member. It is always false in events.
type Permission struct {
	PermissionHash    Hash             `json:"permissionHash"`
	PlanID            PlanID           `json:"planId"`
	OwnerAddress      Address          `json:"ownerAddress"`
	SubscriberAddress Address          `json:"subscriberAddress"`
	AgentID           *AgentID         `json:"agentId"`
	AllowedAgents     AgentIDs         `json:"allowedAgents"` // nil, null on the wire: any agent of the plan
	Scheme            string           `json:"scheme"`
	Network           string           `json:"network"`
	DelegationID      *string          `json:"delegationId"`
	MaxCredits        *Credits         `json:"maxCredits"`
	UsedCredits       Credits          `json:"usedCredits"`
	RemainingCredits  *Credits         `json:"remainingCredits"`
	MaxOrders         *int64           `json:"maxOrders"`
	UsedOrders        int64            `json:"usedOrders"`
	Status            PermissionStatus `json:"status"`
	Closed            bool             `json:"closed"` // see the type
	Metadata          json.RawMessage  `json:"metadata,omitempty"`
	Transactions      []PermissionUse  `json:"transactions"`
	CreatedAt         Time             `json:"createdAt"`
	ExpiresAt         Time             `json:"expiresAt"`
	APIKeyID          *Hash            `json:"apiKeyId"`
}

// AccessToken is the answer to the creation of a permission (wire contract, section 13). The token is shown once.
type AccessToken struct {
	AccessToken       string           `json:"accessToken"`
	Token             string           `json:"token"` // equal
	TokenFormat       string           `json:"tokenFormat"`
	PermissionHash    Hash             `json:"permissionHash"`
	PlanID            PlanID           `json:"planId"`
	AgentID           *AgentID         `json:"agentId"`
	SubscriberAddress Address          `json:"subscriberAddress"`
	DelegationID      *string          `json:"delegationId"`
	Scheme            string           `json:"scheme"`
	Network           string           `json:"network"`
	MaxCredits        *Credits         `json:"maxCredits"`
	MaxOrders         *int64           `json:"maxOrders"` // nil: limited only by the delegation
	UsedCredits       Credits          `json:"usedCredits"`
	Status            PermissionStatus `json:"status"`
	CreatedAt         Time             `json:"createdAt"`
	ExpiresAt         Time             `json:"expiresAt"`
	Warnings          []Warning        `json:"warnings,omitempty"` // deprecated forms of the request
}

// Warning reports a call that succeeded but should be made differently. A Warning without a Code is a string on the wire,
// and names a member that the service ignored because it is unknown.
type Warning struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// MarshalJSON writes a string when Code is empty, else an object.
func (w Warning) MarshalJSON() ([]byte, error) {
	if w.Code == "" {
		return json.Marshal(w.Message)
	}
	type object Warning
	return json.Marshal(object(w))
}

// UnmarshalJSON accepts both forms.
func (w *Warning) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*w = Warning{}
		return json.Unmarshal(b, &w.Message)
	}
	type object Warning
	return json.Unmarshal(b, (*object)(w))
}

// APIKey is the record of an API key (wire contract, section 6). Key is set only in the response that creates the key.
type APIKey struct {
	ID         Hash             `json:"id"`
	Name       *string          `json:"name"`
	Prefix     string           `json:"prefix"`
	Tail       string           `json:"tail"` // last 6 characters of the key
	Address    Address          `json:"address"`
	Version    string           `json:"version"` // pinned API version, MAJOR.MINOR
	Status     PermissionStatus `json:"status"`
	MadeBy     KeyMaker         `json:"madeBy"`
	Parent     *Hash            `json:"parent"`           // the API key or consent that created it, or nil
	UserID     string           `json:"userId,omitempty"` // the person whose membership the key depends on, or ""
	Rights     Rights           `json:"rights"`
	CreatedAt  Time             `json:"createdAt"`
	ExpiresAt  *Time            `json:"expiresAt"`
	LastUsedAt *Time            `json:"lastUsedAt"`
	Key        string           `json:"key,omitempty"`
}

// RecentCall is a call that an API key made.
type RecentCall struct {
	At             Time   `json:"at"`        // when it arrived
	Operation      string `json:"operation"` // operation id of the OpenAPI document, "" without a matching route
	Method         string `json:"method"`
	Path           string `json:"path"` // path template of the route, with parameter names
	Status         int    `json:"status"`
	Code           Code   `json:"code"` // error code, or ""
	DurationMicros int64  `json:"durationMicros"`
	CorrelationID  string `json:"correlationId"`
}

// Settlement is the stored outcome of one request (wire contract, section 18).
type Settlement struct {
	AgentRequestID   string          `json:"agentRequestId"`
	Status           string          `json:"status"` // held, settled, pending, released or lapsed
	PlanID           PlanID          `json:"planId"`
	AgentID          *AgentID        `json:"agentId"`
	Payer            Address         `json:"payer"`
	Network          string          `json:"network"`
	Transaction      *Hash           `json:"transaction"`
	Amount           *Credits        `json:"amount"`
	CreditsRedeemed  *Credits        `json:"creditsRedeemed"`
	RemainingBalance *Credits        `json:"remainingBalance"`
	HeldAmount       Credits         `json:"heldAmount"`
	OrderTx          *Hash           `json:"orderTx"`
	MirrorTx         *Hash           `json:"mirrorTx"`
	PermissionHash   Hash            `json:"permissionHash"`
	Resource         *string         `json:"resource"`
	CreatedAt        Time            `json:"createdAt"`
	HoldExpiresAt    *Time           `json:"holdExpiresAt"`
	SettledAt        *Time           `json:"settledAt"`
	EndedAt          *Time           `json:"endedAt"` // when it was settled, released, or lapsed
	Receipt          json.RawMessage `json:"receipt,omitempty"`
}

// RequestStep is one state in the history of a request.
type RequestStep struct {
	Status  string  `json:"status"` // held, settled, released or lapsed
	At      Time    `json:"at"`
	Credits Credits `json:"credits"` // credits held, burned, or returned
}

// RequestRecord is a request with its history.
type RequestRecord struct {
	Settlement
	Steps []RequestStep `json:"steps"` // oldest first; empty while an order is pending
}

// AgentIDs is a list of agents in which nil differs from an empty list.
type AgentIDs []AgentID

// MarshalJSON writes null for nil.
func (ids AgentIDs) MarshalJSON() ([]byte, error) {
	if ids == nil {
		return []byte("null"), nil
	}
	return json.Marshal([]AgentID(ids))
}
