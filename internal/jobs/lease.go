package jobs

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tollhq/toll/internal/store"
)

const (
	// leaseTime is how long the lease of a dead process blocks others.
	leaseTime = 15 * time.Second
	// leasedPause is how long a loop waits when another process has its lease.
	leasedPause = time.Second
)

// Lease lets one process at a time do some work. The worker takes it when there is work, takes it again while it works, which prolongs it,
// checks it in its own transactions, and releases it when idle. It is not safe for concurrent use.
type Lease struct {
	store  *store.Store
	clock  func() time.Time
	name   string
	holder string
	held   store.Lease // zero: not held
}

// NewLease returns a lease that is not held. clock is that of all processes that use the name.
func NewLease(st *store.Store, clock func() time.Time, name string) *Lease {
	return &Lease{store: st, clock: clock, name: name, holder: newHolder()}
}

// newHolder returns a name for leases and claims that nothing else has.
func newHolder() string {
	host, _ := os.Hostname() // a name is for who reads the table
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), rand.Text()[:8])
}

// Take takes the lease, or prolongs it when half of its time is over. The error is [store.ErrLeased] when another process has it.
func (l *Lease) Take(ctx context.Context) error {
	now := l.clock()
	if l.held.Until.Sub(now) > leaseTime/2 {
		return nil
	}
	var held store.Lease
	err := l.store.Tx(ctx, func(tx *store.Tx) (err error) {
		held, err = store.AcquireLease(ctx, tx, l.name, l.holder, now, now.Add(leaseTime))
		return err
	})
	if err == nil || errors.Is(err, store.ErrLeased) {
		l.held = held
	}
	return err
}

// Check makes sure that no other process takes the lease before a transaction ends. The error is [store.ErrLeased] when one has,
// or when the lease is not held.
func (l *Lease) Check(ctx context.Context, tx *store.Tx) error {
	if l.held.Holder == "" {
		return store.ErrLeased
	}
	err := store.HoldLease(ctx, tx, l.held)
	if errors.Is(err, store.ErrLeased) {
		l.held = store.Lease{}
	}
	return err
}

// Fence returns a number that rises with each time that a process takes the lease, 0 when it is not held.
func (l *Lease) Fence() int64 { return l.held.Fence }

// Release gives the lease back, if it is held.
func (l *Lease) Release(ctx context.Context) error {
	if l.held.Holder == "" {
		return nil
	}
	held := l.held
	l.held = store.Lease{}
	return l.store.Tx(ctx, func(tx *store.Tx) error { return store.ReleaseLease(ctx, tx, held) })
}
