//go:build linux || darwin || freebsd

package store

import "syscall"

// FreeBytes returns how many bytes an unprivileged process may still write to the disk of a directory; ok is false when that is not known.
func FreeBytes(dir string) (free int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}

// CanWrite returns nil when files can be made in a directory. It makes none.
func CanWrite(dir string) error {
	const write = 2 // W_OK
	return syscall.Access(dir, write)
}
