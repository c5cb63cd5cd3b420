package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tollhq/toll"
)

// Watched is what an operator watches of a database. Each number is read through an index; webhooks, which are few, are read in whole.
type Watched struct {
	Open      map[string]int64     // open orders by rail
	States    map[[2]string]int64  // open orders by rail and the state of their payment there, or [StateNotRead]
	Oldest    map[string]time.Time // when the oldest of them was made
	Undecided map[string]int64     // orders by rail that could not yet take what became of their payment
	Webhooks  map[string]int64     // by status
	Waiting   int64                // deliveries to webhooks
	Schema    int64
	Mirror    int64     // closed periods of the mirror of burns that are not final on the chain
	MirrorEnd time.Time // when the oldest of them was over; zero: there is none
	Audit     LastAudit
}

type LastAudit struct {
	At       time.Time `json:"at"` // zero: none has noted anything
	Findings int       `json:"findings"`
	Seal     *Seal     `json:"seal,omitempty"` // nil: no audit without findings was noted
}

// Seal is the hash of the journal up to a position, when an audit found nothing wrong with it.
type Seal struct {
	Position int64     `json:"position"`
	Hash     toll.Hash `json:"hash"`
}

// NotedAudit returns what the last audit noted, the zero value for none.
func NotedAudit(ctx context.Context, q Querier) (a LastAudit, err error) {
	text, there, err := IfThere(Setting(ctx, q, settingAudit))
	if there {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// Names of settings.
const (
	settingAudit  = "last_audit"
	settingBackup = "last_backup"
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

// NoteBackup notes when a backup was made with other tools than those of this program.
func NoteBackup(ctx context.Context, tx *Tx, at time.Time) error {
	return PutSetting(ctx, tx, settingBackup, []byte(at.UTC().Format(time.RFC3339)))
}

// NotedBackup returns the time of the last [NoteBackup], zero for none.
func NotedBackup(ctx context.Context, q Querier) (time.Time, error) {
	text, there, err := IfThere(Setting(ctx, q, settingBackup))
	if err != nil || !there {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339, string(text))
}

func (s *Store) Watch(ctx context.Context) (w Watched, err error) {
	w = Watched{
		Open: map[string]int64{}, Oldest: map[string]time.Time{}, Webhooks: map[string]int64{"active": 0, "paused": 0},
	}
	if w.Audit, err = NotedAudit(ctx, s); err != nil {
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
	if err == nil {
		w.States, err = s.openStates(ctx, maxStates, w.Open)
	}
	for _, g := range groups("SELECT '', COUNT(*), COALESCE(MIN(period), 0) FROM mirror_periods WHERE state <> 'final'") {
		if w.Mirror = g.number; g.number > 0 {
			w.MirrorEnd = FromMicros((g.first + 1) * length.Microseconds())
		}
	}
	if err == nil {
		w.Undecided, err = countByRail(ctx, s, func(r Rail) string { return r.undecided })
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

// maxStates bounds the open orders whose payments are read, one by one.
const maxStates = 10_000

// StateNotRead is the state of open orders beyond [maxStates], whose payments are not read.
const StateNotRead = "not-read"

// openStates counts open orders by rail and the state of their payment. It reads the payments of at most limit orders; the others of
// a rail, which has as many as all says, count as [StateNotRead]. It reads the orders first and their payments then, as a cluster
// keeps the two on different machines. An order that is decided meanwhile may be counted.
func (s *Store) openStates(ctx context.Context, limit int, all map[string]int64) (map[[2]string]int64, error) {
	type open struct{ rail, id string }
	found, err := All(ctx, s, func(scan func(dest ...any) error) (o open, err error) {
		return o, scan(&o.rail, &o.id)
	}, "SELECT rail, order_id FROM orders WHERE open_key IS NOT NULL AND rail IS NOT NULL LIMIT $1", int64(limit)+1)
	if err != nil {
		return nil, err
	}
	read := found[:min(limit, len(found))]
	of := map[string][]string{}
	for _, o := range read {
		of[o.rail] = append(of[o.rail], o.id)
	}
	states := map[[2]string]int64{}
	for _, r := range Rails {
		err := eachOf(ctx, s, r.states, of[r.Name], func(scan func(dest ...any) error) (state string, err error) {
			return state, scan(&state)
		}, func(state string) error {
			states[[2]string{r.Name, state}]++
			return nil
		})
		if err != nil {
			return nil, err
		}
		if rest := all[r.Name] - int64(len(of[r.Name])); len(read) < len(found) && rest > 0 {
			states[[2]string{r.Name, StateNotRead}] = rest
		}
	}
	return states, nil
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
