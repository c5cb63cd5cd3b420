package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/catalogue"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
)

var registrationCodes = []toll.Code{
	toll.CodeBadNumber, toll.CodeBadCreditsConfig, toll.CodeBadPriceConfig, toll.CodeFiatPriceTooHigh, toll.CodeFiatPriceTooLow, toll.CodeBadAddress,
}

type registry struct {
	store     *store.Store
	catalogue *catalogue.Catalogue
	vault     Vault
	bounds    bounds
	clock     clock
}

func (g registry) agentRoutes() []route {
	const at = Base + "/protocol/agents"
	return []route{
		{
			op: "registerAgent", method: "POST", path: at, auth: keyed, right: toll.RightManage, tag: "Agents", summary: "Register an agent and attach your plans to it",
			action: creates(g.registerAgent), codes: []toll.Code{toll.CodeRateLimited, toll.CodeBadID, toll.CodeNotPlanOwner, toll.CodePlanNotFound},
		},
		{
			op: "registerAgentWithPlan", method: "POST", path: at + "/plans", auth: keyed, right: toll.RightManage, tag: "Agents", summary: "Register an agent and its plan in one transaction",
			action: creates(g.registerAgentWithPlan), codes: append([]toll.Code{toll.CodeNonceConflict, toll.CodeRateLimited}, registrationCodes...),
		},
		{
			op: "listAgents", export: toll.RightRead, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Agents", summary: "List your agents",
			action: lists("AgentList", list.Agents, g.listAgents), query: paging, codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "readAgent", method: "GET", path: at + "/{agentId}", auth: open, right: public, tag: "Agents", summary: "Read an agent",
			action: readsLarge(by("agentId", toll.ParseAgentID, g.readAgent)), codes: []toll.Code{toll.CodeBadID, toll.CodeAgentNotFound},
		},
		{
			op: "listPlansOfAgent", method: "GET", path: at + "/{agentId}/plans", auth: open, right: public, tag: "Agents", summary: "List the plans of an agent",
			action: large(lists("PlanList", list.PlansOfAgent, g.listPlansOfAgent)), query: paging, codes: []toll.Code{toll.CodeBadID, toll.CodeBadPage, toll.CodePlansOfUnknownAgent},
		},
	}
}

type AgentRegistered struct {
	Success bool         `json:"success"`
	AgentID toll.AgentID `json:"agentId"`
	TxHash  toll.Hash    `json:"txHash"`
	Data    AgentData    `json:"data"`
}

// AgentData repeats the id for clients that read it there.
type AgentData struct {
	AgentID toll.AgentID `json:"agentId"`
}

func (g registry) registerAgent(c *call, in *toll.AgentInput, once *store.Once) (*AgentRegistered, error) {
	agent, secrets, err := in.Agent(c.caller.Address, g.clock.now())
	if err != nil {
		return nil, err
	}
	sealed, err := sealCredentials(g.vault, agent.ID, secrets)
	if err != nil {
		return nil, err
	}
	ctx := c.context
	out := &AgentRegistered{Success: true, AgentID: agent.ID, TxHash: recordID("agent", string(agent.ID)), Data: AgentData{agent.ID}}
	err = g.store.Tx(ctx, func(tx *store.Tx) error {
		if err := g.bounds.of(store.KindAgent, c.caller.Address).Check(ctx, tx, 1); err != nil {
			return err
		}
		if err := ownPlans(ctx, tx, c.caller.Address, agent.Plans); err != nil {
			return err
		}
		if err := store.InsertAgent(ctx, tx, &agent, sealed); err != nil {
			return err
		}
		if err := store.PutAnswer(ctx, tx, once, out); err != nil {
			return err
		}
		return insertAgentEvent(ctx, tx, agent.ID, toll.EventAgentCreated)
	})
	if err != nil {
		return nil, err
	}
	g.forgetPlans(agent.Plans)
	return out, nil
}

func ownPlans(ctx context.Context, q store.Querier, owner toll.Address, plans []toll.PlanRef) error {
	for _, p := range plans {
		plan, err := planByID(ctx, q, p.PlanID, toll.CodePlanNotFound)
		if err != nil {
			return err
		}
		if plan.Owner != owner {
			return toll.NewError(toll.CodeNotPlanOwner).WithDetails("planId %s", p.PlanID)
		}
	}
	return nil
}

// forgetPlans makes what the facilitator remembers about the agents of these plans count no more.
func (g registry) forgetPlans(plans []toll.PlanRef) {
	for _, p := range plans {
		g.catalogue.ForgetPlan(p.PlanID)
	}
}

func sealCredentials(vault Vault, id toll.AgentID, secrets *toll.Credentials) ([]byte, error) {
	if secrets == nil {
		return nil, nil
	}
	plain, err := json.Marshal(secrets)
	if err != nil {
		return nil, err
	}
	return vault.Seal(plain, CredentialsOf(id))
}

type AgentAndPlanRegistered struct {
	Success bool             `json:"success"`
	AgentID toll.AgentID     `json:"agentId"`
	PlanID  toll.PlanID      `json:"planId"`
	TxHash  toll.Hash        `json:"txHash"`
	Data    AgentAndPlanData `json:"data"`
}

// AgentAndPlanData repeats the ids for clients that read them there.
type AgentAndPlanData struct {
	AgentID toll.AgentID `json:"agentId"`
	PlanID  toll.PlanID  `json:"planId"`
}

func (g registry) registerAgentWithPlan(c *call, in *toll.AgentPlanInput, once *store.Once) (*AgentAndPlanRegistered, error) {
	r, err := in.Registration(c.caller.Address, g.clock.now())
	if err != nil {
		return nil, err
	}
	c.warnings = r.Warnings
	sealed, err := sealCredentials(g.vault, r.Agent.ID, r.Credentials)
	if err != nil {
		return nil, err
	}
	ctx := c.context
	agentID, planID := r.Agent.ID, r.Plan.ID
	earlier, err := g.onceByNonce(c, "registerAgentWithPlan", registration{
		plan: &r.Plan, agent: &r.Agent, credentials: sealed, answer: bothRegistered(agentID, planID),
	}, r.Nonce, in, once)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		agents, err := store.AgentsOfPlan(ctx, g.store, earlier.ID, store.Page{Size: 1, Ascending: true})
		if err != nil {
			return nil, err
		}
		if len(agents.Items) == 0 {
			return nil, toll.NewError(toll.CodeNonceConflict)
		}
		agentID, planID = agents.Items[0].ID, earlier.ID
	} else {
		g.forgetPlans(r.Agent.Plans)
	}
	return bothRegistered(agentID, planID), nil
}

func bothRegistered(agent toll.AgentID, plan toll.PlanID) *AgentAndPlanRegistered {
	return &AgentAndPlanRegistered{
		Success: true, AgentID: agent, PlanID: plan, TxHash: recordID("agent", string(agent)), Data: AgentAndPlanData{agent, plan},
	}
}

func (g registry) listAgents(c *call, p store.Page, _ url.Values) (store.List[*toll.Agent], error) {
	return store.AgentsOfOwner(c.context, g.store, c.caller.Address, p)
}

func (g registry) readAgent(c *call, id toll.AgentID) (*toll.Agent, error) {
	return agentByID(c.context, g.store, id, toll.CodeAgentNotFound)
}

func (g registry) listPlansOfAgent(c *call, p store.Page, _ url.Values) (none store.List[*toll.Plan], err error) {
	id, err := toll.ParseAgentID(c.param("agentId"))
	if err != nil {
		return none, err
	}
	if _, err := agentByID(c.context, g.store, id, toll.CodePlansOfUnknownAgent); err != nil {
		return none, err
	}
	return store.PlansOfAgent(c.context, g.store, id, p)
}

func agentByID(ctx context.Context, q store.Querier, id toll.AgentID, none toll.Code) (*toll.Agent, error) {
	a, err := store.AgentByID(ctx, q, id)
	return a, found(err, none, "agentId %s", id)
}

// found returns err, with the code none in place of [store.ErrNotFound].
func found(err error, none toll.Code, details string, args ...any) error {
	if errors.Is(err, store.ErrNotFound) {
		return toll.NewError(none).WithDetails(details, args...)
	}
	return err
}
