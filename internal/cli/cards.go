package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/fiat"
)

// cardFlags say through which account fiat plans are paid.
func cardFlags(c *cobra.Command, cfg *fiat.Config) {
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
	addWithEnv(c, f)
	secret(c, &cfg.SecretKey, "stripe-secret-key")
	c.Flags().StringSliceVar(&cfg.WebhookSecrets, "stripe-webhook-secrets", nil, "")
	ofEnvironment(c, "stripe-webhook-secrets")
}

func (a *app) cardDoubleCommand() *cobra.Command {
	var listenOn string
	var secrets []string
	var hooks []string
	o := double.Options{}
	c := command("card-double", "A double of Stripe, for tests: test cards, pages, webhooks, no money", nil)
	c.Long = `Run a double of Stripe's API with pages on which test cards pay. No money moves. A service in a sandbox uses it with --stripe-url and the
same secret key; any program with stripe-go does so by its base URL.

Without --secret-key it takes every key that begins with sk_test_, and listens on this machine alone. POST /_double/faults makes it lose,
double, delay or reorder webhooks, cut answers, hang, or move its clock; GET /_double/books has what was paid.`
	c.Example = "toll card-double --file double.json\nTOLL_STRIPE_SECRET_KEY=sk_test_0123456789 toll serve --stripe-url http://127.0.0.1:8403"
	c.Annotations = withoutProfile
	fl := c.Flags()
	fl.StringVar(&listenOn, "listen", "127.0.0.1:8403", "address to listen on; port 0 is a free one")
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
			return usagef("--listen %s: without --secret-key a double listens on an address of this machine, such as 127.0.0.1:8403", listenOn)
		}
		return a.cardDouble(cmd.Context(), listenOn, o)
	}
	return c
}

func (a *app) cardDouble(ctx context.Context, address string, o double.Options) (err error) {
	if o.Logger, err = newLog(a.err, "info"); err != nil {
		return err
	}
	ln, err := listen(ctx, address)
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
