package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
)

const planColumns = `p.plan_id, p.owner, p.metadata, p.price, p.credits, p.access_limit, p.max_orders, p.is_trial, p.is_listed,
	p.version, p.created_at, p.updated_at,
	COALESCE(p.suspended_at, 0) > 0 OR EXISTS (SELECT 1 FROM principals w WHERE w.address = p.owner AND w.suspended_at > 0)`

func planSorts() map[Sort]string {
	return map[Sort]string{SortCreated: "p.created_at", SortUpdated: "p.updated_at", SortName: "p.name"}
}

// InsertPlan adds a plan as version 1. A registration nonce is unique for the owner ("" for none), and bodyHash is what was registered
// under it. When the nonce is taken the error is [IsUnique], and [PlanByNonce] returns the plan that has it, after the transaction.
func InsertPlan(ctx context.Context, tx *Tx, p *toll.Plan, nonce string, bodyHash []byte) error {
	metadata, price, credits, err := encode3(p.Metadata, p.Price, p.Credits)
	if err != nil {
		return err
	}
	p.Version = 1
	_, err = tx.Exec(ctx, `INSERT INTO plans (plan_id, owner, name, metadata, price, credits, access_limit,
		max_orders, is_trial, is_listed, nonce, body_hash, version, created_at, updated_at, mirrored)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
		string(p.ID), p.Owner.Lower(), p.Metadata.Name, metadata, price, credits, string(p.AccessLimit),
		p.MaxOrders, p.IsTrial, p.IsListed, optional(nonce), bodyHash, p.Version,
		Micros(p.CreatedAt), Micros(p.UpdatedAt), p.Credits.OnchainMirror)
	// In one order, so that two transactions of an owner do not wait for each other.
	ordered := func(a, b toll.Address) int { return bytes.Compare(a[:], b[:]) }
	for _, r := range slices.SortedFunc(slices.Values(p.Price.Receivers), ordered) {
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO plan_receivers (owner, receiver) VALUES ($1, $2) ON CONFLICT (owner, receiver) DO NOTHING",
			p.Owner.Lower(), r.Lower())
	}
	return err
}

// IsReceiver reports whether some plan of the owner pays the receiver. The price of a plan never changes.
func IsReceiver(ctx context.Context, q Querier, owner, receiver toll.Address) (bool, error) {
	var one int64
	err := q.QueryRow(ctx, "SELECT 1 FROM plan_receivers WHERE owner = $1 AND receiver = $2", owner.Lower(), receiver.Lower()).Scan(&one)
	return err == nil, NotFoundAs(err, nil)
}

// UpdatePlan stores the metadata, the order limit, the listing and the time of the update as the next version, and sets p.Version to it;
// the rest of a plan never changes. The transaction has read the plan with [PlanForUpdate].
//
// Errors: [ErrNotFound] when there is no such plan.
func UpdatePlan(ctx context.Context, tx *Tx, p *toll.Plan) error {
	metadata, err := encode(p.Metadata)
	if err != nil {
		return err
	}
	p.Version++
	return found(tx.Exec(
		ctx,
		`UPDATE plans SET name = $2, metadata = $3, max_orders = $4, is_listed = $5,
		version = version + 1, updated_at = $6 WHERE plan_id = $1`,
		string(p.ID), p.Metadata.Name, metadata, p.MaxOrders, p.IsListed, Micros(p.UpdatedAt)))
}

// SuspendPlan suspends a plan since a moment; zero resumes it. Errors: [ErrNotFound].
var SuspendPlan = runs2[string, time.Time](found, "UPDATE plans SET suspended_at = $2 WHERE plan_id = $1")

// PlanByID returns a plan, or [ErrNotFound].
func PlanByID(ctx context.Context, q Querier, id toll.PlanID) (*toll.Plan, error) {
	return scanPlan(q.QueryRow(ctx, "SELECT "+planColumns+" FROM plans p WHERE p.plan_id = $1", string(id)).Scan)
}

// PlanForUpdate is [PlanByID] for a plan that the transaction is going to change: nobody else changes it meanwhile.
func PlanForUpdate(ctx context.Context, tx *Tx, id toll.PlanID) (*toll.Plan, error) {
	return scanPlan(tx.QueryRow(ctx, "SELECT "+planColumns+" FROM plans p WHERE p.plan_id = $1"+tx.ForUpdate(), string(id)).Scan)
}

// PlanByNonce returns the plan that the owner registered under the nonce, and what was registered; or [ErrNotFound].
func PlanByNonce(ctx context.Context, q Querier, owner toll.Address, nonce string) (p *toll.Plan, bodyHash []byte, err error) {
	p, err = scanPlan(func(dest ...any) error {
		return q.QueryRow(ctx, "SELECT "+planColumns+", p.body_hash FROM plans p WHERE p.owner = $1 AND p.nonce = $2", owner.Lower(), nonce).
			Scan(append(dest, &bodyHash)...)
	})
	return p, bodyHash, err
}

func PlansOfOwner(ctx context.Context, q Querier, owner toll.Address, p Page) (List[*toll.Plan], error) {
	return Select(ctx, q, Listing{
		Table: "plans p", Columns: planColumns, Where: "p.owner = $1", Args: []any{owner.Lower()}, ID: "p.plan_id", Sorts: planSorts(),
	}, p, scanPlan)
}

func PlansOfAgent(ctx context.Context, q Querier, id toll.AgentID, p Page) (List[*toll.Plan], error) {
	return Select(ctx, q, Listing{
		Table: "plans p JOIN agent_plans l ON l.plan_id = p.plan_id", Columns: planColumns,
		Where: "l.agent_id = $1", Args: []any{string(id)}, ID: "p.plan_id", Sorts: planSorts(),
	}, p, scanPlan)
}

func scanPlan(scan func(dest ...any) error) (*toll.Plan, error) {
	var p toll.Plan
	var id, owner, metadata, price, credits, limit string
	var created, updated int64
	err := scan(&id, &owner, &metadata, &price, &credits, &limit, &p.MaxOrders, &p.IsTrial, &p.IsListed, &p.Version, &created, &updated, &p.Suspended)
	if err != nil {
		return nil, err
	}
	p.ID, p.AccessLimit, p.CreatedAt, p.UpdatedAt = toll.PlanID(id), toll.AccessLimit(limit), FromMicros(created), FromMicros(updated)
	if p.Owner, err = toll.ParseAddress(owner); err != nil {
		return nil, err
	}
	for _, column := range []struct {
		text string
		into any
	}{{metadata, &p.Metadata}, {price, &p.Price}, {credits, &p.Credits}} {
		if err := json.Unmarshal([]byte(column.text), column.into); err != nil {
			return nil, fmt.Errorf("store: plan %s: %w", id, err)
		}
	}
	return &p, nil
}

func encode(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

func encode3(a, b, c any) (x, y, z string, err error) {
	if x, err = encode(a); err == nil {
		if y, err = encode(b); err == nil {
			z, err = encode(c)
		}
	}
	return x, y, z, err
}
