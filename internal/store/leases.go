package store

import (
	"context"
	"errors"
	"time"
)

// ErrLeased says that another process holds a lease.
var ErrLeased = errors.New("store: the lease is held by another process")

// Lease says that one process is at some work. Fence rises with each holder.
type Lease struct {
	Name   string    `db:"name,key"`
	Holder string    `db:"holder,set"`
	Fence  int64     `db:"fence,set"`
	Until  time.Time `db:"held_until,set"`
}

var (
	leases    = newRecord[Lease]("chain_leases")
	lockLease = locked[string](leases, "name = $1")
)

// AcquireLease takes a lease that nobody holds at this moment, or prolongs that of the same holder. Otherwise the error is [ErrLeased].
func AcquireLease(ctx context.Context, tx *Tx, name, holder string, now, until time.Time) (Lease, error) {
	// The row comes first, so that of two first holders the second one waits and then sees it.
	if _, err := leases.insertOr(ctx, tx, Lease{Name: name}, "ON CONFLICT (name) DO NOTHING"); err != nil {
		return Lease{}, err
	}
	l, err := lockLease(ctx, tx, name)
	if err != nil {
		return Lease{}, err
	}
	switch {
	case l.Holder == holder:
	case l.Holder != "" && l.Until.After(now):
		return Lease{}, ErrLeased
	default:
		l.Holder = holder
		l.Fence++
	}
	l.Until = until
	return l, leases.update(ctx, tx, l)
}

// HoldLease makes sure, until the transaction ends, that nobody else takes a lease. [ErrLeased] when somebody has.
func HoldLease(ctx context.Context, tx *Tx, l Lease) error {
	now, err := lockLease(ctx, tx, l.Name)
	if errors.Is(err, ErrNotFound) || err == nil && (now.Fence != l.Fence || now.Holder != l.Holder) {
		return ErrLeased
	}
	return err
}

// ReleaseLease gives a lease back. Nothing happens when another process has it.
func ReleaseLease(ctx context.Context, tx *Tx, l Lease) error {
	return done(tx.Exec(ctx, "UPDATE chain_leases SET holder = '', held_until = 0 WHERE name = $1 AND holder = $2 AND fence = $3", l.Name, l.Holder, l.Fence))
}

// FreeHeld gives back all leases and jobs, for a process that knows that it is alone: those of one that was killed would wait. The
// fences of leases stay.
func FreeHeld(ctx context.Context, tx *Tx) error {
	if _, err := tx.Exec(ctx, "UPDATE chain_leases SET holder = '', held_until = 0 WHERE holder <> ''"); err != nil {
		return err
	}
	return done(tx.Exec(ctx, "UPDATE jobs SET holder = '', held_until = 0 WHERE holder <> ''"))
}
