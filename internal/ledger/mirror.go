package ledger

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Mirror is the name of the cursor of the mirror: each burn of a mirrored plan up to it is in a period.
const Mirror = "mirror"

// The rows are taken first, under a limit that is a parameter, so that a plan made for a small table uses the key when it has grown.
const sqlMirrorBurns = `SELECT ` + burnColumns + `, a.plan_id, a.subscriber
	FROM (SELECT pos, seq, kind, amount, balance_after, at, account_id, commitment, ref, body FROM journal WHERE pos > $1 AND pos <= $2 ORDER BY pos LIMIT $3) j
	JOIN accounts a ON a.account_id = j.account_id JOIN plans p ON p.plan_id = a.plan_id
	WHERE j.kind = 2 AND p.mirrored ORDER BY j.pos`

// mirrorPage is how many rows of the journal are looked at in one query.
const mirrorPage = 5000

type MirrorBurn struct {
	Account    AccountID
	Seq        int64
	Plan       toll.PlanID
	Subscriber toll.Address
	Amount     toll.Credits
	Request    string // agentRequestId
	At         time.Time
	Commitment toll.Hash
}

// MirrorBurns returns the burns of mirrored plans before a time that are in no period yet, by time and commitment, and the position
// to which the cursor of the mirror moves when they are in one.
func (l *Ledger) MirrorBurns(ctx context.Context, before time.Time) (burns []MirrorBurn, done int64, err error) {
	pos, err := store.JournalCursor(ctx, l.st, Mirror)
	if err != nil {
		return nil, 0, err
	}
	if done, err = store.JournalLength(ctx, l.st); err != nil {
		return nil, 0, err
	}
	for end := done; pos < end; pos += mirrorPage {
		type row struct {
			MirrorBurn
			pos int64
		}
		page, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (b row, err error) {
			var subscriber string
			r, err := store.ScanJournal(func(dest ...any) error { return scan(append(dest, &b.Plan, &subscriber)...) })
			if err != nil {
				return b, err
			}
			b.Account, b.Seq, b.Amount, b.Request, b.At = r.Account, r.Seq, r.Amount, r.Ref, micro(r.At)
			b.Commitment, b.pos = r.Commitment, r.Pos
			b.Subscriber, err = toll.ParseAddress(subscriber)
			return b, err
		}, sqlMirrorBurns, pos, min(pos+mirrorPage, end), int64(mirrorPage))
		if err != nil {
			return nil, 0, err
		}
		var found []toll.Hash
		for _, b := range page {
			if b.At.Before(before) {
				burns = append(burns, b.MirrorBurn)
				found = append(found, b.Commitment)
			} else if done == end {
				done = b.pos - 1 // it is the first one that waits
			}
		}
		// Behind one that had to wait may be some that are in a period already: clocks differ.
		known, err := store.MirroredBurns(ctx, l.st, found)
		if err != nil {
			return nil, 0, err
		}
		burns = slices.DeleteFunc(burns, func(b MirrorBurn) bool { return known[b.Commitment] })
	}
	slices.SortFunc(burns, func(a, b MirrorBurn) int {
		return cmp.Or(a.At.Compare(b.At), bytes.Compare(a.Commitment[:], b.Commitment[:]))
	})
	return burns, done, nil
}
