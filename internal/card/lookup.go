package card

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/store"
)

const (
	// missingTime is how long Stripe may not list an attempt whose answer was lost before the order
	// fails. missingSends is how long the same call is still sent in this time.
	missingTime, missingSends = 10 * time.Minute, 9 * time.Minute
	// failingTime is how far apart two look-ups are that give up an attempt which Stripe keeps answering with the same failure.
	failingTime = time.Minute
	// listBefore is how much earlier than its call an object may have been made, by the clocks of
	// both machines.
	listBefore = time.Minute
	// listPages bounds the pages of 100 objects that one look-up reads.
	listPages = 20
)

// errLookup says that a list was too long to find an object in it.
var errLookup = errors.New("card: too many objects in a list to find one")

// lookUp finds an attempt whose answer was lost, by list. a is the answer, nil for a call that is
// too old to be sent. When Stripe lists nothing for [missingTime] the order fails. It fails after [failingTime] when Stripe answers
// the key with a stored failure, because no repeat is executed then. If the first request was, its payment is refunded when it
// shows up. The delegation reserves the amount for [missingTime] more.
func (r *Rail) lookUp(ctx context.Context, p *store.CardPayment, d *details, c *store.CardCall, a *answer) error {
	id, err := r.findAttempt(ctx, p, d)
	if err != nil {
		return err
	}
	c.Params, c.AnsweredAt, c.Status, c.Object = "", r.now(), http.StatusOK, id
	switch {
	case id == "":
	case d.Session != nil:
		s, err := r.session(ctx, id)
		if err != nil {
			return err
		}
		return r.openPage(ctx, p, d, c, s)
	default:
		pi, err := r.intent(ctx, id)
		if err != nil {
			return err
		}
		return r.judge(ctx, p, d, c, pi)
	}
	now, stored := r.cfg.Machine(), a != nil && a.failed() && a.replayed
	giveUp := stored && !d.Failing.IsZero() && now.Sub(d.Failing) >= failingTime
	switch {
	case d.Missing.IsZero(), stored && d.Failing.IsZero():
		if d.Missing.IsZero() {
			d.Missing = now.UTC()
		}
		if stored {
			d.Failing = now.UTC()
		}
		if err := r.writeAll(ctx, p, d, nil); err != nil {
			return err
		}
	case giveUp, now.Sub(d.Missing) >= missingTime:
		alarm.Log(ctx, r.log, alarm.CardPaymentLost, "the card processor does not know a payment whose answer was lost; the order fails", "order", p.OrderID)
		c.Status = http.StatusNotFound
		return r.settle(ctx, p, evidence{call: c, failure: &failure{
			Code: toll.CodeCardUnreachable, Reason: "The card processor did not answer, and does not know the payment.", Unsure: giveUp,
		}})
	}
	if a == nil || a.kind == conflict {
		a = &answer{kind: unclear, code: "not_listed"}
	}
	if stored {
		a.wait = failingTime - now.Sub(d.Failing)
	}
	return a
}

// list reads a list, the newest object first, until is reports that it needs no more. The error is errLookup for a list that is
// too long.
func list[T any](ctx context.Context, r *Rail, path string, in stripe.ListParamsContainer, is func(o *T) (bool, error)) error {
	p := in.GetListParams()
	p.Limit = stripe.Int64(100)
	for range listPages {
		var page struct {
			stripe.APIResource
			HasMore bool              `json:"has_more"`
			Data    []json.RawMessage `json:"data"`
		}
		if err := r.get(ctx, path, in, &page); err != nil {
			return err
		}
		for _, text := range page.Data {
			var o T
			var named struct {
				ID string `json:"id"`
			}
			if err := errors.Join(json.Unmarshal(text, &named), json.Unmarshal(text, &o)); err != nil {
				return err
			}
			p.StartingAfter = &named.ID
			if done, err := is(&o); done || err != nil {
				return err
			}
		}
		if !page.HasMore || len(page.Data) == 0 {
			return nil
		}
	}
	return errLookup
}

// find returns the id of the object of a list whose metadata says that it is the one, "" for none. The
// newest comes first.
func (r *Rail) find(
	ctx context.Context, path string, in stripe.ListParamsContainer, is func(metadata map[string]string) bool,
) (id string, err error) {
	type object struct {
		ID       string            `json:"id"`
		Metadata map[string]string `json:"metadata"`
	}
	err = list(ctx, r, path, in, func(o *object) (bool, error) {
		if is(o.Metadata) {
			id = o.ID
		}
		return id != "", nil
	})
	return id, err
}

// findAttempt looks for what an attempt has made: a session or a payment intent; "" when Stripe lists
// none.
func (r *Rail) findAttempt(ctx context.Context, p *store.CardPayment, d *details) (id string, err error) {
	is := func(metadata map[string]string) bool { return r.isAttempt(p, metadata) }
	if d.Session != nil {
		return r.find(ctx, "checkout/sessions", &stripe.CheckoutSessionListParams{CreatedRange: since(d)}, is)
	}
	return r.find(ctx, "payment_intents", &stripe.PaymentIntentListParams{Customer: &p.Customer, CreatedRange: since(d)}, is)
}

// since returns the range of time in which an attempt was made, by Stripe's clock.
func since(d *details) *stripe.RangeQueryParams {
	return &stripe.RangeQueryParams{GreaterThanOrEqual: d.TriedAt.Add(-listBefore).Unix()}
}

// isAttempt reports whether an object with this metadata was made by the attempt of a payment.
func (r *Rail) isAttempt(p *store.CardPayment, meta map[string]string) bool {
	return meta[metaInstallation] == r.cfg.Installation && meta[metaOrder] == p.OrderID &&
		meta[metaAttempt] == strconv.FormatInt(p.Attempt, 10)
}
