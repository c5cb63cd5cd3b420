package web

import (
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
