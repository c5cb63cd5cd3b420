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

func requestRoutes() []route {
	const at = Base + "/protocol/requests"
	return []route{
		{
			op: "listRequests", export: toll.RightMoney, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Payments",
			summary: "Requests of the caller's plans, or of the caller, with their outcome and receipt",
			action:  lists((*handler).listRequests),
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
			summary: "One request with the states that it took and its receipt", action: reads((*handler).readRequest),
			codes: []toll.Code{toll.CodeSettlementNotFound, toll.CodeSettlementGone},
		},
	}
}

// walkedBy is [sortedBy] for a list that is not counted, and has no pages by number.
func walkedBy(sort store.Sort) []query {
	return slices.DeleteFunc(sortedBy(sort), func(q query) bool { return q.name == "page" || q.name == "offset" })
}

// RequestList is a part of a list that is not counted. It may be empty and have a cursor: a call reads a
// bounded number of requests, of which few may be asked for.
type RequestList struct {
	Requests   []*toll.Settlement `json:"requests"`
	PageSize   int                `json:"pageSize"`
	NextCursor *string            `json:"nextCursor" doc:"Where the next call continues. An answer may have fewer records than pageSize, or none, and a cursor; null is the end."`
}

var stateWords = map[string]ledger.State{
	"held": ledger.StateHeld, "settled": ledger.StateSettled, "released": ledger.StateReleased, "lapsed": ledger.StateLapsed,
}

func (h *handler) listRequests(c *call, p store.Page, q url.Values) (*RequestList, error) {
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
		return nil, f.err
	}
	list, next, err := h.Facilitator.Requests(c.context, c.caller.Address, asked)
	out := &RequestList{Requests: list, PageSize: p.Size}
	if next != "" {
		out.NextCursor = &next
	}
	return out, err
}

func (h *handler) readRequest(c *call) (*toll.RequestRecord, error) {
	return h.Facilitator.Request(c.context, c.caller.Address, c.param("agentRequestId"))
}
