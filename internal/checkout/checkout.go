// Package checkout sells plans: orders, top-ups, delegations, mints by the owner, balances. Money comes in over a [rail.Rail]; free plans
// need none.
//
// A paid order is two transactions. The first records the order with the row of its rail and reserves a place of the plan, a count of the
// permission, and cents of the delegation. The rail's transaction decides: it mints the credits and spends what was reserved, or gives it
// back. Between them only the row of the rail changes. A job of the queue resumes the order at the rail, in any process.
package checkout

import (
	"cmp"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Deps is what a checkout is built on.
type Deps struct {
	Store       *store.Store
	Ledger      *ledger.Ledger
	Queue       *jobs.Queue // whose loops run after New
	Rails       rail.Rails
	Environment toll.Environment // zero: toll.Sandbox
	Clock       func() time.Time // nil: the clock of the system
	Log         *slog.Logger     // nil: discard
	// SignReference and OpenReference make and read the signed texts that stand for delegations which pay by card. nil:
	// those delegations have none.
	SignReference func(use string, owner toll.Address, id string, ends time.Time) (string, error)
	OpenReference func(use, text string) (owner toll.Address, id string, err error)
	// MaxSpendingCents and MaxDelegationSecs bound delegations; 0 is 1,000,000 cents and 365 days.
	MaxSpendingCents  int64
	MaxDelegationSecs int64
}

type core struct {
	store  *store.Store
	ledger *ledger.Ledger
	rails  rail.Rails
	env    toll.Environment
	clock  func() time.Time
	log    *slog.Logger

	// onFailpoint is set by tests that stop the process at a step.
	onFailpoint atomic.Pointer[func(step string)]
}

// Checkout makes orders. An order and its credits are committed together or not at all.
type Checkout struct {
	*core
	Delegations    *Delegations
	PaymentMethods *PaymentMethods
	Permissions    *Permissions
	Reports        *Reports
	Decisions      *Decisions
	waits          *waits
	queue          *jobs.Queue
	full           full
	stopWaiting    sync.Once
}

// New returns a checkout, connects the rails to it, and has the queue run its jobs.
func New(d Deps) *Checkout {
	d.MaxSpendingCents = cmp.Or(d.MaxSpendingCents, 1_000_000)
	d.MaxDelegationSecs = cmp.Or(d.MaxDelegationSecs, 365*toll.DaySecs)
	shared := &core{
		store: d.Store, ledger: d.Ledger, rails: d.Rails, clock: d.Clock,
		env: cmp.Or(d.Environment, toll.Sandbox), log: cmp.Or(d.Log, slog.New(slog.DiscardHandler)),
	}
	if shared.clock == nil {
		shared.clock = time.Now
	}
	delegations, waits := &Delegations{shared, d.SignReference, d.OpenReference, d.MaxSpendingCents, d.MaxDelegationSecs}, &waits{core: shared, queue: d.Queue, stopping: make(chan struct{})}
	c := &Checkout{
		core: shared, Delegations: delegations, PaymentMethods: &PaymentMethods{shared, delegations}, Permissions: &Permissions{d.Ledger},
		Reports: &Reports{shared}, Decisions: &Decisions{shared, delegations, &waits.waiters}, waits: waits, queue: d.Queue,
		full: full{turns: make(chan struct{}, fullAtOnce)},
	}
	for _, r := range store.Rails {
		c.queue.Handle(store.JobPay+r.Name, c.payJob)
	}
	for _, by := range d.Rails {
		by.Connect(railOrders{c.Decisions, delegations})
	}
	c.queue.Handle(store.JobEndDelegation, delegations.endDelegation)
	c.queue.Handle(store.JobDisable, delegations.disable)
	c.queue.Handle(store.JobTakeBack, c.Decisions.finishTakeBack)
	return c
}

// StopWaiting answers callers that wait for an order with how it stands now, for a shutdown.
func (c *Checkout) StopWaiting() { c.stopWaiting.Do(func() { close(c.waits.stopping) }) }

func (c *core) failpoint(step string) {
	if f := c.onFailpoint.Load(); f != nil {
		(*f)(step)
	}
}

func (c *core) now() time.Time { return c.clock().UTC().Truncate(time.Microsecond) }

func unknown(err error, code toll.Code, what string, id any) error {
	if errors.Is(err, store.ErrNotFound) {
		return toll.NewError(code).WithDetails("%s %s", what, id)
	}
	return err
}

// refusedCodes are the codes of orders and mints that the ledger refuses.
var refusedCodes = map[ledger.Refused]toll.Code{
	ledger.Overflow: toll.CodeCreditsOverflow, ledger.NotFirst: toll.CodeTrialUsed, ledger.OrderLimit: toll.CodeOrderLimit,
	ledger.PermissionUnknown: toll.CodePermissionUnknown, ledger.PermissionRevoked: toll.CodePermissionRevoked,
	ledger.PermissionExpired: toll.CodePermissionExpired,
}

// Fault gives an error of the ledger or the store a code. nil stays nil.
func Fault(err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[*ledger.Refusal](err); ok && refusedCodes[r.Kind] != "" {
		return toll.NewError(refusedCodes[r.Kind])
	}
	switch {
	case errors.Is(err, ledger.ErrBusy), errors.Is(err, ledger.ErrClosed):
		e := toll.NewError(toll.CodeUnavailable).WithCause(err)
		e.RetryAfterSecs = 1
		return e
	case errors.Is(err, ledger.ErrUnknownOutcome):
		return toll.NewError(toll.CodeDatabaseUnavailable).WithCause(err).
			WithHint("The call may have succeeded: check the balance before you repeat it.")
	}
	return toll.AsError(err)
}
