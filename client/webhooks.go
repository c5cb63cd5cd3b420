package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"

	"github.com/tollhq/toll"
)

// WebhookParams is a new webhook.
type WebhookParams struct {
	URL         string           `json:"url"`             // https; mailto and the person's verified address; loopback in some sandboxes
	Types       []toll.EventType `json:"types,omitempty"` // empty: every type
	Description string           `json:"description,omitempty"`
}

// CreateWebhook creates a webhook that delivers events to a URL. Only this response contains the secret that signs the
// deliveries. Mail webhooks do not have a secret.
func (c *Client) CreateWebhook(ctx context.Context, p WebhookParams) (*toll.WebhookSecret, error) {
	return create[toll.WebhookSecret](ctx, c, api("/webhooks"), p)
}

// Webhooks returns the webhooks of the caller.
func (c *Client) Webhooks(ctx context.Context, opts ...ListOption) iter.Seq2[*toll.Webhook, error] {
	return list[toll.Webhook](ctx, c, api("/webhooks"), "webhooks", opts)
}

// Webhook returns one webhook of the caller.
func (c *Client) Webhook(ctx context.Context, id string) (*toll.Webhook, error) {
	return get[toll.Webhook](ctx, c, api("/webhooks/%s", id))
}

// WebhookUpdate changes a webhook. Unset fields stay unchanged.
type WebhookUpdate struct {
	URL         toll.Change[string]             `json:"url,omitzero"`
	Types       toll.Change[[]toll.EventType]   `json:"types,omitzero"`  // cleared or empty: every type
	Status      toll.Change[toll.WebhookStatus] `json:"status,omitzero"` // paused or active
	Description toll.Change[string]             `json:"description,omitzero"`
}

// UpdateWebhook changes, pauses or resumes a webhook.
func (c *Client) UpdateWebhook(ctx context.Context, id string, u WebhookUpdate) (*toll.Webhook, error) {
	return fetch[toll.Webhook](ctx, c, call{method: http.MethodPatch, path: api("/webhooks/%s", id), body: u, idempotent: true})
}

// DeleteWebhook deletes a webhook with its pending deliveries.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	_, err := remove[json.RawMessage](ctx, c, api("/webhooks/%s", id))
	return err
}

// RotateWebhook replaces the secret of a webhook and returns the new secret. For 24 hours, deliveries are signed with both.
func (c *Client) RotateWebhook(ctx context.Context, id string) (*toll.WebhookSecret, error) {
	return fetch[toll.WebhookSecret](ctx, c, call{method: http.MethodPost, path: api("/webhooks/%s/rotate", id)})
}

// TestWebhook sends a test event to a webhook.
func (c *Client) TestWebhook(ctx context.Context, id string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: api("/webhooks/%s/test", id)}, nil)
	return err
}

// WebhookDeliveries returns the past and pending deliveries of a webhook.
func (c *Client) WebhookDeliveries(ctx context.Context, id string, opts ...ListOption) iter.Seq2[*toll.WebhookDelivery, error] {
	return list[toll.WebhookDelivery](ctx, c, api("/webhooks/%s/deliveries", id), "deliveries", opts)
}

// ResendDelivery sends a delivery again.
func (c *Client) ResendDelivery(ctx context.Context, webhookID, deliveryID string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: api("/webhooks/%s/deliveries/%s/resend", webhookID, deliveryID)}, nil)
	return err
}
