package pay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// Requests reads what became of requests, for the owner of the plan and the subscriber, and records their sub-tasks. Safe for
// concurrent use.
type Requests struct {
	store     *store.Store
	ledger    *ledger.Ledger
	checkout  *checkout.Checkout
	catalogue *catalogue.Catalogue
	brand     catalogue.Brand
	clock     func() time.Time
	horizon   time.Duration
}

type request struct {
	ledger.Request
	account ledger.Account
	plan    *toll.Plan
}

func ownerOnly(caller toll.Address) func(subscriber, owner toll.Address) bool {
	return func(_, owner toll.Address) bool { return caller == owner }
}

// Settlement returns the stored outcome of a request to the owner of its plan and to its subscriber; for everybody else
// it does not exist: [toll.CodeSettlementNotFound]. One that was removed after its time is [toll.CodeSettlementGone].
func (x *Requests) Settlement(ctx context.Context, caller toll.Address, id string) (*toll.Settlement, error) {
	all, err := x.lookup(ctx, caller, id, payerOrOwner(caller))
	if errors.Is(err, noSettlement()) {
		return x.awaited(ctx, caller, id)
	}
	if err != nil {
		return nil, err
	}
	return x.settlement(ctx, all[0])
}

// awaited is the record of a request that is not held or settled yet because an order for it is not decided.
func (x *Requests) awaited(ctx context.Context, caller toll.Address, id string) (*toll.Settlement, error) {
	account, ours := x.ledger.AccountOfRequestID(id)
	if !ours {
		return nil, noSettlement()
	}
	o, err := x.checkout.OrderOfRequest(ctx, account, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && (!o.Open || o.Permission == nil) {
		// Its row may have been removed: the id itself says when it was issued.
		if x.horizon > 0 && x.ledger.TimeOfRequestID(id).Before(x.clock().Add(-x.horizon)) {
			if _, err := x.allowed(ctx, ledger.Request{Account: account}, payerOrOwner(caller)); err == nil {
				return nil, x.removed()
			}
		}
		return nil, noSettlement()
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	r, err := x.allowed(ctx, ledger.Request{Account: account, ID: id, Permission: *o.Permission, CreatedAt: o.CreatedAt}, payerOrOwner(caller))
	if err != nil {
		return nil, err
	}
	s, err := x.settlement(ctx, r)
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

// SettlementByTransaction is [Requests.Settlement] by the transaction in the receipt.
func (x *Requests) SettlementByTransaction(ctx context.Context, caller toll.Address, tx toll.Hash) (*toll.Settlement, error) {
	found, err := x.ledger.RequestByTransaction(ctx, tx)
	if errors.Is(err, store.ErrNotFound) {
		return nil, noSettlement()
	}
	if err != nil {
		return nil, toll.AsError(err)
	}
	r, err := x.allowed(ctx, found, payerOrOwner(caller))
	if err != nil {
		return nil, err
	}
	return x.settlement(ctx, r)
}

// Settlements returns the settlements of burns in the journal, in their order, to a party of all of them; otherwise
// [toll.CodeSettlementNotFound]. It reads what their permissions say with one statement.
func (x *Requests) Settlements(ctx context.Context, caller toll.Address, burns []*store.JournalRow) ([]*toll.Settlement, error) {
	requests := make([]ledger.Request, len(burns))
	for i, b := range burns {
		requests[i] = ledger.RequestOf(b)
	}
	return x.settlements(ctx, caller, requests)
}

// settlements is [Requests.Settlements] of requests in any state.
func (x *Requests) settlements(ctx context.Context, caller toll.Address, requests []ledger.Request) ([]*toll.Settlement, error) {
	keyOf := func(r *ledger.Request) store.PermissionKey {
		return store.PermissionKey{Account: r.Account, Hash: r.Permission}
	}
	keys := make([]store.PermissionKey, 0, len(requests))
	for i := range requests {
		if key := keyOf(&requests[i]); !requests[i].Removed && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	payers, err := store.Payers(ctx, x.store, keys)
	if err != nil {
		return nil, toll.AsError(err)
	}
	out := make([]*toll.Settlement, len(requests))
	for i := range requests {
		r := &request{Request: requests[i]}
		payer, ok := payers[keyOf(&requests[i])]
		if ok {
			r.account = ledger.Account{ID: r.Request.Account, Plan: payer.Plan, Subscriber: payer.Subscriber}
		} else if r.account, err = x.ledger.Account(ctx, r.Request.Account); err != nil {
			return nil, toll.AsError(err)
		}
		if err := x.allow(ctx, r, payerOrOwner(caller)); err != nil {
			return nil, err
		}
		if out[i], err = x.settlementOver(ctx, r, payer.Network); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// noSettlement is the one answer for what is not there and for what is not the caller's.
func noSettlement() *toll.Error { return toll.NewError(toll.CodeSettlementNotFound) }

// removed refuses a request that was removed after its time.
func (x *Requests) removed() *toll.Error {
	days := x.horizon / (24 * time.Hour)
	return toll.NewError(toll.CodeSettlementGone).WithParam("keptDays", int(days)).
		WithDetails("requests are kept for %d days after their access token expires", days)
}

func payerOrOwner(caller toll.Address) func(subscriber, owner toll.Address) bool {
	return func(subscriber, owner toll.Address) bool { return caller == subscriber || caller == owner }
}

// lookup finds the requests with this id that the caller may see, newest first, at least one. An id that this service
// issued names its account; one that a caller chose is unique within an account only.
func (x *Requests) lookup(ctx context.Context, caller toll.Address, id string, may func(subscriber, owner toll.Address) bool) ([]*request, error) {
	if !x402.ValidRequestID(id) {
		return nil, noSettlement()
	}
	var candidates []ledger.Request
	account, ours := x.ledger.AccountOfRequestID(id)
	if ours {
		r, err := x.ledger.Request(ctx, account, id)
		if err == nil {
			candidates = append(candidates, r)
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, toll.AsError(err)
		}
	} else if !isOtherAccount(x.ledger, account, id) {
		var err error
		if candidates, err = x.ledger.RequestsByID(ctx, id, caller, maxSameID); err != nil {
			return nil, toll.AsError(err)
		}
	}
	var out []*request
	for _, c := range candidates {
		r, err := x.allowed(ctx, c, may)
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
func (x *Requests) owned(ctx context.Context, caller toll.Address, id string) (*request, error) {
	all, err := x.lookup(ctx, caller, id, ownerOnly(caller))
	if err != nil {
		return nil, err
	}
	var open *request
	for _, r := range all {
		if r.State != ledger.StateHeld {
			continue
		}
		if open != nil {
			return nil, toll.Errorf(toll.CodeSettleConflict, "Several open holds have this agentRequestId.").
				WithHint("Use the ids that verify returns, or send unique ids. The open holds lapse automatically.")
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

func (x *Requests) allowed(ctx context.Context, r ledger.Request, may func(subscriber, owner toll.Address) bool) (*request, error) {
	a, err := x.ledger.Account(ctx, r.Account)
	if err != nil {
		return nil, toll.AsError(err)
	}
	out := &request{Request: r, account: a}
	return out, x.allow(ctx, out, may)
}

// allow reads the plan of a request, or refuses it.
func (x *Requests) allow(ctx context.Context, r *request, may func(subscriber, owner toll.Address) bool) error {
	if r.account.Plan == "" {
		return noSettlement()
	}
	plan, e := x.catalogue.Plan(ctx, r.account.Plan, toll.CodeSettlementNotFound)
	if e != nil {
		return e
	}
	if r.plan = plan; !may(r.account.Subscriber, plan.Owner) {
		return noSettlement()
	}
	return nil
}

func (x *Requests) settlement(ctx context.Context, r *request) (*toll.Settlement, error) {
	if r.Removed {
		return nil, x.removed()
	}
	_, perm, err := x.ledger.Snapshot(ctx, r.Request.Account, r.Permission)
	if err != nil {
		return nil, toll.AsError(err)
	}
	return x.settlementOver(ctx, r, perm.Network)
}

// settlementOver is settlement with the network of its permission.
func (x *Requests) settlementOver(ctx context.Context, r *request, network string) (*toll.Settlement, error) {
	s := &toll.Settlement{
		AgentRequestID: r.ID, Status: r.State.String(), PlanID: r.plan.ID, Payer: r.account.Subscriber,
		Network: x.brand.Network(network), HeldAmount: r.Held, PermissionHash: r.Permission, CreatedAt: toll.At(r.CreatedAt),
		HoldExpiresAt: toll.AtPtr(r.HoldEndsAt), EndedAt: toll.AtPtr(r.EndedAt), AgentID: store.NonZero(r.Agent), Resource: store.NonZero(r.Resource),
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
		if !x.clock().Before(r.HoldEndsAt) {
			s.Status = ledger.StateLapsed.String()
		}
	case ledger.StateSettled:
		burned := r.Request.Receipt()
		tx := burned.Transaction
		s.Transaction, s.Amount, s.CreditsRedeemed, s.SettledAt = &tx, r.Amount.Ptr(), r.Amount.Ptr(), toll.AtPtr(r.EndedAt)
		if r.Removed { // in a list of events that are about to be removed: what the entry says
			s.RemainingBalance = burned.Balance.Ptr()
			return s, nil
		}
		receipt, err := answerOf(x.brand.Names, r.Answer, settled{Receipt: burned, payer: r.account.Subscriber, plan: r.plan.ID, agent: r.Agent})
		if err != nil {
			return nil, toll.NewError(toll.CodeInternal).WithCause(err)
		}
		s.RemainingBalance, s.Receipt = receipt.RemainingBalance, receipt.Raw
		if h, err := toll.ParseHash(receipt.OrderTx); err == nil {
			s.OrderTx = &h
		}
		if r.plan.Credits.OnchainMirror {
			if s.MirrorTx, err = store.MirrorTransaction(ctx, x.store, tx); err != nil {
				return nil, toll.AsError(err)
			}
		}
	}
	return s, nil
}

// maxHistory bounds the range of a list of requests. It is also the range where a caller names none.
const maxHistory = 90 * 24 * time.Hour

// RequestQuery selects requests that a caller is a party of.
type RequestQuery struct {
	AsBuyer      bool         // those of the caller; else those of the caller's plans
	Plan         toll.PlanID  // "": all plans
	Agent        toll.AgentID // "": all agents
	Subscriber   toll.Address // as seller, with Plan
	State        ledger.State // held, settled, released or lapsed; 0: all that have ended
	Since, Until time.Time    // zero: the 90 days before Until, which is now
	Page         store.Page   // has no number
}

// List lists the requests of a caller by the time of their end, and held ones by that of their begin. next is the cursor of the page
// behind, "" at the end; a page may have fewer requests than it may: see [ledger.Ledger.History]. Errors: [toll.CodeBadRequest] for what
// does not go together and for too many open holds, [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadPage].
func (x *Requests) List(ctx context.Context, caller toll.Address, q RequestQuery) (page []*toll.Settlement, next string, err error) {
	by := func(path, message string) error { return toll.Faults([]toll.Fault{{Path: path, Message: message}}) }
	filter := ledger.HistoryFilter{Plan: q.Plan, Agent: q.Agent, State: q.State, Since: q.Since, Until: q.Until}
	now := x.clock()
	if filter.Until.IsZero() {
		filter.Until = now
	}
	if filter.Since.IsZero() {
		filter.Since = filter.Until.Add(-maxHistory)
	}
	switch {
	case !filter.Since.Before(filter.Until) || filter.Until.Sub(filter.Since) > maxHistory:
		return nil, "", by("since", "must be earlier than until, by at most 90 days")
	case !q.Subscriber.IsZero() && (q.AsBuyer || q.Plan == ""):
		return nil, "", by("subscriber", "requires role=seller and planId")
	case q.AsBuyer:
		filter.Subscriber = caller
	default:
		filter.Seller, filter.Subscriber = caller, q.Subscriber
		if err := x.owns(ctx, caller, q.Plan); err != nil {
			return nil, "", err
		}
	}
	if q.Until.IsZero() {
		filter.Until = now.Add(time.Hour) // the clocks of other processes may be ahead
	}
	list, next, err := x.ledger.History(ctx, filter, q.Page)
	if errors.Is(err, ledger.ErrManyHeld) {
		return nil, "", by("status", "matches too many held requests to list: add planId and subscriber")
	}
	if err != nil {
		return nil, "", toll.AsError(err)
	}
	page, err = x.settlements(ctx, caller, list)
	return page, next, err
}

// owns refuses a plan that is not the caller's. "" is none.
func (x *Requests) owns(ctx context.Context, caller toll.Address, id toll.PlanID) error {
	if id == "" {
		return nil
	}
	plan, e := x.catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	switch {
	case e != nil:
		return e
	case plan.Owner != caller:
		return toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", id)
	}
	return nil
}

// Get is [Requests.Settlement] with the states that the request took.
func (x *Requests) Get(ctx context.Context, caller toll.Address, id string) (*toll.RequestRecord, error) {
	s, err := x.Settlement(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	return &toll.RequestRecord{Settlement: *s, Steps: stepsOf(s)}, nil
}

func stepsOf(s *toll.Settlement) []toll.RequestStep {
	steps := []toll.RequestStep{}
	add := func(status string, at *toll.Time, credits toll.Credits) {
		if at != nil {
			steps = append(steps, toll.RequestStep{Status: status, At: *at, Credits: credits})
		}
	}
	held, lapsed, settled := ledger.StateHeld.String(), ledger.StateLapsed.String(), ledger.StateSettled.String()
	if s.HoldExpiresAt != nil {
		add(held, &s.CreatedAt, s.HeldAmount)
	}
	switch s.Status {
	case settled:
		if s.HoldExpiresAt != nil && s.HoldExpiresAt.Before(s.SettledAt.Time) {
			add(lapsed, s.HoldExpiresAt, s.HeldAmount) // it was settled as a claim
		}
		add(settled, s.SettledAt, *s.Amount)
	case lapsed:
		add(lapsed, s.HoldExpiresAt, s.HeldAmount)
	case ledger.StateReleased.String():
		add(s.Status, s.EndedAt, s.HeldAmount)
	}
	return steps
}
