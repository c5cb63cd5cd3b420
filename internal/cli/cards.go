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
			use: "update ID", short: "Name a payment method, or say which API keys may use it",
			method: http.MethodPatch, path: "/payment-methods/ID", oneOf: true,
			flags: []flag{
				{"alias", "alias", cleared(word), "its name; empty takes it away"},
				{"allowed-keys", "allowedApiKeyIds", cleared(words), "ids of API keys, with commas; empty lets every key"},
			},
		}),
		a.act("revoke ID", "Take a card away, and end the delegations that use it", http.MethodDelete, "/payment-methods/ID"),
		hidden("delegate", delegationsCreate(a, "create")),
	)
}

func cardsList(a *app, use string) *cobra.Command {
	return a.resource(call{
		use: use, short: "List your cards, then your wallet", path: "/payment-methods",
		flags: []flag{
			{"provider", "provider", word, "stripe or erc4337"},
			{"accessible", "accessible", toggle, "only those that this API key can use now"},
		},
		show: func(_ *cobra.Command, got json.RawMessage) error {
			return a.showPage(got, list.PaymentMethods)
		},
	})
}

const (
	enrollTime = 10 * time.Minute // that a person may take
	enrollPath = "/cards/enroll"
)

func cardsEnroll(a *app) *cobra.Command {
	var noBrowser bool
	c := command("enroll", "Enrol a card on a page of the service, and show it", nil)
	c.Aliases = []string{"setup"}
	c.Long = `Enrol a card on a page of the service, which leads to the card processor, and show it. The page asks who you are. The number of
the card is typed there alone.

Exit code 7 when no card was enrolled for 10 minutes; toll cards list shows one that is enrolled later, and one that was
there before and was enrolled once more.`
	c.Flags().BoolVar(&noBrowser, "no-browser", false, "print the address of the page, and start no browser")
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
		a.say("", "Enrol a card at %s", page)
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
		a.say("hint", "toll cards list shows your cards.")
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

// cardFlags say through which account fiat plans are paid.
func cardFlags(c *cobra.Command, cfg *rails.CardConfig) {
	f := pflag.NewFlagSet("card", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Mode), "card", "", "off: no fiat plans; default the account of the Stripe keys, without them a double in a sandbox and off on live")
	f.StringVar(&cfg.SecretKeyFile, "stripe-secret-key-file", "", "file of mode 0600 with the secret or restricted key; TOLL_STRIPE_SECRET_KEY holds the key itself")
	f.StringVar(&cfg.PublishableKey, "stripe-publishable-key", "", "for pages of orders with the form of Stripe in a frame")
	f.StringVar(&cfg.WebhookSecretFile, "stripe-webhook-secret-file", "", "file of mode 0600 with one or two secrets of webhooks, one a line; TOLL_STRIPE_WEBHOOK_SECRETS holds them itself, with commas")
	f.StringVar(&cfg.URL, "stripe-url", "", "address of a toll card-double, in the place of Stripe; not on live")
	f.StringVar(&cfg.DoubleListen, "card-double-listen", "", "loopback address of the double in the program; default a free port, which is kept")
	f.BoolVar(&cfg.Tax, "stripe-tax", false, "have Stripe compute and report the tax that a price includes")
	f.BoolVar(&cfg.Invoices, "stripe-invoices", false, "have Stripe make an invoice of each page")
	f.StringVar(&cfg.Descriptor, "card-descriptor", "", "suffix on bank statements, at most 10 characters")
	f.Int64Var(&cfg.RefundFees, "card-refund-fees", 500, "most cents that payments cost in fees of which one builder begins refunds on a day; further refunds need the operator")
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
	c := command("card-double", "A double of Stripe, for tests: test cards, pages, webhooks, no money", nil)
	c.Long = `Run a double of Stripe's API with pages on which test cards pay. No money moves. A service in a sandbox uses it with --stripe-url and the
same secret key; any program with stripe-go does so by its base URL.

Without --secret-key it takes every key that begins with sk_test_, and listens on this machine alone. POST /_double/faults makes it lose,
double, delay or reorder webhooks, cut answers, hang, or move its clock; GET /_double/books has what was paid.`
	c.Example = "toll card-double --file double.json\nTOLL_STRIPE_SECRET_KEY=sk_test_0123456789 toll serve --stripe-url http://127.0.0.1:8406"
	c.Annotations = withoutProfile
	fl := c.Flags()
	fl.StringVar(&listenOn, "listen", "127.0.0.1:8406", "address to listen on; port 0 is a free one")
	fl.StringVar(&o.File, "file", "", "file that keeps its state; default memory")
	fl.StringVar(&o.SecretKey, "secret-key", "", "the one key that it takes, sk_test_…")
	fl.StringVar(&o.PublicURL, "public-url", "", "address at which browsers reach its pages; default that of the call")
	fl.StringArrayVar(&hooks, "webhook", nil, "address that gets the events; may be given again")
	fl.StringArrayVar(&secrets, "webhook-secret", nil, "secret that signs them, whsec_…; two while one is rotated")
	fl.DurationVar(&o.Later, "later", 2*time.Second, "how long refunds and disputes take that come later")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, u := range hooks {
			if _, err := httpURL(u); err != nil {
				return flagError("webhook", err)
			}
			o.Webhooks = append(o.Webhooks, double.Webhook{URL: u, Secrets: secrets})
		}
		if len(hooks) > 0 && len(secrets) == 0 {
			return usagef("--webhook needs a --webhook-secret that signs the events")
		}
		if host, _, err := net.SplitHostPort(listenOn); err != nil || o.SecretKey == "" && !toll.IsLoopback(host) {
			return usagef("--listen %s: without --secret-key a double listens on an address of this machine, such as 127.0.0.1:8406", listenOn)
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
	o.Logger.Info("a double of Stripe; no money moves", "url", "http://"+ln.Addr().String(), "file", o.File, "pid", os.Getpid())
	return d.Serve(ctx, ln)
}
