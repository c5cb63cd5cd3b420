package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store/storetest"
)

// bounded are lists whose rows are few, so that the database may sort or filter them without an index.
var bounded = map[string]string{
	"listPlans": "a quota bounds the plans of an account", "listAgents": "a quota bounds the agents of an account",
	"listPlansOfAgent": "an agent has at most 64 plans", "listAgentsOfPlan": "a quota bounds the agents of an account",
	"listKeys": "a quota bounds the API keys of an account", "listDelegations": "a quota bounds the delegations of an account",
	"listPermissions":            "of one access token each; sorted by an index, counted through it",
	"listDelegationTransactions": "orders that one delegation has paid",
	"listWebhooks":               "a quota bounds the webhooks of an account", "listDeliveries": "deliveries go after 30 days",
	"listSubTasks": "of one request",
	"search":       "records that an account has few of, or those of an index that begin with some characters",
	"listUsage":    "hours or days of a range, which has at most 400 days", "listRefusals": "as usage", "listRevenue": "as usage; and orders whose money went back",
	"listOrganizations": "a person is in at most 100 workspaces", "listInvitations": "a workspace has at most 100 open invitations",
	"listCredentials": "a person has at most 60",
	"listEvents":      "with type and since the newer events of the type are sorted; settlements, which are many, have no rows",
}

// TestLists_Index: every list reads its rows through an index, with each of its filters and sorts, on both engines; a list
// that is not bounded does not sort either.
func TestLists_Index(t *testing.T) {
	s := newStack(t)
	plan, agent, delegation, hook, request := s.listed()
	owner := s.human("owner")
	member := owner.invites(s.human("member"), toll.RoleViewer)
	values := map[string][]string{
		"planId": {plan}, "subscriber": {s.s1.address.Lower()}, "since": {"2026-01-01T00:00:00Z"}, "until": {"2027-01-01T00:00:00Z"},
		"role": {"buyer", "seller"}, "status": {"active"}, "type": {"order.paid"}, "accessible": {"true"}, "agentRequestId": {request}, "act": {"member.joined"},
		"listDeliveries status": {"pending"}, "by": {"hour", "day", "plan", "agent", "subscriber"}, "listRefusals by": {"hour", "day", "plan", "agent", "reason"}, "reason": {"duplicate"},
		"listRevenue by": {"hour", "day", "plan"}, "listRefusals since": {"2026-11-01"}, "listRefusals until": {"2026-11-30"}, "agentId": {agent},
		"listRequests status": {"held", "settled", "released", "lapsed"}, "listRequests since": {"2026-11-01"}, "listRequests until": {"2026-11-30"},
		"listUsage since": {"2026-11-01"}, "listUsage until": {"2026-11-30"}, "listRevenue since": {"2026-11-01"}, "listRevenue until": {"2026-11-30"},
	}
	var mu sync.Mutex
	statements := map[string]string{} // operation by statement
	operation := ""
	s.store.Trace(func(tx uint64, statement string) {
		mu.Lock()
		defer mu.Unlock()
		if operation != "" && strings.HasPrefix(strings.ToUpper(strings.TrimSpace(statement)), "SELECT") {
			statements[statement] = operation
		}
	})
	for _, r := range api.Routes() {
		if !r.Paged {
			continue
		}
		mu.Lock()
		operation = r.Operation
		mu.Unlock()
		path := strings.NewReplacer("{planId}", plan, "{agentId}", agent, "{delegationId}", delegation, "{webhookId}", hook, "{userId}", member.id.String()).Replace(r.Path)
		queries := []url.Values{{}}
		for _, name := range r.Filters {
			given := values[r.Operation+" "+name]
			if given == nil {
				given = values[name]
			}
			if given == nil {
				t.Fatalf("%s filters by %s, which this test does not know", r.Operation, name)
			}
			for _, q := range slices.Clone(queries) {
				for _, v := range given {
					with := url.Values{name: {v}}
					for k, v := range q {
						with[k] = v
					}
					queries = append(queries, with)
				}
			}
		}
		answered := map[string]bool{}
		for _, q := range queries {
			for _, sort := range strings.FieldsFunc(strings.ReplaceAll(strings.TrimSuffix(r.Sorts, "."), "(default)", ""), func(r rune) bool { return r == ' ' || r == ',' }) {
				if sort == "or" {
					continue
				}
				for _, order := range []string{"asc", "desc"} {
					q.Set("sortBy", sort)
					q.Set("sortOrder", order)
					q.Set("pageSize", "1")
					q.Set("page", "1")
					who := s.b1
					var headers []string
					switch {
					case r.Auth == "person":
						who, headers = actor{key: owner.token}, []string{"X-Current-Org-Id", owner.workspace}
					case q.Get("role") == "buyer":
						who = s.s1
					}
					a := s.do(who, "GET", path+"?"+q.Encode(), "", headers...)
					if a.status != 200 {
						if a.code() != "BCK.HTTP.400" { // filters that do not go together
							t.Errorf("%s?%s: %d %s", r.Operation, q.Encode(), a.status, a.body)
						}
						continue
					}
					for name := range q {
						answered[name] = true
					}
					if next, ok := a.member(t, "nextCursor").(string); ok {
						s.do(who, "GET", path+"?"+q.Encode()+"&cursor="+next, "", headers...)
					}
					q.Set("page", "2") // counts the rows
					s.do(who, "GET", path+"?"+q.Encode(), "", headers...)
				}
			}
		}
		for _, name := range append(r.Filters, "sortBy") {
			if !answered[name] {
				t.Errorf("%s was never answered with %s", r.Operation, name)
			}
		}
	}
	mu.Lock()
	operation = "search"
	mu.Unlock()
	for _, q := range []string{plan[:8], "Free", "0x123456", delegation} {
		if a := s.do(s.b1, "GET", base+"/protocol/search?q="+q, ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	mu.Lock()
	operation = ""
	mu.Unlock()
	if len(statements) < 30 {
		t.Errorf("only %d statements", len(statements))
	}
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			st, _ := storetest.OpenVariant(t, v)
			for statement, op := range statements {
				if fault := storetest.Scans(t, st, statement, bounded[op] != ""); fault != "" {
					t.Errorf("%s: %s\n%s", op, fault, statement)
				}
			}
		})
	}
}

// listed makes a record of each kind that a list needs in its path or its filters.
func (s *stack) listed() (plan, agent, delegation, hook, request string) {
	s.t.Helper()
	plan = s.plan(s.b1, freePlan)
	s.plan(s.b1, freePlan)
	agent = s.agent(s.b1, plan)
	for _, who := range []actor{s.s1, s.b1, s.b2} {
		if a := s.do(who, "POST", base+"/protocol/plans/"+plan+"/order", ""); a.status != 200 {
			s.t.Fatalf("%d %s", a.status, a.body)
		}
	}
	s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "")
	a := s.do(s.b1, "POST", base+"/delegation/create", `{"provider":"erc4337","spendingLimitCents":100,"durationSecs":3600,"currency":"usdc"}`)
	delegation = a.text(s.t, "delegationId")
	hook = s.do(s.b1, "POST", base+"/webhooks", `{"url":"https://hooks.example.com/toll"}`).text(s.t, "id")
	token, _ := s.token(s.b1, plan)
	request = s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, "")).text(s.t, "extra.agentRequestId")
	return plan, agent, delegation, hook, request
}

// TestOrders_Lists: buyers see what they ordered, sellers what was ordered of their plans, and nobody anything else.
func TestOrders_Lists(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		first, second, other := s.plan(s.b1, freePlan), s.plan(s.b1, freePlan), s.plan(s.b2, freePlan)
		order := func(who actor, plan string) string {
			t.Helper()
			s.clock.advance(time.Minute)
			a := s.do(who, "POST", base+"/protocol/plans/"+plan+"/order", "")
			if a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			return a.text(t, "orderId")
		}
		began := s.clock.now()
		a, b, c, d := order(s.s1, first), order(s.b2, first), order(s.s1, second), order(s.s1, other)
		e := order(s.s1, first)
		at := func(d time.Duration) string { return url.QueryEscape(began.Add(d).Format(time.RFC3339)) }
		for _, tt := range []struct {
			who   actor
			query string
			want  []string
		}{
			{s.s1, "", []string{e, d, c, a}},
			{s.s1, "?sortOrder=asc", []string{a, c, d, e}},
			{s.s1, "?planId=" + first, []string{e, a}},
			{s.s1, "?role=seller", nil},
			{s.b1, "", nil},
			{s.b1, "?role=seller", []string{e, c, b, a}},
			{s.b1, "?role=SELLER&planId=" + first, []string{e, b, a}},
			{s.b1, "?role=seller&planId=" + first + "&subscriber=" + s.s1.address.Lower(), []string{e, a}},
			{s.b2, "?role=seller", []string{d}},
			{s.b2, "?role=buyer", []string{b}},
			{s.b1, "?role=seller&since=" + at(2*time.Minute), []string{e, c, b}},
			{s.b1, "?role=seller&until=" + at(2*time.Minute), []string{a}},
			{s.b1, "?role=seller&since=" + at(2*time.Minute) + "&until=" + at(3*time.Minute), []string{b}},
		} {
			var got struct {
				Orders []toll.Order
				Total  int
			}
			answer := s.do(tt.who, "GET", base+"/protocol/orders"+tt.query, "")
			must.Do(t, json.Unmarshal(answer.body, &got))
			ids := []string(nil)
			for _, o := range got.Orders {
				ids = append(ids, o.OrderID)
			}
			if answer.status != 200 || !slices.Equal(ids, tt.want) || got.Total != len(tt.want) {
				t.Errorf("%s: %d %s", tt.query, answer.status, answer.body)
			}
			if paged := s.everyPage(tt.who, base+"/protocol/orders"+tt.query, "orders", "orderId"); !slices.Equal(paged, tt.want) {
				t.Errorf("%s, page by page: %v, not %v", tt.query, paged, tt.want)
			}
		}
		var got struct{ Orders []toll.Order }
		must.Do(t, json.Unmarshal(s.do(s.b1, "GET", base+"/protocol/orders?role=seller&pageSize=1&sortOrder=asc", "").body, &got))
		if o := got.Orders[0]; o.SubscriberAddress != s.s1.address || !o.CreatedAt.Equal(began.Add(time.Minute)) || o.CreditsGranted == 0 {
			t.Errorf("%+v", o)
		}
		for query, code := range map[string]string{
			"?role=owner": "BCK.HTTP.400", "?role=seller&role=buyer": "BCK.HTTP.400", "?planId=x": "BCK.COMMON.0026",
			"?subscriber=" + s.s1.address.Lower(): "BCK.HTTP.400", "?since=yesterday": "BCK.HTTP.400",
			"?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "BCK.HTTP.400", "?sortBy=name": "BCK.COMMON.0904",
			"?role=seller&planId=" + other: "BCK.PROTOCOL.0017", "?role=seller&planId=11111": "BCK.PROTOCOL.0003",
		} {
			if a := s.do(s.b1, "GET", base+"/protocol/orders"+query, ""); a.code() != code {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
		}
	})
}

// everyPage follows the cursors of a list in pages of one record, and returns a member of each.
func (s *stack) everyPage(who actor, path, list, member string) (all []string) {
	s.t.Helper()
	sign := "?"
	if strings.Contains(path, "?") {
		sign = "&"
	}
	for cursor := ""; ; {
		var got map[string]json.RawMessage
		a := s.do(who, "GET", path+sign+"pageSize=1"+cursor, "")
		must.Do(s.t, json.Unmarshal(a.body, &got))
		var items []map[string]any
		must.Do(s.t, json.Unmarshal(got[list], &items))
		for _, item := range items {
			all = append(all, fmt.Sprint(item[member]))
		}
		next, ok := a.member(s.t, "nextCursor").(string)
		if !ok || len(all) > 1000 {
			return all
		}
		cursor = "&cursor=" + next
	}
}

// TestSubscribersAndHoldings: the owner of a plan sees what each subscriber has of it, and a subscriber what it has of each plan; what has
// ended is not shown as if it could be used.
func TestSubscribersAndHoldings(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		lasting := s.plan(s.b1, freePlan)
		hour := s.plan(s.b1, `{"name":"Hour","priceConfig":{},"creditsConfig":{"creditsType":"EXPIRABLE","amount":"10","durationOfThePlan":3600}}`)
		for _, who := range []actor{s.s1, s.b2} {
			for _, plan := range []string{lasting, hour} {
				if a := s.do(who, "POST", base+"/protocol/plans/"+plan+"/order", ""); a.status != 200 {
					t.Fatalf("%d %s", a.status, a.body)
				}
			}
		}
		token, _ := s.token(s.s1, lasting)
		if a := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(lasting, token, "")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		read := func(who actor, path, member string) map[string]toll.Balance {
			t.Helper()
			a := s.do(who, "GET", base+path, "")
			var got map[string]json.RawMessage
			must.Do(t, json.Unmarshal(a.body, &got))
			var list []toll.Balance
			must.Do(t, json.Unmarshal(got[member], &list))
			out := map[string]toll.Balance{}
			for _, b := range list {
				own := s.do(actor{}, "GET", base+"/protocol/plans/"+string(b.PlanID)+"/balance/"+b.HolderAddress.Lower(), "")
				if text, _ := json.Marshal(b); string(text) != string(own.body) {
					t.Errorf("the list says %s, the balance %s", text, own.body)
				}
				out[string(b.PlanID)+b.HolderAddress.Lower()] = b
			}
			return out
		}
		subscribers := read(s.b1, "/protocol/plans/"+lasting+"/subscribers", "subscribers")
		if b := subscribers[lasting+s.s1.address.Lower()]; len(subscribers) != 2 || b.Used == 0 || b.Balance+b.Used != b.Total {
			t.Errorf("%v", subscribers)
		}
		s.clock.advance(2 * time.Hour)
		for _, b := range read(s.b1, "/protocol/plans/"+hour+"/subscribers", "subscribers") {
			if b.Balance != 0 || b.IsSubscriber {
				t.Errorf("an hour after its end: %+v", b)
			}
		}
		holdings := read(s.s1, "/protocol/holdings", "holdings")
		if len(holdings) != 2 || holdings[hour+s.s1.address.Lower()].PlanName != "Hour" {
			t.Errorf("%v", holdings)
		}
		if len(read(s.b1, "/protocol/holdings", "holdings")) != 0 {
			t.Error("who has bought nothing has something")
		}
		order := []string{strings.ToLower(s.s1.address.Lower()), s.b2.address.Lower()}
		slices.Sort(order)
		for i, got := range s.everyPage(s.b1, base+"/protocol/plans/"+hour+"/subscribers?sortOrder=asc", "subscribers", "holderAddress") {
			if strings.ToLower(got) != order[i] {
				t.Errorf("subscriber %d is %s, not %s", i, got, order[i])
			}
		}
		plans := []string{lasting, hour}
		slices.Sort(plans)
		if got := s.everyPage(s.s1, base+"/protocol/holdings?sortBy=plan&sortOrder=asc", "holdings", "planId"); !slices.Equal(got, plans) {
			t.Errorf("%v, not %v", got, plans)
		}
		for path, code := range map[string]string{
			"/protocol/plans/x/subscribers": "BCK.COMMON.0026", "/protocol/plans/11111/subscribers": "BCK.PROTOCOL.0003",
			"/protocol/plans/" + hour + "/subscribers": "BCK.PROTOCOL.0017",
		} {
			if a := s.do(s.b2, "GET", base+path, ""); a.code() != code {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	})
}

// TestDocument_Lists holds docs/LISTS.md, which is made of the route table by: go test ./internal/api -run TestDocument_Lists -update
func TestDocument_Lists(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Lists\n\nThe filters and the sort order of each list. Every query uses an index, or a quota keeps the list short; a test checks the query plans of both\n" +
		"databases (`TestLists_Index`). This page is generated from the route table.\n\n| Operation | Path | Required right | Filters | Sorts by | Right to export |\n|---|---|---|---|---|---|\n")
	for _, r := range api.Routes() {
		if r.Paged {
			filters := "–"
			if len(r.Filters) > 0 {
				filters = "`" + strings.Join(r.Filters, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", r.Operation, r.Path, r.Right, filters, strings.TrimSuffix(r.Sorts, "."),
				cmp.Or(string(r.Export), "–"))
		}
	}
	compareGolden(t, filepath.Join("..", "..", "docs", "LISTS.md"), []byte(b.String()))
}

// TestSearch: an account finds its own records by id, by the beginning of an id or of a name, and nothing of others.
func TestSearch(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, `{"name":"Fast 100%","priceConfig":{},"creditsConfig":{}}`)
		agent := s.agent(s.b1, plan)
		s.plan(s.b2, `{"name":"Fast too","priceConfig":{},"creditsConfig":{}}`)
		order := s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "").text(t, "orderId")
		_, permission := s.token(s.s1, plan)
		find := func(who actor, q string) (ids []string) {
			t.Helper()
			a := s.do(who, "GET", base+"/protocol/search?"+q, "")
			var got api.SearchResults
			must.Do(t, json.Unmarshal(a.body, &got))
			if a.status != 200 || got.More {
				t.Errorf("%s: %d %s", q, a.status, a.body)
			}
			for _, r := range got.Results {
				ids = append(ids, r.Type+" "+r.ID)
			}
			return ids
		}
		key := "apiKey " + s.b1.keyID.String()
		s.do(s.b1, "GET", base+"/protocol/plans/11", "", "X-Correlation-Id", "call-of-b1")
		for _, tt := range []struct {
			who  actor
			q    string
			want []string
		}{
			{s.b1, "q=" + plan, []string{"plan " + plan}},
			{s.b1, "q=" + plan[:12], []string{"plan " + plan}},
			{s.b1, "q=FAST", []string{"plan " + plan}},
			{s.b1, "q=" + url.QueryEscape("fast 100%"), []string{"plan " + plan}},
			{s.b1, "q=" + url.QueryEscape("fast_1"), nil},
			{s.b1, "q=" + url.QueryEscape("%"), nil},
			{s.b1, "q=" + agent[:20], []string{"agent " + agent}},
			{s.b1, "q=" + agent[:20] + "&type=plan", nil},
			{s.b1, "q=" + s.b1.keyID.String()[:9], []string{key}},
			{s.b2, "q=" + s.b1.keyID.String(), nil},
			{s.b2, "q=" + plan, nil},
			{s.b1, "q=" + order, []string{"order " + order}},
			{s.s1, "q=" + order[:20], []string{"order " + order}},
			{s.s1, "q=" + order[:12], nil},
			{s.b2, "q=" + order, nil},
			{s.s1, "q=" + permission[:12], []string{"permission " + permission}},
			{s.s1, "q=0x", []string{"apiKey " + s.s1.keyID.String()}},
			{s.b1, "q=" + permission, nil},
			{s.b1, "q=0xzz", nil},
			{s.b1, "q=call-of-b1", []string{key}},
			{s.b1, "q=call-of-b1&type=apiKey", nil},
			{s.b1, "q=call-of-b", nil},
			{s.b2, "q=call-of-b1", nil},
		} {
			if got := find(tt.who, tt.q); !slices.Equal(got, tt.want) {
				t.Errorf("%s: %v, not %v", tt.q, got, tt.want)
			}
		}
		for _, q := range []string{"", "q=", "q=%20", "q=a&q=b", "q=a&type=price", "q=" + strings.Repeat("x", 129), "q=%00"} {
			if a := s.do(s.b1, "GET", base+"/protocol/search?"+q, ""); a.status != 400 {
				t.Errorf("%.20s: %d %s", q, a.status, a.body)
			}
		}
		for range 21 {
			s.plan(s.b1, `{"name":"Many","priceConfig":{},"creditsConfig":{}}`)
		}
		var got api.SearchResults
		must.Do(t, json.Unmarshal(s.do(s.b1, "GET", base+"/protocol/search?q=many", "").body, &got))
		if len(got.Results) != 20 || !got.More {
			t.Errorf("%d results, more %v", len(got.Results), got.More)
		}
	})
}

// TestDocument_Rights holds docs/RIGHTS.md, which is made of the route table by: go test ./internal/api -run TestDocument_Rights -update
func TestDocument_Rights(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Rights\n\nThis table lists the operations that each [right of an API key](KEYS.md#rights) allows. A call without the right gets `BCK.AUTH.0907`, and the `params`\n" +
		"of the error contain the missing right.\n\n" +
		"Only a signed-in person can call operations marked *a person*. While the workspace has no people, a key of the operator can call them too.\n\n" +
		"The table is generated from the route table. A test calls every route with a key of each right, and as a person in each role.\n\n| Right | Operations |\n|---|---|\n")
	routes := api.Routes()
	for _, right := range append(toll.AllRights(), "own", "public") {
		var operations []string
		for _, r := range routes {
			if r.Right == right {
				name := "`" + r.Operation + "`"
				if r.Auth == "person" && r.Right == toll.RightRead {
					name += " (a person)"
				}
				operations = append(operations, name)
			}
		}
		name := string(right)
		switch right {
		case "own":
			name = "none: a person's own session"
		case toll.RightMembers, toll.RightExport:
			name += ": a person"
		case "public":
			name = "none: no API key is needed"
		}
		if len(operations) > 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(operations, ", "))
		}
	}
	compareGolden(t, filepath.Join("..", "..", "docs", "RIGHTS.md"), []byte(b.String()))
}
