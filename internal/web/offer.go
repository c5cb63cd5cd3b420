package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
	"github.com/tollhq/toll/x402"
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
	Charges   bool         // requests charge credits
	Grants    toll.Credits // by an order
	Server    bool         // its owner says that it is for the server that asks
	Order     string       // label of the button that orders it here; "" for none
	Why       string       // why it cannot be ordered here; "" when it can, or need not
	plan      *toll.Plan
}

// Ready reports whether requests can be paid as things are.
func (o *offer) Ready() bool { return o.Free || o.plan.Kind().Covers(o.Available, o.Until != "", 1) }

// says are the terms that a person agrees to with the plan.
func (o *offer) says() []string {
	return []string{
		"plan", string(o.ID), o.Name, o.Owner.String(), o.Price, o.Buys, o.Request,
		strconv.FormatBool(!o.Charges), strconv.FormatBool(o.Server),
	}
}

// offers returns the plans among which a person can choose: the one that is asked for, else those
// of the agent, else those of which the person has something. Plans of the server at the resource
// come first, then those that can be paid with.
func (w *Web) offers(ctx context.Context, owner toll.Address, in oauth.Asked) ([]*offer, error) {
	plans, err := w.plansFor(ctx, owner, in.PlanID, in.AgentID)
	if err != nil {
		return nil, err
	}
	out := make([]*offer, 0, len(plans))
	for _, p := range plans {
		o, err := w.offer(ctx, owner, p)
		if err == nil && in.PlanID == "" && in.AgentID == "" && in.Resource != "" {
			o.Server, err = w.isOfServer(ctx, p.ID, in.Resource)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	slices.SortStableFunc(out, func(a, b *offer) int {
		rank := func(o *offer) int {
			switch {
			case o.Server && o.Ready():
				return 0
			case o.Server:
				return 1
			case o.Ready():
				return 2
			}
			return 3
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return out, nil
}

func (w *Web) plansFor(ctx context.Context, owner toll.Address, plan toll.PlanID, agent toll.AgentID) ([]*toll.Plan, error) {
	var ids []toll.PlanID
	switch {
	case plan != "":
		ids = []toll.PlanID{plan}
	case agent != "":
		a, err := store.AgentByID(ctx, w.Store, agent)
		if err != nil {
			return nil, err
		}
		for _, p := range a.Plans[:min(len(a.Plans), mostOffers)] { // in the order in which its server takes them
			ids = append(ids, p.PlanID)
		}
	default:
		accounts, err := w.Ledger.AccountsOf(ctx, owner, mostOffers)
		if err != nil {
			return nil, err
		}
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

// mostServers is how many agents of one plan are compared with the resource of a request, the oldest first.
const mostServers = 5

// isOfServer reports whether an agent with the plan has an endpoint at the resource, or below it.
// Whoever owns the agent says so, and nobody has checked it.
func (w *Web) isOfServer(ctx context.Context, plan toll.PlanID, resource string) (bool, error) {
	agents, err := store.AgentsOfPlan(ctx, w.Store, plan, store.Page{Size: mostServers, Ascending: true})
	if err != nil {
		return false, err
	}
	for _, a := range agents.Items {
		urls := a.API.OpenEndpoints
		for _, e := range a.API.Endpoints {
			urls = append(urls, e.URL)
		}
		if slices.ContainsFunc(urls, func(url string) bool { return isAt(url, resource) }) {
			return true, nil
		}
	}
	return false, nil
}

// isAt reports whether an absolute endpoint is at the resource or below it, or is a pattern that the resource falls under.
func isAt(endpoint, resource string) bool {
	e, err1 := url.Parse(endpoint)
	r, err2 := url.Parse(resource)
	if err1 != nil || err2 != nil || e.Scheme != "http" && e.Scheme != "https" ||
		e.Scheme != r.Scheme || hostPort(e) != hostPort(r) {
		return false
	}
	if below := strings.TrimSuffix(r.Path, "/") + "/"; strings.HasPrefix(e.Path+"/", below) {
		return true
	}
	p, err := x402.ParsePattern(e.Path)
	return err == nil && p.Match(r.Path)
}

// hostPort returns the host and the port of an address. The names of this computer count as one.
func hostPort(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = u.Scheme
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		host = "localhost"
	}
	switch {
	case port == "443" && u.Scheme == "https", port == "80" && u.Scheme == "http":
		port = u.Scheme
	}
	return host + " " + port
}

func (w *Web) offer(ctx context.Context, owner toll.Address, p *toll.Plan) (*offer, error) {
	b, err := w.Checkout.Balance(ctx, p, owner, false)
	if err != nil {
		return nil, err
	}
	o := &offer{
		ID: p.ID, Name: cmp.Or(plain.Name(p.Metadata.Name), "without a name"), Owner: p.Owner, Price: page.PriceOf(p), Buys: page.GrantsOf(p, p.Credits.Amount),
		Request: page.BurnsOf(p), Available: b.Available, Free: p.Price.IsFree() && !p.IsTrial, Charges: p.Kind().Charges(), Grants: p.Credits.Amount, plan: p,
	}
	if p.Kind().NeedsPeriod() && b.IsSubscriber {
		o.Until = "no end"
		if b.ExpiresAt != nil {
			o.Until = page.Date(b.ExpiresAt.Time)
		}
	}
	return o, nil
}

// orders says how the person orders a plan on the page of consent, where it cannot be paid with as it is.
func (w *Web) orders(who *session.Person, o *offer) {
	if !o.Ready() && o.plan.Kind().Prepaid() {
		o.Order, o.Why = page.OrderButton(who, o.plan, w.Cards != nil)
	}
}

// purse is a delegation with which a program may buy credits.
type purse struct {
	ID   string
	Text string
}

// purses returns the delegations with which a person can pay now.
func (w *Web) purses(ctx context.Context, who *session.Person) ([]purse, error) {
	list, err := w.Checkout.Delegations.List(ctx, checkout.Owner{Address: who.Address, UserID: who.UserID}, true, store.Page{Size: mostOffers})
	if err != nil {
		return nil, err
	}
	out := make([]purse, 0, len(list.Items))
	for _, d := range list.Items {
		text := toll.FormatAmount(toll.UnitsOfCents(int64(d.RemainingBudgetCents)), 6) + " " + strings.ToUpper(d.Currency) + " until " + page.Date(d.ExpiresAt.Time)
		out = append(out, purse{d.DelegationID, text})
	}
	return out, nil
}

// orderWait is how long a page waits for the credits of an order.
const orderWait = 10 * time.Second

// order orders a plan on the page of consent, once for each form: a free one, one that a card pays, on the page of the processor, or
// one that the wallet of the workspace pays. back is the page to which the person comes back from the card; again reads what is
// asked once more.
func order(c *page.Context, a *asked, sent choice, back string, again func() (*asked, error)) (page.View, error) {
	id := toll.PlanID(c.Form.Get("order"))
	at := slices.IndexFunc(a.Offers, func(o *offer) bool { return o.ID == id })
	pay, err := c.Sessions.Once(c.Ctx(), c.Form.Get("ticket"), func() (string, error) {
		if at < 0 || a.Offers[at].Order == "" {
			return "", toll.Errorf(toll.CodeBadRequest, "This plan cannot be ordered here.")
		}
		return buy(c, c.Ctx(), a.Offers[at].plan, back)
	})
	if errors.Is(err, session.ErrAnswered) {
		return nil, c.Refuse(http.StatusConflict, "This form was answered before.")
	}
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) {
			return showConsent(c, status, a, sent, "Nothing was ordered: "+fault)
		})
	}
	if pay != "" {
		return c.Redirect(http.StatusSeeOther, pay)
	}
	if a, err = again(); err != nil {
		return nil, err
	}
	next := a.suggested()
	if at := slices.IndexFunc(a.Offers, func(o *offer) bool { return o.ID == id }); at >= 0 {
		next.Plan, next.Limit = id, max(a.Offers[at].Available, a.Offers[at].Grants, 1).String()
	}
	return showConsent(c, http.StatusOK, a, next, "")
}

// buy orders a plan for the workspace. It returns the page on which a card pays, "" when nothing is left to pay.
func buy(c *page.Context, ctx context.Context, plan *toll.Plan, back string) (body string, err error) {
	if !plan.Price.IsCrypto && !plan.Price.IsFree() {
		made, err := deps(c).Checkout.Fiat(ctx, checkout.FiatRequest{
			Caller: c.Person.Address, Plan: plan, Wait: orderWait, Session: rail.SessionInput{SuccessURL: back, CancelURL: back},
		}, nil)
		if err != nil {
			return "", err
		}
		return made.Result.URL, nil
	}
	o, err := deps(c).Checkout.Order(ctx, checkout.OrderRequest{Caller: c.Person.Address, APIKeyID: c.Person.KeyID, UserID: c.Person.UserID, Plan: plan, Wait: orderWait}, nil)
	if err == nil && o.HTTPStatus == http.StatusAccepted {
		err = toll.Errorf(toll.CodeOrderLacksMoney, "The payment is not decided yet. Open this page again in a minute.")
	}
	return "", err
}
