//go:build unix

package tempfile

import (
	"os"
	"syscall"
)

// lock reports whether it could lock an open file without waiting. The system releases the lock when the process ends.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
