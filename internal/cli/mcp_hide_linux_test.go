package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tollhq/toll/internal/cli"
)

// TestChildCannotReadKey: a process that toll mcp starts finds the API key neither in its own environment nor in that, the
// command line or the memory of its parent.
// T134
func TestChildCannotReadKey(t *testing.T) {
	look := func(hide string) string {
		c := exec.Command("/proc/self/exe")
		c.Args = []string{"keyholder", hide}
		c.Env = []string{"TOLL_API_KEY=sandbox:canary"}
		if os.Geteuid() == 0 {
			// Root may trace everything. nobody may not, and both processes are nobody's.
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := look("hidden"); got != "looked\n" {
		t.Errorf("found the key in %s", got)
	}
	// Some systems hide processes from each other anyhow.
	t.Logf("without it: %q", look("open"))
}

// keyholder is a process with a key in its environment that starts another one, as toll mcp does.
func keyholder() int {
	if os.Args[1] == "hidden" {
		cli.HideProcess()
	}
	c := exec.Command("/proc/self/exe")
	c.Args, c.Env = []string{"spy"}, []string{"PATH=/"}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// spy says where it can read the key of its parent.
func spy() int {
	for _, name := range []string{"self/environ", "ppid/environ", "ppid/cmdline"} {
		text, err := os.ReadFile("/proc/" + strings.Replace(name, "ppid", strconv.Itoa(os.Getppid()), 1))
		if err == nil && strings.Contains(string(text), "canary") {
			fmt.Println(name)
		}
	}
	if f, err := os.Open("/proc/" + strconv.Itoa(os.Getppid()) + "/mem"); err == nil {
		f.Close()
		fmt.Println("ppid/mem")
	}
	fmt.Println("looked")
	return 0
}
