package facilitator

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// maxHistory bounds the range of a list of requests. It is also the range where a caller names none.
const maxHistory = 90 * 24 * time.Hour

// RequestQuery selects requests that a caller is a party of.
type RequestQuery struct {
	AsBuyer      bool         // those of the caller; else those of the caller's plans
	Plan         toll.PlanID  // "": all plans
	Agent        toll.AgentID // "": all agents
	Subscriber   toll.Address // as seller, with Plan
	State        ledger.State // held, settled, released or lapsed; 0: all that have ended
	Since, Until time.Time    // zero: the 90 days before Until, which is now
	Page         store.Page   // has no number
}

// Requests lists the requests of a caller by the time of their end, and held ones by that of their begin.
// next is the cursor of the page behind, "" at the end; a page may have fewer requests than it may: see
// [ledger.Ledger.History]. Errors: [toll.CodeBadRequest] for what does not go together and for too many
// open holds, [toll.CodePlanNotFound], [toll.CodeNotPlanOwner], [toll.CodeBadPage].
func (f *Facilitator) Requests(ctx context.Context, caller toll.Address, q RequestQuery) (page []*toll.Settlement, next string, err error) {
	by := func(path, message string) error { return toll.Faults([]toll.Fault{{Path: path, Message: message}}) }
	filter := ledger.HistoryFilter{Plan: q.Plan, Agent: q.Agent, State: q.State, Since: q.Since, Until: q.Until}
	now := f.Clock()
	if filter.Until.IsZero() {
		filter.Until = now
	}
	if filter.Since.IsZero() {
		filter.Since = filter.Until.Add(-maxHistory)
	}
	switch {
	case !filter.Since.Before(filter.Until) || filter.Until.Sub(filter.Since) > maxHistory:
		return nil, "", by("since", "must be before until, and at most 90 days before it")
	case !q.Subscriber.IsZero() && (q.AsBuyer || q.Plan == ""):
		return nil, "", by("subscriber", "needs role=seller and planId")
	case q.AsBuyer:
		filter.Subscriber = caller
	default:
		filter.Seller, filter.Subscriber = caller, q.Subscriber
		if err := f.owns(ctx, caller, q.Plan); err != nil {
			return nil, "", err
		}
	}
	if q.Until.IsZero() {
		filter.Until = now.Add(time.Hour) // the clocks of other processes may be ahead
	}
	list, next, err := f.Ledger.History(ctx, filter, q.Page)
	if errors.Is(err, ledger.ErrManyHeld) {
		return nil, "", by("status", "names too many held requests to list them: name planId and subscriber as well")
	}
	if err != nil {
		return nil, "", toll.AsError(err)
	}
	page, err = f.settlements(ctx, caller, list)
	return page, next, err
}

// owns refuses a plan that is not the caller's. "" is none.
func (f *Facilitator) owns(ctx context.Context, caller toll.Address, id toll.PlanID) error {
	if id == "" {
		return nil
	}
	plan, e := f.Catalogue.Plan(ctx, id, toll.CodePlanNotFound)
	switch {
	case e != nil:
		return e
	case plan.Owner != caller:
		return toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", id)
	}
	return nil
}

// Request is [Facilitator.Settlement] with the states that the request took.
func (f *Facilitator) Request(ctx context.Context, caller toll.Address, id string) (*toll.RequestRecord, error) {
	s, err := f.Settlement(ctx, caller, id)
	if err != nil {
		return nil, err
	}
	return &toll.RequestRecord{Settlement: *s, Steps: stepsOf(s)}, nil
}

// stepsOf derives the states of a request from its times.
func stepsOf(s *toll.Settlement) []toll.RequestStep {
	steps := []toll.RequestStep{}
	add := func(status string, at *toll.Time, credits toll.Credits) {
		if at != nil {
			steps = append(steps, toll.RequestStep{Status: status, At: *at, Credits: credits})
		}
	}
	held, lapsed, settled := ledger.StateHeld.String(), ledger.StateLapsed.String(), ledger.StateSettled.String()
	if s.HoldExpiresAt != nil {
		add(held, &s.CreatedAt, s.HeldAmount)
	}
	switch s.Status {
	case settled:
		if s.HoldExpiresAt != nil && s.HoldExpiresAt.Before(s.SettledAt.Time) {
			add(lapsed, s.HoldExpiresAt, s.HeldAmount) // it was settled as a claim
		}
		add(settled, s.SettledAt, *s.Amount)
	case lapsed:
		add(lapsed, s.HoldExpiresAt, s.HeldAmount)
	case ledger.StateReleased.String():
		add(s.Status, s.EndedAt, s.HeldAmount)
	}
	return steps
}
