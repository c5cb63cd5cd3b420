package checkout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/traces"
)

// lease is how long the process that placed an order holds its job. A second process does no harm: rail and ledger know the id.
const lease = 10 * time.Second

type intent struct {
	plan       *toll.Plan
	subscriber toll.Address
	credits    toll.Credits // what it grants; of a pay-as-you-go plan decided under the lock
	amount     toll.Units   // what it costs
	delegation string       // id or reference; "" for none
	key        *toll.Hash   // the API key that uses the delegation
	user       toll.UUID    // who has the wallet of the subscriber pay; zero: nobody who is known, or something else pays
	rail.Means
	once     *store.Once
	topUp    *TopUp       // nil: a caller placed the order
	sale     *SaleRequest // nil: no authorization pays it
	replaces string       // the failed order in whose place a person pays this one; "" for none
	after    time.Time    // when the last order for the request was made

	recorded bool // the order that came of it was made for it
}

// openKey is unique among the open orders of an account. "" allows one; sales, pages (on which a person may never act), and pay-as-you-go
// orders (as large as their requests) have a key of their own. Pages of a plan with limited places share one, as each takes a place.
func (in *intent) openKey(id string) string {
	switch {
	case in.topUp != nil && !in.plan.Kind().Prepaid():
		if in.topUp.RequestID != "" {
			return "request/" + in.topUp.RequestID
		}
		return "order/" + id
	case in.replaces != "" && !in.plan.LimitsOrders():
		return "replaces/" + in.replaces
	case in.Session != nil && !in.plan.LimitsOrders() && in.plan.MaxOrders > 0:
		return "page"
	case in.Session != nil && !in.plan.LimitsOrders():
		return "order/" + id
	case in.sale != nil:
		return saleKey + id
	}
	return ""
}

var errEnough = errors.New("checkout: the balance already covers the request")

// place is placeOnce. When the plan has no place left, unpaid pages end for it.
func (c *Checkout) place(ctx context.Context, in *intent) (placed *store.Order, err error) {
	for range pagesAsked {
		placed, err = c.placeOnce(ctx, in)
		if !errors.Is(err, toll.NewError(toll.CodePlanSoldOut)) || !c.freeSlot(ctx, in.plan) {
			break
		}
	}
	return placed, err
}

// placeOnce records an order with the row of its rail, reserves what it needs, and starts its job, in one transaction. It returns an open
// order of the account, or the purchase of a top-up's request, instead if there is one; nil when a top-up needs nothing. An order that the
// rail refuses has no such row: its job fails it with the code of the refusal.
func (c *Checkout) placeOnce(ctx context.Context, in *intent) (placed *store.Order, err error) {
	ctx, span := traces.Start(ctx, "order.place", string(in.plan.ID))
	defer func() { span.End(err) }()
	plan := in.plan
	in.Rail = cmp.Or(in.Rail, railOf(plan))
	by := c.rails[in.Rail]
	if by == nil {
		return nil, railMissing(in.Rail)
	}
	delegation := ""
	if in.delegation != "" {
		if delegation, err = c.Delegations.ID(in.subscriber, in.delegation); err != nil {
			return nil, err
		}
	}
	account := ledger.NewAccountID(plan.ID, in.subscriber)
	id, tried, found := toll.NewTimeUUID(c.now()).String(), false, (*store.Order)(nil)
	permission := toll.Hash{}
	if in.topUp != nil {
		permission = in.topUp.Permission
	}
	refused, err := c.prepare(ctx, by, in, account, id, delegation)
	if err != nil {
		return nil, Fault(err)
	}
	var p *rail.Purchase
	var job store.Job
	c.failpoint("place")
	err = c.ledger.DoNew(ctx, plan.ID, in.subscriber, func(t *ledger.Tx) (err error) {
		if tried {
			// The transaction ran before. Its outcome is unknown: the order may be recorded.
			if found, err = store.OrderOfAccount(ctx, t, account, id); !errors.Is(err, store.ErrNotFound) {
				return cmp.Or(err, ledger.ErrRecorded)
			}
		}
		if found, err = c.findOrder(ctx, t.Tx, in, account, &id); err != nil {
			return err
		}
		if found == nil {
			tried = true
			found = &store.Order{ID: id, Account: account, Rail: in.Rail, DelegationID: delegation}
			d, err := c.insert(ctx, t, in, found, permission)
			if err != nil {
				return err
			}
			if p = in.purchase(c, found, d); !refused {
				if err := by.Begin(ctx, t.Tx, p); err != nil {
					return err
				}
			}
			job = c.queue.Own(store.JobPay+in.Rail, []byte(found.ID), lease)
			if err := store.PutJob(ctx, t.Tx, job); err != nil {
				return err
			}
			c.failpoint("placing")
		}
		return store.PutAnswer(ctx, t.Tx, in.once, OrderRef{found.ID})
	})
	if errors.Is(err, errEnough) {
		return nil, nil
	}
	if err != nil {
		return nil, Fault(err)
	}
	c.failpoint("placed")
	if in.recorded = found.ID == id; in.recorded {
		c.queue.Start(ctx, job, func(ctx context.Context) error {
			if refused {
				return c.payJob(ctx, job.Key)
			}
			return c.resume(ctx, by, p)
		})
	}
	return found, nil
}

// prepare asks the rail whether it refuses an order, before it is recorded. The transaction refuses a missing delegation.
func (c *Checkout) prepare(ctx context.Context, by rail.Rail, in *intent, account ledger.AccountID, id, delegation string) (refused bool, err error) {
	o := &store.Order{
		ID: id, Account: account, Subscriber: in.subscriber, Credits: max(in.credits, 1), Amount: in.amount, DelegationID: delegation, CreatedAt: c.now(),
	}
	var d *store.Delegation
	if delegation != "" {
		if d, err = store.DelegationByID(ctx, c.store, delegation); err != nil {
			return false, store.NotFoundAs(err, nil)
		}
	}
	err = by.Prepare(ctx, in.purchase(c, o, d))
	if refusal(err) != nil {
		return true, nil
	}
	return false, err
}

// purchase is the order of an intent as the rail pays it. d is the delegation of the order, nil for none.
func (in *intent) purchase(c *Checkout, o *store.Order, d *store.Delegation) *rail.Purchase {
	p := c.purchaseOf(in.plan, o)
	p.TopUp, p.Means = in.topUp != nil, in.Means
	if in.sale != nil {
		sale := in.sale.Sale
		sale.OrderID, sale.Account, sale.OrderedAt = o.ID, o.Account, o.CreatedAt
		p.Sale = &sale
	}
	if d != nil {
		p.PaymentMethod, p.Delegation = d.PaymentMethod, details(d)
	}
	return p
}

// insert writes an order, whose identity and payer are set, and reserves the count of the permission, the place of the plan, and the cents
// of the delegation, which it returns as it is under its lock, nil for none.
func (c *Checkout) insert(
	ctx context.Context, t *ledger.Tx, in *intent, o *store.Order, permission toll.Hash,
) (d *store.Delegation, err error) {
	plan, now := in.plan, c.now()
	if err := admit(t, plan, now); err != nil {
		return nil, err
	}
	a, err := t.CountOrder(permission)
	if err != nil {
		return nil, err
	}
	o.Plan, o.Subscriber, o.Seller = plan.ID, in.subscriber, plan.Owner
	o.Status, o.Credits = toll.OrderCreated, in.credits
	o.Amount, o.Currency, o.CreatedAt, o.UpdatedAt = in.amount, plan.Price.CurrencyName(), now, now
	o.Open, o.OpenKey, o.Replaces = true, in.openKey(o.ID), in.replaces
	if top := in.topUp; top != nil {
		if !top.insufficient(&a, now) {
			return nil, errEnough
		}
		o.RequestID = top.RequestID
		if !now.After(in.after) {
			o.CreatedAt = in.after.Add(time.Microsecond) // orders of a request are counted in their order
		}
		o.Permission = store.NonZero(permission)
		o.Credits, o.Amount = orderOf(plan, top.Needed-a.Available())
	}
	if o.Credits > toll.MaxCredits-a.Balance || o.Credits > toll.MaxCredits-a.Minted-a.Returned {
		return nil, toll.NewError(toll.CodeCreditsOverflow)
	}
	if in.Session != nil {
		text, err := json.Marshal(session{*in.Session})
		if err != nil {
			return nil, err
		}
		o.Session = string(text)
	}
	if o.DelegationID == "" && !in.user.IsZero() { // before the plan is locked, for which others wait
		if err := c.countOrder(ctx, t.Tx, in, o); err != nil {
			return nil, err
		}
	}
	if err := takeSlot(ctx, t.Tx, plan.ID); err != nil {
		return nil, err
	}
	if o.DelegationID != "" {
		if d, err = c.reserve(ctx, t.Tx, in, o); err != nil {
			return nil, err
		}
	}
	if err := store.InsertOrder(ctx, t.Tx, o); err != nil {
		return nil, err
	}
	if in.sale != nil {
		if err := insertSale(ctx, t.Tx, in.sale, o); err != nil {
			return nil, err
		}
	}
	t.Event(orderEvents(o, plan.Owner, toll.EventOrderCreated)...)
	return d, nil
}

// findOrder returns the order that already serves the intent, nil for none, under the lock of the account. It sets the id of a new order.
func (c *Checkout) findOrder(ctx context.Context, tx *store.Tx, in *intent, account ledger.AccountID, id *string) (*store.Order, error) {
	if in.sale != nil {
		return c.soldBefore(ctx, tx, in.sale)
	}
	if in.replaces != "" {
		if o, err := in.replacement(ctx, tx, account); err != nil || o != nil {
			return o, err
		}
	}
	if t := in.topUp; t != nil && t.RequestID != "" {
		o, n, err := in.orderOfRequest(ctx, tx, account)
		if err != nil || o != nil {
			return o, err
		}
		*id = topUpID(account, t.RequestID, n)
	}
	o, found, err := store.IfThere(store.OpenOrder(ctx, tx, account, in.openKey(*id)))
	if !found {
		return nil, err
	}
	// A trial order is not shared with another call, except to reopen its payment page. A top-up cannot wait for a person to pay.
	others := in.plan.LimitsOrders() && in.topUp == nil && (in.Session == nil || o.Session == "")
	if others || in.topUp != nil && o.Session != "" {
		return nil, toll.NewError(toll.CodeTrialUsed).WithDetails("planId %s", in.plan.ID).WithParam("orderId", o.ID).
			WithHint("An order of this trial plan is already being processed.")
	}
	return o, err
}

// orderOfRequest returns the next unfailed order of a top-up's request that it was not answered with, nil for none. made counts all.
func (in *intent) orderOfRequest(ctx context.Context, q store.Querier, account ledger.AccountID) (o *store.Order, made int, err error) {
	all, err := store.OrdersOfRequest(ctx, q, account, in.topUp.RequestID)
	if err != nil {
		return nil, 0, err
	}
	n := in.topUp.had
	for _, o := range all {
		in.after = o.CreatedAt
		if o.Status == toll.OrderFailed {
			continue
		}
		if n--; n < 0 {
			return o, len(all), nil
		}
	}
	return nil, len(all), nil
}

// orderOf returns credits and price of an order for missing credits. A price beyond 2^256-1 becomes a sum that no delegation has.
func orderOf(plan *toll.Plan, missing toll.Credits) (toll.Credits, toll.Units) {
	if plan.Kind().Prepaid() {
		return plan.Credits.Amount, plan.Price.Total()
	}
	return missing, times(plan.Price.Total(), missing)
}

func times(u toll.Units, n toll.Credits) toll.Units {
	p := new(big.Int).Mul(u.Int(), big.NewInt(int64(n)))
	v, err := toll.ParseUnits(p.String())
	if err != nil {
		v, _ = toll.ParseUnits(new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String())
	}
	return v
}

// centsOf returns the cents of an amount with 6 decimals, rounded up; false when no delegation has as much.
func centsOf(u toll.Units) (int64, bool) {
	n := u.Int()
	n.Add(n, big.NewInt(9_999)).Quo(n, big.NewInt(10_000))
	return n.Int64(), n.IsInt64() && n.Int64() <= int64(toll.MaxCents)
}

// reserve takes what an order costs from its delegation, and returns it.
func (c *Checkout) reserve(ctx context.Context, tx *store.Tx, in *intent, o *store.Order) (*store.Delegation, error) {
	d, err := store.DelegationForUpdate(ctx, tx, o.DelegationID)
	if err != nil {
		return nil, store.NotFoundAs(err, toll.NewError(toll.CodeDelegationNotFound))
	}
	now := c.now()
	if err := c.Delegations.usable(ctx, tx, d, in.subscriber, in.key, in.plan, now); err != nil {
		return nil, err
	}
	cents, err := affords(d, o.Amount)
	if err != nil {
		return nil, err
	}
	o.Cents = cents
	budget{d}.reserve(o)
	d.LastUsedAt = now
	if err := store.UpdateDelegation(ctx, tx, d); err != nil {
		return nil, err
	}
	return d, store.InsertDelegationTransaction(ctx, tx, &toll.DelegationTransaction{
		ID: toll.NewUUID(), DelegationID: d.ID, AmountCents: toll.Cents(cents), Currency: d.Currency, Status: toll.TransactionPending,
		OrderID: o.ID, CreatedAt: toll.At(now),
	})
}
