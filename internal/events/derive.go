package events

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

// maxSides bounds the accounts whose sides are remembered: about 200 bytes each.
const maxSides = 1 << 15

// Consumer returns what makes the events of the journal: see [ledger.Consumer].
func (e *Events) Consumer() ledger.Consumer {
	return ledger.Consumer{Rows: e.derive, Done: func([]store.JournalRow) {
		e.at("committed")
		e.hub.wake.Fire()
		e.sender.wake.Fire()
	}}
}

func (e *Events) derive(ctx context.Context, tx *store.Tx, rows []store.JournalRow) error {
	e.at("locked")
	sides, err := e.sidesOf(ctx, tx, rows)
	if err != nil {
		return err
	}
	all := make([]store.NewEvent, 0, 2*len(rows))
	for i := range rows {
		all = follow(all, sides[rows[i].Account], &rows[i])
	}
	if err := store.InsertEvent(ctx, tx, all...); err != nil {
		return err
	}
	e.at("written")
	return nil
}

// sidesOf returns the sides of the accounts of rows. They never change once the plan has a record.
func (e *Events) sidesOf(ctx context.Context, tx *store.Tx, rows []store.JournalRow) (map[[16]byte]store.Sides, error) {
	e.sidesMu.Lock()
	defer e.sidesMu.Unlock()
	if len(e.sides) > maxSides {
		clear(e.sides)
	}
	out := map[[16]byte]store.Sides{}
	var unknown [][16]byte
	for i := range rows {
		id := rows[i].Account
		if _, ok := out[id]; ok {
			continue
		}
		known, ok := e.sides[id]
		if out[id] = known; !ok {
			unknown = append(unknown, id)
		}
	}
	read, err := store.SidesOf(ctx, tx, unknown)
	for id, s := range read {
		if out[id] = s; !s.Owner.IsZero() {
			e.sides[id] = s
		}
	}
	return out, err
}

// follow appends the events that follow from an entry.
func follow(out []store.NewEvent, sides store.Sides, entry *store.JournalRow) []store.NewEvent {
	base := store.NewEvent{At: store.FromMicros(entry.At), Account: entry.Account, Entry: entry.Seq}
	both := func(e store.NewEvent, t toll.EventType) {
		e.Type, e.Principal = t, sides.Subscriber
		out = append(out, e)
		if !sides.Owner.IsZero() && sides.Owner != sides.Subscriber {
			e.Principal = sides.Owner
			out = append(out, e)
		}
	}
	moved := func(t toll.EventType) {
		balance := base
		balance.Kind, balance.ID = "balance", string(sides.Plan)+"/"+sides.Subscriber.String()
		both(balance, t)
	}
	switch ledger.Kind(entry.Kind) {
	case ledger.KindMint, ledger.KindReturn:
		moved(toll.EventCreditsMinted)
	case ledger.KindBurn:
		settlement := base
		settlement.Position = entry.Pos
		both(settlement, toll.EventSettlementSettled)
		if entry.UsedUp {
			p := base
			p.Type, p.Principal, p.Kind, p.ID = toll.EventPermissionExhausted, sides.Subscriber, "permission", entry.Burn.Permission.String()
			out = append(out, p)
		}
	case ledger.KindExpire:
		moved(toll.EventCreditsExpired)
	case ledger.KindTakeBack:
		moved(toll.EventCreditsTakenBack)
	}
	if entry.Low {
		moved(toll.EventCreditsLow)
	}
	return out
}
