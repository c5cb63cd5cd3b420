package ledger

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// sqlMirrorBurns reads what the mirror has not published. The time of entries never decreases within an account, so what is
// behind its cursor and before the cut has no gap.
const sqlMirrorBurns = `SELECT a.account_id, a.plan_id, a.subscriber, e.seq, e.amount, e.ref, e.at, e.commitment
	FROM plans p
	JOIN accounts a ON a.plan_id = p.plan_id
	LEFT JOIN mirror_cursors c ON c.account_id = a.account_id
	JOIN entries e ON e.account_id = a.account_id AND e.seq > COALESCE(c.seq, 0)
	WHERE p.mirrored AND a.seq > COALESCE(c.seq, 0) AND e.kind = 2 AND e.at < $1
	ORDER BY e.at, e.commitment`

// MirrorBurn is a burn that is to be published.
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

// MirrorBurns returns the burns of mirrored plans before a time that are in no period yet, by time and commitment.
func (l *Ledger) MirrorBurns(ctx context.Context, before time.Time) ([]MirrorBurn, error) {
	return store.All(ctx, l.st, func(scan func(dest ...any) error) (b MirrorBurn, err error) {
		var account, commitment []byte
		var subscriber string
		var at int64
		if err = scan(&account, &b.Plan, &subscriber, &b.Seq, &b.Amount, &b.Request, &at, &commitment); err != nil {
			return b, err
		}
		copy(b.Account[:], account)
		copy(b.Commitment[:], commitment)
		b.At = micro(at)
		b.Subscriber, err = toll.ParseAddress(subscriber)
		return b, err
	}, sqlMirrorBurns, before.UnixMicro())
}
