package ledger

import (
	"context"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// What the deriver of events needs of an entry: a burn comes with its permission, and whether that is used up by now.
	sqlEntriesBehind = `SELECT e.account_id, e.seq, e.kind, e.amount, e.balance_after, e.ref, e.at, e.commitment, r.permission_hash,
			CASE WHEN p.account_id IS NULL THEN 0 ELSE 1 END
		FROM entries e
		LEFT JOIN requests r ON e.kind = 2 AND r.account_id = e.account_id AND r.agent_request_id = e.ref
		LEFT JOIN permissions p ON p.account_id = e.account_id AND p.permission_hash = r.permission_hash
			AND p.redemption_limit IS NOT NULL AND p.redeemed >= p.redemption_limit
		WHERE e.account_id = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3`
	sqlEntriesBehindOf = `SELECT e.account_id, e.seq, e.kind, e.amount, e.balance_after, e.ref, e.at, e.commitment, r.permission_hash,
			COALESCE(p.used, 0)
		FROM unnest($1::bytea[], $2::bigint[]) AS u(account_id, seq)
		CROSS JOIN LATERAL (SELECT ` + entryColumns + ` FROM entries
			WHERE account_id = u.account_id AND seq > u.seq ORDER BY seq LIMIT $3) e
		LEFT JOIN LATERAL (SELECT permission_hash FROM requests
			WHERE e.kind = 2 AND account_id = u.account_id AND agent_request_id = e.ref LIMIT 1) r ON TRUE
		LEFT JOIN LATERAL (SELECT CAST(1 AS BIGINT) AS used FROM permissions
			WHERE account_id = u.account_id AND permission_hash = r.permission_hash
				AND redemption_limit IS NOT NULL AND redeemed >= redemption_limit LIMIT 1) p ON TRUE
		ORDER BY e.account_id, e.seq`

	// From a burn under a permission back to the last one that took credits.
	sqlLastRedemption = `WITH RECURSIVE uses(seq, amount, ref) AS (
			SELECT seq, amount, ref FROM entries WHERE account_id = $1 AND seq = $2
			UNION ALL
			SELECT e.seq, e.amount, e.ref FROM uses u
				JOIN requests r ON r.account_id = $1 AND r.agent_request_id = u.ref
				JOIN entries e ON e.account_id = $1 AND e.seq = r.previous_burn
				WHERE u.amount = 0)
		SELECT COALESCE(MAX(seq), 0) FROM uses WHERE amount > 0`
)

// Behind names the entries of an account after one.
type Behind struct {
	Account AccountID
	Seq     int64
}

// BehindEntry is an entry whose events are to be made.
type BehindEntry struct {
	Entry
	Permission toll.Hash // of a burn
	Exhausts   bool      // the burn took the last credits that its permission may burn
}

// EntriesBehind returns the entries of accounts behind the given ones, at most limit of each account, by account and in order.
func (l *Ledger) EntriesBehind(ctx context.Context, tx *store.Tx, from []Behind, limit int) (map[AccountID][]BehindEntry, error) {
	out := make(map[AccountID][]BehindEntry, len(from))
	read := func(statement string, args ...any) error {
		entries, err := store.All(ctx, tx, func(scan func(dest ...any) error) (e BehindEntry, err error) {
			var permission []byte
			var used int64
			err = scanEntry(func(dest ...any) error { return scan(append(dest, &permission, &used)...) }, &e.Entry)
			copy(e.Permission[:], permission)
			e.Exhausts = used > 0 && e.Amount > 0
			return e, err
		}, statement, args...)
		for _, e := range entries {
			out[e.Account] = append(out[e.Account], e)
		}
		return err
	}
	if tx.Engine() == store.Postgres {
		ids, seqs := make([][]byte, len(from)), make([]int64, len(from))
		for i, f := range from {
			ids[i], seqs[i] = f.Account[:], f.Seq
		}
		if err := read(sqlEntriesBehindOf, ids, seqs, int64(limit)); err != nil {
			return nil, err
		}
	} else {
		for _, f := range from {
			if err := read(sqlEntriesBehind, f.Account[:], f.Seq, int64(limit)); err != nil {
				return nil, err
			}
		}
	}
	for account, entries := range out {
		last := map[toll.Hash]int{}
		for i, e := range entries {
			if e.Exhausts {
				last[e.Permission] = i
			}
		}
		for i := range entries {
			e := &entries[i]
			if e.Exhausts = e.Exhausts && last[e.Permission] == i; !e.Exhausts {
				continue
			}
			// Used up by now is not used up by this burn: later ones may have taken more.
			p, err := into(scanHotPermission)(tx.QueryRow(ctx, sqlPermissionNow, account[:], e.Permission[:]).Scan)
			if err != nil {
				return nil, err
			}
			var seq int64
			if err := tx.QueryRow(ctx, sqlLastRedemption, account[:], p.lastBurn).Scan(&seq); err != nil {
				return nil, err
			}
			e.Exhausts = seq == e.Seq
		}
	}
	return out, nil
}
