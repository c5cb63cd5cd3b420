// Package records reads what pages outside a workspace show and the API has no route for.
package records

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Records reads from the rooms below.
type Records struct {
	Store     *store.Store
	Ledger    *ledger.Ledger
	Checkout  *checkout.Checkout
	Auth      *auth.Auth
	OAuth     *oauth.OAuth
	Catalogue *catalogue.Catalogue
	Card      rail.Rail // nil: none
}

// LinkedOrder is an order on the pages that signed links open.
type LinkedOrder struct {
	toll.Order
	Plan                  *toll.Plan
	Open                  bool   // it can be paid
	Lost                  bool   // a dispute took the money
	DisputedCents         int64  // that it took; 0: all
	SuccessURL, CancelURL string // where the person goes on; "" for nowhere
	PayURL                string // of the page on which an open order is paid; "" for none
}

// LinkedOrder returns an order for whoever has a signed link of it. Errors: [toll.CodeOrderNotFound].
func (r *Records) LinkedOrder(ctx context.Context, id string) (*LinkedOrder, error) {
	o, err := store.OrderByID(ctx, r.Store, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, toll.NewError(toll.CodeOrderNotFound)
	}
	if err != nil {
		return nil, err
	}
	out := &LinkedOrder{Order: *checkout.Rendered(o), Open: o.Open, Lost: o.Dispute == store.DisputeLost, DisputedCents: o.DisputedCents}
	if out.Plan, err = store.PlanByID(ctx, r.Store, o.Plan); err != nil {
		return nil, err
	}
	in, err := checkout.SessionOf(o)
	if err == nil && in != nil {
		out.SuccessURL, out.CancelURL = in.SuccessURL, in.CancelURL
	}
	if err == nil && o.Open && r.Card != nil {
		var p rail.Payment
		p, err = r.Card.Payment(ctx, r.Store, id)
		out.PayURL, err = p.CheckoutURL, unless(err, errors.Is(err, store.ErrNotFound))
	}
	return out, err
}

// Burn is an entry of the ledger.
type Burn struct {
	Plan    toll.PlanID
	Holder  toll.Address
	Credits toll.Credits
	Entry   int64 // of its account
	At      time.Time
	Chained bool // its commitment follows from the one before
}

// Burn returns the burn with the transaction of a receipt. Errors: [toll.CodeSettlementNotFound].
func (r *Records) Burn(ctx context.Context, tx toll.Hash) (*Burn, error) {
	p, err := r.Ledger.BurnByTransaction(ctx, tx)
	if errors.Is(err, store.ErrNotFound) {
		err = toll.NewError(toll.CodeSettlementNotFound)
	}
	return &Burn{Plan: p.Plan, Holder: p.Holder, Credits: p.Amount, Entry: p.Seq, At: time.UnixMicro(p.AtMicros), Chained: p.Chained}, err
}

// Listed is an agent of the catalogue, with the first of its plans.
type Listed struct {
	Agent *toll.Agent // without its endpoints, which may be many
	Plan  *toll.Plan
	Plans int
}

// FindAgents searches the catalogue: agents last updated first, and where the next part begins.
func (r *Records) FindAgents(ctx context.Context, query string, limit int, cursor string) (out []Listed, next string, err error) {
	found, next, err := r.Catalogue.FindAgents(ctx, query, limit, cursor)
	if err != nil {
		return nil, "", err
	}
	agents, plans := map[toll.AgentID]*toll.Agent{}, map[toll.PlanID]*toll.Plan{}
	var ids []toll.AgentID
	var firsts []toll.PlanID
	for _, a := range found {
		if len(a.Plans) > 0 {
			ids, firsts = append(ids, a.ID), append(firsts, a.Plans[0].ID)
		}
	}
	err1 := store.EachAgent(ctx, r.Store, ids, func(a *toll.Agent) error {
		a.API = toll.AgentAPI{}
		agents[a.ID] = a
		return nil
	})
	err2 := store.EachPlan(ctx, r.Store, firsts, func(p *toll.Plan) error {
		plans[p.ID] = p
		return nil
	})
	for _, a := range found {
		if agents[a.ID] != nil && plans[a.Plans[0].ID] != nil { // else it changed meanwhile
			out = append(out, Listed{Agent: agents[a.ID], Plan: plans[a.Plans[0].ID], Plans: len(a.Plans)})
		}
	}
	return out, next, errors.Join(err1, err2)
}
