//go:build !unix

package pace

// openFiles returns the number of files that this process is assumed to be allowed to open.
func openFiles() int { return 16_384 }
