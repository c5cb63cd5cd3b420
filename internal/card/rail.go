package card

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// errUnbuilt is what this draft of the room returns.
var errUnbuilt = errors.New("card: not built yet")

// Rail is the card rail of one account at Stripe. Its methods may be called at the same time, and in several processes that
// share a database.
type Rail struct {
	cfg    Config
	orders rail.Orders
	wake   jobs.Signal // of the loop that reads events
}

var (
	_ rail.Rail     = (*Rail)(nil)
	_ rail.Refunder = (*Rail)(nil)
	_ rail.Enroller = (*Rail)(nil)
	_ rail.Pages    = (*Rail)(nil)
)

// New returns a rail. It asks nobody. Errors: a key of another environment, more than two webhook secrets.
func New(cfg Config) (*Rail, error) { return &Rail{cfg: cfg, wake: jobs.NewSignal()}, nil }

// Connect implements [rail.Rail].
func (r *Rail) Connect(o rail.Orders) { r.orders = o }

// Prepare implements [rail.Rail]. It refuses an amount that is not whole cents from 1.00 up, another currency than USD and EUR,
// and a delegation whose card has nothing behind it.
func (r *Rail) Prepare(ctx context.Context, p *rail.Purchase) error { return errUnbuilt }

// Begin implements [rail.Rail]: it inserts the row in state [Created].
func (r *Rail) Begin(ctx context.Context, tx *store.Tx, p *rail.Purchase) error { return errUnbuilt }

// Payment implements [rail.Rail]. The address of a page is one of ours, signed anew, so that it is not stored.
func (r *Rail) Payment(ctx context.Context, q store.Querier, orderID string) (rail.Payment, error) {
	return rail.Payment{}, errUnbuilt
}

// Resume implements [rail.Rail]: it does the next steps of an open payment until it is decided, or until somebody else has to
// act. Then it returns a [*rail.Later], so that this job is also what reconciles the order: after 5, 10, 20, and then every 30
// seconds. A repeat does no harm; several processes at a time are told apart by the version of the row and by Stripe's keys.
func (r *Rail) Resume(ctx context.Context, p *rail.Purchase) error { return errUnbuilt }

// BeginRefund implements [rail.Refunder].
func (r *Rail) BeginRefund(ctx context.Context, t *rail.Tx, in rail.Refund) error { return errUnbuilt }

// Refunded implements [rail.Refunder].
func (r *Rail) Refunded(ctx context.Context, refundID string) (decided bool, failure string, err error) {
	return false, "", errUnbuilt
}

// Enroll implements [rail.Enroller]. It counts before it asks Stripe: 5 tries in 10 minutes for an owner and for a source, each
// declined card in them included (T84).
func (r *Rail) Enroll(ctx context.Context, owner toll.Address, source, back string) (setupID, page string, err error) {
	return "", "", errUnbuilt
}

// Enrolled implements [rail.Enroller].
func (r *Rail) Enrolled(ctx context.Context, owner toll.Address, setupID string) (methodID, failure string, err error) {
	return "", "", errUnbuilt
}

// Page implements [rail.Pages].
func (r *Rail) Page(ctx context.Context, orderID string, hosted bool) (rail.Shown, error) {
	return rail.Shown{}, errUnbuilt
}

// Receive takes a webhook: the header Stripe-Signature and the raw body. It stores the event with the job that works on it, and
// returns. It returns nil for events that were taken before, are of another account or mode, or of a type that says nothing
// here. Errors: [toll.CodeWebhookSignature], before anything else is read of the body; [toll.CodeDatabaseUnavailable].
func (r *Rail) Receive(ctx context.Context, signature string, body []byte) error { return errUnbuilt }

// Sync runs a job of kind [store.JobCardSync]: it fetches the object with this id, and acts on its state. An object that no row
// explains yet is kept and tried again for a day, and is then an orphan.
func (r *Rail) Sync(ctx context.Context, objectID []byte) error { return errUnbuilt }

// DecideAgain runs a job of kind [store.JobCardDecide].
func (r *Rail) DecideAgain(ctx context.Context, orderID []byte) error { return errUnbuilt }

// SendRefund runs a job of kind [store.JobCardRefund].
func (r *Rail) SendRefund(ctx context.Context, refundID []byte) error { return errUnbuilt }

// Detach runs a job of kind [store.JobCardDetach]. A card that is detached already is no error.
func (r *Rail) Detach(ctx context.Context, methodID []byte) error { return errUnbuilt }

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

// StoryOf returns the payment of an order as the records tell it, for the answer to a dispute. It asks nobody.
func StoryOf(ctx context.Context, q store.Querier, orderID string) (*Story, error) {
	return nil, errUnbuilt
}

// Story is the payment of an order as the rail knows it; checkout adds requests and receipts.
type Story struct {
	Payment  *store.CardPayment
	Refunds  []*store.CardRefund
	Disputes []*store.CardDispute
	Moves    []*store.CardMove
}

// Owed is what one seller is owed of a month in a currency, in cents: sums of moves by kind, and what was paid out.
type Owed struct {
	Seller                                     toll.Address
	Month, Currency                            string
	Orders                                     int64
	Charged, Refunded, Disputed, Fees, PaidOut int64
}

// OwedOf adds up a month, YYYY-MM in UTC. Each move counts in the month in which it happened. It asks nobody.
func OwedOf(ctx context.Context, q store.Querier, month string) ([]Owed, error) {
	return nil, errUnbuilt
}
