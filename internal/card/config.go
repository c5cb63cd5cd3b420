package card

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Use is what a signed link of ours leads to.
type Use string

const (
	UsePage  Use = "checkout"       // the page of an open order; valid as long as its session
	UseAgain Use = "checkout-again" // a new order in the place of one that needed its owner; valid an hour
)

// Config is what the rail is built on.
type Config struct {
	Store        *store.Store
	Environment  toll.Environment
	Installation string // UUID of the database; metadata of every object, as several installations may share an account

	SecretKey      string   // sk_ or rk_; never logged
	PublishableKey string   // "" for none: then every page is Stripe's own
	WebhookSecrets []string // none, one, or two while they are rotated
	URL            string   // of the API; "" is Stripe's
	HTTP           *http.Client

	// PublicURL is where browsers reach the service. Link signs an address of ours: the path ends in it.
	PublicURL string
	Link      func(use Use, owner toll.Address, orderID string, ends time.Time) (string, error)

	Tax        bool   // Stripe Tax; prices are without tax then
	Descriptor string // suffix on bank statements, "" for none

	// Clock is that of the service, for rows and jobs. Machine is that of the machine, for everything that Stripe compares
	// with its own: ends of pages, ages of signatures. In a sandbox Clock may be ahead.
	Clock, Machine func() time.Time
	Log            *slog.Logger
	At             func(step string) // failpoint of tests; nil otherwise
}
