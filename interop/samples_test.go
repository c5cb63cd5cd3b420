package interop

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// sampleLanguages are the languages of the examples on the pages of operations, with the suffix of a program.
var sampleLanguages = map[string]string{"sh": "sh", "ts": "mjs", "python": "py"}

// sampleDrivers run each example with the address URL/LANGUAGE/OPERATION as its service. An example ends with the error of the first response.
var sampleDrivers = map[string]string{
	"sh": `cd "$1"
for file in *.sh; do TOLL_URL="$2/sh/${file%.sh}" sh -e "$file" >/dev/null 2>&1; done
`,
	"ts": `import { readdirSync } from "node:fs";
import { TollError } from "@tollhq/toll";
const [, , dir, url] = process.argv;
console.log = () => {}; // examples print responses
for (const file of readdirSync(dir).filter((name) => name.endsWith(".mjs"))) {
  process.env.TOLL_URL = url + "/ts/" + file.slice(0, -4);
  await import(dir + "/" + file).catch((e) => {
    if (!(e instanceof TollError)) console.error(file, e);
  });
}
`,
	"python": `import contextlib, io, os, pathlib, runpy, sys, traceback
from toll import TollError
for file in pathlib.Path(sys.argv[1]).glob("*.py"):
    os.environ["TOLL_URL"] = f"{sys.argv[2]}/python/{file.stem}"
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            runpy.run_path(str(file))
    except TollError:
        pass
    except Exception:
        print(file.name, traceback.format_exc())
`,
}

// sampleRequest is the request that an example sends.
type sampleRequest struct {
	method, path string
	query        url.Values
	body         any
}

// like reports whether two requests have the same method, path, and body. The SDKs set the size of a page, and their examples leave out
// optional filters.
func (s sampleRequest) like(curl sampleRequest) bool {
	for name := range s.query {
		if name != "pageSize" && s.query.Get(name) != curl.query.Get(name) {
			return false
		}
	}
	return s.method == curl.method && s.path == curl.path && reflect.DeepEqual(plainBody(s.body), plainBody(curl.body))
}

// plainBody returns a body with the numbers as strings, and without the two objects around members of an agent or a plan, which are optional.
func plainBody(body any) any {
	switch b := body.(type) {
	case float64:
		return strconv.FormatFloat(b, 'f', -1, 64)
	case []any:
		for i := range b {
			b[i] = plainBody(b[i])
		}
	case map[string]any:
		for name, value := range b {
			b[name] = plainBody(value)
		}
		for _, name := range []string{"metadataAttributes", "agentApiAttributes"} {
			if inner, ok := b[name].(map[string]any); ok {
				delete(b, name)
				maps.Copy(b, inner)
			}
		}
	}
	return body
}

// sampleRecorder refuses each request and records it by language and operation.
type sampleRecorder struct {
	mu   sync.Mutex
	sent map[string]sampleRequest
}

func (s *sampleRecorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	text, err := io.ReadAll(r.Body)
	one := sampleRequest{method: r.Method, path: parts[len(parts)-1], query: r.URL.Query()}
	if len(text) > 0 && err == nil {
		err = json.Unmarshal(text, &one.body)
	}
	if err != nil {
		one.body = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[strings.Join(parts[:min(2, len(parts))], " ")] = one
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write([]byte(`{"code":"BCK.HTTP.400","message":"recorded"}`)) // the example ends
}

// TestSamples runs the examples of all operations, as their pages show them. The SDKs have the types of the calls, and send the request that
// the command with curl sends.
func TestSamples(t *testing.T) {
	t.Parallel()
	p, python := newSDKProject(t), findPython(t)
	dir := filepath.Join(p.dir, "samples")
	operations := writeSamples(t, inside(t, server.Config{}).url, dir)
	if len(operations) < 100 {
		t.Fatalf("%d operations", len(operations))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "tsconfig.json"), []byte(`{"extends":"../tsconfig.json","include":["."]}`), 0o644))
	p.must(t, nil, p.module("typescript-7/bin/tsc"), "-p", dir)
	source := absolute(t, "..", "sdk", "python", "src")
	env := append(os.Environ(), "TOLL_API_KEY=sandbox:key", "MYPYPATH="+source, "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1")
	said := func(program string, args ...string) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = p.dir, env
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(program), err, out)
		}
	}
	mypy := []string{"-m", "mypy", "--strict", "--follow-imports", "silent", "--no-error-summary", "--cache-dir", t.TempDir()}
	said(python, append(mypy, must.Get(filepath.Glob(filepath.Join(dir, "*.py")))(t)...)...)
	recorder := &sampleRecorder{sent: map[string]sampleRequest{}}
	at := serve(t, recorder)
	for language, program := range map[string]string{"sh": "sh", "ts": p.program, "python": python} {
		driver := filepath.Join(p.dir, "run-samples."+sampleLanguages[language])
		must.Do(t, os.WriteFile(driver, []byte(sampleDrivers[language]), 0o644))
		said(program, driver, dir, at)
	}
	for _, id := range operations {
		want, ok := recorder.sent["sh "+id]
		if !ok {
			t.Errorf("%s: curl sent no request", id)
		}
		for _, language := range []string{"ts", "python"} {
			if got := recorder.sent[language+" "+id]; !got.like(want) {
				t.Errorf("%s: the example in %s sent %+v, and curl %+v", id, language, got, want)
			}
		}
	}
}

// writeSamples writes the examples of all pages into dir, for TypeScript twice: for the compiler and for node. It returns the operations.
func writeSamples(t *testing.T, service, dir string) (operations []string) {
	t.Helper()
	must.Do(t, os.Mkdir(dir, 0o755))
	read := func(path string) string {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, service+path, http.NoBody))(t)
		return string(must.Get(read(req))(t).body)
	}
	blocks := regexp.MustCompile("(?ms)^```(sh|ts|python)\n(.*?)^```$")
	for _, m := range regexp.MustCompile(`\(/docs/api/(\w+)\.md\)`).FindAllStringSubmatch(read("/llms.txt"), -1) {
		_, text, _ := strings.Cut(read("/docs/api/"+m[1]+".md"), "## Example request\n")
		shown := blocks.FindAllStringSubmatch(text, -1)
		if len(shown) == 0 { // deprecated
			continue
		}
		if len(shown) != len(sampleLanguages) {
			t.Errorf("the page of %s has %d examples", m[1], len(shown))
		}
		for _, b := range shown {
			file := filepath.Join(dir, m[1]+".")
			must.Do(t, os.WriteFile(file+sampleLanguages[b[1]], []byte(b[2]), 0o644))
			if b[1] == "ts" {
				must.Do(t, os.WriteFile(file+"ts", []byte(b[2]), 0o644))
			}
		}
		operations = append(operations, m[1])
	}
	return operations
}
