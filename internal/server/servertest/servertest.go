// Package servertest runs the real program as processes of its own, for tests that end, kill and restart it.
package servertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// Main runs the tests of a package that needs the program:
//
//	func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "toll-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "toll")
	return m.Run()
}

var (
	program string // path of the program, once it is built
	build   sync.Once
	built   error
)

// Program returns the path of the program, which is built on first use. TestMain must have called [Main].
func Program(t testing.TB) string {
	t.Helper()
	if program == "" {
		t.Fatal("TestMain does not call servertest.Main")
	}
	build.Do(func() {
		args := []string{"build", "-ldflags=-s -w", "-o", program} // nobody debugs it, and so it is linked sooner
		if raceEnabled {
			flags, err := os.ReadFile(filepath.Join(moduleDir(t), "scripts", "race.flags"))
			if err != nil {
				built = err
				return
			}
			args = append(args, strings.Fields(string(flags))...) // those of scripts/test.sh, so that compiled packages are shared
		}
		out, err := exec.Command("go", append(args, "github.com/tollhq/toll/cmd/toll")...).CombinedOutput()
		if err != nil {
			built = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	must.Do(t, built)
	return program
}

func moduleDir(t testing.TB) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tollhq/toll").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(dir))
}

// Later builds a program that is this one with other files, such as further migrations: what a later release is to this one. It lies beside
// Program under name and is removed with it. The texts of the files are keyed by their paths in the module.
func Later(t testing.TB, name string, files map[string]string) string {
	t.Helper()
	mod, dir := moduleDir(t), t.TempDir()
	replace := map[string]string{}
	for name, text := range files {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		replace[filepath.Join(mod, name)] = file
	}
	text := must.Get(json.Marshal(map[string]any{"Replace": replace}))(t)
	overlay := filepath.Join(dir, "overlay.json")
	must.Do(t, os.WriteFile(overlay, text, 0o600))
	later := filepath.Join(filepath.Dir(Program(t)), name)
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", later, "github.com/tollhq/toll/cmd/toll")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return later
}

// Run runs a command of a build of the program on the database of the options. It returns what the
// command printed on both streams, and its exit code.
func Run(t testing.TB, program string, o Options, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.Command(program, append(args, o.store()...)...)
	cmd.Env = append(environment(), o.Env...)
	text, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Fatalf("toll %s: %v", strings.Join(args, " "), err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// Options say which service a process is.
type Options struct {
	Data     string // directory of the embedded database
	Database string // postgres:// address, wins
	// MasterKeyFile is shared by all processes on one Database. With Data alone it may be empty.
	MasterKeyFile string
	Listen        string   // empty: a free port on the loopback
	Args          []string // further arguments of toll serve
	Env           []string // further environment, NAME=value
}

func (o Options) store() []string {
	var args []string
	if o.Data != "" {
		args = append(args, "--data", o.Data)
	}
	if o.Database != "" {
		args = append(args, "--database", o.Database)
	}
	if o.MasterKeyFile != "" {
		args = append(args, "--master-key-file", o.MasterKeyFile)
	}
	return args
}

// Process is a running service.
type Process struct {
	URL     string
	Log     *Log // stderr
	cmd     *exec.Cmd
	exited  chan struct{}
	exitErr error
}

// Log collects what a process writes. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns everything so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Start runs toll serve and returns when it is healthy. What still runs when the test ends is killed.
func Start(t testing.TB, o Options) *Process {
	t.Helper()
	return StartProgram(t, Program(t), o)
}

// StartProgram is [Start] for another build of the program.
func StartProgram(t testing.TB, program string, o Options) *Process {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		p := launch(t, program, o)
		err := p.WaitHealthy(patience)
		if err == nil {
			return p
		}
		select {
		case <-p.exited:
			if NoDatabase(p.Log) && time.Now().Before(end) {
				continue
			}
		default:
		}
		t.Fatalf("%v\n%s", err, p.Log)
	}
}

// patience is how long a process may take on a slow machine that is busy.
const patience = 2 * time.Minute

// NoDatabase reports whether a process has ended because its database did not answer, and is to be started again.
func NoDatabase(l *Log) bool {
	return strings.Contains(l.String(), toll.CodeDatabaseUnavailable.Info().Message)
}

// LaunchProgram is [Launch] for another build of the program.
func LaunchProgram(t testing.TB, program string, o Options) *Process {
	t.Helper()
	return launch(t, program, o)
}

// Launch runs toll serve and does not wait.
func Launch(t testing.TB, o Options) *Process {
	t.Helper()
	return launch(t, Program(t), o)
}

func launch(t testing.TB, program string, o Options) *Process {
	t.Helper()
	if o.Listen == "" {
		o.Listen = FreeAddress(t)
	}
	args := append([]string{"serve", "--listen", o.Listen}, o.store()...)
	p := &Process{URL: "http://" + o.Listen, Log: &Log{}, cmd: exec.Command(program, append(args, o.Args...)...), exited: make(chan struct{})}
	p.cmd.Stderr = p.Log
	p.cmd.Stdout = p.Log
	// No load balancer watches it, unless a test says so.
	p.cmd.Env = append(append(environment(), "TOLL_DRAIN=0s"), o.Env...)
	must.Do(t, p.cmd.Start())
	go func() {
		p.exitErr = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.Kill)
	return p
}

// environment is that of the test without the settings of who runs it.
func environment() []string {
	var env []string
	for _, e := range os.Environ() {
		if len(e) > 5 && e[:5] == "TOLL_" {
			continue
		}
		env = append(env, e)
	}
	home := filepath.Join(filepath.Dir(program), "home") // holds no configuration file
	return append(env, "XDG_CONFIG_HOME="+home, "HOME="+home)
}

// FreeAddress returns an address on the loopback on which nothing listens, another one each time. Its port is none of those that
// a system gives to who asks for any, so that nobody has it before it is used, or between two uses.
func FreeAddress(t testing.TB) string {
	t.Helper()
	return must.Get(Address())(t)
}

// Address is [FreeAddress] for who has no test.
func Address() (string, error) {
	var problem error
	for range 100 {
		port := 10_240 + rand.IntN(20_000)
		if _, used := given.LoadOrStore(port, true); used {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		ln, err := net.Listen("tcp", address)
		if err == nil {
			_ = ln.Close()
			return address, nil
		}
		problem = err
	}
	return "", fmt.Errorf("no free address: %w", problem)
}

var given sync.Map // ports of [Address]

// WaitHealthy returns when GET /health is 200.
func (p *Process) WaitHealthy(limit time.Duration) error {
	h := &http.Client{Timeout: 10 * time.Second}
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.exited:
			return fmt.Errorf("the service ended: %w", p.exitErr)
		default:
		}
		res, err := h.Get(p.URL + "/health")
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the service is not healthy after %v", limit)
}

func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process at once, as kill -9 does, and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait returns the exit code, or an error when the process is still running after the limit.
func (p *Process) Wait(limit time.Duration) (int, error) {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(limit):
		return 0, errors.New("the process is still running")
	}
}

// Key makes an API key of an account on the database of the options, as an operator does it, before or beside the service.
// Flags are further ones of toll keys create, such as --operator.
func Key(t testing.TB, o Options, account string, flags ...string) toll.APIKey {
	t.Helper()
	args := append([]string{"keys", "create", "--local", "--init", "--account", account, "-o", "json"}, o.store()...)
	args = append(args, flags...)
	path := Program(t) // which takes its time, the first time
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out []byte
	for {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = append(environment(), o.Env...)
		problems := &Log{}
		cmd.Stderr = problems
		var err error
		if out, err = cmd.Output(); err == nil {
			break
		}
		if !NoDatabase(problems) || ctx.Err() != nil {
			t.Fatalf("toll keys create: %v\n%s", err, problems)
		}
	}
	var key toll.APIKey
	if err := json.Unmarshal(out, &key); err != nil || key.Key == "" {
		t.Fatalf("toll keys create printed no key: %v", err)
	}
	return key
}

// Patient is an option of clients that repeat for minutes what the service says may succeed later, as callers do whom nobody hurries:
// that a machine stands still for a while is no outcome of a call.
func Patient(c *client.Client) {
	client.WithRetries(12)(c)
	client.WithMaxRetryWait(15 * time.Second)(c)
}

func (p *Process) Client(key string, opts ...client.Option) *client.Client {
	return client.New(key, append([]client.Option{client.WithURL(p.URL)}, opts...)...)
}

// PostForm posts a form with a key as its bearer, and reads the JSON of the answer into out. It fails the test when the status is not 200.
func PostForm(t testing.TB, address, key string, form url.Values, out any) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode())))(t)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res := must.Get(http.DefaultClient.Do(req))(t)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, out)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("POST %s: %d %s, %v", address, res.StatusCode, text, err)
	}
}
