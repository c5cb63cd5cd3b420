package web

import (
	"errors"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// listing is the page of one list.
type listing struct {
	Lead  string
	Table *table
}

// record is the page of one record: its facts, and lists that belong to it.
type record struct {
	Facts []fact
	Parts []part
}

type part struct {
	Title string
	Table *table
}

// nameOf is a name that somebody chose, for a page.
func nameOf(name string) string {
	if name = plain.Name(name); name == "" {
		return "without a name"
	}
	return name
}

func listedState(listed bool) *state {
	if listed {
		return &state{"listed", "good"}
	}
	return &state{"not listed", "quiet"}
}

// overviewPages are the first page of a workspace.
func overviewPages() []areaPage {
	return []areaPage{{
		Title: "Overview", Template: "overview", Group: groupSell, Nav: "Overview", Icon: "layout-grid", Key: "o",
		Right: toll.RightRead, Get: (*visit).showOverview,
	}}
}

type overviewPage struct {
	Stats []stat
	Tasks []task
	Sales *table
}

// mostRecent is how many orders the overview shows.
const mostRecent = 5

func (v *visit) showOverview() {
	owner := v.person.Address
	agents, err1 := store.AgentsOfOwner(v.ctx(), v.w.Store, owner, store.Page{Size: 1})
	plans, err2 := store.PlansOfOwner(v.ctx(), v.w.Store, owner, store.Page{Size: 1})
	held, err3 := v.w.Checkout.Holdings(v.ctx(), owner, store.Page{Size: 1})
	sold, err4 := v.w.Checkout.Orders(v.ctx(), owner, checkout.OrderQuery{AsSeller: true, Page: store.Page{Size: mostRecent}})
	if v.failed("workspace", errors.Join(err1, err2, err3, err4)) {
		return
	}
	number := func(label string, n int64, path string) stat {
		return stat{Label: label, Value: grouped(toll.Credits(n).String()), To: v.to(path)}
	}
	page := overviewPage{
		Stats: []stat{
			number("Agents", agents.Total, "agents"), number("Plans", plans.Total, "plans"),
			number("Orders of your plans", sold.Total, "orders"), number("Plans that you hold", held.Total, "holdings"),
		},
		Sales: v.ordersTable(sold, nil),
	}
	if plans.Total == 0 {
		page.Tasks = append(page.Tasks, task{"warn", "You sell no plan", "Buyers pay for a plan, and your agents for its credits.", v.to("plans"), "See how"})
	}
	if agents.Total == 0 {
		page.Tasks = append(page.Tasks, task{"warn", "You have no agent", "An agent is a server that requests are paid for.", v.to("agents"), "See how"})
	}
	v.draw("Overview", page)
}

// agentPages are the agents of a workspace.
func agentPages() []areaPage {
	return []areaPage{
		{
			Path: "/agents", Title: "Agents", Template: "listing", Group: groupSell, Nav: "Agents", Icon: "bot", Key: "a",
			Right: toll.RightRead, Get: (*visit).listAgents,
		},
		{Path: "/agents/{agent}", Template: "record", Under: "/agents", Right: toll.RightRead, Get: (*visit).showAgent},
	}
}

func (v *visit) listAgents() {
	list, err := store.AgentsOfOwner(v.ctx(), v.w.Store, v.person.Address, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	v.draw("Agents", listing{"Servers of yours that others pay for.", v.agentsTable(list)})
}

func (v *visit) agentsTable(list store.List[*toll.Agent]) *table {
	t := &table{
		Caption: "Agents", Head: []column{{Text: "Name"}, {Text: "Id"}, {Text: "State"}, {Text: "Plans", Num: true}, {Text: "Registered"}},
		Empty: &empty{
			"bot", "No agents yet", "An agent is a server of yours that others pay for, request by request.", "", "",
			"toll agents register --help",
		},
		Pager: v.pagerOf(list.Total, list.Next, "agent"),
	}
	for _, a := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{Text: nameOf(a.Metadata.Name), To: v.to("agents", string(a.ID))}, {ID: string(a.ID)},
			{State: listedState(a.IsListed)}, credits(toll.Credits(len(a.Plans))), at(a.CreatedAt),
		})
	}
	return t
}

func (v *visit) showAgent() {
	id, err := toll.ParseAgentID(v.param("agent"))
	var a *toll.Agent
	if err == nil {
		a, err = store.AgentByID(v.ctx(), v.w.Store, id)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && a.Owner != v.person.Address {
		v.missing("agent")
		return
	}
	if v.failed("agent", err) {
		return
	}
	plans, err := store.PlansOfAgent(v.ctx(), v.w.Store, id, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	v.draw(nameOf(a.Metadata.Name), record{
		Facts: []fact{
			{"Id", cell{ID: string(a.ID)}}, {"State", cell{State: listedState(a.IsListed)}},
			{"Description", cell{Text: plain.Name(a.Metadata.Description)}}, {"Registered", at(a.CreatedAt)}, {"Changed", at(a.UpdatedAt)},
		},
		Parts: []part{{"Plans", v.plansTable(plans)}},
	})
}

// planPages are the plans that a workspace sells.
func planPages() []areaPage {
	return []areaPage{
		{
			Path: "/plans", Title: "Plans", Template: "listing", Group: groupSell, Nav: "Plans", Icon: "tag", Key: "p",
			Right: toll.RightRead, Get: (*visit).listPlans,
		},
		{Path: "/plans/{plan}", Template: "record", Under: "/plans", Right: toll.RightRead, Get: (*visit).showPlan},
	}
}

func (v *visit) listPlans() {
	list, err := store.PlansOfOwner(v.ctx(), v.w.Store, v.person.Address, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	v.draw("Plans", listing{"What buyers pay for: a price, and the credits or the time that it buys.", v.plansTable(list)})
}

func (v *visit) plansTable(list store.List[*toll.Plan]) *table {
	t := &table{
		Caption: "Plans",
		Head:    []column{{Text: "Name"}, {Text: "Id"}, {Text: "State"}, {Text: "Price", Num: true}, {Text: "Buys", Num: true}},
		Empty: &empty{
			"tag", "No plans yet", "A plan is what buyers pay for: a price, and the credits or the time that it buys.", "", "",
			"toll plans register --help",
		},
		Pager: v.pagerOf(list.Total, list.Next, "plan"),
	}
	for _, p := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{Text: nameOf(p.Metadata.Name), To: v.to("plans", string(p.ID))}, {ID: string(p.ID)}, {State: listedState(p.IsListed)},
			{Text: priceOf(p), Num: true}, {Text: buys(p), Num: true},
		})
	}
	return t
}

// buys is what one order of a plan buys.
func buys(p *toll.Plan) string {
	life := span(p.Credits.DurationSecs)
	switch {
	case p.IsTime() && life == "":
		return "unlimited time"
	case p.IsTime():
		return life
	case life == "":
		return count(int64(p.Credits.Amount), "credit")
	}
	return count(int64(p.Credits.Amount), "credit") + " for " + life
}

func (v *visit) showPlan() {
	id, err := toll.ParsePlanID(v.param("plan"))
	var p *toll.Plan
	if err == nil {
		p, err = store.PlanByID(v.ctx(), v.w.Store, id)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && p.Owner != v.person.Address {
		v.missing("plan")
		return
	}
	if v.failed("plan", err) {
		return
	}
	list, err := v.w.Checkout.Subscribers(v.ctx(), v.person.Address, id, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "Subscribers",
		Head:    []column{{Text: "Subscriber"}, {Text: "Available", Num: true}, {Text: "Held", Num: true}, {Text: "Used", Num: true}},
		Empty:   &empty{Icon: "users", Title: "No subscribers yet", Text: "Whoever buys this plan appears here, with the credits that are left."},
		Pager:   v.pagerOf(list.Total, list.Next, "subscriber"),
	}
	for _, b := range list.Items {
		t.Rows = append(t.Rows, []cell{{ID: b.HolderAddress.String()}, credits(b.Available), credits(b.Held), credits(b.Used)})
	}
	v.draw(nameOf(p.Metadata.Name), record{
		Facts: []fact{
			{"Id", cell{ID: string(p.ID)}}, {"State", cell{State: listedState(p.IsListed)}}, {"Price", cell{Text: priceOf(p)}},
			{"Buys", cell{Text: buys(p)}}, {"A request burns", cell{Text: burns(p)}}, {"Registered", at(p.CreatedAt)},
		},
		Parts: []part{{"Subscribers", t}},
	})
}

// orderPages are the orders of the plans of a workspace, and what it holds itself.
func orderPages() []areaPage {
	return []areaPage{
		{
			Path: "/orders", Title: "Orders", Template: "listing", Group: groupSell, Nav: "Orders", Icon: "shopping-cart", Key: "r",
			Right: toll.RightRead, Get: (*visit).listOrders,
		},
		{Path: "/orders/{order}", Template: "record", Under: "/orders", Right: toll.RightRead, Get: (*visit).readOrder},
		{
			Path: "/holdings", Title: "My plans", Template: "listing", Group: groupBuy, Nav: "My plans", Icon: "wallet", Key: "h",
			Right: toll.RightRead, Get: (*visit).listHoldings,
		},
	}
}

func (v *visit) listOrders() {
	list, err := v.w.Checkout.Orders(v.ctx(), v.person.Address, checkout.OrderQuery{AsSeller: true, Page: v.listPage()})
	if v.failed("part of the list", err) {
		return
	}
	v.draw("Orders", listing{"What others bought of your plans.", v.ordersTable(list, v.pagerOf(list.Total, list.Next, "order"))})
}

func (v *visit) ordersTable(list store.List[*toll.Order], p *pager) *table {
	t := &table{
		Caption: "Orders",
		Head:    []column{{Text: "Order"}, {Text: "Subscriber"}, {Text: "State"}, {Text: "Amount", Num: true}, {Text: "Credits", Num: true}, {Text: "Made"}},
		Empty:   &empty{Icon: "shopping-cart", Title: "No orders yet", Text: "When somebody buys a plan of yours, the order appears here."},
		Pager:   p,
	}
	for _, o := range list.Items {
		t.Rows = append(t.Rows, []cell{
			{ID: o.OrderID, To: v.to("orders", o.OrderID)}, {ID: o.SubscriberAddress.String()}, {State: stateOfOrder(o.Status)},
			amountOf(o), credits(o.CreditsGranted), at(o.CreatedAt.Time),
		})
	}
	return t
}

func amountOf(o *toll.Order) cell {
	if o.Amount.IsZero() {
		return cell{Text: "free", Num: true}
	}
	return cell{Sum: sumOf(o.Amount, o.Currency), Num: true}
}

func stateOfOrder(s toll.OrderStatus) *state {
	switch s {
	case toll.OrderConfirmed, toll.OrderFinal:
		return &state{string(s), "good"}
	case toll.OrderFailed:
		return &state{string(s), "bad"}
	}
	return &state{string(s), "warn"}
}

func (v *visit) readOrder() {
	o, err := v.w.Checkout.OrderByID(v.ctx(), v.person.Address, v.param("order"))
	if v.failed("order", err) {
		return
	}
	facts := []fact{
		{"Id", cell{ID: o.OrderID}}, {"State", cell{State: stateOfOrder(o.Status)}}, {"Plan", cell{ID: string(o.PlanID)}},
		{"Subscriber", cell{ID: o.SubscriberAddress.String()}}, {"Amount", amountOf(o)}, {"Credits", credits(o.CreditsGranted)},
		{"Made", at(o.CreatedAt.Time)},
	}
	if o.TxHash != "" {
		facts = append(facts, fact{"Transaction", cell{ID: o.TxHash}})
	}
	if o.FailureReason != "" {
		facts = append(facts, fact{"Why it failed", cell{Text: plain.Name(o.FailureReason)}})
	}
	v.draw("Order "+short(o.OrderID), record{Facts: facts})
}

func (v *visit) listHoldings() {
	list, err := v.w.Checkout.Holdings(v.ctx(), v.person.Address, v.listPage())
	if v.failed("part of the list", err) {
		return
	}
	t := &table{
		Caption: "My plans",
		Head:    []column{{Text: "Plan"}, {Text: "Id"}, {Text: "Available", Num: true}, {Text: "Held", Num: true}, {Text: "Used", Num: true}, {Text: "Ends"}},
		Empty:   &empty{"wallet", "You hold no plan", "Buy a plan, and its balance appears here.", "", "", "toll plans order --help"},
		Pager:   v.pagerOf(list.Total, list.Next, "plan"),
	}
	for _, b := range list.Items {
		ends := cell{Text: "never"}
		if b.ExpiresAt != nil {
			ends = at(b.ExpiresAt.Time)
		}
		t.Rows = append(t.Rows, []cell{
			{Text: nameOf(b.PlanName)}, {ID: string(b.PlanID)}, credits(b.Available), credits(b.Held), credits(b.Used), ends,
		})
	}
	v.draw("My plans", listing{"Plans of others that this workspace bought, and what is left of them.", t})
}
