package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/tollhq/toll"
)

// UpdatePlan changes what describes a plan of the caller, and the most orders that it takes. Price and credits never change.
func (c *Client) UpdatePlan(ctx context.Context, id toll.PlanID, u toll.PlanUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/plans/%s", string(id)), u)
}

// UpdateAgent changes an agent of the caller: members that are not set stay, upstream secrets too.
func (c *Client) UpdateAgent(ctx context.Context, id toll.AgentID, u toll.AgentUpdate) (*toll.ActResult, error) {
	return c.act(ctx, http.MethodPut, api("/protocol/agents/%s", string(id)), u)
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
	var out toll.ActResult
	if err := c.remove(ctx, api("/protocol/agents/%s/plan/%s", string(agent), string(plan)), &out); err != nil {
		return nil, err
	}
	return &out, nil
}
