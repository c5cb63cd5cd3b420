package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	sqlRequestKeysAfter = `SELECT account_id, request_key, agent_request_id FROM request_keys
		WHERE account_id >= $1 AND (account_id > $1 OR request_key > $2) ORDER BY account_id, request_key LIMIT $3`
	sqlRequestKeyForget = `DELETE FROM request_keys WHERE account_id = $1 AND request_key = $2 AND agent_request_id = $3`

	sqlPermissionsEnded = `SELECT account_id, permission_hash FROM permissions WHERE expires_at < $1
		ORDER BY expires_at LIMIT $2`
	sqlRequestsOver = `SELECT agent_request_id FROM requests
		WHERE account_id = $1 AND permission_hash = $2 AND state <> 1 LIMIT $3`

	sqlSubTasksForget    = `DELETE FROM sub_tasks WHERE account_id = $1 AND agent_request_id = $2`
	sqlPermissionForget  = `DELETE FROM permissions WHERE account_id = $1 AND permission_hash = $2`
	sqlPermissionForgets = `UPDATE permissions SET redeemed = $3, last_burn = $4 WHERE account_id = $1 AND permission_hash = $2`
	retainPermissions    = 64  // looked at in one call of Retain
	retainRequests       = 128 // of each kind that one transaction removes: settlements of the account wait for it
	retainEntries        = 512 // of the account that are read to find them
)

// Retained counts what [Ledger.Retain] removed.
type Retained struct {
	Permissions int
	Burns       int // settlements that were thinned
	Requests    int // that were released or lapsed
}

// Retain removes a part of what belongs to permissions that ended before a time: requests, with their sub-tasks, and the
// permissions; [Ledger.RetainKeys] follows. Of a settlement its entry stays, with its commitment and the id of its request. It reports whether there may be
// more.
//
// A permission goes an hour later than its end, as claims are settled for so long (see [SettleOp]). Each transaction locks one
// account and removes at most 128 requests of each kind. It is whole or not there; any number of processes may do this, and
// whoever finds that another one was faster does nothing.
func (l *Ledger) Retain(ctx context.Context, before time.Time) (n Retained, more bool, err error) {
	type ended struct {
		account AccountID
		hash    toll.Hash
	}
	all, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (e ended, err error) {
		var account, hash []byte
		err = scan(&account, &hash)
		copy(e.account[:], account)
		copy(e.hash[:], hash)
		return e, err
	}, sqlPermissionsEnded, before.Add(-lateSettle).UnixMicro(), int64(retainPermissions))
	if err != nil {
		return n, false, err
	}
	for _, e := range all {
		part, err := l.forget(ctx, e.account, e.hash)
		n.Permissions += part.Permissions
		n.Burns += part.Burns
		n.Requests += part.Requests
		if err != nil {
			return n, false, err
		}
		more = more || part != Retained{}
	}
	return n, more, nil
}

// forget removes a part of what belongs to a permission, and with the last part the permission.
func (l *Ledger) forget(ctx context.Context, id AccountID, hash toll.Hash) (n Retained, err error) {
	_, p, err := l.Snapshot(ctx, id, hash)
	if err != nil || p.Hash.IsZero() || p.OpenHolds > 0 { // the sweep ends open holds first
		return n, err
	}
	burns, previous, err := l.burnsUnder(ctx, id, &p)
	if err != nil || burns == nil && p.lastBurn > 0 {
		return n, err
	}
	var sum toll.Credits
	for i := range burns {
		sum += burns[i].Amount
	}
	err = l.Do(ctx, id, func(t *Tx) error {
		n = Retained{}
		now, err := t.Permission(hash)
		if err != nil {
			return err
		}
		if now.Hash.IsZero() || now.lastBurn != p.lastBurn || now.OpenHolds > 0 {
			return ErrRecorded // another process was faster
		}
		if t.account.ID == id { // a permission of an account that never ordered has no counters to write
			if _, err := t.do(cool{id, hash}); err != nil {
				return err
			}
		}
		over, err := store.All(ctx, t, func(scan func(dest ...any) error) (r string, err error) {
			err = scan(&r)
			return r, err
		},
			sqlRequestsOver, id[:], hash[:], int64(retainRequests))
		if err != nil {
			return err
		}
		var stmts []store.Stmt
		forget := func(request string, sql ...string) {
			for _, s := range sql {
				stmts = append(stmts, store.Stmt{SQL: s, Args: []any{id[:], request}})
			}
		}
		for _, request := range over {
			forget(request, sqlRequestSettled, sqlSubTasksForget)
		}
		for i := range burns {
			forget(burns[i].Ref, sqlSubTasksForget)
		}
		gone := Retained{Burns: len(burns), Requests: len(over)}
		if previous == 0 && len(over) < retainRequests {
			gone.Permissions = 1
			stmts = append(stmts, store.Stmt{SQL: sqlPermissionForget, Args: []any{id[:], hash[:]}})
		} else {
			stmts = append(stmts, store.Stmt{
				SQL: sqlPermissionForgets, Args: []any{id[:], hash[:], int64(now.Redeemed - sum), previous},
			})
		}
		if err := t.run(stmts...); err != nil {
			return err
		}
		if len(burns) > 0 {
			sides, err := store.SidesOf(ctx, t.Tx, [][16]byte{id})
			if err != nil {
				return err
			}
			if ok, err := store.KeepUsage(ctx, t.Tx, burns, sides); err != nil {
				return err
			} else if !ok {
				return ErrRecorded // not before usage has counted them
			}
		}
		n = gone
		return t.run(store.ThinJournal(burns)...)
	})
	return n, err
}

// burnsUnder returns the last burns under a permission, at most 128, newest first, and the seq of the one before them, 0 when
// there is none. It returns none as long as the follower has not read them, and when another process removes them.
func (l *Ledger) burnsUnder(ctx context.Context, id AccountID, p *Permission) (burns []store.JournalRow, previous int64, err error) {
	if p.lastBurn == 0 {
		return nil, 0, nil
	}
	followed, err := store.JournalCursor(ctx, l.st, store.Follower)
	if err != nil {
		return nil, 0, err
	}
	first := max(p.lastBurn-retainEntries+1, 1)
	rows, err := store.JournalOf(ctx, l.st, id, first, int(p.lastBurn-first+1))
	if err != nil {
		return nil, 0, err
	}
	previous = p.lastBurn
	for i := len(rows) - 1; i >= 0 && len(burns) < retainRequests; i-- {
		r := rows[i]
		if r.Seq != previous {
			continue
		}
		if r.Pos > followed {
			return nil, 0, nil
		}
		if r.Thin() {
			return nil, 0, nil // another process has removed it since the permission was read
		}
		if r.Burn == nil || r.Burn.Permission != p.Hash {
			return nil, 0, fmt.Errorf("ledger: entry %d of account %s is not a burn of permission %s", r.Seq, id, p.Hash)
		}
		burns = append(burns, r)
		previous = r.Burn.Previous
	}
	return burns, previous, nil
}

// KeyCursor is a place among the keys of requests; the zero value is before the first.
type KeyCursor struct {
	account AccountID
	key     string
}

// retainKeys is how many keys one call of RetainKeys looks at.
const retainKeys = 256

// RetainKeys goes through the next 256 keys of requests behind a place, and removes those whose request went. It returns the place to
// go on from, the zero value at the end. An index of them by request would cost every call with a key.
func (l *Ledger) RetainKeys(ctx context.Context, after KeyCursor) (next KeyCursor, removed int, err error) {
	type named struct {
		KeyCursor
		request string
	}
	keys, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (n named, err error) {
		var account []byte
		err = scan(&account, &n.key, &n.request)
		copy(n.account[:], account)
		return n, err
	}, sqlRequestKeysAfter, after.account[:], after.key, int64(retainKeys))
	if err != nil {
		return after, 0, err
	}
	// A key is written with its request, so that one without a request is past its time.
	var gone []store.Stmt
	for _, k := range keys {
		r, err := l.Request(ctx, k.account, k.request)
		if errors.Is(err, store.ErrNotFound) || r.Removed {
			gone = append(gone, store.Stmt{SQL: sqlRequestKeyForget, Args: []any{k.account[:], k.key, k.request}})
		} else if err != nil {
			return after, 0, err
		}
	}
	if len(gone) > 0 {
		if err := l.st.Tx(ctx, func(tx *store.Tx) error { return tx.Run(ctx, gone...) }); err != nil {
			return after, 0, err
		}
	}
	if len(keys) == retainKeys {
		next = keys[len(keys)-1].KeyCursor
	}
	return next, len(gone), nil
}
