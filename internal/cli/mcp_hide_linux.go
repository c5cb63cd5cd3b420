package cli

import "syscall"

// hideProcess keeps other programs of the same user, such as a server that this program starts, from reading its environment
// and its memory in /proc, where its API key is. Programs with the right to trace can still read them.
func hideProcess() {
	const setDumpable = 4 // PR_SET_DUMPABLE of prctl(2)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, setDumpable, 0, 0, 0, 0, 0)
}
