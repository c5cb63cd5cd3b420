package events

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// deliveryTimeout is how long a receiver has; a status of 2xx within it is success.
	deliveryTimeout = 10 * time.Second
	// lease is when another process may take a delivery over whose sender is gone.
	lease = 30 * time.Second
	// lastRetry is how long after the first attempt a delivery is given up, and pauseAfter how long a webhook without a success
	// stays active.
	lastRetry  = 72 * time.Hour
	pauseAfter = 72 * time.Hour
	// deliverEvery is how often the sender looks for work that nobody told it of.
	deliverEvery = 500 * time.Millisecond
	// maxPending bounds the deliveries of a webhook that wait. The others wait as events.
	maxPending = 2000
	fanOut     = 200
	// Slots: of a webhook, of one that fails, of all that work and of all that fail. Receivers that fail do not keep others waiting.
	// All mails go to one server: they have slots of their own.
	slotsOfHook, slotsOfFailing             = 4, 1
	slotsWorking, slotsFailing, slotsOfMail = 192, 64, 4
	hooksInOne                              = 100
	// endGrace is how long deliveries under way have when the process ends.
	endGrace = 3 * time.Second
	// deliveryLife is how long deliveries are listed after they are done.
	deliveryLife = 30 * 24 * time.Hour
)

var retryAfter = []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}

// nextTry returns how long after an attempt the next one follows.
func nextTry(attempts int64) time.Duration {
	if attempts >= 1 && attempts <= int64(len(retryAfter)) {
		return retryAfter[attempts-1]
	}
	return time.Hour
}

type sender struct {
	e    *Events
	wake jobs.Signal

	mu      sync.Mutex
	flying  map[string]int // deliveries on their way, by webhook
	slots   [3]int         // taken, by webhooks that work, by those that fail, and by mails
	sending sync.WaitGroup
	sends   context.Context // of deliveries under way
	cut     context.CancelFunc
}

func (s *sender) run(ctx context.Context) error { return errors.Join(s.fanOut(ctx), s.send(ctx)) }

// end finishes what was begun: the receiver has it, and the answer is to be noted. What takes too long is sent again.
func (s *sender) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	defer context.AfterFunc(ctx, s.cut)()
	s.sending.Wait()
	s.cut()
	s.e.client.Close()
	return nil
}

func (s *sender) fanOut(ctx context.Context) error {
	behind := func(after string) ([]*store.Webhook, error) {
		return store.WebhooksBehind(ctx, s.e.st, after, hooksInOne)
	}
	return each(behind, func(w *store.Webhook) (err error) {
		for more := true; more && err == nil; {
			more, err = s.e.fanOut(ctx, w.ID)
		}
		return err
	})
}

// each does something with all webhooks of a list, which is read in parts.
func each(list func(after string) ([]*store.Webhook, error), do func(*store.Webhook) error) error {
	for after := ""; ; {
		hooks, err := list(after)
		if err != nil {
			return err
		}
		for _, w := range hooks {
			after = w.ID
			if err := do(w); err != nil {
				return err
			}
		}
		if len(hooks) < hooksInOne {
			return nil
		}
	}
}

// fanOut makes deliveries of the next events for a webhook, in one transaction with its place in the stream: each event has at
// most one. It reports whether there may be more.
func (e *Events) fanOut(ctx context.Context, webhook string) (more bool, err error) {
	err = e.st.Tx(ctx, func(tx *store.Tx) error {
		more = false
		w, found, err := store.IfThere(store.WebhookForUpdate(ctx, tx, webhook))
		if !found || w.Status != toll.WebhookActive {
			return err
		}
		pending, err := store.CountPending(ctx, tx, w.ID, e.maxPending)
		if err != nil || pending >= int64(e.maxPending) {
			return err
		}
		events, err := store.EventsAfter(ctx, tx, w.Principal, w.Sequence, fanOut)
		if err != nil || len(events) == 0 {
			return err
		}
		now := e.now()
		for _, ev := range events {
			w.Sequence = ev.Sequence
			if len(w.Types) > 0 && !slices.Contains(w.Types, ev.Type) || isMail(w) && !concerns(w.Principal, ev) {
				continue
			}
			d := &store.Delivery{
				Webhook: w.ID, ID: toll.NewUUID(), Sequence: ev.Sequence, EventID: ev.ID, Type: ev.Type, Object: ev.Kind + "/" + ev.Object, TryAt: now, CreatedAt: now,
			}
			if err := store.InsertDelivery(ctx, tx, d); err != nil {
				return err
			}
		}
		e.at("fanned")
		more = len(events) == fanOut
		return store.MoveWebhook(ctx, tx, w.ID, w.Sequence)
	})
	return more, err
}

// send starts what is due, as far as there are slots.
func (s *sender) send(ctx context.Context) error {
	due := func(after string) ([]*store.Webhook, error) {
		return store.WebhooksDue(ctx, s.e.st, s.e.clock(), after, hooksInOne)
	}
	return each(due, func(w *store.Webhook) error { return s.sendTo(ctx, w) })
}

func (s *sender) sendTo(ctx context.Context, w *store.Webhook) error {
	kind, most, all := 0, slotsOfHook, slotsWorking
	switch {
	case isMail(w):
		kind, most, all = 2, 1, slotsOfMail
	case !w.FailingSince.IsZero():
		kind, most, all = 1, slotsOfFailing, slotsFailing
	}
	s.mu.Lock()
	free := min(most-s.flying[w.ID], all-s.slots[kind])
	s.mu.Unlock()
	if free <= 0 {
		return nil
	}
	due, err := store.DueDeliveries(ctx, s.e.st, w.ID, s.e.clock(), free)
	if err != nil {
		return err
	}
	for _, d := range due {
		if isMail(w) && s.e.cfg.Mail != nil && !s.e.cfg.Mail.TakeMail(w.Credential) {
			return nil // it stays due, and is no attempt
		}
		claimed, err := s.e.claim(ctx, d)
		if err != nil {
			return err
		}
		if !claimed {
			continue
		}
		s.mu.Lock()
		s.flying[w.ID]++
		s.slots[kind]++
		s.mu.Unlock()
		s.sending.Go(func() {
			s.e.attempt(s.sends, w.ID, d)
			s.mu.Lock()
			s.slots[kind]--
			if s.flying[w.ID]--; s.flying[w.ID] == 0 {
				delete(s.flying, w.ID)
			}
			s.mu.Unlock()
			s.wake.Fire()
		})
	}
	return nil
}

func (e *Events) claim(ctx context.Context, d *store.Delivery) (claimed bool, err error) {
	now := e.now()
	before := *d
	err = e.st.Tx(ctx, func(tx *store.Tx) error {
		*d = before
		var err error
		claimed, err = store.ClaimDelivery(ctx, tx, d, now, now.Add(lease))
		return err
	})
	return claimed, err
}

// attempt sends a delivery that is claimed, and notes what came of it.
func (e *Events) attempt(ctx context.Context, webhook string, d *store.Delivery) {
	e.at("claimed")
	w, err := store.WebhookByID(ctx, e.st, webhook) // as it is now: url and secrets may have changed while it waited
	if err != nil {
		if !errors.Is(err, store.ErrNotFound) {
			e.warn(ctx, "cannot read the webhook of a delivery", err)
		}
		return
	}
	var status int64
	var problem string
	if isMail(w) {
		problem = e.mail(ctx, w, d)
	} else {
		status, problem = e.post(ctx, w, d)
	}
	e.at("sent")
	if err := e.finish(ctx, d, status, problem); err != nil {
		e.warn(ctx, "cannot save the outcome of a delivery", err)
	}
}

// noAnswer is the error of every failure without a response. It is always the same, so that it reveals nothing about the network of the service.
const noAnswer = "no response within ten seconds, or the receiver is unreachable"

// post sends a delivery and returns the status of the answer, 0 for none, and what went wrong.
func (e *Events) post(ctx context.Context, w *store.Webhook, d *store.Delivery) (status int64, problem string) {
	body, err := e.body(ctx, w, d)
	if err != nil {
		e.warn(ctx, "cannot read the event of a delivery", err)
		return 0, "the event could not be read"
	}
	header, err := e.headers(w, d.EventID, body)
	if err != nil {
		e.warn(ctx, "cannot sign a delivery", err)
		return 0, "the delivery could not be signed"
	}
	answer, err := e.client.Do(ctx, http.MethodPost, w.URL, header, body)
	switch {
	case errors.Is(err, outbound.ErrRefused), err != nil:
		return 0, noAnswer
	case answer.Status < 200 || answer.Status > 299:
		return int64(answer.Status), "the receiver responded with " + strconv.Itoa(answer.Status)
	}
	return int64(answer.Status), ""
}

func (e *Events) body(ctx context.Context, w *store.Webhook, d *store.Delivery) ([]byte, error) {
	if d.Sequence == 0 {
		return []byte(d.Body), nil
	}
	row, err := store.EventBySequence(ctx, e.st, w.Principal, d.Sequence)
	if err != nil {
		return nil, err
	}
	events, err := e.render(ctx, w.Principal, []*store.Event{row})
	if err != nil {
		return nil, err
	}
	return x402.Encode(events[0])
}

// headers signs a body with every valid secret, the newest first.
func (e *Events) headers(w *store.Webhook, eventID string, body []byte) (http.Header, error) {
	sealed := [][]byte{w.Secret}
	if w.OldSecret != nil && e.clock().Before(w.OldSecretUntil) {
		sealed = append(sealed, w.OldSecret)
	}
	secrets := make([]string, len(sealed))
	for i, s := range sealed {
		secret, err := e.cfg.Open(s, SecretOf(w.ID))
		if err != nil {
			return nil, err
		}
		secrets[i] = string(secret)
	}
	// Receivers compare the time with their own clock, which the clock of a sandbox does not move.
	return x402.WebhookHeader(e.cfg.Namespace, eventID, time.Now(), body, secrets...), nil
}

// finish notes the outcome of an attempt, and pauses a webhook that had no success for three days, or whose mails nobody may read.
func (e *Events) finish(ctx context.Context, d *store.Delivery, status int64, problem string) error {
	claimed := d.TryAt
	return e.st.Tx(ctx, func(tx *store.Tx) error {
		now := e.now()
		w, found, err := store.IfThere(store.WebhookForUpdate(ctx, tx, d.Webhook))
		if !found {
			return err
		}
		end := *d
		end.LastStatus, end.LastError = status, problem
		if next := now.Add(nextTry(d.Attempts)); problem == "" {
			end.Status, end.DoneAt, end.TryAt = toll.DeliverySucceeded, now, now
		} else if problem != noReader && next.After(d.FirstAt.Add(lastRetry)) {
			end.Status, end.DoneAt, end.TryAt = toll.DeliveryFailed, now, now
		} else {
			end.Status, end.TryAt = toll.DeliveryPending, next
		}
		ours, err := store.EndAttempt(ctx, tx, &end, claimed)
		if err != nil || !ours {
			return err
		}
		return e.judge(ctx, tx, w, problem, now)
	})
}

func (e *Events) judge(ctx context.Context, tx *store.Tx, w *store.Webhook, problem string, now time.Time) error {
	success := problem == ""
	switch {
	case success && w.FailingSince.IsZero(), !success && w.Status != toll.WebhookActive:
		return nil
	case success:
		w.FailingSince = time.Time{}
	case w.FailingSince.IsZero() && problem != noReader:
		w.FailingSince = now
	case problem == noReader || now.Sub(w.FailingSince) >= pauseAfter:
		w.Status, w.UpdatedAt = toll.WebhookPaused, now
		if err := store.UpdateWebhook(ctx, tx, w); err != nil {
			return err
		}
		return store.InsertEvent(ctx, tx, store.NewEvent{
			Principal: w.Principal, Type: toll.EventWebhookDisabled, Kind: "webhook", ID: w.ID, Data: record(w), At: now,
		})
	default:
		return nil
	}
	return store.UpdateWebhook(ctx, tx, w)
}
