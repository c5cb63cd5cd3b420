package card

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Rail is the card rail of one account at Stripe. Its methods may be called at the same time, and in several processes that
// share a database.
type Rail struct {
	*payments
	*refunds
	*enrolments
	*inbox
	cfg    *Config
	stripe *processor
	wake   jobs.Signal // of the loop that reads events
}

var (
	_ rail.Rail     = (*Rail)(nil)
	_ rail.Refunder = (*Rail)(nil)
	_ rail.Enroller = (*Rail)(nil)
	_ rail.Pages    = (*Rail)(nil)
)

// New returns a rail. It asks nobody. Errors: a key of another environment, more than two webhook secrets.
func New(cfg Config) (*Rail, error) {
	key, live := keyMode(cfg.SecretKey)
	switch {
	case !key:
		return nil, errors.New("the secret key of the card processor must start with sk_test_, sk_live_, rk_test_, or rk_live_")
	case live != (cfg.Environment == toll.Live):
		return nil, fmt.Errorf("the secret key of the card processor does not match the environment %s", cfg.Environment)
	case len(cfg.WebhookSecrets) > 2:
		return nil, errors.New("at most two webhook secrets can be in use at a time")
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Machine == nil {
		cfg.Machine = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &processor{cfg: &cfg, api: newAPI(&cfg)}
	o := &orphans{cfg: &cfg, stripe: c}
	p := &payments{cfg: &cfg, stripe: c, orphans: o}
	return &Rail{
		payments: p, refunds: &refunds{cfg: &cfg, stripe: c, payments: p, orphans: o}, enrolments: &enrolments{cfg: &cfg, stripe: c},
		inbox: &inbox{cfg: &cfg, api: c.api}, cfg: &cfg, stripe: c, wake: jobs.NewSignal(),
	}, nil
}

// keyMode reports whether a secret key has the form of one, and whether it is of the live mode.
func keyMode(key string) (ok, live bool) {
	mode, _ := strings.CutPrefix(key, "sk_")
	mode, _ = strings.CutPrefix(mode, "rk_")
	live = strings.HasPrefix(mode, "live_")
	return mode != key && (live || strings.HasPrefix(mode, "test_")), live
}

func (r *Rail) Connect(o rail.Orders) { r.cfg.orders = o }

// Prepare implements [rail.Rail]. It refuses an amount that is not whole cents from 1.00 to 999,999.99, another currency than USD and EUR,
// and a delegation whose card has nothing behind it.
func (r *Rail) Prepare(ctx context.Context, p *rail.Purchase) error {
	if _, err := centsOf(p.Total); err != nil {
		return err
	}
	if c := p.Plan.Price.CurrencyName(); c != toll.CurrencyUSD && c != toll.CurrencyEUR {
		return toll.NewError(toll.CodeCheckoutWrongPlan).WithDetails("currency %s", c)
	}
	if p.DelegationID == "" {
		if p.Session == nil {
			return toll.Errorf(toll.CodeCheckoutWrongPlan, "This plan must be paid on a checkout page, or with a delegation that charges a card.")
		}
		return nil
	}
	m, err := store.CardMethodByID(ctx, r.cfg.Store, p.Subscriber, p.PaymentMethod)
	if errors.Is(err, store.ErrNotFound) || err == nil && m.Fingerprint == "" {
		return toll.NewError(toll.CodePaymentMethodUnusable)
	}
	if err != nil {
		return err
	}
	return r.admitCharge(ctx, p.Subscriber)
}

// Begin implements [rail.Rail]: it inserts the row in state [Created].
func (r *Rail) Begin(ctx context.Context, tx *store.Tx, p *rail.Purchase) error {
	cents, err := centsOf(p.Total)
	if err != nil {
		return err
	}
	d := details{Session: p.Session, Plan: p.Plan.ID, Name: p.Plan.Metadata.Name}
	if p.Session != nil {
		d.Hosted = p.Session.Hosted || r.cfg.PublishableKey == ""
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	now := r.cfg.now()
	row := &store.CardPayment{
		OrderID: p.OrderID, Account: p.Account, Seller: p.Plan.Owner, Payer: p.Subscriber, State: string(Created), Attempt: 1,
		Cents: cents, Currency: strings.ToLower(p.Plan.Price.CurrencyName()), Delegation: p.DelegationID,
		CreatedAt: now, UpdatedAt: now, Data: data,
	}
	if p.Session == nil {
		row.Method = p.PaymentMethod
	}
	return store.InsertCardPayment(ctx, tx, row)
}

// centsOf returns an amount of 6 decimals in cents. It refuses one that is not whole cents, one
// below 1.00, and one above what Stripe takes.
func centsOf(u toll.Units) (int64, error) {
	const unitsPerCent = 10_000
	cents, rest := new(big.Int).QuoRem(u.Int(), big.NewInt(unitsPerCent), new(big.Int))
	switch {
	case u.Cmp(toll.UnitsOf(toll.MaxFiatUnits)) > 0:
		return 0, toll.NewError(toll.CodeFiatPriceTooHigh).WithDetails("amount %s", u)
	case rest.Sign() != 0, u.Cmp(toll.UnitsOf(toll.MinFiatUnits)) < 0:
		return 0, toll.NewError(toll.CodeFiatPriceTooLow).WithDetails("amount %s", u)
	}
	return cents.Int64(), nil
}

// Payment implements [rail.Rail]. The address of a page is one of ours, signed anew, so that it is not stored.
func (r *Rail) Payment(ctx context.Context, q store.Querier, orderID string) (rail.Payment, error) {
	p, err := r.payments.read(ctx, q, orderID)
	if err != nil {
		return rail.Payment{}, err
	}
	out := rail.Payment{Outcome: p.outcome(), Delay: p.d.Delay, SessionID: p.Session, CreatedAt: p.d.TriedAt, ExpiresAt: p.d.PageEnd}
	if State(p.State) == Page {
		out.CheckoutURL, err = r.cfg.Link(rail.UsePage, p.Payer, p.OrderID, p.d.PageEnd)
	}
	return out, err
}

const maxSteps = 12

// Resume implements [rail.Rail]: it does the next steps of an open payment until it is decided, or until somebody else has to
// act. Then it returns a [*rail.Later], so that this job is also what reconciles the order, after the times of [pauseOf].
// A repeat does no harm; several processes at a time are told apart by the version of the row and by Stripe's keys.
func (r *Rail) Resume(ctx context.Context, purchase *rail.Purchase) error {
	for range maxSteps {
		p, err := r.payments.read(ctx, r.cfg.Store, purchase.OrderID)
		switch {
		case err != nil:
			return err
		case p.Undecided:
			return &rail.Later{After: pollEvery} // the job card.decide works on it
		case !State(p.State).open():
			return nil
		}
		again, err := r.payments.step(ctx, p)
		if a, ok := errors.AsType[*answer](err); ok && a.kind == busy {
			return &rail.Later{After: a.pause()}
		}
		u := unavailable(err)
		switch {
		case errors.Is(err, errChanged):
		case u != nil:
			return r.delay(ctx, purchase.OrderID, u)
		case err != nil:
			return err
		case again > 0 && State(p.State).open():
			if p.d.Delay != nil {
				if err := r.putDelay(ctx, p, nil); err != nil {
					return err
				}
			}
			return &rail.Later{After: again}
		}
	}
	return &rail.Later{After: busyPause}
}

// delay stores why Stripe cannot be used for a payment now, and returns that error.
func (r *Rail) delay(ctx context.Context, orderID string, unavailable error) error {
	p, err := r.payments.read(ctx, r.cfg.Store, orderID)
	if err != nil || !State(p.State).open() {
		return err
	}
	if err := r.putDelay(ctx, p, rail.NewDelay(unavailable, r.cfg.now())); err != nil {
		return err
	}
	return unavailable
}

// putDelay stores the delay of an open payment, nil to clear it, unless the payment was changed meanwhile.
func (r *Rail) putDelay(ctx context.Context, p *payment, why *rail.Delay) error {
	p.d.Delay = why
	err := r.payments.store(ctx, p, &transition{payment: *p, write: writeRow})
	if errors.Is(err, errChanged) {
		return nil
	}
	return err
}
