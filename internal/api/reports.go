package api

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/pay"
	"github.com/tollhq/toll/internal/store"
)

// usageRange describes the range of times of sums.
var usageRange = []query{
	{"since", "Start of the range: ISO 8601, or a day in UTC, rounded down to the hour or day. Defaults to 24 hours before `until` with by=hour, otherwise to 30 days before `until`."},
	{"until", "End of the range: ISO 8601, or a day in UTC, rounded up to the hour or day. Defaults to now. At most 31 days after `since` with by=hour, otherwise at most 400 days."},
}

type sums struct{ checkout *checkout.Checkout }

func (s sums) routes() []route {
	sums := []toll.Code{toll.CodeBadRequest, toll.CodeBadPage, toll.CodeBadID, toll.CodePlanNotFound, toll.CodeNotPlanOwner}
	return []route{
		{
			op: "listUsage", export: toll.RightRead, method: "GET", path: Base + "/protocol/usage", auth: keyed, right: toll.RightRead, tag: "Usage",
			summary: "Sum the settlements of your plans, or your own use", action: listsBeside("UsageList", list.Usage, s.listUsage),
			query: slices.Concat([]query{
				{"role", "seller (default): use of your plans; buyer: your own use."},
				{"by", "day (default), hour, plan, agent, or subscriber (requires planId); or upstream, route, or model, for settlements with these labels. With role=buyer: day, plan, route, or model."},
				{"planId", "Only settlements of this plan. With role=seller, you must own the plan."},
				{"agentId", "Only settlements that name this agent. Requires role=seller."},
				{"subscriber", "Only settlements of this subscriber. Requires role=seller, planId, and by=day, route, or model."},
			}, usageRange, sortedBy(store.SortGroup)),
			codes: append(slices.Clip(sums), toll.CodeBadAddress),
		},
		{
			op: "listRevenue", export: toll.RightMoney, method: "GET", path: Base + "/protocol/revenue", auth: keyed, right: toll.RightRead, tag: "Usage",
			summary: "Sum the payments for your plans by currency", action: listsBeside("RevenueList", list.Revenue, s.listRevenue),
			query: slices.Concat([]query{
				{"by", "day (default), hour, or plan."}, {"planId", "Only payments for this plan. You must own the plan."},
			}, usageRange, sortedBy(store.SortGroup)),
			codes: sums,
		},
		{
			op: "listRefusals", export: toll.RightRead, method: "GET", path: Base + "/protocol/refusals", auth: keyed, right: toll.RightRead, tag: "Usage",
			summary: "Count the refused verify and settle calls of your plans", action: listsBeside("RefusalList", list.Refusals, s.listRefusals),
			query: slices.Concat([]query{
				{"by", "reason (default), hour, day, plan, or agent."}, {"planId", "Only calls for this plan. You must own the plan."},
				{"agentId", "Only requests that name this agent."},
				{"reason", "Only calls refused with this reason, as in invalidReason and errorReason."},
			}, usageRange, sortedBy(store.SortGroup)),
			codes: sums,
		},
	}
}

type SumRange struct {
	Since        toll.Time `json:"since" doc:"Start of the range, at a full hour or day."`
	Until        toll.Time `json:"until" doc:"End of the range, at a full hour or day."`
	CountedUntil toll.Time `json:"countedUntil" doc:"Everything before this time is counted. New settlements are counted within seconds."`
}

func sumRange(r checkout.UsageRange) SumRange {
	return SumRange{toll.At(r.Since), toll.At(r.Until), toll.At(r.Counted)}
}

// sumMembers is what an answer with sums has beside them.
type sumMembers struct {
	SumRange
	Paging
}

// sums reads the parameters that usage and revenue share.
func (f *filters) sums(p store.Page, by ...string) checkout.UsageQuery {
	q := checkout.UsageQuery{By: store.UsageBy(filter(f, "by", wordOf(by...))), Plan: filter(f, "planId", toll.ParsePlanID), Page: p}
	q.Since, q.Until = f.between()
	return q
}

// agent reads the agent that a list is narrowed to; nil for none.
func (f *filters) agent() *toll.AgentID {
	id := filter(f, "agentId", toll.ParseAgentID)
	if id == "" {
		return nil
	}
	return &id
}

func (s sums) listUsage(c *call, p store.Page, q url.Values) (none store.List[*toll.Usage], rest sumMembers, err error) {
	f := filters{q: q}
	asked := f.sums(p, "hour", "day", "plan", "agent", "subscriber", "upstream", "route", "model")
	asked.Agent = f.agent()
	asked.AsBuyer = filter(&f, "role", wordOf("seller", "buyer")) == "buyer"
	asked.Subscriber = filter(&f, "subscriber", toll.ParseAddress)
	if f.err != nil {
		return none, rest, f.err
	}
	list, r, err := s.checkout.Reports.Usage(c.context, c.caller.Address, asked)
	return list, sumMembers{sumRange(r), pagingOf(p, list)}, err
}

func (s sums) listRevenue(c *call, p store.Page, q url.Values) (none store.List[*toll.Revenue], rest sumMembers, err error) {
	f := filters{q: q}
	asked := f.sums(p, "hour", "day", "plan")
	if f.err != nil {
		return none, rest, f.err
	}
	list, r, err := s.checkout.Reports.Revenue(c.context, c.caller.Address, asked)
	return list, sumMembers{sumRange(r), pagingOf(p, list)}, err
}

// refusalMembers is what an answer with refusals has beside them.
type refusalMembers struct {
	Since toll.Time `json:"since" doc:"Start of the range, at a full hour or day."`
	Until toll.Time `json:"until" doc:"End of the range, at a full hour or day."`
	Paging
}

func (s sums) listRefusals(c *call, p store.Page, q url.Values) (none store.List[*toll.Refusals], rest refusalMembers, err error) {
	f := filters{q: q}
	asked := f.sums(p, "reason", "hour", "day", "plan", "agent")
	asked.By, asked.Agent = cmp.Or(asked.By, store.ByReason), f.agent()
	reason := filter(&f, "reason", func(s string) (string, error) { return s, nil })
	if f.err != nil {
		return none, rest, f.err
	}
	list, r, err := s.checkout.Reports.Refusals(c.context, c.caller.Address, asked, reason)
	return list, refusalMembers{toll.At(r.Since), toll.At(r.Until), pagingOf(p, list)}, err
}

type requests struct{ requests *pay.Requests }

func (s requests) routes() []route {
	const at = Base + "/protocol/requests"
	return []route{
		{
			op: "listRequests", export: toll.RightMoney, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Payments",
			summary: "List the requests of your plans, or your own requests, with their outcomes and receipts",
			action:  listsBeside("RequestList", list.Requests, s.listRequests),
			query: slices.Concat([]query{
				{"role", "seller (default): requests of your plans; buyer: requests that you paid for."},
				{"planId", "Only requests of this plan. With role=seller, you must own the plan."},
				{"agentId", "Only requests that name this agent."},
				{"subscriber", "Only requests of this subscriber. Requires role=seller and planId."},
				{"status", "settled, released, or lapsed; defaults to all three. Or held: requests with an open hold; since, until, and the order then use the start of the hold."},
				{"since", "Only requests that ended at or after this time: ISO 8601, or a day in UTC. Defaults to 90 days before until."},
				{"until", "Only requests that ended before this time: ISO 8601, or a day in UTC. Defaults to now. At most 90 days after since."},
			}, walkedBy(store.SortEnded)),
			codes: []toll.Code{
				toll.CodeBadRequest, toll.CodeBadPage, toll.CodeBadID, toll.CodeBadAddress, toll.CodePlanNotFound, toll.CodeNotPlanOwner,
			},
		},
		{
			op: "readRequest", method: "GET", path: at + "/{agentRequestId}", auth: ends, right: toll.RightRead, tag: "Payments",
			summary: "Read a request with its state changes and its receipt", action: reads(byText("agentRequestId", s.requests.Get)),
			codes: []toll.Code{toll.CodeSettlementNotFound, toll.CodeSettlementGone},
		},
	}
}

// walkedBy is [sortedBy] for a list that is not counted, and has no pages by number.
func walkedBy(sort store.Sort) []query {
	return slices.DeleteFunc(sortedBy(sort), func(q query) bool { return q.name == "page" || q.name == "offset" })
}

// requestPaging is [Paging] of a list that is not counted. A part may be empty and have a cursor: a call reads a bounded number of
// requests, of which few may be asked for.
type requestPaging struct {
	PageSize   int     `json:"pageSize"`
	NextCursor *string `json:"nextCursor" doc:"Cursor of the next page; null at the end. A page can have fewer records than pageSize, or no records, and still have a cursor."`
}

var stateWords = map[string]ledger.State{
	"held": ledger.StateHeld, "settled": ledger.StateSettled, "released": ledger.StateReleased, "lapsed": ledger.StateLapsed,
}

func (s requests) listRequests(c *call, p store.Page, q url.Values) (out store.List[*toll.Settlement], rest requestPaging, err error) {
	f := filters{q: q}
	asked := pay.RequestQuery{
		AsBuyer: filter(&f, "role", wordOf("seller", "buyer")) == "buyer", Plan: filter(&f, "planId", toll.ParsePlanID),
		Agent: filter(&f, "agentId", toll.ParseAgentID), Subscriber: filter(&f, "subscriber", toll.ParseAddress),
		State: stateWords[filter(&f, "status", wordOf("held", "settled", "released", "lapsed"))], Page: p,
	}
	asked.Since, asked.Until = f.between()
	if p.Number > 1 || cmp.Or(p.Sort, store.SortEnded) != store.SortEnded {
		f.err = toll.NewError(toll.CodeBadPage).WithDetails("page %d or sortBy %q is not supported", p.Number, string(p.Sort)).
			WithHint("Use nextCursor instead of pages. The only sortBy is " + string(store.SortEnded) + ".")
	}
	if f.err != nil {
		return out, rest, f.err
	}
	rest.PageSize = p.Size
	if out.Items, out.Next, err = s.requests.List(c.context, c.caller.Address, asked); out.Next != "" {
		rest.NextCursor = &out.Next
	}
	return out, rest, err
}

func (s requests) subTaskRoutes() []route {
	const at = Base + "/protocol/agent-sub-tasks"
	return []route{
		{
			op: "recordSubTask", method: "POST", path: at, auth: owners, right: toll.RightSell, tag: "Sub-tasks",
			summary: "Record a sub-task of a request, without burning credits", action: creates(s.recordSubTask),
			codes: []toll.Code{toll.CodeBadNumber, toll.CodeSubTaskRequestUnknown, toll.CodeSettleConflict},
		},
		{
			op: "listSubTasks", method: "GET", path: at, auth: owners, right: toll.RightRead, tag: "Sub-tasks", summary: "List the sub-tasks of a request",
			action: lists("SubTaskList", list.SubTasks, s.listSubTasks), codes: []toll.Code{toll.CodeBadRequest, toll.CodeBadPage, toll.CodeSubTaskRequestUnknown, toll.CodeSettleConflict},
			query: append([]query{{"agentRequestId", "Id of the request. Required."}}, sortedBy(store.SortCreated)...),
		},
	}
}

func (s requests) recordSubTask(c *call, in *toll.SubTaskInput, once *store.Once) (*toll.ActResult, error) {
	return s.requests.RecordSubTask(c.context, c.caller.Address, in, once)
}

func (s requests) listSubTasks(c *call, p store.Page, q url.Values) (none store.List[*toll.SubTask], err error) {
	id := q.Get("agentRequestId")
	if id == "" {
		return none, toll.Faults([]toll.Fault{{Path: "agentRequestId", Message: "is required in the query"}})
	}
	return s.requests.SubTasks(c.context, c.caller.Address, id, p)
}

// searched are the kinds of records that a search finds, in the order of its answer.
var searched = []string{
	store.FoundPlan, store.FoundAgent, store.FoundOrder, store.FoundKey, store.FoundPermission, store.FoundDelegation, store.FoundWebhook,
}

// maxFound is how many records of each kind a search answers, maxSearch how long its text may be, in characters.
const (
	maxFound  = 20
	maxSearch = 128
)

func searchRoutes(db store.Querier, recent *recentCalls) []route {
	return []route{{
		op: "search", method: "GET", path: Base + "/protocol/search", auth: keyed, right: toll.RightRead, tag: "Search",
		summary: "Search your records by id, beginning of the id, or beginning of the name", action: reads(func(c *call) (*SearchResults, error) { return search(c, db, recent) }),
		query: []query{
			{"q", "Search text, 1 to 128 characters. An order id requires at least 13 characters, and the id of an access token at least 6. Without type, the correlation id of one of the last 200 calls of an API key to this server process, except verify and settle, finds the key. Required."},
			{"type", "Only records of this type: " + strings.Join(searched, ", ") + "."},
		},
		codes: []toll.Code{toll.CodeBadRequest, toll.CodeQueryTooLong},
	}}
}

// SearchResult is a record that was found.
type SearchResult struct {
	Type      string    `json:"type"`
	ID        string    `json:"id"`
	Name      *string   `json:"name"`
	CreatedAt toll.Time `json:"createdAt"`
}

// SearchResults are records that were found, at most 20 of each kind.
type SearchResults struct {
	Results []SearchResult `json:"results"`
	More    bool           `json:"more"` // there are further ones
}

func search(c *call, db store.Querier, recent *recentCalls) (*SearchResults, error) {
	q, err := c.values()
	if err != nil {
		return nil, err
	}
	f := filters{q: q}
	text := strings.TrimSpace(filter(&f, "q", func(s string) (string, error) { return s, nil }))
	kind := filter(&f, "type", wordOf(searched...))
	if n := utf8.RuneCountInString(text); f.err == nil && (n < 1 || n > maxSearch || !utf8.ValidString(text) || strings.ContainsRune(text, 0)) {
		f.err = toll.Faults([]toll.Fault{{Path: "q", Message: "must be 1 to 128 characters"}})
	}
	if f.err != nil {
		return nil, f.err
	}
	out := &SearchResults{Results: []SearchResult{}}
	for _, of := range searched {
		if kind != "" && kind != of {
			continue
		}
		found, err := store.Search(c.context, db, of, c.caller.Address, text, maxFound+1)
		if err != nil {
			return nil, err
		}
		if kind == "" && of == store.FoundKey { // with a type, the text may name the record of a command: a correlation id must not
			for _, id := range recent.keysOf(c.caller.Address, text, maxFound+1) {
				key, there, err := store.IfThere(store.APIKeyByID(c.context, db, id))
				if err != nil {
					return nil, err
				}
				if there {
					found = append(found, store.Found{ID: id.String(), Name: key.Name, CreatedAt: key.CreatedAt})
				}
			}
		}
		if len(found) > maxFound {
			out.More, found = true, found[:maxFound]
		}
		for _, r := range found {
			out.Results = append(out.Results, SearchResult{Type: of, ID: r.ID, Name: store.NonZero(r.Name), CreatedAt: toll.At(r.CreatedAt)})
		}
	}
	return out, nil
}
