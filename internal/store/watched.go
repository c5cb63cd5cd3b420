package store

import (
	"context"
	"time"
)

// Watched is what an operator watches of a database, each number read through an index.
type Watched struct {
	Open      map[string]int64     // open orders by rail
	Oldest    map[string]time.Time // when the oldest of them was made
	Undecided map[string]int64     // orders by rail that could not yet take what became of their payment
	Webhooks  map[string]int64     // by status
	Waiting   int64                // deliveries to webhooks
	Schema    int64
}

// Watch reads what an operator watches.
func (s *Store) Watch(ctx context.Context) (w Watched, err error) {
	w = Watched{
		Open: map[string]int64{"card": 0, "crypto": 0}, Oldest: map[string]time.Time{},
		Undecided: map[string]int64{"card": 0, "crypto": 0}, Webhooks: map[string]int64{"active": 0, "paused": 0},
	}
	type group struct {
		name          string
		number, first int64
	}
	groups := func(statement string) []group {
		if err != nil {
			return nil
		}
		var all []group
		all, err = All(ctx, s, func(scan func(dest ...any) error) (g group, err error) {
			err = scan(&g.name, &g.number, &g.first)
			return g, err
		}, statement)
		return all
	}
	for _, g := range groups("SELECT COALESCE(rail, ''), COUNT(*), MIN(created_at) FROM orders WHERE open_key IS NOT NULL GROUP BY rail") {
		w.Open[g.name], w.Oldest[g.name] = g.number, FromMicros(g.first)
	}
	for _, g := range groups("SELECT 'card', COUNT(*), 0 FROM card_payments WHERE undecided") {
		w.Undecided[g.name] = g.number
	}
	for _, g := range groups("SELECT 'crypto', COUNT(*), 0 FROM chain_ops WHERE untold") {
		w.Undecided[g.name] = g.number
	}
	for _, g := range groups("SELECT status, COUNT(*), 0 FROM webhooks GROUP BY status") {
		w.Webhooks[g.name] = g.number
	}
	for _, g := range groups("SELECT '', COUNT(*), 0 FROM webhook_deliveries WHERE status = 'pending'") {
		w.Waiting = g.number
	}
	if err != nil {
		return w, err
	}
	schema, err := s.Schema(ctx)
	w.Schema = schema.Version
	return w, err
}
