package checkout

import (
	"cmp"
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// maxHours and maxDays bound the range of usage and revenue by hour, and by anything else.
	maxHours = 31 * 24 * time.Hour
	maxDays  = 400 * 24 * time.Hour
	// usualHours and usualDays are the ranges where a caller names none.
	usualHours = 24 * time.Hour
	usualDays  = 30 * 24 * time.Hour
)

type UsageQuery struct {
	AsBuyer      bool          // what the caller used of plans; else what was used of those of the caller
	By           store.UsageBy // "": [store.ByDay]
	Plan         toll.PlanID   // "": all plans
	Agent        *toll.AgentID // as seller: "" is what names none; nil: all
	Subscriber   toll.Address  // as seller, with Plan
	Since, Until time.Time     // zero: the last 24 hours by hour, else the last 30 days
	Page         store.Page
}

// UsageRange is the range of an answer, in whole hours or days, from Since to before Until. All entries before Counted are counted.
type UsageRange struct{ Since, Until, Counted time.Time }

// Reports reads what was bought, used, and refused.
type Reports struct{ *core }

// Usage lists what was settled, summed: of the caller's plans, or as buyer by the caller. Range is set also with an empty list. Errors:
// [toll.CodeBadRequest] for what does not go together, [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadPage].
func (c *Reports) Usage(ctx context.Context, caller toll.Address, q UsageQuery) (store.List[*toll.Usage], UsageRange, error) {
	var none store.List[*toll.Usage]
	f, r, err := c.usageFilter(ctx, caller, q)
	if err != nil {
		return none, r, err
	}
	by := func(path, message string) error { return toll.Faults([]toll.Fault{{Path: path, Message: message}}) }
	daily := q.AsBuyer || !q.Subscriber.IsZero() || f.By == store.BySubscriber
	switch {
	case q.AsBuyer && (f.By == store.BySubscriber || !q.Subscriber.IsZero()):
		err = by("role", "must be seller to see subscribers; buyers see only their own usage")
	case f.By == store.ByUpstream && (q.AsBuyer || !q.Subscriber.IsZero()):
		err = by("by", "cannot be upstream with role=buyer or subscriber; use route or model")
	case f.By.Labeled() && q.Agent != nil:
		err = by("agentId", "cannot be combined with by=upstream, route, or model, because this usage is not counted by agent")
	case daily && (f.By == store.ByHour || f.By == store.ByAgent):
		err = by("by", "must be day, plan, route, or model if role is buyer, and day, route, or model if subscriber is set")
	case daily && q.Agent != nil:
		err = by("agentId", "cannot be combined with role=buyer, subscriber, or by=subscriber, because this usage is not counted by agent")
	case daily && !q.AsBuyer && q.Plan == "":
		err = by("planId", "is required with subscriber and with by=subscriber")
	}
	if err != nil {
		return none, r, err
	}
	f.Agent, f.Subscriber = q.Agent, q.Subscriber
	if q.AsBuyer {
		f.Subscriber = caller
	}
	list, err := store.Usage(ctx, c.store, f, q.Page)
	return list, r, Fault(err)
}

// Revenue lists what was paid for orders of the caller's plans, by currency. Errors are those of [Reports.Usage].
func (c *Reports) Revenue(ctx context.Context, caller toll.Address, q UsageQuery) (store.List[*toll.Revenue], UsageRange, error) {
	f, r, err := c.usageFilter(ctx, caller, q)
	if err != nil {
		return store.List[*toll.Revenue]{}, r, err
	}
	list, err := store.Revenue(ctx, c.store, f, q.Page)
	return list, r, Fault(err)
}

// Refusals lists refusals of verify and settle on the caller's plans, for a reason or, with "", for all. Errors: those of [Reports.Usage].
func (c *Reports) Refusals(ctx context.Context, caller toll.Address, q UsageQuery, reason string) (store.List[*toll.Refusals], UsageRange, error) {
	f, r, err := c.usageFilter(ctx, caller, q)
	if err != nil {
		return store.List[*toll.Refusals]{}, r, err
	}
	f.Agent = q.Agent
	list, err := store.Refusals(ctx, c.store, f, reason, q.Page)
	return list, r, Fault(err)
}

func (c *Reports) usageFilter(ctx context.Context, caller toll.Address, q UsageQuery) (store.UsageFilter, UsageRange, error) {
	f := store.UsageFilter{By: cmp.Or(q.By, store.ByDay), Owner: caller, Plan: q.Plan}
	unit, usual, most, text := 24*time.Hour, usualDays, maxDays, "400 days"
	switch {
	case f.By == store.ByHour:
		unit, usual, most, text = time.Hour, usualHours, maxHours, "31 days with by=hour"
	case f.By != store.ByDay && f.By != store.BySubscriber && !f.By.Labeled() && !q.AsBuyer && q.Subscriber.IsZero():
		unit = time.Hour
	}
	until := q.Until
	if until.IsZero() {
		until = c.clock().Add(1)
	}
	r := UsageRange{Since: q.Since}
	if r.Until = until.UTC().Truncate(unit); r.Until.Before(until) {
		r.Until = r.Until.Add(unit) // the hour or day that has begun counts
	}
	if r.Since.IsZero() {
		r.Since = r.Until.Add(-usual)
	}
	r.Since = r.Since.UTC().Truncate(unit)
	if !r.Since.Before(r.Until) || r.Until.Sub(r.Since) > most {
		return f, r, toll.Faults([]toll.Fault{{Path: "since", Message: "must be earlier than until, by at most " + text}})
	}
	f.Since, f.Until = r.Since, r.Until
	if q.Plan != "" && !q.AsBuyer {
		if _, err := c.ownPlan(ctx, caller, q.Plan); err != nil {
			return f, r, err
		}
	}
	var err error
	r.Counted, err = c.ledger.UsageCounted(ctx)
	return f, r, Fault(err)
}
