package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// openTerminal returns the two ends of a terminal: of a person and of a program.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person = must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	var n, unlock uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCSPTLCK: &unlock, syscall.TIOCGPTN: &n} {
		raw := must.Get(person.SyscallConn())(t)
		var errno syscall.Errno
		must.Do(t, raw.Control(func(fd uintptr) {
			_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(value)))
		}))
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	program = must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	t.Cleanup(func() {
		_ = person.Close()
		_ = program.Close()
	})
	return person, program
}

// atTerminal runs a command at a terminal with typed input. It returns the text on the terminal, and stderr.
func atTerminal(ctx context.Context, t *testing.T, env map[string]string, typed string, args ...string) (out, errs string, code int) {
	t.Helper()
	person, program := openTerminal(t)
	var shown bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = shown.ReadFrom(person) }) // until the program's end is closed
	if typed != "" {
		must.Get(person.WriteString(typed))(t)
	}
	var stderr bytes.Buffer
	code = run(ctx, args, &app{console: console{in: program, out: program, err: &stderr, getenv: func(n string) string { return env[n] }}})
	must.Do(t, program.Close())
	wg.Wait()
	return strings.ReplaceAll(shown.String(), "\r\n", "\n"), stderr.String(), code
}

// TestTerminal_PlanForm: the form prompts for missing values, and repeats the prompt after a wrong answer. When the input ends, it creates no plan.
func TestTerminal_PlanForm(t *testing.T) {
	svc := tolltest.New(t)
	env := map[string]string{"TOLL_URL": svc.URL(), "TOLL_API_KEY": must.Get(svc.NewKey("builder"))(t).Key, "NO_COLOR": "1"}
	_, stderr, code := atTerminal(t.Context(), t, env, "Pro\n20 dollars\n20\ngbp\nusd\n\n500\n", "plans", "create", "--credits-per-request", "2")
	for _, want := range []string{"Name of the plan: ", "--price must be an amount", "must be usd, eur, usdc, eurc; got \"gbp\"", "Credits per order: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("no %q in %s", want, stderr)
		}
	}
	if code != exitDone {
		t.Fatalf("%d %s", code, stderr)
	}
	out, stderr, code := atTerminal(t.Context(), t, env, "", "plan", "get", "pro")
	for _, want := range []string{`Name: +Pro`, `Price: +20\.00 USD`, `Credits: +500`, `Credits per request: +2`, `Listed: +yes`, `ID: +[0-9]{70,}`} {
		if !regexp.MustCompile(`(?m)^` + want + `\s*$`).MatchString(out) {
			t.Errorf("no %q in %s%s", want, out, stderr)
		}
	}
	if strings.Contains(out, "registry") || code != exitDone {
		t.Errorf("%d %s", code, out)
	}

	_, stderr, code = atTerminal(t.Context(), t, env, "Second\n\x04", "plans", "create")
	if code != exitUsage || !strings.Contains(stderr, "toll plans create needs --price, --currency, --credits") {
		t.Errorf("%d %s", code, stderr)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, stderr, code = atTerminal(ended, t, env, "", "plans", "create"); code != exitFailed || !strings.Contains(stderr, "interrupted") {
		t.Errorf("%d %s", code, stderr)
	}
	plans := 0
	for p, err := range svc.Client().Plans(t.Context()) {
		must.Do(t, err)
		if p.Metadata.Name == "Second" {
			plans++
		}
	}
	if plans > 0 {
		t.Error("a plan was created without all answers")
	}
}

// TestTerminal_Orders: a terminal shows an order with labels and whole units, and a list names the other side.
func TestTerminal_Orders(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPayments())
	env := map[string]string{"TOLL_URL": svc.URL(), "TOLL_API_KEY": must.Get(svc.NewKey("buyer"))(t).Key, "NO_COLOR": "1"}
	out, stderr, code := atTerminal(t.Context(), t, env, "", "delegations", "create", "--spending-limit-cents", "1000", "--duration-secs", "3600", "--currency", "usdc", "-q")
	if code != exitDone {
		t.Fatalf("%d %s", code, stderr)
	}
	delegation := strings.TrimSpace(out)
	out, stderr, code = atTerminal(t.Context(), t, env, "", "plans", "order", string(svc.Plan()), "--delegation-id", delegation, "--wait")
	for _, want := range []string{`Amount: +1\.00 USDC`, `Credits: +100`, `Status: +(confirmed|final)`, `Plan: +` + string(svc.Plan())} {
		if !regexp.MustCompile(`(?m)^` + want + `\s*$`).MatchString(out) {
			t.Errorf("no %q in %s%s", want, out, stderr)
		}
	}
	if code != exitDone {
		t.Errorf("%d %s", code, stderr)
	}
	out, stderr, _ = atTerminal(t.Context(), t, env, "", "orders", "list")
	if !strings.Contains(out, " 1.00 ") || !strings.Contains(out, string(svc.Plan())[:10]+"…") || !strings.Contains(stderr, "--role seller") {
		t.Errorf("%s%s", out, stderr)
	}
	if _, stderr, _ = atTerminal(t.Context(), t, env, "", "orders", "list", "--role", "buyer"); stderr != "" {
		t.Errorf("%s", stderr)
	}
	if out, _, _ = atTerminal(t.Context(), t, env, "", "delegations", "get", delegation); !strings.Contains(out, "100 (1.00 usdc)") {
		t.Errorf("%s", out)
	}
}

// TestFullIDs_NoLookup: a whole id needs only the request of the command.
func TestFullIDs_NoLookup(t *testing.T) {
	svc := tolltest.New(t)
	at := must.Get(url.Parse(svc.URL()))(t)
	var mu sync.Mutex
	var asked []string
	proxy := httputil.NewSingleHostReverseProxy(at)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.Path)
		mu.Unlock()
		r.Host = at.Host
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	env := map[string]string{"TOLL_URL": front.URL, "TOLL_API_KEY": must.Get(svc.NewKey("buyer"))(t).Key}
	const id = "1019366f-71e4-45ef-a064-9fcaac3372b5"
	for _, args := range [][]string{
		{"plans", "get", string(svc.Plan())}, {"agents", "get", string(svc.Agent())}, {"orders", "get", id}, {"delegations", "get", id},
		{"plans", "order", string(svc.Plan()), "--delegation-id", id}, {"keys", "get", "0x" + strings.Repeat("1", 64)}, {"webhooks", "get", id},
		{"cards", "update", toll.MustAddress("0x70997970C51812dc3A010C7d01b50e0d17dc79C8").String(), "--alias", "x"}, {"cards", "revoke", "pm_1MqLiJLkdIwHu7ixUEgbFdYl"},
	} {
		asked = nil
		_, stderr, _ := terminal{t, env}.run(nil, args...)
		if len(asked) != 1 {
			t.Errorf("%v: %v %s", args, asked, stderr)
		}
	}
	asked = nil
	if _, _, code := (terminal{t, env}).run(nil, "plans", "get", "4474"); code != exitNotFound || len(asked) != 3 {
		t.Errorf("%d %v", code, asked)
	}
}
