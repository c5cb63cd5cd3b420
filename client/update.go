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

// WithIfMatch makes changes of agents and plans under this context conditional: the service refuses to change a record with another
// version, with [toll.CodeRecordChanged]. Version 0 makes them unconditional again. A conditional change is not retried after a
// lost response, since the retry of an executed change would be refused.
func WithIfMatch(ctx context.Context, version int64) context.Context {
	return context.WithValue(ctx, ifMatchContext{}, version)
}

func ifMatch(ctx context.Context) int64 {
	n, _ := ctx.Value(ifMatchContext{}).(int64)
	return n
}

// EditAgent changes an agent based on its current version. It reads the agent and calls edit, which must make the change with
// the context that it receives. If the agent has changed since the read, the service refuses the change, and EditAgent starts
// over with the new version. It makes at most 8 attempts.
//
//	err := c.EditAgent(ctx, id, func(ctx context.Context, a *toll.Agent) error {
//		tags := append(a.Metadata.Tags, "new")
//		_, err := c.UpdateAgent(ctx, id, toll.AgentUpdate{Tags: toll.SetTo(tags)})
//		return err
//	})
//
// Errors: any error of reading the agent or of edit, including [toll.CodeRecordChanged] from the last attempt. Services of older
// releases do not version records; there, the change is unconditional.
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

// UpdatePlan changes the description and the maximum number of orders of a plan of the caller. Price and credits never change.
func (c *Client) UpdatePlan(ctx context.Context, id toll.PlanID, u toll.PlanUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s", string(id)), u)
}

// UpdateAgent changes an agent of the caller. Unset fields, including upstream secrets, stay unchanged. A list replaces the stored
// list. To extend it, use [Client.AddEndpoints] or [Client.EditAgent].
func (c *Client) UpdateAgent(ctx context.Context, id toll.AgentID, u toll.AgentUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s", string(id)), u)
}

// AddEndpoints adds endpoints to an agent of the caller, regardless of concurrent changes. It skips existing endpoints, so it is
// safe to repeat. An agent has at most [toll.MaxEndpoints] of each kind.
func (c *Client) AddEndpoints(
	ctx context.Context, id toll.AgentID, in toll.EndpointsInput,
) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPost, api("/protocol/agents/%s/endpoints", string(id)), in)
}

// SetPlanListed lists or unlists a plan of the caller. An unlisted plan cannot be ordered, but its credits still work.
// If nothing changes, the response has a Code.
func (c *Client) SetPlanListed(ctx context.Context, id toll.PlanID, listed bool) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s/list/%s", string(id), strconv.FormatBool(listed)), nil)
}

// SetAgentListed lists or unlists an agent of the caller. An unlisted agent cannot be paid, but open holds still
// settle. If nothing changes, the response has a Code.
func (c *Client) SetAgentListed(ctx context.Context, id toll.AgentID, listed bool) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s/list/%s", string(id), strconv.FormatBool(listed)), nil)
}

// AttachPlan adds a plan to an agent of the caller. Repeating it returns the same response.
func (c *Client) AttachPlan(ctx context.Context, agent toll.AgentID, plan toll.PlanID) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPost, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)), nil)
}

// DetachPlan removes a plan from an agent of the caller.
func (c *Client) DetachPlan(ctx context.Context, agent toll.AgentID, plan toll.PlanID) (*toll.ActResult, error) {
	return remove[toll.ActResult](ctx, c, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)))
}
