//go:build !unix

package cli

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// deadLock is how old the lock of a process that has died becomes, at most.
const deadLock = 20 * time.Second

// lockFile takes a lock that one process has at a time; ok is false while another has it. It is a file that exists: one that
// has become old is that of a process that has died.
func lockFile(path string) (unlock func(), ok bool, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		return func() { _ = os.Remove(path) }, true, file.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return nil, false, err
	}
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > deadLock {
		_ = os.Remove(path)
	}
	return nil, false, nil
}
