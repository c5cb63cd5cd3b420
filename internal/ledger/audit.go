package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/big"
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
			whole, err := l.auditJournal(ctx)
			return append(findings, whole...), err
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

// auditJournal proves what no account shows: that the journal has no gap and no row beyond those of the accounts, that its sums are
// theirs, that its indexes have as many rows as it, and that no request is settled and open.
func (l *Ledger) auditJournal(ctx context.Context) ([]Finding, error) {
	x := &auditor{}
	// One statement sees one moment.
	var rows, last, entries, indexed, commitments, positions int64
	err := l.st.QueryRow(ctx, `SELECT j.n, j.last, a.seq, c.pos, i.n, p.n
		FROM (SELECT COUNT(*) AS n, COALESCE(MAX(pos), 0) AS last FROM journal) j,
			(SELECT CAST(COALESCE(SUM(seq), 0) AS BIGINT) AS seq FROM accounts) a,
			(SELECT pos FROM journal_cursors WHERE name = $1) c,
			(SELECT COUNT(*) AS n FROM journal_commitments) i,
			(SELECT CAST(COALESCE(SUM(LENGTH(positions)), 0) / 6 AS BIGINT) AS n FROM journal_accounts) p`, store.Follower).
		Scan(&rows, &last, &entries, &indexed, &commitments, &positions)
	if err != nil {
		return nil, err
	}
	x.check(rows == last, "I19", "the journal has %d rows, the last one is %d", rows, last)
	x.check(rows == entries, "I5", "the journal has %d rows, the accounts %d entries", rows, entries)
	x.check(indexed <= last && commitments == indexed && positions == indexed, "I19",
		"%d rows are followed, of %d; the indexes have %d and %d", indexed, last, commitments, positions)
	_, err = store.All(ctx, l.st, func(scan func(dest ...any) error) (kind Kind, err error) {
		var sum, want halves
		err = scan(&kind, &sum.high, &sum.low, &want.high, &want.low)
		x.check(sum.total().Cmp(want.total()) == 0, "I1", "rows of kind %s sum to %v, the accounts say %v", kind, sum.total(), want.total())
		return kind, err
	}, `SELECT k.kind, k.high, k.low, `+sumOfKind("high")+`, `+sumOfKind("low")+`
		FROM (SELECT kind, CAST(SUM(amount / 4294967296) AS BIGINT) AS high, CAST(SUM(amount % 4294967296) AS BIGINT) AS low
			FROM journal GROUP BY kind) k,
			(SELECT `+halvesOf("minted")+`, `+halvesOf("burned")+`, `+halvesOf("expired")+`, `+halvesOf("taken_back")+`, `+halvesOf("returned")+`
				FROM accounts) a`)
	if err != nil {
		return nil, err
	}
	return x.found, l.auditUnsettled(ctx, x)
}

// halves are the sums of the upper and the lower 32 bits of amounts. A sum of the amounts themselves may not fit in a BIGINT.
type halves struct{ high, low int64 }

func (h halves) total() *big.Int {
	t := new(big.Int).Lsh(big.NewInt(h.high), 32)
	return t.Add(t, big.NewInt(h.low))
}

func halvesOf(column string) string {
	return fmt.Sprintf("CAST(SUM(%[1]s / 4294967296) AS BIGINT) AS %[1]s_high, CAST(SUM(%[1]s %% 4294967296) AS BIGINT) AS %[1]s_low", column)
}

// sumOfKind picks what the accounts say of a kind.
func sumOfKind(half string) string {
	return strings.ReplaceAll(`CASE k.kind WHEN 1 THEN a.minted_# WHEN 2 THEN a.burned_# WHEN 3 THEN a.expired_#
			WHEN 4 THEN a.taken_back_# WHEN 5 THEN a.returned_# ELSE -1 END`, "#", half)
}

// auditUnsettled looks for requests that have a row and a burn, and for those that ended and are in no list.
func (l *Ledger) auditUnsettled(ctx context.Context, x *auditor) error {
	var unlisted int64
	err := l.st.QueryRow(ctx, "SELECT COUNT(*) FROM requests WHERE state <> 1 AND subscriber IS NULL").Scan(&unlisted)
	if err != nil {
		return err
	}
	x.check(unlisted == 0, "I7", "%d requests have ended and name no subscriber, so that no list has them", unlisted)
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
			x.check(r.State != StateSettled, "I7", "request %s is settled outside of the journal", r.ID)
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
			x.check(!now, "I5", "request %s is burned and has a row of state %s", r.ID, r.State)
		}
	}
}

// requestRow reports whether a request has a row now: one may have been settled since it was read.
func (l *Ledger) requestRow(ctx context.Context, id AccountID, requestID string) (bool, error) {
	_, err := into(scanRequest)(l.st.QueryRow(ctx, sqlRequest, id[:], requestID).Scan)
	return err == nil, store.NotFoundAs(err, nil)
}

// burn counts a burn under its permission.
func (x *auditor) burn(r Request) {
	u := x.under[r.Permission]
	if u == nil {
		u = &burnsUnder{}
		x.under[r.Permission] = u
	}
	x.check(r.previousBurn == u.last, "I10", "burn %d follows %d under its permission, and says %d", r.EntrySeq, u.last, r.previousBurn)
	u.sum, u.last = u.sum+r.Amount, r.EntrySeq
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
	under map[toll.Hash]*burnsUnder
	// indexed is the position up to which the journal is in the late indexes.
	indexed int64
}

// burnsUnder are the burns under a permission.
type burnsUnder struct {
	sum  toll.Credits
	last int64 // seq
}

func (x *auditor) check(ok bool, invariant, format string, args ...any) {
	if !ok {
		x.found = append(x.found, Finding{invariant, x.a.ID, fmt.Sprintf(format, args...)})
	}
}

func (l *Ledger) auditOnce(ctx context.Context, a Account) ([]Finding, error) {
	h, err := parseHot(a.hot)
	x := &auditor{a: a, hot: h, taken: map[string]toll.Credits{}, under: map[toll.Hash]*burnsUnder{}}
	x.check(err == nil, "I2", "%v", err)
	if x.indexed, err = store.JournalCursor(ctx, l.st, store.Follower); err != nil {
		return nil, err
	}
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
		page, err := store.JournalOf(ctx, l.st, x.a.ID, previous.Seq+1, 1000)
		if err != nil {
			return err
		}
		full := len(page) == 1000
		// What was written since the account was read is not looked at.
		page = slices.DeleteFunc(page, func(r store.JournalRow) bool { return r.Seq > x.a.Seq })
		lost, err := store.NotIndexed(ctx, l.st, page, x.indexed)
		if err != nil {
			return err
		}
		x.check(lost == 0, "I19", "%d commitments are missing in their index", lost)
		for i := range page {
			e := EntryOf(&page[i])
			x.check(e.Seq == previous.Seq+1, "I19", "entry %d follows entry %d", e.Seq, previous.Seq)
			x.check(e.AtMicros >= previous.AtMicros, "I19", "entry %d is earlier than the one before", e.Seq)
			x.check(e.Commitment == e.commit(previous.Commitment), "I19", "the commitment of entry %d does not recompute", e.Seq)
			x.check(e.BalanceAfter == previous.BalanceAfter+toll.Credits(e.Kind.sign())*e.Amount, "I2", "balance after entry %d is %d", e.Seq, e.BalanceAfter)
			sums[e.Kind] += e.Amount
			switch order := strings.TrimPrefix(e.Ref, backRef); e.Kind { // an earlier release names the lot
			case KindTakeBack:
				if strings.HasPrefix(e.Ref, withdrawRef) {
					break // of no lot; I2 compares the balance with the lots
				}
				x.taken[order] += e.Amount
			case KindReturn:
				x.taken[order] -= e.Amount
			}
			if e.Kind == KindBurn {
				burns[e.Ref]++
				x.check(burns[e.Ref] == 1, "I5", "request %s was burned twice", e.Ref)
				if !page[i].Thin() { // its permission is gone, or counts it no more
					x.burn(RequestOf(&page[i]))
				}
			}
			previous = e
		}
		if !full {
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
	return nil
}

func (l *Ledger) auditPermissions(ctx context.Context, x *auditor) error {
	known := 0
	_, err := store.All(ctx, l.st, func(scan func(dest ...any) error) (p Permission, err error) {
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
			x.check(!p.usedUp() && !row.usedUp(), "I10", "a permission that is used up is hot")
		}
		burns := x.under[p.Hash]
		if burns == nil {
			burns = &burnsUnder{}
		}
		delete(x.under, p.Hash)
		x.check(p.Redeemed == burns.sum, "I10", "a permission counts %d redeemed, its burns sum to %d", p.Redeemed, burns.sum)
		x.check(p.lastBurn == burns.last, "I10", "the last burn of a permission is %d, it says %d", burns.last, p.lastBurn)
		x.check(p.Held == holds && p.OpenHolds == count, "I10", "a permission counts %d held in %d holds, there are %d in %d", p.Held, p.OpenHolds, holds, count)
		x.check(limit == nil || int64(p.Redeemed+p.Held) <= *limit, "I10", "a permission used %d and holds %d of %v", p.Redeemed, p.Held, limit)
		return p, nil
	}, `SELECT p.permission_hash, p.redemption_limit, p.redeemed, p.held, p.open_holds, p.last_burn,
		CAST(COALESCE(h.held, 0) AS BIGINT), CAST(COALESCE(h.open, 0) AS BIGINT)
		FROM permissions p
		LEFT JOIN (SELECT permission_hash AS hash, SUM(held) AS held, COUNT(*) AS open FROM requests
			WHERE account_id = $1 AND state = 1 GROUP BY permission_hash) h ON h.hash = p.permission_hash
		WHERE p.account_id = $1`, x.a.ID[:])
	x.check(err != nil || len(x.under) == 0, "I10", "%d permissions with burns do not exist", len(x.under))
	x.check(err != nil || known == len(x.hot.permissions), "I10", "%d permissions are hot, there are %d of them", len(x.hot.permissions), known)
	return err
}
