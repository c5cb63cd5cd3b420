//go:build unix

package pace

import (
	"math"
	"syscall"
)

// openFiles returns how many files this process may have open. Go has raised the soft limit to the hard one.
func openFiles() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 1024
	}
	return int(min(uint64(r.Cur), math.MaxInt32))
}
