package store

import (
	"context"
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
