package ledger

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

const (
	// auditRows is how many rows of the journal are read at once, by each of the readers.
	auditRows = 2000
	// auditPart bounds the accounts and permissions whose entries are proved in one pass through the journal: about 300 bytes each.
	auditPart = 1 << 20
)

type Audited struct {
	Findings []Finding
	Seal     store.Seal  // of the last position that was read: the hash covers the seal before and the commitment, from position 1 on
	Burns    store.Burns // the burns that were read
}

type audit struct {
	l           *Ledger
	from, last  int64 // positions: from is proved already, last is the last one
	indexed     int64 // position up to which the journal is in the late indexes
	part, parts int   // which accounts are proved in this pass
	entries     map[AccountID]*entriesOf
	found       []Finding
	out         Audited
	sealed      *store.Seal // an earlier seal that the journal must still have
	sums        [3]int64    // over what the index by commitment has to have, see sqlIndexSums

	mu      sync.Mutex                                // guards found and lotEnds while accounts are proved
	lotEnds map[toll.PlanID]func(time.Time) time.Time // when a lot that was bought at a time ends; nil for a plan without a record
}

// Audit is [Ledger.AuditFrom] of the whole journal.
func (l *Ledger) Audit(ctx context.Context) ([]Finding, error) {
	a, err := l.AuditFrom(ctx, nil, false)
	return a.Findings, err
}

// AuditFrom proves what the ledger promises: conservation, balance against entries and lots, holds within the balance, one burn per request,
// limits of permissions, the chains of commitments, and that the journal has no gap and is in its indexes. The unique index of burns
// proves that no request is burned twice. It reads the journal once in its order, and then account by account, on all processors, and
// an account again when a writer was at it meanwhile, so it may run beside traffic. sealed is a seal that the journal must still
// have; with since only the entries behind it, and their accounts, are proved. Both are optional.
func (l *Ledger) AuditFrom(ctx context.Context, sealed *store.Seal, since bool) (Audited, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	u := &audit{l: l, sealed: sealed, parts: 1, lotEnds: map[toll.PlanID]func(time.Time) time.Time{}}
	if since {
		u.from, u.out.Seal = sealed.Position, *sealed
	}
	var people int64
	err := l.st.QueryRow(ctx, "SELECT (SELECT COUNT(*) FROM accounts) + (SELECT COUNT(*) FROM permissions)").Scan(&people)
	if err == nil {
		u.indexed, err = store.JournalCursor(ctx, l.st, store.Follower)
	}
	if err == nil {
		u.last, err = store.JournalLength(ctx, l.st)
	}
	if err != nil {
		return u.out, err
	}
	if !since {
		u.parts += int(people / auditPart)
	}
	for ; u.part < u.parts; u.part++ {
		u.entries = map[AccountID]*entriesOf{}
		if err := u.readJournal(ctx); err != nil {
			return u.out, err
		}
		if err := u.allAccounts(ctx, since); err != nil {
			return u.out, err
		}
		for id := range u.entries {
			u.found = append(u.found, Finding{"I1", id, "entries belong to an account that does not exist"})
		}
	}
	if !since {
		if err := u.indexes(ctx); err != nil {
			return u.out, err
		}
		if err := u.unsettled(ctx); err != nil {
			return u.out, err
		}
	}
	u.out.Findings = u.found
	return u.out, nil
}

// check notes what is wrong with no account.
func (u *audit) check(ok bool, invariant, format string, args ...any) {
	x := &auditor{}
	x.check(ok, invariant, format, args...)
	u.found = append(u.found, x.found...)
}

// readJournal reads the rows from from to last in their order. Some are read in advance, by as many readers as there are processors.
func (u *audit) readJournal(ctx context.Context) error {
	type page struct {
		rows []store.JournalRow
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer func() { cancel(); readers.Wait() }()
	pages := make(chan chan page, runtime.GOMAXPROCS(0))
	readers.Go(func() {
		defer close(pages)
		for p := u.from; p < u.last; p += auditRows {
			c := make(chan page, 1)
			select {
			case pages <- c:
			case <-ctx.Done():
				return
			}
			readers.Go(func() {
				rows, err := store.JournalBetween(ctx, u.l.st, p, min(p+auditRows, u.last))
				c <- page{rows, err}
			})
		}
	})
	at := u.from
	for c := range pages {
		p := <-c
		if p.err != nil {
			return p.err
		}
		for i := range p.rows {
			r := &p.rows[i]
			if u.part == 0 {
				u.row(r, at)
				at = r.Pos
			}
			if int(r.Account[0])*u.parts>>8 == u.part {
				if err := u.entry(ctx, r); err != nil {
					return err
				}
			}
		}
	}
	if u.part == 0 {
		u.check(at == u.last, "I19", "the audit read the journal up to row %d, but the last row is %d", at, u.last)
	}
	return ctx.Err()
}

// row proves what no account shows. at is the position before.
func (u *audit) row(r *store.JournalRow, at int64) {
	u.check(r.Pos == at+1, "I19", "rows of the journal are missing between %d and %d", at, r.Pos)
	if Kind(r.Kind) == KindBurn {
		u.out.Burns.Add(r.Pos)
	}
	if r.Pos <= u.indexed {
		p := store.CommitmentPrefix(r.Commitment)
		u.sums[0], u.sums[1], u.sums[2] = u.sums[0]+p/4294967296, u.sums[1]+p%4294967296, u.sums[2]+(p%65521)*(r.Pos%65521)
	}
	var both [64]byte
	copy(both[:], u.out.Seal.Hash[:])
	copy(both[32:], r.Commitment[:])
	u.out.Seal = store.Seal{Position: r.Pos, Hash: sha256.Sum256(both[:])}
	if s := u.sealed; s != nil && s.Position == r.Pos {
		u.check(s.Hash == u.out.Seal.Hash, "I19", "the journal up to position %d was changed after an audit sealed it", s.Position)
	}
}

// entry proves that an entry follows the one before of its account.
func (u *audit) entry(ctx context.Context, r *store.JournalRow) error {
	e := u.entries[r.Account]
	if e == nil {
		e = &entriesOf{first: 1}
		if u.entries[r.Account] = e; u.from > 0 && r.Seq > 1 {
			before, _, err := store.IfThere(store.JournalEntry(ctx, u.l.st, r.Account, r.Seq-1))
			if err != nil {
				return err
			}
			e.first, e.last = r.Seq, EntryOf(&before)
		}
	}
	e.add(r, u.indexed)
	return nil
}

// entriesOf is what the entries of an account say, from one on. The zero value is an account without entries.
type entriesOf struct {
	first       int64 // number of the first one that was read
	n, followed int64 // entries, and those of them that are in the late indexes
	places      uint64
	last        Entry
	sums        [KindReturn + 1]toll.Credits
	taken       map[string]toll.Credits // taken back less returned, by the order that the entries name
	minted      map[int64]int64         // when lots were minted, by their number, in microseconds
	under       map[toll.Hash]burnsUnder
	found       []Finding
}

type burnsUnder struct {
	sum  toll.Credits
	last int64 // seq
}

func (e *entriesOf) clone() *entriesOf {
	if e == nil {
		return &entriesOf{first: 1, taken: map[string]toll.Credits{}, under: map[toll.Hash]burnsUnder{}}
	}
	out := *e
	if out.taken, out.under = maps.Clone(e.taken), maps.Clone(e.under); out.taken == nil {
		out.taken = map[string]toll.Credits{}
	}
	out.minted = maps.Clone(e.minted)
	out.found = append([]Finding{}, e.found...)
	return &out
}

// hashPosition adds a position to a hash of positions (FNV).
func hashPosition(h uint64, pos int64) uint64 { return (h ^ uint64(pos)) * 1099511628211 }

// add adds the next entry. indexed is the position up to which the journal is in the late indexes.
func (e *entriesOf) add(r *store.JournalRow, indexed int64) {
	now, before := EntryOf(r), &e.last
	fault := func(invariant, format string, args ...any) {
		e.found = append(e.found, Finding{invariant, now.Account, fmt.Sprintf(format, args...)})
	}
	if now.Seq != before.Seq+1 {
		fault("I19", "entry %d comes after entry %d: the numbers are not consecutive", now.Seq, before.Seq)
	}
	if now.AtMicros < before.AtMicros {
		fault("I19", "entry %d is earlier than the entry before it", now.Seq)
	}
	if now.Commitment != now.commit(before.Commitment) {
		fault("I19", "the commitment of entry %d does not match its content", now.Seq)
	}
	if now.BalanceAfter != before.BalanceAfter+toll.Credits(now.Kind.sign())*now.Amount {
		fault("I2", "the balance after entry %d is wrong: %d", now.Seq, now.BalanceAfter)
	}
	if e.n++; r.Pos <= indexed {
		e.followed, e.places = e.followed+1, hashPosition(e.places, r.Pos)
	}
	if now.Kind < KindMint || now.Kind > KindReturn {
		fault("I1", "entry %d has the unknown kind %d", now.Seq, now.Kind)
	} else {
		e.sums[now.Kind] += now.Amount
	}
	switch {
	case now.Kind == KindMint:
		if e.minted == nil {
			e.minted = map[int64]int64{}
		}
		e.minted[now.Seq] = now.AtMicros
	case now.Kind == KindTakeBack && !strings.HasPrefix(now.Ref, withdrawRef): // one by hand is of no lot; I2 compares the balance with the lots
		e.take(now.Ref, now.Amount)
	case now.Kind == KindReturn:
		e.take(now.Ref, -now.Amount)
	case now.Kind == KindBurn && r.Burn != nil: // else its permission is gone, or counts it no more
		under, known := e.under[r.Burn.Permission]
		if e.first > 1 && !known {
			under.last = r.Burn.Previous
		}
		if r.Burn.Previous != under.last {
			fault("I10", "burn %d follows burn %d of its permission, but records burn %d as the previous one", now.Seq, under.last, r.Burn.Previous)
		}
		if e.under == nil {
			e.under = map[toll.Hash]burnsUnder{}
		}
		e.under[r.Burn.Permission] = burnsUnder{under.sum + now.Amount, now.Seq}
	}
	now.Ref = "" // the page of the journal need not stay in memory
	e.last = now
}

func (e *entriesOf) take(order string, n toll.Credits) {
	if e.taken == nil {
		e.taken = map[string]toll.Credits{}
	}
	e.taken[strings.Clone(order)] += n
}

// allAccounts proves the accounts of this pass, on all processors: with since those that have new entries.
func (u *audit) allAccounts(ctx context.Context, since bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type task struct {
		account Account
		entries *entriesOf
	}
	tasks := make(chan task, 64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for t := range tasks {
				found, err := u.account(ctx, t.account, t.entries)
				if err != nil {
					cancel(err)
				}
				u.mu.Lock()
				u.found = append(u.found, found...)
				u.mu.Unlock()
			}
		})
	}
	give := func(a Account) {
		e := u.entries[a.ID]
		delete(u.entries, a.ID)
		select {
		case tasks <- task{a, e}:
		case <-ctx.Done():
		}
	}
	err := func() error {
		if since {
			for id := range u.entries {
				a, err := u.l.Account(ctx, id)
				if err != nil {
					return err
				}
				if a.ID == id {
					give(a)
				}
			}
			return nil
		}
		for after := []byte{}; ; {
			page, err := store.All(ctx, u.l.st, into(scanAccount),
				`SELECT `+accountColumns+` FROM accounts WHERE account_id > $1 ORDER BY account_id LIMIT 500`, after)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, a := range page {
				if int(a.ID[0])*u.parts>>8 == u.part {
					give(a)
				}
			}
			after = page[len(page)-1].ID[:]
		}
	}()
	close(tasks)
	workers.Wait()
	return cmp.Or(context.Cause(ctx), err)
}

// lotEnd returns when a lot of a plan ends by the time at which it was bought; nil for a plan without a record.
func (u *audit) lotEnd(ctx context.Context, id toll.PlanID) (func(time.Time) time.Time, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	end, read := u.lotEnds[id]
	if !read {
		p, there, err := store.IfThere(store.PlanByID(ctx, u.l.st, id))
		if err != nil {
			return nil, err
		}
		if there {
			rules := toll.Plan{Price: p.Price, Credits: p.Credits, AccessLimit: p.AccessLimit} // the rest need not stay in memory
			end = rules.LotEnd
		}
		u.lotEnds[id] = end
	}
	return end, nil
}

// sqlIndexes has the cursor of the late indexes, how many rows they have, sums of the index by commitment up to a position, and how many
// lots are open without credits, or closed with some. One statement sees one moment.
const sqlIndexes = `SELECT c.pos, i.n, p.n, i.high, i.low, i.product, l.n
	FROM (SELECT pos FROM journal_cursors WHERE name = $1) c,
		(SELECT COUNT(*) AS n, CAST(COALESCE(SUM(CASE WHEN pos <= $2 THEN prefix / 4294967296 ELSE 0 END), 0) AS BIGINT) AS high,
			CAST(COALESCE(SUM(CASE WHEN pos <= $2 THEN prefix % 4294967296 ELSE 0 END), 0) AS BIGINT) AS low,
			CAST(COALESCE(SUM(CASE WHEN pos <= $2 THEN (prefix % 65521) * (pos % 65521) ELSE 0 END), 0) AS BIGINT) AS product
			FROM journal_commitments) i,
		(SELECT CAST(COALESCE(SUM(LENGTH(positions)), 0) / 6 AS BIGINT) AS n FROM journal_accounts) p,
		(SELECT COUNT(*) AS n FROM lots WHERE (open = 1) <> (remaining > 0)) l`

// indexes proves that the late indexes have the rows of the journal.
func (u *audit) indexes(ctx context.Context) error {
	var cursor, commitments, positions, lots int64
	var sums [3]int64
	err := u.l.st.QueryRow(ctx, sqlIndexes, store.Follower, u.indexed).Scan(&cursor, &commitments, &positions, &sums[0], &sums[1], &sums[2], &lots)
	if err != nil {
		return err
	}
	u.check(commitments == cursor && positions == cursor, "I19", "%d journal rows should be indexed, but the two indexes have %d and %d rows",
		cursor, commitments, positions)
	u.check(sums == u.sums, "I19", "the index by commitment does not match the journal")
	u.check(lots == 0, "I3", "%d lots are open but have no credits, or are closed but have credits", lots)
	return nil
}
