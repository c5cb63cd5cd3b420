package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Webhook is where a principal gets its events. Secrets are sealed.
type Webhook struct {
	ID             string             `db:"webhook_id,key"` // UUID
	Principal      toll.Address       `db:"principal"`
	URL            string             `db:"url,set"`
	Types          []toll.EventType   `db:"types,json,set"`  // empty: all
	Description    string             `db:"description,set"` // "" for none
	Status         toll.WebhookStatus `db:"status,set"`
	Secret         []byte             `db:"secret,set"`
	OldSecret      []byte             `db:"old_secret,null,set"` // nil: none
	OldSecretUntil time.Time          `db:"old_secret_until,set"`
	Sequence       int64              `db:"seq"`               // last event for which deliveries are made
	FailingSince   time.Time          `db:"failing_since,set"` // zero: the last attempt was a success, or there was none
	CreatedAt      time.Time          `db:"created_at"`
	UpdatedAt      time.Time          `db:"updated_at,set"`
	Credential     toll.UUID          `db:"credential_id,null"` // whose mail address gets the events; zero: a url does
	MadeBy         toll.UUID          `db:"made_by,null,set"`   // the person who chose the address; zero: no person is known
}

var (
	webhooks         = newRecord[*Webhook]("webhooks")
	UpdateWebhook    = webhooks.update
	WebhookByID      = by[string](webhooks, "webhook_id = $1")
	WebhookForUpdate = locked[string](webhooks, "webhook_id = $1")
	MailWebhooksOf   = listBy[toll.Address](webhooks, "principal = $1 AND credential_id IS NOT NULL ORDER BY created_at, webhook_id")
	// MoveWebhook notes up to which event deliveries of a webhook are made.
	MoveWebhook = runs2[string, int64](done, "UPDATE webhooks SET seq = $2 WHERE webhook_id = $1")
)

// InsertWebhook adds a webhook. Its stream begins behind the events that there are.
func InsertWebhook(ctx context.Context, tx *Tx, w *Webhook) error {
	last, err := value[int64](ctx, tx, "SELECT COALESCE(MAX(last), 0) FROM event_streams WHERE principal = $1", w.Principal.Lower())
	if err != nil {
		return err
	}
	w.Sequence = last
	return webhooks.insert(ctx, tx, w)
}

// CountWebhooks returns how many webhooks with a url an address has, and keeps others from adding one, of mails too, until the end
// of the transaction.
func CountWebhooks(ctx context.Context, tx *Tx, owner toll.Address) (n int64, err error) {
	// Who adds first makes the row; the stream stays empty.
	if _, err := tx.Exec(ctx, "INSERT INTO event_streams (principal, last) VALUES ($1, 0) ON CONFLICT (principal) DO NOTHING", owner.Lower()); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "SELECT last FROM event_streams WHERE principal = $1"+tx.ForUpdate(), owner.Lower()).Scan(&n); err != nil {
		return 0, err
	}
	return value[int64](ctx, tx, "SELECT COUNT(*) FROM webhooks WHERE principal = $1 AND credential_id IS NULL", owner.Lower())
}

func DeleteWebhook(ctx context.Context, tx *Tx, id string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM webhooks WHERE webhook_id = $1", id); err != nil {
		return err
	}
	return done(tx.Exec(ctx, "DELETE FROM webhook_deliveries WHERE webhook_id = $1", id))
}

// LeaveWebhooks pauses the webhooks of an address that a person made or, with another person, puts them under that one. It returns them.
func LeaveWebhooks(ctx context.Context, tx *Tx, owner toll.Address, user, to toll.UUID, now time.Time) ([]*Webhook, error) {
	made, err := webhooks.all(ctx, tx, "WHERE principal = $1 AND made_by = $2 ORDER BY webhook_id"+tx.ForUpdate(), owner.Lower(), user[:])
	for _, w := range made {
		if w.UpdatedAt = now; to.IsZero() {
			w.Status = toll.WebhookPaused
		} else {
			w.MadeBy = to
		}
		if err == nil {
			err = UpdateWebhook(ctx, tx, w)
		}
	}
	return made, err
}

func DeleteWebhooks(ctx context.Context, tx *Tx, owner toll.Address) error {
	ids, err := values[string](ctx, tx, "SELECT webhook_id FROM webhooks WHERE principal = $1 ORDER BY webhook_id", owner.Lower())
	for _, id := range ids {
		if err == nil {
			err = DeleteWebhook(ctx, tx, id)
		}
	}
	return err
}

// WebhooksOf lists the webhooks of an address; status "" lists all.
func WebhooksOf(ctx context.Context, q Querier, owner toll.Address, status toll.WebhookStatus, p Page) (List[*Webhook], error) {
	l := Listing{
		Where: "principal = $1", Args: []any{owner.Lower()}, ID: "webhook_id",
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "updated_at"},
	}
	if status != "" {
		l.Where, l.Args = l.Where+" AND status = $2", append(l.Args, string(status))
	}
	return webhooks.list(ctx, q, l, p)
}

// WebhooksBehind returns the active webhooks behind an id for whose newest events no deliveries are made, at most limit.
func WebhooksBehind(ctx context.Context, q Querier, after string, limit int) ([]*Webhook, error) {
	return webhooks.all(ctx, q, `w WHERE w.status = 'active'
		AND EXISTS (SELECT 1 FROM event_streams s WHERE s.principal = w.principal AND s.last > w.seq) AND w.webhook_id > $1
		ORDER BY w.webhook_id LIMIT $2`, after, int64(limit))
}

// WebhooksDue returns the active webhooks behind an id that have a delivery to be sent, at most limit.
func WebhooksDue(ctx context.Context, q Querier, now time.Time, after string, limit int) ([]*Webhook, error) {
	return webhooks.all(ctx, q, `w WHERE w.status = 'active' AND w.webhook_id > $2
		AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id = w.webhook_id AND d.status = 'pending' AND d.try_at <= $1)
		ORDER BY w.webhook_id LIMIT $3`, Micros(now), after, int64(limit))
}

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Webhook    string              `db:"webhook_id"`
	ID         string              `db:"delivery_id"` // UUID
	Sequence   int64               `db:"seq"`         // of the event, 0 for a test
	EventID    string              `db:"event_id,uuid"`
	Type       toll.EventType      `db:"type"`
	Object     string              `db:"object"` // kind and id: deliveries of one object are sent in the order of their events
	Body       string              `db:"body"`   // of a test
	Status     toll.DeliveryStatus `db:"status"`
	Attempts   int64               `db:"attempts"`
	FirstAt    time.Time           `db:"first_at"` // of the first attempt, zero before it
	TryAt      time.Time           `db:"try_at"`
	LastAt     time.Time           `db:"last_at"`
	LastStatus int64               `db:"last_status"` // 0: none
	LastError  string              `db:"last_error"`  // "" for none
	CreatedAt  time.Time           `db:"created_at"`
	DoneAt     time.Time           `db:"done_at"`
}

var (
	deliveries   = newRecord[*Delivery]("webhook_deliveries")
	DeliveryByID = by2[string, string](deliveries, "webhook_id = $1 AND delivery_id = $2")
)

// InsertDelivery adds a delivery that is to be sent at once.
func InsertDelivery(ctx context.Context, tx *Tx, d *Delivery) error {
	d.Status = toll.DeliveryPending
	return deliveries.insert(ctx, tx, d)
}

// CountPending returns how many deliveries of a webhook are pending, counted up to limit.
func CountPending(ctx context.Context, q Querier, webhook string, limit int) (int64, error) {
	return value[int64](ctx, q, `SELECT COUNT(*) FROM (SELECT 1 FROM webhook_deliveries WHERE webhook_id = $1 AND status = 'pending' LIMIT $2) p`,
		webhook, int64(limit))
}

// DueDeliveries returns pending deliveries of a webhook that are to be sent now, at most limit: of each object only the one
// with the earliest event.
func DueDeliveries(ctx context.Context, q Querier, webhook string, now time.Time, limit int) ([]*Delivery, error) {
	return deliveries.all(ctx, q, `d
		WHERE d.webhook_id = $1 AND d.status = 'pending' AND d.try_at <= $2 AND NOT EXISTS (
			SELECT 1 FROM webhook_deliveries e
			WHERE e.webhook_id = d.webhook_id AND e.object = d.object AND e.status = 'pending' AND e.seq < d.seq)
		ORDER BY d.try_at, d.seq LIMIT $3`, webhook, Micros(now), int64(limit))
}

// ClaimDelivery keeps other processes from sending a delivery until a time, and counts the attempt. Of several one gets it.
func ClaimDelivery(ctx context.Context, tx *Tx, d *Delivery, now, until time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET try_at = $4, attempts = attempts + 1, last_at = $5,
			first_at = CASE WHEN first_at = 0 THEN $5 ELSE first_at END
		WHERE webhook_id = $1 AND delivery_id = $2 AND status = 'pending' AND try_at = $3 AND attempts = $6`,
		d.Webhook, d.ID, Micros(d.TryAt), Micros(until), Micros(now), d.Attempts)
	if err != nil || n == 0 {
		return false, err
	}
	d.TryAt, d.LastAt, d.Attempts = until, now, d.Attempts+1
	if d.FirstAt.IsZero() {
		d.FirstAt = now
	}
	return true, nil
}

// EndAttempt stores the outcome of an attempt that [ClaimDelivery] began, unless somebody else has taken the delivery over or
// its owner had it sent again meanwhile; then it reports false.
func EndAttempt(ctx context.Context, tx *Tx, d *Delivery, claimed time.Time) (bool, error) {
	return changed(tx.Exec(ctx, `UPDATE webhook_deliveries SET status = $4, try_at = $5, last_status = $6, last_error = $7, done_at = $8
		WHERE webhook_id = $1 AND delivery_id = $2 AND status = 'pending' AND try_at = $3 AND attempts = $9`,
		d.Webhook, d.ID, Micros(claimed), string(d.Status), Micros(d.TryAt), d.LastStatus, d.LastError, Micros(d.DoneAt), d.Attempts))
}

// ResendDelivery makes a delivery pending again, as if it had never been sent.
func ResendDelivery(ctx context.Context, tx *Tx, webhook, id string, at time.Time) error {
	return found(tx.Exec(ctx, `UPDATE webhook_deliveries SET status = $3, try_at = $4, attempts = 0, first_at = 0, done_at = 0
		WHERE webhook_id = $1 AND delivery_id = $2`, webhook, id, string(toll.DeliveryPending), Micros(at)))
}

// Deliveries lists the deliveries of a webhook; status "" lists all.
func Deliveries(ctx context.Context, q Querier, webhook string, status toll.DeliveryStatus, p Page) (List[*Delivery], error) {
	l := Listing{
		Where: "webhook_id = $1", Args: []any{webhook}, ID: "delivery_id",
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "last_at"},
	}
	if status != "" {
		l.Where, l.Args = l.Where+" AND status = $2", append(l.Args, string(status))
	}
	return deliveries.list(ctx, q, l, p)
}

// ForgetDeliveries removes deliveries that were done before a time, at most limit, and returns how many.
func ForgetDeliveries(ctx context.Context, tx *Tx, before time.Time, limit int) (int64, error) {
	keys, err := All(ctx, tx, func(scan func(dest ...any) error) (k [2]string, err error) {
		err = scan(&k[0], &k[1])
		return k, err
	}, `SELECT webhook_id, delivery_id FROM webhook_deliveries WHERE status <> 'pending' AND done_at < $1
		ORDER BY done_at LIMIT $2`, Micros(before), int64(limit))
	if err != nil {
		return 0, err
	}
	for _, k := range keys {
		if _, err := tx.Exec(ctx, "DELETE FROM webhook_deliveries WHERE webhook_id = $1 AND delivery_id = $2 AND status <> 'pending'", k[0], k[1]); err != nil {
			return 0, err
		}
	}
	return int64(len(keys)), nil
}
