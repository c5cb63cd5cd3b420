package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	sqlStale = `SELECT account_id FROM accounts WHERE next_lot_end <= $1
		UNION SELECT account_id FROM accounts WHERE next_hold_end <= $1 LIMIT $2`
	sqlAccountsOf = `SELECT ` + accountColumns + ` FROM accounts WHERE subscriber = $1 AND seq > 0 ORDER BY updated_at DESC, account_id LIMIT $2`
)

// Account returns an account as last written, the zero value when it does not exist. What time has done to it since is
// not in it: see [Account.Stale].
func (l *Ledger) Account(ctx context.Context, id AccountID) (Account, error) {
	a, err := into(scanAccount)(l.st.QueryRow(ctx, sqlAccount, id[:]).Scan)
	return a, store.NotFoundAs(err, nil)
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
	return a, p, store.NotFoundAs(err, nil)
}

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

// PermissionByHash returns a permission, store.ErrNotFound when there is none. It names no account: on a sharded store it asks every shard.
func (l *Ledger) PermissionByHash(ctx context.Context, hash toll.Hash) (Permission, error) {
	return into(scanHotPermission)(l.st.QueryRow(ctx, sqlPermissionByHash, hash[:]).Scan)
}

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
		return "", nil, toll.Errorf(toll.CodeBadRequest, "The status must be Active, Revoked, Expired, or Exhausted.")
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
	uses := []toll.PermissionUse{}
	_, p, err := l.Snapshot(ctx, id, hash)
	for seq := p.lastBurn; err == nil && seq > 0 && len(uses) < n; {
		var row store.JournalRow
		if row, err = store.JournalEntry(ctx, l.st, id, seq); err != nil {
			break
		}
		r := RequestOf(&row)
		uses = append(uses, toll.PermissionUse{
			Transaction: r.Transaction, AgentRequestID: r.ID, CreditsRedeemed: r.Amount, CreatedAt: toll.At(r.EndedAt),
		})
		seq = r.previousBurn
	}
	return uses, err
}

type Burned struct {
	Request     string
	Agent       toll.AgentID
	Resource    string
	Credits     toll.Credits
	At          time.Time
	Transaction toll.Hash
}

// BurnedSince returns what the requests of an account have burned since a moment, the oldest first, at most limit, and the entries
// of all credits that the owner of the plan took back by hand since then ([Tx.Withdraw]).
func (l *Ledger) BurnedSince(ctx context.Context, id AccountID, since time.Time, limit int) (out []Burned, byHand []Entry, err error) {
	a, err := l.Account(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	// The time of entries never decreases within an account.
	first, failed := int64(1), error(nil)
	first += int64(sort.Search(int(a.Seq), func(i int) bool {
		if failed != nil {
			return true
		}
		var row store.JournalRow
		row, failed = store.JournalEntry(ctx, l.st, id, int64(i)+1)
		return row.At >= since.UnixMicro()
	}))
	for err = failed; err == nil && first <= a.Seq && (len(out) < limit || a.TakenBack > 0); {
		var rows []store.JournalRow
		rows, err = store.JournalOf(ctx, l.st, id, first, limit)
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			if e := EntryOf(&rows[i]); e.Kind == KindTakeBack && strings.HasPrefix(e.Ref, withdrawRef) {
				byHand = append(byHand, e)
			} else if r := RequestOf(&rows[i]); r.State == StateSettled && !r.Removed && len(out) < limit {
				out = append(out, Burned{r.ID, r.Agent, r.Resource, r.Amount, r.EndedAt, r.Transaction})
			}
		}
		first = rows[len(rows)-1].Seq + 1
	}
	return out, byHand, err
}

// PaidTakenByHand returns how many credits of paid orders the owner of the plan took back from an account by hand and not refunded
// since, as builds before migration 81 allowed. Credits that were taken by hand count as unpaid ones first.
func (l *Ledger) PaidTakenByHand(ctx context.Context, a *Account) (toll.Credits, error) {
	var out, unpaid, lost toll.Credits
	err := l.st.QueryRow(ctx, sqlTakenByHand, a.ID[:]).Scan(&out, &unpaid, &lost)
	return max(a.TakenBack-a.Returned-out-unpaid-lost, 0), err
}

// Request returns a request, store.ErrNotFound when there is none.
func (l *Ledger) Request(ctx context.Context, id AccountID, requestID string) (Request, error) {
	// In this order, as a settlement moves the request from the one to the other.
	r, err := into(scanRequest)(l.st.QueryRow(ctx, sqlRequest, id[:], requestID).Scan)
	if !errors.Is(err, store.ErrNotFound) {
		return r, err
	}
	row, err := store.BurnOf(ctx, l.st, id, requestID)
	return RequestOf(&row), err
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

// RequestsByID returns the requests with an id that callers chose, which may stand in several accounts, as far as the party is their
// subscriber or owns their plan: newest first, at most limit. It names no account: on a sharded store it asks every shard.
func (l *Ledger) RequestsByID(ctx context.Context, requestID string, party toll.Address, limit int) ([]Request, error) {
	all, err := store.All(ctx, l.st, into(scanRequest), sqlRequestsByID, requestID, party.Lower(), limit)
	if err != nil {
		return nil, err
	}
	rows, err := store.All(ctx, l.st, store.ScanJournal, sqlBurnsByID, store.RefOf(requestID, AccountID{}), party.Lower(), limit)
	for i := range rows {
		r := RequestOf(&rows[i])
		// One that was settled between the two reads is in both.
		all = slices.DeleteFunc(all, func(o Request) bool { return o.Account == r.Account })
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b Request) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return all[:min(len(all), limit)], err
}

// RequestByTransaction returns the request that an entry settled, store.ErrNotFound when there is none. It names no
// account: on a sharded store it asks every shard.
func (l *Ledger) RequestByTransaction(ctx context.Context, tx toll.Hash) (Request, error) {
	row, err := store.JournalByCommitment(ctx, l.st, tx)
	r := RequestOf(&row)
	if err == nil && r.State != StateSettled {
		err = store.ErrNotFound
	}
	return r, err
}

// Proof is the entry of a burn, and whether the ledger vouches for it.
type Proof struct {
	Entry
	Plan    toll.PlanID
	Holder  toll.Address
	Chained bool // the commitment recomputes from the one before it of the account
}

// BurnByTransaction returns the burn with a commitment, the transaction of its receipt. It computes
// the commitment anew. Errors: [store.ErrNotFound] where no burn has it.
func (l *Ledger) BurnByTransaction(ctx context.Context, tx toll.Hash) (p Proof, err error) {
	row, err := store.JournalByCommitment(ctx, l.st, tx)
	if err != nil {
		return p, err
	}
	if p.Entry = EntryOf(&row); p.Kind != KindBurn {
		return p, store.ErrNotFound
	}
	previous, err := l.Entry(ctx, p.Account, p.Seq-1) // the account got credits before it burned some
	if err != nil {
		return p, err
	}
	a, err := l.Account(ctx, p.Account)
	p.Plan, p.Holder, p.Chained = a.Plan, a.Subscriber, p.Commitment == p.commit(previous.Commitment)
	return p, err
}

// Entry returns an entry of an account, store.ErrNotFound when there is none.
func (l *Ledger) Entry(ctx context.Context, id AccountID, seq int64) (Entry, error) {
	row, err := store.JournalEntry(ctx, l.st, id, seq)
	return EntryOf(&row), err
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
