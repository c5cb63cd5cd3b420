package workspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// listOrders shows the orders of one side. Its filter lists the plans that the workspace sells or bought.
func listOrders(w *pages) func(*page.Context) (page.View, error) {
	return func(c *page.Context) (page.View, error) {
		buyer, role := sideOf(c, "Orders for plans you sell", "Orders you placed")
		plans, err := sidePlans(c, buyer)
		if err != nil {
			return nil, c.Failed("page", err)
		}
		filter, q := c.Filters(role, plans, page.Field{Name: "since", Label: "From", Type: "date"}, page.Field{Name: "until", Label: "Before", Type: "date"})
		q.Set("role", cmp.Or(q.Get("role"), role.Options[0].Value))
		orders, err := page.ListOf[*toll.Order](c, list.Orders, q)
		if err := c.Narrowed(err); err != nil {
			return nil, err
		}
		var ids []toll.PlanID
		for _, o := range orders.Items {
			ids = append(ids, o.PlanID)
		}
		names, err := w.namesOf(c, ids, nil)
		if err != nil {
			return nil, c.Failed("page", err)
		}
		shown := []string{"orderId", "planId", "subscriberAddress", "status", "amount", "creditsGranted", "createdAt"}
		if buyer { // which placed all of them
			shown = slices.Delete(shown, 2, 3)
		}
		t := tableOfOrders(c, list.Orders.Show(shown...), orders)
		for i, o := range orders.Items {
			t.Rows[i][1] = planCell(c, names, o.PlanID, !buyer)
		}
		if buyer {
			t.Empty.Text, t.Empty.To, t.Empty.Button = "Orders that this workspace places appear here.", page.PathExplore, "Find a plan"
		}
		title, lead := "Orders", "Orders for your plans."
		if !buyer {
			t.Empty.Title, t.Empty.Text = "No one has ordered your plans yet", "Orders for your plans appear here."
			t.Empty.To, t.Empty.Button = c.To("orders")+"?role=buyer", "Orders you placed"
		}
		if buyer {
			title, lead = "Spending", "Orders that this workspace placed."
		}
		return c.Record(title, page.Record{
			Lead: lead, Links: file(c, "orders", q), Filter: filter, Table: t,
		})
	}
}

// sideOf reports whether a list shows the purchases of the workspace, and returns the field that selects the side. Without a query, the
// list shows the first option.
func sideOf(c *page.Context, sold, bought string) (buyer bool, role page.Field) {
	buyer = page.ShowsBought(c)
	role = page.Field{Name: "role", Label: "Show", Options: []page.Option{{Value: "seller", Text: sold}, {Value: "buyer", Text: bought}}}
	if buyer {
		slices.Reverse(role.Options)
	}
	return buyer, role
}

// sidePlans returns the field that filters a list by the plans that the workspace bought, or sells. The API rejects an invalid id.
func sidePlans(c *page.Context, buyer bool) (page.Field, error) {
	f := page.Field{Name: "planId", Label: "Plan", Options: []page.Option{{Text: "All plans"}}}
	add := func(id toll.PlanID, name string) {
		f.Options = append(f.Options, page.Option{Value: string(id), Text: page.NameOf(name)})
	}
	if buyer {
		bought, err := page.PartOf[*toll.Balance](c, list.Holdings, newest)
		if err != nil {
			return f, err
		}
		for _, b := range bought.Items {
			add(b.PlanID, b.PlanName)
		}
	} else {
		plans, err := ownPlans(c)
		if err != nil {
			return f, err
		}
		for _, p := range plans.Items {
			add(p.ID, p.Metadata.Name)
		}
	}
	if id := c.R.URL.Query().Get(f.Name); !page.HasOption(f.Options, id) {
		f.Options = append(f.Options, page.Option{Value: id, Text: page.Short(plain.Name(id))})
	}
	return f, nil
}

// ordersTable returns orders of one plan.
func ordersTable(c *page.Context, orders page.List[*toll.Order]) *page.Table {
	return tableOfOrders(c, list.Orders.Show("orderId", "subscriberAddress", "status", "amount", "creditsGranted", "createdAt"), orders)
}

func tableOfOrders(c *page.Context, of list.List, orders page.List[*toll.Order]) *page.Table {
	t := page.TableOf(c, of, "order", orders, func(o *toll.Order, cell page.Cells) {
		cell["orderId"].To, cell["status"].State, *cell["amount"] = c.To("orders", o.OrderID), orderState(o), amountOf(o)
	})
	t.Empty = &page.Empty{Icon: "shopping-cart", Title: "No orders yet", Text: "Orders for your plans appear here.", To: c.To("plans"), Button: "Plans you sell", Command: "toll orders list"}
	return t
}

// orderState returns the state of an order and of its payment in words.
func orderState(o *toll.Order) *page.State {
	switch {
	case o.Disputed:
		return &page.State{Text: "Disputed", Tone: "bad"}
	case o.RefundedCents > 0 && toll.UnitsOfCents(int64(o.RefundedCents)).Cmp(o.Amount) >= 0:
		return &page.State{Text: "Refunded", Tone: "quiet"}
	case o.RefundedCents > 0:
		return &page.State{Text: "Partially refunded", Tone: "quiet"}
	case o.FailureCode == toll.FailureExpired:
		return &page.State{Text: "Expired", Tone: "quiet"}
	case o.Status == toll.OrderFailed:
		return &page.State{Text: "Failed", Tone: "bad"}
	case o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal:
		return &page.State{Text: map[bool]string{false: "Paid", true: "Granted"}[o.Amount.IsZero()], Tone: "good"}
	case byCard(o):
		return &page.State{Text: "Awaiting payment", Tone: "warn"}
	}
	return &page.State{Text: "Processing", Tone: "warn"}
}

func amountOf(o *toll.Order) page.Cell {
	if o.Amount.IsZero() {
		return page.Cell{Text: "free", Num: true}
	}
	return page.Cell{Sum: page.SumOf(o.Amount, o.Currency), Num: true}
}

// byCard reports whether a card pays an order.
func byCard(o *toll.Order) bool {
	return strings.EqualFold(o.Currency, "usd") || strings.EqualFold(o.Currency, "eur")
}

// paysBy says what pays an order.
func paysBy(o *toll.Order) string {
	switch {
	case o.Amount.IsZero():
		return "free"
	case byCard(o):
		return "card"
	}
	return "crypto"
}

// OrderTimes are times that the record of an order does not have; zero or empty if unknown.
type OrderTimes struct {
	Paid     time.Time // by card
	Granted  time.Time
	Refunds  []Refunded
	Disputed time.Time // the last dispute
	PayURL   string    // page on which the buyer pays an open order; "" if there is none
}

// ReadTimes reads the times of an order.
type ReadTimes func(ctx context.Context, o *toll.Order) (OrderTimes, error)

// Refunded is a refund that the card processor accepted.
type Refunded struct {
	At    time.Time
	Cents toll.Cents
}

// storyOf returns the steps of an order, past and future.
func storyOf(o *toll.Order, at OrderTimes) []page.Step {
	if at.Granted.IsZero() && o.Status == toll.OrderConfirmed && o.RefundedCents == 0 && !o.Disputed {
		at.Granted = o.When.Time // the journal is not indexed yet
	}
	made := page.Step{Title: "Recorded", Text: "", At: o.CreatedAt.Time, Tone: "good"}
	granted := page.Step{Title: "Credits granted", At: at.Granted}
	tail := []page.Step{granted}
	states := []toll.OrderStatus{toll.OrderConfirmed}
	switch {
	case o.Amount.IsZero():
		made.Text = "The plan is free."
	case byCard(o):
		paid := page.Step{Title: "Paid by card", At: at.Paid}
		if o.Status == toll.OrderCreated {
			paid.Text = "The buyer has not paid yet. An order that is not paid expires."
		}
		if at.Paid.Before(made.At) || at.Paid.After(granted.At) { // the processor has its own clock
			paid.At = granted.At
		}
		tail = []page.Step{paid, granted}
		states = []toll.OrderStatus{toll.OrderConfirmed, toll.OrderConfirmed}
	default:
		tail = []page.Step{
			{Title: "Signed"}, {Title: "Sent to the chain"}, {Title: "Included in a block"}, granted,
			{Title: "Final", Text: "A reorganization of the chain can no longer undo the payment."},
		}
		states = []toll.OrderStatus{toll.OrderSigned, toll.OrderSent, toll.OrderIncluded, toll.OrderConfirmed, toll.OrderFinal}
	}
	order := []toll.OrderStatus{
		toll.OrderCreated, toll.OrderSigned, toll.OrderSent, toll.OrderIncluded, toll.OrderConfirmed, toll.OrderFinal,
	}
	steps := []page.Step{made}
	for i, s := range tail {
		if slices.Index(order, o.Status) >= slices.Index(order, states[i]) {
			s.Tone = "good"
			// When is the time of the last change, and refunds and disputes change a confirmed order again.
			if o.Status == states[i] && o.Status != toll.OrderConfirmed {
				s.At = o.When.Time
			}
		} else {
			s.At = time.Time{}
		}
		steps = append(steps, s)
	}
	if o.Status == toll.OrderFailed {
		failed := page.Step{Title: "Failed", Text: plain.Name(o.FailureReason), At: o.When.Time, Tone: "bad"}
		steps = []page.Step{made, failed}
		if !at.Granted.IsZero() { // the chain dropped the payment, and the order lost its credits
			granted.Tone, failed.Title = "good", "Payment reversed"
			steps = []page.Step{made, granted, failed}
		}
	}
	if len(at.Refunds) == 0 && o.RefundedCents > 0 {
		at.Refunds = []Refunded{{Cents: o.RefundedCents}}
	}
	for _, r := range at.Refunds {
		steps = append(steps, page.Step{Title: "Refunded", Text: centsText(r.Cents, o.Currency) + " returned to the card.", At: r.At, Tone: "warn"})
	}
	if o.Disputed {
		steps = append(steps, page.Step{Title: "Disputed", Text: "The cardholder disputes the payment or has won the dispute.", At: at.Disputed, Tone: "bad"})
	}
	return steps
}

func centsText(c toll.Cents, currency string) string {
	return amountText(c) + " " + strings.ToUpper(currency)
}

func amountText(c toll.Cents) string {
	return page.Grouped(toll.FormatAmount(toll.UnitsOfCents(int64(c)), 6))
}

func readOrder(w *pages) func(*page.Context) (page.View, error) {
	return func(c *page.Context) (page.View, error) { return showOrder(c, w.Times) }
}

func showOrder(c *page.Context, times ReadTimes) (page.View, error) {
	o, err := c.API.Order(c.Acting(), c.Param("order"))
	if err != nil {
		return nil, c.Failed("order", err)
	}
	p, err := c.API.Plan(c.Acting(), o.PlanID)
	if err != nil {
		return nil, c.Failed("order", err)
	}
	at, err := times(c.Ctx(), o)
	if err != nil {
		return nil, c.Failed("order", err)
	}
	sold := p.Owner == c.Person.Address
	c.Bought = !sold
	plan := page.Cell{Text: page.NameOf(p.Metadata.Name), To: c.To("holdings", string(o.PlanID))}
	if sold {
		plan.To = c.To("plans", string(o.PlanID))
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: o.OrderID}}, {Label: "Status", Cell: page.Cell{State: orderState(o)}}, {Label: "Plan", Cell: plan},
		{Label: "Subscriber", Cell: page.Cell{ID: o.SubscriberAddress.String()}}, {Label: "Amount", Cell: amountOf(o)}, {Label: "Payment method", Cell: page.Cell{Text: paysBy(o)}},
		{Label: "Credits", Cell: page.Credits(o.CreditsGranted)}, {Label: "Created", Cell: page.At(o.CreatedAt.Time)},
	}, Steps: storyOf(o, at)}
	if o.TxHash != "" {
		s.Facts = append(s.Facts, page.Fact{Label: "Transaction", Cell: page.Cell{ID: o.TxHash}})
	}
	if at, ok := o.Data["transactionUrl"].(string); ok {
		s.Links = []page.Link{{Text: "View in explorer", To: at, Plain: true}}
	}
	if !sold && at.PayURL != "" && c.Person.Rights.Has(toll.RightSpend) {
		s.Links = append(s.Links, page.Link{Text: "Continue to payment", To: at.PayURL})
	}
	if o.RefundedCents > 0 {
		s.Facts = append(s.Facts, page.Fact{Label: "Refunded", Cell: page.Cell{Text: centsText(o.RefundedCents, o.Currency), Sub: page.Count(int64(o.RefundedCredits), "credit") + " taken back"}})
	}
	if o.TakenByHand > 0 {
		s.Facts = append(s.Facts, page.Fact{Label: "Taken back", Cell: page.Cell{Text: page.Count(int64(o.TakenByHand), "credit"), Sub: "by the seller, without a refund"}})
	}
	if o.Replaces != nil {
		s.Facts = append(s.Facts, page.Fact{Label: "Replaces", Cell: page.Cell{ID: *o.Replaces, To: c.To("orders", *o.Replaces)}})
	}
	if left := refundable(o); sold && left > 0 && o.Success && c.Person.Rights.Has(toll.RightMoney) {
		text := "The money returns to the card. A full refund returns " + centsText(left, o.Currency) +
			" and takes back the unused credits of the order. A partial refund takes back credits in proportion, but only unused credits."
		s.Acts = []page.Dialog{c.DangerOf("refund", "Refund", text,
			page.Field{Name: "amount", Label: "Amount", Value: toll.FormatAmount(toll.UnitsOfCents(int64(left)), 6), Unit: strings.ToUpper(o.Currency), Mode: "decimal", Members: []string{"amountCents"}})}
	}
	return c.Record("Order "+page.Short(o.OrderID), s)
}

// refundable returns the amount of a card payment less its refunds, and 0 for other orders.
func refundable(o *toll.Order) toll.Cents {
	if !byCard(o) {
		return 0
	}
	perCent := toll.UnitsOfCents(1).Int()
	return toll.Cents(new(big.Int).Quo(o.Amount.Int(), perCent).Int64()) - o.RefundedCents
}

func refundOrder(c *page.Context) (page.View, error) {
	id := c.Param("order")
	return c.Finish(func() (page.Outcome, error) {
		if c.Form.Get("act") != "refund" {
			return page.Outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		cents, err := cents(c, "amount")
		if err != nil {
			return page.Outcome{}, err
		}
		o, err := c.API.RefundOrder(c.Once(), id, cents)
		if err != nil {
			return page.Outcome{}, err
		}
		done := "The refund was sent to the card processor. It appears here after the processor accepts it."
		if o.RefundedCents > 0 {
			done = centsText(o.RefundedCents, o.Currency) + " refunded."
		}
		return page.Outcome{To: c.To("orders", id), Done: done}, nil
	})
}

// cents reads an amount in whole units of a currency, "" for 0.
func cents(c *page.Context, name string) (toll.Cents, error) {
	text := c.Text(name)
	if text == "" {
		return 0, nil
	}
	units, err := toll.ParseAmount(text, 2)
	if err != nil || !units.Int().IsInt64() || toll.Cents(units.Int().Int64()) > toll.MaxCents {
		return 0, page.OneFault(name, "must be an amount such as 12.50")
	}
	return toll.Cents(units.Int().Int64()), nil
}

// outcomes are the states of requests that the list narrows to.
var outcomes = []page.Option{
	{Text: "All finished"}, {Value: "settled", Text: "Settled"}, {Value: "released", Text: "Released"}, {Value: "lapsed", Text: "Lapsed"},
	{Value: "held", Text: "Held"},
}

// mostReads bounds how many parts of a list one page reads: a part has few requests, or none, where filters leave most of them out.
const mostReads = 5

// requests reads what a page shows of the list of requests.
func requests(c *page.Context, q url.Values) (all page.List[*toll.Settlement], err error) {
	body := c.ListPage()
	for range mostReads {
		body.Size = page.MostRows - len(all.Items)
		page.SetPage(q, body)
		var part page.List[*toll.Settlement]
		if part, err = page.PartOf[*toll.Settlement](c, list.Requests, q); err != nil {
			return all, err
		}
		all = page.List[*toll.Settlement]{Items: append(all.Items, part.Items...), Next: part.Next, Total: part.Total}
		if all.Next == "" || len(all.Items) == page.MostRows {
			break
		}
		body.Cursor = all.Next
	}
	return all, nil
}

// requestFilter are the fields that narrow the list of requests, and the same for the API.
func requestFilter(c *page.Context) (fields []page.Field, q url.Values, err error) {
	buyer, role := sideOf(c, "Requests for plans you sell", "Requests you paid for")
	plans, err := sidePlans(c, buyer)
	if err != nil {
		return nil, nil, c.Failed("page", err)
	}
	agents := page.Field{Name: "agentId", Label: "Agent", Max: 100}
	if !buyer {
		if agents, _, err = agentFilter(c, "agentId"); err != nil {
			return nil, nil, err
		}
	}
	fields = []page.Field{role, plans, agents}
	if !buyer {
		fields = append(fields, page.Field{Name: "subscriber", Label: "Subscriber", Max: 42})
	}
	fields, q = c.Filters(append(fields,
		page.Field{Name: "status", Label: "Status", Options: outcomes}, page.Field{Name: "since", Label: "From", Type: "date"},
		page.Field{Name: "until", Label: "Before", Type: "date"})...)
	if buyer {
		q.Set("role", "buyer")
	}
	return fields, q, nil
}

func (w *pages) listRequests(c *page.Context) (page.View, error) {
	filter, q, err := requestFilter(c)
	if err != nil {
		return nil, err
	}
	files := file(c, "requests", q)
	part, err := requests(c, q)
	if err := c.Narrowed(err); err != nil {
		return nil, err
	}
	buyer := q.Get("role") == "buyer"
	t, err := w.requestsTable(c, part, buyer)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	title, lead := "Requests", "Requests paid with credits of your plans"
	if buyer {
		title, lead = "Receipts", "Requests that this workspace paid for with credits"
	}
	return c.Record(title, page.Record{
		Lead:  lead + ", sorted by end time. A search covers up to 90 days. Settlements appear within seconds.",
		Links: files, Filter: filter, Table: t,
	})
}

func (w *pages) requestsTable(c *page.Context, part page.List[*toll.Settlement], buyer bool) (*page.Table, error) {
	var plans []toll.PlanID
	var agents []toll.AgentID
	for _, s := range part.Items {
		if plans = append(plans, s.PlanID); s.AgentID != nil {
			agents = append(agents, *s.AgentID)
		}
	}
	names, err := w.namesOf(c, plans, agents)
	shown := []string{"endedAt", "agentRequestId", "status", "agentId", "planId", "payer", "creditsRedeemed"}
	if buyer { // which pays all of them
		shown = slices.Delete(shown, 5, 6)
	}
	of := list.Requests.Show(shown...)
	t := page.TableOf(c, of, "request", part, func(s *toll.Settlement, cell page.Cells) {
		*cell["endedAt"] = page.AtOr(s.EndedAt, "open")
		cell["agentRequestId"].To, cell["status"].Sub = c.To("requests", s.AgentRequestID), tookText(s)
		*cell["agentId"], *cell["planId"], *cell["creditsRedeemed"] = agentCell(c, names, s, !buyer), planCell(c, names, s.PlanID, !buyer), creditsOf(s)
	})
	t.Empty = &page.Empty{Icon: "receipt", Title: "No requests in this period", Text: "Requests that hold or burn credits appear here.", Command: "toll requests history"}
	if t.Empty.To, t.Empty.Button = c.To("requests")+"?role=buyer", "Requests you paid for"; buyer {
		t.Empty.To, t.Empty.Button = page.PathExplore, "Find a plan"
	}
	if part.Next != "" {
		t.Empty = &page.Empty{Icon: "receipt", Title: "No matches yet", Text: "The requests searched so far do not match the filters. Select Next to search more requests."}
	}
	return t, err
}

// tookText is how long a request took, from its hold to its end.
func tookText(s *toll.Settlement) string {
	if s.EndedAt == nil || s.HoldExpiresAt == nil {
		return ""
	}
	return "after " + s.EndedAt.Sub(s.CreatedAt.Time).Round(time.Millisecond).String()
}

// creditsOf is what a request burned, or what it holds or held.
func creditsOf(s *toll.Settlement) page.Cell {
	c := page.Credits(s.HeldAmount)
	switch {
	case s.CreditsRedeemed != nil && s.Status == "settled":
		c = page.Credits(*s.CreditsRedeemed)
	case s.Status == "held":
		c.Sub = "held"
	default:
		c.Sub = "released"
	}
	return c
}

// agentCell names the agent of a request. own says whether the workspace sells it.
func agentCell(c *page.Context, names map[string]string, s *toll.Settlement, own bool) page.Cell {
	cell := page.Cell{Text: "no agent"}
	if s.AgentID != nil {
		id := string(*s.AgentID)
		cell = page.Cell{Text: cmp.Or(names[id], page.Short(id)), To: "/a/" + url.PathEscape(id)}
		if own {
			cell.To = c.To("agents", id)
		}
	}
	if s.Resource != nil {
		cell.Sub = plain.Name(*s.Resource)
	}
	return cell
}

func planCell(c *page.Context, names map[string]string, id toll.PlanID, own bool) page.Cell {
	area := "holdings"
	if own {
		area = "plans"
	}
	return page.Cell{Text: cmp.Or(names[string(id)], page.Short(string(id))), To: c.To(area, string(id))}
}

// stepWords are the steps of a request on its page, by state.
var stepWords = map[string]page.Step{
	"held": {Title: "Held", Text: "held for the request", Tone: "good"}, "settled": {Title: "Settled", Text: "burned", Tone: "good"},
	"released": {Title: "Released", Text: "released", Tone: "warn"}, "lapsed": {Title: "Lapsed", Text: "released because no settlement arrived before the deadline", Tone: "bad"},
}

func (w *pages) showRequest(c *page.Context) (page.View, error) {
	r, err := c.API.Request(c.Acting(), c.Param("request"))
	if err != nil {
		return nil, c.Failed("request", err)
	}
	p, err := c.API.Plan(c.Acting(), r.PlanID)
	if err != nil {
		return nil, c.Failed("request", err)
	}
	own := p.Owner == c.Person.Address
	c.Bought = !own
	var agents []toll.AgentID
	if r.AgentID != nil {
		agents = append(agents, *r.AgentID)
	}
	names, err := w.namesOf(c, []toll.PlanID{r.PlanID}, agents)
	if err != nil {
		return nil, c.Failed("request", err)
	}
	token := page.Cell{ID: r.PermissionHash.String()}
	if r.Payer == c.Person.Address {
		token.To = c.To("tokens", r.PermissionHash.String())
	}
	s := page.Record{Facts: []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: r.AgentRequestID}}, {Label: "Status", Cell: page.Cell{State: page.StateOf(r.Status), Sub: tookText(&r.Settlement)}},
		{Label: "Plan", Cell: planCell(c, names, r.PlanID, own)}, {Label: "Agent", Cell: agentCell(c, names, &r.Settlement, own)},
		{Label: "Subscriber", Cell: page.Cell{ID: r.Payer.String()}}, {Label: "Credits", Cell: creditsOf(&r.Settlement)}, {Label: "Access token", Cell: token},
		{Label: "Started", Cell: page.At(r.CreatedAt.Time)},
	}}
	if r.HoldExpiresAt != nil && r.EndedAt == nil {
		s.Facts = append(s.Facts, page.Fact{Label: "Hold expires", Cell: page.AtOr(r.HoldExpiresAt, "never")})
	}
	if r.RemainingBalance != nil {
		s.Facts = append(s.Facts, page.Fact{Label: "Balance afterward", Cell: page.Credits(*r.RemainingBalance)})
	}
	for _, of := range []struct {
		label string
		tx    *toll.Hash
	}{{"Transaction", r.Transaction}, {"Transaction of the order", r.OrderTx}, {"Proof transaction", r.MirrorTx}} {
		if of.tx != nil {
			s.Facts = append(s.Facts, page.Fact{Label: of.label, Cell: page.Cell{ID: of.tx.String()}})
		}
	}
	for _, one := range r.Steps {
		said := stepWords[one.Status]
		said.Text, said.At = page.Count(int64(one.Credits), "credit")+" "+said.Text+".", one.At.Time
		s.Steps = append(s.Steps, said)
	}
	if r.Status == "held" {
		s.Steps = append(s.Steps, page.Step{Title: "Settled, released, or lapsed"})
	}
	if len(r.Receipt) > 0 && string(r.Receipt) != "null" {
		var text bytes.Buffer
		if json.Indent(&text, r.Receipt, "", "  ") != nil {
			text.Write(r.Receipt)
		}
		s.Snippets = []page.Snippet{{Name: "Receipt", Text: text.String()}}
	}
	if r.Transaction != nil {
		s.Links = []page.Link{{Text: "Check receipt", To: page.PathReceipts + "#" + r.Transaction.String(), Plain: true}}
	}
	return c.Record("Request "+page.Short(r.AgentRequestID), s)
}

// listCalls are the last calls of an API key, as far as this process of the service answered them.
func listCalls(c *page.Context) (page.View, error) {
	k, err := key(c)
	if err != nil {
		return nil, err
	}
	var recent struct {
		Calls []toll.RecentCall `json:"calls"`
		Since toll.Time         `json:"since"`
	}
	err = c.API.Call(c.Acting(), http.MethodGet, "/api/v1"+list.RecentCalls.Under(k.ID.String()).Path, nil, nil, &recent)
	if err != nil {
		return nil, c.Failed("API key", err)
	}
	show, _ := c.Filters(page.Field{Name: "show", Label: "Calls", Options: []page.Option{{Text: "All"}, {Value: "refused", Text: "Refused and failed"}}})
	if show[0].Value != "" {
		recent.Calls = slices.DeleteFunc(recent.Calls, func(call toll.RecentCall) bool { return call.Status < http.StatusBadRequest })
	}
	of := list.RecentCalls.Show("at", "operation", "status", "durationMicros", "correlationId")
	t := page.TableOf(c, of, "call", page.List[toll.RecentCall]{Items: recent.Calls}, func(call toll.RecentCall, cell page.Cells) {
		*cell["operation"] = page.Cell{Text: cmp.Or(call.Operation, "unknown operation"), Sub: strings.TrimSpace(call.Method + " " + call.Path)}
		cell["status"].Sub = string(call.Code)
	})
	t.Pager, t.Empty = nil, &page.Empty{
		Icon: "terminal", Title: "No calls yet", Text: "The last 200 calls with this key appear here, except verify and settle. Those are under Requests.",
	}
	return c.Record("Calls of "+nameOfKey(*k), page.Record{
		Lead:  "The last 200 calls except verify and settle, newest first. This server process has recorded them in memory since " + page.Date(recent.Since.Time) + ".",
		Links: []page.Link{{Text: "API key", To: c.To("keys", k.ID.String()), Plain: true}}, Filter: show, Table: t,
	})
}
