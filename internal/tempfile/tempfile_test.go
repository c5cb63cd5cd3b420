package tempfile_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/tempfile"
)

const envDir = "TOLL_TEMPFILE_DIR"

var kind = tempfile.Kind{Prefix: "work-", Suffix: ".db"}

// TestMain is also the process that makes a file and is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		f, err := kind.Create(dir)
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString(f.Name() + "\n") // the reader kills this process
		select {}
	}
	os.Exit(m.Run())
}

// killed returns the name of a file whose process was killed, after a check while the process
// lived.
func killed(t *testing.T, dir string, alive func()) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	line := make([]byte, 4096)
	n := must.Get(out.Read(line))(t)
	alive()
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
	return strings.TrimSpace(string(line[:n]))
}

// What a killed process left is removed by the next one that makes such a file; what a living one
// has made stays, and so does every other file.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	digits := strings.Repeat("a", 32)
	others := []string{
		"work-.db", "work-2026.db", "work-" + digits + "a.db", "work-" + strings.ToUpper(digits) + ".db",
		digits + ".db", "work-" + digits, "my-work-" + digits + ".db",
	}
	for _, name := range others {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	path := killed(t, dir, func() {
		if names, err := kind.Clean(dir); err != nil || len(names) > 0 {
			t.Errorf("removed the file of a living process: %v, %v", names, err)
		}
	})
	for _, side := range []string{"-journal", "-wal"} {
		must.Do(t, os.WriteFile(path+side, nil, 0o600))
	}
	if names, err := kind.Left(dir); err != nil || !slices.Equal(names, []string{filepath.Base(path)}) {
		t.Errorf("left: %v, %v", names, err)
	}
	f := must.Get(kind.Create(dir))(t)
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	must.Check(t, errors.Join(f.Remove(), f.Remove()))
	entries := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(others)
	slices.Sort(names)
	if !slices.Equal(names, others) {
		t.Errorf("there is\n%v, not\n%v", names, others)
	}
}

func TestPublish(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	publish := func(content string, replace bool) error {
		f := must.Get(kind.Create(dir))(t)
		must.Get(f.WriteString(content))(t)
		return errors.Join(f.Publish(path, replace), f.Remove())
	}
	must.Do(t, publish("one", false))
	if err := publish("two", false); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file of that name was replaced: %v", err)
	}
	must.Do(t, publish("three", true))
	entries, err := os.ReadDir(dir)
	if text, e := os.ReadFile(path); string(text) != "three" || e != nil || err != nil || len(entries) != 1 {
		t.Errorf("%q, %v, %v, %v", text, entries, err, e)
	}
}

// Processes that make files at the same time do not take each other's for ones that were left.
func TestCreateTogether(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				f, err := kind.Create(dir)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(f.Name()); err != nil {
					t.Error(err)
				}
				must.Check(t, f.Remove())
			}
		})
	}
	wg.Wait()
}
