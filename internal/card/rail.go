package card

import (
	"context"
	"errors"

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
