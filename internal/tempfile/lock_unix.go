//go:build unix

package tempfile

import (
	"os"
	"syscall"
)

// lock takes the lock of an open file unless another process has it. The system releases it when
// the process ends.
func lock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
