package rails

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seal"
)

// CardMode says whether fiat plans can be bought.
type CardMode string

// Modes of the card rail.
const (
	CardAuto CardMode = ""    // the keys; without them the double in a sandbox, off on live
	CardOff  CardMode = "off" // no fiat plans
)

// CardConfig says through which account fiat plans are paid. The zero value is the double in a sandbox, and off on live.
type CardConfig struct {
	Mode CardMode
	// SecretKey is that of the account, or a restricted one; SecretKeyFile names a file with it, of mode 0600. One of them.
	SecretKey, SecretKeyFile string
	PublishableKey           string // "": every page is Stripe's own
	// WebhookSecrets are one or two, the second while they are rotated; WebhookSecretFile names a file of mode 0600 with one a
	// line. None: events are read by polling alone.
	WebhookSecrets    []string
	WebhookSecretFile string
	// URL is that of a double (toll card-double); live refuses it. Empty is Stripe's, or the double in this process.
	URL string
	// DoubleListen is a loopback address for the pages of the double in this process; empty is a free port, which is kept.
	DoubleListen string
	Tax          bool   // Stripe computes taxes, which prices include
	Invoices     bool   // Stripe makes an invoice of each page
	Descriptor   string // suffix on statements of the bank, at most 10 characters
	// RefundFees is what the payments may cost in fees, in cents, of which one builder begins refunds on a day; 0 is 500.
	RefundFees int64
}

// Names of the settings, for errors.
const (
	setSecretKey      = "TOLL_STRIPE_SECRET_KEY_FILE (--stripe-secret-key-file)"
	setPublishableKey = "TOLL_STRIPE_PUBLISHABLE_KEY (--stripe-publishable-key)"
	setWebhookSecret  = "TOLL_STRIPE_WEBHOOK_SECRET_FILE (--stripe-webhook-secret-file)"
	setURL            = "TOLL_STRIPE_URL (--stripe-url)"
	setDoubleListen   = "TOLL_CARD_DOUBLE_LISTEN (--card-double-listen)"
	setRefundFees     = "TOLL_CARD_REFUND_FEES (--card-refund-fees)"
	setDescriptor     = "TOLL_CARD_DESCRIPTOR (--card-descriptor)"
)

// maxSecrets is how many webhook secrets may be in use at a time: two while one is rotated.
const maxSecrets = 2

var (
	secretKeys      = regexp.MustCompile(`^(sk|rk)_(test|live)_[0-9A-Za-z_]{8,250}$`)
	publishableKeys = regexp.MustCompile(`^pk_(test|live)_[0-9A-Za-z_]{1,250}$`)
	webhookSecrets  = regexp.MustCompile(`^whsec_[0-9A-Za-z_+/=-]{1,250}$`)
	descriptors     = regexp.MustCompile(`^[0-9A-Za-z .-]{0,9}[A-Za-z][0-9A-Za-z .-]{0,9}$`)
)

// Check refuses settings that are wrong in every environment. No error has a key in it.
func (c *CardConfig) Check() error {
	switch c.Mode {
	case CardAuto, CardOff:
	default:
		return fmt.Errorf("TOLL_CARD (--card) must be off or empty; got %q. If it is empty, the service chooses the card processor from the keys", c.Mode)
	}
	keyed := c.SecretKey != "" || c.SecretKeyFile != ""
	switch {
	case c.SecretKey != "" && c.SecretKeyFile != "":
		return errors.New("the secret key of the card processor is set twice: set only one of " + setSecretKey + " and TOLL_STRIPE_SECRET_KEY")
	case !keyed && (c.PublishableKey != "" || len(c.WebhookSecrets) > 0 || c.WebhookSecretFile != "" || c.URL != ""):
		return errors.New("the card processor also needs a secret key: set " + setSecretKey)
	case len(c.WebhookSecrets) > 0 && c.WebhookSecretFile != "":
		return errors.New("the webhook secrets are set twice: set only one of " + setWebhookSecret + " and TOLL_STRIPE_WEBHOOK_SECRETS")
	case c.PublishableKey != "" && !publishableKeys.MatchString(c.PublishableKey):
		return errors.New("a publishable key must begin with pk_test_ or pk_live_: fix " + setPublishableKey)
	case c.RefundFees < 0:
		return fmt.Errorf("the limit for refund fees per builder and day must be at least 1 cent; got %d: fix "+setRefundFees, c.RefundFees)
	case c.Descriptor != "" && (len(c.Descriptor) > 10 || !descriptors.MatchString(c.Descriptor)):
		return errors.New("the statement descriptor suffix must have at most 10 letters, digits, spaces, dots, or hyphens, with at least one letter: fix " + setDescriptor)
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return errors.New("the address of a card double must be http:// or https:// followed by a host, without a path: fix " + setURL)
		}
	}
	if c.DoubleListen != "" {
		host, _, err := net.SplitHostPort(c.DoubleListen)
		if err != nil || !toll.IsLoopback(host) {
			return errors.New("the card double must listen on a loopback address, such as 127.0.0.1:8406: fix " + setDoubleListen)
		}
	}
	_, err := c.keys()
	return err
}

// CheckIn refuses keys of another mode than that of an environment, and every double on live.
func (c *CardConfig) CheckIn(env toll.Environment) error {
	if c.Mode == CardOff {
		return nil
	}
	k, err := c.keys()
	switch {
	case err != nil:
		return err
	case env != toll.Live && k.live:
		return errors.New("a sandbox needs a test mode secret key, but this is a live mode key: fix " + setSecretKey +
			", or start with a new database and TOLL_ENVIRONMENT=live (--environment live)")
	case env != toll.Live:
		return nil
	case c.URL != "" || c.DoubleListen != "":
		return errors.New("the live environment cannot use a card double, which moves no money: unset " + setURL + " and " + setDoubleListen)
	case k.secret != "" && !k.live:
		return errors.New("the live environment needs a live mode secret key, but this is a test mode key: fix " + setSecretKey)
	}
	return nil
}

// keys are the keys of an account. The zero value is none.
type cardKeys struct {
	secret, publishable string
	webhook             []string
	live                bool
}

// testTries are the tries of the test mode, in which nobody can find out which cards are good. They are enough for each test card.
const testTries = 30

// tries returns [card.Config.Tries].
func (k *cardKeys) tries() int64 {
	if k.live {
		return 0
	}
	return testTries
}

// keys reads the keys of the settings and of the files that they name.
func (c *CardConfig) keys() (k cardKeys, err error) {
	k.secret, k.publishable, k.webhook = c.SecretKey, c.PublishableKey, c.WebhookSecrets
	if c.SecretKeyFile != "" {
		lines, err := seal.Words(c.SecretKeyFile, setSecretKey)
		if err != nil {
			return cardKeys{}, err
		}
		if len(lines) != 1 {
			return cardKeys{}, fmt.Errorf("the file %s must contain exactly one secret key, on its own line: fix %s", c.SecretKeyFile, setSecretKey)
		}
		k.secret = lines[0]
	}
	if c.WebhookSecretFile != "" {
		if k.webhook, err = seal.Words(c.WebhookSecretFile, setWebhookSecret); err != nil {
			return cardKeys{}, err
		}
	}
	if k.secret == "" {
		return k, nil
	}
	if !secretKeys.MatchString(k.secret) {
		return cardKeys{}, errors.New("a secret key of the card processor must begin with sk_test_, sk_live_, rk_test_, or rk_live_: fix " + setSecretKey)
	}
	k.live = strings.HasPrefix(k.secret[len("sk_"):], "live_")
	if k.publishable != "" && strings.HasPrefix(k.publishable, "pk_live_") != k.live {
		return cardKeys{}, errors.New("the publishable key and the secret key must have the same mode (test or live): fix " + setPublishableKey)
	}
	if len(k.webhook) > maxSecrets {
		return cardKeys{}, fmt.Errorf("at most %d webhook secrets can be set, the second one during a rotation: fix %s", maxSecrets, setWebhookSecret)
	}
	for _, s := range k.webhook {
		if !webhookSecrets.MatchString(s) {
			return cardKeys{}, errors.New("a webhook secret must begin with whsec_: fix " + setWebhookSecret)
		}
	}
	return k, nil
}

// source is which processor a service has.
type cardSource string

const (
	noCards     cardSource = "none"
	stripeCards cardSource = "stripe"
	doubleCards cardSource = "double" // in this process
)

// source returns the processor, and what to set when there is none.
func (c *CardConfig) source(env toll.Environment, k cardKeys, embedded bool) (s cardSource, missing string) {
	switch {
	case c.Mode == CardOff:
		return noCards, "The operator has turned off card payments (TOLL_CARD, --card)."
	case k.secret != "":
		return stripeCards, ""
	case env == toll.Live:
		return noCards, "The operator must set " + setSecretKey + " to a file with the secret key of a Stripe account."
	case !embedded:
		return noCards, "Several processes may share this database, so the service does not run a card double. The operator must set " + setSecretKey +
			", and " + setURL + " to use a separate card double (toll card-double)."
	}
	return doubleCards, ""
}
