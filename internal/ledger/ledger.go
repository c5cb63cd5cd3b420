package ledger

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

// Config is what a ledger needs besides its store.
type Config struct {
	Clock func() time.Time // nil: the clock of the system
	Log   *slog.Logger     // nil: discard
	// MACKey authenticates the request ids that this ledger issues: at least 16 bytes, the same in every process.
	MACKey []byte
	// QueueSize bounds the operations that wait for the writer; 0 is 8,192. Beyond it operations fail with ErrBusy.
	QueueSize int
	// Changed is called after a commit that may have added entries to the account. The writer waits for it, so it must return
	// at once. Entries of a process that ended between commit and call are never told. nil: nobody wants to know.
	Changed func(AccountID)
	// Timer measures a call of [Ledger.Do]: it is called at its beginning, and what it returns at its end. nil: nobody measures.
	Timer func() (stop func())
	// TimeBatch measures a batch of the writer, as Timer does. The writer waits for both functions, so they must return at once.
	TimeBatch func() (stop func(Batch))
	// Counted is called by [Ledger.CountUsage] with the settlements that it has counted, and their credits. nil: nobody wants to know.
	Counted func(settlements, credits int64)
}

// Batch is what the writer did in one go.
type Batch struct {
	Operations int
	Attempts   int  // 1, and one more for each retry after a fault of the store
	Failed     bool // none of the operations was committed, as far as is known
}

// Ledger is the only writer of credits. Many may work on one PostgreSQL database, in any number of processes.
type Ledger struct {
	st      *store.Store
	clock   func() time.Time
	log     *slog.Logger
	ids     requestIDs
	flusher *flusher
	memory  *memory // of the writer
	// batchTimeout bounds one attempt of the writer, so that a store that hangs becomes an error.
	batchTimeout time.Duration
	changed      func(AccountID)      // may be nil
	timer        func() (stop func()) // may be nil
	timeBatch    func() (stop func(Batch))
	counted      func(settlements, credits int64)
	onCommit     atomic.Pointer[func(Account, []Permission)]
	// onFailpoint is set by tests that stop or kill the process at a step.
	onFailpoint atomic.Pointer[func(step string)]
}

// New starts the writer of a store. Close stops it.
func New(st *store.Store, cfg Config) *Ledger {
	l := &Ledger{
		st: st, clock: cfg.Clock, log: cfg.Log, ids: requestIDs{cfg.MACKey}, batchTimeout: batchTimeout, changed: cfg.Changed,
		timer: cfg.Timer, timeBatch: cfg.TimeBatch, counted: cfg.Counted, memory: newMemory(),
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.timeBatch == nil {
		l.timeBatch = func() func(Batch) { return func(Batch) {} }
	}
	queue := cfg.QueueSize
	if queue <= 0 {
		queue = 8192
	}
	l.flusher = &flusher{l: l, limit: queue, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.flusher.run()
	return l
}

// Close lets the waiting operations finish and stops the writer. Operations that come later fail with ErrClosed.
func (l *Ledger) Close(ctx context.Context) error {
	l.flusher.close()
	select {
	case <-l.flusher.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Waiting returns how many operations wait for the writer.
func (l *Ledger) Waiting() int {
	l.flusher.mu.Lock()
	defer l.flusher.mu.Unlock()
	return len(l.flusher.queue)
}

// Remembered returns how many bytes the writer remembers of accounts, estimated; at most 64 MiB.
func (l *Ledger) Remembered() int { return l.memory.held() }

// OnCommit has f called after each commit of the writer, before its callers are answered, with an account that was written and
// the permissions that its operations were about. It is not called for commits of [Ledger.Do]. The writer waits for f, so f must
// return at once.
func (l *Ledger) OnCommit(f func(Account, []Permission)) { l.onCommit.Store(&f) }

func (l *Ledger) failpoint(step string) {
	if f := l.onFailpoint.Load(); f != nil {
		(*f)(step)
	}
}

// do hands an operation to the writer and waits until it is committed or refused. Beside ErrUnknownOutcome stands the answer
// that was to be committed, as far as there was one.
func do[T any](ctx context.Context, l *Ledger, op operation) (T, error) {
	answer, err := l.flusher.submit(ctx, op)
	t, _ := answer.(T) // operations without an answer give nil
	return t, err
}

// Mint grants credits. Refusals: Overflow, NotFirst, Conflict (same ref, other amount).
func (l *Ledger) Mint(ctx context.Context, op MintOp) (Minted, error) {
	m, err := do[Minted](ctx, l, mint{op})
	if err != nil || !m.Replayed {
		return m, err
	}
	e, err := l.Entry(ctx, NewAccountID(op.Plan, op.Subscriber), m.seq)
	m.Transaction = e.Commitment
	return m, err
}

// Hold sets credits aside. Refusals: InFlight, Duplicate, Conflict, PermissionUnknown, PermissionRevoked,
// PermissionExpired, RedemptionLimit, PeriodOver, Insufficient, TooManyHolds, IdentifierConflict, OrderUnknown.
func (l *Ledger) Hold(ctx context.Context, op HoldOp) (Held, error) {
	o := &hold{HoldOp: op, life: op.Until.Sub(l.clock())}
	if l.otherAccount(op.RequestID, o.accountID()) {
		return Held{}, refuse(Conflict)
	}
	if o.RequestID == "" {
		o.RequestID, o.issued = l.ids.issue(o.accountID(), l.clock()), true
	}
	return do[Held](ctx, l, o)
}

// Settle burns the credits of a request once; the same request again gets the same Receipt and Answer. Refusals: Conflict,
// HoldExpired, Insufficient, RedemptionLimit, and without a hold those of [Ledger.Hold] about permission and period.
// ErrUnknownOutcome comes with the id to repeat the call with, and with the transaction that was to be written when it came
// to that. Further refusals: Replay and ExceedsHold with HoldBounds, IdentifierConflict, OrderUnknown.
func (l *Ledger) Settle(ctx context.Context, op SettleOp) (Settled, error) {
	o := &settle{SettleOp: op}
	if l.otherAccount(op.RequestID, o.accountID()) {
		return Settled{}, refuse(Conflict)
	}
	if o.RequestID == "" {
		o.RequestID, o.issued = l.ids.issue(o.accountID(), l.clock()), true
	}
	s, err := do[Settled](ctx, l, o)
	if errors.Is(err, ErrUnknownOutcome) && s.RequestID == "" {
		s.RequestID = o.RequestID
	}
	return s, err
}

// Release gives a hold back and ends its request; a repeat gets the same answer. Refusals: UnknownRequest, SettledAlready.
func (l *Ledger) Release(ctx context.Context, account AccountID, requestID string) (Released, error) {
	return do[Released](ctx, l, release{account, requestID})
}

// Renew moves the end of an open hold to life from now, at most to [MaxHoldLife] after its creation, and never back. It takes no
// credits, so a repeat is harmless. As for a settlement, the access token may have expired or been revoked since. Refusals:
// UnknownRequest, HoldOver.
func (l *Ledger) Renew(ctx context.Context, account AccountID, requestID string, life time.Duration) (Held, error) {
	return do[Held](ctx, l, renew{release{account, requestID}, life})
}

// RevokePermission ends a permission at once. Open holds under it still settle. Refusals: PermissionUnknown, PermissionRevoked.
func (l *Ledger) RevokePermission(ctx context.Context, plan toll.PlanID, subscriber toll.Address, hash toll.Hash, at time.Time) error {
	_, err := do[any](ctx, l, revoke{NewAccountID(plan, subscriber), plan, subscriber, hash, at.Truncate(time.Microsecond)})
	return err
}

// Touch writes what time has done to an account: lapsed holds and ended lots.
func (l *Ledger) Touch(ctx context.Context, account AccountID) error {
	_, err := do[any](ctx, l, touch{account})
	return err
}

// otherAccount reports whether the id looks like one of ours but was not issued for this account. Used or not, it is refused
// in the same way, so that ids reveal nothing.
func (l *Ledger) otherAccount(id string, account AccountID) bool {
	if !strings.HasPrefix(id, RequestPrefix) {
		return false
	}
	of, ours := l.ids.account(id)
	return !ours || of != account
}

// NewRequestID issues an agentRequestId of the account. Nothing is stored.
func (l *Ledger) NewRequestID(account AccountID) string { return l.ids.issue(account, l.clock()) }

// TimeOfRequestID returns when an agentRequestId of this service was issued, to the millisecond; zero for any other text.
func (l *Ledger) TimeOfRequestID(id string) time.Time {
	if _, ours := l.ids.account(id); !ours {
		return time.Time{}
	}
	return issued(id)
}

// AccountOfRequestID returns the account inside an agentRequestId; ours is false for an id that this service did not issue.
func (l *Ledger) AccountOfRequestID(id string) (account AccountID, ours bool) {
	return l.ids.account(id)
}
