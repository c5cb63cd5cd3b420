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

// LostOrder is an order whose payment a rail has, and whose record was lost: the database was
// restored from an older backup.
type LostOrder struct {
	ID         string // UUID; "" for a new one
	Plan       toll.PlanID
	Subscriber toll.Address
	Received   []Received // what the payment moved
	Currency   string     // of a card payment
	TxHash     string     // of a payment on the chain, which decides the order at once; "" for cards
}

// ErrNotThePrice says that a payment is not the price of a plan.
var ErrNotThePrice = errors.New("the payment is not the price of the plan")

// ErrOrderExists says that an order with the id of a lost one is here: another payment paid it.
var ErrOrderExists = errors.New("the order of the payment is here already, and another payment paid it")

// Received is money that a payment moved. Of a card payment Token and To are zero.
type Received struct {
	Token, To toll.Address
	Amount    toll.Units
}

// RestoreOrder records a lost order and has finish write the rows of its rail, in one transaction.
// finish returns what the audit log notes beside the order.
// A payment on the chain grants the credits in it; otherwise the rail decides the order later. The
// plan need not be listed, nor have a place left: the money moved.
//
// Errors: [toll.CodePlanNotFound], [toll.CodeBadAddress], [ErrNotThePrice], [ErrOrderExists],
// [toll.CodeCreditsOverflow], and those of finish.
func (c *Checkout) RestoreOrder(
	ctx context.Context, in LostOrder, finish func(tx *store.Tx, o *store.Order) (store.Act, error),
) (*store.Order, error) {
	plan, err := store.PlanByID(ctx, c.store, in.Plan)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, toll.NewError(toll.CodePlanNotFound).WithDetails("planId %s", in.Plan)
	case err != nil:
		return nil, fault(err)
	case in.Subscriber.IsZero():
		return nil, toll.Errorf(toll.CodeBadAddress, "The zero address cannot hold credits.")
	}
	n, ok := in.copies(plan, plan.Price.PayToken(c.env))
	if !ok {
		return nil, ErrNotThePrice
	}
	name, _ := c.rails.of(plan)
	now := c.now()
	o := &store.Order{
		ID: in.ID, Account: ledger.NewAccountID(plan.ID, in.Subscriber), Plan: plan.ID, Subscriber: in.Subscriber,
		Seller: plan.Owner, Status: toll.OrderCreated, Credits: plan.Credits.Amount, Amount: times(plan.Price.Total(), n),
		Currency: plan.Price.CurrencyName(), CreatedAt: now, UpdatedAt: now, Open: true, Rail: name,
	}
	if plan.IsPayAsYouGo() {
		o.Credits = n
	}
	if o.ID == "" {
		o.ID = toll.NewTimeUUID(now).String()
	}
	o.OpenKey = "order/" + o.ID
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
		return c.restore(ctx, t, plan, o, in.TxHash, finish)
	})
	return o, err
}

// restore writes a lost order under the lock of its account.
func (c *Checkout) restore(
	ctx context.Context, t *ledger.Tx, plan *toll.Plan, o *store.Order, txHash string,
	finish func(tx *store.Tx, o *store.Order) (store.Act, error),
) error {
	a, err := t.CountOrder(toll.Hash{}, false)
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
	t.Audit(act, store.Act{
		Workspace: plan.Owner.Lower(), Act: "order.restored", Object: o.ID,
		Detail: store.Changed{After: map[string]any{
			"planId": plan.ID, "subscriberAddress": o.Subscriber, "creditsGranted": o.Credits,
		}},
	})
	return nil
}

// copies returns how many times the price of a plan was paid: once, and of a pay-as-you-go plan any
// number of times. false: the payment is not the price.
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
	return n, n == 1 || n > 1 && plan.IsPayAsYouGo()
}
