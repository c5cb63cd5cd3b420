package card

import (
	"context"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
)

// AccountID asks Stripe for the id of the account that the secret key is of. Errors: [toll.CodeCardUnreachable], also for a key
// that Stripe refuses.
func (r *Rail) AccountID(ctx context.Context) (string, error) {
	var a stripe.Account
	if err := r.get(ctx, "account", nil, &a); err != nil {
		return "", toll.NewError(toll.CodeCardUnreachable).WithCause(err)
	}
	return a.ID, nil
}
