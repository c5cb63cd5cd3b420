package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
)

// Refusal is a reason for which requests of a plan were refused in an hour.
type Refusal struct {
	Plan   toll.PlanID
	Owner  toll.Address // of the plan
	Agent  toll.AgentID // "": none
	Reason string
	Hour   time.Time // any time in it
}

var refusalHours = prepare(sums{
	table: "refusal_hours", key: []string{"plan_id", "hour", "agent_id", "reason"}, texts: []string{"owner"}, added: []string{"refused"},
})

// AddRefusals counts refusals, one row for each.
func AddRefusals(ctx context.Context, tx *Tx, counts map[Refusal]int64) error {
	rows := make([][]any, 0, len(counts))
	for r, n := range counts {
		at := Micros(r.Hour)
		rows = append(rows, []any{string(r.Plan), at - at%microsOfHour, string(r.Agent), r.Reason, r.Owner.Lower(), n})
	}
	slices.SortFunc(rows, byKey)
	return refusalHours.add(ctx, tx, rows)
}

// ByReason is what only refusals are summed by.
const ByReason UsageBy = "reason"

// Refusals lists how often requests of the plans of an owner, or of one of them, were refused, summed by f.By; "" for reason is all.
func Refusals(ctx context.Context, q Querier, f UsageFilter, reason string, p Page) (List[*toll.Refusals], error) {
	key := map[UsageBy]string{
		ByHour: "hour", ByDay: fmt.Sprintf("hour - hour %% %d", microsOfDay), ByPlan: "plan_id", ByAgent: "agent_id", ByReason: "reason",
	}[f.By]
	l := Listing{ID: "k", Columns: "k, refused", Sorts: map[Sort]string{SortGroup: "k"}}
	if f.timed() {
		l.Sorts = map[Sort]string{SortTime: "k"}
	}
	l.Args = []any{Micros(f.Since), Micros(f.Until), f.Owner.Lower()}
	where := "hour >= $1 AND hour < $2 AND owner = $3"
	if f.Plan != "" {
		where, l.Args[2] = "hour >= $1 AND hour < $2 AND plan_id = $3", string(f.Plan)
	}
	is := func(column, value string) {
		l.Args = append(l.Args, value)
		where += fmt.Sprintf(" AND %s = $%d", column, len(l.Args))
	}
	if f.Agent != nil {
		is("agent_id", string(*f.Agent))
	}
	if reason != "" {
		is("reason", reason)
	}
	l.Table = "(SELECT " + key + " AS k, CAST(SUM(refused) AS BIGINT) AS refused FROM refusal_hours WHERE " + where + " GROUP BY 1) sums"
	p.Sort = "" // there is one
	return Select(ctx, q, l, p, func(scan func(dest ...any) error) (*toll.Refusals, error) {
		var r toll.Refusals
		var at int64
		var id string
		dest := []any{&id, &r.Refused}
		if f.timed() {
			dest[0] = &at
		}
		err := scan(dest...)
		switch f.By {
		case ByPlan:
			r.PlanID = toll.PlanID(id)
		case ByAgent:
			r.AgentID = toll.AgentID(id)
		case ByReason:
			r.Reason = id
		default:
			r.Start = toll.AtPtr(FromMicros(at))
		}
		return &r, err
	})
}
