package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cli"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"toll": func() { os.Exit(cli.Main(os.Args[1:])) }, "tools": func() { os.Exit(toolsProcess()) },
		"keyholder": func() { os.Exit(keyholder()) }, "spy": func() { os.Exit(spy()) },
	})
}

// TestScript runs the scripts in testdata/script. Each has a service of its own, with a builder whose key is in the
// environment, a subscriber with 20 credits, an agent that takes payment, and a plain service to put a gate before.
func TestScript(t *testing.T) { run(t, "testdata/script") }

// TestScript_Payments runs those in testdata/payments, whose service sells plans for money through the stand-in of tolltest:
// rail pays, declines or stalls says how it takes orders from then on.
func TestScript_Payments(t *testing.T) { run(t, "testdata/payments", tolltest.WithPayments()) }

// TestScript_Cards runs those in testdata/cards, whose service sells plans in dollars: enrolls ADDRESS NUMBER VARIABLE enrols a test
// card, and pays URL NUMBER pays the page of an order, both as a person in a browser does.
func TestScript_Cards(t *testing.T) { run(t, "testdata/cards", tolltest.WithCards()) }

func run(t *testing.T, dir string, opts ...tolltest.Option) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Setup:               func(env *testscript.Env) error { return setup(env, opts) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "capture": capture, "member": member, "healthy": healthy, "appears": appears, "rail": rail,
			"tool": tool, "certifies": certifies, "enrolls": enrolls, "pays": pays,
		},
	})
}

type serviceOfScript struct{}

// rail pays|declines|stalls changes how the stand-in takes orders.
func rail(ts *testscript.TestScript, neg bool, args []string) {
	svc, _ := ts.Value(serviceOfScript{}).(*tolltest.Service)
	if neg || len(args) != 1 || svc == nil {
		ts.Fatalf("usage: rail pays|declines|stalls")
	}
	switch args[0] {
	case "pays":
		svc.Decline(false)
	case "declines":
		svc.Decline(true)
	case "stalls":
		svc.Stall(true)
	default:
		ts.Fatalf("usage: rail pays|declines|stalls")
	}
}

func enrolls(ts *testscript.TestScript, neg bool, args []string) {
	svc, _ := ts.Value(serviceOfScript{}).(*tolltest.Service)
	if neg || len(args) != 3 || svc == nil {
		ts.Fatalf("usage: enrolls ADDRESS NUMBER VARIABLE")
	}
	ts.Setenv(args[2], svc.EnrollCard(toll.MustAddress(args[0]), args[1]))
}

func pays(ts *testscript.TestScript, neg bool, args []string) {
	svc, _ := ts.Value(serviceOfScript{}).(*tolltest.Service)
	if neg || len(args) != 2 || svc == nil {
		ts.Fatalf("usage: pays URL NUMBER")
	}
	svc.PayPage(args[0], args[1])
}

func setup(env *testscript.Env, opts []tolltest.Option) error {
	svc, err := tolltest.Start(opts...)
	if err != nil {
		return err
	}
	env.Values[serviceOfScript{}] = svc
	env.Defer(func() {
		if err := svc.Close(); err != nil {
			env.T().Log(err)
		}
	})
	paidAgent := httptest.NewServer(paid.Handler(svc.Facilitator(), http.HandlerFunc(echo),
		paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(2)))
	env.Defer(paidAgent.Close)
	plain := httptest.NewServer(http.HandlerFunc(echo))
	env.Defer(plain.Close)
	copying := httptest.NewServer(copier(paidAgent.URL))
	env.Defer(copying.Close)
	builder, err := svc.NewKey("builder")
	if err != nil {
		return err
	}
	subscriber, err := svc.NewKey("buyer")
	if err != nil {
		return err
	}
	if _, err := svc.Client().Mint(context.Background(), svc.Plan(), subscriber.Address, 20, 0); err != nil {
		return err
	}
	for name, key := range map[string]string{"builder.key": builder.Key, "subscriber.key": subscriber.Key} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(key), 0o600); err != nil {
			return err
		}
	}
	env.Setenv("HOME", env.WorkDir)
	env.Setenv("TOLL_URL", svc.URL())
	env.Setenv("IP_URL", strings.Replace(svc.URL(), "localhost", "127.0.0.1", 1)) // it answers there, too
	env.Setenv("DATA", svc.Data())
	env.Setenv("TOLL_API_KEY", builder.Key)
	env.Setenv("BUILDER_KEY", builder.Key)
	env.Setenv("SUBSCRIBER_KEY", subscriber.Key)
	env.Setenv("SUBSCRIBER", subscriber.Address.String())
	env.Setenv("BUILDER", builder.Address.String())
	env.Setenv("PLAN", string(svc.Plan()))
	env.Setenv("AGENT", string(svc.Agent()))
	env.Setenv("AGENT_URL", paidAgent.URL)
	env.Setenv("UPSTREAM", plain.URL)
	env.Setenv("COPIER", copying.URL)
	for _, name := range []string{"LISTEN", "LISTEN2"} {
		address, err := servertest.Address()
		if err != nil {
			return err
		}
		env.Setenv(name, address)
		_, port, _ := net.SplitHostPort(address)
		env.Setenv(strings.Replace(name, "LISTEN", "PUBLIC", 1), "http://localhost:"+port) // of a service that listens there
	}
	return nil
}

// echo answers with what was sent, and says so when a request still carries its access token.
func echo(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("payment-signature") != "" || strings.HasPrefix(r.Header.Get("Authorization"), "Bearer eyJ") {
		http.Error(w, "the access token arrived", http.StatusInternalServerError)
		return
	}
	switch r.URL.Path {
	case "/missing":
		http.NotFound(w, r)
	case "/elsewhere":
		http.Redirect(w, r, "/ask", http.StatusFound)
	default:
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s [%s]%s\n", r.Method, r.URL.Path, b, r.Header.Get("Authorization"))
	}
}

// copier asks for what another server asks for, and spends there what it is paid.
func copier(other string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, other+"/ask", nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if payment := r.Header.Get("payment-signature"); payment != "" {
			req.Header.Set("payment-signature", payment)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		if ask := res.Header.Get("payment-required"); ask != "" {
			w.Header().Set("payment-required", ask)
		}
		w.WriteHeader(res.StatusCode)
	})
}

// exits CODE COMMAND... runs a command that must end with this code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// capture NAME MEMBER sets a variable to a member of the JSON on stdout, dotted from its root.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: capture NAME MEMBER")
	}
	ts.Setenv(args[0], memberOf(ts, "stdout", args[1]))
}

// member FILE MEMBER VALUE compares a member of the JSON in a file, stdout or stderr.
func member(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: member FILE MEMBER VALUE")
	}
	if got := memberOf(ts, args[0], args[1]); (got == args[2]) == neg {
		ts.Fatalf("%s is %q", args[1], got)
	}
}

func memberOf(ts *testscript.TestScript, file, path string) string {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	dec.UseNumber()
	var v any
	ts.Check(dec.Decode(&v))
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(at) {
				ts.Fatalf("no %s in %s", name, file)
			}
			v = at[i]
		default:
			ts.Fatalf("no %s in %s", path, file)
		}
	}
	return fmt.Sprint(v)
}

// patience is how long a script waits for what has to come.
const patience = 2 * time.Minute

// healthy URL [STATUS] waits until a service answers there, with this status.
func healthy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: healthy URL [STATUS]")
	}
	h := &http.Client{Timeout: 10 * time.Second}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		res, err := h.Get(args[0])
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if len(args) == 1 || strconv.Itoa(res.StatusCode) == args[1] {
			return
		}
	}
	ts.Fatalf("nothing answers at %s", args[0])
}

// appears FILE TEXT waits until a file holds a text.
func appears(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: appears FILE TEXT")
	}
	var b []byte
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		b, _ = os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		if strings.Contains(string(b), args[1]) {
			return
		}
	}
	ts.Fatalf("%s does not hold %q:\n%s", args[0], args[1], b)
}
