package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

type changes struct {
	store     *store.Store
	catalogue *catalogue.Catalogue
	vault     Vault
	clock     clock
}

func (g changes) routes() []route {
	const agents, plans = Base + "/protocol/agents/{agentId}", Base + "/protocol/plans/{planId}"
	agentCodes := []toll.Code{toll.CodeBadID, toll.CodeNotAgentOwner, toll.CodeAgentNotFound}
	planCodes := []toll.Code{toll.CodeBadID, toll.CodeNotPlanOwner, toll.CodePlanNotFound}
	return []route{
		{
			op: "updateAgent", method: "PUT", path: agents, auth: owners, right: toll.RightManage, ifMatch: true, tag: "Agents",
			summary: "Update an agent: each member that you send replaces the stored value, and null clears it", action: takes(g.updateAgent), codes: agentCodes,
		},
		{
			op: "setAgentListed", method: "PUT", path: agents + "/list/{state}", auth: owners, right: toll.RightManage, ifMatch: true, tag: "Agents",
			summary: "List (true) or unlist (false) an agent; verify refuses requests for an unlisted agent", action: reads(by("state", listState, g.setAgentListed)),
			codes: append([]toll.Code{toll.CodeBadRequest}, agentCodes...),
		},
		{
			op: "attachPlan", method: "POST", path: agents + "/plan/{planId}", auth: owners, right: toll.RightManage, ifMatch: true, tag: "Agents", summary: "Attach one of your plans to one of your agents",
			action: reads(by("planId", toll.ParsePlanID, g.attachPlan)), codes: append([]toll.Code{toll.CodeBadRequest, toll.CodeNotPlanOwner, toll.CodePlanNotFound}, agentCodes...),
		},
		{
			op: "detachPlan", method: "DELETE", path: agents + "/plan/{planId}", auth: owners, right: toll.RightManage, ifMatch: true, tag: "Agents", summary: "Detach a plan from an agent",
			action: reads(by("planId", toll.ParsePlanID, g.detachPlan)), codes: append([]toll.Code{toll.CodePlanNotAttached, toll.CodePlanNotFound}, agentCodes...),
		},
		{
			op: "addEndpoints", method: "POST", path: agents + "/endpoints", auth: owners, right: toll.RightManage,
			ifMatch: true, tag: "Agents",
			summary: "Append endpoints to the list of an agent; endpoints that are already in the list are skipped",
			action:  takes(g.addEndpoints), codes: agentCodes,
		},
		{
			op: "updatePlan", method: "PUT", path: plans, auth: owners, right: toll.RightManage, ifMatch: true, tag: "Plans",
			summary: "Update the metadata and the order limit of a plan; its price and credits cannot be changed", action: takes(g.updatePlan),
			codes: append([]toll.Code{toll.CodeBadNumber, toll.CodePlanTermsFixed}, planCodes...),
		},
		{
			op: "setPlanListed", method: "PUT", path: plans + "/list/{state}", auth: owners, right: toll.RightManage, ifMatch: true, tag: "Plans",
			summary: "List (true) or unlist (false) a plan; an unlisted plan accepts no orders", action: reads(by("state", listState, g.setPlanListed)),
			codes: append([]toll.Code{toll.CodeBadRequest}, planCodes...),
		},
	}
}

// acted is the answer to a change of a record. Its transaction names the state that the record has now: the hash of what it
// is and of when it last changed.
func (g changes) acted(kind, id string, changed time.Time, version int64, says said) *toll.ActResult {
	data := map[string]any{kind + "Id": id, "version": version}
	maps.Copy(data, says.data)
	return &toll.ActResult{
		Success: true, Message: says.message, HTTPStatus: 200, Data: data, When: toll.At(g.clock.now()),
		TxHash: recordID(kind, id+"/"+strconv.FormatInt(changed.UnixMicro(), 10)),
	}
}

// said is what a change tells: an event, and what its answer says beside the record.
type said struct {
	event   toll.EventType
	message string
	data    map[string]any
}

// ifMatch returns the version that the If-Match header names, 0 for any: without the header and for "*".
func (c *call) ifMatch() (int64, error) {
	lines, there := c.r.Header["If-Match"]
	if !there || len(lines) == 1 && lines[0] == "*" {
		return 0, nil
	}
	if len(lines) == 1 {
		text := lines[0]
		if n := len(text); n > 2 && text[0] == '"' && text[n-1] == '"' {
			text = text[1 : n-1]
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err == nil && n > 0 && text == strconv.FormatInt(n, 10) {
			return n, nil
		}
	}
	return 0, toll.Faults([]toll.Fault{{
		Path: "If-Match", Message: `must be one header with the version of the record, such as "3", or *`,
	}})
}

// checkVersion refuses to change a record whose version is not the wanted one; 0 wants any.
func checkVersion(want, has int64) error {
	if want == 0 || want == has {
		return nil
	}
	return toll.NewError(toll.CodeRecordChanged).
		WithDetails("the record has version %d, but the request expects version %d", has, want).WithParam("version", has)
}

// changeAgent runs a change of an agent of the caller in a transaction, while nobody else changes it, and returns the answer. The
// change reports whether it changed anything; only then the record is written, as the next version.
//
// Errors: [toll.CodeAgentNotFound], [toll.CodeNotAgentOwner], [toll.CodeRecordChanged], and those of the change.
func (g changes) changeAgent(
	c *call, says said, change func(ctx context.Context, tx *store.Tx, a *toll.Agent) (bool, error),
) (*toll.ActResult, error) {
	id, err := toll.ParseAgentID(c.param("agentId"))
	if err != nil {
		return nil, err
	}
	version, err := c.ifMatch()
	if err != nil {
		return nil, err
	}
	var agent *toll.Agent
	ctx := c.context
	err = g.store.Tx(ctx, func(tx *store.Tx) error {
		a, err := store.AgentForUpdate(ctx, tx, id)
		if err != nil {
			return found(err, toll.CodeAgentNotFound, "agentId %s", id)
		}
		if a.Owner != c.caller.Address {
			return toll.NewError(toll.CodeNotAgentOwner).WithDetails("agentId %s", id)
		}
		if err := checkVersion(version, a.Version); err != nil {
			return err
		}
		agent = a
		changed, err := change(ctx, tx, a)
		if err != nil || !changed {
			return err
		}
		a.UpdatedAt = g.after(a.UpdatedAt)
		if err := store.UpdateAgent(ctx, tx, a); err != nil {
			return err
		}
		return insertAgentEvent(ctx, tx, a.ID, says.event)
	})
	// Also after an error: the commit may have happened.
	g.catalogue.ForgetAgent(id)
	if err != nil {
		return nil, err
	}
	return g.acted("agent", string(id), agent.UpdatedAt, agent.Version, says), nil
}

func (g changes) changePlan(c *call, says said, change func(p *toll.Plan) (bool, error)) (*toll.ActResult, error) {
	id, err := toll.ParsePlanID(c.param("planId"))
	if err != nil {
		return nil, err
	}
	version, err := c.ifMatch()
	if err != nil {
		return nil, err
	}
	var plan *toll.Plan
	ctx := c.context
	err = g.store.Tx(ctx, func(tx *store.Tx) error {
		p, err := store.PlanForUpdate(ctx, tx, id)
		if err != nil {
			return found(err, toll.CodePlanNotFound, "planId %s", id)
		}
		if p.Owner != c.caller.Address {
			return toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", id)
		}
		if err := checkVersion(version, p.Version); err != nil {
			return err
		}
		plan = p
		changed, err := change(p)
		if err != nil || !changed {
			return err
		}
		p.UpdatedAt = g.after(p.UpdatedAt)
		if err := store.UpdatePlan(ctx, tx, p); err != nil {
			return err
		}
		return insertPlanEvent(ctx, tx, p, says.event)
	})
	g.catalogue.ForgetPlan(id)
	if err != nil {
		return nil, err
	}
	return g.acted("plan", string(id), plan.UpdatedAt, plan.Version, says), nil
}

// after returns the time of a change that follows one at t, later than that whatever the clock says, so that two states of a
// record never have one time.
func (g changes) after(t time.Time) time.Time {
	if now := g.clock.now(); now.After(t) {
		return now
	}
	return t.Add(time.Microsecond)
}

func (g changes) updateAgent(c *call, in *toll.AgentUpdate) (*toll.ActResult, error) {
	says := said{event: toll.EventAgentUpdated, message: "Agent updated."}
	return g.changeAgent(c, says, func(ctx context.Context, tx *store.Tx, a *toll.Agent) (bool, error) {
		var stored *toll.Credentials
		if in.ChangesCredentials() && a.API.HasCredentials {
			var err error
			if stored, err = openCredentials(ctx, tx, g.vault, a.ID); err != nil {
				return false, err
			}
		}
		updated, secrets, err := in.Apply(*a, stored)
		if err != nil {
			return false, err
		}
		changed, err := differ(a, &updated)
		if err != nil {
			return false, err
		}
		if in.ChangesCredentials() {
			sealed, err := sealCredentials(g.vault, a.ID, secrets)
			if err != nil {
				return false, err
			}
			if err := store.SetAgentCredentials(ctx, tx, a.ID, sealed); err != nil {
				return false, err
			}
			changed = true
		}
		*a = updated
		return changed, nil
	})
}

func openCredentials(ctx context.Context, q store.Querier, vault Vault, id toll.AgentID) (*toll.Credentials, error) {
	sealed, err := store.AgentCredentials(ctx, q, id)
	if err != nil || sealed == nil {
		return nil, err
	}
	plain, err := vault.Open(sealed, CredentialsOf(id))
	if err != nil {
		return nil, err
	}
	var c toll.Credentials
	if err := json.Unmarshal(plain, &c); err != nil {
		return nil, errors.New("api: stored upstream credentials are not JSON") // the error of the decoder could quote them
	}
	return &c, nil
}

// CredentialsOf is what the sealed credentials of an agent are bound to.
func CredentialsOf(id toll.AgentID) []byte { return []byte("agent-credentials/" + string(id)) }

func differ(a, b any) (bool, error) {
	x, err := x402.Encode(a)
	if err != nil {
		return false, err
	}
	y, err := x402.Encode(b)
	return !bytes.Equal(x, y), err
}

func (g changes) updatePlan(c *call, in *toll.PlanUpdate) (*toll.ActResult, error) {
	says := said{event: toll.EventPlanUpdated, message: "Plan updated."}
	return g.changePlan(c, says, func(p *toll.Plan) (bool, error) {
		updated, err := in.Apply(*p)
		if err != nil {
			return false, err
		}
		changed, err := differ(p, &updated)
		*p = updated
		return changed, err
	})
}

func listState(text string) (bool, error) {
	switch text {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, toll.Errorf(toll.CodeBadRequest, "The last part of the path must be true or false.")
}

func (g changes) setAgentListed(c *call, want bool) (*toll.ActResult, error) {
	already := false
	says := listedAs("agent", want, toll.EventAgentListed, toll.EventAgentUnlisted)
	out, err := g.changeAgent(c, says, func(_ context.Context, _ *store.Tx, a *toll.Agent) (bool, error) {
		already = a.IsListed == want
		a.IsListed = want
		return !already, nil
	})
	return alreadyListed(out, already, toll.CodeAgentListedAlready), err
}

func (g changes) setPlanListed(c *call, want bool) (*toll.ActResult, error) {
	already := false
	says := listedAs("plan", want, toll.EventPlanListed, toll.EventPlanUnlisted)
	out, err := g.changePlan(c, says, func(p *toll.Plan) (bool, error) {
		already = p.IsListed == want
		p.IsListed = want
		return !already, nil
	})
	return alreadyListed(out, already, toll.CodePlanListedAlready), err
}

func listedAs(kind string, want bool, listed, unlisted toll.EventType) said {
	data := map[string]any{"isListed": want}
	if want {
		return said{listed, "The " + kind + " is listed.", data}
	}
	return said{unlisted, "The " + kind + " is unlisted.", data}
}

// alreadyListed gives the answer the code of a record that was in the wanted state before.
func alreadyListed(r *toll.ActResult, already bool, code toll.Code) *toll.ActResult {
	if r != nil && already {
		r.Code, r.Message = code, code.Info().Message
	}
	return r
}

func (g changes) addEndpoints(c *call, in *toll.EndpointsInput) (*toll.ActResult, error) {
	says := said{event: toll.EventAgentUpdated, message: "Endpoints added."}
	return g.changeAgent(c, says, func(_ context.Context, _ *store.Tx, a *toll.Agent) (bool, error) {
		updated, changed, err := in.Apply(*a)
		if err == nil {
			*a = updated
		}
		return changed, err
	})
}

func (g changes) attachPlan(c *call, planID toll.PlanID) (*toll.ActResult, error) {
	says := said{toll.EventAgentUpdated, "Plan attached.", map[string]any{"planId": planID}}
	out, err := g.changeAgent(c, says, func(ctx context.Context, tx *store.Tx, a *toll.Agent) (bool, error) {
		if err := ownPlans(ctx, tx, c.caller.Address, []toll.PlanRef{{PlanID: planID}}); err != nil {
			return false, err
		}
		if a.HasPlan(planID) {
			return false, nil
		}
		if len(a.Plans) >= toll.MaxPlansPerAgent {
			return false, toll.Faults([]toll.Fault{{Path: "planId", Message: "the agent already has the maximum of " + strconv.Itoa(toll.MaxPlansPerAgent) + " plans"}})
		}
		return store.AttachPlan(ctx, tx, a.ID, planID)
	})
	g.catalogue.ForgetPlan(planID)
	return out, err
}

func (g changes) detachPlan(c *call, planID toll.PlanID) (*toll.ActResult, error) {
	says := said{toll.EventAgentUpdated, "Plan detached.", map[string]any{"planId": planID}}
	out, err := g.changeAgent(c, says, func(ctx context.Context, tx *store.Tx, a *toll.Agent) (bool, error) {
		if _, err := planByID(ctx, tx, planID, toll.CodePlanNotFound); err != nil {
			return false, err
		}
		removed, err := store.DetachPlan(ctx, tx, a.ID, planID)
		if err == nil && !removed {
			err = toll.NewError(toll.CodePlanNotAttached).WithDetails("agentId %s, planId %s", a.ID, planID)
		}
		return removed, err
	})
	g.catalogue.ForgetPlan(planID)
	return out, err
}
