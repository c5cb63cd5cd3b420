//go:build unix

package cli

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes a lock that one process has at a time; ok is false while another has it. The system lets go of it when the
// process ends, and not before: nobody has to guess whether it lives.
func lockFile(path string) (unlock func(), ok bool, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return func() { _ = file.Close() }, true, nil // which unlocks it
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return nil, false, err
}
