package server_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// machine is a system of its own for the test of a package: systemd in a container, on the files of this machine. What
// it changes is gone after the test.
type machine struct {
	t   *testing.T
	pid string // of its first process
}

// startMachine skips the test where a container cannot be made.
func startMachine(t *testing.T) *machine {
	t.Helper()
	groups := mountOf(t, "cgroup2")
	if os.Geteuid() != 0 || groups == "" {
		t.Skip("only root makes a container, on a system with cgroup2: SKIPPED")
	}
	group := filepath.Join(groups, fmt.Sprintf("toll-test-%d", os.Getpid()))
	must.Do(t, os.Mkdir(group, 0o755))
	at := must.Get(os.Open(group))(t)
	defer at.Close()
	var log bytes.Buffer
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup",
		"sh", filepath.Join("testdata", "boot.sh"), t.TempDir())
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(at.Fd())}
	must.Do(t, cmd.Start())
	m := &machine{t: t}
	t.Cleanup(func() {
		if m.pid != "" {
			if t.Failed() {
				t.Logf("journal: %s", m.try("journalctl", "--no-pager", "-n", "60"))
			}
			_ = exec.Command("kill", "-9", m.pid).Run() // everything in it ends with it
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("container: %s", log.String())
		}
		_ = exec.Command("find", group, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
	})
	eventually(t, "the container has begun", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.pid = strings.TrimSpace(string(text))
		return m.pid != ""
	})
	eventually(t, "systemd runs", func() bool {
		state := strings.TrimSpace(m.try("systemctl", "is-system-running"))
		return state == "running" || state == "degraded"
	})
	return m
}

// mountOf returns where a kind of file system is mounted, "" for nowhere.
func mountOf(t *testing.T, kind string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Skipf("%v: SKIPPED", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[2] == kind {
			return f[1]
		}
	}
	return ""
}

func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", m.pid, "-m", "-p", "-u", "-i", "-n", "-C", name}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"}
	return cmd
}

// try returns what a command on the machine prints, whether it succeeds or not.
func (m *machine) try(name string, args ...string) string {
	out, _ := m.command(name, args...).CombinedOutput()
	return string(out)
}

// run returns what a command on the machine prints to its standard output. It must succeed.
func (m *machine) run(name string, args ...string) string {
	m.t.Helper()
	cmd := m.command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		m.t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// shell runs a script of sh on the machine.
func (m *machine) shell(script string) string {
	m.t.Helper()
	return m.run("sh", "-euc", script)
}

// put writes a file of this machine into the other one.
func (m *machine) put(file, path string) {
	m.t.Helper()
	text := must.Get(os.ReadFile(file))(m.t)
	cmd := m.command("sh", "-c", "cat >"+path)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s: %v %s", path, err, out)
	}
}
