package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/crypto"
	"github.com/tollhq/toll/internal/fiat"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
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
	ID  string // as of [Unmatched]
	How string // Granted, Refunded or Settled
	// Plan and Subscriber are for a payment that does not say them; zero otherwise.
	Plan       toll.PlanID
	Subscriber toll.Address
	Note       string
}

// ResolvePayment deals with a payment that no order explains, in one transaction, beside a running
// service or not. A repeat of what was done changes nothing. Errors: a payment that is unknown or was
// dealt with otherwise, and those of [checkout.Checkout.RestoreOrder].
func ResolvePayment(ctx context.Context, cfg Config, in Resolve) (out Unmatched, err error) {
	err = administer(ctx, cfg, writing, func(cfg Config, f *foundation) error {
		r := resolver{Resolve: in, cfg: cfg, base: f}
		r.lock = r.lockCard
		if strings.Contains(in.ID, ":") {
			r.lock = r.lockEvent
		}
		out, err = r.run(ctx)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%s is not a payment without an order: toll orders unmatched lists those", in.ID)
	}
	return out, err
}

// resolver carries a [Resolve] out.
type resolver struct {
	Resolve
	cfg  Config
	base *foundation
	lock func(ctx context.Context, tx *store.Tx) (*lockedPayment, error)
}

// lockedPayment is a payment without an order that a transaction is going to change.
type lockedPayment struct {
	Unmatched
	card *store.CardOrphan // nil: the payment is on the chain
	// put stores what is done about it. A zero time leaves it open.
	put func(resolution string, at time.Time) error
}

func (r *resolver) lockCard(ctx context.Context, tx *store.Tx) (*lockedPayment, error) {
	o, err := store.CardOrphanForUpdate(ctx, tx, r.ID)
	if err != nil {
		return nil, err
	}
	return &lockedPayment{unmatchedOfCard(o), o, func(resolution string, at time.Time) error {
		o.Resolution, o.ResolvedAt = resolution, at
		return store.UpdateCardOrphan(ctx, tx, o)
	}}, nil
}

func (r *resolver) lockEvent(ctx context.Context, tx *store.Tx) (*lockedPayment, error) {
	block, number, _ := strings.Cut(r.ID, ":")
	hash, err := toll.ParseHash(block)
	index, e := strconv.ParseInt(number, 10, 64)
	if err != nil || e != nil {
		return nil, store.ErrNotFound
	}
	o, err := store.ChainOrphanForUpdate(ctx, tx, hash, index)
	if err != nil {
		return nil, err
	}
	event, err := crypto.UnmatchedOf(o)
	if err != nil {
		return nil, err
	}
	return &lockedPayment{unmatchedOfChain(&event), nil, func(resolution string, at time.Time) error {
		o.Resolution, o.ResolvedAt = resolution, at
		return store.UpdateChainOrphan(ctx, tx, o)
	}}, nil
}

// run carries the resolution out and returns the payment after it.
func (r *resolver) run(ctx context.Context) (out Unmatched, err error) {
	var found *lockedPayment
	done := false
	err = r.base.store.Tx(ctx, func(tx *store.Tx) error {
		if found, err = r.lock(ctx, tx); err != nil {
			return err
		}
		if done, err = r.done(found); done || err != nil || r.How == Granted {
			return err
		}
		act, err := r.close(ctx, tx, found)
		if err != nil {
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
	return false, fmt.Errorf("%s is %s already", p.ID, p.Resolution)
}

// close stores what is done about a payment, with the refund if it is one, and returns what the log of
// the operator notes.
func (r *resolver) close(ctx context.Context, tx *store.Tx, p *lockedPayment) (act store.Act, err error) {
	now, how := r.base.clock.now().UTC(), r.How
	at := now
	if how == Refunded {
		if p.card == nil || !fiat.IsPayment(p.card.Object) {
			return act, fmt.Errorf("the service cannot give %s back: have it paid back, and say so with --settled", p.ID)
		}
		if err := fiat.RefundOrphan(ctx, tx, p.card, now); err != nil {
			return act, err
		}
		how, at = Refunding, time.Time{} // the processor has yet to do it
	}
	if err := p.put(how, at); err != nil {
		return act, err
	}
	p.Resolution = how
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
	case p.card != nil && !fiat.IsPayment(p.card.Object):
		return fmt.Errorf("%s is not a payment: look at it on the page of the processor, and say so with --settled", p.ID)
	case r.Plan != "" && r.Plan != in.Plan:
		return fmt.Errorf("the payment is for plan %s, not for %s", in.Plan, r.Plan)
	case in.Plan == "" || in.Subscriber.IsZero():
		return errors.New("the payment does not say for whom and for what it is: name them with --plan and --subscriber")
	}
	in.Currency, in.Received = p.Currency, []checkout.Received{{Amount: fiat.UnitsOf(int64(p.Cents))}}
	if p.card == nil {
		in.Received = nil
		for _, m := range p.Paid {
			in.Received = append(in.Received, checkout.Received{Token: m.Token, To: m.To, Amount: m.Amount})
		}
	}
	f := r.base
	books := ledger.New(f.store, ledger.Config{Clock: f.clock.now, Log: r.cfg.Log, MACKey: f.auth.MACKey()})
	orders := checkout.New(checkout.Deps{
		Store: f.store, Ledger: books, Queue: jobs.NewQueue(f.store, f.clock.now, r.cfg.Log),
		Environment: f.auth.Environment(), Clock: f.clock.now, Log: r.cfg.Log,
	})
	o, err := orders.RestoreOrder(ctx, in, func(tx *store.Tx, o *store.Order) (act store.Act, err error) {
		locked, err := r.lock(ctx, tx)
		if err != nil {
			return act, err
		}
		if locked.Resolution != "" {
			return act, fmt.Errorf("%s is %s already", p.ID, locked.Resolution)
		}
		if locked.card != nil {
			if err := fiat.RestorePayment(ctx, tx, o, locked.card); err != nil {
				return act, err
			}
		}
		return r.close(ctx, tx, locked)
	})
	if errors.Is(err, checkout.ErrNotThePrice) {
		err = fmt.Errorf("%w %s: name the plan that it is for with --plan, or give the money back", err, in.Plan)
	}
	if err == nil {
		p.Resolution, p.OrderID, p.Plan, p.Subscriber = r.How, o.ID, o.Plan, &o.Subscriber
	}
	return errors.Join(err, books.Close(context.WithoutCancel(ctx)))
}
