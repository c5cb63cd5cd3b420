package card

import (
	"context"
	"errors"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
)

// Account is what [Rail.Check] found out about the account at Stripe.
type Account struct {
	ID       string // "" when the key may not read the account
	Country  string
	Live     bool
	Missing  []string // permissions to read that a restricted key lacks; those to write show when they are used
	Webhooks []string // addresses that Stripe sends events to; nil when the key may not read them
	Version  string   // of the API, as Stripe answered
}

// probes are objects that are not there, by the permission that finding this out needs.
var probes = []struct{ permission, path string }{
	{"customers", "customers/cus_none"}, {"payment methods", "payment_methods/pm_none"},
	{"checkout sessions", "checkout/sessions/cs_none"}, {"setup intents", "setup_intents/seti_none"},
	{"payment intents", "payment_intents/pi_none"}, {"charges and refunds", "refunds/re_none"}, {"disputes", "disputes/dp_none"},
	{"balance", "balance_transactions/txn_none"}, {"events", "events/evt_none"},
}

// Check reads from Stripe what doctor reports, without a change there. Errors: [*answer] for an unknown key or an unreachable Stripe.
func (r *Rail) Check(ctx context.Context) (*Account, error) {
	_, live := keyMode(r.cfg.SecretKey)
	out := &Account{Live: live}
	may := func(permission, path string, params any, into stripe.LastResponseSetter) (bool, error) {
		err := ignoreMissing(r.stripe.api.get(ctx, path, params, into))
		if a, ok := errors.AsType[*answer](err); ok && a.kind == denied && a.status != 401 {
			out.Missing = append(out.Missing, permission)
			return false, nil
		}
		return err == nil, err
	}
	var account stripe.Account
	if ok, err := may("account", "account", nil, &account); err != nil {
		return nil, err
	} else if ok {
		out.ID, out.Country, out.Version = account.ID, account.Country, account.LastResponse.Header.Get("Stripe-Version")
	}
	for _, p := range probes {
		if _, err := may(p.permission, p.path, nil, &stripe.APIResource{}); err != nil {
			return nil, err
		}
	}
	list := &stripe.WebhookEndpointListParams{}
	list.Limit = stripe.Int64(100)
	var endpoints stripe.WebhookEndpointList
	ok, err := may("webhook endpoints", "webhook_endpoints", list, &endpoints)
	if err != nil {
		return nil, err
	}
	if ok {
		out.Webhooks = []string{}
	}
	for _, e := range endpoints.Data {
		if e.Status == "enabled" {
			out.Webhooks = append(out.Webhooks, e.URL)
		}
	}
	return out, nil
}

// AccountSetting is the setting that has the id of the account at Stripe that the records of a database are about, as text.
const AccountSetting = "card_account"

// AccountID reads the id of the account of the secret key from Stripe. Errors: [toll.CodeCardUnreachable], also for a rejected key.
func (r *Rail) AccountID(ctx context.Context) (string, error) {
	var a stripe.Account
	if err := r.stripe.get(ctx, "account", nil, &a); err != nil {
		return "", toll.NewError(toll.CodeCardUnreachable).WithCause(err)
	}
	return a.ID, nil
}
