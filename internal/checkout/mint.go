package checkout

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// Mint grants credits to a holder for free, by the owner of the plan, for some seconds, or for ever with 0. once may be nil. Errors:
// [toll.CodeMintNotPositive], [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadAddress] for 0x0, [toll.CodeCreditsOverflow].
func (c *Checkout) Mint(
	ctx context.Context, caller toll.Address, id toll.PlanID, holder toll.Address, amount toll.Credits, durationSecs toll.Units,
	once *store.Once,
) (*toll.ActResult, error) {
	_, err := c.ownPlan(ctx, caller, id)
	switch {
	case err != nil:
		return nil, err
	case amount <= 0:
		return nil, toll.NewError(toll.CodeMintNotPositive)
	case holder.IsZero():
		return nil, toll.Errorf(toll.CodeBadAddress, "The zero address cannot hold credits.")
	}
	now := c.clock().UTC()
	op := ledger.MintOp{
		Plan: id, Subscriber: holder, Amount: amount, EndsAt: toll.LotEnd(now, durationSecs), Ref: ledger.MintRef + toll.NewUUID(),
	}
	answer := func(m ledger.Minted) *toll.ActResult {
		return &toll.ActResult{
			Success: true, Message: "Credits minted.", TxHash: m.Transaction, HTTPStatus: 200, When: toll.At(now),
			Data: map[string]any{"planId": id, "holderAddress": holder, "amount": amount, "balance": m.Balance},
		}
	}
	var m ledger.Minted
	err = c.ledger.DoNew(ctx, id, holder, func(t *ledger.Tx) error {
		if m, err = t.Mint(op); err != nil {
			return err
		}
		if m.Replayed {
			return ledger.ErrRecorded
		}
		out := answer(m)
		if err := store.PutAnswer(ctx, t.Tx, once, out); err != nil {
			return err
		}
		return store.Audit(ctx, t.Tx, store.Act{
			Workspace: caller.Lower(), Act: "credits.minted", Object: m.Transaction.String(), At: now,
			Detail: store.Changed{After: map[string]any{"planId": id, "holderAddress": holder, "amount": amount}},
		})
	})
	if err != nil {
		return nil, Fault(err)
	}
	return answer(m), nil
}

// Withdraw withdraws credits from a holder, by the owner of the plan, if they are unspent, not on hold, and minted or free. Paid credits
// leave only by [Checkout.Refund]; otherwise a delegation of the holder could buy them again and again. once may be nil.
// Errors: [toll.CodeBadNumber] for less than one credit, [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeCreditsNotFree] with
// params.available when fewer can be withdrawn.
func (c *Checkout) Withdraw(
	ctx context.Context, caller toll.Address, id toll.PlanID, holder toll.Address, amount toll.Credits, once *store.Once,
) (*toll.ActResult, error) {
	if _, err := c.ownPlan(ctx, caller, id); err != nil {
		return nil, err
	}
	if amount <= 0 {
		return nil, toll.Errorf(toll.CodeBadNumber, "amount must be 1 credit or more; got %d.", amount).WithParam("path", "amount")
	}
	now, act := c.clock().UTC(), toll.NewUUID()
	var out *toll.ActResult
	since := int64(-1) // entries of the account before the first run
	err := c.ledger.Do(ctx, ledger.NewAccountID(id, holder), func(t *ledger.Tx) error {
		a, err := t.Account()
		if err != nil {
			return err
		}
		notFree := func(n toll.Credits) error {
			return toll.NewError(toll.CodeCreditsNotFree).WithParam("available", n.String()).
				WithDetails("amount %d, available %d", amount, n)
		}
		if a.Seq == 0 { // the address never had credits
			return notFree(0)
		}
		if since < 0 {
			since = a.Seq
		}
		// A later run first looks for the entry of an earlier one, whose credits are free no more.
		done, err := t.Withdraw(act, amount, since)
		if r, refused := errors.AsType[*ledger.Refusal](err); refused {
			return notFree(r.Available)
		}
		if err != nil {
			return err
		}
		if err := store.CountWithdrawn(ctx, t.Tx, a.ID, done.Of); err != nil {
			return err
		}
		out = &toll.ActResult{
			Success: true, Message: "Credits taken back.", TxHash: done.Transaction, HTTPStatus: 200, When: toll.At(now),
			Data: map[string]any{
				"planId": id, "holderAddress": holder, "amount": amount, "balance": done.Balance, "available": done.Available,
			},
		}
		if err := store.PutAnswer(ctx, t.Tx, once, out); err != nil {
			return err
		}
		return store.Audit(ctx, t.Tx, store.Act{
			Workspace: caller.Lower(), Act: "credits.taken_back", Object: done.Transaction.String(), At: now,
			Detail: store.Changed{
				Before: map[string]any{"available": done.Available + amount},
				After:  map[string]any{"planId": id, "holderAddress": holder, "amount": amount, "available": done.Available},
			},
		})
	})
	if err != nil {
		return nil, Fault(err)
	}
	return out, nil
}
