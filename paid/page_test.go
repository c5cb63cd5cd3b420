package paid_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

const browserAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestPage: a person who opens a paid address reads a page, with the headers that programs get. Programs
// and scripts of pages get JSON as before.
func TestPage(t *testing.T) {
	d := newDesk(1)
	h := paid.Handler(d, http.NotFoundHandler(), paid.Plan(plan), paid.Agent(agent), paid.Credits(2),
		paid.PublicURL("https://agent.example.com"), paid.Description("<b>Words</b> of a text"), paid.Log(slog.New(slog.DiscardHandler)))
	for _, c := range []struct {
		what   string
		method string
		header []string
		page   bool
	}{
		{"a navigation", "GET", []string{"Accept", browserAccept, "Sec-Fetch-Mode", "navigate"}, true},
		{"an old browser", "GET", []string{"Accept", browserAccept}, true},
		{"a script of a page", "GET", []string{"Accept", browserAccept, "Sec-Fetch-Mode", "cors"}, false},
		{"a form", "POST", []string{"Accept", browserAccept, "Sec-Fetch-Mode", "navigate"}, false},
		{"a program", "GET", []string{"Accept", "application/json"}, false},
		{"a program that takes all", "GET", []string{"Accept", "*/*"}, false},
		{"JSON first", "GET", []string{"Accept", "application/json, text/html"}, false},
		{"no header", "GET", nil, false},
		{"a payment that is refused", "GET", []string{"Accept", browserAccept, "payment-signature", "bad"}, false},
	} {
		r := httptest.NewRequest(c.method, "/ask?q=%3Cscript%3E", nil)
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != http.StatusPaymentRequired || w.Header().Get(x402.HeaderRequired) == "" {
			t.Errorf("%s: %d %v", c.what, w.Code, w.Header())
		}
		if isPage := strings.HasPrefix(w.Header().Get("Content-Type"), "text/html"); isPage != c.page {
			t.Errorf("%s: %s\n%s", c.what, w.Header().Get("Content-Type"), body)
		}
		if !c.page {
			continue
		}
		for _, want := range []string{"costs 2 credits", "&lt;b&gt;Words", "payment-signature"} {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %q in\n%s", c.what, want, body)
			}
		}
		if strings.Contains(body, "<script") || strings.Contains(body, " style=") || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s\n%s", c.what, w.Header().Get("Content-Security-Policy"), body)
		}
	}
}

// TestPlanPage: the page of a plan is at the service, and nowhere when that is not known.
func TestPlanPage(t *testing.T) {
	terms := x402.Terms{PlanID: "7", ServiceURL: "https://pay.example.com/api/v1"}
	if got := terms.PlanPage("8"); got != "https://pay.example.com/p/7?agent=8" {
		t.Error(got)
	}
	if got := (&x402.Terms{PlanID: "7"}).PlanPage(""); got != "" {
		t.Error(got)
	}
}

// TestPaymentPage_CORS: pages of the named origins may call, their preflights bring no payment, and their
// scripts read the payment headers. Others get nothing, and cookies are never let through.
// T159
func TestPaymentPage_CORS(t *testing.T) {
	d := newDesk(1)
	calls := 0
	inner := paid.Handler(d, http.NotFoundHandler(), paid.Plan(plan), paid.Agent(agent), paid.Log(slog.New(slog.DiscardHandler)))
	behind := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		if r.URL.Path == "/lax" {
			w.Header().Set("Access-Control-Allow-Origin", "https://evil.example.com")
			w.Header().Set("Access-Control-Allow-Credentials", "true")
			return
		}
		inner.ServeHTTP(w, r)
	})
	const ours = "https://app.example.com"
	send := func(h http.Handler, method, path string, header ...string) *http.Response {
		r := httptest.NewRequest(method, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	h := paid.CORS(behind, ours)
	res := send(h, "OPTIONS", "/ask", "Origin", ours, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type,payment-signature")
	if res.StatusCode != http.StatusNoContent || calls != 0 || res.Header.Get("Access-Control-Allow-Origin") != ours ||
		res.Header.Get("Access-Control-Allow-Methods") != "POST" || res.Header.Get("Access-Control-Allow-Headers") != "content-type,payment-signature" {
		t.Errorf("preflight: %d, %d calls, %v", res.StatusCode, calls, res.Header)
	}
	res = send(h, "POST", "/ask", "Origin", ours)
	if res.StatusCode != http.StatusPaymentRequired || res.Header.Get("Access-Control-Allow-Origin") != ours ||
		!strings.Contains(res.Header.Get("Access-Control-Expose-Headers"), x402.HeaderRequired) || !strings.Contains(strings.Join(res.Header.Values("Vary"), ","), "Origin") {
		t.Errorf("a call: %d %v", res.StatusCode, res.Header)
	}
	for _, origin := range []string{"https://evil.example.com", "null", ours + ".evil.example.com", ""} {
		for _, path := range []string{"/ask", "/lax"} {
			res := send(h, "POST", path, "Origin", origin)
			if allowed := res.Header.Values("Access-Control-Allow-Origin"); len(allowed) != 0 || res.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%q at %s: %v", origin, path, res.Header)
			}
		}
	}
	if res := send(h, "OPTIONS", "/lax", "Origin", "https://evil.example.com", "Access-Control-Request-Method", "POST"); res.Header.Get("Access-Control-Allow-Methods") != "" {
		t.Errorf("a preflight of others: %v", res.Header)
	}
	if res := send(paid.CORS(behind, "*"), "POST", "/lax", "Origin", "null"); res.Header.Get("Access-Control-Allow-Origin") != "*" || res.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("every origin: %v", res.Header)
	}
	for _, origin := range []string{"", "app.example.com", ours + "/", ours + "/x", "ftp://app.example.com", "null"} {
		if paid.CheckOrigin(origin) == nil {
			t.Errorf("%q is taken", origin)
		}
	}
}

var payButton = regexp.MustCompile(`<button type="button" hidden data-payment="([^"]*)">([^<]*)</button>`)

// TestPage_Wallet: where wallets may pay for one request, the page has a button for each price, and its own script alone. The script
// makes the wallet sign the authorization of the entry, calls the same address with it, and shows the answer as text.
func TestPage_Wallet(t *testing.T) {
	f := newTill()
	s := callServer(t, f, &work{f: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, content) }})
	r := send(t, "GET", s.URL+"/ask", "Accept", browserAccept, "Sec-Fetch-Mode", "navigate")
	buttons := payButton.FindAllStringSubmatch(r.body, -1)
	if r.status != http.StatusPaymentRequired || len(buttons) != 1 || !strings.Contains(buttons[0][2], "Pay 0.02 USDC for this request") {
		t.Fatalf("%d, buttons %q:\n%s", r.status, buttons, r.body)
	}
	_, script, _ := strings.Cut(r.body, "<script>")
	script, _, ok := strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	policy := r.header.Get("Content-Security-Policy")
	if !ok || strings.Count(r.body, "<script") != 1 || !strings.Contains(policy, "; script-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'; connect-src 'self';") {
		t.Errorf("the policy %q, of a script of %d bytes", policy, len(script))
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Log("there is no Node, so the script was not run")
		return
	}
	const browser = `const said = {}, answer = { hidden: true, textContent: "" }; let click, typed;
const button = { dataset: { payment: process.env.PAYMENT }, hidden: true, addEventListener: (_, f) => { click = f; } };
const wallet = { request: async ({ method, params }) => {
  if (method === "eth_requestAccounts") return [process.env.PAYER];
  if (method === "eth_signTypedData_v4") { typed = params[1]; return "0x" + "11".repeat(64) + "1b"; }
} };
globalThis.document = { querySelector: (s) => s === "pre" ? answer : said, querySelectorAll: () => [button] };
globalThis.window = { ethereum: wallet, addEventListener() {}, dispatchEvent() {} };
globalThis.location = { href: process.env.URL_OF_PAGE };
new Function(process.env.SCRIPT)();
click().then(() => console.log(JSON.stringify({ said: said.textContent, answer: answer.textContent, typed, shown: !button.hidden })));`
	run := exec.CommandContext(t.Context(), node, "-e", browser)
	run.Env = append(os.Environ(), "PAYMENT="+html.UnescapeString(buttons[0][1]), "PAYER="+payer, "URL_OF_PAGE="+s.URL+"/ask", "SCRIPT="+script)
	out, err := run.Output()
	var got struct {
		Said, Answer, Typed string
		Shown               bool
	}
	if err != nil || json.Unmarshal(out, &got) != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Answer != content || !strings.Contains(got.Said, "Paid.") || !got.Shown {
		t.Fatalf("the page says %+v", got)
	}
	f.has(t, 20_000, 1, 1)
	for _, want := range []string{
		`"domain":{"name":"USDC","version":"2","chainId":84532,"verifyingContract":"0x036CbD53842c5426634e7929541eC2318f3dCF7e"}`,
		`"primaryType":"TransferWithAuthorization"`, `"from":"` + payer + `","to":"` + receiver + `","value":"20000","validAfter":"0"`,
		`{"type":"bytes32","name":"nonce"}`,
	} {
		if !strings.Contains(got.Typed, want) {
			t.Errorf("the wallet signs %s, without %s", got.Typed, want)
		}
	}
}
