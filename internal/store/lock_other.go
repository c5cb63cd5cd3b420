//go:build !unix

package store

import (
	"context"
	"errors"
	"time"
)

// fileLock is missing here: without it two services could work on one file, so the embedded database is refused.
type fileLock struct{}

var errNoLock = errors.New("store: the embedded database needs file locks that this system lacks; use PostgreSQL")

func openLock(string) (*fileLock, error)                    { return nil, errNoLock }
func (*fileLock) tryLock() (bool, error)                    { return false, errNoLock }
func (*fileLock) lock(context.Context, time.Duration) error { return errNoLock }
func (*fileLock) pass(context.Context, time.Duration) error { return errNoLock }
func (*fileLock) unlock()                                   {}
func (*fileLock) close() error                              { return nil }
