package card

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v85"
)

const (
	// listBefore is how much earlier than its call an object may have been made, by the clocks of both machines.
	listBefore = time.Minute
	// listPages bounds the pages of 100 objects that one look-up reads.
	listPages = 20
)

// errLookup reports that a list was too long to find an object in it.
var errLookup = errors.New("card: the list has too many objects to search")

// list reads a list, the newest object first, until is reports that it needs no more. The error is errLookup for a list that is too long.
func list[T any](ctx context.Context, from *processor, path string, in stripe.ListParamsContainer, is func(o *T) (bool, error)) error {
	p := in.GetListParams()
	p.Limit = stripe.Int64(100)
	for range listPages {
		var page struct {
			stripe.APIResource
			HasMore bool              `json:"has_more"`
			Data    []json.RawMessage `json:"data"`
		}
		if err := from.get(ctx, path, in, &page); err != nil {
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

// find returns the id of the object of a list whose metadata says that it is the one, "" for none. The newest comes first.
func (p *processor) find(ctx context.Context, path string, in stripe.ListParamsContainer, is func(metadata map[string]string) bool) (id string, err error) {
	type object struct {
		ID       string            `json:"id"`
		Metadata map[string]string `json:"metadata"`
	}
	err = list(ctx, p, path, in, func(o *object) (bool, error) {
		if is(o.Metadata) {
			id = o.ID
		}
		return id != "", nil
	})
	return id, err
}

// findAttempt looks for what an attempt has made: a session or a payment intent; "" when Stripe lists none.
func findAttempt(ctx context.Context, from *processor, p *payment) (id string, err error) {
	made := &stripe.RangeQueryParams{GreaterThanOrEqual: p.d.TriedAt.Add(-listBefore).Unix()} // by Stripe's clock
	if p.d.Session != nil {
		return from.find(ctx, "checkout/sessions", &stripe.CheckoutSessionListParams{CreatedRange: made}, p.isAttempt)
	}
	return from.find(ctx, "payment_intents", &stripe.PaymentIntentListParams{Customer: &p.Customer, CreatedRange: made}, p.isAttempt)
}

// isAttempt reports whether an object with this metadata was made by the attempt of a payment.
func (p *payment) isAttempt(meta map[string]string) bool {
	return meta[metaInstallation] == p.installation && meta[metaOrder] == p.OrderID &&
		meta[metaAttempt] == strconv.FormatInt(p.Attempt, 10)
}
