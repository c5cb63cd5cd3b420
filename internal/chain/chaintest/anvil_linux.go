package chaintest

import (
	"os/exec"
	"syscall"
)

// endWithParent ends the program with this one, also when a test runs into its deadline.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
