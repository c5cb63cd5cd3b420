package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Audit proves, account by account, what the ledger promises: conservation, balance against entries and lots, holds within
// the balance, one burn per request, limits of permissions, and the chain of commitments. It reads each account twice when
// a writer was at it meanwhile, so it may run beside traffic.
func (l *Ledger) Audit(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	after := []byte{}
	for {
		page, err := store.All(ctx, l.st, into(scanAccount),
			`SELECT `+accountColumns+` FROM accounts WHERE account_id > $1 ORDER BY account_id LIMIT 500`, after)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			orphans, err := l.auditOrphans(ctx)
			return append(findings, orphans...), err
		}
		for _, a := range page {
			found, err := l.auditAccount(ctx, a)
			if err != nil {
				return nil, err
			}
			findings = append(findings, found...)
		}
		after = page[len(page)-1].ID[:]
	}
}

// auditOrphans looks for settled requests without a burn, which no account leads to.
func (l *Ledger) auditOrphans(ctx context.Context) ([]Finding, error) {
	var n int64
	err := l.st.QueryRow(ctx, `SELECT COUNT(*) FROM requests r WHERE r.state = 2 AND NOT EXISTS (
		SELECT 1 FROM entries e WHERE e.account_id = r.account_id AND e.seq = r.entry_seq AND e.kind = 2
			AND e.ref = r.agent_request_id AND e.amount = r.amount)`).Scan(&n)
	if err != nil || n == 0 {
		return nil, err
	}
	return []Finding{{Invariant: "I5", Detail: fmt.Sprintf("%d settlements have no burn of their amount", n)}}, nil
}

// auditTries bounds the audits of an account that never stands still.
const auditTries = 100

// auditAccount retries while the account moves under it.
func (l *Ledger) auditAccount(ctx context.Context, a Account) ([]Finding, error) {
	for range auditTries {
		found, err := l.auditOnce(ctx, a)
		if err != nil {
			return nil, err
		}
		now, err := l.Account(ctx, a.ID)
		if err != nil || now.version == a.version {
			return found, err
		}
		a = now
	}
	return nil, fmt.Errorf("ledger: account %s changed during each of %d audits", a.ID, auditTries)
}

type auditor struct {
	a     Account
	hot   hot
	found []Finding
	taken map[string]toll.Credits // taken back less returned, by the order that the entries name
}

func (x *auditor) check(ok bool, invariant, format string, args ...any) {
	if !ok {
		x.found = append(x.found, Finding{invariant, x.a.ID, fmt.Sprintf(format, args...)})
	}
}

func (l *Ledger) auditOnce(ctx context.Context, a Account) ([]Finding, error) {
	h, err := parseHot(a.hot)
	x := &auditor{a: a, hot: h, taken: map[string]toll.Credits{}}
	x.check(err == nil, "I2", "%v", err)
	x.check(a.ID == NewAccountID(a.Plan, a.Subscriber), "I1", "id does not belong to plan %s and subscriber %s", a.Plan, a.Subscriber)
	x.check(a.Minted-a.Burned-a.Expired-a.TakenBack+a.Returned == a.Balance, "I1", "minted %d + returned %d != balance %d + burned %d + expired %d + taken back %d",
		a.Minted, a.Returned, a.Balance, a.Burned, a.Expired, a.TakenBack)
	x.check(a.Held >= 0 && a.Held <= a.Balance, "I3", "held %d, balance %d", a.Held, a.Balance)
	for _, step := range []func(context.Context, *auditor) error{l.auditEntries, l.auditLots, l.auditRequests, l.auditPermissions} {
		if err := step(ctx, x); err != nil {
			return nil, err
		}
	}
	return x.found, nil
}

func (l *Ledger) auditEntries(ctx context.Context, x *auditor) error {
	var previous Entry
	sums := map[Kind]toll.Credits{}
	burns := map[string]int{}
	for {
		page, err := store.All(ctx, l.st, into(scanEntry), sqlEntriesAfter, x.a.ID[:], previous.Seq, 1000)
		if err != nil {
			return err
		}
		// What was written since the account was read is not looked at.
		page = slices.DeleteFunc(page, func(e Entry) bool { return e.Seq > x.a.Seq })
		for _, e := range page {
			x.check(e.Seq == previous.Seq+1, "I19", "entry %d follows entry %d", e.Seq, previous.Seq)
			x.check(e.AtMicros >= previous.AtMicros, "I19", "entry %d is earlier than the one before", e.Seq)
			x.check(e.Commitment == e.commit(previous.Commitment), "I19", "the commitment of entry %d does not recompute", e.Seq)
			x.check(e.BalanceAfter == previous.BalanceAfter+toll.Credits(e.Kind.sign())*e.Amount, "I2", "balance after entry %d is %d", e.Seq, e.BalanceAfter)
			sums[e.Kind] += e.Amount
			switch order := strings.TrimPrefix(e.Ref, backRef); e.Kind { // an earlier release names the lot
			case KindTakeBack:
				x.taken[order] += e.Amount
			case KindReturn:
				x.taken[order] -= e.Amount
			}
			if e.Kind == KindBurn {
				burns[e.Ref]++
				x.check(burns[e.Ref] == 1, "I5", "request %s was burned twice", e.Ref)
			}
			previous = e
		}
		if len(page) < 1000 {
			break
		}
	}
	x.check(previous.Seq == x.a.Seq, "I19", "the last entry is %d, the account says %d", previous.Seq, x.a.Seq)
	x.check(previous.Commitment == x.a.Commitment, "I19", "the last commitment is not that of the account")
	x.check(previous.BalanceAfter == x.a.Balance, "I2", "entries sum to %d, the balance is %d", previous.BalanceAfter, x.a.Balance)
	for kind, want := range map[Kind]toll.Credits{
		KindMint: x.a.Minted, KindBurn: x.a.Burned, KindExpire: x.a.Expired, KindTakeBack: x.a.TakenBack, KindReturn: x.a.Returned,
	} {
		x.check(sums[kind] == want, "I1", "entries of kind %s sum to %d, the account says %d", kind, sums[kind], want)
	}
	return nil
}

func (l *Ledger) auditLots(ctx context.Context, x *auditor) error {
	var sum, n, bad int64
	err := l.st.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(remaining), 0) AS BIGINT), COUNT(*),
		CAST(COALESCE(SUM(CASE WHEN remaining < 0 OR remaining > granted THEN 1 ELSE 0 END), 0) AS BIGINT)
		FROM lots WHERE account_id = $1`, x.a.ID[:]).Scan(&sum, &n, &bad)
	if err != nil {
		return err
	}
	for _, h := range x.hot.lots {
		var remaining, granted, open int64
		err := l.st.QueryRow(ctx, `SELECT remaining, granted, open FROM lots WHERE account_id = $1 AND lot_id = $2`,
			x.a.ID[:], h.id).Scan(&remaining, &granted, &open)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		x.check(h.remaining > 0 && int64(h.remaining) <= granted && open == 1, "I3", "lot %d has %d of %d left, open %d", h.id, h.remaining, granted, open)
		sum += int64(h.remaining) - remaining
	}
	x.check(sum == int64(x.a.Balance), "I2", "%d lots sum to %d, the balance is %d", n, sum, x.a.Balance)
	x.check(bad == 0, "I3", "%d lots are out of range", bad)
	return l.auditTaken(ctx, x)
}

// auditTaken proves that what entries took back of an order is what its lots say, and that a lot and the one to which credits
// of it were moved hold no more than was granted.
func (l *Ledger) auditTaken(ctx context.Context, x *auditor) error {
	lots, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (*lotRow, error) { return scanLot(scan, &x.hot) }, `SELECT `+lotColumns+` FROM lots WHERE account_id = $1 AND (taken <> 0 OR lot_id < 0
		OR lot_id IN (SELECT -lot_id FROM lots WHERE account_id = $1 AND lot_id < 0)) ORDER BY lot_id DESC`, x.a.ID[:])
	if err != nil {
		return err
	}
	byRef := map[string]*lotRow{}
	for _, r := range lots { // moved ones come last
		order, isBack := strings.CutPrefix(r.ref, backRef)
		x.check(isBack == (r.id < 0), "I1", "lot %s has the number %d", r.ref, r.id)
		x.taken[order] -= r.taken
		byRef[r.ref] = r
		if !isBack {
			continue
		}
		of := byRef[order]
		x.check(of != nil && of.id == -r.id && of.granted == r.granted, "I1", "lot %s belongs to no order", r.ref)
		if of != nil {
			x.check(of.remaining+of.taken+r.remaining+r.taken <= of.granted, "I3", "lots of order %s hold more than its %d", order, of.granted)
		}
	}
	for order, n := range x.taken {
		x.check(n == 0, "I1", "entries take back %d more of order %s than its lots say", n, order)
	}
	return nil
}

// Requests are found by the entries that settled them and by their open holds, as no index leads from an account to all
// of them.
func (l *Ledger) auditRequests(ctx context.Context, x *auditor) error {
	var held, open, earliest int64
	err := l.st.QueryRow(ctx, `SELECT CAST(COALESCE(SUM(held), 0) AS BIGINT), COUNT(*), COALESCE(MIN(hold_ends_at), $2)
		FROM requests WHERE account_id = $1 AND state = 1`, x.a.ID[:], int64(never)).Scan(&held, &open, &earliest)
	if err != nil {
		return err
	}
	x.check(held == int64(x.a.Held), "I3", "open holds sum to %d, the account says %d", held, x.a.Held)
	x.check(open == x.a.OpenHolds, "I3", "%d holds are open, the account says %d", open, x.a.OpenHolds)
	x.check(earliest >= x.a.nextHoldEnd, "I3", "a hold ends before the account expects one")
	var lost int64
	err = l.st.QueryRow(ctx, `SELECT COUNT(*) FROM entries e WHERE e.account_id = $1 AND e.kind = 2 AND NOT EXISTS (
		SELECT 1 FROM requests r WHERE r.account_id = e.account_id AND r.agent_request_id = e.ref AND r.state = 2
			AND r.entry_seq = e.seq AND r.amount = e.amount)`, x.a.ID[:]).Scan(&lost)
	x.check(lost == 0, "I7", "%d burns have no settled request of their amount", lost)
	return err
}

func (l *Ledger) auditPermissions(ctx context.Context, x *auditor) error {
	known := 0
	_, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (p Permission, err error) {
		var hash []byte
		var limit *int64
		var burns, holds toll.Credits
		var count int64
		err = scan(&hash, &limit, &p.Redeemed, &p.Held, &p.OpenHolds, &burns, &holds, &count)
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
			x.check(!p.usedUp() && !row.usedUp(), "I10", "a permission that is used up is hot")
		}
		x.check(p.Redeemed == burns, "I10", "a permission counts %d redeemed, its burns sum to %d", p.Redeemed, burns)
		x.check(p.Held == holds && p.OpenHolds == count, "I10", "a permission counts %d held in %d holds, there are %d in %d", p.Held, p.OpenHolds, holds, count)
		x.check(limit == nil || int64(p.Redeemed+p.Held) <= *limit, "I10", "a permission used %d and holds %d of %v", p.Redeemed, p.Held, limit)
		return p, nil
	}, `SELECT p.permission_hash, p.redemption_limit, p.redeemed, p.held, p.open_holds,
		CAST(COALESCE(b.burns, 0) AS BIGINT), CAST(COALESCE(h.held, 0) AS BIGINT), CAST(COALESCE(h.open, 0) AS BIGINT)
		FROM permissions p
		LEFT JOIN (SELECT r.permission_hash AS hash, SUM(r.amount) AS burns FROM entries e JOIN requests r
				ON r.account_id = e.account_id AND r.agent_request_id = e.ref
			WHERE e.account_id = $1 AND e.kind = 2 GROUP BY r.permission_hash) b ON b.hash = p.permission_hash
		LEFT JOIN (SELECT permission_hash AS hash, SUM(held) AS held, COUNT(*) AS open FROM requests
			WHERE account_id = $1 AND state = 1 GROUP BY permission_hash) h ON h.hash = p.permission_hash
		WHERE p.account_id = $1`, x.a.ID[:])
	x.check(err != nil || known == len(x.hot.permissions), "I10", "%d permissions are hot, there are %d of them", len(x.hot.permissions), known)
	return err
}
