//go:build unix

package store

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestFileLock_Copied: a copy of the file, as a process has that was started at this moment, does not keep a lock that is closed.
func TestFileLock_Copied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := openLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := first.tryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	fd, err := syscall.Dup(int(first.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second, err := openLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.close() }()
	if ok, err := second.tryLock(); !ok || err != nil {
		t.Errorf("locked after it was closed: %v, %v", ok, err)
	}
}
