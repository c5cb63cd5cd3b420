package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gofrs/flock"
)

const lockPoll = time.Millisecond

var errLocked = errors.New("store: timed out waiting for a lock that another process holds")

// newLock returns a lock between processes. The system releases it when the process ends.
func newLock(path string) *flock.Flock { return flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE)) }

// takeLock takes a lock, or fails with [errLocked] after the limit.
func takeLock(ctx context.Context, l *flock.Flock, limit time.Duration) error {
	return await(ctx, l.TryLockContext, limit)
}

// pass waits until nobody has a lock, or for the limit.
func pass(ctx context.Context, l *flock.Flock, limit time.Duration) error {
	ok, err := l.TryRLock()
	if !ok && err == nil {
		if err = await(ctx, l.TryRLockContext, limit); errors.Is(err, errLocked) {
			return nil
		}
	}
	return errors.Join(err, l.Unlock())
}

func await(ctx context.Context, try func(context.Context, time.Duration) (bool, error), limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := try(bounded, lockPoll)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case bounded.Err() != nil:
		return errLocked
	}
	return fmt.Errorf("store: lock file: %w", err)
}
