package checkout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// decideTries bounds how often an act is begun anew because somebody decided the order meanwhile.
const decideTries = 4

// errElsewhere says that an order is not as it was when it was read. Nothing was written.
var errElsewhere = errors.New("checkout: the order was decided elsewhere")

func isPaid(s toll.OrderStatus) bool { return s == toll.OrderConfirmed || s == toll.OrderFinal }

// confirm mints the credits of a paid order. An order that had failed and was paid after all gets them too, and those that were
// taken back return: the money moved. That is done on the word of the rail as it is then, since an answer may be late.
func (c *Checkout) confirm(ctx context.Context, plan *toll.Plan, o *store.Order, p *Payment) error {
	for range decideTries {
		if isPaid(o.Status) {
			return nil
		}
		if !o.Open {
			latest, err := c.latest(ctx, o, p)
			if err != nil {
				return err
			}
			if !isPaid(latest.Status) {
				c.log.Warn("an order that has failed was said to be paid, and is not", "order", o.ID)
				return nil
			}
			p = latest
		}
		err := c.grant(ctx, plan, o, p)
		if err != nil && !errors.Is(err, errElsewhere) {
			c.log.Error("a paid order has no credits yet", "order", o.ID, "err", err)
		}
		if !errors.Is(err, errElsewhere) {
			return err
		}
		if o, err = store.OrderOfAccount(ctx, c.store, o.Account, o.ID); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: order %s", errElsewhere, o.ID)
}

// latest asks the rail again before what was decided is decided otherwise. Without a rail the given word counts.
func (c *Checkout) latest(ctx context.Context, o *store.Order, p *Payment) (*Payment, error) {
	rail := c.rails.byName(o.Rail)
	if rail == nil {
		return p, nil
	}
	latest, err := rail.Outcome(ctx, o.ID)
	return &latest, err
}

// grant writes that an order is paid, with its credits. The order must be as o says, else errElsewhere.
func (c *Checkout) grant(ctx context.Context, plan *toll.Plan, o *store.Order, p *Payment) error {
	now, late := c.now(), !o.Open
	if late {
		c.log.Error("an order that had failed is paid", "order", o.ID, "transaction", p.TxHash)
	}
	permission := toll.Hash{}
	if late && o.Permission != nil {
		permission = *o.Permission
	}
	write := func(tx *store.Tx, entry toll.Hash) error {
		c.at("confirming")
		next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
		if err != nil {
			return err
		}
		if isPaid(next.Status) || next.Open != o.Open || next.Reversed != o.Reversed {
			return errElsewhere
		}
		if late {
			if _, _, err := store.CountOrder(ctx, tx, o.Plan, 0); err != nil {
				return err
			}
		}
		next.Status, next.Open, next.UpdatedAt = toll.OrderConfirmed, false, now
		next.FailureReason, next.FailureCode, next.FailureParams = "", "", ""
		next.Reversed, next.TakenBack, next.Loss, next.HeldBack = false, 0, 0, 0
		if next.TxHash = p.TxHash; next.TxHash == "" {
			next.TxHash = entry.String()
		}
		if err := store.UpdateOrder(ctx, tx, next); err != nil {
			return err
		}
		events := orderEvents(next, plan.Owner, toll.EventOrderPaid)
		if next.DelegationID != "" {
			more, err := c.changeBudget(ctx, tx, next.DelegationID, func(b budget) {
				if late {
					b.payLate(next)
				} else {
					b.pay(next)
				}
			})
			if err != nil {
				return err
			}
			if err := store.UpdateDelegationTransaction(ctx, tx, next.DelegationID, o.ID, toll.TransactionSucceeded, p.providerID(), ""); err != nil {
				return err
			}
			events = append(events, more...)
		}
		return store.InsertEvent(ctx, tx, events...)
	}
	if o.Reversed {
		op := ledger.ReverseOp{Account: o.Account, Ref: o.ID, Permission: permission}
		_, err := c.ledger.RestoreWith(ctx, op, func(tx *store.Tx, t ledger.TakenBack) error { return write(tx, t.Transaction) })
		return err
	}
	op := ledger.MintOp{
		Plan: o.Plan, Subscriber: o.Subscriber, Amount: o.Credits, EndsAt: plan.LotEnd(now), Ref: o.ID, Order: true, Permission: permission,
	}
	m, err := c.ledger.MintWith(ctx, op, func(tx *store.Tx, m ledger.Minted) error { return write(tx, m.Transaction) })
	if err == nil && m.Replayed {
		return errElsewhere
	}
	return err
}

func (p *Payment) providerID() string {
	if p.ProviderID != "" {
		return p.ProviderID
	}
	return p.TxHash
}

// refused writes into an order that it failed, and why.
func (c *Checkout) refused(o *store.Order, p *Payment) error {
	params := ""
	if len(p.Params) > 0 {
		text, err := json.Marshal(p.Params)
		if err != nil {
			return err
		}
		params = string(text)
	}
	o.Status, o.Open, o.UpdatedAt = toll.OrderFailed, false, c.now()
	o.FailureReason, o.FailureCode, o.FailureParams = p.FailureReason, p.FailureCode, params
	if p.TxHash != "" {
		o.TxHash = p.TxHash
	}
	if o.FailureReason == "" {
		o.FailureReason = (&toll.Error{Code: failure(o).Code}).Text()
	}
	return nil
}

// writeFailed stores a failed order and gives its place and its money back, of which change is what happens to the delegation.
func (c *Checkout) writeFailed(ctx context.Context, tx *store.Tx, o *store.Order, p *Payment, change func(b budget)) error {
	if err := store.UncountOrder(ctx, tx, o.Plan); err != nil {
		return err
	}
	owner, err := ownerOf(ctx, tx, o.Plan)
	if err != nil {
		return err
	}
	events := orderEvents(o, owner, toll.EventOrderFailed)
	if o.DelegationID != "" {
		more, err := c.changeBudget(ctx, tx, o.DelegationID, change)
		if err != nil {
			return err
		}
		if err := store.UpdateDelegationTransaction(ctx, tx, o.DelegationID, o.ID, toll.TransactionFailed, p.providerID(), o.FailureReason); err != nil {
			return err
		}
		events = append(events, more...)
	}
	if err := store.UpdateOrder(ctx, tx, o); err != nil {
		return err
	}
	if p.Ended {
		// Under the name of a sale the wallet may buy with another authorization now: this one can never pay as well.
		if err := store.FreeSaleIdentifier(ctx, tx, o.Subscriber, o.ID); err != nil {
			return err
		}
	}
	return store.InsertEvent(ctx, tx, events...)
}

// fail gives back all that an open order took. It does nothing to one that is decided.
func (c *Checkout) fail(ctx context.Context, o *store.Order, p *Payment) error {
	op := ledger.OrderOp{Plan: o.Plan, Subscriber: o.Subscriber, Recorded: func(tx *store.Tx) (bool, error) {
		now, err := store.OrderOfAccount(ctx, tx, o.Account, o.ID)
		return err == nil && !now.Open, err
	}}
	if o.Permission != nil {
		op.Permission = *o.Permission
	}
	return c.ledger.UndoOrderWith(ctx, op, func(tx *store.Tx) error {
		c.at("failing")
		next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
		if err != nil {
			return err
		}
		if err := c.refused(next, p); err != nil {
			return err
		}
		return c.writeFailed(ctx, tx, next, p, func(b budget) { b.giveBack(next) })
	})
}

// takeBack undoes a confirmed order whose money did not move after all: the credits that nobody used come back, and those that
// open holds keep when these end. The rest is a loss.
func (c *Checkout) takeBack(ctx context.Context, o *store.Order, p *Payment) error {
	op := ledger.ReverseOp{Account: o.Account, Ref: o.ID}
	if o.Permission != nil {
		op.Permission = *o.Permission
	}
	var undone *store.Order
	_, err := c.ledger.ReverseWith(ctx, op, func(tx *store.Tx, t ledger.TakenBack) error {
		c.at("taking back")
		next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
		if err != nil {
			return err
		}
		if next.Status != toll.OrderConfirmed {
			return errElsewhere
		}
		if err := c.refused(next, p); err != nil {
			return err
		}
		next.Reversed = true
		account(next, t)
		undone = next
		return c.writeFailed(ctx, tx, next, p, func(b budget) { b.undo(next) })
	})
	if err == nil {
		c.log.Error("a paid order was undone by the chain", "order", o.ID, "reason", p.FailureReason, "credits", o.Credits,
			"taken_back", undone.TakenBack, "loss", undone.Loss, "held", undone.HeldBack)
	}
	return err
}

// account notes what has become of the credits of an order that was undone.
func account(o *store.Order, t ledger.TakenBack) {
	o.TakenBack, o.HeldBack = t.Taken, t.Left
	o.Loss = t.Granted - t.Taken - t.Left
}

// finishTakeBacks follows credits that holds kept from being taken back, until the holds have ended.
func (c *Checkout) finishTakeBacks(ctx context.Context) error {
	due, err := store.OrdersHeldBack(ctx, c.store, dueOrders)
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range due {
		_, err := c.ledger.ReverseWith(ctx, ledger.ReverseOp{Account: o.Account, Ref: o.ID}, func(tx *store.Tx, t ledger.TakenBack) error {
			next, err := store.OrderForUpdate(ctx, tx, o.Account, o.ID)
			if err != nil {
				return err
			}
			if !next.Reversed {
				return errElsewhere
			}
			if next.HeldBack == t.Left {
				return nil
			}
			if account(next, t); next.HeldBack == 0 {
				c.log.Error("the credits of an order that the chain undid are accounted for", "order", o.ID, "taken_back", next.TakenBack,
					"loss", next.Loss)
			}
			return store.UpdateOrder(ctx, tx, next)
		})
		if !errors.Is(err, errElsewhere) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
