package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// Discovered is what a payment said of an endpoint of an agent.
type Discovered struct {
	Agent     toll.AgentID
	Verb, URL string // of the endpoint, as registered
	MimeType  string
	Info      string // JSON
	UpdatedAt time.Time
}

// DiscoveredOf returns what is known of an endpoint, or [ErrNotFound].
func DiscoveredOf(ctx context.Context, q Querier, agent toll.AgentID, verb, url string) (Discovered, error) {
	d := Discovered{Agent: agent, Verb: verb, URL: url}
	var updated int64
	err := q.QueryRow(ctx, "SELECT mime_type, info, updated_at FROM discovered WHERE agent_id = $1 AND verb = $2 AND url = $3", string(agent), verb, url).
		Scan(&d.MimeType, &d.Info, &updated)
	d.UpdatedAt = FromMicros(updated)
	return d, err
}

// InsertDiscovered stores what is known of an endpoint unless something is, and reports whether it did: of any number at the same
// time, one is stored.
func InsertDiscovered(ctx context.Context, tx *Tx, d Discovered) (first bool, err error) {
	n, err := tx.Exec(ctx, `INSERT INTO discovered (agent_id, verb, url, mime_type, info, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (agent_id, verb, url) DO NOTHING`, string(d.Agent), d.Verb, d.URL, d.MimeType, d.Info, Micros(d.UpdatedAt))
	return n == 1, err
}

// PutDiscovered stores what is known of an endpoint from now on.
func PutDiscovered(ctx context.Context, tx *Tx, d Discovered) error {
	_, err := tx.Exec(ctx, `INSERT INTO discovered (agent_id, verb, url, mime_type, info, updated_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (agent_id, verb, url) DO UPDATE SET mime_type = $4, info = $5, updated_at = $6`,
		string(d.Agent), d.Verb, d.URL, d.MimeType, d.Info, Micros(d.UpdatedAt))
	return err
}

// Listed is what can be bought of everybody.
type Listed struct {
	Agents     []*toll.Agent // listed, last updated first, then by id; Plans are the listed ones
	Plans      map[toll.PlanID]*toll.Plan
	Discovered map[toll.AgentID][]Discovered
}

// ReadListed returns the listed agents, at most n, that have a listed plan, with these plans.
func ReadListed(ctx context.Context, q Querier, n int) (Listed, error) {
	l := Listed{Plans: map[toll.PlanID]*toll.Plan{}, Discovered: map[toll.AgentID][]Discovered{}}
	const chosen = `SELECT a.agent_id FROM agents a WHERE a.is_listed AND EXISTS (SELECT 1 FROM agent_plans l JOIN plans p ON p.plan_id = l.plan_id
		WHERE l.agent_id = a.agent_id AND p.is_listed) ORDER BY a.updated_at DESC, a.agent_id LIMIT $1`
	rows, err := q.Query(ctx, "SELECT "+agentColumns+" FROM agents a WHERE a.agent_id IN ("+chosen+") ORDER BY a.updated_at DESC, a.agent_id", int64(n))
	if err != nil {
		return l, err
	}
	defer rows.Close()
	byID := map[toll.AgentID]*toll.Agent{}
	for rows.Next() {
		a, err := scanAgent(rows.Scan)
		if err != nil {
			return l, err
		}
		l.Agents = append(l.Agents, a)
		byID[a.ID] = a
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return l, err
	}
	if err := l.readPlans(ctx, q, byID); err != nil {
		return l, err
	}
	return l, l.readDiscovered(ctx, q, byID)
}

func (l *Listed) readPlans(ctx context.Context, q Querier, agents map[toll.AgentID]*toll.Agent) error {
	rows, err := q.Query(ctx, "SELECT "+planColumns+`, l.agent_id FROM agent_plans l JOIN plans p ON p.plan_id = l.plan_id
		JOIN agents a ON a.agent_id = l.agent_id WHERE a.is_listed AND p.is_listed ORDER BY l.agent_id, l.position, l.plan_id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var agent string
		p, err := scanPlan(func(dest ...any) error { return rows.Scan(append(dest, &agent)...) })
		if err != nil {
			return err
		}
		a := agents[toll.AgentID(agent)]
		if a == nil {
			continue // beyond the bound
		}
		if known := l.Plans[p.ID]; known == nil {
			l.Plans[p.ID] = p
		}
		a.Plans = append(a.Plans, toll.PlanRef{PlanID: p.ID, Name: p.Metadata.Name})
	}
	return rows.Err()
}

func (l *Listed) readDiscovered(ctx context.Context, q Querier, agents map[toll.AgentID]*toll.Agent) error {
	rows, err := q.Query(ctx, "SELECT agent_id, verb, url, mime_type, info, updated_at FROM discovered")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d Discovered
		var agent string
		var updated int64
		if err := rows.Scan(&agent, &d.Verb, &d.URL, &d.MimeType, &d.Info, &updated); err != nil {
			return fmt.Errorf("store: discovered: %w", err)
		}
		d.Agent, d.UpdatedAt = toll.AgentID(agent), FromMicros(updated)
		if agents[d.Agent] != nil {
			l.Discovered[d.Agent] = append(l.Discovered[d.Agent], d)
		}
	}
	return rows.Err()
}
