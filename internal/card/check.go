package card

import (
	"context"
)

// Account is what [Rail.Check] found out about the account at Stripe.
type Account struct {
	ID       string
	Country  string
	Live     bool
	Missing  []string // permissions that a restricted key lacks
	Webhooks []string // addresses that Stripe sends events to; nil when the key may not read them
	Version  string   // of the API, as Stripe answered
}

// Check asks Stripe what doctor reports. It changes nothing there.
func (r *Rail) Check(ctx context.Context) (*Account, error) { return nil, errUnbuilt }
