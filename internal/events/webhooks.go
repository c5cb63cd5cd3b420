package events

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// oldSecretLife is how long the secret before a rotation is valid.
	oldSecretLife  = 24 * time.Hour
	maxDescription = 1024
)

// decimal reads a sequence.
func decimal(s string) (int64, bool) {
	if s == "" || len(s) > 18 || s[0] == '+' || s[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func unknownPosition(err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, toll.NewError(toll.CodeBadUUID)) {
		return toll.Faults([]toll.Fault{{Path: "Last-Event-ID", Message: "does not match an event of this stream"}})
	}
	return err
}

type WebhookParams struct {
	User        toll.UUID         // the person who makes it, zero for an API key: only a person has mails sent
	MadeBy      toll.UUID         // the person, also of an API key that stands under a membership; zero: none
	URL         *string           // of mails "mailto:" and an address
	Types       *[]toll.EventType // empty: every type
	Description *string           // "": none
	Status      *toll.WebhookStatus
}

// set takes the members that are there. All faults are reported at once; a url that is not allowed has a code of its own.
func (e *Events) set(w *store.Webhook, p WebhookParams) error {
	var faults []toll.Fault
	if p.Types != nil {
		w.Types = nil
		for i, t := range *p.Types {
			if !slices.Contains(toll.EventTypes(), t) {
				faults = append(faults, toll.Fault{Path: "types." + strconv.Itoa(i), Message: "must be an event type"})
			} else if !slices.Contains(w.Types, t) {
				w.Types = append(w.Types, t)
			}
		}
	}
	if p.Description != nil {
		if utf8.RuneCountInString(*p.Description) > maxDescription {
			faults = append(faults, toll.Fault{Path: "description", Message: "must have at most " + strconv.Itoa(maxDescription) + " characters"})
		}
		w.Description = *p.Description
	}
	if p.Status != nil {
		if *p.Status != toll.WebhookActive && *p.Status != toll.WebhookPaused {
			faults = append(faults, toll.Fault{Path: "status", Message: "must be active or paused"})
		}
		if *p.Status == toll.WebhookActive && w.Status == toll.WebhookPaused {
			w.FailingSince = time.Time{} // three days begin anew
		}
		w.Status = *p.Status
	}
	if isMail(w) && p.Types != nil && len(faults) == 0 {
		faults = mailFaults(w.Types)
	}
	if len(faults) > 0 {
		return toll.Faults(faults)
	}
	if p.URL != nil && *p.URL != w.URL {
		if isMail(w) || IsMailURL(*p.URL) {
			return toll.Errorf(toll.CodeWebhookURL, "A webhook cannot change its mail address, or switch between mail and a URL. Create another webhook and delete this webhook.").
				WithParam("path", "url")
		}
		if err := e.client.Check(*p.URL); err != nil {
			e := toll.NewError(toll.CodeWebhookURL).WithParam("path", "url")
			if u, err := url.Parse(*p.URL); err == nil && toll.IsLoopback(u.Hostname()) {
				e = e.WithHint("To receive webhooks on this machine, the operator starts the sandbox with --loopback-webhooks (TOLL_LOOPBACK_WEBHOOKS=true).")
			}
			return e
		}
		w.URL, w.MadeBy = *p.URL, p.MadeBy
	}
	return nil
}

// secret makes the secret of a webhook and its sealed form.
func (e *Events) secret(id string) (plain string, sealed []byte, err error) {
	plain = x402.NewWebhookSecret()
	sealed, err = e.cfg.Seal([]byte(plain), SecretOf(id))
	return plain, sealed, err
}

// SecretOf is what the sealed secret of a webhook is bound to.
func SecretOf(id string) []byte { return []byte("webhook-secret/" + id) }

// CreateWebhook adds a webhook, which gets the events to come. One that sends mails has no secret. once may be nil. Errors:
// [toll.CodeBadRequest], [toll.CodeWebhookURL], [toll.CodeWebhookTooMany], [toll.CodePersonNeeded] for mails asked for by a key.
func (e *Events) CreateWebhook(ctx context.Context, owner toll.Address, p WebhookParams, once *store.Once) (*toll.WebhookSecret, error) {
	now := e.now()
	w := &store.Webhook{ID: toll.NewUUID(), Principal: owner, Status: toll.WebhookActive, CreatedAt: now, UpdatedAt: now, MadeBy: p.MadeBy}
	if p.URL == nil {
		return nil, toll.Faults([]toll.Fault{{Path: "url", Message: "is missing"}})
	}
	p.Status = nil
	if IsMailURL(*p.URL) {
		if err := e.setMail(ctx, w, p); err != nil {
			return nil, err
		}
		p.URL = nil
		p.Types = cmp.Or(p.Types, new([]toll.EventType))
	}
	if err := e.set(w, p); err != nil {
		return nil, err
	}
	plain, sealed, err := e.secret(w.ID)
	if err != nil {
		return nil, err
	}
	if w.Secret = sealed; isMail(w) {
		plain = "" // the row has one that signs nothing
	}
	out := &toll.WebhookSecret{Webhook: *record(w), Secret: plain}
	err = e.st.Tx(ctx, func(tx *store.Tx) error {
		if err := store.PutAnswer(ctx, tx, once, out); err != nil { // before the stream is locked
			return err
		}
		n, err := store.CountWebhooks(ctx, tx, owner)
		if err == nil && isMail(w) {
			n, err = countMails(ctx, tx, w)
		}
		if err != nil {
			return err
		}
		if n >= MaxWebhooks {
			return toll.NewError(toll.CodeWebhookTooMany).WithParam("limit", MaxWebhooks)
		}
		if err := store.InsertWebhook(ctx, tx, w); err != nil {
			return err
		}
		return e.audit(ctx, tx, "webhook.created", w, store.Changed{After: record(w)})
	})
	return out, err
}

func (e *Events) now() time.Time { return e.clock().UTC().Truncate(time.Microsecond) }

func record(w *store.Webhook) *toll.Webhook {
	out := &toll.Webhook{
		ID: w.ID, URL: w.URL, Types: w.Types, Status: w.Status, FailingSince: toll.AtPtr(w.FailingSince),
		CreatedAt: toll.At(w.CreatedAt), UpdatedAt: toll.At(w.UpdatedAt), Description: store.NonZero(w.Description),
	}
	if w.Types == nil {
		out.Types = []toll.EventType{}
	}
	if !w.MadeBy.IsZero() {
		out.UserID = w.MadeBy.String()
	}
	return out
}

// Webhooks returns a part of the webhooks of an address; status "" for all.
func (e *Events) Webhooks(ctx context.Context, owner toll.Address, status toll.WebhookStatus, p store.Page) (store.List[*toll.Webhook], error) {
	list, err := store.WebhooksOf(ctx, e.st, owner, status, p)
	return store.Map(list, record), err
}

// Webhook returns a webhook of an address, or [toll.CodeWebhookNotFound].
func (e *Events) Webhook(ctx context.Context, owner toll.Address, id string) (*toll.Webhook, error) {
	w, err := e.own(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return record(w), nil
}

func (e *Events) own(ctx context.Context, owner toll.Address, id string) (*store.Webhook, error) {
	id, err := toll.ParseUUID(id)
	if err != nil {
		return nil, err
	}
	w, err := store.WebhookByID(ctx, e.st, id)
	return owned(w, err, owner)
}

func owned(w *store.Webhook, err error, owner toll.Address) (*store.Webhook, error) {
	if errors.Is(err, store.ErrNotFound) || err == nil && w.Principal != owner {
		return nil, toll.NewError(toll.CodeWebhookNotFound)
	}
	return w, err
}

// change runs f on a webhook of an address while nobody else changes it.
func (e *Events) change(ctx context.Context, owner toll.Address, id string, f func(tx *store.Tx, w *store.Webhook) error) (*store.Webhook, error) {
	id, err := toll.ParseUUID(id)
	if err != nil {
		return nil, err
	}
	var out *store.Webhook
	err = e.st.Tx(ctx, func(tx *store.Tx) error {
		w, err := store.WebhookForUpdate(ctx, tx, id)
		if w, err = owned(w, err, owner); err != nil {
			return err
		}
		out = w
		return f(tx, w)
	})
	if err != nil {
		return nil, err
	}
	e.sender.wake.Fire()
	return out, nil
}

// audit notes what somebody did to a webhook, as the last thing of the transaction.
func (e *Events) audit(ctx context.Context, tx *store.Tx, act string, w *store.Webhook, detail store.Changed) error {
	return store.Audit(ctx, tx, store.Act{Workspace: w.Principal.Lower(), Act: act, Object: w.ID, Detail: detail, At: e.now()})
}

// UpdateWebhook changes a webhook of an address. Deliveries under way go to the new url from their next attempt on; one that is paused
// keeps its deliveries and its place in the stream. Errors as of [Events.CreateWebhook], and [toll.CodeWebhookNotFound].
func (e *Events) UpdateWebhook(ctx context.Context, owner toll.Address, id string, p WebhookParams) (*toll.Webhook, error) {
	w, err := e.change(ctx, owner, id, func(tx *store.Tx, w *store.Webhook) error {
		before := record(w)
		if err := e.set(w, p); err != nil {
			return err
		}
		w.UpdatedAt = e.now()
		if err := store.UpdateWebhook(ctx, tx, w); err != nil {
			return err
		}
		return e.audit(ctx, tx, "webhook.updated", w, store.Changed{Before: before, After: record(w)})
	})
	if err != nil {
		return nil, err
	}
	return record(w), nil
}

// DeleteWebhook removes a webhook of an address with its deliveries.
func (e *Events) DeleteWebhook(ctx context.Context, owner toll.Address, id string) error {
	_, err := e.change(ctx, owner, id, func(tx *store.Tx, w *store.Webhook) error {
		if err := store.DeleteWebhook(ctx, tx, w.ID); err != nil {
			return err
		}
		return e.audit(ctx, tx, "webhook.deleted", w, store.Changed{Before: record(w)})
	})
	return err
}

// RotateWebhook gives a webhook a new secret. Deliveries are signed with the one before as well, for a day; one that was
// rotated out before that is over at once.
func (e *Events) RotateWebhook(ctx context.Context, owner toll.Address, id string) (*toll.WebhookSecret, error) {
	var plain string
	w, err := e.change(ctx, owner, id, func(tx *store.Tx, w *store.Webhook) error {
		if isMail(w) {
			return toll.Errorf(toll.CodeBadRequest, "Mail is not signed, so this webhook does not have a secret.")
		}
		var sealed []byte
		var err error
		if plain, sealed, err = e.secret(w.ID); err != nil {
			return err
		}
		now := e.now()
		w.OldSecret, w.OldSecretUntil, w.Secret, w.UpdatedAt = w.Secret, now.Add(oldSecretLife), sealed, now
		if err := store.UpdateWebhook(ctx, tx, w); err != nil {
			return err
		}
		return e.audit(ctx, tx, "webhook.rotated", w, store.Changed{})
	})
	if err != nil {
		return nil, err
	}
	return &toll.WebhookSecret{Webhook: *record(w), Secret: plain, PreviousValidUntil: toll.AtPtr(w.OldSecretUntil)}, nil
}

// TestWebhook sends an event of the type webhook.test to a webhook. It is in no stream.
func (e *Events) TestWebhook(ctx context.Context, owner toll.Address, id string) (*toll.WebhookDelivery, error) {
	var d *store.Delivery
	_, err := e.change(ctx, owner, id, func(tx *store.Tx, w *store.Webhook) error {
		now := e.now()
		data, err := x402.Encode(record(w))
		if err != nil {
			return err
		}
		event := toll.Event{
			ID: store.NewEventID(now), Type: toll.EventWebhookTest, Object: toll.EventObject{Kind: "webhook", ID: w.ID}, Data: data, CreatedAt: toll.At(now),
		}
		body, err := x402.Encode(&event)
		if err != nil {
			return err
		}
		d = &store.Delivery{
			Webhook: w.ID, ID: toll.NewUUID(), EventID: event.ID, Type: event.Type, Object: "test/" + event.ID, Body: string(body),
			Status: toll.DeliveryPending, TryAt: now, CreatedAt: now,
		}
		return store.InsertDelivery(ctx, tx, d)
	})
	if err != nil {
		return nil, err
	}
	return delivery(d), nil
}

// Deliveries returns a part of the deliveries of a webhook; status "" for all.
func (e *Events) Deliveries(ctx context.Context, owner toll.Address, id string, status toll.DeliveryStatus, p store.Page) (store.List[*toll.WebhookDelivery], error) {
	w, err := e.own(ctx, owner, id)
	if err != nil {
		return store.List[*toll.WebhookDelivery]{}, err
	}
	list, err := store.Deliveries(ctx, e.st, w.ID, status, p)
	return store.Map(list, delivery), err
}

// Resend sends an event again, whatever became of its delivery. Attempts and schedule begin anew.
func (e *Events) Resend(ctx context.Context, owner toll.Address, id, deliveryID string) (*toll.WebhookDelivery, error) {
	deliveryID, err := toll.ParseUUID(deliveryID)
	if err != nil {
		return nil, err
	}
	var d *store.Delivery
	_, err = e.change(ctx, owner, id, func(tx *store.Tx, w *store.Webhook) error {
		err := store.ResendDelivery(ctx, tx, w.ID, deliveryID, e.now())
		if err != nil {
			none := toll.Errorf(toll.CodeWebhookNotFound, "This webhook does not have a delivery with this id.")
			return store.NotFoundAs(err, none)
		}
		d, err = store.DeliveryByID(ctx, tx, w.ID, deliveryID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return delivery(d), nil
}

func delivery(d *store.Delivery) *toll.WebhookDelivery {
	out := &toll.WebhookDelivery{
		ID: d.ID, WebhookID: d.Webhook, EventID: d.EventID, Type: d.Type, Sequence: d.Sequence, Status: d.Status, Attempts: d.Attempts,
		LastAttemptAt: toll.AtPtr(d.LastAt), CreatedAt: toll.At(d.CreatedAt), CompletedAt: toll.AtPtr(d.DoneAt),
		LastStatus: store.NonZero(d.LastStatus), LastError: store.NonZero(d.LastError),
	}
	if d.Status == toll.DeliveryPending {
		out.NextAttemptAt = toll.AtPtr(d.TryAt)
	}
	return out
}
