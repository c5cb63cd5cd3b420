package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
)

func cardsCommand(a *app) *cobra.Command {
	return group("cards", "Payment methods: cards and the wallet", "",
		cardsList(a, "list"),
		cardsEnroll(a),
		a.resource(call{
			use: "update ID", short: "Rename a payment method, or choose which API keys can use it",
			method: http.MethodPatch, path: "/payment-methods/ID", oneOf: true,
			flags: []flag{
				{"alias", "alias", cleared(word), "name; empty removes it"},
				{"allowed-keys", "allowedApiKeyIds", cleared(words).naming(refKey), "ids of API keys, separated by commas; empty allows every API key"},
			},
		}),
		a.act("revoke ID", "Remove a card and revoke the delegations that use it", http.MethodDelete, "/payment-methods/ID"),
		hidden("delegate", delegationsCreate(a, "create")),
	)
}

func cardsList(a *app, use string) *cobra.Command {
	return a.resource(call{
		use: use, short: "List your cards and your wallet", path: "/payment-methods",
		flags: []flag{
			{"provider", "provider", word.offering(string(toll.ProviderCard), string(toll.ProviderCrypto)), "stripe or erc4337"},
			{"accessible", "accessible", toggle, "only payment methods that this API key can use now"},
		},
		show: func(_ *cobra.Command, got json.RawMessage) error {
			return a.showPage(got, list.PaymentMethods)
		},
	})
}

const (
	enrollTime = 10 * time.Minute // to enroll a card in the browser
	enrollPath = "/cards/enroll"
)

func cardsEnroll(a *app) *cobra.Command {
	var noBrowser bool
	c := command("enroll", "Enroll a card in the browser", nil)
	c.Aliases = []string{"setup"}
	c.Long = `Open a page of the service in the browser, wait until you have enrolled a card, and show the card. The page asks you to
sign in, and then opens the page of the card processor. You enter the card number only there.

Exit code 7 means that no card was enrolled within 10 minutes. If you enroll the card later, toll cards list shows it.`
	c.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address of the page, but do not open a browser")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		before, err := cardsByID(ctx, a)
		if err != nil {
			return err
		}
		// A service that does not say whether it takes cards is asked by its page.
		if ready, err := a.client().Ready(ctx); err == nil && ready.Checks["card"] == "off" {
			return toll.NewError(toll.CodeCardOff)
		}
		page := a.client().URL() + enrollPath
		a.say("", "Enroll a card at %s", page)
		if !noBrowser {
			if err := browse(ctx, &a.console, page); err != nil {
				return err
			}
		}
		for end := time.Now().Add(enrollTime); time.Now().Before(end); {
			if err := a.wait(ctx, orderPoll); err != nil {
				return err
			}
			now, err := cardsByID(ctx, a)
			if err != nil && !isUnknown(err) {
				return err
			}
			if card := enrolled(before, now); card != nil {
				return a.made(card, "id")
			}
		}
		a.say("hint", "No card was enrolled within 10 minutes. List your cards with toll cards list.")
		return printed(exitTryAgain)
	}
	return c
}

// enrolled returns a card that can be charged now, and could not before or had another date; nil when there is none.
func enrolled(before, now map[string]json.RawMessage) json.RawMessage {
	seen := func(card json.RawMessage) string {
		return at(card, "status") + at(card, "expYear") + "/" + at(card, "expMonth")
	}
	for id, card := range now {
		if at(card, "status") == string(toll.StatusActive) && seen(card) != seen(before[id]) {
			return card
		}
	}
	return nil
}

func cardsByID(ctx context.Context, a *app) (map[string]json.RawMessage, error) {
	got, err := a.call(ctx, http.MethodGet, "/payment-methods", url.Values{"provider": {"stripe"}}, nil)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(got, &list); err != nil {
		return nil, unreadable(err)
	}
	cards := map[string]json.RawMessage{}
	for _, card := range list {
		cards[at(card, "id")] = card
	}
	return cards, nil
}

// cardFlags adds the flags for the card processor of fiat plans.
func cardFlags(c *cobra.Command, cfg *rails.CardConfig) {
	f := pflag.NewFlagSet("card", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Mode), "card", "", "off disables fiat plans; default Stripe if its keys are set, otherwise a test double in a sandbox and off on live")
	f.StringVar(&cfg.SecretKeyFile, "stripe-secret-key-file", "", "file with the secret or restricted key of Stripe, mode 0600; or set the key itself in TOLL_STRIPE_SECRET_KEY")
	f.StringVar(&cfg.PublishableKey, "stripe-publishable-key", "", "publishable key of Stripe, to embed Stripe's form in payment pages")
	f.StringVar(&cfg.WebhookSecretFile, "stripe-webhook-secret-file", "", "file with one or two webhook secrets of Stripe, one per line, mode 0600; or set them in TOLL_STRIPE_WEBHOOK_SECRETS, separated by commas")
	f.StringVar(&cfg.URL, "stripe-url", "", "address of a toll card-double to use instead of Stripe; not on live")
	f.StringVar(&cfg.DoubleListen, "card-double-listen", "", "loopback address of the built-in test double of Stripe; default a free port, which is used again after a restart")
	f.BoolVar(&cfg.Tax, "stripe-tax", false, "let Stripe calculate and report the tax that is included in a price")
	f.BoolVar(&cfg.Invoices, "stripe-invoices", false, "let Stripe create an invoice for each payment page")
	f.StringVar(&cfg.Descriptor, "card-descriptor", "", "suffix on card statements, at most 10 characters")
	f.Int64Var(&cfg.RefundFees, "card-refund-fees", 500,
		"limit, in cents, on the processing fees of all payments that one builder refunds in a day (UTC); only the operator can exceed it")
	addWithEnv(c, f)
	secret(c, &cfg.SecretKey, "stripe-secret-key")
	c.Flags().StringSliceVar(&cfg.WebhookSecrets, "stripe-webhook-secrets", nil, "")
	ofEnvironment(c, "stripe-webhook-secrets")
}

func cardDoubleCommand(a *app) *cobra.Command {
	var listenOn string
	var secrets []string
	var hooks []string
	o := double.Options{}
	c := command("card-double", "Run a test double of Stripe: test cards, pages, webhooks, no money", nil)
	c.Long = `Run a test double of Stripe's API, with pages that accept test cards. No money moves. To use it, start a sandbox service with --stripe-url
and the same secret key, or set its address as the base URL in any program that uses stripe-go.

Without --secret-key, the test double accepts every key that starts with sk_test_, and listens only on this machine. With
POST /_double/faults, you can make it lose, duplicate, delay, or reorder webhooks, cut off responses, hang, or move its clock.
GET /_double/books returns the payments.`
	c.Example = "toll card-double --file double.json\nTOLL_STRIPE_SECRET_KEY=sk_test_0123456789 toll serve --stripe-url http://127.0.0.1:8406"
	c.Annotations = withoutProfile
	fl := c.Flags()
	fl.StringVar(&listenOn, "listen", "127.0.0.1:8406", "address to listen on; port 0 chooses a free port")
	fl.StringVar(&o.File, "file", "", "file that stores the state; default only in memory")
	fl.StringVar(&o.SecretKey, "secret-key", "", "the only key that the double accepts, sk_test_…")
	fl.StringVar(&o.PublicURL, "public-url", "", "address at which browsers reach the pages; default the host of the API request")
	fl.StringArrayVar(&hooks, "webhook", nil, "address that receives the events; repeat the flag for several addresses")
	fl.StringArrayVar(&secrets, "webhook-secret", nil, "secret that signs the events, whsec_…; repeat the flag with a second secret during a rotation")
	fl.DurationVar(&o.Later, "later", 2*time.Second, "delay of events that Stripe sends later, such as the end of a pending refund or a new dispute")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, u := range hooks {
			if _, err := httpURL(u); err != nil {
				return flagError("webhook", err)
			}
			o.Webhooks = append(o.Webhooks, double.Webhook{URL: u, Secrets: secrets})
		}
		if len(hooks) > 0 && len(secrets) == 0 {
			return usagef("--webhook requires --webhook-secret, which signs the events")
		}
		if host, _, err := net.SplitHostPort(listenOn); err != nil || o.SecretKey == "" && !toll.IsLoopback(host) {
			return usagef("--listen %s: without --secret-key, the address must be on this machine, such as 127.0.0.1:8406", listenOn)
		}
		return cardDouble(cmd.Context(), a, listenOn, o)
	}
	return c
}

func cardDouble(ctx context.Context, a *app, address string, o double.Options) (err error) {
	if o.Logger, err = a.newLog("info"); err != nil {
		return err
	}
	ln, err := server.Listen(ctx, address)
	if err != nil {
		return err
	}
	d, err := double.New(o)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	defer d.Close()
	o.Logger.Info("test double of Stripe is running; no money moves", "url", "http://"+ln.Addr().String(), "file", o.File, "pid", os.Getpid())
	return d.Serve(ctx, ln)
}
