package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// ListedAgent is an agent that can be bought, without its texts: enough to tell whether they changed, and how long they are.
type ListedAgent struct {
	ID        toll.AgentID
	Owner     string
	UpdatedAt int64 // microseconds since 1970
	Bytes     int64 // of its texts, and of what payments said of its endpoints
	Said      int64 // how many endpoints payments described
	SaidAt    int64 // sum of the times at which they did
	Plans     []ListedPlan
}

// Unlist takes all plans and agents of an owner off the list, as the next version of each.
func Unlist(ctx context.Context, tx *Tx, owner toll.Address, now time.Time) error {
	for _, statement := range []string{
		"UPDATE plans SET is_listed = FALSE, version = version + 1, updated_at = $2 WHERE owner = $1 AND is_listed",
		"UPDATE agents SET is_listed = FALSE, version = version + 1, updated_at = $2 WHERE owner = $1 AND is_listed",
	} {
		if _, err := tx.Exec(ctx, statement, owner.Lower(), Micros(now)); err != nil {
			return err
		}
	}
	return nil
}

// ListedPlan is a listed plan of a listed agent, without its texts.
type ListedPlan struct {
	ID        toll.PlanID
	UpdatedAt int64 // microseconds since 1970
}

// ListedAgents returns the listed agents, at most n, that have a listed plan, with these plans in their order. Of more it
// leaves out those of the owners who have most: of each owner those that were last updated are chosen first.
func ListedAgents(ctx context.Context, q Querier, n int) ([]*ListedAgent, error) {
	rows, err := q.Query(ctx, `SELECT agent_id, owner, updated_at, bytes FROM (
		SELECT a.agent_id, a.owner, a.updated_at, octet_length(a.metadata) + octet_length(a.api) AS bytes,
			ROW_NUMBER() OVER (PARTITION BY a.owner ORDER BY a.updated_at DESC, a.agent_id) AS place
		FROM agents a WHERE a.is_listed AND EXISTS (SELECT 1 FROM agent_plans l JOIN plans p ON p.plan_id = l.plan_id
			WHERE l.agent_id = a.agent_id AND p.is_listed)) AS listed
		ORDER BY place, updated_at DESC, agent_id LIMIT $1`, int64(n))
	byID := map[toll.AgentID]*ListedAgent{}
	all, err := scanAll(rows, err, func(scan func(dest ...any) error) (*ListedAgent, error) {
		var a ListedAgent
		err := scan(&a.ID, &a.Owner, &a.UpdatedAt, &a.Bytes)
		byID[a.ID] = &a
		return &a, err
	})
	if err != nil || len(all) == 0 {
		return all, err
	}
	if err := addListedPlans(ctx, q, byID); err != nil {
		return nil, err
	}
	return all, addSaid(ctx, q, byID)
}

func addListedPlans(ctx context.Context, q Querier, agents map[toll.AgentID]*ListedAgent) error {
	rows, err := q.Query(ctx, `SELECT l.agent_id, p.plan_id, p.updated_at FROM agent_plans l JOIN plans p ON p.plan_id = l.plan_id
		WHERE p.is_listed ORDER BY l.agent_id, l.position, l.plan_id`)
	_, err = scanAll(rows, err, func(scan func(dest ...any) error) (p ListedPlan, err error) {
		var agent toll.AgentID
		err = scan(&agent, &p.ID, &p.UpdatedAt)
		if a := agents[agent]; a != nil {
			a.Plans = append(a.Plans, p)
		}
		return p, err
	})
	return err
}

func addSaid(ctx context.Context, q Querier, agents map[toll.AgentID]*ListedAgent) error {
	rows, err := q.Query(ctx, `SELECT agent_id, COUNT(*), CAST(SUM(updated_at) AS BIGINT), CAST(SUM(octet_length(info)) AS BIGINT)
		FROM discovered GROUP BY agent_id`)
	_, err = scanAll(rows, err, func(scan func(dest ...any) error) (said ListedAgent, err error) {
		err = scan(&said.ID, &said.Said, &said.SaidAt, &said.Bytes)
		if a := agents[said.ID]; a != nil {
			a.Said, a.SaidAt = said.Said, said.SaidAt
			a.Bytes += said.Bytes
		}
		return said, err
	})
	return err
}

const idsAtOnce = 100

// EachAgent calls f for each of the agents that there are, without their plans, one in memory at a time.
func EachAgent(ctx context.Context, q Querier, ids []toll.AgentID, f func(*toll.Agent) error) error {
	return eachOf(ctx, q, "SELECT "+agentColumns+" FROM agents a WHERE a.agent_id IN ", ids, scanAgent, f)
}

// EachPlan is [EachAgent] for plans.
func EachPlan(ctx context.Context, q Querier, ids []toll.PlanID, f func(*toll.Plan) error) error {
	return eachOf(ctx, q, "SELECT "+planColumns+" FROM plans p WHERE p.plan_id IN ", ids, scanPlan, f)
}

// EachDiscovered is [EachAgent] for what payments said of the endpoints of agents.
func EachDiscovered(ctx context.Context, q Querier, ids []toll.AgentID, f func(Discovered) error) error {
	return eachOf(ctx, q, discovered.query("WHERE agent_id IN "), ids, discovered.scan, f)
}

// eachOf runs a statement that ends with IN for some ids at a time. A short list is filled up with its last id, so that there is
// one statement for all lengths.
func eachOf[ID ~string, T any](
	ctx context.Context, q Querier, statement string, ids []ID, scan func(func(dest ...any) error) (T, error), f func(T) error,
) error {
	statement += tuples(1, idsAtOnce)
	for len(ids) > 0 {
		n := min(len(ids), idsAtOnce)
		args := make([]any, idsAtOnce)
		for i := range args {
			args[i] = string(ids[min(i, n-1)])
		}
		ids = ids[n:]
		if err := eachRow(ctx, q, statement, args, scan, f); err != nil {
			return err
		}
	}
	return nil
}

func eachRow[T any](
	ctx context.Context, q Querier, statement string, args []any, scan func(func(dest ...any) error) (T, error), f func(T) error,
) error {
	rows, err := q.Query(ctx, statement, args...)
	return each(rows, err, func(row func(dest ...any) error) error {
		v, err := scan(row)
		if err == nil {
			err = f(v)
		}
		return err
	})
}
