package interop

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
)

// pythonTime bounds the suite of sdk/python.
const pythonTime = 8 * time.Minute

// pythonNeeds are what the suite imports, all packages of Debian (scripts/test.sh).
const pythonNeeds = "import fastapi, starlette, flask, django, uvicorn, httpx, requests, pytest, mypy, hatchling, build, pip"

// findPython returns the interpreter of the system, which has Debian's packages: another one on PATH has none of them.
func findPython(t *testing.T) string {
	t.Helper()
	program := os.Getenv("TOLL_TEST_PYTHON")
	if program == "" {
		program = "/usr/bin/python3"
	}
	if out, err := exec.Command(program, "-c", pythonNeeds).CombinedOutput(); err != nil {
		t.Skipf("not run: %s, or a package of Debian for it, is not installed: %v: %s", program, err, lastLines(out))
	}
	return program
}

// TestPython runs the suite of sdk/python against the program, and against a service here whose chain and cards are stand-ins.
func TestPython(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		python := findPython(t)
		page := railtest.New()
		page.Behave(railtest.Behaviour{Person: true})
		cfg := server.Config{LoopbackWebhooks: true, Release: "1.1.0"}
		cfg.Rails.Card = page
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
		rail, err := json.Marshal(map[string]string{"url": s.url, "keys": keys.URL})
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.Abs(filepath.Join("..", "sdk", "python"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), pythonTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, python, "-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider")
		cmd.Dir = dir
		cmd.WaitDelay = time.Second
		cmd.Env = append(os.Environ(), "TOLL_BIN="+servertest.Program(t), "TOLL_TEST_RAIL="+string(rail), "PYTHONDONTWRITEBYTECODE=1")
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

// TestPythonMatrix has a seller and a buyer of this module meet those of the package for Python (sdk/python/examples).
func TestPythonMatrix(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		python := findPython(t)
		s := inside(t, server.Config{})
		dir, err := filepath.Abs(filepath.Join("..", "sdk", "python"))
		if err != nil {
			t.Fatal(err)
		}
		program := func(key toll.APIKey, env []string, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), python, args...)
			cmd.Dir = filepath.Join(dir, "examples")
			cmd.WaitDelay = time.Second
			cmd.Env = append(os.Environ(), "TOLL_API_KEY="+key.Key, "TOLL_URL="+s.url,
				"PYTHONPATH="+filepath.Join(dir, "src"), "PYTHONDONTWRITEBYTECODE=1")
			cmd.Env = append(cmd.Env, env...)
			return cmd
		}
		register := func(t *testing.T, url string) *client.Registered {
			t.Helper()
			r, err := s.client(s.builder).RegisterAgentWithPlan(t.Context(), client.AgentParams{
				Metadata: toll.Metadata{Name: t.Name()},
				API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: url + "/ask"}}},
			}, client.PlanParams{
				Metadata: toll.Metadata{Name: t.Name()},
				Credits:  toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10},
			})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		left := func(t *testing.T, plan toll.PlanID, want toll.Credits) {
			t.Helper()
			b, err := s.client(s.subscriber).Balance(t.Context(), plan)
			if err != nil || b.Balance != want || b.Held != 0 {
				t.Errorf("%+v %v, want a balance of %d", b, err, want)
			}
		}

		t.Run("Go seller, Python buyer", func(t *testing.T) {
			agent := httptest.NewUnstartedServer(nil)
			url := "http://" + agent.Listener.Addr().String()
			r := register(t, url)
			agent.Config.Handler = paid.Handler(s.client(s.builder), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"text":"from Go"}`)) // the gate keeps it
			}), paid.Plan(r.PlanID), paid.Agent(r.AgentID), paid.Credits(3), paid.PublicURL(url))
			agent.Start()
			t.Cleanup(agent.Close)
			out, err := program(s.subscriber, nil, "buyer.py", url, "hello").CombinedOutput()
			if err != nil || string(out) != "from Go\n3 credits spent\n" {
				t.Fatalf("%v %q", err, out)
			}
			left(t, r.PlanID, 97)
		})
		t.Run("Python seller, Go buyer", func(t *testing.T) {
			at := servertest.FreeAddress(t)
			url := "http://" + at
			r := register(t, url)
			host, port, _ := strings.Cut(at, ":")
			agent := program(s.builder, []string{"TOLL_PLAN=" + string(r.PlanID), "TOLL_AGENT=" + string(r.AgentID), "AGENT_URL=" + url},
				"-m", "uvicorn", "agent:app", "--host", host, "--port", port, "--log-level", "warning")
			log := &servertest.Log{}
			agent.Stderr = log
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = agent.Process.Kill()
				_ = agent.Wait() // a process that was killed has nothing to say
			})
			for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
				conn, err := net.Dial("tcp", at)
				if err == nil {
					_ = conn.Close()
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%v\n%s", err, log)
				}
			}
			purse := client.NewPurse(client.Limits{Hosts: []string{at}, CreditsPerCall: 5, Credits: 5})
			h := &http.Client{Transport: client.NewTransport(purse, s.client(s.subscriber).Payer())}
			res, err := h.Post(url+"/ask", "application/json", strings.NewReader(`{"text":"hello"}`))
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			defer res.Body.Close()
			var answer struct{ Text, Payer string }
			if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || answer.Text != "HELLO" ||
				answer.Payer != s.subscriber.Address.String() {
				t.Errorf("%s %+v %v\n%s", res.Status, answer, err, log)
			}
			if p := purse.Payments(); len(p) != 1 || p[0].State != client.PaymentPaid || p[0].Spent.String() != "2" {
				t.Errorf("%+v", p)
			}
			left(t, r.PlanID, 98)
		})
	})
}
