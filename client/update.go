package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
)

// maxEdits bounds the attempts of [Client.EditAgent] and [Client.EditPlan] during concurrent changes.
const maxEdits = 8

type ifMatchContext struct{}

// WithIfMatch makes changes of agents and plans under this context conditional: a change of a record with another version is
// refused with [toll.CodeRecordChanged]. Version 0 makes them unconditional again. A conditional change is not retried after a
// lost response, since the retry of an executed change would be refused.
func WithIfMatch(ctx context.Context, version int64) context.Context {
	return context.WithValue(ctx, ifMatchContext{}, version)
}

func ifMatch(ctx context.Context) int64 {
	n, _ := ctx.Value(ifMatchContext{}).(int64)
	return n
}

// EditAgent changes an agent on what it is now. It reads the agent and calls edit, which makes the
// change under the context that it gets. When somebody else has changed the agent since the read,
// the change is refused, and EditAgent starts over with the agent as it is then, at most 8 times.
//
//	err := c.EditAgent(ctx, id, func(ctx context.Context, a *toll.Agent) error {
//		tags := append(a.Metadata.Tags, "new")
//		_, err := c.UpdateAgent(ctx, id, toll.AgentUpdate{Tags: toll.SetTo(tags)})
//		return err
//	})
//
// Errors: those of edit, [toll.CodeRecordChanged] from the last attempt among them. A service of an
// older release gives records no version; there the change is unconditional.
func (c *Client) EditAgent(
	ctx context.Context, id toll.AgentID, edit func(context.Context, *toll.Agent) error,
) error {
	return c.edit(ctx, func() error {
		a, err := c.Agent(ctx, id)
		if err != nil {
			return err
		}
		return edit(WithIfMatch(ctx, a.Version), a)
	})
}

// EditPlan is [Client.EditAgent] for a plan.
func (c *Client) EditPlan(
	ctx context.Context, id toll.PlanID, edit func(context.Context, *toll.Plan) error,
) error {
	return c.edit(ctx, func() error {
		p, err := c.Plan(ctx, id)
		if err != nil {
			return err
		}
		return edit(WithIfMatch(ctx, p.Version), p)
	})
}

func (c *Client) edit(ctx context.Context, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		if n == maxEdits || !errors.Is(err, toll.NewError(toll.CodeRecordChanged)) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-c.sleep(backoff.Delay(5*time.Millisecond, time.Second, n)):
		}
	}
}

// UpdatePlan changes the description of a plan of the caller, and its maximum of orders. Price and credits never change.
func (c *Client) UpdatePlan(ctx context.Context, id toll.PlanID, u toll.PlanUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s", string(id)), u)
}

// UpdateAgent changes an agent of the caller; unset members stay, also upstream secrets. A list replaces the stored one:
// [Client.AddEndpoints] adds, and [Client.EditAgent] changes the current list.
func (c *Client) UpdateAgent(ctx context.Context, id toll.AgentID, u toll.AgentUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s", string(id)), u)
}

// AddEndpoints adds endpoints to an agent of the caller, regardless of concurrent changes. Existing ones are skipped, so the
// call can be repeated. An agent has at most [toll.MaxEndpoints] of a kind.
func (c *Client) AddEndpoints(
	ctx context.Context, id toll.AgentID, in toll.EndpointsInput,
) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPost, api("/protocol/agents/%s/endpoints", string(id)), in)
}

// SetPlanListed lists or unlists a plan of the caller. An unlisted plan takes no more orders, and its credits still work.
// Without a change the response has a Code.
func (c *Client) SetPlanListed(ctx context.Context, id toll.PlanID, listed bool) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s/list/%s", string(id), strconv.FormatBool(listed)), nil)
}

// SetAgentListed lists or unlists an agent of the caller. An unlisted agent takes no more payments, and open holds still
// settle. Without a change the response has a Code.
func (c *Client) SetAgentListed(ctx context.Context, id toll.AgentID, listed bool) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s/list/%s", string(id), strconv.FormatBool(listed)), nil)
}

// AttachPlan adds a plan to an agent of the caller. A repeat gets the same response.
func (c *Client) AttachPlan(ctx context.Context, agent toll.AgentID, plan toll.PlanID) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPost, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)), nil)
}

// DetachPlan removes a plan from an agent of the caller.
func (c *Client) DetachPlan(ctx context.Context, agent toll.AgentID, plan toll.PlanID) (*toll.ActResult, error) {
	return remove[toll.ActResult](ctx, c, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)))
}
