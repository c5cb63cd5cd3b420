package api

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

type webhooks struct {
	events *events.Events
	people *people.People
}

func (s webhooks) routes() []route {
	const at = Base + "/webhooks"
	one := []toll.Code{toll.CodeBadUUID, toll.CodeWebhookNotFound}
	const tag = "Webhooks"
	return []route{
		{
			op: "createWebhook", method: "POST", path: at, auth: keyed, right: toll.RightManage, session: true, ownMail: true, status: 201, tag: tag, summary: "Create a webhook that sends events to a URL; its secret is returned only once",
			action: creates(s.createWebhook), codes: []toll.Code{toll.CodeWebhookURL, toll.CodeWebhookTooMany, toll.CodePersonNeeded},
		},
		{
			op: "listWebhooks", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: tag, summary: "List your webhooks", action: lists("WebhookList", list.Webhooks, s.listWebhooks),
			codes: []toll.Code{toll.CodeBadRequest, toll.CodeBadPage}, query: append([]query{{"status", "active or paused. Defaults to both."}}, sortedBy(store.SortCreated, store.SortUpdated)...),
		},
		{
			op: "readWebhook", method: "GET", path: at + "/{webhookId}", auth: self, right: toll.RightRead, tag: tag, summary: "Read a webhook", action: reads(byText("webhookId", s.events.Webhook)), codes: one,
		},
		{
			op: "updateWebhook", method: "PATCH", path: at + "/{webhookId}", auth: self, right: toll.RightManage, session: true, ownMail: true, tag: tag,
			summary: "Update, pause, or resume a webhook; after a pause, deliveries continue where they stopped", action: takes(s.updateWebhook),
			codes: append([]toll.Code{toll.CodeWebhookURL}, one...),
		},
		{
			op: "deleteWebhook", method: "DELETE", path: at + "/{webhookId}", auth: self, right: toll.RightManage, session: true, ownMail: true, tag: tag, summary: "Delete a webhook and its deliveries",
			action: reads(by("webhookId", toll.ParseUUID, s.deleteWebhook)), codes: one,
		},
		{
			op: "testWebhook", method: "POST", path: at + "/{webhookId}/test", auth: self, right: toll.RightManage, session: true, status: 202, tag: tag, summary: "Send a test event to a webhook",
			action: reads(byText("webhookId", s.events.TestWebhook)), codes: one,
		},
		{
			op: "rotateWebhook", method: "POST", path: at + "/{webhookId}/rotate", auth: self, right: toll.RightManage, tag: tag,
			summary: "Rotate the secret of a webhook; both secrets are valid for 24 hours", action: reads(byText("webhookId", s.events.RotateWebhook)), codes: one,
		},
		{
			op: "listDeliveries", method: "GET", path: at + "/{webhookId}/deliveries", auth: self, right: toll.RightRead, tag: tag, summary: "List the past and pending deliveries of a webhook",
			action: lists("DeliveryList", list.Deliveries, s.listDeliveries), codes: append([]toll.Code{toll.CodeBadRequest, toll.CodeBadPage}, one...),
			query: append([]query{{"status", "pending, succeeded, or failed. Defaults to all."}}, sortedBy(store.SortCreated, store.SortUpdated)...),
		},
		{
			op: "resendDelivery", method: "POST", path: at + "/{webhookId}/deliveries/{deliveryId}/resend", auth: self, right: toll.RightManage, status: 202, tag: tag,
			summary: "Resend the event of a delivery", action: reads(s.resendDelivery), codes: one,
		},
	}
}

type WebhookInput struct {
	URL         *string  `json:"url" maxLength:"2048" doc:"An https URL with a public host and port 443 or 8443. To receive events by email, send mailto: and a verified email address of the person of the session."`
	Types       []string `json:"types,omitzero" doc:"Types of events. Defaults to all. For email, at least one of these types is required: credits.low, order.failed, order.disputed, order.dispute_closed, delegation.exhausted, delegation.frozen, delegation.expired, api_key.created, wallet.exported, webhook.disabled."`
	Description *string  `json:"description,omitzero" maxLength:"1024"`
}

func (*WebhookInput) required() []string { return []string{"url"} }

func (s webhooks) createWebhook(c *call, in *WebhookInput, once *store.Once) (*toll.WebhookSecret, error) {
	types, err := eventTypes(in.Types)
	if err != nil {
		return nil, err
	}
	if (in.URL == nil || !events.IsMailURL(*in.URL)) && !c.caller.Rights.Has(c.route.right) {
		return nil, c.missingRight()
	}
	p := events.WebhookParams{URL: in.URL, Types: &types, Description: in.Description, MadeBy: c.caller.UserID}
	if c.caller.KeyID.IsZero() {
		p.User = c.caller.UserID // the session of a person
	}
	return s.events.CreateWebhook(c.context, c.caller.Address, p, once)
}

// mayOwnMail reports whether the route is open to a member for their own mails; its action looks whose they are.
func (c *call) mayOwnMail() bool {
	return c.route.ownMail && c.caller.KeyID.IsZero() && !c.caller.UserID.IsZero() && c.caller.Rights.Has(toll.RightRead)
}

// ownMail refuses a caller without the right of the route for a webhook that sends no mails to an address of theirs.
func (s webhooks) ownMail(c *call) error {
	if c.caller.Rights.Has(c.route.right) {
		return nil
	}
	credentials, err := s.people.Credentials.List(c.context, c.caller.UserID)
	if err != nil {
		return err
	}
	ids := store.Mapped(credentials, func(k toll.Credential) toll.UUID { return k.ID })
	if theirs, err := s.events.MailsTo(c.context, c.caller.Address, c.param("webhookId"), ids); theirs || err != nil {
		return err
	}
	return c.missingRight()
}

func eventTypes(texts []string) ([]toll.EventType, error) {
	var types []toll.EventType
	var faults []toll.Fault
	for i, text := range texts {
		t, ok := eventType(text)
		if !ok {
			faults = append(faults, toll.Fault{Path: "types[" + strconv.Itoa(i) + "]", Message: noEventType()})
		}
		types = append(types, t)
	}
	if len(faults) > 0 {
		return nil, toll.Faults(faults)
	}
	return types, nil
}

func (s webhooks) listWebhooks(c *call, p store.Page, q url.Values) (none store.List[*toll.Webhook], err error) {
	status := toll.WebhookStatus(strings.ToLower(q.Get("status")))
	switch status {
	case "", toll.WebhookActive, toll.WebhookPaused:
	default:
		return none, toll.Faults([]toll.Fault{{Path: "status", Message: "must be active or paused"}})
	}
	return s.events.Webhooks(c.context, c.caller.Address, status, p)
}

// WebhookChange changes a webhook. Null clears types, which then are all, and description.
type WebhookChange struct {
	URL         toll.Change[string]   `json:"url,omitzero"`
	Types       toll.Change[[]string] `json:"types,omitzero"`
	Description toll.Change[string]   `json:"description,omitzero"`
	Status      toll.Change[string]   `json:"status,omitzero" doc:"active or paused."`
}

func (s webhooks) updateWebhook(c *call, in *WebhookChange) (*toll.Webhook, error) {
	if err := s.ownMail(c); err != nil {
		return nil, err
	}
	p := events.WebhookParams{URL: in.URL.Value, Description: in.Description.Value, MadeBy: c.caller.UserID}
	var faults []toll.Fault
	for _, m := range []struct {
		name   string
		change toll.Change[string]
	}{{"url", in.URL}, {"status", in.Status}} {
		if m.change.IsSet && m.change.Value == nil {
			faults = append(faults, toll.Fault{Path: m.name, Message: "cannot be cleared"})
		}
	}
	if len(faults) > 0 {
		return nil, toll.Faults(faults)
	}
	if in.Types.IsSet {
		var texts []string
		if in.Types.Value != nil {
			texts = *in.Types.Value
		}
		types, err := eventTypes(texts)
		if err != nil {
			return nil, err
		}
		p.Types = &types
	}
	if in.Description.IsSet && in.Description.Value == nil {
		p.Description = new(string)
	}
	if in.Status.IsSet {
		status := toll.WebhookStatus(strings.ToLower(*in.Status.Value))
		p.Status = &status
	}
	return s.events.UpdateWebhook(c.context, c.caller.Address, c.param("webhookId"), p)
}

type WebhookDeleted struct {
	Success bool   `json:"success"`
	ID      string `json:"id"`
}

func (s webhooks) deleteWebhook(c *call, id string) (*WebhookDeleted, error) {
	err := s.ownMail(c)
	if err == nil {
		err = s.events.DeleteWebhook(c.context, c.caller.Address, id)
	}
	return &WebhookDeleted{Success: true, ID: id}, err
}

func (s webhooks) listDeliveries(c *call, p store.Page, q url.Values) (none store.List[*toll.WebhookDelivery], err error) {
	status := toll.DeliveryStatus(strings.ToLower(q.Get("status")))
	switch status {
	case "", toll.DeliveryPending, toll.DeliverySucceeded, toll.DeliveryFailed:
	default:
		return none, toll.Faults([]toll.Fault{{Path: "status", Message: "must be pending, succeeded, or failed"}})
	}
	return s.events.Deliveries(c.context, c.caller.Address, c.param("webhookId"), status, p)
}

func (s webhooks) resendDelivery(c *call) (*toll.WebhookDelivery, error) {
	return s.events.Resend(c.context, c.caller.Address, c.param("webhookId"), c.param("deliveryId"))
}
