package chaintest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// The package of the platform is used as it is: the script that the wrapper runs after its installation is blocked by npm.
const (
	anvilPackage   = "@foundry-rs/anvil-linux-amd64@1.7.1"
	anvilIntegrity = "sha512-+XmShybEaxfCrr0OUUZwYEy2OnYZt5pHH9TzBtLv3+VrK0O/ANuNSVEahqNhKHlgX7GRJ59383ofNhxkRWIYTg=="
	anvilSum       = "10c1c727d6c1de973aeb160e59875b9a9a23464d6e74149ee8abb30b3500311b" // SHA-256 of bin/anvil in it
)

var anvilOnce struct {
	sync.Mutex
	path string
}

// anvilProgram returns the path of the program, or what is missing. It is kept in the cache of the user and compared with its
// checksum once a process.
func anvilProgram(ctx context.Context) (path, missing string, err error) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "", "there is no package for " + runtime.GOOS + "/" + runtime.GOARCH + " here", nil
	}
	anvilOnce.Lock()
	defer anvilOnce.Unlock()
	if anvilOnce.path != "" {
		return anvilOnce.path, "", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	path = filepath.Join(cache, "toll-test", "anvil-"+anvilSum[:16])
	if sumOf(path) != anvilSum {
		if missing, err = fetchAnvil(ctx, path); missing != "" || err != nil {
			return "", missing, err
		}
	}
	anvilOnce.path = path
	return path, "", nil
}

func sumOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fetchAnvil asks npm for the package, compares it with its integrity and puts the program at path in one step, so that
// several test processes may do it at once.
func fetchAnvil(ctx context.Context, path string) (missing string, err error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "npm is not installed", nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), "fetch")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	pack := exec.CommandContext(ctx, npm, "pack", anvilPackage, "--silent", "--fetch-retries", "1")
	pack.Dir = dir
	if out, err := pack.CombinedOutput(); err != nil {
		return fmt.Sprintf("npm pack %s: %v: %s", anvilPackage, err, lastLine(out)), nil
	}
	tarballs, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(tarballs) != 1 {
		return "", fmt.Errorf("npm pack left %d packages", len(tarballs))
	}
	content, err := os.ReadFile(tarballs[0])
	if err != nil {
		return "", err
	}
	sum := sha512.Sum512(content)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != anvilIntegrity {
		return "", fmt.Errorf("integrity of %s: got %s, want %s", anvilPackage, got, anvilIntegrity)
	}
	unpacked := filepath.Join(dir, "anvil")
	if err := unpack(strings.NewReader(string(content)), "package/bin/anvil", unpacked); err != nil {
		return "", err
	}
	if got := sumOf(unpacked); got != anvilSum {
		return "", fmt.Errorf("checksum of anvil: got %s, want %s", got, anvilSum)
	}
	return "", os.Rename(unpacked, path)
}

func lastLine(out []byte) string {
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	return all[len(all)-1]
}

// unpack writes one file of a gzipped tar file, executable.
func unpack(r io.Reader, name, to string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	files := tar.NewReader(z)
	for {
		h, err := files.Next()
		if err != nil {
			return fmt.Errorf("%s is not in the package: %w", name, err)
		}
		if h.Name != name {
			continue
		}
		f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, files)
		return errors.Join(err, f.Close())
	}
}

// runAnvil starts the program and returns the address that it listens on. It is killed when the test ends.
func runAnvil(t testing.TB, program string, args []string) string {
	t.Helper()
	listening := make(chan string, 1)
	var mu sync.Mutex
	var said []string
	out := &lines{f: func(line string) {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "Listening on "); ok {
			listening <- at
		}
		mu.Lock()
		said = append(said[max(0, len(said)-20):], line)
		mu.Unlock()
	}}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	endWithParent(cmd)
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		// The system ends the program when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("anvil: %v", err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	select {
	case at := <-listening:
		return "http://" + at
	case <-ended:
	case <-time.After(2 * time.Minute):
	}
	mu.Lock()
	defer mu.Unlock()
	t.Fatalf("anvil does not listen: %s", strings.Join(said, "\n"))
	return ""
}

// lines calls f with every line that is written to it.
type lines struct {
	f    func(line string)
	part []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, found := bytes.Cut(l.part, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.f(string(line))
		l.part = rest
	}
}
