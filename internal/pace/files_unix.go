//go:build unix

package pace

import (
	"math"
	"syscall"
)

// openFiles returns the maximum number of open files of this process, 1,024 if unknown. Go has raised it to the hard limit.
func openFiles() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int(min(uint64(r.Cur), math.MaxInt32))
}
