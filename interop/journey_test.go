package interop

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// TestJourney: two persons have a browser and the address of an empty service. One sells an agent with one form and the commands that its
// pages print, the other buys its plan by card and calls it, and the seller sees that within two seconds, on a page that was open before.
// Both reach their first settlement with few fields, clicks, and pastes.
func TestJourney(t *testing.T) {
	inBrowser(t, func(b *browser) {
		o := servertest.Options{Data: b.TempDir(), Listen: servertest.FreeAddress(b.T)}
		s := &service{owner: b.T, options: o, process: servertest.Start(b.T, o)}
		s.url = strings.Replace(s.process.URL, "127.0.0.1", "localhost", 1) // browsers take no passkey on an IP address
		w := &town{browser: b, service: s}
		var runs, answered atomic.Int64
		upstream := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			content(&runs).ServeHTTP(rw, r)
			answered.Store(time.Now().UnixNano())
		}))
		b.Cleanup(upstream.Close)
		endpoint := "http://" + servertest.FreeAddress(b.T) + "/count"

		w.open("seller", true, "")
		w.visit(s.url+"/sign-up", http.StatusOK)
		w.look("journey sign-up")
		sells := effort{town: w}
		sells.fill("Your name, shown to the other members of your workspace", "Sally")
		sells.fill("Workspace name", "Acme")
		sells.click("Sign up with a passkey")
		w.textOf(`bdi:text-is("Sally")`)
		w.seller = w.workspace()
		w.read("Acme")
		w.look("journey first page")
		sells.click("Start selling")
		sells.fill("Name", "Counts words")
		sells.fill("Endpoint", endpoint)
		sells.fill("Price", "5.00")
		w.look("journey start form")
		sells.click("Start selling")
		w.read("Agent, plan, and API key created.")
		sells.click("toll gate")
		w.look("journey start")
		command := sells.copied("details[name=selling][open] .code")
		test := sells.copied("details[name=snippets][open] .code")
		w.inShell(strings.Replace(command, "--upstream http://127.0.0.1:3000", "--upstream "+upstream.URL, 1), true)
		w.waitFor(endpoint)
		w.inShell(test, false)
		if row := w.textOf("#first tbody tr"); !strings.Contains(row, endpoint) || runs.Load() != 1 {
			b.Errorf("after %d calls, the page shows %q", runs.Load(), row)
		}
		w.read("It works. Give this link to buyers")
		w.look("journey first settlement")
		sells.within(5, 10, 2)

		key := w.textOf(".once code")
		server := client.New(key, client.WithURL(s.url), servertest.Patient)
		var agentID toll.AgentID
		var planID toll.PlanID
		for a, err := range server.Agents(b.Context()) {
			must.Do(b, err)
			agentID, planID = a.ID, a.Plans[0].PlanID
		}
		for name, path := range map[string]string{
			"agents": "/agents", "agent": "/agents/" + string(agentID), "agent form": "/agents/new", "plan form": "/plans/new", "key form": "/keys/new",
		} {
			w.visit(w.sells(path), http.StatusOK)
			w.look("journey " + name)
		}
		w.visit(w.sells("/plans/"+string(planID)), http.StatusOK)
		w.look("journey plan")
		w.press("Public page")
		public := w.read("Credits per order")
		w.visit(w.sells(""), http.StatusOK)
		w.textOf(".live-mark")
		// A page that nobody sees waits for nothing, and goes on when somebody does.
		w.must("hide", map[string]any{"hidden": true, "waits": 0}, nil)
		w.must("hide", map[string]any{"hidden": false, "waits": 1}, nil)
		w.must("key", map[string]any{"key": "?"}, nil)
		w.read("Search or jump to")
		w.look("journey keys")
		w.must("key", map[string]any{"key": "Escape"}, nil)

		w.open("buyer", true, "")
		w.visit(public, http.StatusOK)
		w.look("journey plan for strangers")
		buys := effort{town: w}
		buys.click("Sign up to buy")
		buys.fill("Your name, shown to the other members of your workspace", "Stan")
		buys.click("Sign up with a passkey")
		w.read("100 credits")
		w.look("journey plan before the purchase")
		buys.click("Pay 5.00 USD by card")
		w.read("TEST PAGE: NO MONEY MOVES")
		w.look("journey card")
		buys.fill("Test card number", "4242 4242 4242 4242")
		buys.fill("Expiration date", "12/34")
		buys.fill("Security code", "123")
		buys.click("Pay")
		w.read("Order paid")
		w.look("journey order paid")
		buys.click("Try it")
		w.read("You pay with your credits")
		w.look("journey call")
		buys.click("Send request")
		buys.within(4, 7, 1)
		w.turn("seller")
		row := w.textOf(`#latest tbody tr:has(td .num:text-is("99"))`) // the newest, above the test request of the seller
		took := time.Since(time.Unix(0, answered.Load()))
		if took > 2*time.Second || runs.Load() != 2 {
			b.Errorf("the settlement of %d calls was there after %s", runs.Load(), took)
		}
		b.Logf("the settlement was there after %s", took)
		for _, want := range []string{"Counts words", endpoint, "99"} {
			if !strings.Contains(row, want) {
				b.Errorf("the overview of the seller has no %q: %q", want, row)
			}
		}
		w.look("journey overview")
		w.turn("buyer")
		w.read("Burned 1 credit.")
		if left := w.textOf("select[name=plan]"); !strings.Contains(left, "99 credits left") {
			b.Errorf("the page of the call says of the plan: %q", left)
		}
		w.look("journey answer")
		w.visit(public, http.StatusOK)
		w.read("You have this plan. 99 credits left")
		w.look("journey plan after the purchase")
		w.press("Create access token")
		w.press("Create token")
		w.read("Call Counts words with curl")
		w.look("journey token")
	})
}

// sells is the address of a page of the seller.
func (w *town) sells(path string) string { return w.url + "/w/" + w.seller + path }

// effort counts what a person does in a browser.
type effort struct {
	*town
	fields, clicks, pastes int
}

func (e *effort) fill(label, text string) {
	e.Helper()
	e.fields++
	e.typeInto(label, text)
}

func (e *effort) click(name string) {
	e.Helper()
	e.clicks++
	e.press(name)
}

// copied returns what a person copies with the button beside a text and pastes elsewhere.
func (e *effort) copied(selector string) string {
	e.Helper()
	e.clicks++
	e.pastes++
	return e.textOf(selector)
}

func (e *effort) within(fields, clicks, pastes int) {
	e.Helper()
	e.Logf("%d fields, %d clicks, %d pastes", e.fields, e.clicks, e.pastes)
	if e.fields > fields || e.clicks > clicks || e.pastes > pastes {
		e.Errorf("%d fields, %d clicks, %d pastes; want at most %d, %d, %d", e.fields, e.clicks, e.pastes, fields, clicks, pastes)
	}
}

// waitFor waits until a server responds.
func (w *town) waitFor(address string) {
	w.Helper()
	for end := time.Now().Add(roleWait); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if res, err := http.Get(address); err == nil {
			res.Body.Close()
			return
		}
	}
	w.Fatalf("%s does not respond", address)
}

// inShell runs a command that a page printed, in the background until the test ends or to its end. The toll on its path is the tested one.
func (w *town) inShell(command string, background bool) {
	w.Helper()
	bin, home := w.TempDir(), w.TempDir()
	must.Do(w, os.Symlink(servertest.Program(w.T), filepath.Join(bin, "toll")))
	ctx, stop := context.WithCancel(w.Context())
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+home, "XDG_CONFIG_HOME="+home)
	if !background {
		defer stop()
		if out, err := cmd.CombinedOutput(); err != nil {
			w.Fatalf("%s: %v\n%s", command, err, out)
		}
		return
	}
	var out servertest.Log
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	must.Do(w, cmd.Start())
	w.Cleanup(func() {
		stop()
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("%s\n%s", command, out.String())
		}
	})
}
