package toll

import "encoding/json"

// EventType is the type of an event, such as "order.paid".
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

// EventWebhookTest is the type of the event that a webhook test delivers, regardless of the types the webhook subscribes
// to. It is never stored in a stream, has sequence 0, and is rejected as a filter of a list or a webhook.
const EventWebhookTest EventType = "webhook.test"

// EventTypes returns every type that a stream can contain. Lists of events and webhooks can filter by these types.
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

// EventObject identifies the record that an event concerns.
type EventObject struct {
	Kind     string `json:"kind"` // agent, plan, order, balance, settlement, permission, delegation, api_key, wallet or webhook
	ID       string `json:"id"`   // as in the record; for a balance, the plan id, "/", and the holder
	Sequence int64  `json:"sequence"`
}

// Event is a committed change. Each workspace has a stream of the events that concern it; seller and buyer of a plan each
// get a separate event. Webhook deliveries carry an Event too; client.Client.ReadDelivery verifies and reads one.
type Event struct {
	ID        string          `json:"id"` // UUID version 7, the same in every delivery
	Type      EventType       `json:"type"`
	Sequence  int64           `json:"sequence"` // in the stream of the workspace, from 1 without gaps
	Object    EventObject     `json:"object"`
	Data      json.RawMessage `json:"data"` // the record, as a read returns it
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

// WebhookStatus is the state of a webhook: active webhooks get deliveries, paused ones do not.
type WebhookStatus string

// States of a webhook. The service pauses a webhook after three days without a successful delivery.
const (
	WebhookActive WebhookStatus = "active"
	WebhookPaused WebhookStatus = "paused"
)

// Webhook is an address that receives the events of a workspace.
type Webhook struct {
	ID           string        `json:"id"`    // UUID
	URL          string        `json:"url"`   // for mail, "mailto:" and the shortened address
	Types        []EventType   `json:"types"` // empty: every type
	Description  *string       `json:"description"`
	Status       WebhookStatus `json:"status"`
	UserID       string        `json:"userId,omitempty"` // the person who chose the address, or ""
	FailingSince *Time         `json:"failingSince"`     // first failure after the last success
	CreatedAt    Time          `json:"createdAt"`
	UpdatedAt    Time          `json:"updatedAt"`
}

// WebhookSecret is a webhook with its signing secret, returned only when the secret is created or rotated.
type WebhookSecret struct {
	Webhook
	// Secret is the HMAC key, used byte for byte as shown; "" for mail.
	Secret string `json:"secret"`
	// PreviousValidUntil is the time until which deliveries are also signed with the previous secret.
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

// WebhookDelivery is the delivery of one event to one webhook.
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
	NextAttemptAt *Time          `json:"nextAttemptAt"` // while the status is pending
	CreatedAt     Time           `json:"createdAt"`
	CompletedAt   *Time          `json:"completedAt"`
}
