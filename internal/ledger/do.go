package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// ErrRecorded is the error with which the function of [Ledger.Do] says that its own record is there already: an earlier run
// was committed. Do writes nothing and returns nil.
var ErrRecorded = errors.New("ledger: already recorded")

// maxTrips bounds the round trips of a handle to the database, those of its caller's own records apart.
const maxTrips = 12

var (
	errTooManyTrips = fmt.Errorf("ledger: a transaction made more than %d round trips to the database", maxTrips)
	errOtherAccount = errors.New("ledger: the operation and the transaction are for different accounts")
	errNoAccount    = errors.New("ledger: the account of the transaction does not exist")
)

// Tx is the handle on one account in one transaction. The row of the account is locked until the end. Records that must
// commit with credits are written through the embedded [store.Tx].
//
// Each operation reads what it needs, decides as the writer does, and writes before it returns, so that SQL through the
// transaction sees it; only the rows of the journal come with the commit. After an error of an operation the handle is dead: every further operation returns that error, and
// [Ledger.Do] rolls back. A handle is not safe for concurrent use and ends with the function that got it.
type Tx struct {
	*store.Tx
	ctx     context.Context
	l       *Ledger
	id      AccountID
	account Account
	now     int64
	retried bool // an earlier run may have been committed
	trips   int
	err     error
	events  []store.NewEvent
	acts    []store.Act
	entries []Entry // new ones
	journal [][]any // their rows
}

// Do runs f with a handle on an account, and commits what f wrote when f returns nil. It is for records that must commit
// with credits; everything else goes to the writer.
//
// f may run several times, also after a commit whose answer was lost, so it changes nothing but the database, and first
// reads its own record: when that is there it returns [ErrRecorded]. f must not reach the network, wait, or start another
// transaction. It must not lock a row before it has the handle, and locks in the order account, order, orders of the
// plan, delegation, authorization, lease, rail rows, due row, idempotency answer; events come last, from [Tx.Event].
//
// The error is that of f, or [ErrUnknownOutcome] when the store failed around the commit in every attempt.
func (l *Ledger) Do(ctx context.Context, account AccountID, f func(t *Tx) error) error {
	return l.handle(ctx, account, "", toll.Address{}, f)
}

// DoNew is [Ledger.Do] for an account that may not exist: it is made before it is locked.
func (l *Ledger) DoNew(ctx context.Context, plan toll.PlanID, subscriber toll.Address, f func(t *Tx) error) error {
	return l.handle(ctx, NewAccountID(plan, subscriber), plan, subscriber, f)
}

func (l *Ledger) handle(ctx context.Context, id AccountID, plan toll.PlanID, subscriber toll.Address, f func(t *Tx) error) error {
	if l.timer != nil {
		defer l.timer()()
	}
	unknown := false
	for attempt := 1; ; attempt++ {
		err := l.st.Tx(ctx, func(tx *store.Tx) error {
			t := &Tx{Tx: tx, ctx: ctx, l: l, id: id, now: l.clock().UnixMicro(), retried: attempt > 1}
			t.account = newAccount()
			if err := t.run(lockAccount(tx.Engine(), id, plan, subscriber, &t.account)...); err != nil {
				return err
			}
			l.failpoint("locked")
			if err := f(t); err != nil {
				return err
			}
			if t.err != nil {
				return t.err
			}
			l.failpoint("written")
			if len(t.events) > 0 {
				if err := store.InsertEvent(ctx, tx, t.events...); err != nil {
					return err
				}
			}
			if err := store.AuditAll(ctx, tx, l.clock(), t.acts...); err != nil {
				return err
			}
			t.journalLast()
			return nil
		})
		l.memory.forget(id)
		recorded := errors.Is(err, ErrRecorded)
		switch {
		case errors.Is(err, store.ErrUnknownOutcome) && attempt < maxAttempts && ctx.Err() == nil:
			unknown = true
		case err == nil, recorded:
			if l.changed != nil {
				l.changed(id)
			}
			return nil
		case errors.Is(err, store.ErrUnknownOutcome), errors.Is(err, store.ErrFlush), unknown && !isDecision(err):
			return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
		default:
			return err
		}
	}
}

// isDecision reports whether an error was decided under the lock, after f had looked for its record, so that it proves
// that no earlier run was committed.
func isDecision(err error) bool {
	if _, ok := errors.AsType[*Refusal](err); ok {
		return true
	}
	e, ok := errors.AsType[*toll.Error](err)
	return ok && e.Code != toll.CodeDatabaseUnavailable
}

// Event adds events, which are written as the last statement of the transaction.
func (t *Tx) Event(events ...store.NewEvent) { t.events = append(t.events, events...) }

// Audit adds acts for the audit log, at the time of the ledger. They are written after the events.
func (t *Tx) Audit(acts ...store.Act) { t.acts = append(t.acts, acts...) }

// Account returns the account as it is now, after what time has done to it; the zero value when there is none.
func (t *Tx) Account() (Account, error) {
	_, err := t.do(touch{t.id})
	return t.account, err
}

// Permission returns a permission of the account, the zero value when there is none.
func (t *Tx) Permission(hash toll.Hash) (p Permission, err error) {
	if t.err != nil {
		return p, t.err
	}
	var h hot
	if h, t.err = parseHot(t.account.hot); t.err != nil {
		return p, t.err
	}
	t.err = t.run(store.Stmt{SQL: sqlPermission, Args: []any{t.id[:], hash[:]}, Row: func(scan func(...any) error) error {
		return scanPermission(scan, &p, &h)
	}})
	return p, t.err
}

// CountOrder counts an order on a permission before it is paid, and returns the account. The credits come later, by a mint with the id of
// the order as its ref. The zero hash means no permission. Refusals: PermissionUnknown, PermissionRevoked, PermissionExpired, OrderLimit.
func (t *Tx) CountOrder(permission toll.Hash) (Account, error) {
	_, err := t.do(countOrder{t.id, permission, 1})
	return t.account, err
}

// UncountOrder takes the count of an order back. A permission that is gone, revoked or expired is no refusal.
func (t *Tx) UncountOrder(permission toll.Hash) error {
	_, err := t.do(countOrder{t.id, permission, -1})
	return err
}

// Mint grants credits; see [Ledger.Mint]. Minted.Replayed says that the lot was there already.
func (t *Tx) Mint(op MintOp) (Minted, error) {
	if t.err == nil && NewAccountID(op.Plan, op.Subscriber) != t.id {
		t.err = errOtherAccount
	}
	answer, err := t.do(mint{op})
	if err != nil {
		return Minted{}, err
	}
	m := answer.(Minted)
	if m.Replayed {
		m.Transaction, t.err = t.commitmentOf(m.seq)
	}
	return m, t.err
}

// TakeBack takes back what is left of the lot of an order whose payment was reversed; what open holds need of it is taken
// when they end. The account and the permission, if the order counts on one, have one order less, so that a trial can be
// bought again. A repeat moves nothing. Refusals: NotMinted.
func (t *Tx) TakeBack(order string, permission toll.Hash) (TakenBack, error) {
	return t.move(takeBack{lotMove{t.id, order, permission}})
}

// Return undoes a [Tx.TakeBack]. A repeat moves nothing. Refusals: NotMinted, Overflow.
func (t *Tx) Return(order string, permission toll.Hash) (TakenBack, error) {
	return t.move(giveBack{lotMove{t.id, order, permission}})
}

// TakeBackTo sets how many credits of an order are out of use because money of it went back, up or down: as far as they are unspent, and
// what open holds need when these end. The order stays paid, and account and permission keep their counts. All of its credits end the lot;
// with fewer it has the end that it was granted with. A repeat moves nothing, but finds what holds have left since.
//
// Amount of the answer is negative when credits returned. Taken and Left are what is taken back and what open holds keep of it. Refusals:
// NotMinted, also for a lot that was taken back whole by [Tx.TakeBack], and Overflow.
func (t *Tx) TakeBackTo(order string, total toll.Credits) (TakenBack, error) {
	return t.move(takeBackTo{t.id, order, total})
}

// Withdraw removes n credits, 1 or more, that are neither spent nor on hold, from lots for which no money was paid: lots that were
// minted by hand (see [MintRef]) and lots of free orders. It empties the lots that expire first. Orders and periods do not change. id is
// unique to the act: when an entry of the account after the entry number since has it, an earlier run was committed, and Withdraw
// returns [ErrRecorded].
//
// Refusals: Insufficient when fewer credits can be taken, with their number in Available.
func (t *Tx) Withdraw(id string, n toll.Credits, since int64) (Withdrawn, error) {
	for t.retried && t.err == nil {
		var page []store.JournalRow
		if page, t.err = store.JournalOf(t.ctx, t.Tx, t.id, since+1, withdrawPage); t.err != nil {
			break
		}
		for i := range page {
			if since = page[i].Seq; page[i].Ref == withdrawRef+id {
				return Withdrawn{}, ErrRecorded
			}
		}
		if len(page) < withdrawPage {
			break
		}
	}
	answer, err := t.do(withdraw{t.id, withdrawRef + id, n})
	done, _ := answer.(Withdrawn)
	return done, err
}

// withdrawPage is how many entries [Tx.Withdraw] reads at a time.
const withdrawPage = 1000

func (t *Tx) move(op operation) (TakenBack, error) {
	answer, err := t.do(op)
	moved, _ := answer.(TakenBack)
	return moved, err
}

// RevokePermission ends a permission at once and returns it. Open holds under it still settle. [ErrRecorded] says that an
// earlier run of the same call did it. Refusals: PermissionUnknown, PermissionRevoked.
func (t *Tx) RevokePermission(hash toll.Hash, at time.Time) (Permission, error) {
	at = at.Truncate(time.Microsecond)
	answer, err := t.do(revoke{account: t.id, permission: hash, at: at})
	if err != nil {
		return Permission{}, err
	}
	r := answer.(revoked)
	if r.replayed {
		t.err = ErrRecorded
	}
	return r.Permission, t.err
}

// do decides one operation and writes what it changed.
func (t *Tx) do(op operation) (any, error) {
	if t.err != nil {
		return nil, t.err
	}
	if _, reads := op.(touch); !reads && t.account.ID == (AccountID{}) {
		t.err = errNoAccount
		return nil, t.err
	}
	var answer any
	answer, t.err = t.decide(op)
	return answer, t.err
}

func (t *Tx) decide(op operation) (any, error) {
	for _, depth := range lotDepths {
		g := &group{id: t.id, ops: []operation{op}, needs: needs{retried: t.retried}}
		op.needs(&g.needs)
		g.reset(t.now)
		g.state.account = t.account
		var err error
		if g.state.hot, err = parseHot(t.account.hot); err != nil {
			return nil, err
		}
		if err := load(t.run, nil, []*group{g}, depth, false); err != nil {
			return nil, err
		}
		out, err := decide(g, t.retried)
		switch {
		case errors.Is(err, errNeedLots):
			continue
		case err != nil:
			return nil, err
		}
		// What time did to the account is true even if the operation is refused, but a refusal rolls back.
		if out[0].err != nil {
			return nil, out[0].err
		}
		stmts := make([]store.Stmt, 0, 8)
		g.state.rows(t.id[:], func(kind int, row []any) {
			if kind == writesEntry {
				t.journal = append(t.journal, row)
				return
			}
			stmts = append(stmts, store.Stmt{SQL: writes[kind].one, Args: row})
		})
		t.account = g.state.account
		t.entries = append(t.entries, g.state.entries...)
		return out[0].answer, t.run(stmts...)
	}
	return nil, errNeedLots
}

func (t *Tx) commitmentOf(seq int64) (toll.Hash, error) {
	for _, e := range t.entries {
		if e.Seq == seq {
			return e.Commitment, nil
		}
	}
	row, err := store.JournalEntry(t.ctx, t.Tx, t.id, seq)
	return row.Commitment, err
}

// journalLast has the new entries written with the commit: their positions are given under a lock for which every writer waits.
func (t *Tx) journalLast() {
	if len(t.journal) == 0 {
		return
	}
	if t.Engine() == store.SQLite {
		for _, row := range t.journal {
			t.Last(store.Stmt{SQL: writes[writesEntry].one, Args: row})
		}
		return
	}
	var rows columns
	for _, row := range t.journal {
		rows.add(row)
	}
	t.Last(store.JournalLock, store.Stmt{SQL: writes[writesEntry].many, Args: rows.args()})
}

func (t *Tx) run(stmts ...store.Stmt) error {
	if len(stmts) == 0 {
		return nil
	}
	if t.trips++; t.trips > maxTrips {
		return errTooManyTrips
	}
	return t.Run(t.ctx, stmts...)
}
