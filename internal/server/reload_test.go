package server_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// SIGHUP reads the log level again, and ends the process neither with a good file nor with a bad one.
func TestReload_LogLevel(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "level")
	put := func(text string) {
		t.Helper()
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	put("info\n")
	p := servertest.Start(t, servertest.Options{Data: t.TempDir(), Args: []string{"--log-level", "@" + file}})
	lines := func(text string) int { return strings.Count(p.Log.String(), text) }
	const done, failed = "reloaded settings", "failed to reload settings"
	reload := func(level, want string, n int) {
		t.Helper()
		put(level)
		must.Do(t, p.Signal(syscall.SIGHUP))
		eventually(t, want, func() bool { return lines(want) == n })
	}
	reload("louder", failed, 1)
	reload("debug", done, 1)
	reload("warn", done, 1) // the line is below the new level
	reload("louder", failed, 2)
	reload("info", done, 2)
	if status(t, p.URL+"/health") != http.StatusOK {
		t.Error("it does not serve after SIGHUP")
	}
}
