package checkout

import (
	"context"
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// Mint grants credits of a plan to a holder, without an order and without a price, by the owner of the plan. They end
// after this many seconds, or never for 0. once may be nil. Errors: [toll.CodeMintNotPositive], [toll.CodePlanNotFound],
// [toll.CodeNotPlanOwner], [toll.CodeBadAddress] for the zero address, [toll.CodeCreditsOverflow].
func (c *Checkout) Mint(
	ctx context.Context, caller toll.Address, id toll.PlanID, holder toll.Address, amount toll.Credits, durationSecs toll.Units,
	once *store.Once,
) (*toll.ActResult, error) {
	plan, err := store.PlanByID(ctx, c.store, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, toll.NewError(toll.CodePlanNotFound).WithDetails("planId %s", id)
	case err != nil:
		return nil, fault(err)
	case plan.Owner != caller:
		return nil, toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", id)
	case amount <= 0:
		return nil, toll.NewError(toll.CodeMintNotPositive)
	case holder.IsZero():
		return nil, toll.Errorf(toll.CodeBadAddress, "The zero address cannot hold credits.")
	}
	now := c.clock().UTC()
	op := ledger.MintOp{
		Plan: id, Subscriber: holder, Amount: amount, EndsAt: toll.LotEnd(now, durationSecs), Ref: "mint:" + toll.NewUUID(),
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
		return nil, fault(err)
	}
	return answer(m), nil
}
