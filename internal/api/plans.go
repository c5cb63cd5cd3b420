package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/url"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

type balances struct {
	store    *store.Store
	checkout *checkout.Checkout
}

func (g registry) planRoutes(b balances) []route {
	const at = Base + "/protocol/plans"
	return []route{
		{
			op: "registerPlan", method: "POST", path: at, auth: keyed, right: toll.RightManage, tag: "Plans", summary: "Register a plan",
			action: creates(g.registerPlan), codes: append([]toll.Code{toll.CodeNonceConflict, toll.CodeRateLimited}, registrationCodes...),
		},
		{
			op: "listPlans", export: toll.RightRead, method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Plans", summary: "List your plans",
			action: lists("PlanList", list.Plans, g.listPlans), query: paging, codes: []toll.Code{toll.CodeBadPage},
		},
		{
			op: "readPlan", method: "GET", path: at + "/{planId}", auth: open, right: public, tag: "Plans", summary: "Read a plan",
			action: reads(g.readPlan), codes: []toll.Code{toll.CodeBadID, toll.CodePlanNotFound},
		},
		{
			op: "listAgentsOfPlan", method: "GET", path: at + "/{planId}/agents", auth: open, right: public, tag: "Plans", summary: "List the agents of a plan",
			action: large(lists("AgentList", list.AgentsOfPlan, g.listAgentsOfPlan)), query: paging, codes: []toll.Code{toll.CodeBadID, toll.CodeBadPage, toll.CodeAgentsOfUnknownPlan},
		},
		{
			op: "readBalance", method: "GET", path: at + "/{planId}/balance", auth: keyed, right: toll.RightRead, tag: "Plans", summary: "Read your balance",
			action: reads(b.readBalance), codes: []toll.Code{toll.CodeBadID, toll.CodePlanNotFound},
		},
		{
			op: "readBalanceOf", method: "GET", path: at + "/{planId}/balance/{address}", auth: open, right: public, tag: "Plans",
			summary: "Read the balance of an address; only the holder and the owner of the plan see the lots of credits",
			action:  reads(b.readBalanceOf), codes: []toll.Code{toll.CodeBadID, toll.CodeBadAddress, toll.CodePlanNotFound},
		},
	}
}

type clock func() time.Time

// now is the time of a record that is written, as exact as it is stored.
func (t clock) now() time.Time { return t().UTC().Truncate(time.Microsecond) }

// recordID is the transaction of an act that touches no chain and no ledger entry: the hash of what it made.
func recordID(kind, id string) toll.Hash { return sha256.Sum256([]byte("toll/" + kind + "/" + id)) }

type PlanRegistered struct {
	Success bool        `json:"success"`
	PlanID  toll.PlanID `json:"planId"`
	TxHash  toll.Hash   `json:"txHash"`
}

func (g registry) registerPlan(c *call, in *toll.PlanInput, once *store.Once) (*PlanRegistered, error) {
	plan, err := in.Plan(c.caller.Address, g.clock.now())
	if err != nil {
		return nil, err
	}
	c.warnings = in.CreditsConfig.Warnings(plan.Credits)
	earlier, err := g.onceByNonce(c, "registerPlan", registration{plan: &plan, answer: planRegistered(plan.ID)}, in.Nonce, in, once)
	if err != nil {
		return nil, err
	}
	if earlier != nil {
		return planRegistered(earlier.ID), nil
	}
	return planRegistered(plan.ID), nil
}

func planRegistered(id toll.PlanID) *PlanRegistered {
	return &PlanRegistered{Success: true, PlanID: id, TxHash: recordID("plan", string(id))}
}

// registration is a plan that is registered, alone or with an agent.
type registration struct {
	plan        *toll.Plan
	agent       *toll.Agent // nil: none
	credentials []byte      // of the agent, sealed
	answer      any
}

func (g registry) insert(ctx context.Context, tx *store.Tx, r *registration, nonce string, sum []byte, once *store.Once) error {
	if err := store.InsertPlan(ctx, tx, r.plan, nonce, sum); err != nil {
		return err
	}
	// A nonce that is taken was told above: what exists already needs no room.
	if err := g.bounds.of(store.KindPlan, r.plan.Owner).Check(ctx, tx, 0); err != nil {
		return err
	}
	if r.agent == nil {
		if err := store.PutAnswer(ctx, tx, once, r.answer); err != nil {
			return err
		}
		return insertPlanEvent(ctx, tx, r.plan, toll.EventPlanCreated)
	}
	others := slices.DeleteFunc(slices.Clone(r.agent.Plans), func(p toll.PlanRef) bool { return p.PlanID == r.plan.ID })
	if err := g.bounds.of(store.KindAgent, r.agent.Owner).Check(ctx, tx, 1); err != nil {
		return err
	}
	if err := ownPlans(ctx, tx, r.agent.Owner, others); err != nil {
		return err
	}
	if err := store.InsertAgent(ctx, tx, r.agent, r.credentials); err != nil {
		return err
	}
	if err := store.PutAnswer(ctx, tx, once, r.answer); err != nil {
		return err
	}
	if err := insertAgentEvent(ctx, tx, r.agent.ID, toll.EventAgentCreated); err != nil {
		return err
	}
	return insertPlanEvent(ctx, tx, r.plan, toll.EventPlanCreated)
}

// onceByNonce stores a registration in one transaction. With a nonce the same caller, nonce and body again stores nothing and returns the
// plan of the first time; another body is a conflict. Bodies are the same when they decode to the same, whatever their blanks and order.
func (g registry) onceByNonce(
	c *call, op string, r registration, nonce *toll.Units, body any, once *store.Once,
) (earlier *toll.Plan, err error) {
	ctx := c.context
	name := ""
	var sum []byte
	if nonce != nil {
		name = nonce.String()
		text, err := x402.Encode(body)
		if err != nil {
			return nil, err
		}
		hash := sha256.Sum256(append([]byte(op+"\n"), text...))
		sum = hash[:]
	}
	err = g.store.Tx(ctx, func(tx *store.Tx) error { return g.insert(ctx, tx, &r, name, sum, once) })
	if nonce == nil || !store.IsUnique(err) {
		return nil, err
	}
	earlier, first, err := store.PlanByNonce(ctx, g.store, c.caller.Address, name)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(first, sum) {
		return nil, toll.NewError(toll.CodeNonceConflict).WithDetails("nonce %s", name)
	}
	return earlier, nil
}

func (g registry) listPlans(c *call, p store.Page, _ url.Values) (store.List[*toll.Plan], error) {
	return store.PlansOfOwner(c.context, g.store, c.caller.Address, p)
}

func (g registry) readPlan(c *call) (*toll.Plan, error) {
	return planInPath(c, g.store, toll.CodePlanNotFound)
}

func planInPath(c *call, q store.Querier, none toll.Code) (*toll.Plan, error) {
	id, err := toll.ParsePlanID(c.param("planId"))
	if err != nil {
		return nil, err
	}
	return planByID(c.context, q, id, none)
}

func planByID(ctx context.Context, q store.Querier, id toll.PlanID, none toll.Code) (*toll.Plan, error) {
	p, err := store.PlanByID(ctx, q, id)
	return p, found(err, none, "planId %s", id)
}

func (g registry) listAgentsOfPlan(c *call, p store.Page, _ url.Values) (none store.List[*toll.Agent], err error) {
	plan, err := planInPath(c, g.store, toll.CodeAgentsOfUnknownPlan)
	if err != nil {
		return none, err
	}
	return store.AgentsOfPlan(c.context, g.store, plan.ID, p)
}

func (b balances) readBalance(c *call) (*toll.Balance, error) { return b.of(c, c.caller.Address) }

func (b balances) readBalanceOf(c *call) (*toll.Balance, error) {
	holder, err := toll.ParseAddress(c.param("address"))
	if err != nil {
		return nil, err
	}
	return b.of(c, holder)
}

// of returns the balance of an address for the plan in the path, with its lots for the holder and the owner of the plan.
func (b balances) of(c *call, holder toll.Address) (*toll.Balance, error) {
	plan, err := planInPath(c, b.store, toll.CodePlanNotFound)
	if err != nil {
		return nil, err
	}
	return b.checkout.Balance(c.context, plan, holder, c.known && (c.caller.Address == holder || c.caller.Address == plan.Owner))
}
