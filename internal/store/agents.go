package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tollhq/toll"
)

const agentColumns = `a.agent_id, a.owner, a.metadata, a.api, a.sealed_credentials IS NOT NULL,
	a.is_listed, a.version, a.created_at, a.updated_at`

// storedAPI is how the api column is written. Its names are not the wire's, which may change.
type storedAPI struct {
	Endpoints     []storedEndpoint `json:"endpoints,omitempty"`
	OpenEndpoints []string         `json:"open,omitempty"`
	Definition    string           `json:"definition,omitempty"`
	AuthType      string           `json:"auth,omitempty"`
	Strict        bool             `json:"strict,omitempty"`
}

type storedEndpoint struct {
	Verb string `json:"verb"`
	URL  string `json:"url"`
}

func encodeAPI(api toll.AgentAPI) (string, error) {
	s := storedAPI{
		OpenEndpoints: api.OpenEndpoints, Definition: api.AgentDefinitionURL, AuthType: api.AuthType, Strict: api.StrictEndpoints,
	}
	for _, e := range api.Endpoints {
		s.Endpoints = append(s.Endpoints, storedEndpoint(e))
	}
	return encode(s)
}

func decodeAPI(text string) (toll.AgentAPI, error) {
	var s storedAPI
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return toll.AgentAPI{}, err
	}
	api := toll.AgentAPI{
		OpenEndpoints: s.OpenEndpoints, AgentDefinitionURL: s.Definition, AuthType: s.AuthType, StrictEndpoints: s.Strict,
	}
	for _, e := range s.Endpoints {
		api.Endpoints = append(api.Endpoints, toll.Endpoint(e))
	}
	return api, nil
}

// InsertAgent adds an agent as version 1 and attaches its plans, which exist. sealedCredentials are its upstream secrets, nil for none.
func InsertAgent(ctx context.Context, tx *Tx, a *toll.Agent, sealedCredentials []byte) error {
	metadata, err := encode(a.Metadata)
	if err != nil {
		return err
	}
	api, err := encodeAPI(a.API)
	if err != nil {
		return err
	}
	a.Version = 1
	_, err = tx.Exec(
		ctx,
		`INSERT INTO agents (agent_id, owner, name, metadata, api, sealed_credentials,
		is_listed, version, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		string(a.ID), a.Owner.Lower(), a.Metadata.Name, metadata, api, sealedCredentials,
		a.IsListed, a.Version, Micros(a.CreatedAt), Micros(a.UpdatedAt))
	if err != nil {
		return err
	}
	for _, p := range a.Plans {
		if _, err := AttachPlan(ctx, tx, a.ID, p.PlanID); err != nil {
			return err
		}
	}
	return nil
}

// UpdateAgent stores the metadata, the API, the listing and the time of the update as the next
// version, and sets a.Version to it. The transaction has read the agent with [AgentForUpdate].
//
// Errors: [ErrNotFound] when there is no such agent.
func UpdateAgent(ctx context.Context, tx *Tx, a *toll.Agent) error {
	metadata, err := encode(a.Metadata)
	if err != nil {
		return err
	}
	api, err := encodeAPI(a.API)
	if err != nil {
		return err
	}
	a.Version++
	return found(tx.Exec(ctx, `UPDATE agents SET name = $2, metadata = $3, api = $4, is_listed = $5,
		version = version + 1, updated_at = $6 WHERE agent_id = $1`,
		string(a.ID), a.Metadata.Name, metadata, api, a.IsListed, Micros(a.UpdatedAt)))
}

// SetAgentCredentials stores the sealed upstream secrets of an agent, nil for none.
func SetAgentCredentials(ctx context.Context, tx *Tx, id toll.AgentID, sealed []byte) error {
	return found(tx.Exec(ctx, "UPDATE agents SET sealed_credentials = $2 WHERE agent_id = $1", string(id), sealed))
}

// AgentCredentials returns the sealed upstream secrets of an agent, nil for none.
var AgentCredentials = valueBy[[]byte, toll.AgentID]("SELECT sealed_credentials FROM agents WHERE agent_id = $1")

// AgentByID returns an agent with its plans, or [ErrNotFound].
func AgentByID(ctx context.Context, q Querier, id toll.AgentID) (*toll.Agent, error) {
	return oneAgent(ctx, q, id, "")
}

// AgentForUpdate is [AgentByID] for an agent that the transaction is going to change: nobody else changes it meanwhile.
func AgentForUpdate(ctx context.Context, tx *Tx, id toll.AgentID) (*toll.Agent, error) {
	return oneAgent(ctx, tx, id, tx.ForUpdate())
}

func oneAgent(ctx context.Context, q Querier, id toll.AgentID, lock string) (*toll.Agent, error) {
	a, err := scanAgent(q.QueryRow(ctx, "SELECT "+agentColumns+" FROM agents a WHERE a.agent_id = $1"+lock, string(id)).Scan)
	if err != nil {
		return nil, err
	}
	return a, addPlans(ctx, q, []*toll.Agent{a})
}

func AgentsOfOwner(ctx context.Context, q Querier, owner toll.Address, p Page) (List[*toll.Agent], error) {
	return selectAgents(ctx, q, Listing{Table: "agents a", Where: "a.owner = $1", Args: []any{owner.Lower()}}, p)
}

func AgentsOfPlan(ctx context.Context, q Querier, id toll.PlanID, p Page) (List[*toll.Agent], error) {
	return selectAgents(ctx, q, Listing{
		Table: "agents a JOIN agent_plans l ON l.agent_id = a.agent_id", Where: "l.plan_id = $1", Args: []any{string(id)},
	}, p)
}

// MaxAgentBytes bounds the texts of the agents of one page: an agent may have half a megabyte of endpoints.
const MaxAgentBytes = 4 << 20

func selectAgents(ctx context.Context, q Querier, l Listing, p Page) (List[*toll.Agent], error) {
	l.Columns, l.ID = agentColumns+", octet_length(a.metadata) + octet_length(a.api)", "a.agent_id"
	l.Sorts = map[Sort]string{SortCreated: "a.created_at", SortUpdated: "a.updated_at", SortName: "a.name"}
	bytes := int64(0)
	list, err := Select(ctx, q, l, p, func(scan func(dest ...any) error) (*toll.Agent, error) {
		var n int64
		a, err := scanAgent(func(dest ...any) error { return scan(append(dest, &n)...) })
		if bytes += n; err == nil && bytes > MaxAgentBytes && bytes > n {
			err = toll.Errorf(toll.CodeBadPage, "The agents on this page exceed %d bytes in total.", MaxAgentBytes).
				WithParam("parameter", "pageSize").WithHint("Request fewer records per page.")
		}
		return a, err
	})
	if err != nil {
		return list, err
	}
	return list, addPlans(ctx, q, list.Items)
}

// AgentIDsOfPlan returns the first n agents to which a plan is attached, by id.
func AgentIDsOfPlan(ctx context.Context, q Querier, id toll.PlanID, n int) ([]toll.AgentID, error) {
	return values[toll.AgentID](ctx, q, "SELECT agent_id FROM agent_plans WHERE plan_id = $1 ORDER BY agent_id LIMIT $2", string(id), int64(n))
}

// AttachPlan attaches a plan to an agent, after those that it has, and reports whether it was not attached before.
func AttachPlan(ctx context.Context, tx *Tx, agent toll.AgentID, plan toll.PlanID) (added bool, err error) {
	var last int64
	err = tx.QueryRow(ctx, "SELECT COALESCE(MAX(position), 0) FROM agent_plans WHERE agent_id = $1", string(agent)).Scan(&last)
	if err != nil {
		return false, err
	}
	return changed(tx.Exec(ctx, `INSERT INTO agent_plans (agent_id, plan_id, position) VALUES ($1, $2, $3)
		ON CONFLICT (agent_id, plan_id) DO NOTHING`, string(agent), string(plan), last+1))
}

var DetachPlan = first2[toll.AgentID, toll.PlanID]("DELETE FROM agent_plans WHERE agent_id = $1 AND plan_id = $2")

// addPlans reads the plans of at most a page of agents in one query.
func addPlans(ctx context.Context, q Querier, agents []*toll.Agent) error {
	if len(agents) == 0 {
		return nil
	}
	byID := make(map[string]*toll.Agent, len(agents))
	// A few lengths of the list, filled up by repeating an id, keep the number of statements small.
	n := 1
	for n < len(agents) {
		n *= 10
	}
	args := make([]any, n)
	for i := range n {
		a := agents[min(i, len(agents)-1)]
		args[i], byID[string(a.ID)] = string(a.ID), a
	}
	rows, err := q.Query(ctx, `SELECT l.agent_id, l.plan_id, p.name FROM agent_plans l JOIN plans p ON p.plan_id = l.plan_id
		WHERE l.agent_id IN `+tuples(1, n)+` ORDER BY l.agent_id, l.position, l.plan_id`, args...)
	_, err = scanAll(rows, err, func(scan func(dest ...any) error) (p toll.PlanRef, err error) {
		var agent string
		if err = scan(&agent, &p.PlanID, &p.Name); err == nil {
			byID[agent].Plans = append(byID[agent].Plans, p)
		}
		return p, err
	})
	return err
}

func scanAgent(scan func(dest ...any) error) (*toll.Agent, error) {
	var a toll.Agent
	var id, owner, metadata, api string
	var hasCredentials bool
	var created, updated int64
	err := scan(&id, &owner, &metadata, &api, &hasCredentials, &a.IsListed, &a.Version, &created, &updated)
	if err != nil {
		return nil, err
	}
	a.ID, a.CreatedAt, a.UpdatedAt = toll.AgentID(id), FromMicros(created), FromMicros(updated)
	if a.Owner, err = toll.ParseAddress(owner); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(metadata), &a.Metadata); err != nil {
		return nil, fmt.Errorf("store: agent %s: %w", id, err)
	}
	if a.API, err = decodeAPI(api); err != nil {
		return nil, fmt.Errorf("store: agent %s: %w", id, err)
	}
	a.API.HasCredentials = hasCredentials
	return &a, nil
}
