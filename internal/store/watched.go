package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Watched is what an operator watches of a database, each number read through an index.
type Watched struct {
	Open      map[string]int64     // open orders by rail
	States    map[[2]string]int64  // open orders by rail and the state of their payment there
	Oldest    map[string]time.Time // when the oldest of them was made
	Undecided map[string]int64     // orders by rail that could not yet take what became of their payment
	Webhooks  map[string]int64     // by status
	Waiting   int64                // deliveries to webhooks
	Schema    int64
	Mirror    int64     // closed periods of the mirror of burns that are not final on the chain
	MirrorEnd time.Time // when the oldest of them was over; zero: there is none
	Audit     LastAudit
}

// LastAudit is what an audit noted of itself.
type LastAudit struct {
	At       time.Time `json:"at"` // zero: none has noted anything
	Findings int       `json:"findings"`
}

// Names of settings.
const (
	settingAudit = "last_audit"
	// SettingMirrorPeriod is how long a period of the mirror of burns is, as Go writes it. With another length the numbers of
	// periods would start again.
	SettingMirrorPeriod = "mirror_period"
)

// NoteAudit notes the outcome of an audit for whoever watches.
func NoteAudit(ctx context.Context, tx *Tx, a LastAudit) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return PutSetting(ctx, tx, settingAudit, text)
}

// Watch reads what an operator watches.
func (s *Store) Watch(ctx context.Context) (w Watched, err error) {
	w = Watched{
		Open: map[string]int64{"card": 0, "crypto": 0}, States: map[[2]string]int64{}, Oldest: map[string]time.Time{},
		Undecided: map[string]int64{"card": 0, "crypto": 0}, Webhooks: map[string]int64{"active": 0, "paused": 0},
	}
	text, err := Setting(ctx, s, settingAudit)
	if err == nil {
		err = json.Unmarshal(text, &w.Audit)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return w, err
	}
	length, err := s.mirrorPeriod(ctx)
	if err != nil {
		return w, err
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
	for rail, states := range map[string]string{
		"card":   "SELECT r.state, COUNT(*), 0 FROM orders o JOIN card_payments r ON r.order_id = o.order_id WHERE o.open_key IS NOT NULL GROUP BY r.state",
		"crypto": "SELECT r.state, COUNT(*), 0 FROM orders o JOIN chain_ops r ON r.op_id = o.order_id WHERE o.open_key IS NOT NULL GROUP BY r.state",
	} {
		for _, g := range groups(states) {
			w.States[[2]string{rail, g.name}] = g.number
		}
	}
	for _, g := range groups("SELECT '', COUNT(*), COALESCE(MIN(period), 0) FROM mirror_periods WHERE state <> 'final'") {
		if w.Mirror = g.number; g.number > 0 {
			w.MirrorEnd = FromMicros((g.first + 1) * length.Microseconds())
		}
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

// mirrorPeriod returns how long a period of the mirror of burns is, 0 where nothing is mirrored.
func (s *Store) mirrorPeriod(ctx context.Context) (time.Duration, error) {
	text, err := Setting(ctx, s, SettingMirrorPeriod)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(string(text))
}
