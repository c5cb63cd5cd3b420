package toll

import (
	"encoding/json"
	"time"
)

// Environment is sandbox or live. Nothing of one is valid in the other.
type Environment string

// Environments.
const (
	Sandbox Environment = "sandbox" // testing and development, Base Sepolia
	Live    Environment = "live"    // production, Base Mainnet
)

// Network returns the CAIP-2 id of the chain of the environment.
func (e Environment) Network() string {
	if e == Live {
		return "eip155:8453"
	}
	return "eip155:84532"
}

// ChainID returns the EIP-155 chain id of the environment.
func (e Environment) ChainID() int64 {
	if e == Live {
		return 8453
	}
	return 84532
}

// CardNetwork returns the network of card plans in x402 objects, "stripe:sandbox" or "stripe:live".
func (e Environment) CardNetwork() string { return "stripe:" + string(e) }

// AccessLimit says what limits the use of a plan.
type AccessLimit string

// Access limits.
const (
	LimitCredits AccessLimit = "credits" // every request burns credits
	LimitTime    AccessLimit = "time"    // requests burn nothing while the period runs
)

// Price is what an order of a plan costs, in the stored form (wire contract, section 8, dialect B).
type Price struct {
	TokenAddress         Address   `json:"tokenAddress"` // zero: native token (crypto) or none (fiat, free)
	Amounts              []Units   `json:"amounts"`      // one per receiver; the price is their sum
	Receivers            []Address `json:"receivers"`
	ContractAddress      Address   `json:"contractAddress"`
	FeeController        Address   `json:"feeController"`
	ExternalPriceAddress Address   `json:"externalPriceAddress"`
	TemplateAddress      Address   `json:"templateAddress"` // zero, or the pay-as-you-go marker
	IsCrypto             bool      `json:"isCrypto"`        // false: fiat
	Currency             string    `json:"currency,omitempty"`
}

// Total returns the sum of the amounts; normalised prices stay below 2^256.
func (p Price) Total() Units {
	var t Units
	for _, a := range p.Amounts {
		t, _ = t.Add(a)
	}
	return t
}

// IsFree reports whether an order costs nothing.
func (p Price) IsFree() bool { return p.Total().IsZero() }

// CreditsConfig is what an order grants and what a request burns, in the stored form (wire contract, section 8, dialect B).
type CreditsConfig struct {
	IsRedemptionAmountFixed bool     `json:"isRedemptionAmountFixed"`
	RedemptionType          int      `json:"redemptionType"` // 0 global role, 1 owner, 2 plan role, 4 subscriber; recorded only
	OnchainMirror           bool     `json:"onchainMirror"`
	DurationSecs            Units    `json:"durationSecs"` // life of a bought lot in seconds, 0 = no end
	Amount                  Credits  `json:"amount"`       // credits per order, >= 1
	MinAmount               Credits  `json:"minAmount"`    // bounds per request, 1 <= min <= max
	MaxAmount               Credits  `json:"maxAmount"`
	NFTAddress              *Address `json:"nftAddress,omitempty"` // accepted and returned, unused
}

// Metadata describes a plan or an agent to people.
type Metadata struct {
	Name           string          `json:"name,omitempty"`
	Description    string          `json:"description,omitempty"`
	Author         string          `json:"author,omitempty"`
	License        string          `json:"license,omitempty"`
	Tags           []string        `json:"tags,omitempty"`
	Integration    string          `json:"integration,omitempty"`
	SampleLink     string          `json:"sampleLink,omitempty"`
	APIDescription string          `json:"apiDescription,omitempty"`
	DateCreated    *Time           `json:"dateCreated,omitempty"`
	CustomData     json.RawMessage `json:"customData,omitempty"` // a JSON object
}

// Plan is a purchasable bundle: a price and the credits or time that it buys. Its JSON is the union of both dialects
// (wire contract, section 7).
type Plan struct {
	ID          PlanID
	Owner       Address
	Metadata    Metadata
	Price       Price
	Credits     CreditsConfig
	AccessLimit AccessLimit
	MaxOrders   int64 // 0 = no limit
	IsTrial     bool
	IsListed    bool
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// IsTime reports whether the plan sells time: requests burn nothing while a period runs.
func (p *Plan) IsTime() bool { return p.AccessLimit == LimitTime }

// IsPayAsYouGo reports whether credits are bought request by request.
func (p *Plan) IsPayAsYouGo() bool { return !p.Price.TemplateAddress.IsZero() }

// PayTo returns the first receiver, else the owner.
func (p *Plan) PayTo() Address {
	if len(p.Price.Receivers) > 0 {
		return p.Price.Receivers[0]
	}
	return p.Owner
}

// Effective returns the credits that a request for this many burns: 0 stays 0, a time plan makes it 0, otherwise the
// bounds of the plan apply (wire contract, section 16).
func (p *Plan) Effective(requested Credits) Credits {
	if requested == 0 || p.IsTime() {
		return 0
	}
	return min(max(requested, p.Credits.MinAmount), p.Credits.MaxAmount)
}

// LotEnd returns when a lot bought at t ends; zero when it never does. An end after the year 9999 saturates at its last second.
func (p *Plan) LotEnd(t time.Time) time.Time { return LotEnd(t, p.Credits.DurationSecs) }

// LotEnd returns t plus this many seconds; zero for 0 seconds. An end after the year 9999 saturates at its last second.
func LotEnd(t time.Time, secs Units) time.Time {
	if secs.IsZero() {
		return time.Time{}
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	n := secs.Int()
	if !n.IsInt64() || n.Int64() > last.Unix()-t.Unix() {
		return last
	}
	return time.Unix(t.Unix()+n.Int64(), int64(t.Nanosecond())).UTC()
}

// Endpoint is one verb and url of an agent. The url is absolute or starts with "/", and may hold patterns: ":name" and
// "{name}" match one segment, "*" at the end and "(.*)" match the rest.
type Endpoint struct {
	Verb string
	URL  string
}

// AgentAPI is how an agent is reached.
type AgentAPI struct {
	Endpoints          []Endpoint
	OpenEndpoints      []string
	AgentDefinitionURL string
	AuthType           string // none, basic, oauth or bearer
	StrictEndpoints    bool
	HasCredentials     bool // upstream secrets are stored, write-only
}

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
	CreatedAt time.Time
	UpdatedAt time.Time
}

// HasPlan reports whether the plan is attached.
func (a *Agent) HasPlan(id PlanID) bool {
	for _, p := range a.Plans {
		if p.PlanID == id {
			return true
		}
	}
	return false
}

// Lot is a part of a balance that was granted together and ends together.
type Lot struct {
	Amount    Credits `json:"amount"`
	Remaining Credits `json:"remaining"`
	ExpiresAt *Time   `json:"expiresAt"` // null: never
}

// Balance is what a subscriber has of a plan (wire contract, section 10).
type Balance struct {
	PlanID          PlanID          `json:"planId"`
	PlanName        string          `json:"planName"`
	PlanType        AccessLimit     `json:"planType"`
	HolderAddress   Address         `json:"holderAddress"`
	Balance         Credits         `json:"balance"` // held credits included
	Held            Credits         `json:"held"`
	Available       Credits         `json:"available"` // balance - held
	CreditsContract Address         `json:"creditsContract"`
	IsSubscriber    bool            `json:"isSubscriber"`
	IsSubscriber2   bool            `json:"is_subscriber"`  // equal, for clients that read the other spelling
	PricePerCredit  json.RawMessage `json:"pricePerCredit"` // a JSON number
	Batch           bool            `json:"batch"`
	Total           Credits         `json:"total"` // granted
	Used            Credits         `json:"used"`  // burned
	Remaining       Credits         `json:"remaining"`
	ExpiresAt       *Time           `json:"expiresAt"` // end of the last lot; null: none ends
	Lots            []Lot           `json:"lots,omitempty"`
}

// OrderStatus is the state of an order.
type OrderStatus string

// States of an order. Credits are there from confirmed on; free and card orders skip the middle.
const (
	OrderCreated   OrderStatus = "created"
	OrderSigned    OrderStatus = "signed"
	OrderSent      OrderStatus = "sent"
	OrderIncluded  OrderStatus = "included"
	OrderConfirmed OrderStatus = "confirmed"
	OrderFinal     OrderStatus = "final"
	OrderFailed    OrderStatus = "failed"
)

// Order is a purchase of a plan (wire contract, section 10).
type Order struct {
	Success        bool           `json:"success"`
	OrderID        string         `json:"orderId"` // UUID
	Status         OrderStatus    `json:"status"`
	PlanID         PlanID         `json:"planId"`
	TxHash         string         `json:"txHash"` // chain transaction; entry id for free plans; "" while none exists
	CreditsGranted Credits        `json:"creditsGranted"`
	Amount         Units          `json:"amount"`
	Currency       string         `json:"currency"`
	Balance        *Balance       `json:"balance,omitempty"`
	FailureReason  string         `json:"failureReason,omitempty"`
	Message        string         `json:"message"`
	HTTPStatus     int            `json:"httpStatus"`
	Data           map[string]any `json:"data"`
	When           Time           `json:"when"`
}

// ActResult is the answer to a change that returns no record (wire contract, section 4).
type ActResult struct {
	Success    bool           `json:"success"`
	Code       Code           `json:"code,omitempty"` // only when the record was in the wanted state already
	Message    string         `json:"message"`
	TxHash     Hash           `json:"txHash"`
	HTTPStatus int            `json:"httpStatus"`
	Data       map[string]any `json:"data"`
	When       Time           `json:"when"`
}

// PermissionStatus is the state of a permission.
type PermissionStatus string

// States of a permission, an API key or another record that ends.
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

// Permission is what one access token may spend (wire contract, section 13). The names orderLimit, planCost and
// creditsPerOrder are not free: a version gate owns them.
type Permission struct {
	PermissionHash    Hash             `json:"permissionHash"`
	PlanID            PlanID           `json:"planId"`
	OwnerAddress      Address          `json:"ownerAddress"`
	SubscriberAddress Address          `json:"subscriberAddress"`
	AgentID           *AgentID         `json:"agentId"`
	AllowedAgents     []AgentID        `json:"allowedAgents"`
	Scheme            string           `json:"scheme"`
	Network           string           `json:"network"`
	DelegationID      *string          `json:"delegationId"`
	MaxCredits        *Credits         `json:"maxCredits"`
	UsedCredits       Credits          `json:"usedCredits"`
	RemainingCredits  *Credits         `json:"remainingCredits"`
	MaxOrders         *int64           `json:"maxOrders"`
	UsedOrders        int64            `json:"usedOrders"`
	Status            PermissionStatus `json:"status"`
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
	UsedCredits       Credits          `json:"usedCredits"`
	Status            PermissionStatus `json:"status"`
	CreatedAt         Time             `json:"createdAt"`
	ExpiresAt         Time             `json:"expiresAt"`
}

// APIKey is the record of an API key (wire contract, section 6). Key is there once, in the answer that creates it.
type APIKey struct {
	ID         Hash             `json:"id"`
	Name       *string          `json:"name"`
	Prefix     string           `json:"prefix"`
	Tail       string           `json:"tail"` // last 6 characters of the key
	Address    Address          `json:"address"`
	Version    string           `json:"version"` // pinned API version, MAJOR.MINOR
	Status     PermissionStatus `json:"status"`
	CreatedAt  Time             `json:"createdAt"`
	ExpiresAt  *Time            `json:"expiresAt"`
	LastUsedAt *Time            `json:"lastUsedAt"`
	Key        string           `json:"key,omitempty"`
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
	Receipt          json.RawMessage `json:"receipt,omitempty"`
}
