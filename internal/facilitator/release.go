package facilitator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// request is a stored request with what it belongs to.
type request struct {
	ledger.Request
	account ledger.Account
	plan    *toll.Plan
}

// Release gives a hold back without a burn and ends its request; a repeat gets the same answer. Only the owner of the plan
// may. Errors: [toll.CodeSettlementNotFound] also for requests of other builders, [toll.CodeReleaseOfSettled], and for a stock
// body those of its payment.
func (f *Facilitator) Release(ctx context.Context, caller toll.Address, req *x402.ReleaseRequest) (*x402.ReleaseResponse, error) {
	var r *request
	var err error
	if req.Stock != nil {
		r, err = f.paidBy(ctx, caller, req.Stock)
	} else {
		r, err = f.owned(ctx, caller, req.AgentRequestID)
	}
	if err != nil {
		return nil, err
	}
	out, err := f.Ledger.Release(ctx, r.Request.Account, r.ID)
	switch {
	case ledger.IsRefused(err, ledger.SettledAlready):
		return nil, toll.NewError(toll.CodeReleaseOfSettled).WithDetails("agentRequestId %s", r.ID)
	case ledger.IsRefused(err, ledger.UnknownRequest):
		return nil, noSettlement()
	case err != nil:
		return nil, refusal.By(f.brand.Names, err)
	}
	return &x402.ReleaseResponse{
		Success: true, AgentRequestID: out.RequestID, Status: out.Status.String(), Released: out.Amount,
	}, nil
}

// Renew moves the end of an open hold to its life from now, at most to [ledger.MaxHoldLife] after its creation. It takes no credits, and a
// repeat is harmless. Only the owner of the plan may. Errors: [toll.CodeSettlementNotFound] also for requests of other builders,
// [toll.CodeHoldOver], [toll.CodeSettleConflict] for an id that names open holds of several accounts.
func (f *Facilitator) Renew(ctx context.Context, caller toll.Address, req *x402.RenewRequest) (*x402.RenewResponse, error) {
	if req.HoldSecs < 0 || req.HoldSecs > x402.MaxHoldSecs {
		return nil, refusal.Malformed("holdSecs", "must be 1 to 900")
	}
	r, err := f.owned(ctx, caller, req.AgentRequestID)
	if err != nil {
		return nil, err
	}
	held, err := f.Ledger.Renew(ctx, r.Request.Account, r.ID, holdLife(req.HoldSecs))
	if ledger.IsRefused(err, ledger.UnknownRequest) {
		return nil, noSettlement()
	}
	if err != nil {
		return nil, refusal.By(f.brand.Names, err)
	}
	return &x402.RenewResponse{Success: true, AgentRequestID: held.RequestID, HeldAmount: held.Amount, HoldExpiresAt: toll.At(held.Until)}, nil
}

// paidBy returns the request that the payment of a stock body names.
func (f *Facilitator) paidBy(ctx context.Context, caller toll.Address, stock *x402.StockPayment) (*request, error) {
	p, e := f.read(ctx, caller, newAsked(stock, nil, "", ""))
	if e != nil {
		if e.Code == toll.CodeNotPlanOwner {
			return nil, noSettlement()
		}
		return nil, e
	}
	found, ok, err := f.known(ctx, p, "")
	if err != nil {
		return nil, toll.AsError(err)
	}
	if !ok {
		return nil, noSettlement()
	}
	return f.allowed(ctx, found, ownerOnly(caller))
}

func ownerOnly(caller toll.Address) func(subscriber, owner toll.Address) bool {
	return func(_, owner toll.Address) bool { return caller == owner }
}

// Settlement returns the stored outcome of a request to the owner of its plan and to its subscriber; for everybody else
// it does not exist: [toll.CodeSettlementNotFound]. One that was removed after its time is [toll.CodeSettlementGone].
func (f *Facilitator) Settlement(ctx context.Context, caller toll.Address, id string) (*toll.Settlement, error) {
	all, err := f.lookup(ctx, caller, id, party(caller))
	if errors.Is(err, noSettlement()) {
		return f.awaited(ctx, caller, id)
	}
	if err != nil {
		return nil, err
	}
	return f.settlement(ctx, all[0])
}

// awaited is the record of a request that is not held or settled yet because an order for it is not decided.
func (f *Facilitator) awaited(ctx context.Context, caller toll.Address, id string) (*toll.Settlement, error) {
	account, ours := f.Ledger.AccountOfRequestID(id)
	if !ours {
		return nil, noSettlement()
	}
	o, err := f.Checkout.OrderOfRequest(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && (!o.Open || o.Permission == nil) {
		// Its row may have been removed: the id itself says when it was issued.
		if f.Horizon > 0 && f.Ledger.TimeOfRequestID(id).Before(f.Clock().Add(-f.Horizon)) {
			if _, err := f.allowed(ctx, ledger.Request{Account: account}, party(caller)); err == nil {
				return nil, f.gone()
			}
		}
		return nil, noSettlement()
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	r, err := f.allowed(ctx, ledger.Request{Account: account, ID: id, Permission: *o.Permission, CreatedAt: o.CreatedAt}, party(caller))
	if err != nil {
		return nil, err
	}
	s, err := f.settlement(ctx, r)
	if err != nil {
		return nil, err
	}
	s.Status = statusPending
	if h, err := toll.ParseHash(o.TxHash); err == nil {
		s.OrderTx = &h
	}
	return s, nil
}

// statusPending is the status of a request whose outcome depends on an order.
const statusPending = "pending"

// SettlementByTransaction is [Facilitator.Settlement] by the transaction in the receipt.
func (f *Facilitator) SettlementByTransaction(ctx context.Context, caller toll.Address, tx toll.Hash) (*toll.Settlement, error) {
	found, err := f.Ledger.RequestByTransaction(ctx, tx)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noSettlement()
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	r, err := f.allowed(ctx, found, party(caller))
	if err != nil {
		return nil, err
	}
	return f.settlement(ctx, r)
}

// Settlements returns the settlements of burns in the journal, in their order, to a party of all of them; otherwise
// [toll.CodeSettlementNotFound]. It reads what their permissions say with one statement.
func (f *Facilitator) Settlements(ctx context.Context, caller toll.Address, burns []*store.JournalRow) ([]*toll.Settlement, error) {
	requests := make([]ledger.Request, len(burns))
	for i, b := range burns {
		requests[i] = ledger.RequestOf(b)
	}
	return f.settlements(ctx, caller, requests)
}

// settlements is [Facilitator.Settlements] of requests in any state.
func (f *Facilitator) settlements(ctx context.Context, caller toll.Address, requests []ledger.Request) ([]*toll.Settlement, error) {
	keyOf := func(r *ledger.Request) store.PermissionKey {
		return store.PermissionKey{Account: r.Account, Hash: r.Permission}
	}
	keys := make([]store.PermissionKey, 0, len(requests))
	for i := range requests {
		if key := keyOf(&requests[i]); !requests[i].Gone && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	payers, err := store.Payers(ctx, f.Store, keys)
	if err != nil {
		return nil, toll.AsError(err)
	}
	out := make([]*toll.Settlement, len(requests))
	for i := range requests {
		r := &request{Request: requests[i]}
		payer, ok := payers[keyOf(&requests[i])]
		if ok {
			r.account = ledger.Account{ID: r.Request.Account, Plan: payer.Plan, Subscriber: payer.Subscriber}
		} else if r.account, err = f.Ledger.Account(ctx, r.Request.Account); err != nil {
			return nil, toll.AsError(err)
		}
		if err := f.allow(ctx, r, party(caller)); err != nil {
			return nil, err
		}
		if out[i], err = f.settlementOver(ctx, r, payer.Network); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// noSettlement is the one answer for what is not there and for what is not the caller's.
func noSettlement() *toll.Error { return toll.NewError(toll.CodeSettlementNotFound) }

// gone is the answer about a request that was removed after its time.
func (f *Facilitator) gone() *toll.Error {
	days := f.Horizon / (24 * time.Hour)
	return toll.NewError(toll.CodeSettlementGone).WithParam("keptDays", int(days)).
		WithDetails("requests are kept for %d days after the end of their access token", days)
}

func party(caller toll.Address) func(subscriber, owner toll.Address) bool {
	return func(subscriber, owner toll.Address) bool { return caller == subscriber || caller == owner }
}

// lookup finds the requests with this id that the caller may see, newest first, at least one. An id that this service
// issued names its account; one that a caller chose is unique within an account only.
func (f *Facilitator) lookup(ctx context.Context, caller toll.Address, id string, may func(subscriber, owner toll.Address) bool) ([]*request, error) {
	if !x402.ValidRequestID(id) {
		return nil, noSettlement()
	}
	var candidates []ledger.Request
	account, ours := f.Ledger.AccountOfRequestID(id)
	if ours {
		r, err := f.Ledger.Request(ctx, account, id)
		if err == nil {
			candidates = append(candidates, r)
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, toll.AsError(err)
		}
	} else if !f.foreign(account, id) {
		var err error
		if candidates, err = f.Ledger.RequestsByID(ctx, id, caller, maxSameID); err != nil {
			return nil, toll.AsError(err)
		}
	}
	var out []*request
	for _, c := range candidates {
		r, err := f.allowed(ctx, c, may)
		if err == nil {
			out = append(out, r)
		} else if !errors.Is(err, noSettlement()) {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, noSettlement()
	}
	return out, nil
}

// owned returns the one open hold with this id, else the newest request, to the owner of its plan. An id that a builder gave to open
// holds of two subscribers names neither: releasing the wrong one would leave a handler unpaid.
func (f *Facilitator) owned(ctx context.Context, caller toll.Address, id string) (*request, error) {
	all, err := f.lookup(ctx, caller, id, ownerOnly(caller))
	if err != nil {
		return nil, err
	}
	var open *request
	for _, r := range all {
		if r.State != ledger.StateHeld {
			continue
		}
		if open != nil {
			return nil, toll.Errorf(toll.CodeSettleConflict, "This agentRequestId names open holds of several accounts.").
				WithHint("Let verify issue the ids, or make them unique; the holds end by themselves.")
		}
		open = r
	}
	if open == nil {
		open = all[0]
	}
	return open, nil
}

// maxSameID bounds how many accounts with the same id of a caller's choice are looked at.
const maxSameID = 64

func (f *Facilitator) allowed(ctx context.Context, r ledger.Request, may func(subscriber, owner toll.Address) bool) (*request, error) {
	a, err := f.Ledger.Account(ctx, r.Account)
	if err != nil {
		return nil, toll.AsError(err)
	}
	out := &request{Request: r, account: a}
	return out, f.allow(ctx, out, may)
}

// allow reads the plan of a request, or refuses it.
func (f *Facilitator) allow(ctx context.Context, r *request, may func(subscriber, owner toll.Address) bool) error {
	if r.account.Plan == "" {
		return noSettlement()
	}
	plan, e := f.Catalogue.Plan(ctx, r.account.Plan, toll.CodeSettlementNotFound)
	if e != nil {
		return e
	}
	if r.plan = plan; !may(r.account.Subscriber, plan.Owner) {
		return noSettlement()
	}
	return nil
}

func (f *Facilitator) settlement(ctx context.Context, r *request) (*toll.Settlement, error) {
	if r.Gone {
		return nil, f.gone()
	}
	_, perm, err := f.Ledger.Snapshot(ctx, r.Request.Account, r.Permission)
	if err != nil {
		return nil, toll.AsError(err)
	}
	return f.settlementOver(ctx, r, perm.Network)
}

// settlementOver is settlement with the network of its permission.
func (f *Facilitator) settlementOver(ctx context.Context, r *request, network string) (*toll.Settlement, error) {
	s := &toll.Settlement{
		AgentRequestID: r.ID, Status: r.State.String(), PlanID: r.plan.ID, Payer: r.account.Subscriber,
		Network: f.brand.Network(network), HeldAmount: r.Held, PermissionHash: r.Permission, CreatedAt: toll.At(r.CreatedAt),
		HoldExpiresAt: toll.AtPtr(r.HoldEndsAt), EndedAt: toll.AtPtr(r.EndedAt),
	}
	if r.Agent != "" {
		s.AgentID = &r.Agent
	}
	if r.Resource != "" {
		s.Resource = &r.Resource
	}
	switch r.State {
	case ledger.StateHeld, ledger.StateReleased, ledger.StateLapsed, ledger.StateGivenUp:
		if h, err := toll.ParseHash(r.OrderTx); err == nil {
			s.OrderTx = &h
		}
	}
	switch r.State {
	case ledger.StateHeld:
		// The ledger writes the lapse when it next touches the account; for readers it is over already.
		if !f.Clock().Before(r.HoldEndsAt) {
			s.Status = ledger.StateLapsed.String()
		}
	case ledger.StateSettled:
		burned := r.Request.Receipt()
		tx := burned.Transaction
		s.Transaction, s.Amount, s.CreditsRedeemed, s.SettledAt = &tx, r.Amount.Ptr(), r.Amount.Ptr(), toll.AtPtr(r.EndedAt)
		if r.Gone { // in a list of events that are about to be removed: what the entry says
			s.RemainingBalance = burned.Balance.Ptr()
			return s, nil
		}
		receipt, err := f.answer(r.Answer, settled{Receipt: burned, payer: r.account.Subscriber, plan: r.plan.ID, agent: r.Agent})
		if err != nil {
			return nil, toll.NewError(toll.CodeInternal).WithCause(err)
		}
		s.RemainingBalance, s.Receipt = receipt.RemainingBalance, receipt.Raw
		if h, err := toll.ParseHash(receipt.OrderTx); err == nil {
			s.OrderTx = &h
		}
		if r.plan.Credits.OnchainMirror {
			if s.MirrorTx, err = store.MirrorTransaction(ctx, f.Store, tx); err != nil {
				return nil, toll.AsError(err)
			}
		}
	}
	return s, nil
}
