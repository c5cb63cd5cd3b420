package rails

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/store"
)

// cardDoctorRows bounds how many records [CardConfig.Inspect] counts.
const cardDoctorRows = 1000

// Inspect implements [Settings] and reports what is missing for fiat plans: keys and their mode, the account, permissions, webhook endpoints, the version
// of the API, and money that no order explains. It changes nothing, here and at the processor.
func (c *CardConfig) Inspect(ctx context.Context, deps Deps, add check.Report) {
	const name = "cards"
	k, err := c.keys()
	if err == nil {
		err = c.CheckIn(deps.Auth.Environment())
	}
	if err != nil {
		add(name, check.Failed, "%s", err)
		return
	}
	// An earlier rail may have left money. The processor may have used up the time of ctx.
	defer inspectRecords(context.WithoutCancel(ctx), deps.Store, add)
	switch from, missing := c.source(deps.Auth.Environment(), k, deps.embedded()); {
	case c.Mode == CardOff:
		add(name, check.OK, "off; fiat plans cannot be ordered")
	case from == noCards:
		add(name, check.Warning, "fiat plans cannot be ordered. %s", missing)
	case from == doubleCards:
		add(name, check.OK, "test cards only, on the built-in double of Stripe; no money moves")
	default:
		inspectAccount(ctx, c, &deps, k, add)
	}
}

// inspectAccount reports what the processor says of the key.
func inspectAccount(ctx context.Context, cfg *CardConfig, deps *Deps, k cardKeys, add check.Report) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	rail, err := card.New(card.Config{
		Store: deps.Store, Environment: deps.Auth.Environment(), SecretKey: k.secret, WebhookSecrets: k.webhook, URL: cfg.URL,
		HTTP: &http.Client{Transport: transport}, Clock: deps.Clock, Machine: deps.Machine, Log: deps.Log,
	})
	var found *card.Account
	if err == nil {
		found, err = rail.Check(ctx)
	}
	switch {
	case err == nil:
	case card.IsSilence(err) && cfg.URL != "":
		add("cards", check.Failed, "%s does not respond: start the card double there (toll card-double), or fix %s", cfg.URL, setURL)
		return
	case card.IsSilence(err):
		add("cards", check.Failed, "Stripe does not respond: check status.stripe.com, and that this machine can reach api.stripe.com")
		return
	case card.IsDenied(err):
		add("cards", check.Failed, "the card processor rejects the secret key (%s): fix %s", err, setSecretKey)
		return
	default:
		add("cards", check.Failed, "the card processor cannot be used now: %s. Check status.stripe.com", err)
		return
	}
	mode := "test mode"
	if found.Live {
		mode = "live mode"
	}
	known, _, err := store.IfThere(store.Setting(ctx, deps.Store, card.AccountSetting))
	used := false
	if err == nil {
		used, err = store.CardUsed(ctx, deps.Store)
	}
	switch {
	case err != nil:
		add("cards", check.Failed, "%s", err)
	case found.ID == "":
		add("cards", check.Failed, "the restricted key cannot read the account, so the service does not charge cards: see card permissions")
	case used && string(known) != found.ID:
		add("cards", check.Failed, "the key belongs to the account %s, but this database was used with %s: fix %s", found.ID, known, setSecretKey)
	default:
		add("cards", check.OK, "account %s in %s, %s, API version %s", found.ID, found.Country, mode, found.Version)
	}
	if len(found.Missing) > 0 {
		add("card permissions", check.Failed, "the restricted key has no permission for %s: add it on Stripe's API keys page", strings.Join(found.Missing, ", "))
	}
	inspectWebhooks(deps, k, cfg.URL == "", found, add)
}

// inspectWebhooks compares the endpoints of the account with the address of this service. Nothing here is a failure, on live
// neither: without webhooks payments, refunds and disputes are seen by reading the list of events, within a minute.
func inspectWebhooks(deps *Deps, k cardKeys, real bool, found *card.Account, add check.Report) {
	const name = "card webhooks"
	address := deps.PublicURL + deps.Webhook
	u, err := url.Parse(address)
	switch {
	case real && (err != nil || toll.IsLoopback(u.Hostname())):
		add(name, check.Warning,
			"Stripe cannot reach %s; payments are found by polling within a minute. "+
				"Set TOLL_PUBLIC_URL (--public-url) to the public address of this service",
			address)
	case found.Webhooks == nil:
		add(name, check.Warning, "the key cannot read the webhook endpoints, so %s cannot be checked", address)
	case !slices.Contains(found.Webhooks, address):
		add(name, check.Warning, "the account sends no events to %s; payments are found by polling within a minute. Add that endpoint on Stripe's webhooks page", address)
	case len(k.webhook) == 0:
		add(name, check.Warning, "events sent to %s cannot be verified: set %s", address, setWebhookSecret)
	default:
		add(name, check.OK, "%s", address)
	}
}

// inspectRecords reports money that waits for an operator.
func inspectRecords(ctx context.Context, st *store.Store, add check.Report) {
	orphans, err := store.CardOrphans(ctx, st, cardDoctorRows)
	if err == nil && len(orphans) > 0 {
		add("card money", check.Warning, "%d payments, refunds, or disputes at the card processor do not belong to an order, such as %s: %s",
			len(orphans), orphans[0].Object, orphans[0].Reason)
	}
	undecided, e := store.CardPaymentsUndecided(ctx, st)
	if e == nil && undecided > 0 {
		add("card money", check.Failed, "%d payments could not be applied to their orders: see the log", undecided)
	}
	if err = errors.Join(err, e); err != nil {
		add("card money", check.Failed, "%s", err)
	}
}
