//go:build !unix

package seal

import "io/fs"

// owned is true where files have no owner that could be compared.
func owned(fs.FileInfo) bool { return true }
