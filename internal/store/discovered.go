package store

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Discovered is what a payment said of an endpoint of an agent.
type Discovered struct {
	Agent     toll.AgentID `db:"agent_id"`
	Verb      string       `db:"verb"`
	URL       string       `db:"url"` // of the endpoint, as registered
	MimeType  string       `db:"mime_type"`
	Info      string       `db:"info"` // JSON
	UpdatedAt time.Time    `db:"updated_at"`
}

var (
	discovered = newRecord[Discovered]("discovered")
	// InsertDiscovered stores what is known of an endpoint unless something is, and reports whether it did: of any number at the same
	// time, one is stored.
	InsertDiscovered = discovered.adds("ON CONFLICT (agent_id, verb, url) DO NOTHING")
	// PutDiscovered stores what is known of an endpoint from now on.
	PutDiscovered = discovered.puts(`ON CONFLICT (agent_id, verb, url) DO UPDATE
		SET mime_type = excluded.mime_type, info = excluded.info, updated_at = excluded.updated_at`)
)

// DiscoveredOf returns what is known of an endpoint, or [ErrNotFound].
func DiscoveredOf(ctx context.Context, q Querier, agent toll.AgentID, verb, url string) (Discovered, error) {
	return discovered.one(ctx, q, "WHERE agent_id = $1 AND verb = $2 AND url = $3", string(agent), verb, url)
}
