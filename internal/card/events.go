package card

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

const (
	// eventsEvery is how often the events of Stripe are read.
	eventsEvery = 30 * time.Second
	// overlap is how much is read again in each turn, because an event may be listed late or with the time of another machine. Every
	// wholeEvery, and at the start of a process, it is wholeOverlap. A turn that is behind by more than window reads only so much.
	overlap, wholeOverlap, wholeEvery = 2 * time.Minute, time.Hour, 15 * time.Minute
	window                            = time.Hour
	// listedFor is how far back the list of events is relied upon. Stripe keeps it for 30 days.
	listedFor = 28 * 24 * time.Hour
	// keepEvents, also of enrolments, and keepCalls are how long rows are kept, and dropAtOnce how many of a table a turn removes.
	keepEvents, keepCalls = 31 * 24 * time.Hour, 35 * 24 * time.Hour
	dropAtOnce            = 500
	// perPage is how many objects a list returns at a time, each of them up to some kilobytes.
	perPage = 50

	// signatureAge is how old a webhook may be, and how far ahead of the clock of the machine.
	signatureAge = 300 * time.Second
	// maxSignature and maxEvent bound the header and the body of a webhook, in bytes.
	maxSignature, maxEvent = 1 << 10, 512 << 10

	cursorSetting = "card_events"
)

// eventTypes are the types of events that say something here; a list of events takes 20 at most.
var eventTypes = []string{
	"checkout.session.completed", "checkout.session.expired",
	"checkout.session.async_payment_succeeded", "checkout.session.async_payment_failed",
	"payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled",
	"payment_intent.processing",
	"refund.created", "refund.updated", "refund.failed",
	"charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed",
	"charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated",
	"setup_intent.succeeded", "setup_intent.setup_failed",
	"payment_method.automatically_updated", "payment_method.detached",
}

// event is what is read of an event. Everything else comes from the object itself. Of the objects
// of other lists only ID and Created are there.
type event struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Account  string `json:"account"` // of Connect; "" for the account of the key
	Livemode bool   `json:"livemode"`
	Created  int64  `json:"created"`
	Data     struct {
		Object struct {
			ID string `json:"id"`
		} `json:"object"`
	} `json:"data"`
}

// objectID is what ids of Stripe look like.
var objectID = regexp.MustCompile(`^[A-Za-z0-9]{2,20}_[A-Za-z0-9_]{1,200}$`)

// record returns the row of an event, nil for one that says nothing here.
func (e *event) record() *store.CardEvent {
	if !slices.Contains(eventTypes, e.Type) || !objectID.MatchString(e.ID) || !objectID.MatchString(e.Data.Object.ID) {
		return nil
	}
	return &store.CardEvent{ID: e.ID, Type: e.Type, Object: e.Data.Object.ID, CreatedAt: time.Unix(e.Created, 0)}
}

// signedAt returns the time in a header Stripe-Signature, which is there once.
func signedAt(header string) (at time.Time, ok bool) {
	if len(header) > maxSignature {
		return at, false
	}
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(part, "=")
		if name != "t" {
			continue
		}
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || ok || seconds < 0 || seconds > 1<<40 {
			return at, false
		}
		at, ok = time.Unix(seconds, 0), true
	}
	return at, ok
}

// inbox takes webhooks.
type inbox struct {
	cfg       *Config
	api       *api
	oddEvent  atomic.Int64 // when an event of another account or mode was logged last, in Unix nanoseconds
	badSecret atomic.Int64 // when a webhook that no secret verifies was
}

// CheckHead refuses a webhook by its header Stripe-Signature alone: one whose time is missing, there twice, or further than [signatureAge]
// from the clock of the machine. Error: [toll.CodeWebhookSignature].
func (i *inbox) CheckHead(signature string) error {
	refused := toll.NewError(toll.CodeWebhookSignature)
	at, ok := signedAt(signature)
	if !ok {
		return refused.WithDetails("The Stripe-Signature header must contain exactly one timestamp t, in Unix seconds.")
	}
	if i.cfg.Machine().Sub(at).Abs() > signatureAge {
		return refused.WithDetails("The timestamp of the signature differs from the clock of this service by more than 300 seconds.")
	}
	return nil
}

// Receive takes a webhook: the header Stripe-Signature and the raw body. It stores the event with the job that works on it, and
// returns. It returns nil for events that were taken before, are of another account or mode, or of a type that says nothing
// here. Errors: [toll.CodeWebhookSignature], before anything else is read of the body; those of the database.
func (i *inbox) Receive(ctx context.Context, signature string, body []byte) error {
	if err := i.CheckHead(signature); err != nil {
		return err
	}
	if len(body) > maxEvent {
		return toll.NewError(toll.CodeWebhookSignature)
	}
	secrets := i.api.secrets.Load().Webhooks
	if !slices.ContainsFunc(secrets, func(secret string) bool {
		return webhook.ValidatePayloadIgnoringTolerance(body, signature, secret) == nil
	}) {
		if i.cfg.seldom(&i.badSecret) {
			i.cfg.Log.WarnContext(ctx,
				"a webhook from the card processor cannot be verified: check that the webhook secret matches the endpoint at Stripe",
				"secrets", len(secrets))
		}
		return toll.NewError(toll.CodeWebhookSignature)
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		i.cfg.alarm(ctx, &i.oddEvent, alarm.CardOddEvent, "an event from the card processor cannot be parsed")
		return nil
	}
	if other, err := i.otherAccount(ctx, &e); other || err != nil {
		return err
	}
	row := e.record()
	if row == nil {
		return nil
	}
	err := i.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := store.TakeCardEvents(ctx, tx, i.cfg.now(), row)
		return err
	})
	i.cfg.failpoint(atEvent)
	return err
}

// otherAccount reports whether an event is of another mode, or of another account than that of the key.
func (i *inbox) otherAccount(ctx context.Context, e *event) (bool, error) {
	if e.Livemode != (i.cfg.Environment == toll.Live) {
		i.cfg.alarm(ctx, &i.oddEvent, alarm.CardOddEvent, "an event from the card processor belongs to another mode (test or live)", "event", e.ID, "live", e.Livemode)
		return true, nil
	}
	if e.Account == "" {
		return false, nil
	}
	ours, err := store.Setting(ctx, i.cfg.Store, AccountSetting)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	if e.Account == string(ours) {
		return false, nil
	}
	i.cfg.alarm(ctx, &i.oddEvent, alarm.CardOddEvent, "an event from the card processor belongs to another account", "event", e.ID, "account", e.Account)
	return true, nil
}

// Loops returns the loop that reads the events of Stripe from a stored cursor. Any number of processes may run it; a lease lets
// one of them work at a time.
func (r *Rail) Loops() []jobs.Loop {
	lease := jobs.NewLease(r.cfg.Store, r.cfg.Clock, "card.events")
	l := &eventReader{rail: r, cfg: r.cfg, lease: lease}
	owed := jobs.NewLease(r.cfg.Store, r.cfg.Clock, "card.payouts")
	w := &payoutWatch{cfg: r.cfg, lease: owed}
	return []jobs.Loop{
		{Name: "card.events", Every: eventsEvery, Wake: r.wake, Lease: lease, Run: l.run},
		{Name: "card.payouts", Every: payoutsEvery, Lease: owed, Run: w.run},
	}
}

// eventReader reads the list of events in one process.
type eventReader struct {
	rail  *Rail
	cfg   *Config
	lease *jobs.Lease
	whole time.Time // when the overlap was read in full
	lost  bool      // this turn reads events of payments that a restored database may lack
}

// cursor is the setting that says how far events were read, by the clock of the machine.
type cursor struct {
	At time.Time `json:"at"`
}

// span is what one turn reads.
type span struct {
	from, until time.Time // when it was created; until is the zero time for everything since
	at          time.Time // the cursor afterwards
	whole       bool      // with the overlap in full
	more        bool      // there is more to read at once
	lost        bool      // events of this time are not listed any more: the objects are
}

// spanOf returns what the next turn reads, and when the overlap was read in full before.
func spanOf(at, whole, now time.Time) span {
	if at.After(now) { // the clock of the machine has gone back
		at = now
	}
	s := span{from: at.Add(-overlap), at: now, whole: now.Sub(whole) >= wholeEvery || whole.After(now)}
	if s.whole {
		s.from = at.Add(-wholeOverlap)
	}
	switch behind := now.Sub(at); {
	case behind > listedFor:
		s.from, s.whole, s.lost = at.Add(-wholeOverlap), true, true
	case behind > window:
		s.until, s.more = at.Add(window), true
		s.at = s.until
	}
	return s
}

// run reads one span of events and moves the cursor. The cursor of a new database is now.
func (l *eventReader) run(ctx context.Context) (next time.Duration, err error) {
	if err := l.lease.Take(ctx); err != nil {
		return 0, err
	}
	now := l.cfg.Machine()
	at, err := l.cursor(ctx, now)
	if err != nil {
		return 0, err
	}
	s := spanOf(at, l.whole, now)
	mark, err := store.ReadRestoration(ctx, l.cfg.Store)
	if err != nil {
		return 0, err
	}
	l.lost = mark != nil && at.Before(mark.RestoredAt)
	if s.lost {
		err = l.readObjects(ctx, s)
	} else {
		err = l.readList(ctx, "events", s, l.take)
	}
	if err == nil {
		l.cfg.failpoint(atCursor)
		err = l.move(ctx, s.at)
	}
	if err != nil {
		return 0, err
	}
	if s.whole {
		l.whole = now
	}
	dropped, err := l.drop(ctx, now)
	if s.more || dropped >= dropAtOnce {
		return jobs.AtOnce, err
	}
	return 0, err
}

// cursor returns how far events were read.
func (l *eventReader) cursor(ctx context.Context, now time.Time) (time.Time, error) {
	at, err := readUntil(ctx, l.cfg.Store)
	if err == nil && at.IsZero() {
		if mark, err := store.ReadRestoration(ctx, l.cfg.Store); err != nil {
			return now, err
		} else if mark != nil { // the backup is from before the first start with this rail
			now = mark.BackupAt
		}
		return now, l.move(ctx, now)
	}
	return at, err
}

// readUntil returns how far events were read, the zero time when they never were.
func readUntil(ctx context.Context, q store.Querier) (time.Time, error) {
	text, found, err := store.IfThere(store.Setting(ctx, q, cursorSetting))
	var c cursor
	if found {
		err = json.Unmarshal(text, &c)
	}
	return c.At, err
}

// EventsRead reports whether the events of the processor were read up to a moment, by the clock of the machine, or never were read at all.
func EventsRead(ctx context.Context, q store.Querier, until time.Time) (bool, error) {
	at, err := readUntil(ctx, q)
	return at.IsZero() || !at.Before(until), err
}

// move stores how far events were read.
func (l *eventReader) move(ctx context.Context, at time.Time) error {
	text, err := json.Marshal(cursor{At: at.UTC()})
	if err != nil {
		return err
	}
	return l.write(ctx, func(tx *store.Tx) error { return store.PutSetting(ctx, tx, cursorSetting, text) })
}

// write runs a transaction of the process that has the lease.
func (l *eventReader) write(ctx context.Context, f func(tx *store.Tx) error) error {
	if err := l.lease.Take(ctx); err != nil {
		return err
	}
	return l.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := l.lease.Check(ctx, tx); err != nil {
			return err
		}
		return f(tx)
	})
}

// readObjects puts a job for each object that may have changed while no events were read for so long that Stripe has forgotten some: those
// that it lists as made since, and those of the database that may still change.
func (l *eventReader) readObjects(ctx context.Context, s span) error {
	alarm.Log(ctx, l.cfg.Log, alarm.CardEventsGap, "no events from the card processor were read for more than 28 days; reading all objects that may have changed", "since", s.from)
	ids, err := store.UnsettledCardObjects(ctx, l.cfg.Store, s.from.Add(-listedFor))
	for part := range slices.Chunk(ids, perPage) {
		if err == nil {
			err = l.syncAll(ctx, part)
		}
	}
	for _, path := range []string{"payment_intents", "refunds", "disputes"} {
		if err == nil {
			err = l.readList(ctx, path, s, func(ctx context.Context, page []event) error {
				return l.syncAll(ctx, store.Mapped(page, func(o event) string { return o.ID }))
			})
		}
	}
	return err
}

func (l *eventReader) syncAll(ctx context.Context, ids []string) error {
	err := l.write(ctx, func(tx *store.Tx) error { return store.SyncCardObjects(ctx, tx, l.cfg.now(), ids...) })
	if err != nil {
		return err
	}
	return l.settleLost(ctx, ids)
}

func (l *eventReader) take(ctx context.Context, page []event) error {
	var rows []*store.CardEvent
	for _, e := range page {
		if other, err := l.rail.otherAccount(ctx, &e); err != nil {
			return err
		} else if other {
			continue
		}
		if row := e.record(); row != nil {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	err := l.write(ctx, func(tx *store.Tx) error {
		_, err := store.TakeCardEvents(ctx, tx, l.cfg.now(), rows...)
		return err
	})
	l.cfg.failpoint(atEvent)
	if err != nil {
		return err
	}
	return l.settleLost(ctx, store.Mapped(rows, func(e *store.CardEvent) string { return e.Object }))
}

// settleLost settles payments that a restored database may lack before the cursor moves, which tells [barred] that their
// delegations count them. Everything else is left to the jobs.
func (l *eventReader) settleLost(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if !l.lost || !IsPayment(id) {
			continue
		}
		if err := l.lease.Take(ctx); err != nil {
			return err
		}
		if _, err := l.rail.payments.settleIntent(ctx, id); err != nil {
			if _, isAnswer := errors.AsType[*answer](err); isAnswer || unusable(ctx, err) {
				return err
			}
			l.cfg.Log.WarnContext(ctx, "a payment cannot be settled after a restore; its job retries", "intent", id, "error", err.Error())
		}
	}
	return nil
}

// readList reads a list of Stripe page by page, the newest first.
func (l *eventReader) readList(ctx context.Context, path string, s span, f func(ctx context.Context, page []event) error) error {
	p := &stripe.EventListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: s.from.Unix()}}
	p.Limit = stripe.Int64(perPage)
	if !s.until.IsZero() {
		p.CreatedRange.LesserThanOrEqual = s.until.Unix() + 1
	}
	if path == "events" {
		p.Types = stripe.StringSlice(eventTypes)
	}
	for {
		var page struct {
			stripe.APIResource
			HasMore bool    `json:"has_more"`
			Data    []event `json:"data"`
		}
		if err := l.rail.stripe.get(ctx, path, p, &page); err != nil {
			return err
		}
		if len(page.Data) == 0 {
			return nil
		}
		if err := f(ctx, page.Data); err != nil || !page.HasMore {
			return err
		}
		p.StartingAfter = &page.Data[len(page.Data)-1].ID
	}
}

// drop removes old rows, and returns the highest number of a table.
func (l *eventReader) drop(ctx context.Context, now time.Time) (n int64, err error) {
	err = l.write(ctx, func(tx *store.Tx) error {
		calls, err := store.DropCardCalls(ctx, tx, l.cfg.now().Add(-keepCalls), dropAtOnce)
		if err != nil {
			return err
		}
		setups, err := store.DropCardSetups(ctx, tx, l.cfg.now().Add(-keepEvents), dropAtOnce)
		if err != nil {
			return err
		}
		n, err = store.DropCardEvents(ctx, tx, now.Add(-keepEvents), dropAtOnce)
		n = max(n, calls, setups)
		return err
	})
	return n, err
}
