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

// maxEdits bounds how often [Client.EditAgent] and [Client.EditPlan] read a record that somebody
// else keeps changing.
const maxEdits = 8

type ifMatchContext struct{}

// WithIfMatch makes changes of agents and plans under this context conditional: one of a record
// that has another version is refused with [toll.CodeRecordChanged] and changes nothing. Version 0
// makes them unconditional again.
//
// A conditional change is not repeated when its answer is lost, since the repeat of one that was
// made would be refused.
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

// UpdatePlan changes what describes a plan of the caller, and the most orders that it takes. Price and credits never change.
func (c *Client) UpdatePlan(ctx context.Context, id toll.PlanID, u toll.PlanUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s", string(id)), u)
}

// UpdateAgent changes an agent of the caller: members that are not set stay, upstream secrets too.
// A list replaces the one that is stored: [Client.AddEndpoints] adds, and [Client.EditAgent]
// changes a list on what it is now.
func (c *Client) UpdateAgent(ctx context.Context, id toll.AgentID, u toll.AgentUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s", string(id)), u)
}

// AddEndpoints adds endpoints to an agent of the caller, whatever others change meanwhile. One that
// it has is not added again, so the call can be repeated. An agent has at most [toll.MaxEndpoints]
// of a kind.
func (c *Client) AddEndpoints(
	ctx context.Context, id toll.AgentID, in toll.EndpointsInput,
) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPost, api("/protocol/agents/%s/endpoints", string(id)), in)
}

// SetPlanListed lists a plan of the caller or takes it off the list: then it takes no more orders, and credits of it keep
// working. When it is so already the answer has a Code.
func (c *Client) SetPlanListed(ctx context.Context, id toll.PlanID, listed bool) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s/list/%s", string(id), strconv.FormatBool(listed)), nil)
}

// SetAgentListed lists an agent of the caller or takes it off the list: then it takes no more payments, and what is held
// still settles. When it is so already the answer has a Code.
func (c *Client) SetAgentListed(ctx context.Context, id toll.AgentID, listed bool) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s/list/%s", string(id), strconv.FormatBool(listed)), nil)
}

// AttachPlan adds a plan to an agent; the caller owns both. Again it is the same answer.
func (c *Client) AttachPlan(ctx context.Context, agent toll.AgentID, plan toll.PlanID) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPost, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)), nil)
}

// DetachPlan takes a plan from an agent of the caller.
func (c *Client) DetachPlan(ctx context.Context, agent toll.AgentID, plan toll.PlanID) (*toll.ActResult, error) {
	return remove[toll.ActResult](ctx, c, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)))
}
