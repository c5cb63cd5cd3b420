package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Finding is a broken invariant.
type Finding struct {
	Invariant string // its id in the list of invariants, for example "I1"
	Account   AccountID
	Detail    string
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: account %s: %s", f.Invariant, f.Account, f.Detail)
}

// unsettled finds burned requests that still have a row, and ended requests without a subscriber, which no list shows.
func (u *audit) unsettled(ctx context.Context) error {
	l, x := u.l, &auditor{}
	defer func() { u.found = append(u.found, x.found...) }()
	var unlisted int64
	err := l.st.QueryRow(ctx, "SELECT COUNT(*) FROM requests WHERE state <> 1 AND subscriber IS NULL").Scan(&unlisted)
	if err != nil {
		return err
	}
	x.check(unlisted == 0, "I7", "%d ended requests have no subscriber, so all lists omit them", unlisted)
	after, of := "", []byte{}
	for {
		page, err := store.All(ctx, l.st, into(scanRequest), `SELECT `+requestColumns+` FROM requests
			WHERE agent_request_id > $1 OR (agent_request_id = $1 AND account_id > $2)
			ORDER BY agent_request_id, account_id LIMIT 1000`, after, of)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			r := &page[i]
			after, of = r.ID, r.Account[:]
			x.a.ID = r.Account
			x.check(r.State != StateSettled, "I7", "request %s has a settled row outside of the journal", r.ID)
			_, err := store.BurnOf(ctx, l.st, r.Account, r.ID)
			if errors.Is(err, store.ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			now, err := l.requestRow(ctx, r.Account, r.ID)
			if err != nil {
				return err
			}
			x.check(!now, "I5", "request %s is burned in the journal but has a row in state %s", r.ID, r.State)
		}
	}
}

// requestRow reports whether a request still has a row. It may have been settled since it was read.
func (l *Ledger) requestRow(ctx context.Context, id AccountID, requestID string) (bool, error) {
	_, err := into(scanRequest)(l.st.QueryRow(ctx, sqlRequest, id[:], requestID).Scan)
	return err == nil, store.NotFoundAs(err, nil)
}

// auditTries bounds the retries for an account that changes constantly.
const auditTries = 100

// account retries while the account changes.
func (u *audit) account(ctx context.Context, a Account, e *entriesOf) ([]Finding, error) {
	for range auditTries {
		found, err := u.once(ctx, a, e)
		if err != nil {
			return nil, err
		}
		now, err := u.l.Account(ctx, a.ID)
		if err != nil || now.version == a.version {
			return found, err
		}
		a = now
	}
	return nil, fmt.Errorf("ledger: account %s changed during each of %d audits", a.ID, auditTries)
}

type auditor struct {
	*audit
	a     Account
	hot   hot
	found []Finding
	*entriesOf
}

func (x *auditor) check(ok bool, invariant, format string, args ...any) {
	if !ok {
		x.found = append(x.found, Finding{invariant, x.a.ID, fmt.Sprintf(format, args...)})
	}
}

func (u *audit) once(ctx context.Context, a Account, e *entriesOf) ([]Finding, error) {
	h, err := parseHot(a.hot)
	x := &auditor{audit: u, a: a, hot: h, entriesOf: e.clone()}
	x.check(err == nil, "I2", "%v", err)
	x.check(a.ID == NewAccountID(a.Plan, a.Subscriber), "I1", "the account id does not match plan %s and subscriber %s", a.Plan, a.Subscriber)
	x.check(a.Minted-a.Burned-a.Expired-a.TakenBack+a.Returned == a.Balance, "I1", "minted %d + returned %d != balance %d + burned %d + expired %d + taken back %d",
		a.Minted, a.Returned, a.Balance, a.Burned, a.Expired, a.TakenBack)
	x.check(a.Held >= 0 && a.Held <= a.Balance, "I3", "the held credits are %d, which is negative or more than the balance of %d",
		a.Held, a.Balance)
	for _, step := range []func(context.Context) error{x.auditEntries, x.auditLots, x.auditRequests} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	found := x.found
	err = x.auditPermissions(ctx)
	if err == nil && len(x.found) > len(found) { // permissions that ended may have been removed since the journal was read
		x.found = found
		if err = x.readBurns(ctx); err == nil {
			err = x.auditPermissions(ctx)
		}
	}
	if err != nil {
		return nil, err
	}
	return append(x.found, x.entriesOf.found...), nil
}

// auditEntries verifies that the journal entries match the account and the index.
func (x *auditor) auditEntries(ctx context.Context) error {
	e := x.entriesOf
	var n int64
	places := uint64(0)
	if err := store.EachPosition(ctx, x.l.st, x.a.ID, e.first, func(pos int64) {
		if pos <= x.indexed {
			n, places = n+1, hashPosition(places, pos)
		}
	}); err != nil {
		return err
	}
	x.check(n == e.followed && places == e.places, "I19",
		"the index of the account does not match the journal: %d entries in the index, %d in the journal", n, e.followed)
	for e.last.Seq < x.a.Seq { // written since the journal was read
		page, err := store.JournalOf(ctx, x.l.st, x.a.ID, e.last.Seq+1, 1000)
		if err != nil {
			return err
		}
		page = slices.DeleteFunc(page, func(r store.JournalRow) bool { return r.Seq > x.a.Seq })
		if len(page) == 0 {
			break
		}
		for i := range page {
			e.add(&page[i], 0)
		}
	}
	x.check(e.n == x.a.Seq-e.first+1, "I5", "the account has %d entries from number %d, but records %d as the number of its last entry", e.n, e.first, x.a.Seq)
	x.check(e.last.Seq == x.a.Seq, "I19", "the last entry is %d, but the account records %d", e.last.Seq, x.a.Seq)
	x.check(e.last.Commitment == x.a.Commitment, "I19", "the last commitment does not match the account")
	x.check(e.last.BalanceAfter == x.a.Balance, "I2", "entries sum to %d, but the balance is %d", e.last.BalanceAfter, x.a.Balance)
	for kind, want := range map[Kind]toll.Credits{
		KindMint: x.a.Minted, KindBurn: x.a.Burned, KindExpire: x.a.Expired, KindTakeBack: x.a.TakenBack, KindReturn: x.a.Returned,
	} {
		x.check(e.first > 1 || e.sums[kind] == want, "I1", "entries of kind %s sum to %d, but the account records %d", kind, e.sums[kind], want)
	}
	return nil
}

// readBurns reads the burns of the account from the journal.
func (x *auditor) readBurns(ctx context.Context) error {
	e := entriesOf{first: x.first}
	for e.last.Seq = x.first - 1; e.last.Seq < x.a.Seq; {
		page, err := store.JournalOf(ctx, x.l.st, x.a.ID, e.last.Seq+1, 1000)
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			if page[i].Seq <= x.a.Seq {
				e.add(&page[i], 0)
			}
			e.last.Seq = page[i].Seq
		}
	}
	if x.under = e.under; x.under == nil {
		x.under = map[toll.Hash]burnsUnder{}
	}
	return nil
}

// lotSlack bounds how far the start of a lot may be from its entry, whose time never runs backwards in its account.
const lotSlack = time.Hour

// auditLots verifies that the lots sum to the balance, have the right expiry, and match the take-backs in the journal entries.
func (x *auditor) auditLots(ctx context.Context) error {
	endOf, err := x.lotEnd(ctx, x.a.Plan)
	if err != nil {
		return err
	}
	var sum toll.Credits
	var last int64
	first, hot := int64(never), 0
	back := map[int64]*lotRow{} // lots of credits whose money went back, by the number of the lot of their order
	for after, more := int64(math.MinInt64), true; more; {
		lots, err := store.All(ctx, x.l.st, func(scan scanFunc) (*lotRow, error) { return scanLot(scan, &x.hot) },
			`SELECT `+lotColumns+` FROM lots WHERE account_id = $1 AND lot_id > $2 ORDER BY lot_id LIMIT 1000`, x.a.ID[:], after)
		if err != nil {
			return err
		}
		more = len(lots) == 1000
		for _, r := range lots { // those of credits whose money went back come first
			after, sum = r.id, sum+r.remaining
			x.check(r.remaining >= 0 && r.remaining <= r.granted, "I3", "lot %d has an invalid remainder: %d of %d credits",
				r.id, r.remaining, r.granted)
			order, isBack := strings.CutPrefix(r.ref, backRef)
			x.check(isBack == (r.id < 0), "I1", "the kind of lot %s does not match its number %d", r.ref, r.id)
			if last = max(last, r.endsAt); r.remaining > 0 && r.endsAt > x.a.UpdatedAt.UnixMicro() { // holds keep others
				first = min(first, r.endsAt)
			}
			if slices.ContainsFunc(x.hot.lots, func(h hotLot) bool { return h.id == r.id }) {
				hot++
			}
			if r.taken != 0 {
				x.taken[order] -= r.taken
			}
			if isBack {
				back[-r.id] = r
				continue
			}
			end := r.endsAt
			if r.oldEnd != 0 {
				end = r.oldEnd
			}
			if b := back[r.id]; b != nil {
				delete(back, r.id)
				end = b.oldEnd
				x.check(b.ref == backRef+r.ref && b.granted == r.granted, "I1", "lot %s does not belong to an order", b.ref)
				x.check(r.remaining+r.taken+b.remaining+b.taken <= r.granted, "I3", "lots of order %s contain more than the %d credits granted",
					order, r.granted)
			}
			if at, minted := x.minted[r.id]; endOf != nil && minted && !strings.HasPrefix(r.ref, "mint:") { // what is minted by hand has a life of its own
				least, most := micros(endOf(micro(at).Add(-lotSlack)), never), micros(endOf(micro(at).Add(lotSlack)), never)
				x.check(least <= end && end <= most, "I1", "lot %d expires at %v, but its plan requires a time from %v to %v", r.id, micro(end), micro(least), micro(most))
			}
		}
	}
	for _, b := range back {
		x.check(false, "I1", "lot %s does not belong to an order", b.ref)
	}
	for order, n := range x.taken {
		x.check(n == 0 || x.first > 1, "I1", "entries take back %d more credits of order %s than its lots record", n, order)
	}
	x.check(sum == x.a.Balance, "I2", "lots sum to %d, but the balance is %d", sum, x.a.Balance)
	x.check(hot == len(x.hot.lots), "I3", "only %d of the %d lots marked as hot exist", hot, len(x.hot.lots))
	x.check(last == x.a.periodEnd, "I1", "the last lot expires at %d, but the account records %d", last, x.a.periodEnd)
	x.check(first >= x.a.nextLotEnd, "I3", "a lot expires earlier than the account records")
	return nil
}

func (x *auditor) auditRequests(ctx context.Context) error {
	var held, open, earliest int64
	err := x.l.st.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(held), 0) AS BIGINT), COUNT(*), COALESCE(MIN(hold_ends_at), $2)
		FROM requests WHERE account_id = $1 AND state = 1`, x.a.ID[:], int64(never)).Scan(&held, &open, &earliest)
	if err != nil {
		return err
	}
	x.check(held == int64(x.a.Held), "I3", "open holds sum to %d, but the account records %d", held, x.a.Held)
	x.check(open == x.a.OpenHolds, "I3", "%d holds are open, but the account records %d", open, x.a.OpenHolds)
	x.check(earliest >= x.a.nextHoldEnd, "I3", "a hold expires earlier than the account records")
	return nil
}

func (x *auditor) auditPermissions(ctx context.Context) error {
	known := 0
	_, err := store.All(ctx, x.l.st, func(scan func(dest ...any) error) (p Permission, err error) {
		var hash []byte
		var limit *int64
		var holds toll.Credits
		var count int64
		err = scan(&hash, &limit, &p.Redeemed, &p.Held, &p.OpenHolds, &p.lastBurn, &holds, &count)
		if err != nil {
			return p, err
		}
		copy(p.Hash[:], hash)
		if limit != nil {
			p.RedemptionLimit = toll.Credits(*limit).Ptr()
		}
		row := p
		x.hot.ofPermission(&p)
		if slices.ContainsFunc(x.hot.permissions, func(h hotPermission) bool { return h.hash == p.Hash }) {
			known++
			x.check(!p.usedUp() && !row.usedUp(), "I10", "a used-up permission is still marked as hot")
		}
		burns := x.under[p.Hash]
		delete(x.under, p.Hash)
		x.check(p.Redeemed == burns.sum || x.first > 1, "I10", "a permission records %d redeemed credits, but its burns sum to %d",
			p.Redeemed, burns.sum)
		x.check(p.lastBurn == burns.last || x.first > 1 && burns.last == 0, "I10",
			"the last burn of a permission is %d, but the permission records %d", burns.last, p.lastBurn)
		x.check(p.Held == holds && p.OpenHolds == count, "I10",
			"a permission records %d held credits in %d holds, but there are %d credits in %d holds", p.Held, p.OpenHolds, holds, count)
		x.check(limit == nil || int64(p.Redeemed+p.Held) <= *limit, "I10",
			"a permission redeemed %d and holds %d credits, which exceeds its limit of %d", p.Redeemed, p.Held, *cmp.Or(limit, new(int64)))
		return p, nil
	}, `SELECT p.permission_hash, p.redemption_limit, p.redeemed, p.held, p.open_holds, p.last_burn,
		CAST(COALESCE(h.held, 0) AS BIGINT), CAST(COALESCE(h.open, 0) AS BIGINT)
		FROM permissions p
		LEFT JOIN (SELECT permission_hash AS hash, SUM(held) AS held, COUNT(*) AS open FROM requests
			WHERE account_id = $1 AND state = 1 GROUP BY permission_hash) h ON h.hash = p.permission_hash
		WHERE p.account_id = $1`, x.a.ID[:])
	x.check(err != nil || len(x.under) == 0, "I10", "burns refer to %d permissions that do not exist", len(x.under))
	x.check(err != nil || known == len(x.hot.permissions), "I10", "%d permissions are marked as hot, but only %d of them exist", len(x.hot.permissions), known)
	return err
}
