package api

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/store"
)

// usageRange describes the range of times of sums.
var usageRange = []query{
	{"since", "From this time on, ISO 8601, or from this day on (UTC), down to the begin of its hour or day. Default 24 hours before until by hour, else 30 days."},
	{"until", "Before this time, ISO 8601, or before this day (UTC), up to the end of its hour or day. Default now. At most 31 days after since by hour, else 400."},
}

// sums has usage, revenue and refusals.
type sums struct{ checkout *checkout.Checkout }

func (s sums) routes() []route {
	sums := []toll.Code{toll.CodeBadRequest, toll.CodeBadPage, toll.CodeBadID, toll.CodePlanNotFound, toll.CodeNotPlanOwner}
	return []route{
		{
			op: "listUsage", export: toll.RightRead, method: "GET", path: Base + "/protocol/usage", auth: keyed, right: toll.RightRead, tag: "Usage",
			summary: "What was settled of the caller's plans, or by the caller, summed", action: listsBeside("UsageList", "usage", s.listUsage),
			query: slices.Concat([]query{
				{"role", "seller (default): of the caller's plans; buyer: what the caller used."},
				{"by", "day (default), hour, plan, agent, or subscriber. As buyer, day or plan."},
				{"planId", "Only this plan. As seller it must be a plan of the caller."},
				{"agentId", "Only settlements that name this agent; as seller."},
				{"subscriber", "Only this subscriber, as seller with planId, by day."},
			}, usageRange, sortedBy(store.SortGroup)),
			codes: append(slices.Clip(sums), toll.CodeBadAddress),
		},
		{
			op: "listRevenue", export: toll.RightMoney, method: "GET", path: Base + "/protocol/revenue", auth: keyed, right: toll.RightRead, tag: "Usage",
			summary: "What was paid for orders of the caller's plans, summed by currency", action: listsBeside("RevenueList", "revenue", s.listRevenue),
			query: slices.Concat([]query{
				{"by", "day (default), hour or plan."}, {"planId", "Only this plan, which must be one of the caller."},
			}, usageRange, sortedBy(store.SortGroup)),
			codes: sums,
		},
		{
			op: "listRefusals", export: toll.RightRead, method: "GET", path: Base + "/protocol/refusals", auth: keyed, right: toll.RightRead, tag: "Usage",
			summary: "How often the service refused verify and settle of the caller's plans", action: listsBeside("RefusalList", "refusals", s.listRefusals),
			query: slices.Concat([]query{
				{"by", "reason (default), hour, day, plan or agent."}, {"planId", "Only this plan, which must be one of the caller."},
				{"agentId", "Only requests that name this agent."},
				{"reason", "Only this reason, as invalidReason and errorReason say it."},
			}, usageRange, sortedBy(store.SortGroup)),
			codes: sums,
		},
	}
}

// SumRange says of which time sums are.
type SumRange struct {
	Since        toll.Time `json:"since" doc:"Begin of the range, at a full hour or day."`
	Until        toll.Time `json:"until" doc:"End of the range, at a full hour or day."`
	CountedUntil toll.Time `json:"countedUntil" doc:"Everything before this time is counted. Counts follow within seconds."`
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
	asked := f.sums(p, "hour", "day", "plan", "agent", "subscriber")
	asked.Agent = f.agent()
	asked.AsBuyer = filter(&f, "role", wordOf("seller", "buyer")) == "buyer"
	asked.Subscriber = filter(&f, "subscriber", toll.ParseAddress)
	if f.err != nil {
		return none, rest, f.err
	}
	list, r, err := s.checkout.Usage(c.context, c.caller.Address, asked)
	return list, sumMembers{sumRange(r), pagingOf(p, list)}, err
}

func (s sums) listRevenue(c *call, p store.Page, q url.Values) (none store.List[*toll.Revenue], rest sumMembers, err error) {
	f := filters{q: q}
	asked := f.sums(p, "hour", "day", "plan")
	if f.err != nil {
		return none, rest, f.err
	}
	list, r, err := s.checkout.Revenue(c.context, c.caller.Address, asked)
	return list, sumMembers{sumRange(r), pagingOf(p, list)}, err
}

// refusalMembers is what an answer with refusals has beside them.
type refusalMembers struct {
	Since toll.Time `json:"since" doc:"Begin of the range, at a full hour or day."`
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
	list, r, err := s.checkout.Refusals(c.context, c.caller.Address, asked, reason)
	return list, refusalMembers{toll.At(r.Since), toll.At(r.Until), pagingOf(p, list)}, err
}
