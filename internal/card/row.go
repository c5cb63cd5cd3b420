package card

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/tollhq/toll/internal/store"
)

// errChanged says that somebody else wrote the row of a payment since it was read.
var errChanged = errors.New("card: the payment was changed meanwhile")

// read reads a payment.
func (r *Rail) read(ctx context.Context, orderID string) (*store.CardPayment, *details, error) {
	p, err := store.CardPaymentByOrder(ctx, r.cfg.Store, orderID)
	if err != nil {
		return nil, nil, err
	}
	d, err := detailsOf(p)
	return p, d, err
}

// update stores a payment whose version is still the stored one; else the error is errChanged. It
// leaves the version in p as it is.
func (r *Rail) update(ctx context.Context, tx *store.Tx, p *store.CardPayment, d *details) (err error) {
	p.UpdatedAt = r.now()
	if p.Data, err = json.Marshal(d); err != nil {
		return err
	}
	if err = store.UpdateCardPayment(ctx, tx, p); errors.Is(err, store.ErrNotFound) {
		return errChanged
	}
	return err
}

// write stores a payment that stays open, with the call that belongs to its state.
func (r *Rail) write(ctx context.Context, p *store.CardPayment, d *details, calls func(tx *store.Tx) error) error {
	d.Delay = nil
	return r.writeAll(ctx, p, d, calls)
}

func (r *Rail) writeAll(ctx context.Context, p *store.CardPayment, d *details, calls func(tx *store.Tx) error) error {
	err := r.cfg.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := r.update(ctx, tx, p, d); err != nil || calls == nil {
			return err
		}
		return calls(tx)
	})
	if err == nil {
		p.Version++
	}
	return err
}

func detailsOf(p *store.CardPayment) (*details, error) {
	d := &details{}
	return d, json.Unmarshal(p.Data, d)
}

func answerCall(ctx context.Context, tx *store.Tx, c *store.CardCall) error {
	if c == nil || c.Status == 0 {
		return nil
	}
	return store.AnswerCardCall(ctx, tx, c)
}
