package toll

import "encoding/json"

// EventType says what happened.
type EventType string

// Types of events (wire contract, section 20).
const (
	EventAgentCreated        EventType = "agent.created"
	EventAgentUpdated        EventType = "agent.updated"
	EventAgentListed         EventType = "agent.listed"
	EventAgentUnlisted       EventType = "agent.unlisted"
	EventPlanCreated         EventType = "plan.created"
	EventPlanUpdated         EventType = "plan.updated"
	EventPlanListed          EventType = "plan.listed"
	EventPlanUnlisted        EventType = "plan.unlisted"
	EventOrderCreated        EventType = "order.created"
	EventOrderPaid           EventType = "order.paid"
	EventOrderFailed         EventType = "order.failed"
	EventOrderRefunded       EventType = "order.refunded"
	EventOrderDisputed       EventType = "order.disputed"
	EventOrderDisputeClosed  EventType = "order.dispute_closed"
	EventCreditsMinted       EventType = "credits.minted"
	EventCreditsExpired      EventType = "credits.expired"
	EventCreditsTakenBack    EventType = "credits.taken_back"
	EventCreditsLow          EventType = "credits.low"
	EventSettlementSettled   EventType = "settlement.settled"
	EventPermissionCreated   EventType = "permission.created"
	EventPermissionRevoked   EventType = "permission.revoked"
	EventPermissionExhausted EventType = "permission.exhausted"
	EventDelegationCreated   EventType = "delegation.created"
	EventDelegationRevoked   EventType = "delegation.revoked"
	EventDelegationExpired   EventType = "delegation.expired"
	EventDelegationExhausted EventType = "delegation.exhausted"
	EventDelegationFrozen    EventType = "delegation.frozen"
	EventDelegationUnfrozen  EventType = "delegation.unfrozen"
	EventAPIKeyCreated       EventType = "api_key.created"
	EventAPIKeyRevoked       EventType = "api_key.revoked"
	EventWalletExported      EventType = "wallet.exported"
	EventWebhookDisabled     EventType = "webhook.disabled"
)

// EventWebhookTest is the type of what the test of a webhook delivers, whatever types the webhook asks for. It is in no
// stream, has the sequence 0, and is no filter: neither a list nor a webhook can ask for it.
const EventWebhookTest EventType = "webhook.test"

// EventTypes returns every type that a stream can hold. These are what a list of events and a webhook can be narrowed to.
func EventTypes() []EventType {
	return []EventType{
		EventAgentCreated, EventAgentUpdated, EventAgentListed, EventAgentUnlisted,
		EventPlanCreated, EventPlanUpdated, EventPlanListed, EventPlanUnlisted,
		EventOrderCreated, EventOrderPaid, EventOrderFailed, EventOrderRefunded, EventOrderDisputed, EventOrderDisputeClosed,
		EventCreditsMinted, EventCreditsExpired, EventCreditsTakenBack, EventCreditsLow, EventSettlementSettled,
		EventPermissionCreated, EventPermissionRevoked, EventPermissionExhausted,
		EventDelegationCreated, EventDelegationRevoked, EventDelegationExpired, EventDelegationExhausted,
		EventDelegationFrozen, EventDelegationUnfrozen,
		EventAPIKeyCreated, EventAPIKeyRevoked, EventWalletExported, EventWebhookDisabled,
	}
}

// EventObject is what an event is about.
type EventObject struct {
	Kind     string `json:"kind"` // agent, plan, order, balance, settlement, permission, delegation, api_key, wallet or webhook
	ID       string `json:"id"`   // as in the record; of a balance the plan id, "/" and the holder
	Sequence int64  `json:"sequence"`
}

// Event is a change that was committed. Each principal has a stream of those that concern it; both sides of a plan get an event
// of their own. What a webhook is sent is an Event too; client.Client.ReadDelivery checks and reads it.
type Event struct {
	ID        string          `json:"id"` // UUID version 7, the same in every delivery
	Type      EventType       `json:"type"`
	Sequence  int64           `json:"sequence"` // of the principal, from 1 without a gap
	Object    EventObject     `json:"object"`
	Data      json.RawMessage `json:"data"` // the record as it is read
	CreatedAt Time            `json:"createdAt"`
}

// CreditsMoved is the data of the events about credits: an entry of the ledger that changed a balance.
type CreditsMoved struct {
	PlanID        PlanID  `json:"planId"`
	HolderAddress Address `json:"holderAddress"`
	Kind          string  `json:"kind"` // mint, return, burn, expire or take back
	Amount        Credits `json:"amount"`
	Balance       Credits `json:"balance"` // after the entry
	Transaction   Hash    `json:"transaction"`
	Reference     string  `json:"reference"` // the order, the mint or the request that caused it
	CreatedAt     Time    `json:"createdAt"`
}

// WebhookStatus says whether a webhook gets deliveries.
type WebhookStatus string

// States of a webhook. One that had no success for three days is paused by the service.
const (
	WebhookActive WebhookStatus = "active"
	WebhookPaused WebhookStatus = "paused"
)

// Webhook is an address to which the events of a principal are sent.
type Webhook struct {
	ID           string        `json:"id"`    // UUID
	URL          string        `json:"url"`   // of mails "mailto:" and the address, shortened
	Types        []EventType   `json:"types"` // empty: every type
	Description  *string       `json:"description"`
	Status       WebhookStatus `json:"status"`
	UserID       string        `json:"userId,omitempty"` // the person who chose the address; "" for none
	FailingSince *Time         `json:"failingSince"`     // first failure after the last success
	CreatedAt    Time          `json:"createdAt"`
	UpdatedAt    Time          `json:"updatedAt"`
}

// WebhookSecret is a webhook with the secret that its deliveries are signed with. Only the answers that make a secret have it.
type WebhookSecret struct {
	Webhook
	// Secret is the key of the HMAC, byte for byte as it stands here; "" for mails.
	Secret string `json:"secret"`
	// PreviousValidUntil is until when deliveries are signed with the secret before as well.
	PreviousValidUntil *Time `json:"previousValidUntil,omitzero"`
}

// DeliveryStatus is the state of a delivery.
type DeliveryStatus string

// States of a delivery.
const (
	DeliveryPending   DeliveryStatus = "pending"
	DeliverySucceeded DeliveryStatus = "succeeded"
	DeliveryFailed    DeliveryStatus = "failed"
)

// WebhookDelivery is one event on its way to one webhook.
type WebhookDelivery struct {
	ID            string         `json:"id"` // UUID
	WebhookID     string         `json:"webhookId"`
	EventID       string         `json:"eventId"`
	Type          EventType      `json:"type"`
	Sequence      int64          `json:"sequence"` // of the event; 0 for a test
	Status        DeliveryStatus `json:"status"`
	Attempts      int64          `json:"attempts"`
	LastStatus    *int64         `json:"lastStatus"` // HTTP status of the last answer
	LastError     *string        `json:"lastError"`
	LastAttemptAt *Time          `json:"lastAttemptAt"`
	NextAttemptAt *Time          `json:"nextAttemptAt"` // of a pending one
	CreatedAt     Time           `json:"createdAt"`
	CompletedAt   *Time          `json:"completedAt"`
}
