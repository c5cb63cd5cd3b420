package checkout

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// LostOrder is an order whose payment a rail has, and whose record was lost: the database was restored from an older backup.
type LostOrder struct {
	ID         string // UUID; "" for a new one
	Plan       toll.PlanID
	Subscriber toll.Address
	Received   []Received // what the payment moved
	Currency   string     // of a card payment
	TxHash     string     // of a payment on the chain, which decides the order at once; "" for cards
	Delegation string     // that a card payment names; "" for none
}

// ErrNotThePrice says that a payment is not the price of a plan.
var ErrNotThePrice = errors.New("the payment does not match the price of the plan")

// ErrOrderExists says that an order with the id of a lost one is here: another payment paid it.
var ErrOrderExists = errors.New("the order of the payment already exists and was paid by another payment")

// Received is money that a payment moved. Of a card payment Token and To are zero.
type Received struct {
	Token, To toll.Address
	Amount    toll.Units
}

// ErrDelegationBusy says that orders under way take what the delegation of a lost order has left.
var ErrDelegationBusy = errors.New("pending orders reserve the remaining budget of the delegation: try again when those orders are confirmed or failed")

// RestoreOrder records a lost order and has finish write the rows of its rail, and return the entry of the audit log, in one transaction.
// A payment on the chain grants the credits in it; otherwise the rail decides later. An unlisted or sold-out plan counts: the money moved.
// Errors: [toll.CodePlanNotFound], [toll.CodeBadAddress], [ErrNotThePrice], [ErrOrderExists], [ErrDelegationBusy],
// [toll.CodeCreditsOverflow], and those of finish.
func (c *Checkout) RestoreOrder(
	ctx context.Context, in LostOrder, finish func(tx *store.Tx, o *store.Order) (store.Act, error),
) (*store.Order, error) {
	plan, err := store.PlanByID(ctx, c.store, in.Plan)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, toll.NewError(toll.CodePlanNotFound).WithDetails("planId %s", in.Plan)
	case err != nil:
		return nil, Fault(err)
	case in.Subscriber.IsZero():
		return nil, toll.Errorf(toll.CodeBadAddress, "The zero address cannot hold credits.")
	}
	n, ok := in.copies(plan, plan.Price.PayToken(c.env))
	if !ok {
		return nil, ErrNotThePrice
	}
	now := c.now()
	credits, amount := orderOf(plan, n)
	o := &store.Order{
		ID: in.ID, Account: ledger.NewAccountID(plan.ID, in.Subscriber), Plan: plan.ID, Subscriber: in.Subscriber,
		Seller: plan.Owner, Status: toll.OrderCreated, Credits: credits, Amount: amount,
		Currency: plan.Price.CurrencyName(), CreatedAt: now, UpdatedAt: now, Open: true, Rail: railOf(plan),
	}
	if o.ID == "" {
		o.ID = toll.NewTimeUUID(now).String()
	}
	o.OpenKey = "order/" + o.ID
	if d, err := lostDelegation(ctx, c.store, in.Delegation, in.Subscriber, o.Currency); err != nil {
		return nil, Fault(err)
	} else if d != nil {
		o.DelegationID = d.ID
		o.Cents, _ = centsOf(o.Amount)
	}
	written := false // by an attempt whose outcome is unknown
	err = c.ledger.DoNew(ctx, plan.ID, in.Subscriber, func(t *ledger.Tx) error {
		switch _, err := store.OrderOfAccount(ctx, t, o.Account, o.ID); {
		case err == nil && written:
			return ledger.ErrRecorded
		case err == nil:
			return ErrOrderExists
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		written = true
		return c.Decisions.restore(ctx, t, plan, o, in.TxHash, finish)
	})
	return o, err
}

func (c *Decisions) restore(
	ctx context.Context, t *ledger.Tx, plan *toll.Plan, o *store.Order, txHash string,
	finish func(tx *store.Tx, o *store.Order) (store.Act, error),
) error {
	a, err := t.CountOrder(toll.Hash{})
	if err != nil {
		return err
	}
	if o.Credits > toll.MaxCredits-a.Balance || o.Credits > toll.MaxCredits-a.Minted-a.Returned {
		return toll.NewError(toll.CodeCreditsOverflow)
	}
	if err := store.InsertOrder(ctx, t.Tx, o); err != nil {
		return err
	}
	if _, _, err := store.CountOrder(ctx, t.Tx, plan.ID, 0); err != nil {
		return err
	}
	t.Event(orderEvents(o, plan.Owner, toll.EventOrderCreated)...)
	if txHash != "" {
		out := rail.Outcome{Status: toll.OrderFinal, TxHash: txHash}
		if _, err := c.decide(ctx, t, o.Account, o.ID, &out); err != nil {
			return err
		}
	}
	act, err := finish(t.Tx, o)
	if err != nil {
		return err
	}
	if o.DelegationID != "" {
		if err := c.reserveLost(ctx, t, o); err != nil {
			return err
		}
	}
	t.Audit(act, store.Act{
		Workspace: plan.Owner.Lower(), Act: "order.restored", Object: o.ID,
		Detail: store.Changed{After: map[string]any{
			"planId": plan.ID, "subscriberAddress": o.Subscriber, "creditsGranted": o.Credits,
		}},
	})
	return nil
}

// lostDelegation returns the delegation that a lost card payment names, nil when the database has none of this owner and currency.
func lostDelegation(ctx context.Context, q store.Querier, id string, owner toll.Address, currency string) (*store.Delegation, error) {
	if id == "" {
		return nil, nil
	}
	d, found, err := store.IfThere(store.DelegationByID(ctx, q, id))
	if !found || !paidLost(d, owner, currency) {
		return nil, err
	}
	return d, nil
}

// paidLost reports whether a delegation can have paid the lost order of an owner by card.
func paidLost(d *store.Delegation, owner toll.Address, currency string) bool {
	return d.Owner == owner && d.Provider == toll.ProviderCard && strings.EqualFold(d.Currency, currency)
}

// reserveLost takes what a lost order cost from its delegation, after finish has ended the count of the payment.
func (c *Decisions) reserveLost(ctx context.Context, t *ledger.Tx, o *store.Order) error {
	events, err := c.delegations.changeBudget(ctx, t.Tx, o.DelegationID, func(b budget) error {
		if o.Cents > b.Limit-b.Reserved {
			return ErrDelegationBusy
		}
		b.reserve(o)
		return nil
	})
	if err != nil {
		return err
	}
	t.Event(events...)
	return store.InsertDelegationTransaction(ctx, t.Tx, &toll.DelegationTransaction{
		ID: toll.NewUUID(), DelegationID: o.DelegationID, AmountCents: toll.Cents(o.Cents), Currency: strings.ToLower(o.Currency),
		Status: toll.TransactionPending, OrderID: o.ID, CreatedAt: toll.At(o.CreatedAt),
	})
}

// Unmatched implements [rail.Orders].
func (c *Decisions) Unmatched(
	ctx context.Context, tx *store.Tx, delegationID string, load func() (*store.CardOrphan, error),
) error {
	change := func(b budget) error {
		o, err := load()
		if err != nil {
			return err
		}
		if b.Delegation == nil {
			return store.UpdateCardOrphan(ctx, tx, o)
		}
		lost := &store.Order{Cents: o.Cents, Reading: b.Readings}
		counts := o.Resolution != store.OrphanGranted && o.Resolution != store.OrphanRefunded
		if counts = counts && paidLost(b.Delegation, o.Subscriber, o.Currency); counts && o.Counted == 0 {
			b.payLate(lost)
			o.Counted = o.Cents
		} else if !counts && o.Counted > 0 {
			lost.Cents, o.Counted = o.Counted, 0
			b.undo(lost)
		}
		return store.UpdateCardOrphan(ctx, tx, o)
	}
	d, found, err := store.IfThere(store.DelegationForUpdate(ctx, tx, delegationID))
	if !found {
		if err == nil {
			err = change(budget{})
		}
		return err
	}
	// This writes nothing new: a delegation is locked before the rows of rails, on SQLite by a write.
	if err := store.UpdateDelegation(ctx, tx, d); err != nil {
		return err
	}
	events, err := c.delegations.changeBudget(ctx, tx, delegationID, change)
	if err != nil {
		return err
	}
	return store.InsertEvent(ctx, tx, events...)
}

// copies returns how many times the price was paid: once, or any number for pay as you go. false: the payment is not the price.
func (in *LostOrder) copies(plan *toll.Plan, token toll.Address) (n toll.Credits, ok bool) {
	p := plan.Price
	amounts, receivers := p.Amounts, p.Receivers
	if in.Currency != "" && !strings.EqualFold(in.Currency, p.CurrencyName()) {
		return 0, false
	}
	if !p.IsCrypto {
		amounts, receivers, token = []toll.Units{p.Total()}, []toll.Address{{}}, toll.Address{}
	}
	left := slices.Clone(in.Received) // each pays one receiver
	for i, amount := range amounts {
		if amount.IsZero() {
			continue
		}
		found := false
		for at, r := range left {
			if r.To != receivers[i] || r.Token != token {
				continue
			}
			quotient, rest := r.Amount.Int(), r.Amount.Int()
			quotient.QuoRem(quotient, amount.Int(), rest)
			many := toll.Credits(quotient.Int64())
			if rest.Sign() != 0 || !quotient.IsInt64() || many < 1 || n != 0 && n != many {
				continue
			}
			n, found, left = many, true, slices.Delete(left, at, at+1)
			break
		}
		if !found {
			return 0, false
		}
	}
	return n, n == 1 || n > 1 && !plan.Kind().Prepaid()
}
