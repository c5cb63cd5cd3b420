package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
)

// pythonTime bounds one file of the suite of sdk/python.
const pythonTime = 8 * time.Minute

// pythonNeeds are what the suite imports, all packages of Debian (scripts/test.sh).
const pythonNeeds = "import fastapi, starlette, flask, django, uvicorn, httpx, requests, pytest, mypy, hatchling, build, pip, " +
	"ecdsa, Cryptodome"

// pythonMissing says what the suite lacks, asked once a process: the packages take seconds to import.
var pythonMissing = sync.OnceValue(func() string {
	if out, err := exec.Command(pythonProgram(), "-c", pythonNeeds).CombinedOutput(); err != nil {
		return fmt.Sprintf("%v: %s", err, lastLines(out))
	}
	return ""
})

func pythonProgram() string { return cmp.Or(os.Getenv("TOLL_TEST_PYTHON"), "/usr/bin/python3") }

// findPython returns the interpreter of the system, which has Debian's packages: another one on PATH has none of them.
func findPython(t *testing.T) string {
	t.Helper()
	if missing := pythonMissing(); missing != "" {
		t.Skipf("not run: %s, or a package of Debian for it, is not installed: %s", pythonProgram(), missing)
	}
	return pythonProgram()
}

// TestPython runs the suite of sdk/python against the program, and against a service here whose chain and cards are stand-ins.
func TestPython(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		python := findPython(t)
		page := railtest.New()
		page.Behave(railtest.Behaviour{Person: true})
		cfg := server.Config{LoopbackWebhooks: true, Release: "1.1.0"}
		cfg.Rails.Given = rail.Rails{rail.Card: page}
		s := inside(t, cfg)
		keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			key, err := s.newKey(r.Context(), server.KeyRequest{Account: q.Get("account"), Operator: q.Get("operator") == "1"})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(key) // the suite sees what is missing
		}))
		t.Cleanup(keys.Close)
		rail := must.Get(json.Marshal(map[string]string{"url": s.url, "keys": keys.URL}))(t)
		dir := must.Get(filepath.Abs(filepath.Join("..", "sdk", "python")))(t)
		env := append(os.Environ(), "TOLL_BIN="+servertest.Program(t), "TOLL_TEST_RAIL="+string(rail),
			"TOLL_BUILDERS="+builderCases(t), "PYTHONDONTWRITEBYTECODE=1")
		files, err := filepath.Glob(filepath.Join(dir, "tests", "test_*.py"))
		if err != nil || len(files) == 0 {
			t.Fatal("no tests", err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "test_"), ".py")
			t.Run(name, func(t *testing.T) { // each with a service of its own; they wait for answers most of their time
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), pythonTime)
				defer cancel()
				cmd := exec.CommandContext(ctx, python, "-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider", file)
				cmd.Dir, cmd.WaitDelay, cmd.Env = dir, time.Second, env
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				if strings.Contains(string(out), "SKIPPED") {
					t.Errorf("a test of the suite was skipped:\n%s", out)
				}
				t.Log(lastLines(out))
			})
		}
	})
}

// pythonMatrix is the examples of the package for Python.
func pythonMatrix(t *testing.T) matrix {
	t.Helper()
	python, dir := findPython(t), absolute(t, "..", "sdk", "python")
	return matrix{
		dir:   filepath.Join(dir, "examples"),
		env:   []string{"PYTHONPATH=" + filepath.Join(dir, "src"), "PYTHONDONTWRITEBYTECODE=1"},
		buyer: []string{python, "buyer.py"},
		seller: func(host, port string) []string {
			return []string{
				python, "-m", "uvicorn", "agent:app", "--host", host, "--port", port, "--log-level", "warning",
			}
		},
	}
}

// TestPythonMatrix has a seller and a buyer of this module meet those of the package for Python (sdk/python/examples).
func TestPythonMatrix(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		m := pythonMatrix(t)
		m.service = inside(t, server.Config{})
		m.run(t)
	})
}
