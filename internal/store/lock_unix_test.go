//go:build unix

package store

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// TestFileLock_Copied: a copy of the file, as a process has that was started at this moment, does not keep a lock that is released.
func TestFileLock_Copied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, second := newLock(path), newLock(path)
	if ok, err := first.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	copied := copyOpen(t, path)
	defer func() { _ = syscall.Close(copied) }()
	if ok, err := second.TryLock(); ok || err != nil {
		t.Errorf("locked twice: %v, %v", ok, err)
	}
	must.Do(t, first.Unlock())
	if ok, err := second.TryLock(); !ok || err != nil {
		t.Errorf("locked after it was released: %v, %v", ok, err)
	}
	must.Check(t, second.Unlock())
}

// copyOpen copies the descriptor under which this process has a file open.
func copyOpen(t *testing.T, path string) int {
	t.Helper()
	var want, is syscall.Stat_t
	must.Do(t, syscall.Stat(path, &want))
	for fd := range 1024 {
		if syscall.Fstat(fd, &is) == nil && is.Ino == want.Ino && is.Dev == want.Dev {
			return must.Get(syscall.Dup(fd))(t)
		}
	}
	t.Fatal("the file is not open")
	return 0
}
