package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// TestReference: each operation has a page, and the same page as Markdown, which llms.txt lists. The page has all that the OpenAPI
// document says about the operation.
func TestReference(t *testing.T) {
	s := newStack(t)
	llms := string(s.do(actor{}, "GET", "/llms.txt", "").body)
	operations := s.operations(t)
	if len(operations) < 100 {
		t.Fatalf("%d operations", len(operations))
	}
	for _, o := range operations {
		path := "/docs/api/" + o.id
		page, twin := s.do(actor{}, "GET", path, ""), s.do(actor{}, "GET", path+".md", "")
		if page.status != 200 || twin.status != 200 || twin.header.Get("Content-Type") != "text/markdown; charset=utf-8" {
			t.Errorf("%s: %d, and %d %v", path, page.status, twin.status, twin.header)
		}
		wanted := []string{o.method + " " + o.path, o.id}
		if !strings.HasPrefix(o.id, "retired") {
			wanted = append(wanted, "curl", "TypeScript", "Python")
		}
		for _, want := range wanted {
			if !strings.Contains(string(page.body), want) || !strings.Contains(string(twin.body), want) {
				t.Errorf("%s does not have %q", path, want)
			}
		}
		if !strings.Contains(llms, "("+path+".md): ") {
			t.Errorf("llms.txt does not list %s", path)
		}
	}
	twin := string(s.do(actor{}, "GET", "/docs/api/registerPlan.md", "").body)
	for _, want := range []string{
		"# Register a plan\n", "| `Idempotency-Key` | header |", "[PlanInput](/docs/records#PlanInput)", "| `name` ", "## Response 200", "[PlanRegistered](/docs/records#PlanRegistered)",
		`curl -X POST "$TOLL_URL/api/v1/protocol/plans" -H "Authorization: Bearer $TOLL_API_KEY" -H 'Content-Type: application/json' -d '{`,
		"await toll.plans.register({", "toll.plans.create(\n  name=\"Priced\",\n  price={", "[`BCK.HTTP.400`](/docs/errors#bck-http-400)",
	} {
		if !strings.Contains(twin, want) {
			t.Errorf("the page of registerPlan does not have %q:\n%s", want, twin)
		}
	}
	for accept, want := range map[string]string{
		"text/markdown": "text/markdown; charset=utf-8", "text/markdown, text/html": "text/html; charset=utf-8", "*/*": "text/html; charset=utf-8",
	} {
		if a := s.do(actor{}, "GET", "/docs/sell", "", "Accept", accept); a.header.Get("Content-Type") != want || !strings.Contains(strings.Join(a.header.Values("Vary"), ","), "Accept") {
			t.Errorf("Accept %s: %v", accept, a.header)
		}
	}
	for path, want := range map[string]string{
		"/docs/records.md": "| `status` \\* | string | One of: `Active`, `Revoked`, `Expired`, `Exhausted`. |",
		"/docs/records":    `id="PlanInput"`, "/docs/changelog": "API version", "/docs.md": "[registerPlan](/docs/api/registerPlan)", "/docs/prompt": publicURL + "/sdk",
		"/docs/prompt.md": publicURL + "/llms.txt", "/docs/sell.md": "(/docs/buy)",
	} {
		if a := s.do(actor{}, "GET", path, ""); a.status != 200 || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d, no %q", path, a.status, want)
		}
	}
}

// methodsOf returns the methods of a client as RESOURCE.METHOD. resource matches the name and the class of a resource, class the
// beginning of a class, and method the beginning of a method.
func methodsOf(source string, resource, class, method *regexp.Regexp) map[string]bool {
	names := map[string][]string{}
	for _, m := range resource.FindAllStringSubmatch(source, -1) {
		names[m[2]] = append(names[m[2]], m[1])
	}
	found := map[string]bool{}
	starts := class.FindAllStringSubmatchIndex(source, -1)
	for i, at := range starts {
		end := len(source)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		for _, m := range method.FindAllStringSubmatch(source[at[0]:end], -1) {
			for _, name := range names[source[at[2]:at[3]]] {
				found[name+"."+m[1]] = true
			}
		}
	}
	return found
}

// TestReference_Methods: the examples call methods that the SDKs have, and an operation that a client has a method for is called with it.
func TestReference_Methods(t *testing.T) {
	read := func(parts ...string) string {
		return string(must.Get(os.ReadFile(filepath.Join(append([]string{"..", "..", "sdk"}, parts...)...)))(t))
	}
	client := read("typescript", "src", "client.ts")
	typescript := methodsOf(client, regexp.MustCompile(`this\.(\w+) = new (\w+)\(core\)`), regexp.MustCompile(`(?m)^export class (\w+)`),
		regexp.MustCompile(`(?m)^  (?:async )?\*?(\w+)(?:<T>)?\(`))
	source := read("python", "src", "toll", "client.py") + read("python", "src", "toll", "_resources.py") + read("python", "src", "toll", "_events.py")
	python := methodsOf(source, regexp.MustCompile(`self\.(\w+) = \w+\.(\w+)\(\*at\)`), regexp.MustCompile(`(?m)^class (\w+)`), regexp.MustCompile(`(?m)^    def (\w+)\(`))
	if len(typescript) < 100 || len(python) < 100 {
		t.Fatalf("%d and %d methods", len(typescript), len(python))
	}
	var methods map[string]struct{ TypeScript, Python []string }
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("docs_samples.json"))(t), &methods))
	known := map[string]bool{}
	for _, o := range newStack(t).operations(t) {
		known[o.id] = true
	}
	for id, of := range methods {
		if !known[id] {
			t.Errorf("%s is not an operation", id)
		}
		for _, sdk := range []struct {
			name    string
			methods map[string]bool
			call    []string
		}{{"TypeScript", typescript, of.TypeScript}, {"Python", python, of.Python}} {
			if len(sdk.call) > 0 && !sdk.methods[strings.TrimPrefix(sdk.call[0], "*")] {
				t.Errorf("%s: the SDK for %s has no method %s", id, sdk.name, sdk.call[0])
			}
		}
	}
	for _, m := range regexp.MustCompile(`this\.core\.(?:op|list)\(\s*"(\w+)"`).FindAllStringSubmatch(client, -1) {
		if len(methods[m[1]].TypeScript) == 0 {
			t.Errorf("the SDK for TypeScript has a method for %s, but its example does not call it", m[1])
		}
	}
}
