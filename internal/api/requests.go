package api

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/facilitator"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// requests has paid requests, their outcome, and the parts of their work.
type requests struct{ facilitator *facilitator.Facilitator }

func (s requests) routes() []route {
	const at = Base + "/protocol/requests"
	return []route{
		{
			op: "listRequests", export: toll.RightMoney, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Payments",
			summary: "Requests of the caller's plans, or of the caller, with their outcome and receipt",
			action:  listsBeside("RequestList", "requests", s.listRequests),
			query: slices.Concat([]query{
				{"role", "seller (default): requests of the caller's plans; buyer: those that the caller paid."},
				{"planId", "Only this plan. As seller it must be a plan of the caller."},
				{"agentId", "Only requests that name this agent."},
				{"subscriber", "Only this subscriber, as seller with planId."},
				{"status", "settled, released or lapsed; default these three. held: what is open now, by the time of its begin."},
				{"since", "Only what ended at or after this time, ISO 8601, or from this day on (UTC). Default 90 days before until."},
				{"until", "Only what ended before this time, ISO 8601, or before this day (UTC). Default now. At most 90 days after since."},
			}, walkedBy(store.SortEnded)),
			codes: []toll.Code{
				toll.CodeBadRequest, toll.CodeBadPage, toll.CodeBadID, toll.CodeBadAddress, toll.CodePlanNotFound, toll.CodeNotPlanOwner,
			},
		},
		{
			op: "readRequest", method: "GET", path: at + "/{agentRequestId}", auth: ends, right: toll.RightRead, tag: "Payments",
			summary: "One request with the states that it took and its receipt", action: reads(byText("agentRequestId", s.facilitator.Request)),
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
	NextCursor *string `json:"nextCursor" doc:"Where the next call continues. An answer may have fewer records than pageSize, or none, and a cursor; null is the end."`
}

var stateWords = map[string]ledger.State{
	"held": ledger.StateHeld, "settled": ledger.StateSettled, "released": ledger.StateReleased, "lapsed": ledger.StateLapsed,
}

func (s requests) listRequests(c *call, p store.Page, q url.Values) (out store.List[*toll.Settlement], rest requestPaging, err error) {
	f := filters{q: q}
	asked := facilitator.RequestQuery{
		AsBuyer: filter(&f, "role", wordOf("seller", "buyer")) == "buyer", Plan: filter(&f, "planId", toll.ParsePlanID),
		Agent: filter(&f, "agentId", toll.ParseAgentID), Subscriber: filter(&f, "subscriber", toll.ParseAddress),
		State: stateWords[filter(&f, "status", wordOf("held", "settled", "released", "lapsed"))], Page: p,
	}
	asked.Since, asked.Until = f.between()
	if p.Number > 1 || cmp.Or(p.Sort, store.SortEnded) != store.SortEnded {
		f.err = toll.NewError(toll.CodeBadPage).WithDetails("the list has no page %d and no sortBy %q", p.Number, string(p.Sort)).
			WithHint("Follow nextCursor; sortBy is " + string(store.SortEnded) + ".")
	}
	if f.err != nil {
		return out, rest, f.err
	}
	rest.PageSize = p.Size
	if out.Items, out.Next, err = s.facilitator.Requests(c.context, c.caller.Address, asked); out.Next != "" {
		rest.NextCursor = &out.Next
	}
	return out, rest, err
}

func (s requests) subTaskRoutes() []route {
	const at = Base + "/protocol/agent-sub-tasks"
	return []route{
		{
			op: "recordSubTask", method: "POST", path: at, auth: owners, right: toll.RightSell, tag: "Sub-tasks",
			summary: "Record a part of the work for a request. Burns nothing", action: creates(s.recordSubTask),
			codes: []toll.Code{toll.CodeBadNumber, toll.CodeSubTaskRequestUnknown, toll.CodeSettleConflict},
		},
		{
			op: "listSubTasks", method: "GET", path: at, auth: owners, right: toll.RightRead, tag: "Sub-tasks", summary: "Recorded parts of the work for a request",
			action: lists("SubTaskList", "subTasks", s.listSubTasks), codes: []toll.Code{toll.CodeBadRequest, toll.CodeBadPage, toll.CodeSubTaskRequestUnknown, toll.CodeSettleConflict},
			query: append([]query{{"agentRequestId", "The request. Required."}}, sortedBy(store.SortCreated)...),
		},
	}
}

func (s requests) recordSubTask(c *call, in *toll.SubTaskInput, once *store.Once) (*toll.ActResult, error) {
	return s.facilitator.RecordSubTask(c.context, c.caller.Address, in, once)
}

func (s requests) listSubTasks(c *call, p store.Page, q url.Values) (none store.List[*toll.SubTask], err error) {
	id := q.Get("agentRequestId")
	if id == "" {
		return none, toll.Faults([]toll.Fault{{Path: "agentRequestId", Message: "is required in the query"}})
	}
	return s.facilitator.SubTasks(c.context, c.caller.Address, id, p)
}
