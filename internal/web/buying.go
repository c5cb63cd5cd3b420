package web

import (
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

// buyingPages are what a workspace holds of the plans of others, and the access tokens that spend it.
func buyingPages() []areaPage {
	return []areaPage{
		{
			Path: "/holdings", Title: "My plans", Template: "sheet", Group: groupBuy, Nav: "My plans", Icon: "coins", Key: "h",
			Right: toll.RightRead, Get: listHoldings,
		},
		{
			Path: "/holdings/{plan}", Template: "sheet", Under: "/holdings", Right: toll.RightRead, Act: toll.RightSpend,
			Get: showHolding, Post: topUp,
		},
		{
			Path: "/tokens", Title: "Access tokens", Template: "sheet", Group: groupBuy, Nav: "Access tokens", Icon: "badge-check", Key: "t",
			Right: toll.RightRead, Get: listTokens,
		},
		{
			Path: "/tokens/new", Title: "Make an access token", Template: "sheet", Under: "/tokens", Right: toll.RightSpend,
			Get: askToken, Post: makeToken,
		},
		{
			Path: "/tokens/{token}", Template: "sheet", Under: "/tokens", Right: toll.RightRead, Act: toll.RightSpend,
			Get: showToken, Post: endToken,
		},
	}
}

func listHoldings(v *visit) {
	list, pace, err := held(v, v.listPage())
	if v.narrowed(err) {
		return
	}
	v.sheet("My plans", sheet{
		Lead:  "Plans of others that this workspace bought, what is left of them, and how long it lasts at the pace of the last 7 days.",
		Table: heldTable(v, list, pace), Links: file(v, "holdings", nil),
	})
}

// paceDays are the days whose use says how long credits last.
const paceDays = 7

// held reads what the workspace has of the plans of others, and what requests burned of each in the last days.
func held(v *visit, page store.Page) (list store.List[*toll.Balance], pace map[toll.PlanID]*big.Int, err error) {
	q := url.Values{}
	setPage(q, page)
	list, err = partOf[*toll.Balance](v, "/protocol/holdings", "holdings", q)
	pace = map[toll.PlanID]*big.Int{}
	if err != nil || len(list.Items) == 0 {
		return list, pace, err
	}
	of := checkout.UsageQuery{AsBuyer: true, By: store.ByPlan, Until: v.w.Clock().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)}
	of.Since = of.Until.Add(-paceDays * 24 * time.Hour)
	rows, err := everyOf(func(page store.Page) (store.List[*toll.Usage], error) {
		of.Page = page
		list, _, err := v.w.Checkout.Usage(v.ctx(), v.person.Address, of)
		return list, err
	})
	for _, r := range rows {
		pace[r.PlanID] = r.Credits.Int()
	}
	return list, pace, err
}

func heldTable(v *visit, list store.List[*toll.Balance], pace map[toll.PlanID]*big.Int) *table {
	t := &table{
		Caption: "My plans",
		Head: []column{
			{Text: "Plan"}, {Text: "Available", Num: true}, {Text: "Held", Num: true}, {Text: "Burned in 7 days", Num: true}, {Text: "Lasts until"},
			{Text: "Ends"},
		},
		Empty: &empty{"coins", "You hold no plan", "Buy a plan, and its balance appears here.", PathExplore, "Find a plan", "toll plans order --help"},
		Pager: v.pagerOf(list.Total, list.Next, "plan"),
	}
	for _, b := range list.Items {
		burned, lasts := credits(0), cell{Text: "its end"}
		if n := pace[b.PlanID]; n != nil {
			burned.Number = n.String()
		}
		switch at := lastsUntil(v, b, pace[b.PlanID]); {
		case !b.PlanType.Kind().Charges():
		case !at.IsZero():
			lasts = cell{At: at}
		case b.Available == 0:
			lasts = cell{Text: "used up"}
		default:
			lasts = cell{Text: "not used now"}
		}
		t.Rows = append(t.Rows, []cell{
			{Text: nameOf(b.PlanName), To: v.to("holdings", string(b.PlanID))}, credits(b.Available), credits(b.Held), burned, lasts, atOr(b.ExpiresAt, "never"),
		})
	}
	return t
}

// lastsUntil is when the credits of a plan run out if requests burn as many as in the last days; zero where nothing says so.
func lastsUntil(v *visit, b *toll.Balance, burned *big.Int) time.Time {
	if burned == nil || burned.Sign() == 0 || !b.PlanType.Kind().Charges() || b.Available == 0 {
		return time.Time{}
	}
	hours := new(big.Int).Mul(big.NewInt(int64(b.Available)), big.NewInt(paceDays*24))
	hours.Quo(hours, burned)
	const most = 10 * 365 * 24
	if hours.Cmp(big.NewInt(most)) > 0 {
		hours.SetInt64(most)
	}
	return v.w.Clock().Add(time.Duration(hours.Int64()) * time.Hour)
}

// endingCredits are the plans whose credits run out soon.
func endingCredits(v *visit, list store.List[*toll.Balance], pace map[toll.PlanID]*big.Int) (out []task) {
	now := v.w.Clock()
	for _, b := range list.Items {
		at := lastsUntil(v, b, pace[b.PlanID])
		if at.IsZero() || at.After(now.Add(lowCredits)) {
			continue
		}
		out = append(out, task{
			"warn", "The credits of " + nameOf(b.PlanName) + " run out " + ago(at, now), count(int64(b.Available), "credit") + " left, at the pace of the last 7 days.",
			v.to("holdings", string(b.PlanID)), "Top up",
		})
	}
	return out
}

// lowCredits is how long before its credits run out a plan needs attention.
const lowCredits = 3 * 24 * time.Hour

// limits are what delegations that can pay now spent of their limits.
func limits(v *visit) (out []bar, err error) {
	list, err := partOf[*toll.Delegation](v, "/delegation", "delegations", url.Values{"accessible": {"true"}, "pageSize": {strconv.Itoa(mostRecent)}})
	for _, d := range list.Items {
		out = append(out, spentOf("Delegation "+short(d.DelegationID), d))
	}
	return out, err
}

// heldPlan returns the plan of the page. It has answered when ok is false.
func heldPlan(v *visit) (p *toll.Plan, ok bool) {
	id, err := toll.ParsePlanID(v.param("plan"))
	if err == nil {
		p, err = v.w.API.Plan(v.acting(), id)
	}
	return p, !v.failed("plan", err)
}

func showHolding(v *visit) {
	p, ok := heldPlan(v)
	if !ok {
		return
	}
	b, err := v.w.API.Balance(v.acting(), p.ID)
	if v.failed("plan", err) {
		return
	}
	days := period{Until: v.w.Clock().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour), Step: 24 * time.Hour}
	days.Since = days.Until.Add(-ownUsual)
	used, err := usage(v, days, checkout.UsageQuery{AsBuyer: true, Plan: p.ID})
	if v.failed("plan", err) {
		return
	}
	tokens, err := tokensOf(v, url.Values{"planId": {string(p.ID)}})
	if v.narrowed(err) {
		return
	}
	s := sheet{
		Stats: []stat{
			{Label: "Available", Value: grouped(b.Available.String()), Unit: "credits"},
			{Label: "Held for requests", Value: grouped(b.Held.String())}, {Label: "Used", Value: grouped(b.Used.String())},
			{Label: "Granted", Value: grouped(b.Total.String())},
		},
		Facts: []fact{
			{"Id", cell{ID: string(p.ID)}}, {"Sold by", cell{ID: p.Owner.String()}}, {"Price", cell{Text: priceOf(p)}},
			{"Buys", cell{Text: buys(p)}}, {"A request burns", cell{Text: burns(p)}}, {"Ends", atOr(b.ExpiresAt, "never")},
		},
	}
	if !p.Kind().Charges() {
		s.Stats = nil
	} else {
		week := numbers(used.credits.now[len(used.credits.now)-paceDays:]).total()
		s.Facts = append(s.Facts, fact{"Lasts until", atOr(toll.AtPtr(lastsUntil(v, b, week)), "not known: nothing was burned in the last 7 days")})
		s.Charts = []*chart{newChart("Credits burned in 30 days", days, used.credits, plainNumber)}
	}
	if len(b.Lots) > 0 {
		t := &table{Caption: "Credits by end", Head: []column{{Text: "Ends"}, {Text: "Left", Num: true}, {Text: "Granted", Num: true}}}
		for _, l := range b.Lots {
			t.Rows = append(t.Rows, []cell{atOr(l.ExpiresAt, "never"), credits(l.Remaining), credits(l.Amount)})
		}
		s.Parts = append(s.Parts, part{"Credits by end", t})
	}
	if v.person.Rights.Has(toll.RightSpend) {
		s.Links = []link{{Text: "Make an access token", To: v.to("tokens", "new") + "?plan=" + url.QueryEscape(string(p.ID)), Plain: true}}
		s.Acts, s.Note = orderDialog(v, p)
	}
	s.Parts = append(s.Parts, part{"Access tokens", tokens})
	v.sheet(nameOf(p.Metadata.Name), s)
}

// orderDialog orders a plan once more, or says why that does not go here.
func orderDialog(v *visit, p *toll.Plan) ([]dialog, string) {
	o := &offer{plan: p, Price: priceOf(p)}
	v.w.orders(v.person, o)
	payers := field{Name: "payer", Label: "Paid by", Members: []string{"delegationId"}}
	if o.Order != "" {
		payers.Options = append(payers.Options, option{Value: "", Text: map[bool]string{true: "The wallet of this workspace", false: "A card, on the next page"}[p.Price.IsCrypto]})
	}
	if p.Price.IsFree() {
		payers.Options = []option{{Value: "", Text: "Nothing: it is free"}}
	} else {
		payers.Options = append(payers.Options, purseOptions(v, p.ID)...)
	}
	if len(payers.Options) == 0 || !p.Kind().Prepaid() {
		return nil, o.Why
	}
	return []dialog{v.dialogOf("order", "Order", "One order costs "+priceOf(p)+" and buys "+buys(p)+".", payers)}, o.Why
}

// purseOptions are the delegations that can pay a plan.
func purseOptions(v *visit, plan toll.PlanID) (out []option) {
	for d, err := range v.w.API.Delegations(v.acting(), client.Accessible()) {
		if err != nil || len(out) == mostOffers {
			return out
		}
		if d.PlanID == nil || *d.PlanID == plan || plan == "" {
			out = append(out, option{
				Value: d.DelegationID,
				Text:  "Delegation " + short(d.DelegationID) + ", " + centsText(d.RemainingBudgetCents, d.Currency) + " left",
			})
		}
	}
	return out
}

func topUp(v *visit) {
	p, ok := heldPlan(v)
	if !ok {
		return
	}
	v.finish(func() (outcome, error) {
		if v.form.Get("act") != "order" {
			return outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		payer := v.form.Get("payer")
		if payer == "" && !p.Price.IsCrypto && !p.Price.IsFree() {
			back := v.origin() + v.to("holdings", string(p.ID))
			made, err := v.w.API.Checkout(v.once(), p.ID, client.CheckoutParams{SessionType: "hosted", SuccessURL: back, CancelURL: back})
			if err != nil {
				return outcome{}, err
			}
			return outcome{To: made.Result.URL}, nil
		}
		var by []client.OrderOption
		if payer != "" {
			by = append(by, client.PaidBy(payer))
		}
		o, err := v.w.API.OrderPlan(v.once(), p.ID, by...)
		if err != nil {
			return outcome{}, err
		}
		return outcome{To: v.to("orders", o.OrderID), Done: "The plan is ordered."}, nil
	})
}

// tokensOf is a table of access tokens.
func tokensOf(v *visit, q url.Values) (*table, error) {
	list, err := listOf[*toll.Permission](v, "/x402/permissions", "permissions", q)
	t := &table{
		Caption: "Access tokens",
		Head:    []column{{Text: "Token"}, {Text: "Plan"}, {Text: "State"}, {Text: "Used", Num: true}, {Text: "Limit", Num: true}, {Text: "Ends"}},
		Empty: &empty{
			"badge-check", "No access tokens", "An access token lets one program spend credits of a plan, within a limit.", "", "",
			"toll tokens create --help",
		},
		Pager: v.pagerOf(list.Total, list.Next, "token"),
	}
	for _, p := range list.Items {
		limit := cell{Text: "none", Num: true}
		if p.MaxCredits != nil {
			limit = credits(*p.MaxCredits)
		}
		t.Rows = append(t.Rows, []cell{
			{ID: p.PermissionHash.String(), To: v.to("tokens", p.PermissionHash.String())},
			{ID: string(p.PlanID), To: v.to("holdings", string(p.PlanID))}, {State: stateOf(p.Status)}, credits(p.UsedCredits), limit,
			{At: p.ExpiresAt.Time},
		})
	}
	return t, err
}

func listTokens(v *visit) {
	states := []option{{Value: "", Text: "All"}}
	for _, s := range []toll.PermissionStatus{toll.StatusActive, toll.StatusRevoked, toll.StatusExpired, toll.StatusExhausted} {
		states = append(states, option{Value: string(s), Text: string(s)})
	}
	filter, q := v.filters(field{Name: "status", Label: "State", Options: states}, field{Name: "planId", Label: "Plan", Max: 80})
	t, err := tokensOf(v, q)
	if v.narrowed(err) {
		return
	}
	s := sheet{Lead: "What lets a program spend credits, within a limit and for a time.", Filter: filter, Table: t}
	if v.person.Rights.Has(toll.RightSpend) {
		s.begin("Make an access token", v.to("tokens", "new"))
	}
	s.Links = append(s.Links, file(v, "tokens", q)...)
	v.sheet("Access tokens", s)
}

// tokenLives are the ends that an access token can have, by seconds.
var tokenLives = []option{
	{Value: "86400", Text: "In a day"}, {Value: "3600", Text: "In an hour"}, {Value: "604800", Text: "In a week"},
	{Value: "2592000", Text: "In 30 days"}, {Value: "31536000", Text: "In a year"},
}

func askToken(v *visit) {
	plans := field{Name: "plan", Label: "Plan", Value: v.r.URL.Query().Get("plan"), Members: []string{"planId"}}
	for b, err := range v.w.API.Holdings(v.acting()) {
		if v.failed("plan", err) {
			return
		}
		if len(plans.Options) == 100 {
			break
		}
		plans.Options = append(plans.Options, option{Value: string(b.PlanID), Text: nameOf(b.PlanName) + ", " + count(int64(b.Available), "credit")})
	}
	if v.form.Get("plan") != "" {
		plans.Value = v.form.Get("plan")
	}
	if id := plans.Value; id != "" && !hasOption(plans.Options, id) {
		plans.Options = append(plans.Options, option{Value: id, Text: id})
	}
	if len(plans.Options) == 0 {
		plans.Hint, plans.Options = "The workspace holds none; type the id of a free plan.", nil
	}
	fields := []field{
		plans,
		{Name: "limit", Label: "Limit", Unit: "credits", Mode: "numeric", Hint: "The most that it may burn. Empty: all that there is.", Members: []string{"redemptionLimit"}},
		{Name: "ends", Label: "Ends", Options: tokenLives, Members: []string{"expiresInSecs"}},
		{Name: "agent", Label: "Agent", Max: 100, Hint: "The id of the one agent at which it is good. Empty: every agent of the plan.", Members: []string{"agentId"}},
	}
	if purses := purseOptions(v, ""); len(purses) > 0 {
		fields = append(fields,
			field{
				Name: "purse", Label: "Automatic top-up", Hint: "What buys the plan again when its credits run out.",
				Options: append([]option{{Value: "", Text: "None"}}, purses...), Members: []string{"delegationConfig", "delegationId"},
			},
			field{Name: "orders", Label: "Most orders", Mode: "numeric", Hint: "How often it may buy the plan again. Empty: as often as the delegation pays.", Members: []string{"orderLimit"}},
		)
	}
	f := v.formOf("make", "Make the token", group{Fields: fields})
	f.Cancel = v.to("tokens")
	v.sheet("Make an access token", sheet{Lead: "The token is shown once, when it is made.", Forms: []*form{f}})
}

func makeToken(v *visit) {
	v.finish(func() (outcome, error) {
		life, err1 := seconds(v, "ends", tokenLives)
		limit, err2 := number(v, "limit")
		if err := together(err1, err2); err != nil {
			return outcome{}, err
		}
		with := []client.TokenOption{client.WithExpiry(life)}
		if limit > 0 {
			with = append(with, client.WithRedemptionLimit(limit))
		}
		if id := v.text("agent"); id != "" {
			with = append(with, client.WithAgent(toll.AgentID(id)))
		}
		if id := v.form.Get("purse"); id != "" {
			with = append(with, client.WithDelegation(id))
		}
		if text := v.text("orders"); text != "" {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return outcome{}, oneFault("orders", "must be a number of orders, 0 or more")
			}
			with = append(with, client.WithOrderLimit(n))
		}
		t, err := v.w.API.AccessToken(v.acting(), toll.PlanID(v.text("plan")), with...)
		if err != nil {
			return outcome{}, err
		}
		return outcome{
			To: v.to("tokens", t.PermissionHash.String()), Done: "The access token is made.", Secret: &secret{"The access token", t.AccessToken},
		}, nil
	})
}

// token returns the permission of the page. It has answered when ok is false.
func token(v *visit) (p *toll.Permission, ok bool) {
	hash, err := toll.ParseHash(v.param("token"))
	if err == nil {
		p, err = v.w.API.Permission(v.acting(), hash)
	}
	return p, !v.failed("access token", err)
}

func showToken(v *visit) {
	p, ok := token(v)
	if !ok {
		return
	}
	s := sheet{Facts: []fact{
		{"Id", cell{ID: p.PermissionHash.String()}}, {"State", cell{State: stateOf(p.Status)}},
		{"Plan", cell{ID: string(p.PlanID), To: v.to("holdings", string(p.PlanID))}}, {"Good at", goodAt(v, p)},
		{"Burned", cell{Number: p.UsedCredits.String(), Sub: limitText(p.MaxCredits)}}, {"Made", madeBy(v, p)}, {"Ends", cell{At: p.ExpiresAt.Time}},
	}}
	if p.MaxCredits != nil && *p.MaxCredits > 0 {
		s.Bars = []bar{{"Credits", int64(p.UsedCredits), int64(*p.MaxCredits), grouped(p.UsedCredits.String()) + " of " + grouped(p.MaxCredits.String())}}
	}
	if p.DelegationID != nil {
		s.Facts = append(s.Facts, fact{"Automatic top-up", cell{ID: *p.DelegationID, To: v.to("delegations", *p.DelegationID)}},
			fact{"Orders made", cell{Number: strconv.FormatInt(p.UsedOrders, 10), Sub: ordersText(p.MaxOrders)}})
	}
	t := &table{
		Caption: "Settlements", Head: []column{{Text: "Time"}, {Text: "Request"}, {Text: "Transaction"}, {Text: "Credits", Num: true}},
		Empty: &empty{Icon: "activity", Title: "Nothing burned yet", Text: "Each request that the token paid appears here."},
	}
	for _, u := range p.Transactions {
		t.Rows = append(t.Rows, []cell{{At: u.CreatedAt.Time}, {ID: u.AgentRequestID, To: v.to("requests", u.AgentRequestID)}, {ID: u.Transaction.String()}, credits(u.CreditsRedeemed)})
	}
	s.Parts = []part{{"Settlements", t}}
	if p.Status == toll.StatusActive && v.person.Rights.Has(toll.RightSpend) {
		s.Acts = []dialog{v.dangerOf("end", "Revoke", "The token is refused at once. Requests that are held now still settle.")}
	}
	v.sheet("Access token "+short(p.PermissionHash.String()), s)
}

func goodAt(v *visit, p *toll.Permission) cell {
	switch {
	case p.AgentID != nil:
		return cell{ID: string(*p.AgentID)}
	case p.AllowedAgents != nil:
		return cell{Text: count(int64(len(p.AllowedAgents)), "agent")}
	}
	return cell{Text: "every agent of the plan"}
}

// madeBy says when a token was made, and by which key.
func madeBy(v *visit, p *toll.Permission) cell {
	c := cell{At: p.CreatedAt.Time}
	if p.APIKeyID != nil {
		if k, err := v.w.Auth.Key(v.ctx(), v.person.Address, *p.APIKeyID); err == nil {
			c.Sub = "by the API key " + plain.Name(nameOfKey(k))
		}
	}
	return c
}

func limitText(most *toll.Credits) string {
	if most == nil {
		return "no limit"
	}
	return "of at most " + grouped(most.String())
}

func ordersText(most *int64) string {
	if most == nil {
		return "no limit of its own"
	}
	return "of at most " + grouped(strconv.FormatInt(*most, 10))
}

func endToken(v *visit) {
	p, ok := token(v)
	if !ok {
		return
	}
	v.finish(func() (outcome, error) {
		if v.form.Get("act") != "end" {
			return outcome{}, toll.NewError(toll.CodeBadRequest)
		}
		err := v.w.API.RevokePermission(v.acting(), p.PermissionHash)
		return outcome{To: v.to("tokens", p.PermissionHash.String()), Done: "The access token is revoked."}, err
	})
}

// exports are the lists of the API that a page hands out as a file, by the name of the page. A field
// of the query takes the place of %s in the path.
var exports = map[string]struct {
	path, title string
	right       toll.Right
	field       string
}{
	"agents":              {"/protocol/agents", "Agents", toll.RightRead, ""},
	"plans":               {"/protocol/plans", "Plans", toll.RightRead, ""},
	"orders":              {"/protocol/orders", "Orders", toll.RightMoney, ""},
	"subscribers":         {"/protocol/plans/%s/subscribers", "Subscribers", toll.RightMoney, "plan"},
	"holdings":            {"/protocol/holdings", "My plans", toll.RightRead, ""},
	"usage":               {"/protocol/usage", "Usage", toll.RightRead, ""},
	"revenue":             {"/protocol/revenue", "Revenue", toll.RightMoney, ""},
	"refusals":            {"/protocol/refusals", "Refusals", toll.RightRead, ""},
	"requests":            {"/protocol/requests", "Requests", toll.RightMoney, ""},
	"tokens":              {"/x402/permissions", "Access tokens", toll.RightRead, ""},
	"delegation-payments": {"/delegation/%s/transactions", "Payments of a delegation", toll.RightRead, "delegation"},
	"events":              {"/events", "Events", toll.RightRead, ""},
	"audit":               {"/audit-log", "Audit log", toll.RightMembers, ""},
}

// file leads to a list as a file, for people who may have it.
func file(v *visit, list string, q url.Values) []link {
	if !v.person.Rights.Has(exports[list].right) {
		return nil
	}
	text := "Export"
	if list == "refusals" || list == "subscribers" {
		text += " " + strings.ToLower(exports[list].title) // on a page of more than that
	}
	to := v.to("export", list)
	if len(q) > 0 {
		to += "?" + q.Encode()
	}
	q = maps.Clone(q)
	if q == nil {
		q = url.Values{}
	}
	q.Set("format", "ndjson")
	return []link{{Text: text, Menu: []link{{Text: "CSV, for a spreadsheet", To: to}, {Text: "NDJSON, for programs", To: v.to("export", list) + "?" + q.Encode()}}}}
}

// exportPages hand out lists as files.
func exportPages() []areaPage {
	return []areaPage{{Path: "/export/{list}", Template: "sheet", Right: toll.RightRead, Get: export}}
}

// export passes a file of the API on, as it is written.
func export(v *visit) {
	of, ok := exports[v.param("list")]
	if !ok {
		v.missing("list")
		return
	}
	if !v.hasRight(of.right) {
		return
	}
	q := v.r.URL.Query()
	if q.Get("format") != "ndjson" {
		q.Set("format", "csv")
	}
	path := of.path
	if of.field != "" {
		path = fmt.Sprintf(path, url.PathEscape(q.Get(of.field)))
		q.Del(of.field)
	}
	r, err := http.NewRequestWithContext(v.acting(), http.MethodGet, v.w.PublicURL+"/api/v1"+path+"?"+q.Encode(), http.NoBody)
	if err != nil {
		v.fail(err)
		return
	}
	r.RequestURI, r.RemoteAddr = r.URL.RequestURI(), v.r.RemoteAddr
	v.w.Handler.ServeHTTP(v.rw, r)
}
