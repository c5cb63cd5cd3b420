package card

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/jobs"
)

// Receive takes a webhook: the header Stripe-Signature and the raw body. It stores the event with the job that works on it, and
// returns. It returns nil for events that were taken before, are of another account or mode, or of a type that says nothing
// here. Errors: [toll.CodeWebhookSignature], before anything else is read of the body; [toll.CodeDatabaseUnavailable].
func (r *Rail) Receive(ctx context.Context, signature string, body []byte) error { return errUnbuilt }

// Loops returns the loop that reads the events of Stripe from a stored cursor. Any number of processes may run it; a lease lets
// one of them work at a time.
func (r *Rail) Loops() []jobs.Loop {
	lease := jobs.NewLease(r.cfg.Store, r.cfg.Clock, "card.events")
	return []jobs.Loop{{Name: "card.events", Every: eventsEvery, Wake: r.wake, Lease: lease, Turn: r.readEvents}}
}

// eventsEvery is how often the events of Stripe are read.
const eventsEvery = 30 * time.Second

// readEvents is a turn of the loop: one window of events, and its cursor.
func (r *Rail) readEvents(ctx context.Context) (next time.Duration, err error) { return 0, errUnbuilt }

// cursor is the setting that says how far events were read, by Stripe's clock.
type cursor struct {
	At   time.Time `json:"at"`   // everything that was created before is stored
	Last string    `json:"last"` // id of the newest event that is stored
	Full time.Time `json:"full"` // when the overlap of an hour was read last
}
