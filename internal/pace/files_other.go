//go:build !unix

package pace

// openFiles returns how many files this process may have open.
func openFiles() int { return 16_384 }
