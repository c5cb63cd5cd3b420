package web

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/store"
)

// mostOffers is how many plans, and how many delegations, a person can choose from.
const mostOffers = 20

// offer is a plan that a person may let a program spend from.
type offer struct {
	ID        toll.PlanID
	Name      string // as its owner chose it, in one plain line
	Owner     toll.Address
	Price     string
	Buys      string // what an order grants
	Request   string // what a request burns
	Available toll.Credits
	Until     string // of a time plan: the end of the period that runs; "" when none does
	Free      bool
	Time      bool
	Grants    toll.Credits // by an order
	plan      *toll.Plan
}

// Ready reports whether requests can be paid as things are.
func (o *offer) Ready() bool { return o.Free || o.Until != "" || !o.Time && o.Available > 0 }

// says are the terms that a person agrees to with the plan.
func (o *offer) says() []string {
	return []string{"plan", string(o.ID), o.Name, o.Owner.String(), o.Price, o.Buys, o.Request, strconv.FormatBool(o.Time)}
}

// offers returns the plans among which a person can choose: the one that is asked for, else those of the agent, else those
// of which the person has something.
func (w *Web) offers(ctx context.Context, owner toll.Address, plan toll.PlanID, agent toll.AgentID) ([]*offer, error) {
	plans, err := w.plansFor(ctx, owner, plan, agent)
	if err != nil {
		return nil, err
	}
	out := make([]*offer, 0, len(plans))
	for _, p := range plans {
		o, err := w.offer(ctx, owner, p)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	// What can be paid with comes first.
	slices.SortStableFunc(out, func(a, b *offer) int {
		rank := func(o *offer) int {
			if o.Ready() {
				return 0
			}
			return 1
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return out, nil
}

func (w *Web) plansFor(ctx context.Context, owner toll.Address, plan toll.PlanID, agent toll.AgentID) ([]*toll.Plan, error) {
	if plan == "" && agent != "" {
		list, err := store.PlansOfAgent(ctx, w.Store, agent, store.Page{Size: mostOffers})
		return list.Items, err
	}
	ids := []toll.PlanID{plan}
	if plan == "" {
		accounts, err := w.Ledger.AccountsOf(ctx, owner, mostOffers)
		if err != nil {
			return nil, err
		}
		ids = ids[:0]
		for _, a := range accounts {
			ids = append(ids, a.Plan)
		}
	}
	out := make([]*toll.Plan, 0, len(ids))
	for _, id := range ids {
		p, err := store.PlanByID(ctx, w.Store, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func (w *Web) offer(ctx context.Context, owner toll.Address, p *toll.Plan) (*offer, error) {
	b, err := w.Checkout.Balance(ctx, p, owner, false)
	if err != nil {
		return nil, err
	}
	o := &offer{
		ID: p.ID, Name: cmp.Or(plainText(p.Metadata.Name), "without a name"), Owner: p.Owner, Price: priceOf(p), Buys: p.Credits.Amount.Text(),
		Request: burns(p), Available: b.Available, Free: p.Price.IsFree() && !p.IsTrial, Time: p.IsTime(), Grants: p.Credits.Amount, plan: p,
	}
	if o.Time {
		o.Buys = "a time in which requests burn nothing"
		if b.IsSubscriber {
			o.Until = "no end"
			if b.ExpiresAt != nil {
				o.Until = date(b.ExpiresAt.Time)
			}
		}
	}
	return o, nil
}

func priceOf(p *toll.Plan) string {
	switch {
	case p.IsPayAsYouGo():
		return "pay as you go"
	case p.Price.IsFree():
		return "free"
	}
	return p.Price.Text() + " " + p.Price.CurrencyName()
}

func burns(p *toll.Plan) string {
	low, high := p.Credits.MinAmount.String(), p.Credits.MaxAmount.String()
	switch {
	case p.IsTime():
		return "nothing"
	case low == high:
		return low
	}
	return low + " to " + high
}

func date(t time.Time) string { return t.UTC().Format("2 January 2006 15:04 UTC") }

// purse is a delegation with which a program may buy credits.
type purse struct {
	ID   string
	Text string
}

// purses returns the delegations that can pay now.
func (w *Web) purses(ctx context.Context, owner toll.Address) ([]purse, error) {
	list, err := w.Checkout.Delegations(ctx, checkout.Owner{Address: owner}, true, store.Page{Size: mostOffers})
	if err != nil {
		return nil, err
	}
	out := make([]purse, 0, len(list.Items))
	for _, d := range list.Items {
		text := toll.FormatAmount(toll.UnitsOfCents(int64(d.RemainingBudgetCents)), 6) + " " + strings.ToUpper(d.Currency) + " until " + date(d.ExpiresAt.Time)
		out = append(out, purse{d.DelegationID, text})
	}
	return out, nil
}
