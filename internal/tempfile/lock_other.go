//go:build !unix

package tempfile

import "os"

// lock is not needed on Windows, where a file that is open cannot be removed.
func lock(*os.File) bool { return true }
