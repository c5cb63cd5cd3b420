package interop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/sdk"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// mostChanged bounds the lines that differ between a service in testdata/prompt before and after the prompt of docs/PROMPT.md.
const mostChanged = 10

// framework is a web framework that the prompt supports.
type framework struct {
	section, file  string // of the list of SDKs, and of the service in testdata/prompt
	setup          string // name of the setup script in the prompt
	endpoints      string // in the setup script
	paid           string // its replacement: the paid routes of the service
	prepare, start string // shell commands before the installation, and of the service; the address is in HOST and PORT
}

var promptFrameworks = map[string]framework{
	"express": {
		"## TypeScript", "app.js", "toll-setup.mjs", "[{ POST: `${publicUrl}/ask` }]",
		"[{ POST: `${publicUrl}/summaries` }, { GET: `${publicUrl}/words/:word` }]",
		`echo '{"private":true}' >package.json`, "exec node app.js",
	},
	"fastapi": {
		"## Python", "app.py", "toll_setup.py", `[{"POST": f"{public_url}/ask"}]`,
		`[{"POST": f"{public_url}/summaries"}, {"GET": f"{public_url}/words/:word"}]`,
		pythonProgram() + " -m venv --system-site-packages venv", "exec python3 -m uvicorn app:app --host $HOST --port $PORT --log-level warning",
	},
}

// TestPrompt follows the prompt of docs/PROMPT.md, as a service shows it, with the services in testdata/prompt. A buyer then buys the plan by
// card and pays for requests. The page shows what changed in each service.
func TestPrompt(t *testing.T) {
	page := string(must.Get(os.ReadFile(filepath.Join("..", "docs", "PROMPT.md")))(t))
	for name, f := range promptFrameworks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := changesOf(t, name, f.file)
			if n := len(regexp.MustCompile(`(?m)^[+-].`).FindAllString(changed, -1)) - 2; n < 1 || n > mostChanged {
				t.Errorf("%d lines changed, at most %d are allowed", n, mostChanged)
			}
			if !strings.Contains(page, "```diff\n"+changed+"```\n") {
				t.Errorf("docs/PROMPT.md does not show\n%s", changed)
			}
			followPrompt(t, name, f)
		})
	}
}

// changesOf returns the differences between the files of a service before and after.
func changesOf(t *testing.T, name, file string) string {
	t.Helper()
	dir := filepath.Join("testdata", "prompt", name)
	cmd := exec.Command("diff", "-U", "1", "--label", file, "--label", file, filepath.Join(dir, "before", file), filepath.Join(dir, "after", file))
	out, err := cmd.Output()
	if cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("diff: %v", err)
	}
	return string(out)
}

// between returns the text of the prompt between two texts.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	part, _, end := strings.Cut(rest, to)
	if !ok || !end {
		t.Fatalf("the prompt has no %q before %q", from, to)
	}
	return part
}

func followPrompt(t *testing.T, name string, f framework) {
	python, n := findPython(t), typescriptTools.find(t)
	svc := tolltest.New(t, tolltest.WithCards())
	prompt := between(t, fetched(t, svc.URL()+"/docs/prompt.md"), "````text\n", "````\n")
	dir := must.Get(os.MkdirTemp(n.packages, "prompt"))(t) // below express
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	before, after := servertest.FreeAddress(t), servertest.FreeAddress(t)
	key := must.Get(svc.NewKey("builder"))(t)
	env := []string{
		"PATH=" + strings.Join([]string{filepath.Join(dir, "venv", "bin"), filepath.Dir(n.program), filepath.Dir(python), os.Getenv("PATH")}, ":"),
		"HOME=" + dir, "TOLL_API_KEY=" + key.Key, "TOLL_URL=" + svc.URL(), "npm_config_registry=http://127.0.0.1:9/", "npm_config_fetch_retries=0",
		"npm_config_update_notifier=false", "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PYTHONDONTWRITEBYTECODE=1",
	}
	shell := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s\n%s", err, out, &said, script)
		}
		return string(out)
	}
	source := func(when string) {
		text := must.Get(os.ReadFile(filepath.Join("testdata", "prompt", name, when, f.file)))(t)
		must.Do(t, os.WriteFile(filepath.Join(dir, f.file), text, 0o644))
	}
	source("before")
	shell(f.prepare)
	run := func(at string) {
		background(t, dir, append(os.Environ(), env...), "\nHOST=127.0.0.1 PORT="+at[len("127.0.0.1:"):]+"\nexport HOST PORT # listen "+at+"\n"+f.start)
	}
	run(before)

	// Step 1.
	install := between(t, fetched(t, svc.URL()+sdk.Path), f.section+"\n", "\nImport ")
	shell(install)
	if address := regexp.MustCompile(`'(http.*#sha256=.*)'`).FindStringSubmatch(install); address != nil {
		shell("echo 'toll @ " + address[1] + "' >requirements.txt\npip install -r requirements.txt")
	}
	// Step 2.
	from := "as " + f.setup + ":\n\n"
	setup := map[string]string{"express": "\n\nPython, as ", "fastapi": "\n\n## Step 3"}[name]
	script := between(t, prompt, from, setup)
	if !strings.Contains(script, f.endpoints) {
		t.Fatalf("the setup script does not have %s", f.endpoints)
	}
	script = strings.NewReplacer("http://127.0.0.1:3000", "http://"+after, f.endpoints, f.paid).Replace(script)
	must.Do(t, os.WriteFile(filepath.Join(dir, f.setup), []byte(script+"\n"), 0o644))
	shell(map[string]string{"express": "node ", "fastapi": "python3 "}[name] + f.setup + " >.env\nrm " + f.setup)
	shell(`echo "PUBLIC_URL=http://` + after + `" >>.env`)
	text := must.Get(os.ReadFile(filepath.Join(dir, ".env")))(t)
	for line := range strings.Lines(string(text)) {
		env = append(env, strings.TrimSpace(line))
	}
	ids := regexp.MustCompile(`^TOLL_PLAN=(\d+)\nTOLL_AGENT=(\d+)\n`).FindSubmatch(text)
	if ids == nil {
		t.Fatalf("the setup script printed %q", text)
	}
	plan := toll.PlanID(ids[1])
	// Step 3.
	source("after")
	run(after)
	// Step 4: with the paid route of the service, and all commands in one shell.
	commands := regexp.MustCompile(`(?m)^   ((?:address=|token=|curl |  ).*)$`).FindAllStringSubmatch(between(t, prompt, "## Step 4", "## Common errors"), -1)
	var test strings.Builder
	for _, c := range commands {
		test.WriteString(c[1] + "\n")
	}
	const route = `POST "$PUBLIC_URL/ask"`
	if strings.Count(test.String(), route) != 2 || len(commands) < 8 {
		t.Fatalf("the commands of step 4:\n%s", &test)
	}
	const body = `{"text":"It works. It is paid."}`
	said := shell(strings.ReplaceAll(test.String(), route, `POST "$PUBLIC_URL/summaries" -H 'Content-Type: application/json' -d '`+body+`'`))
	for _, want := range []string{
		"^HTTP/1.1 402 ", `"planId":"` + string(plan) + `"`, "HTTP/1.1 200 ", "\n(?i:payment-response): ", `"summary":"It works."`, `"balance":"8"`,
	} {
		if !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("step 4 does not print %s:\n%s", want, said)
		}
	}

	b := &promptBuyer{t: t, Subscriber: svc.Subscriber(0), plan: plan, before: before, after: after}
	b.buy(svc)
	b.unpaid("GET", "/health", "", "")
	b.unpaid("POST", "/summaries", body, "2")
	b.unpaid("GET", "/words/toll", "", "1")
	b.left(100)
	b.pay("POST", "/summaries", body, http.StatusOK)
	b.left(98)
	b.pay("GET", "/words/toll", "", http.StatusOK)
	b.left(97)
	b.pay("POST", "/summaries", `{"text":""}`, http.StatusBadRequest)
	b.pay("GET", "/health", "", http.StatusOK)
	b.left(97)
}

// fetched returns the body of an address.
func fetched(t *testing.T, at string) string {
	t.Helper()
	a := must.Get(read(must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody))(t)))(t)
	if a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", at, a.status, a.body)
	}
	return string(a.body)
}

// promptBuyer calls a service before and after the prompt.
type promptBuyer struct {
	t *testing.T
	*tolltest.Subscriber
	plan          toll.PlanID
	before, after string // addresses
}

// buy buys the plan by card.
func (b *promptBuyer) buy(svc *tolltest.Service) {
	b.t.Helper()
	page := must.Get(b.Client.Checkout(b.t.Context(), b.plan, client.CheckoutParams{}))(b.t)
	if o := svc.PayPage(page.Result.URL, "4242 4242 4242 4242"); o.Status != toll.OrderConfirmed {
		b.t.Fatalf("the order is %s", o.Status)
	}
}

func (b *promptBuyer) left(want toll.Credits) {
	b.t.Helper()
	if got, err := b.Client.Balance(b.t.Context(), b.plan); err != nil || got.Balance != want || got.Held != 0 {
		b.t.Errorf("%+v %v, want %d credits", got, err, want)
	}
}

func (b *promptBuyer) send(h *http.Client, at, method, path, body string) (*http.Response, string) {
	b.t.Helper()
	req := must.Get(http.NewRequestWithContext(b.t.Context(), method, "http://"+at+path, strings.NewReader(body)))(b.t)
	req.Header.Set("Content-Type", "application/json")
	res := must.Get(h.Do(req))(b.t)
	defer res.Body.Close()
	var text bytes.Buffer
	must.Get(text.ReadFrom(res.Body))(b.t)
	return res, text.String()
}

// unpaid sends a request without a payment. If it costs credits, the response is 402 with the terms of the plan. A free request, which costs
// "", gets the response of the service before the prompt.
func (b *promptBuyer) unpaid(method, path, body, credits string) {
	b.t.Helper()
	res, text := b.send(http.DefaultClient, b.after, method, path, body)
	if credits == "" {
		if _, want := b.send(http.DefaultClient, b.before, method, path, body); res.StatusCode != http.StatusOK || text != want {
			b.t.Errorf("%s: %s %s, want %s", path, res.Status, text, want)
		}
		return
	}
	var terms x402.PaymentRequired
	err := json.Unmarshal([]byte(text), &terms)
	if err != nil || res.StatusCode != http.StatusPaymentRequired || len(terms.Accepts) != 1 || terms.Accepts[0].PlanID != string(b.plan) ||
		terms.Accepts[0].Amount != credits || res.Header.Get(x402.HeaderRequired) == "" {
		b.t.Errorf("%s: %s %v %s", path, res.Status, err, text)
	}
}

// pay sends a request, pays for it if asked to, and compares the response with that of the service before the prompt.
func (b *promptBuyer) pay(method, path, body string, status int) {
	b.t.Helper()
	purse := client.NewPurse(client.Limits{Hosts: []string{b.after}, CreditsPerCall: 5, Credits: 5})
	res, text := b.send(&http.Client{Transport: client.NewTransport(purse, b.Client.Payer(b.plan))}, b.after, method, path, body)
	_, want := b.send(http.DefaultClient, b.before, method, path, body)
	if res.StatusCode != status || text != want {
		b.t.Errorf("%s: %s %s, want %d %s", path, res.Status, text, status, want)
	}
}
