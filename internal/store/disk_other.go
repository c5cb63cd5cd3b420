//go:build !(linux || darwin || freebsd)

package store

// FreeBytes is not known here.
func FreeBytes(string) (free int64, ok bool) { return 0, false }

// CanWrite is not known here.
func CanWrite(string) error { return nil }
