//go:build unix

package tempfile

import (
	"os"
	"syscall"
)

// lock locks an open file unless another process has the lock. The system releases it when the process ends.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
