package events

import (
	"context"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

const (
	// dutyRest has the deriver pause 19 times longer than it works, and repair: each takes a twentieth of the time at most, so that
	// settlements do not feel it, but for turns that took unusually long.
	dutyRest = 19
	// gatherTime lets the entries of a burst come together.
	gatherTime = 20 * time.Millisecond
	// maxNotes bounds the accounts that are noted; repair finds what does not fit.
	maxNotes = 1 << 16
	// batchAccounts and batchEntries bound one transaction of the deriver. On SQLite settlements wait for it.
	batchAccounts = 128
	batchOnSQLite = 24
	batchEntries  = 64 // of one account
	// scanSlice is how many accounts repair looks at in one query, and lapTime the pause between two laps.
	scanSlice = 1000
	lapTime   = time.Second
)

// Notes are accounts with new entries. Nothing depends on them but how soon events appear.
type Notes struct {
	mu   sync.Mutex
	set  map[ledger.AccountID]struct{}
	wake jobs.Signal
}

// NewNotes returns an empty set. Add is for [ledger.Config].
func NewNotes() *Notes {
	return &Notes{set: map[ledger.AccountID]struct{}{}, wake: jobs.NewSignal()}
}

// Add notes an account, unless there are too many.
func (n *Notes) Add(id ledger.AccountID) {
	n.mu.Lock()
	if len(n.set) < maxNotes {
		n.set[id] = struct{}{}
	}
	n.mu.Unlock()
	n.wake.Fire()
}

func (n *Notes) take(most int) []ledger.AccountID {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []ledger.AccountID
	for id := range n.set {
		if len(out) == most {
			break
		}
		out = append(out, id)
		delete(n.set, id)
	}
	return out
}

func (n *Notes) empty() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.set) == 0
}

// derive makes events of the entries of noted accounts.
func (e *Events) derive(ctx context.Context) (next time.Duration, err error) {
	notes, batch := e.cfg.Notes, batchAccounts
	if e.st.Engine() == store.SQLite {
		batch = batchOnSQLite
	}
	accounts := notes.take(batch)
	if len(accounts) == 0 {
		return 0, nil
	}
	more, made, err := e.deriveBatch(ctx, accounts)
	for _, id := range more {
		notes.Add(id)
	}
	if made > 0 {
		e.hub.wake.Fire()
		e.sender.wake.Fire()
	}
	if !notes.empty() {
		next = jobs.AtOnce
	}
	return next, err // after an error, repair finds the accounts again
}

// repair notes accounts whose entries have no events and that nobody noted: those of other processes, and of one that was killed.
// It works off one slice, and does not wait for derive, which accounts in use keep busy.
func (e *Events) repair(ctx context.Context) (more bool, err error) {
	behind, last, end, err := store.AccountsBehind(ctx, e.st, e.lap, scanSlice)
	for _, id := range behind {
		e.cfg.Notes.Add(id)
	}
	if end || err != nil {
		last = ledger.AccountID{}
	}
	e.lap = last
	return !end && err == nil, err
}

func (e *Events) warn(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		e.log.Warn(what, "error", err.Error())
	}
}

// deriveBatch makes the next events of accounts in one transaction with their cursors, so that each entry has its events once,
// whoever derives and wherever it is stopped. It returns the accounts that may have more.
func (e *Events) deriveBatch(ctx context.Context, accounts []ledger.AccountID) (more []ledger.AccountID, made int, err error) {
	err = e.st.Tx(ctx, func(tx *store.Tx) error {
		more, made = nil, 0
		ids := make([][16]byte, len(accounts))
		for i, id := range accounts {
			ids[i] = id
		}
		cursors, err := store.LockEventCursors(ctx, tx, ids)
		if err != nil {
			return err
		}
		e.at("locked")
		from := make([]ledger.Behind, len(cursors))
		for i, c := range cursors {
			from[i] = ledger.Behind{Account: c.Account, Seq: c.Seq}
		}
		entries, err := e.cfg.Ledger.EntriesBehind(ctx, tx, from, batchEntries)
		if err != nil {
			return err
		}
		var all []store.NewEvent
		var moved []*store.EventCursor
		for _, c := range cursors {
			news := entries[c.Account]
			if len(news) == 0 {
				continue
			}
			for i := range news {
				all = append(all, follow(c, &news[i])...)
			}
			if len(news) == batchEntries {
				more = append(more, c.Account)
			}
			moved = append(moved, c)
		}
		if len(moved) == 0 {
			return nil
		}
		if err := store.InsertEvent(ctx, tx, all...); err != nil {
			return err
		}
		e.at("written")
		made = len(all)
		return store.SaveEventCursors(ctx, tx, moved)
	})
	if err == nil {
		e.at("committed")
	}
	return more, made, err
}

// follow returns the events that follow from the next entry of an account, and moves the cursor.
func follow(c *store.EventCursor, entry *ledger.BehindEntry) []store.NewEvent {
	c.Seq = entry.Seq
	base := store.NewEvent{At: time.UnixMicro(entry.AtMicros).UTC(), Account: c.Account, Entry: entry.Seq}
	balance := base
	balance.Kind, balance.ID = "balance", string(c.Plan)+"/"+c.Subscriber.String()
	var out []store.NewEvent
	both := func(e store.NewEvent, t toll.EventType) {
		e.Type, e.Principal = t, c.Subscriber
		out = append(out, e)
		if !c.Owner.IsZero() && c.Owner != c.Subscriber {
			e.Principal = c.Owner
			out = append(out, e)
		}
	}
	before := entry.BalanceAfter
	switch entry.Kind {
	case ledger.KindMint, ledger.KindReturn:
		both(balance, toll.EventCreditsMinted)
		if entry.Kind == ledger.KindMint {
			c.LowMark = entry.Amount / lowShare
		}
	case ledger.KindBurn:
		before += entry.Amount
		settlement := base
		settlement.Kind, settlement.ID, settlement.Single = "settlement", entry.Commitment.String(), true
		both(settlement, toll.EventSettlementSettled)
		if entry.Exhausts {
			p := base
			p.Type, p.Principal, p.Kind, p.ID = toll.EventPermissionExhausted, c.Subscriber, "permission", entry.Permission.String()
			out = append(out, p)
		}
	case ledger.KindExpire:
		before += entry.Amount
		both(balance, toll.EventCreditsExpired)
	case ledger.KindTakeBack:
		before += entry.Amount
		both(balance, toll.EventCreditsTakenBack)
	}
	if before >= c.LowMark && entry.BalanceAfter < c.LowMark {
		both(balance, toll.EventCreditsLow)
	}
	return out
}

// lowShare is the share of the last grant below which credits are low. A grant that is smaller than this never is.
const lowShare = 10
