package card

import (
	"context"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
)

// AccountSetting is the setting that has the id of the account at Stripe that the records of a
// database are about, as text.
const AccountSetting = "card_account"

// AccountID asks Stripe for the id of the account that the secret key is of. Errors: [toll.CodeCardUnreachable], also for a key
// that Stripe refuses.
func (r *Rail) AccountID(ctx context.Context) (string, error) {
	var a stripe.Account
	if err := r.get(ctx, "account", nil, &a); err != nil {
		return "", toll.NewError(toll.CodeCardUnreachable).WithCause(err)
	}
	return a.ID, nil
}
