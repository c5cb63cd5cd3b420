package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	sqlPermissionUses = `WITH RECURSIVE uses(seq, n) AS (
			SELECT CAST($2 AS BIGINT), CAST(1 AS BIGINT)
			UNION ALL
			SELECT r.previous_burn, u.n + 1 FROM uses u JOIN entries e ON e.account_id = $1 AND e.seq = u.seq
				JOIN requests r ON r.account_id = $1 AND r.agent_request_id = e.ref
				WHERE r.previous_burn > 0 AND u.n < $3)
		SELECT e.commitment, e.ref, e.amount, e.at FROM uses u JOIN entries e ON e.account_id = $1 AND e.seq = u.seq
		ORDER BY e.seq DESC`
	sqlBurned = `SELECT r.agent_request_id, r.agent_id, r.resource, r.amount, r.ended_at, e.commitment
		FROM requests r JOIN entries e ON e.account_id = $1 AND e.seq = r.entry_seq
		WHERE r.account_id = $1 AND r.state = 2 AND r.ended_at >= $2 ORDER BY r.ended_at, r.agent_request_id LIMIT $3`
	sqlStale = `SELECT account_id FROM accounts WHERE next_lot_end <= $1
		UNION SELECT account_id FROM accounts WHERE next_hold_end <= $1 LIMIT $2`
	sqlAccountsOf = `SELECT ` + accountColumns + ` FROM accounts WHERE subscriber = $1 AND seq > 0 ORDER BY updated_at DESC, account_id LIMIT $2`
)

// Account returns an account as last written, the zero value when it does not exist. What time has done to it since is
// not in it: see [Account.Stale].
func (l *Ledger) Account(ctx context.Context, id AccountID) (Account, error) {
	a, err := into(scanAccount)(l.st.QueryRow(ctx, sqlAccount, id[:]).Scan)
	if errors.Is(err, store.ErrNotFound) {
		return Account{}, nil
	}
	return a, err
}

// AccountsOf returns the accounts of a subscriber as last written, those that changed last first, at most limit. It names no
// account: on a sharded store it asks every shard.
func (l *Ledger) AccountsOf(ctx context.Context, subscriber toll.Address, limit int) ([]Account, error) {
	return store.All(ctx, l.st, into(scanAccount), sqlAccountsOf, subscriber.Lower(), limit)
}

// Lots returns the lots of an account with credits left, in burn order, at most 1,024. What open holds
// keep of credits that [Tx.TakeBackTo] takes is not among them.
func (l *Ledger) Lots(ctx context.Context, id AccountID) ([]Lot, error) {
	a, err := l.Account(ctx, id)
	if err != nil {
		return nil, err
	}
	h, err := parseHot(a.hot)
	if err != nil {
		return nil, err
	}
	lots, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (lot Lot, err error) {
		r, err := scanLot(scan, &h)
		if err != nil {
			return lot, err
		}
		if lot = (Lot{ID: r.id, Ref: r.ref, Granted: r.granted, Remaining: r.remaining}); r.endsAt != never {
			lot.EndsAt = micro(r.endsAt)
		}
		return lot, nil
	}, sqlLotsTo[lotDepths[1]], id[:])
	return slices.DeleteFunc(lots, func(l Lot) bool { return strings.HasPrefix(l.Ref, backRef) }), err
}

// Snapshot returns an account and one permission of it: zero values for what does not exist.
func (l *Ledger) Snapshot(ctx context.Context, id AccountID, permission toll.Hash) (Account, Permission, error) {
	a, err := l.Account(ctx, id)
	if err != nil {
		return a, Permission{}, err
	}
	p, err := into(scanHotPermission)(l.st.QueryRow(ctx, sqlPermissionNow, id[:], permission[:]).Scan)
	if errors.Is(err, store.ErrNotFound) {
		return a, Permission{}, nil
	}
	return a, p, err
}

// CreatePermission stores a permission.
func (l *Ledger) CreatePermission(ctx context.Context, p Permission) error {
	return l.st.Tx(ctx, func(tx *store.Tx) error { return l.InsertPermission(ctx, tx, p) })
}

// InsertPermission is CreatePermission inside a transaction of the caller.
func (l *Ledger) InsertPermission(ctx context.Context, tx *store.Tx, p Permission) error {
	row, err := p.row()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, sqlPermissionAdd, row...)
	return err
}

// PermissionByHash returns a permission, store.ErrNotFound when there is none. It names no account: on a sharded store it
// asks every shard.
func (l *Ledger) PermissionByHash(ctx context.Context, hash toll.Hash) (Permission, error) {
	return into(scanHotPermission)(l.st.QueryRow(ctx, sqlPermissionByHash, hash[:]).Scan)
}

// PermissionFilter selects permissions of a subscriber.
type PermissionFilter struct {
	Subscriber toll.Address
	Plan       toll.PlanID           // "": all plans
	Status     toll.PermissionStatus // "": all
}

func (f PermissionFilter) where(now time.Time) (string, []any, error) {
	where := []string{"p.subscriber = $1"}
	args := []any{f.Subscriber.Lower()}
	add := func(cond string, v any) {
		args = append(args, v)
		where = append(where, strings.ReplaceAll(cond, "$?", fmt.Sprintf("$%d", len(args))))
	}
	if f.Plan != "" {
		add("p.plan_id = $?", string(f.Plan))
	}
	const usedUp = "p.redemption_limit IS NOT NULL AND p.redeemed >= p.redemption_limit" // true of rows, see [hot]
	us := now.UnixMicro()
	switch f.Status {
	case "":
	case toll.StatusRevoked:
		where = append(where, "p.revoked_at > 0")
	case toll.StatusExpired:
		add("p.revoked_at = 0 AND p.expires_at <= $?", us)
	case toll.StatusExhausted:
		add("p.revoked_at = 0 AND p.expires_at > $? AND "+usedUp, us)
	case toll.StatusActive:
		add("p.revoked_at = 0 AND p.expires_at > $? AND NOT ("+usedUp+")", us)
	default:
		return "", nil, toll.Errorf(toll.CodeBadRequest, "The status is not one of Active, Revoked, Expired, Exhausted.")
	}
	return strings.Join(where, " AND "), args, nil
}

// Permissions returns a part of the permissions that the filter selects. They sort by time of creation only.
func (l *Ledger) Permissions(ctx context.Context, f PermissionFilter, page store.Page) (store.List[Permission], error) {
	where, args, err := f.where(l.clock())
	if err != nil {
		return store.List[Permission]{}, err
	}
	listing := store.Listing{
		Table: joinHot, Columns: hotPermissionColumns, Where: where, Args: args, ID: "p.permission_hash",
		Sorts: map[store.Sort]string{store.SortCreated: "p.created_at"},
	}
	return store.Select(ctx, l.st, listing, page, into(scanHotPermission))
}

// PermissionUses returns the last n settlements under a permission, newest first.
func (l *Ledger) PermissionUses(ctx context.Context, id AccountID, hash toll.Hash, n int) ([]toll.PermissionUse, error) {
	_, p, err := l.Snapshot(ctx, id, hash)
	if err != nil || p.lastBurn == 0 {
		return []toll.PermissionUse{}, err
	}
	return store.All(ctx, l.st, func(scan func(dest ...any) error) (u toll.PermissionUse, err error) {
		var commitment []byte
		var at int64
		err = scan(&commitment, &u.AgentRequestID, &u.CreditsRedeemed, &at)
		copy(u.Transaction[:], commitment)
		u.CreatedAt = toll.At(micro(at))
		return u, err
	}, sqlPermissionUses, id[:], p.lastBurn, n)
}

// Burned is what one settled request has burned.
type Burned struct {
	Request     string
	Agent       toll.AgentID
	Resource    string
	Credits     toll.Credits
	At          time.Time
	Transaction toll.Hash
}

// BurnedSince returns what the requests of an account have burned since a moment, the oldest first, at most limit.
func (l *Ledger) BurnedSince(ctx context.Context, id AccountID, since time.Time, limit int) ([]Burned, error) {
	return store.All(ctx, l.st, func(scan func(dest ...any) error) (r Burned, err error) {
		var commitment []byte
		var at int64
		err = scan(&r.Request, &r.Agent, &r.Resource, &r.Credits, &at, &commitment)
		copy(r.Transaction[:], commitment)
		r.At = micro(at)
		return r, err
	}, sqlBurned, id[:], store.Micros(since), limit)
}

// Request returns a request, store.ErrNotFound when there is none.
func (l *Ledger) Request(ctx context.Context, id AccountID, requestID string) (Request, error) {
	return into(scanRequest)(l.st.QueryRow(ctx, sqlRequest, id[:], requestID).Scan)
}

// RequestOfKey returns the request that a payload nonce ("n:" + nonce) or a payment identifier ("p:" + id) names,
// store.ErrNotFound when there is none.
func (l *Ledger) RequestOfKey(ctx context.Context, id AccountID, key string) (Request, error) {
	var requestID string
	if err := l.st.QueryRow(ctx, sqlKey, id[:], key).Scan(&requestID); err != nil {
		return Request{}, err
	}
	return l.Request(ctx, id, requestID)
}

// RequestsByID returns the requests with an id that callers chose, which may stand in several accounts, as far as the party
// is their subscriber or owns their plan: newest first, at most limit. It names no account: on a sharded store it asks
// every shard.
func (l *Ledger) RequestsByID(ctx context.Context, requestID string, party toll.Address, limit int) ([]Request, error) {
	return store.All(ctx, l.st, into(scanRequest), sqlRequestsByID, requestID, party.Lower(), limit)
}

// RequestByTransaction returns the request that an entry settled, store.ErrNotFound when there is none. It names no
// account: on a sharded store it asks every shard.
func (l *Ledger) RequestByTransaction(ctx context.Context, tx toll.Hash) (Request, error) {
	e, err := into(scanEntry)(l.st.QueryRow(ctx, sqlEntryByTx, txPrefix(tx), tx[:]).Scan)
	if err != nil {
		return Request{}, err
	}
	if e.Kind != KindBurn {
		return Request{}, store.ErrNotFound
	}
	return l.Request(ctx, e.Account, e.Ref)
}

// Entry returns an entry of an account, store.ErrNotFound when there is none.
func (l *Ledger) Entry(ctx context.Context, id AccountID, seq int64) (Entry, error) {
	return into(scanEntry)(l.st.QueryRow(ctx, sqlEntry, id[:], seq).Scan)
}

// sweepSlice bounds the accounts that one sweep touches, so that a mass expiry is worked off in slices beside the traffic.
const sweepSlice = 256

// Sweep lapses the holds and ends the lots that are over, of at most 256 accounts, and returns how many it touched. An
// account whose ended lot is kept by an open hold is found again until the hold ends.
func (l *Ledger) Sweep(ctx context.Context) (int, error) {
	ids, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (id AccountID, err error) {
		var b []byte
		err = scan(&b)
		copy(id[:], b)
		return id, err
	}, sqlStale, l.clock().UnixMicro(), sweepSlice)
	if err != nil {
		return 0, err
	}
	errs := make(chan error, len(ids))
	for _, id := range ids {
		go func() { errs <- l.Touch(ctx, id) }()
	}
	for range ids {
		err = errors.Join(err, <-errs)
	}
	return len(ids), err
}

// PermissionsOfDelegation returns permissions of a subscriber that name the delegation and are not revoked, at most limit. It
// names no account: on a sharded store it asks every shard.
func (l *Ledger) PermissionsOfDelegation(ctx context.Context, subscriber toll.Address, delegation string, limit int) ([]Permission, error) {
	return store.All(ctx, l.st, into(scanHotPermission), sqlPermissionsOfDelegation, subscriber.Lower(), delegation, limit)
}

// PermissionsOfKey returns permissions that an API key made and that are neither revoked nor over, in the order of their hashes
// after one, at most limit. It names no account: on a sharded store it asks every shard.
func (l *Ledger) PermissionsOfKey(ctx context.Context, key, after toll.Hash, limit int) ([]Permission, error) {
	return store.All(ctx, l.st, into(scanHotPermission), sqlPermissionsOfKey, key.String(), after[:], l.clock().UnixMicro(), limit)
}

// MovePermission makes an API key the maker of a permission.
func (l *Ledger) MovePermission(ctx context.Context, p Permission, key toll.Hash) error {
	account := p.Account()
	return l.st.Tx(ctx, func(tx *store.Tx) error {
		if _, err := tx.Exec(ctx, sqlAccountVersion, account[:]); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sqlPermissionToKey, account[:], p.Hash[:], key.String())
		return err
	})
}
