//go:build !unix

package tempfile

import "os"

// lock does nothing and returns true: Windows cannot remove an open file, so no lock is needed.
func lock(*os.File) bool { return true }
