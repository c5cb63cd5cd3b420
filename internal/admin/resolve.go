package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

// What an operator does about a payment without an order.
const (
	Granted   = store.OrphanGranted   // the lost order is recorded, with its credits
	Refunding = store.OrphanRefunding // the processor is asked
	Refunded  = store.OrphanRefunded  // the card processor gives the money back
	Settled   = store.OrphanSettled   // by other means, as a note says
)

// Resolve says what an operator does about a payment without an order.
type Resolve struct {
	ID  string // of a [rails.Unmatched]
	How string // Granted, Refunded or Settled
	// Plan and Subscriber are for a payment that does not say them; zero otherwise.
	Plan       toll.PlanID
	Subscriber toll.Address
	Note       string
}

// UnmatchedPayments returns the payments without an order; see [rails.UnmatchedPayments].
func UnmatchedPayments(ctx context.Context, cfg server.Config) ([]rails.Unmatched, error) {
	return server.Administer(ctx, cfg, server.Reading, func(db *server.Database) ([]rails.Unmatched, error) {
		return rails.UnmatchedPayments(ctx, db.Store)
	})
}

// FindPlans returns plans of all workspaces whose id or name begins with a text: at most limit, in the order of their ids.
func FindPlans(ctx context.Context, cfg server.Config, text string, limit int) ([]store.Found, error) {
	return server.Administer(ctx, cfg, server.Reading, func(db *server.Database) ([]store.Found, error) {
		return store.Search(ctx, db.Store, store.FoundPlan, toll.Address{}, text, limit)
	})
}

// ResolvePayment resolves a payment without an order, in one transaction. A repeat of what was done changes nothing. Errors: a payment
// that is unknown or was resolved otherwise, and those of [checkout.Checkout.RestoreOrder].
func ResolvePayment(ctx context.Context, cfg server.Config, in Resolve) (rails.Unmatched, error) {
	out, err := withBooks(ctx, cfg, server.Writing, func(db *server.Database, books *ledger.Ledger) (rails.Unmatched, error) {
		r := resolver{Resolve: in, db: db, orders: checkout.New(checkout.Deps{
			Store: db.Store, Ledger: books, Queue: jobs.NewQueue(db.Store, db.Now, db.Log),
			Environment: db.Auth.Environment(), Clock: db.Now, Log: db.Log,
		})}
		r.change = r.changeCard
		if strings.Contains(in.ID, ":") {
			r.change = r.changeEvent
		}
		return r.run(ctx)
	})
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%s is not an unmatched payment: run toll orders unmatched to list them", in.ID)
	}
	return out, err
}

// resolver carries a [Resolve] out.
type resolver struct {
	Resolve
	db     *server.Database
	orders *checkout.Checkout
	// change locks the payment, has f change it, and stores its resolution.
	change func(ctx context.Context, tx *store.Tx, f func(p *lockedPayment) error) error
}

// lockedPayment is a payment without an order that a transaction is going to change.
type lockedPayment struct {
	rails.Unmatched
	card *store.CardOrphan // nil: the payment is on the chain
	at   time.Time         // of the resolution; zero: it stays open
}

func (r *resolver) changeCard(ctx context.Context, tx *store.Tx, f func(p *lockedPayment) error) error {
	o, err := store.CardOrphanByID(ctx, tx, r.ID)
	if err != nil {
		return err
	}
	return r.orders.Decisions.Unmatched(ctx, tx, o.Delegation, func() (*store.CardOrphan, error) {
		o, err := store.CardOrphanForUpdate(ctx, tx, r.ID)
		if err != nil {
			return nil, err
		}
		p := &lockedPayment{rails.UnmatchedOfCard(o), o, o.ResolvedAt}
		err = f(p)
		o.Resolution, o.ResolvedAt = p.Resolution, p.at
		return o, err
	})
}

func (r *resolver) changeEvent(ctx context.Context, tx *store.Tx, f func(p *lockedPayment) error) error {
	block, number, _ := strings.Cut(r.ID, ":")
	hash, err := toll.ParseHash(block)
	index, e := strconv.ParseInt(number, 10, 64)
	if err != nil || e != nil {
		return store.ErrNotFound
	}
	o, err := store.ChainOrphanForUpdate(ctx, tx, hash, index)
	if err != nil {
		return err
	}
	event, err := rails.UnmatchedOfChain(&o)
	if err != nil {
		return err
	}
	p := &lockedPayment{event, nil, o.ResolvedAt}
	if err := f(p); err != nil {
		return err
	}
	o.Resolution, o.ResolvedAt = p.Resolution, p.at
	return store.UpdateChainOrphan(ctx, tx, o)
}

// run carries the resolution out and returns the payment after it.
func (r *resolver) run(ctx context.Context) (out rails.Unmatched, err error) {
	var found *lockedPayment
	done := false
	err = r.db.Store.Tx(ctx, func(tx *store.Tx) error {
		var act store.Act
		err := r.change(ctx, tx, func(p *lockedPayment) (err error) {
			found = p
			if done, err = r.done(p); done || err != nil || r.How == Granted {
				return err
			}
			act, err = r.close(ctx, tx, p)
			return err
		})
		if err != nil || act.Act == "" {
			return err
		}
		return store.Audit(ctx, tx, act)
	})
	if err == nil && !done && r.How == Granted {
		err = r.grant(ctx, found)
	}
	if found == nil {
		return out, err
	}
	return found.Unmatched, err
}

// done reports whether an earlier call did the same. Error: an earlier call did something else.
func (r *resolver) done(p *lockedPayment) (bool, error) {
	switch {
	case p.Resolution == "":
		return false, nil
	case p.Resolution == r.How, p.Resolution == Refunding && r.How == Refunded:
		return true, nil
	}
	return false, fmt.Errorf("%s is already %s", p.ID, p.Resolution)
}

// close stores what is done about a payment, with the refund if it is one, and returns what the log of the operator notes.
func (r *resolver) close(ctx context.Context, tx *store.Tx, p *lockedPayment) (act store.Act, err error) {
	now, how := r.db.Now().UTC(), r.How
	at := now
	if how == Refunded {
		if p.card == nil || !card.IsPayment(p.card.Object) {
			return act, fmt.Errorf("the service cannot refund %s: refund the payment yourself, then mark it as resolved with --settled", p.ID)
		}
		if p.card.Left() == 0 {
			return act, fmt.Errorf("%s has nothing left to refund: mark the payment as resolved with --settled", p.ID)
		}
		if err := card.RefundOrphan(ctx, tx, p.card, now); err != nil {
			return act, err
		}
		how, at = Refunding, time.Time{} // the processor has yet to do it
	}
	p.Resolution, p.at = how, at
	return store.Act{
		Act: "payment.resolved", Object: p.ID, At: now,
		Detail: store.Changed{After: map[string]any{"resolution": how, "rail": p.Rail, "note": r.Note}},
	}, nil
}

// grant records the lost order of a payment.
func (r *resolver) grant(ctx context.Context, p *lockedPayment) error {
	in := checkout.LostOrder{ID: p.OrderID, Plan: cmp.Or(p.Plan, r.Plan), Subscriber: r.Subscriber, TxHash: p.TxHash}
	if in.Subscriber.IsZero() && p.Subscriber != nil {
		in.Subscriber = *p.Subscriber
	}
	switch {
	case p.card != nil && !card.IsPayment(p.card.Object):
		return fmt.Errorf("%s is not a payment: check it in the dashboard of the card processor, then mark it as resolved with --settled", p.ID)
	case r.Plan != "" && r.Plan != in.Plan:
		return fmt.Errorf("the payment is for plan %s, not for %s", in.Plan, r.Plan)
	case in.Plan == "" || in.Subscriber.IsZero():
		return errors.New("the plan or the subscriber of the payment is unknown: set --plan and --subscriber")
	}
	if p.card != nil {
		in.Currency, in.Delegation = p.Currency, p.card.Delegation
		in.Received = []checkout.Received{{Amount: toll.UnitsOfCents(p.card.Cents)}}
	}
	for _, m := range p.Paid {
		in.Received = append(in.Received, checkout.Received{Token: m.Token, To: m.To, Amount: m.Amount})
	}
	o, err := r.orders.RestoreOrder(ctx, in, func(tx *store.Tx, o *store.Order) (act store.Act, err error) {
		err = r.change(ctx, tx, func(locked *lockedPayment) error {
			if locked.Resolution != "" {
				return fmt.Errorf("%s is already %s", p.ID, locked.Resolution)
			}
			if locked.card != nil {
				if err := card.RestorePayment(ctx, tx, o, locked.card); err != nil {
					return err
				}
			}
			act, err = r.close(ctx, tx, locked)
			return err
		})
		return act, err
	})
	if errors.Is(err, checkout.ErrNotThePrice) {
		err = fmt.Errorf("%w %s: set the right plan with --plan, or refund the payment", err, in.Plan)
	}
	if err == nil {
		p.Resolution, p.OrderID, p.Plan, p.Subscriber = r.How, o.ID, o.Plan, &o.Subscriber
	}
	return err
}
