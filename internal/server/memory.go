package server

import (
	"os"
	"runtime/debug"
)

// gcPercent trades memory for time: the live heap of the service is tens of megabytes, and at the default of 100 a
// sixth of its processor time under load is spent on collecting garbage.
const gcPercent = 400

// TuneMemory sets the garbage collector of a process that is the service and nothing else. GOGC in the environment wins,
// and GOMEMLIMIT bounds the memory as always.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
