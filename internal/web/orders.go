package web

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// orderPages are the orders of a workspace: those of its plans, and its own.
func orderPages() []areaPage {
	return []areaPage{
		{
			Path: "/orders", Title: "Orders", Template: "sheet", Group: groupSell, Nav: "Orders", Icon: "shopping-cart", Key: "n",
			Right: toll.RightRead, Get: listOrders,
		},
		{
			Path: "/orders/{order}", Template: "sheet", Under: "/orders", Right: toll.RightRead, Act: toll.RightMoney,
			Get: readOrder, Post: refundOrder,
		},
	}
}

// listOf reads the part of a list of the API that the page shows.
func listOf[T any](v *visit, path, member string, q url.Values) (out store.List[T], err error) {
	q = maps.Clone(q)
	setPage(q, v.listPage())
	return partOf[T](v, path, member, q)
}

// partOf reads the part of a list of the API that a query names. Total is -1 for a list that is not
// counted.
func partOf[T any](v *visit, path, member string, q url.Values) (out store.List[T], err error) {
	var page map[string]json.RawMessage
	if err = v.w.API.Call(v.acting(), http.MethodGet, "/api/v1"+path, q, nil, &page); err != nil {
		return out, err
	}
	var next *string
	total := page["total"]
	if total == nil {
		total = json.RawMessage("-1")
	}
	err = errors.Join(
		json.Unmarshal(page[member], &out.Items), json.Unmarshal(total, &out.Total), json.Unmarshal(page["nextCursor"], &next),
	)
	if next != nil {
		out.Next = *next
	}
	return out, err
}

// filters are fields of the query string that narrow a list, and the same for the API.
func (v *visit) filters(fields ...field) ([]field, url.Values) {
	q := url.Values{}
	for i := range fields {
		f := &fields[i]
		if f.Value = strings.TrimSpace(v.r.URL.Query().Get(f.Name)); f.Value == "" {
			continue
		}
		value := f.Value
		if f.Type == "date" {
			if day, err := time.Parse(time.DateOnly, value); err == nil {
				value = day.Format("2006-01-02T15:04:05.000Z")
			}
		}
		q.Set(f.Name, value)
	}
	return fields, q
}

// narrowed answers an error of a list: a filter that the API refuses is said above an empty list.
func (v *visit) narrowed(err error) bool {
	if err == nil {
		return false
	}
	e := toll.AsError(err)
	if e.HTTPStatus() < http.StatusInternalServerError && v.r.URL.Query().Get("cursor") == "" {
		v.status, v.fault = e.HTTPStatus(), e.Text()
		return false
	}
	return v.failed("part of the list", err)
}

func listOrders(v *visit) {
	filter, q := v.filters(
		field{Name: "role", Label: "Side", Options: []option{{Value: "seller", Text: "Of my plans"}, {Value: "buyer", Text: "Made by this workspace"}}},
		field{Name: "planId", Label: "Plan", Max: 80},
		field{Name: "since", Label: "From", Type: "date"}, field{Name: "until", Label: "Before", Type: "date"},
	)
	if q.Get("role") == "" {
		q.Set("role", "seller")
	}
	list, err := listOf[*toll.Order](v, "/protocol/orders", "orders", q)
	if v.narrowed(err) {
		return
	}
	t := ordersTable(v, list, v.pagerOf(list.Total, list.Next, "order"))
	v.sheet("Orders", sheet{
		Lead: "What others bought of your plans, and what this workspace bought.", Links: file(v, "orders", q), Filter: filter, Table: t,
	})
}

func ordersTable(v *visit, list store.List[*toll.Order], p *pager) *table {
	t := &table{
		Caption: "Orders",
		Head:    []column{{Text: "Order"}, {Text: "Subscriber"}, {Text: "State"}, {Text: "Amount", Num: true}, {Text: "Credits", Num: true}, {Text: "Made"}},
		Empty:   &empty{"shopping-cart", "No orders yet", "When somebody buys a plan of yours, the order appears here.", v.to("plans"), "Your plans", "toll orders list"},
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

// byCard reports whether a card pays an order.
func byCard(o *toll.Order) bool {
	return strings.EqualFold(o.Currency, "usd") || strings.EqualFold(o.Currency, "eur")
}

// paysBy says what pays an order.
func paysBy(o *toll.Order) string {
	switch {
	case o.Amount.IsZero():
		return "nothing to pay"
	case byCard(o):
		return "card"
	}
	return "crypto"
}

// storyOf is what happened to an order, and what is still to come.
func storyOf(o *toll.Order) []step {
	made := step{"Recorded", "", o.CreatedAt.Time, "good"}
	tail := []step{{Title: "Credits granted"}}
	states := []toll.OrderStatus{toll.OrderConfirmed}
	switch {
	case o.Amount.IsZero():
		made.Text = "The plan is free."
	case byCard(o):
		tail = []step{{"Paid by card", "The bank may ask the holder of the card to confirm the payment.", time.Time{}, ""}, tail[0]}
		states = []toll.OrderStatus{toll.OrderConfirmed, toll.OrderConfirmed}
	default:
		tail = []step{
			{Title: "Signed"}, {Title: "Sent to the chain"}, {Title: "In a block"}, tail[0],
			{Title: "Final", Text: "No reorganization of the chain can undo it."},
		}
		states = []toll.OrderStatus{toll.OrderSigned, toll.OrderSent, toll.OrderIncluded, toll.OrderConfirmed, toll.OrderFinal}
	}
	order := []toll.OrderStatus{
		toll.OrderCreated, toll.OrderSigned, toll.OrderSent, toll.OrderIncluded, toll.OrderConfirmed, toll.OrderFinal,
	}
	steps := []step{made}
	for i, s := range tail {
		if slices.Index(order, o.Status) >= slices.Index(order, states[i]) {
			s.Tone = "good"
			if o.Status == states[i] && (i+1 == len(tail) || states[i+1] != states[i]) {
				s.At = o.When.Time
			}
		}
		steps = append(steps, s)
	}
	if o.Status == toll.OrderFailed {
		steps = []step{made, {"Failed", plain.Name(o.FailureReason), o.When.Time, "bad"}}
	}
	if o.RefundedCents > 0 {
		steps = append(steps, step{"Refunded", centsText(o.RefundedCents, o.Currency) + " went back to the card.", time.Time{}, "warn"})
	}
	if o.Disputed {
		steps = append(steps, step{"Disputed", "The holder of the card contests the payment, or has won that.", time.Time{}, "bad"})
	}
	return steps
}

func centsText(c toll.Cents, currency string) string {
	return amountText(c) + " " + strings.ToUpper(currency)
}

func amountText(c toll.Cents) string {
	return grouped(toll.FormatAmount(toll.UnitsOfCents(int64(c)), 6))
}

func readOrder(v *visit) {
	o, err := v.w.API.Order(v.acting(), v.param("order"))
	if v.failed("order", err) {
		return
	}
	p, err := v.w.API.Plan(v.acting(), o.PlanID)
	if v.failed("order", err) {
		return
	}
	sold := p.Owner == v.person.Address
	plan := cell{Text: nameOf(p.Metadata.Name), To: v.to("holdings", string(o.PlanID))}
	if sold {
		plan.To = v.to("plans", string(o.PlanID))
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: o.OrderID}}, {"State", cell{State: stateOfOrder(o.Status)}}, {"Plan", plan},
		{"Subscriber", cell{ID: o.SubscriberAddress.String()}}, {"Amount", amountOf(o)}, {"Paid by", cell{Text: paysBy(o)}},
		{"Credits", credits(o.CreditsGranted)}, {"Made", at(o.CreatedAt.Time)},
	}, Steps: storyOf(o)}
	if o.TxHash != "" {
		s.Facts = append(s.Facts, fact{"Transaction", cell{ID: o.TxHash}})
	}
	if at, ok := o.Data["transactionUrl"].(string); ok {
		s.Links = []link{{Text: "Open the explorer", To: at, Plain: true}}
	}
	if o.RefundedCents > 0 {
		s.Facts = append(s.Facts, fact{"Refunded", cell{Text: centsText(o.RefundedCents, o.Currency), Sub: count(int64(o.RefundedCredits), "credit") + " taken back"}})
	}
	if o.TakenByHand > 0 {
		s.Facts = append(s.Facts, fact{"Taken back", cell{Text: count(int64(o.TakenByHand), "credit"), Sub: "by the seller, without a refund"}})
	}
	if o.Replaces != nil {
		s.Facts = append(s.Facts, fact{"In place of", cell{ID: *o.Replaces, To: v.to("orders", *o.Replaces)}})
	}
	if sold && byCard(o) && o.Success && v.person.Rights.Has(toll.RightMoney) {
		s.Acts = []dialog{v.dangerOf("refund", "Refund", "The money goes back to the card. The credits go with it, as far as they were not used.",
			field{Name: "amount", Label: "Amount", Unit: strings.ToUpper(o.Currency), Mode: "decimal", Hint: "Empty refunds what is left.", Members: []string{"amountCents"}})}
	}
	v.sheet("Order "+short(o.OrderID), s)
}

func refundOrder(v *visit) {
	id := v.param("order")
	v.finish(func() (outcome, error) {
		if v.form.Get("act") != "refund" {
			return outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		cents, err := cents(v, "amount")
		if err != nil {
			return outcome{}, err
		}
		o, err := v.w.API.RefundOrder(v.once(), id, cents)
		if err != nil {
			return outcome{}, err
		}
		done := "The card processor has the refund. It appears here once it is taken."
		if o.RefundedCents > 0 {
			done = centsText(o.RefundedCents, o.Currency) + " is refunded."
		}
		return outcome{To: v.to("orders", id), Done: done}, nil
	})
}

// cents reads an amount in whole units of a currency, "" for 0.
func cents(v *visit, name string) (toll.Cents, error) {
	text := v.text(name)
	if text == "" {
		return 0, nil
	}
	units, err := toll.ParseAmount(text, 2)
	if err != nil || !units.Int().IsInt64() || toll.Cents(units.Int().Int64()) > toll.MaxCents {
		return 0, oneFault(name, "must be an amount such as 12.50")
	}
	return toll.Cents(units.Int().Int64()), nil
}

// once is [visit.acting] for what a form makes: a crash in between makes no second one.
func (v *visit) once() context.Context {
	return client.WithIdempotencyKey(v.acting(), v.form.Get("ticket"))
}
