package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// Webhook is where a principal gets its events. Secrets are sealed.
type Webhook struct {
	ID             string // UUID
	Principal      toll.Address
	URL            string
	Types          []toll.EventType // empty: all
	Description    string           // "" for none
	Status         toll.WebhookStatus
	Secret         []byte
	OldSecret      []byte // nil: none
	OldSecretUntil time.Time
	Sequence       int64     // last event for which deliveries are made
	FailingSince   time.Time // zero: the last attempt was a success, or there was none
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

const webhookColumns = `webhook_id, principal, url, types, description, status, secret, old_secret, old_secret_until, seq, failing_since,
	created_at, updated_at`

func encodeTypes(types []toll.EventType) (string, error) {
	if len(types) == 0 {
		return "", nil
	}
	return encode(types)
}

// InsertWebhook adds a webhook. Its stream begins behind the events that there are.
func InsertWebhook(ctx context.Context, tx *Tx, w *Webhook) error {
	types, err := encodeTypes(w.Types)
	if err != nil {
		return err
	}
	err = tx.QueryRow(ctx, "SELECT COALESCE(MAX(last), 0) FROM event_streams WHERE principal = $1", w.Principal.Lower()).Scan(&w.Sequence)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO webhooks ("+webhookColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
		w.ID, w.Principal.Lower(), w.URL, types, w.Description, string(w.Status), w.Secret, w.OldSecret, Micros(w.OldSecretUntil), w.Sequence,
		Micros(w.FailingSince), Micros(w.CreatedAt), Micros(w.UpdatedAt))
	return err
}

// CountWebhooks returns how many webhooks an address has, and keeps others from adding one until the end of the transaction.
func CountWebhooks(ctx context.Context, tx *Tx, owner toll.Address) (n int64, err error) {
	// Who adds first makes the row; the stream stays empty.
	if _, err := tx.Exec(ctx, "INSERT INTO event_streams (principal, last) VALUES ($1, 0) ON CONFLICT (principal) DO NOTHING", owner.Lower()); err != nil {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "SELECT last FROM event_streams WHERE principal = $1"+tx.ForUpdate(), owner.Lower()).Scan(&n); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, "SELECT COUNT(*) FROM webhooks WHERE principal = $1", owner.Lower()).Scan(&n)
	return n, err
}

// UpdateWebhook stores all of a webhook but its id, owner, place in the stream and time of creation.
func UpdateWebhook(ctx context.Context, tx *Tx, w *Webhook) error {
	types, err := encodeTypes(w.Types)
	if err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `UPDATE webhooks SET url = $2, types = $3, description = $4, status = $5, secret = $6, old_secret = $7,
		old_secret_until = $8, failing_since = $9, updated_at = $10 WHERE webhook_id = $1`,
		w.ID, w.URL, types, w.Description, string(w.Status), w.Secret, w.OldSecret, Micros(w.OldSecretUntil), Micros(w.FailingSince), Micros(w.UpdatedAt))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// DeleteWebhook removes a webhook and its deliveries.
func DeleteWebhook(ctx context.Context, tx *Tx, id string) error {
	if _, err := tx.Exec(ctx, "DELETE FROM webhooks WHERE webhook_id = $1", id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "DELETE FROM webhook_deliveries WHERE webhook_id = $1", id)
	return err
}

// WebhookByID returns a webhook, or [ErrNotFound].
func WebhookByID(ctx context.Context, q Querier, id string) (*Webhook, error) {
	return scanWebhook(q.QueryRow(ctx, "SELECT "+webhookColumns+" FROM webhooks WHERE webhook_id = $1", id).Scan)
}

// WebhookForUpdate is [WebhookByID] for a webhook that the transaction is going to change.
func WebhookForUpdate(ctx context.Context, tx *Tx, id string) (*Webhook, error) {
	return scanWebhook(tx.QueryRow(ctx, "SELECT "+webhookColumns+" FROM webhooks WHERE webhook_id = $1"+tx.ForUpdate(), id).Scan)
}

// WebhooksOf lists the webhooks of an address; status "" lists all.
func WebhooksOf(ctx context.Context, q Querier, owner toll.Address, status toll.WebhookStatus, p Page) (List[*Webhook], error) {
	l := Listing{
		Table: "webhooks", Columns: webhookColumns, Where: "principal = $1", Args: []any{owner.Lower()}, ID: "webhook_id",
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "updated_at"},
	}
	if status != "" {
		l.Where, l.Args = l.Where+" AND status = $2", append(l.Args, string(status))
	}
	return Select(ctx, q, l, p, scanWebhook)
}

// WebhooksBehind returns the active webhooks behind an id for whose newest events no deliveries are made, at most limit.
func WebhooksBehind(ctx context.Context, q Querier, after string, limit int) ([]*Webhook, error) {
	rows, err := q.Query(ctx, "SELECT "+webhookColumns+` FROM webhooks w WHERE w.status = 'active'
		AND EXISTS (SELECT 1 FROM event_streams s WHERE s.principal = w.principal AND s.last > w.seq) AND w.webhook_id > $1
		ORDER BY w.webhook_id LIMIT $2`, after, int64(limit))
	return scanAll(rows, err, scanWebhook)
}

// WebhooksDue returns the active webhooks behind an id that have a delivery to be sent, at most limit.
func WebhooksDue(ctx context.Context, q Querier, now time.Time, after string, limit int) ([]*Webhook, error) {
	rows, err := q.Query(ctx, "SELECT "+webhookColumns+` FROM webhooks w WHERE w.status = 'active' AND w.webhook_id > $2
		AND EXISTS (SELECT 1 FROM webhook_deliveries d WHERE d.webhook_id = w.webhook_id AND d.status = 'pending' AND d.try_at <= $1)
		ORDER BY w.webhook_id LIMIT $3`, Micros(now), after, int64(limit))
	return scanAll(rows, err, scanWebhook)
}

func scanWebhook(scan func(dest ...any) error) (*Webhook, error) {
	var w Webhook
	var principal, types, status string
	var until, failing, created, updated int64
	err := scan(&w.ID, &principal, &w.URL, &types, &w.Description, &status, &w.Secret, &w.OldSecret, &until, &w.Sequence, &failing, &created, &updated)
	if err != nil {
		return nil, err
	}
	w.Status = toll.WebhookStatus(status)
	w.OldSecretUntil, w.FailingSince = FromMicros(until), FromMicros(failing)
	w.CreatedAt, w.UpdatedAt = FromMicros(created), FromMicros(updated)
	if types != "" {
		if err := json.Unmarshal([]byte(types), &w.Types); err != nil {
			return nil, fmt.Errorf("store: webhook %s: %w", w.ID, err)
		}
	}
	w.Principal, err = toll.ParseAddress(principal)
	return &w, err
}

// MoveWebhook notes up to which event deliveries of a webhook are made.
func MoveWebhook(ctx context.Context, tx *Tx, id string, sequence int64) error {
	_, err := tx.Exec(ctx, "UPDATE webhooks SET seq = $2 WHERE webhook_id = $1", id, sequence)
	return err
}

// Delivery is an event on its way to a webhook.
type Delivery struct {
	Webhook    string
	ID         string // UUID
	Sequence   int64  // of the event, 0 for a test
	EventID    string
	Type       toll.EventType
	Object     string // kind and id: deliveries of one object are sent in the order of their events
	Body       string // of a test
	Status     toll.DeliveryStatus
	Attempts   int64
	FirstAt    time.Time // of the first attempt, zero before it
	TryAt      time.Time
	LastAt     time.Time
	LastStatus int64  // 0: none
	LastError  string // "" for none
	CreatedAt  time.Time
	DoneAt     time.Time
}

const deliveryColumns = `webhook_id, delivery_id, seq, event_id, type, object, body, status, attempts, first_at, try_at, last_at, last_status,
	last_error, created_at, done_at`

// InsertDelivery adds a delivery that is to be sent at once.
func InsertDelivery(ctx context.Context, tx *Tx, d *Delivery) error {
	event, err := uuidBytes(d.EventID)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO webhook_deliveries ("+deliveryColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, $9, 0, 0, '', $10, 0)`,
		d.Webhook, d.ID, d.Sequence, event, string(d.Type), d.Object, d.Body, string(toll.DeliveryPending), Micros(d.TryAt), Micros(d.CreatedAt))
	return err
}

// CountPending returns how many deliveries of a webhook are pending, counted up to limit.
func CountPending(ctx context.Context, q Querier, webhook string, limit int) (n int64, err error) {
	err = q.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM webhook_deliveries WHERE webhook_id = $1 AND status = 'pending' LIMIT $2) p`,
		webhook, int64(limit)).Scan(&n)
	return n, err
}

// DueDeliveries returns pending deliveries of a webhook that are to be sent now, at most limit: of each object only the one
// with the earliest event.
func DueDeliveries(ctx context.Context, q Querier, webhook string, now time.Time, limit int) ([]*Delivery, error) {
	rows, err := q.Query(ctx, "SELECT "+deliveryColumns+` FROM webhook_deliveries d
		WHERE d.webhook_id = $1 AND d.status = 'pending' AND d.try_at <= $2 AND NOT EXISTS (
			SELECT 1 FROM webhook_deliveries e
			WHERE e.webhook_id = d.webhook_id AND e.object = d.object AND e.status = 'pending' AND e.seq < d.seq)
		ORDER BY d.try_at, d.seq LIMIT $3`, webhook, Micros(now), int64(limit))
	return scanAll(rows, err, scanDelivery)
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
	n, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET status = $4, try_at = $5, last_status = $6, last_error = $7, done_at = $8
		WHERE webhook_id = $1 AND delivery_id = $2 AND status = 'pending' AND try_at = $3 AND attempts = $9`,
		d.Webhook, d.ID, Micros(claimed), string(d.Status), Micros(d.TryAt), d.LastStatus, d.LastError, Micros(d.DoneAt), d.Attempts)
	return n == 1, err
}

// ResendDelivery makes a delivery pending again, as if it had never been sent.
func ResendDelivery(ctx context.Context, tx *Tx, webhook, id string, at time.Time) error {
	n, err := tx.Exec(ctx, `UPDATE webhook_deliveries SET status = $3, try_at = $4, attempts = 0, first_at = 0, done_at = 0
		WHERE webhook_id = $1 AND delivery_id = $2`, webhook, id, string(toll.DeliveryPending), Micros(at))
	if err == nil && n == 0 {
		return ErrNotFound
	}
	return err
}

// DeliveryByID returns a delivery of a webhook, or [ErrNotFound].
func DeliveryByID(ctx context.Context, q Querier, webhook, id string) (*Delivery, error) {
	return scanDelivery(q.QueryRow(ctx, "SELECT "+deliveryColumns+" FROM webhook_deliveries WHERE webhook_id = $1 AND delivery_id = $2", webhook, id).Scan)
}

// Deliveries lists the deliveries of a webhook; status "" lists all.
func Deliveries(ctx context.Context, q Querier, webhook string, status toll.DeliveryStatus, p Page) (List[*Delivery], error) {
	l := Listing{
		Table: "webhook_deliveries", Columns: deliveryColumns, Where: "webhook_id = $1", Args: []any{webhook}, ID: "delivery_id",
		Sorts: map[Sort]string{SortCreated: "created_at", SortUpdated: "last_at"},
	}
	if status != "" {
		l.Where, l.Args = l.Where+" AND status = $2", append(l.Args, string(status))
	}
	return Select(ctx, q, l, p, scanDelivery)
}

// ForgetDeliveries removes deliveries that were done before a time, at most limit, and returns how many.
func ForgetDeliveries(ctx context.Context, tx *Tx, before time.Time, limit int) (int64, error) {
	rows, err := tx.Query(ctx, `SELECT webhook_id, delivery_id FROM webhook_deliveries WHERE status <> 'pending' AND done_at < $1
		ORDER BY done_at LIMIT $2`, Micros(before), int64(limit))
	keys, err := scanAll(rows, err, func(scan func(dest ...any) error) (k [2]string, err error) {
		err = scan(&k[0], &k[1])
		return k, err
	})
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

func scanDelivery(scan func(dest ...any) error) (*Delivery, error) {
	var d Delivery
	var event []byte
	var typ, status string
	var first, try, last, created, done int64
	err := scan(&d.Webhook, &d.ID, &d.Sequence, &event, &typ, &d.Object, &d.Body, &status, &d.Attempts, &first, &try, &last, &d.LastStatus,
		&d.LastError, &created, &done)
	d.EventID, d.Type, d.Status = uuidText(event), toll.EventType(typ), toll.DeliveryStatus(status)
	d.FirstAt, d.TryAt, d.LastAt, d.CreatedAt, d.DoneAt = FromMicros(first), FromMicros(try), FromMicros(last), FromMicros(created), FromMicros(done)
	return &d, err
}
