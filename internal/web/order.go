package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/rail"
)

// orderWait is how long a page waits for the credits of an order.
const orderWait = 10 * time.Second

// order orders a plan on the page of consent, once for each form: a free one, one that a card pays, on the page of the processor, or
// one that the wallet of the workspace pays. back is the page to which the person comes back from the card; again reads what is
// asked once more.
func order(v *visit, a *asked, c choice, back string, again func() (*asked, error)) {
	id := toll.PlanID(v.form.Get("order"))
	at := slices.IndexFunc(a.Offers, func(o *offer) bool { return o.ID == id })
	pay, err := v.w.once(v.ctx(), v.form.Get("ticket"), func() (string, error) {
		if at < 0 || a.Offers[at].Order == "" {
			return "", toll.Errorf(toll.CodeBadRequest, "This plan cannot be ordered here.")
		}
		return buy(v, v.ctx(), a.Offers[at].plan, back)
	})
	if errors.Is(err, errAnswered) {
		v.refuse(http.StatusConflict, "This form was answered before.")
		return
	}
	if v.faulty(err, func(status int, fault string) { showConsent(v, status, a, c, "Nothing was ordered: "+fault) }) {
		return
	}
	if pay != "" {
		v.redirect(http.StatusSeeOther, pay)
		return
	}
	if a, err = again(); err != nil {
		v.fail(err)
		return
	}
	next := a.suggested()
	if at := slices.IndexFunc(a.Offers, func(o *offer) bool { return o.ID == id }); at >= 0 {
		next.Plan, next.Limit = id, max(a.Offers[at].Available, a.Offers[at].Grants, 1).String()
	}
	showConsent(v, http.StatusOK, a, next, "")
}

// buy orders a plan for the workspace. It returns the page on which a card pays, "" when nothing is left to pay.
func buy(v *visit, ctx context.Context, plan *toll.Plan, back string) (page string, err error) {
	if !plan.Price.IsCrypto && !plan.Price.IsFree() {
		made, err := v.w.Checkout.Fiat(ctx, checkout.FiatRequest{
			Caller: v.person.Address, Plan: plan, Wait: orderWait, Session: rail.SessionInput{SuccessURL: back, CancelURL: back},
		}, nil)
		if err != nil {
			return "", err
		}
		return made.Result.URL, nil
	}
	o, err := v.w.Checkout.Order(ctx, checkout.OrderRequest{Caller: v.person.Address, APIKeyID: v.person.KeyID, UserID: v.person.UserID, Plan: plan, Wait: orderWait}, nil)
	if err == nil && o.HTTPStatus == http.StatusAccepted {
		err = toll.Errorf(toll.CodeOrderLacksMoney, "The payment is not decided yet. Open this page again in a minute.")
	}
	return "", err
}
