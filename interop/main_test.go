package interop

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// node is the program, and the directory in which the packages of package.json are installed.
type node struct{ program, packages string }

// set is the packages of one package.json, which are installed once a process.
type set struct {
	from string   // directory of package.json
	more []string // flags of npm

	mu      sync.Mutex
	node    node
	missing string
	err     error
	done    bool
}

var payments, mcpClients = &set{from: "."}, &set{from: "mcp"}

// findNode returns where node and the packages for payments are. Where they cannot be had the test is skipped.
func findNode(t *testing.T) node {
	t.Helper()
	return payments.find(t)
}

func (s *set) find(t *testing.T) node {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.node, s.missing, s.err = install(s.from, s.more)
		s.done = true
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	if s.missing != "" {
		t.Skipf("not run: software of others cannot be had: %s", s.missing)
	}
	return s.node
}

// installTime bounds an installation; the largest has 800 MiB.
const installTime = 6 * time.Minute

// install has the packages of a package-lock.json installed, in a directory that is named after their versions. It appears in one
// step, so that several test processes may do it at once.
func install(from string, more []string) (n node, missing string, err error) {
	if n.program, err = exec.LookPath("node"); err != nil {
		return n, "node is not installed", nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return n, "npm is not installed", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "toll-test")
	sum := sha256.New()
	files := []string{"package.json", "package-lock.json", ".npmrc"}
	content := map[string][]byte{}
	for _, name := range files {
		if content[name], err = os.ReadFile(filepath.Join(from, name)); err != nil {
			return n, "", err
		}
		sum.Write(content[name])
	}
	n.packages = filepath.Join(cache, "interop-"+hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(n.packages); err == nil {
		return n, "", nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return n, "", err
	}
	dir, err := os.MkdirTemp(cache, "install")
	if err != nil {
		return n, "", err
	}
	defer os.RemoveAll(dir)
	for _, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content[name], 0o644); err != nil {
			return n, "", err
		}
	}
	args := []string{"ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error", "--fetch-retries", "3"}
	ci := exec.Command(npm, append(args, more...)...)
	ci.Dir = dir
	ci.WaitDelay = time.Second
	stop := time.AfterFunc(installTime, func() { _ = ci.Process.Kill() })
	out, err := ci.CombinedOutput()
	stop.Stop()
	if err != nil {
		return n, fmt.Sprintf("npm ci: %v: %s", err, lastLines(out)), nil
	}
	if err := os.Rename(dir, n.packages); err != nil {
		if _, gone := os.Stat(n.packages); gone != nil {
			return n, "", err
		}
	}
	return n, "", nil
}

func lastLines(out []byte) string {
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(all[max(0, len(all)-5):], "; ")
}

// workDir returns a directory below the packages with the programs of js and the plug-in as npm would install it.
func (n node) workDir(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp(n.packages, "run"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must.Do(t, os.CopyFS(dir, os.DirFS("js")))
	plugin := filepath.Join(dir, "node_modules", "@tollhq", "x402")
	must.Do(t, os.MkdirAll(plugin, 0o755))
	for _, name := range published(t) {
		text := must.Get(os.ReadFile(filepath.Join("..", "sdk", "x402", name)))(t)
		must.Do(t, os.WriteFile(filepath.Join(plugin, name), text, 0o644))
	}
	return dir
}
