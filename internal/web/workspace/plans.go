package workspace

import (
	"errors"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

func listPlans(c *page.Context) (page.View, error) {
	plans, err := page.ListOf[*toll.Plan](c, list.Plans, nil, page.NameSorts...)
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	return c.Record("Plans", page.Record{
		Lead:  "A plan sets a price and the credits or the time that buyers get for it.",
		Table: plansTable(c, plans, "No plans yet", "Your plans appear here. A plan sets a price and the credits or the time that buyers get for it."),
		Links: append(mayBegin(c, "Create plan", "plans", "new"), file(c, "plans", nil)...),
	})
}

// plansTable returns a table of plans. If there are none, it shows title and text instead.
func plansTable(c *page.Context, plans page.List[*toll.Plan], title, text string) *page.Table {
	const price, credits = "metadata.main.price", "registry.credits.amount"
	t := page.TableOf(c, list.Plans.Show("name", "planId", "isListed", price, credits), "plan", plans, func(p *toll.Plan, cell page.Cells) {
		cell["name"].To = c.To("plans", string(p.ID))
		*cell[price], *cell[credits] = page.Cell{Text: page.PriceOf(p), Num: true}, page.Cell{Text: page.BuysOf(p), Num: true}
	})
	t.Empty = &page.Empty{Icon: "tag", Title: title, Text: text, To: c.To("plans", "new"), Button: "Create plan", Command: "toll plans create --help"}
	return t
}

// perRequest is what one request of a plan burns, with its noun.
func perRequest(p *toll.Plan) string {
	text := page.BurnsOf(p)
	if !p.Kind().Charges() {
		return text
	}
	return text + map[bool]string{false: " credits", true: " credit"}[text == "1"]
}

// bulkCost is what 1,000 requests of a plan cost, and how many orders that is.
func bulkCost(p *toll.Plan) string {
	if !p.Kind().Charges() {
		return "included in the price during the period"
	}
	credits := func(each toll.Credits) *big.Int { return new(big.Int).Mul(big.NewInt(1000), big.NewInt(int64(each))) }
	one := big.NewInt(int64(p.Credits.Amount))
	orders := func(n *big.Int) string { return page.Grouped(roundUp(n, one).String()) }
	cost := func(n *big.Int) string {
		e := income{currency: p.Price.CurrencyName()}
		return e.format(roundUp(new(big.Int).Mul(n, p.Price.Total().Int()), one))
	}
	least, most := credits(p.Credits.MinAmount), credits(p.Credits.MaxAmount)
	between := func(of func(*big.Int) string) string {
		if from, to := of(least), of(most); from != to {
			return from + " to " + to
		}
		return of(most)
	}
	text := between(cost) + " " + p.Price.CurrencyName()
	if p.Price.IsFree() {
		text = "free"
	}
	if !p.Kind().Prepaid() {
		return text
	}
	if n := between(orders); n != "1" {
		return text + " (" + n + " orders)"
	}
	return text + " (1 order)"
}

// roundUp is n / d, rounded up.
func roundUp(n, d *big.Int) *big.Int {
	q, rest := new(big.Int).QuoRem(n, d, new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// Kinds of plans in the form that makes one.
const (
	kindCredits = "credits"
	kindTime    = "time"
	kindAsYouGo = "as-you-go"
)

// kinds are what a plan can sell.
var kinds = []page.Option{
	{Value: kindCredits, Text: "Credits", Hint: "An order grants credits, and requests burn them."},
	{Value: kindTime, Text: "Time", Hint: "An order grants a period of unlimited requests."},
	{Value: kindAsYouGo, Text: "Pay as you go", Hint: "Each request buys the credits that it burns. Buyers pay from a wallet."},
}

// ways are how buyers pay.
var ways = []page.Option{
	{Value: "free", Text: "Free"}, {Value: toll.CurrencyUSD, Text: "Card, in USD"}, {Value: toll.CurrencyEUR, Text: "Card, in EUR"},
	{Value: toll.CurrencyUSDC, Text: "Wallet, in USDC"}, {Value: toll.CurrencyEURC, Text: "Wallet, in EURC"},
	{Value: toll.CurrencyETH, Text: "Wallet, in ETH"},
}

// lengths are units of time, by their seconds.
var lengths = []page.Option{
	{Value: "86400", Text: "days"}, {Value: "604800", Text: "weeks"}, {Value: strconv.Itoa(toll.MonthSecs), Text: "months"},
	{Value: strconv.Itoa(toll.YearSecs), Text: "years"}, {Value: "3600", Text: "hours"},
}

// firstPlan is the initial content of the form of a new plan.
var firstPlan = url.Values{
	"kind": {kindCredits}, "amount": {"100"}, "least": {"1"}, "length": {"1"}, "unit": {strconv.Itoa(toll.MonthSecs)},
	"pay": {toll.CurrencyUSDC}, "price": {"1.00"}, "lifeUnit": {"86400"},
}

// planGroups are the fields that describe a plan.
func planGroups(p *toll.Plan) []page.Group {
	orders := ""
	if p.MaxOrders > 0 {
		orders = strconv.FormatInt(p.MaxOrders, 10)
	}
	return []page.Group{
		{Fields: []page.Field{
			{Name: "name", Label: "Name", Value: p.Metadata.Name, Max: toll.MaxNameRunes, Required: true, Hint: "The name that buyers see."},
			{Name: "description", Label: "Description", Value: p.Metadata.Description, Area: true},
			{Name: "tags", Label: "Tags", Value: strings.Join(p.Metadata.Tags, ", "), Hint: "Separate tags with commas."},
		}},
		{Title: "Limits", Fields: []page.Field{{
			Name: "maxOrders", Label: "Maximum orders", Value: orders, Mode: "numeric", Hint: "For all buyers together. Leave empty for no limit.",
		}}},
	}
}

// termGroups are the fields of the terms of a plan, which never change once it is made.
func termGroups(c *page.Context) []page.Group {
	return []page.Group{
		{Title: "Type", Fields: []page.Field{
			{Name: "kind", Label: "Plan type", Type: "radio", Options: kinds},
			{Name: "trial", Label: "Trial: each subscriber can order the plan once", Type: "checkbox", Members: []string{"isTrialPlan"}},
		}},
		{For: kindCredits, Fields: []page.Field{
			{Name: "amount", Label: "Credits per order", Mode: "numeric"},
			{Name: "life", Label: "Expires after", Mode: "numeric", Hint: "Leave empty if credits never expire.", Members: []string{"durationSecs"}},
			{Name: "lifeUnit", Label: "Unit", Options: lengths},
		}},
		{For: kindTime, Fields: []page.Field{
			{Name: "length", Label: "Period", Mode: "numeric"}, {Name: "unit", Label: "Unit", Options: lengths},
		}},
		{For: kindCredits + " " + kindAsYouGo, Fields: []page.Field{
			{Name: "least", Label: "Credits per request: minimum", Mode: "numeric", Members: []string{"minAmount"}},
			{
				Name: "most", Label: "Credits per request: maximum", Mode: "numeric", Members: []string{"maxAmount"},
				Hint: "Leave empty if every request burns the minimum. Otherwise, your server chooses an amount between the two for each request.",
			},
		}},
		{Title: "Price", Fields: []page.Field{
			{Name: "pay", Label: "Payment method", Options: ways, Members: []string{"currency", "isCrypto", "tokenAddress", "templateAddress"}},
			{
				Name: "price", Label: "Price", Mode: "decimal", Members: []string{"amounts"},
				Hint: "Price per order (per credit for pay-as-you-go). Card payments start at 1.00.",
			},
			{
				Name: "receiver", Label: "Payout wallet", Members: []string{"receivers"},
				Hint: "Leave empty to use this workspace's wallet, " + c.Person.Address.String() + ".",
			},
		}},
	}
}

// planNew is the page that creates a plan: its form and the preview for buyers.
type planNew struct {
	Form  *page.Form
	Offer *offerCard
}

// offerCard is a plan as a buyer sees it.
type offerCard struct {
	Name, Text, Price, Unit, Buys string
	Ticks                         []string
	Bulk                          string
}

func askPlan(c *page.Context) (page.View, error) {
	if c.R.Method != http.MethodPost {
		c.Form = firstPlan
	}
	in, err := planInput(c)
	body := planNew{}
	if err == nil {
		body.Offer, err = previewOf(c, in)
	}
	describes := planGroups(&toll.Plan{})
	groups := slices.Concat(describes[:1], termGroups(c), describes[1:])
	body.Form = c.FormOf("make", "Create plan", groups...)
	body.Form.Fill(c.Form)
	body.Form.Cancel, body.Form.Live, body.Form.Second = c.To("plans"), true, &page.Option{Value: "preview", Text: "Preview"}
	if err != nil && c.R.Method == http.MethodPost && c.Refusal == nil {
		if c.Fault = body.Form.Refuse(err); c.Form.Get("preview") != "live" { // a script asks while a person types
			c.Status = http.StatusBadRequest
		}
	}
	return c.Draw("Create plan", body)
}

// previewOf is what the plan of an input looks like. A plan without a name yet has one for show.
func previewOf(c *page.Context, in toll.PlanInput) (*offerCard, error) {
	if in.Name == nil || *in.Name == "" {
		name := "Your plan"
		in.Name = &name
	}
	p, err := in.Plan(c.Person.Address, c.Clock())
	if err != nil {
		return nil, err
	}
	card := &offerCard{
		Name: page.NameOf(p.Metadata.Name), Text: plain.Name(p.Metadata.Description), Price: page.Grouped(p.Price.Text()),
		Unit: p.Price.CurrencyName(), Buys: page.BuysOf(&p), Bulk: bulkCost(&p),
	}
	if p.Price.IsFree() {
		card.Price, card.Unit = "Free", ""
	}
	if !p.Kind().Prepaid() {
		card.Buys = "each credit"
	}
	switch {
	case !p.Kind().Charges():
		card.Ticks = append(card.Ticks, "Unlimited requests for "+page.Span(p.Credits.DurationSecs))
	default:
		card.Ticks = append(card.Ticks, perRequest(&p)+" per request")
		if p.Credits.DurationSecs.IsZero() {
			card.Ticks = append(card.Ticks, "Unused credits never expire")
		} else {
			card.Ticks = append(card.Ticks, "Unused credits expire after "+page.Span(p.Credits.DurationSecs))
		}
	}
	if p.IsTrial {
		card.Ticks = append(card.Ticks, "Trial: you can order the plan once")
	}
	if p.MaxOrders > 0 {
		card.Ticks = append(card.Ticks, "Limited to "+page.Count(p.MaxOrders, "order"))
	}
	return card, nil
}

// number reads a field with a whole number above 0; none is 0.
func number(c *page.Context, name string) (toll.Credits, error) {
	text := c.Text(name)
	if text == "" {
		return 0, nil
	}
	n, err := toll.ParseCredits(text)
	if err != nil || n < 1 {
		return 0, page.OneFault(name, "must be a whole number of at least 1; got "+strconv.Quote(plain.Name(text)))
	}
	return n, nil
}

// duration reads a number of units of time, in seconds; none is 0.
func duration(c *page.Context, name, unit string) (toll.Units, error) {
	n, err := number(c, name)
	secs, err2 := strconv.ParseInt(c.Form.Get(unit), 10, 64)
	if err2 != nil || !page.HasOption(lengths, c.Form.Get(unit)) {
		err = page.Together(err, page.OneFault(unit, "must be one of the options"))
	}
	if err != nil {
		return toll.Units{}, err
	}
	u, err := toll.ParseUnits(new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(secs)).String())
	return u, err
}

// describedPlan reads the fields that describe a plan.
func describedPlan(c *page.Context) (name, text string, tags []string, orders *toll.Int, err error) {
	most, err := number(c, "maxOrders")
	if most > 0 {
		n := toll.Int(most)
		orders = &n
	}
	return c.Text("name"), c.Text("description"), c.Words("tags"), orders, err
}

// planInput is the body that registers the plan of the form.
func planInput(c *page.Context) (toll.PlanInput, error) {
	name, text, tags, orders, err1 := describedPlan(c)
	trial := toll.Bool(c.Text("trial") != "")
	in := toll.PlanInput{Name: &name, Description: &text, Tags: tags, MaxOrders: orders, IsTrialPlan: &trial}
	kind := c.Form.Get("kind")
	price, err2 := priceInput(c, kind)
	terms, limit, err3 := creditsInput(c, kind)
	in.PriceConfig, in.CreditsConfig, in.AccessLimit = price, terms, &toll.LimitInput{Limit: limit}
	return in, page.Together(err1, err2, err3)
}

func priceInput(c *page.Context, kind string) (*toll.PriceInput, error) {
	way := c.Form.Get("pay")
	if way == "free" {
		free := "FREE"
		if kind == kindAsYouGo {
			return nil, page.OneFault("pay", "must not be free for pay-as-you-go")
		}
		return &toll.PriceInput{PriceType: &free}, nil
	}
	if !page.HasOption(ways, way) {
		return nil, page.OneFault("pay", "must be one of the options")
	}
	units, err := toll.ParseAmount(c.Text("price"), decimalsOf(way))
	if err != nil {
		return nil, page.OneFault("price", "must be an amount such as 1.00; got "+strconv.Quote(plain.Name(c.Text("price"))))
	}
	crypto := toll.Bool(way != toll.CurrencyUSD && way != toll.CurrencyEUR)
	p := &toll.PriceInput{Amounts: []toll.Units{units}, IsCrypto: &crypto}
	switch way {
	case toll.CurrencyUSDC:
		token := c.Environment.USDC()
		p.TokenAddress = &token
	case toll.CurrencyEURC:
		token := c.Environment.EURC()
		p.TokenAddress = &token
	case toll.CurrencyUSD, toll.CurrencyEUR:
		p.Currency = &way
	}
	if kind == kindAsYouGo {
		if !crypto {
			return nil, page.OneFault("pay", "must be a wallet for pay-as-you-go")
		}
		template := toll.PayAsYouGoTemplate
		p.TemplateAddress = &template
	}
	if text := c.Text("receiver"); text != "" {
		to, err := toll.ParseAddress(text)
		if err != nil {
			return nil, page.OneFault("receiver", "must be 0x followed by 40 hexadecimal digits")
		}
		p.Receivers = []toll.Address{to}
	}
	return p, nil
}

func creditsInput(c *page.Context, kind string) (*toll.CreditsInput, toll.AccessLimit, error) {
	if kind == kindTime {
		secs, err := duration(c, "length", "unit")
		return &toll.CreditsInput{DurationSecs: &secs}, toll.LimitTime, err
	}
	if kind != kindCredits && kind != kindAsYouGo {
		return nil, "", page.OneFault("kind", "must be one of the options")
	}
	least, err1 := number(c, "least")
	most, err2 := number(c, "most")
	if most == 0 {
		most = least
	}
	fixed := toll.Bool(most == least && kind == kindCredits)
	input := &toll.CreditsInput{MinAmount: &least, MaxAmount: &most, IsRedemptionAmountFixed: &fixed}
	amount, secs, err3, err4 := toll.Credits(1), toll.Units{}, error(nil), error(nil)
	if kind == kindCredits {
		amount, err3 = number(c, "amount")
		secs, err4 = duration(c, "life", "lifeUnit")
	}
	input.Amount, input.DurationSecs = &amount, &secs
	return input, toll.LimitCredits, page.Together(err1, err2, err3, err4)
}

func registerPlan(c *page.Context) (page.View, error) {
	if c.Form.Get("preview") != "" {
		return askPlan(c)
	}
	return c.Finish(func() (page.Outcome, error) {
		in, err := planInput(c)
		if err != nil {
			return page.Outcome{}, err
		}
		var made client.Registered
		if err := c.API.Call(c.Acting(), http.MethodPost, "/api/v1/protocol/plans", nil, in, &made); err != nil {
			return page.Outcome{}, err
		}
		return page.Outcome{To: c.To("plans", string(made.PlanID)), Done: "Plan created. Buyers can order it now."}, nil
	})
}

// plan returns the plan of the page.
func plan(c *page.Context) (*toll.Plan, error) {
	id, err := toll.ParsePlanID(c.Param("plan"))
	var p *toll.Plan
	if err == nil {
		p, err = c.API.Plan(c.Acting(), id)
	}
	if err == nil && p.Owner != c.Person.Address {
		return nil, c.Missing("plan")
	}
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	return p, nil
}

func askPlanEdit(c *page.Context) (page.View, error) {
	p, err := plan(c)
	if err != nil {
		return nil, err
	}
	f := c.FormOf("edit", "Save", planGroups(p)...)
	f.Cancel, f.Hidden = c.To("plans", string(p.ID)), versionOf(p.Version)
	return c.Record("Edit "+page.NameOf(p.Metadata.Name), page.Record{
		Lead: "You cannot change the price or the credits of a plan, because buyers rely on them. For other terms, create a new plan and unlist this plan.", Forms: []*page.Form{f},
	})
}

func editPlan(c *page.Context) (page.View, error) {
	p, err := plan(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (page.Outcome, error) {
		name, text, tags, orders, err1 := describedPlan(c)
		ctx, err2 := unlessChanged(c)
		if err := page.Together(err1, err2); err != nil {
			return page.Outcome{}, err
		}
		u := toll.PlanUpdate{
			Name: toll.SetTo(name), Description: toll.SetTo(text), Tags: toll.SetTo(tags), MaxOrders: toll.Clear[toll.Int](),
		}
		if orders != nil {
			u.MaxOrders = toll.SetTo(*orders)
		}
		_, err := c.API.UpdatePlan(ctx, p.ID, u)
		return page.Outcome{To: c.To("plans", string(p.ID)), Done: "Plan saved."}, err
	})
}

func actOnPlan(c *page.Context) (page.View, error) {
	p, err := plan(c)
	if err != nil {
		return nil, err
	}
	return c.Finish(func() (out page.Outcome, err error) {
		out.To = c.To("plans", string(p.ID))
		switch c.Form.Get("act") {
		case "list":
			out.Done = "Plan listed."
			_, err = c.API.SetPlanListed(c.Acting(), p.ID, true)
		case "unlist":
			out.Done = "Plan unlisted. It accepts no new orders, and its credits keep working."
			_, err = c.API.SetPlanListed(c.Acting(), p.ID, false)
		case "attach":
			out.Done = "Plan attached."
			_, err = c.API.AttachPlan(c.Acting(), toll.AgentID(c.Form.Get("agent")), p.ID)
		case "mint", "take":
			out.Done, err = moveCredits(c, p)
		default:
			err = toll.NewError(toll.CodeBadRequest)
		}
		return out, err
	})
}

// moveCredits mints credits of a plan to an address, or takes them back from it.
func moveCredits(c *page.Context, p *toll.Plan) (done string, err error) {
	holder, err1 := toll.ParseAddress(c.Text("holder"))
	if err1 != nil {
		err1 = page.OneFault("holder", "must be 0x followed by 40 hexadecimal digits")
	}
	n, err2 := number(c, "credits")
	if n == 0 && err2 == nil {
		err2 = page.OneFault("credits", "is required")
	}
	days, err3 := number(c, "days")
	if days > 36_500 {
		err3 = page.OneFault("days", "must be at most 36,500")
	}
	if err := page.Together(err1, err2, err3); err != nil {
		return "", err
	}
	if c.Form.Get("act") == "take" {
		_, err = c.API.TakeBack(c.Acting(), p.ID, holder, n)
		return page.Count(int64(n), "credit") + " taken back from " + page.Short(holder.String()) + ".", err
	}
	_, err = c.API.Mint(c.Acting(), p.ID, holder, n, time.Duration(days)*24*time.Hour)
	return page.Count(int64(n), "credit") + " minted to " + page.Short(holder.String()) + ".", err
}

func actsOfPlan(c *page.Context, p *toll.Plan) (acts []page.Dialog) {
	holder := page.Field{Name: "holder", Label: "Subscriber address", Required: true, Members: []string{"creditsReceiver", "holderAddress"}}
	amount := page.Field{Name: "credits", Label: "Credits", Mode: "numeric", Required: true, Members: []string{"amount", "creditsAmount"}}
	if c.Person.Rights.Has(toll.RightManage) {
		acts = append(acts, c.DialogOf("mint", "Mint credits", "Gives credits to an address without an order or a payment.", holder, amount,
			page.Field{Name: "days", Label: "Expires after", Unit: "days", Mode: "numeric", Hint: "Leave empty if credits never expire.", Members: []string{"creditsDuration"}}))
	}
	if c.Person.Rights.Has(toll.RightMoney) {
		acts = append(acts, c.DangerOf("take", "Take back credits", "You can take back unused credits that you minted or that came with a free order, but not held credits. To take back paid credits, refund the order.", holder, amount))
	}
	switch {
	case !c.Person.Rights.Has(toll.RightManage):
	case p.IsListed:
		acts = append(acts, c.DangerOf("unlist", "Unlist", "The plan accepts no new orders. Its credits keep working."))
	default:
		acts = append(acts, c.DialogOf("list", "List", "Buyers can find and order the plan."))
	}
	return acts
}

func (w *pages) showPlan(c *page.Context) (page.View, error) {
	plan, err := plan(c)
	if err != nil {
		return nil, err
	}
	p, q, id := page.PeriodOf(c), planQuery(plan.ID), string(plan.ID)
	paid, err1 := revenue(c, p, q)
	u, err2 := usage(c, p, q)
	refused, err3 := refusals(c, p, q)
	subscribers, err4 := page.ListOf[toll.Balance](c, list.Subscribers.Under(id), nil)
	orders, err5 := page.PartOf[*toll.Order](c, list.Orders, url.Values{"role": {"seller"}, "planId": {id}, "pageSize": {strconv.Itoa(mostRecent)}})
	agents, err6 := page.PartOf[*toll.Agent](c, list.AgentsOfPlan.Under(id), url.Values{"pageSize": {strconv.Itoa(mostRecent)}})
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, c.Failed("plan", err)
	}
	holders, err := w.subscribersTable(c, subscriberColumns.Show("holderAddress", "available", "held", "used", "seen"), subscribers)
	if err != nil {
		return nil, c.Failed("plan", err)
	}
	holders.Empty = &page.Empty{
		Icon: "users", Title: "No subscribers yet", Text: "Subscribers of this plan appear here with their remaining credits.", To: "/p/" + id, Button: "View public page",
		Command: "toll subscribers " + id,
	}
	ordersTable := ordersTable(c, orders)
	ordersTable.Pager = nil
	ordersTable.Empty = &page.Empty{Icon: "shopping-cart", Title: "No orders yet", Text: "Orders for this plan appear here."}
	agentsTable := agentsTable(c, agents)
	agentsTable.Pager = nil
	agentsTable.Empty = &page.Empty{Icon: "bot", Title: "No agents", Text: noAgent, To: c.To("agents"), Button: "Your agents", Command: ""}
	acts, note := actsOfPlan(c, plan), ""
	if len(agents.Items) == 0 {
		note = noAgent + " Attach the plan to an agent so that subscribers can spend its credits there. The catalog lists plans only with their agents."
		if c.Person.Rights.Has(toll.RightManage) {
			attach, err := attachDialog(c)
			if err != nil {
				return nil, c.Failed("plan", err)
			}
			acts = append([]page.Dialog{attach}, acts...)
		}
	}
	limit := "no limit"
	if plan.MaxOrders > 0 {
		limit = page.Count(plan.MaxOrders, "order")
	}
	facts := []page.Fact{
		{Label: "ID", Cell: page.Cell{ID: id}}, {Label: "Status", Cell: page.Cell{State: page.ListedState(plan.IsListed)}}, {Label: "Price", Cell: page.Cell{Text: page.PriceOf(plan)}}, {Label: "Per order", Cell: page.Cell{Text: page.BuysOf(plan)}},
		{Label: "Per request", Cell: page.Cell{Text: perRequest(plan)}}, {Label: "Cost of 1,000 requests", Cell: page.Cell{Text: bulkCost(plan)}}, {Label: "Maximum orders", Cell: page.Cell{Text: limit}},
		{Label: "Created", Cell: page.At(plan.CreatedAt)},
	}
	if plan.IsTrial {
		facts = slices.Insert(facts, 2, page.Fact{Label: "Trial", Cell: page.Cell{Text: "one order per subscriber"}})
	}
	if plan.Credits.OnchainMirror {
		facts = append(facts, page.Fact{Label: "On-chain proofs", Cell: page.Cell{
			Text: "for each burn", To: c.To("requests") + "?status=settled&planId=" + id, Sub: "linked from the receipt of each request",
		}})
	}
	for _, to := range plan.Price.Receivers {
		facts = append(facts, page.Fact{Label: "Payout wallet", Cell: page.Cell{ID: to.String()}})
	}
	return c.Record(page.NameOf(plan.Metadata.Name), page.Record{
		Lead: plain.Name(plan.Metadata.Description),
		Links: slices.Concat(mayBegin(c, "Edit", "plans", id, "edit"), []page.Link{
			{Text: "Public page", To: "/p/" + id, Plain: true}, {Text: "Requests", To: c.To("requests") + "?planId=" + id, Plain: true},
		}, file(c, "subscribers", url.Values{"plan": {id}})),
		Range: page.Ranges(c, p), Stats: slices.Concat(revenueStats(paid, c.To("revenue")+"?plan="+id), u.stats(), []page.Stat{refused.stat()}),
		Facts: facts, Note: note, Acts: acts,
		Parts: []page.Part{
			{Title: "Subscribers", Table: holders}, {Title: "Recent orders", Table: ordersTable}, {Title: "Agents", Table: agentsTable},
			{Title: "Refusals by reason", Table: refused.table(c)},
		},
	})
}
