package card

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/store"
)

const (
	// keyLife is how long an idempotency key is used. Stripe keeps the outcome of a key for at least 24 hours.
	keyLife = 23 * time.Hour
	// callTries is how often one run sends a call whose answer is unclear.
	callTries = 3
	// busyPause is the pause after an answer that asks for one, deniedPause after one that only an operator can change.
	busyPause, deniedPause = time.Second, time.Minute
)

// Suffixes of idempotency keys.
const (
	keyCancel = "-cancel" // ends the intent of an attempt
	keyExpire = "-expire" // ends a page
	keyAgain  = "-again"  // a second call, which may end otherwise
)

// errForgotten says that a call without an answer is so old that Stripe may have forgotten its key. The caller looks the object up by list.
var errForgotten = errors.New("card: Stripe may have discarded the idempotency key of an unanswered call")

// processor asks Stripe. A call that changes something is stored before it is sent.
type processor struct {
	cfg         *Config
	api         *api
	denied      atomic.Bool  // Stripe refused the key when it was asked last
	deniedAlarm atomic.Int64 // when that raised an alarm last, in Unix nanoseconds
}

// call sends a request that changes something at Stripe, under the key of c, and reads the object into into. It stores the call before it
// sends it; build makes the parameters of a new one. A repeat sends the stored bytes, or, once the answer is stored, fetches the object. A
// path with an action, such as "refunds/re_1/cancel", has the object before the action.
//
// Errors: [*answer], errForgotten, those of the database.
func (p *processor) call(ctx context.Context, c *store.CardCall, build func() any, into stripe.LastResponseSetter) error {
	stored, err := store.CardCallByKey(ctx, p.cfg.Store, c.Key)
	if errors.Is(err, store.ErrNotFound) {
		c.Params, c.CreatedAt = encode(build()), p.cfg.now()
		err = p.cfg.Store.Tx(ctx, func(tx *store.Tx) (err error) {
			stored, err = store.EnsureCardCall(ctx, tx, c)
			return err
		})
	}
	if err != nil {
		return err
	}
	if *c = *stored; c.Status != 0 {
		return p.refetch(ctx, c, into)
	}
	p.cfg.failpoint(atCalling)
	err = p.send(ctx, c, into)
	p.cfg.failpoint(atAnswered)
	if c.Status == 0 {
		return err
	}
	if stored := p.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.AnswerCardCall(ctx, tx, c) }); stored != nil {
		return stored
	}
	return err
}

// send sends a stored call, up to [callTries] times while the answer is unclear. When the answer is clear it sets Status, Object and
// AnsweredAt of c, and empties Params; storing that is up to the caller.
func (p *processor) send(ctx context.Context, c *store.CardCall, into stripe.LastResponseSetter) error {
	now := p.cfg.now()
	if now.Sub(c.CreatedAt) >= keyLife {
		return errForgotten
	}
	var a *answer
	for try := 1; ; try++ {
		err := p.api.post(ctx, c, into)
		a, _ = errors.AsType[*answer](err)
		if err == nil && idOf(into) == "" {
			a = &answer{kind: unclear, code: "no_object"}
		}
		if a == nil || a.kind != unclear || try == callTries || ctx.Err() != nil {
			if a != nil {
				a.unsent = try == 1 && (a.status == http.StatusTooManyRequests || a.kind == denied)
			}
			break
		}
	}
	if a != nil {
		p.cfg.Log.InfoContext(ctx, "a call to the card processor failed", "call", c.Key, "path", c.Path, "answer", a)
	}
	switch {
	case a == nil:
		c.Status, c.Object = http.StatusOK, idOf(into)
	case a.kind == unclear, a.kind == busy, a.kind == denied:
		p.noteDenied(ctx, a)
		return a
	case a.kind == conflict:
		// The first request under the key had other bytes, and its outcome is not in this answer.
		alarm.Log(ctx, p.cfg.Log, alarm.CardKeyConflict, "an idempotency key was used with other parameters", "call", c.Key, "answer", a)
		return a
	default:
		c.Status, c.Object = int64(a.status), a.intent
	}
	p.denied.Store(false)
	c.Params, c.AnsweredAt = "", now
	if a != nil {
		return a
	}
	return nil
}

// refetch fetches the object of a call that was answered before.
func (p *processor) refetch(ctx context.Context, c *store.CardCall, into stripe.LastResponseSetter) error {
	switch {
	case c.Status == http.StatusPaymentRequired:
		return &answer{kind: card, status: int(c.Status), intent: c.Object}
	case c.Status == http.StatusNotFound:
		return &answer{kind: missing, status: int(c.Status)}
	case c.Status >= 300 || c.Object == "":
		return &answer{kind: refused, status: int(c.Status), intent: c.Object}
	}
	path, _, _ := strings.Cut(c.Path, "/"+c.Object)
	return p.get(ctx, path+"/"+c.Object, nil, into)
}

// get fetches an object or a list. path is below /v1/. Errors: [*answer].
func (p *processor) get(ctx context.Context, path string, params any, into stripe.LastResponseSetter) error {
	err := p.api.get(ctx, path, params, into)
	if a, ok := errors.AsType[*answer](err); ok {
		p.cfg.Log.InfoContext(ctx, "the card processor did not return an object", "path", path, "answer", a)
		p.noteDenied(ctx, a)
	}
	if err == nil {
		p.denied.Store(false)
	}
	return err
}

// customerTry is how long the idempotency keys of a customer are used.
const customerTry = 10 * time.Minute

// customer returns the customer of a workspace at Stripe, and creates it on first use. Stripe repeats a failed answer for the same key for a
// day, so the call is sent again under a second key, and under new keys every [customerTry]. A call without an answer may leave an unused
// customer. Errors: [*answer], errors of the database.
func (p *processor) customer(ctx context.Context, owner toll.Address) (id string, err error) {
	c, err := store.CardCustomerOf(ctx, p.cfg.Store, owner)
	if errors.Is(err, store.ErrNotFound) {
		err = p.cfg.Store.Tx(ctx, func(tx *store.Tx) (err error) {
			c, err = store.EnsureCardCustomer(ctx, tx, &store.CardCustomer{
				Owner: owner, RowID: toll.NewUUID(), CreatedAt: p.cfg.now(),
			})
			return err
		})
	}
	if err != nil || c.ID != "" {
		return c.ID, err
	}
	key := c.RowID
	if n := int64(p.cfg.now().Sub(c.CreatedAt) / customerTry); n > 0 {
		key += "-" + strconv.FormatInt(n, 10)
	}
	var made stripe.Customer
	for _, key := range []string{key, key + keyAgain} {
		call := &store.CardCall{Key: key, Subject: owner.Lower(), Path: "customers"}
		err = p.call(ctx, call, func() any {
			in := &stripe.CustomerCreateParams{}
			in.AddMetadata(metaInstallation, p.cfg.Installation)
			in.AddMetadata("address", owner.Lower())
			return in
		}, &made)
		if a, ok := errors.AsType[*answer](err); !ok || !a.failed() {
			break
		}
	}
	if err != nil {
		return "", err
	}
	c.ID = made.ID
	return c.ID, p.cfg.Store.Tx(ctx, func(tx *store.Tx) error { return store.SetCardCustomer(ctx, tx, c) })
}

// forgetCustomer has the next use make a new customer in the place of one that Stripe does not have any
// more. Its cards cannot be charged: they were detached with it.
func (p *processor) forgetCustomer(ctx context.Context, owner toll.Address, id string) error {
	p.cfg.Log.WarnContext(ctx, "the card processor no longer has a customer; a new one is created", "owner", owner, "customer", id)
	return p.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		return store.ForgetCardCustomer(ctx, tx, owner, id, toll.NewUUID(), p.cfg.now())
	})
}

// unavailable returns the error for callers when Stripe cannot be used now, with the time after
// which another try is of use: [toll.CodeCardUnreachable]. It is nil for other errors.
func unavailable(err error) error {
	a, ok := errors.AsType[*answer](err)
	if !ok || !a.temporary() {
		return nil
	}
	e := toll.NewError(toll.CodeCardUnreachable).WithCause(a)
	e.RetryAfterSecs = int(a.pause() / time.Second)
	return e
}

// noteDenied remembers that Stripe refuses the key of the service, with an alarm once a minute.
func (p *processor) noteDenied(ctx context.Context, a *answer) {
	if a.kind != denied {
		return
	}
	p.denied.Store(true)
	p.cfg.alarm(ctx, &p.deniedAlarm, alarm.CardKeyDenied, "the card processor rejects the secret key of this service", "answer", a)
}

// Failing reports whether Stripe refused the key of the service when it was asked last.
func (r *Rail) Failing() bool { return r.stripe.denied.Load() }

// idOf returns the id of an object of Stripe, "" for one without.
func idOf(v stripe.LastResponseSetter) string {
	switch v := v.(type) {
	case *stripe.Customer:
		return v.ID
	case *stripe.PaymentIntent:
		return v.ID
	case *stripe.CheckoutSession:
		return v.ID
	case *stripe.Refund:
		return v.ID
	case *stripe.PaymentMethod:
		return v.ID
	}
	return ""
}
