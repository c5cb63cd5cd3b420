package card

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/alarm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
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

	// Link returns the signed address of a page of ours: the public address of the service, [rail.Use.Path], and "?t=" with the
	// signature, which is valid until ends, by the clock of the machine.
	Link func(use rail.Use, owner toll.Address, orderID string, ends time.Time) (string, error)

	// Tries is how many enrolments, and cards declined in them, an owner and a network address may make in ten minutes (T84); 0 is 5.
	Tries int64

	// RefundFees is what the payments may cost in fees, in cents, of which one builder begins refunds on a day; 0 is 500.
	RefundFees int64

	Tax        bool   // Stripe Tax computes and reports the tax that prices include
	Invoices   bool   // Stripe makes an invoice of each page
	Descriptor string // suffix on bank statements, "" for none

	// Clock is that of the service, for rows and jobs. Machine is that of the machine, for everything that Stripe compares
	// with its own: ends of pages, ages of signatures. In a sandbox Clock may be ahead.
	Clock, Machine func() time.Time
	Log            *slog.Logger
	At             func(step string) // failpoint of tests; nil otherwise

	orders rail.Orders // see [Rail.Connect]
}

// now is the time of rows and jobs.
func (c *Config) now() time.Time { return c.Clock().UTC().Truncate(time.Microsecond) }

func (c *Config) failpoint(step string) {
	if c.At != nil {
		c.At(step)
	}
}

// alarm logs what an operator has to look at, once a minute at most. at is when it did so last.
func (c *Config) alarm(ctx context.Context, at *atomic.Int64, id alarm.ID, msg string, args ...any) {
	if c.seldom(at) {
		alarm.Log(ctx, c.Log, id, msg, args...)
	}
}

// seldom reports whether a minute has passed since it did for at.
func (c *Config) seldom(at *atomic.Int64) bool {
	now, last := c.Machine().UnixNano(), at.Load()
	return (last == 0 || now-last >= int64(time.Minute)) && at.CompareAndSwap(last, now)
}

func (c *Config) tries() int64 { return cmp.Or(c.Tries, maxTries) }
