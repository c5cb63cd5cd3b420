//go:build unix

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// fileLock is a lock between processes on an open file. The system lets go of it when the process ends.
type fileLock struct{ f *os.File }

const lockPoll = time.Millisecond

var errLocked = errors.New("store: another process holds the lock for too long")

func openLock(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: lock file: %w", err)
	}
	return &fileLock{f}, nil
}

func (l *fileLock) flock(how int) (bool, error) {
	for {
		err := syscall.Flock(int(l.f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return false, fmt.Errorf("store: lock file: %w", err)
		}
	}
}

func (l *fileLock) tryLock() (bool, error) { return l.flock(syscall.LOCK_EX) }

func (l *fileLock) wait(ctx context.Context, how int, limit time.Duration) error {
	over := time.After(limit)
	for {
		ok, err := l.flock(how)
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over:
			return errLocked
		case <-time.After(lockPoll):
		}
	}
}

func (l *fileLock) lock(ctx context.Context, limit time.Duration) error {
	return l.wait(ctx, syscall.LOCK_EX, limit)
}

// pass waits until nobody has the lock, or for the limit.
func (l *fileLock) pass(ctx context.Context, limit time.Duration) error {
	ok, err := l.flock(syscall.LOCK_SH)
	if !ok && err == nil {
		err = l.wait(ctx, syscall.LOCK_SH, limit)
		if errors.Is(err, errLocked) {
			return nil
		}
	}
	l.unlock()
	return err
}

func (l *fileLock) unlock() {
	_ = syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN) // fails on a file that is closed, which is unlocked
}

// close unlocks before it closes: a process that this one starts at the same moment has a copy of the file until it runs its
// own program, and would keep the lock as long.
func (l *fileLock) close() error {
	l.unlock()
	return l.f.Close()
}
