// Package offer has what a plan is for the workspace that looks at it: its price, what the workspace has of it, and how the
// workspace orders it.
package offer

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// Most is how many plans, and how many delegations, a person can choose from.
const Most = 20

// Offer is a plan as a workspace sees it.
type Offer struct {
	ID        toll.PlanID
	Name      string // as its owner chose it, in one plain line
	Owner     toll.Address
	Price     string
	Buys      string // what an order grants
	Request   string // what a request burns
	Available toll.Credits
	Until     string // of a time plan: the end of the period that runs; "" when none does
	Free      bool
	Charges   bool         // requests charge credits
	Grants    toll.Credits // by an order
	Server    bool         // its owner says that it is for the server that asks
	Order     string       // label of the button that orders it here; "" for none
	Why       string       // why it cannot be ordered here; "" when it can, or need not
	Plan      *toll.Plan
}

// Ready reports whether requests can be paid as things are.
func (o *Offer) Ready() bool { return o.Free || o.Plan.Kind().Covers(o.Available, o.Until != "", 1) }

// Says returns the terms that a person agrees to with the plan.
func (o *Offer) Says() []string {
	return []string{
		"plan", string(o.ID), o.Name, o.Owner.String(), o.Price, o.Buys, o.Request,
		strconv.FormatBool(!o.Charges), strconv.FormatBool(o.Server),
	}
}

// Of returns the offer of a plan to the owner of a balance.
func Of(p *toll.Plan, b *toll.Balance) *Offer {
	o := &Offer{
		ID: p.ID, Name: cmp.Or(plain.Name(p.Metadata.Name), "unnamed"), Owner: p.Owner, Price: page.PriceOf(p), Buys: page.GrantsOf(p, p.Credits.Amount),
		Request: page.BurnsOf(p), Available: b.Available, Free: p.Price.IsFree() && !p.IsTrial, Charges: p.Kind().Charges(), Grants: p.Credits.Amount, Plan: p,
	}
	if p.Kind().NeedsPeriod() && b.IsSubscriber {
		o.Until = "never"
		if b.ExpiresAt != nil {
			o.Until = page.Date(b.ExpiresAt.Time)
		}
	}
	return o
}

// SetOrder says how the person orders a plan that pays for no request as it is.
func (o *Offer) SetOrder(c *page.Context) {
	if !o.Ready() && o.Plan.Kind().Prepaid() {
		o.Order, o.Why = page.OrderButton(c.Person, o.Plan, c.Cards)
	}
}

// Buy orders a plan for the workspace. It returns the page on which a card pays, "" when nothing is left to pay. After a payment the
// person goes to paid, or stays on the page of the paid order if paid is "". back is the page for a person who does not pay.
func Buy(c *page.Context, plan *toll.Plan, paid, back string) (to string, err error) {
	if !plan.Price.IsCrypto && !plan.Price.IsFree() {
		made, err := c.API.Checkout(c.Once(), plan.ID, client.CheckoutParams{SessionType: "embedded", SuccessURL: paid, CancelURL: back})
		if err != nil {
			return "", err
		}
		return made.Result.URL, nil
	}
	o, err := c.API.OrderPlan(c.Once(), plan.ID)
	if err == nil && o.HTTPStatus == http.StatusAccepted {
		err = toll.Errorf(toll.CodeOrderLacksMoney, "The payment is still being processed. Reload this page in a minute.")
	}
	return "", err
}
