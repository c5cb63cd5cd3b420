//go:build unix

package seal

import (
	"io/fs"
	"os"
	"syscall"
)

// owned reports whether a file belongs to the user of this process.
func owned(info fs.FileInfo) bool {
	at, ok := info.Sys().(*syscall.Stat_t)
	return !ok || int(at.Uid) == os.Geteuid()
}
