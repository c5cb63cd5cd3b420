package interop

import (
	"archive/zip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/sdk"
)

// sdkSources are the files and folders that sdk/build.py reads.
var sdkSources = []string{
	"build.py", "packages", "python/src", "python/pyproject.toml", "python/README.md", "python/LICENSE", "typescript/src", "typescript/package.json",
	"typescript/tsconfig.json", "typescript/tsdown.config.ts", "typescript/README.md", "typescript/LICENSE", "x402",
}

// copySDKs copies the sources and the packages into a directory of the test.
func copySDKs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range sdkSources {
		from, to := filepath.Join("..", "sdk", name), filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(to), 0o755))
		if must.Get(os.Stat(from))(t).IsDir() {
			must.Do(t, os.CopyFS(to, os.DirFS(from)))
			continue
		}
		must.Do(t, os.WriteFile(to, must.Get(os.ReadFile(from))(t), 0o644))
	}
	return dir
}

// buildPackages runs build.py in sdk or in a copy.
func buildPackages(t *testing.T, dir string, flags ...string) (string, error) {
	t.Helper()
	args := append([]string{filepath.Join(dir, "build.py"), "--tools", typescriptTools.find(t).packages}, flags...)
	out, err := exec.CommandContext(t.Context(), pythonProgram(), args...).CombinedOutput()
	return string(out), err
}

// replaceIn changes a text of a file.
func replaceIn(t *testing.T, path, from, to string) {
	t.Helper()
	text := string(must.Get(os.ReadFile(path))(t))
	if !strings.Contains(text, from) {
		t.Fatalf("%s has no %q", path, from)
	}
	must.Do(t, os.WriteFile(path, []byte(strings.Replace(text, from, to, 1)), 0o644))
}

func packagesIn(t *testing.T, dir string) (all []sdk.Package) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join(dir, "packages", "index.json")))(t), &all))
	return all
}

// TestPackages compares sdk/packages with a fresh build and builds a later release, which keeps the packages. npm and pip install the packages
// from a service, and install them again from their lock files after an upgrade of the service.
func TestPackages(t *testing.T) {
	t.Run("typescript", func(t *testing.T) {
		if out, err := buildPackages(t, absolute(t, "..", "sdk"), "--check"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		next := nextRelease(t)
		o := servertest.Options{Data: storetest.Dir(t), Listen: servertest.FreeAddress(t)}
		u := newPackageUser(t, servertest.Key(t, o, "builder").Key)
		p := servertest.Start(t, o)
		before := u.listing(p.URL)
		u.install(before)
		u.call()

		must.Do(t, p.Signal(syscall.SIGTERM))
		must.Get(p.Wait(time.Minute))(t)
		files := map[string]string{}
		root := os.DirFS(filepath.Join(next, "packages"))
		must.Do(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files["sdk/packages/"+name] = string(must.Get(fs.ReadFile(root, name))(t))
			}
			return err
		}))
		p = servertest.StartProgram(t, servertest.Later(t, "toll-packages", files), o)
		after := u.listing(p.URL)
		for language, one := range before.Current {
			if language != "go" && (after.Current[language].Version != laterVersion || one.Version == laterVersion) {
				t.Errorf("%s was %+v and is %+v", language, one, after.Current[language])
			}
		}
		u.installAgain(before)
		u.call()
	})
}

const laterVersion = "9.9.9"

// nextRelease releases the packages in a copy of the sources, changes a source, and builds the packages of another version. The released
// packages stay, and are not built again.
func nextRelease(t *testing.T) string {
	t.Helper()
	dir := copySDKs(t)
	if out, err := buildPackages(t, dir, "--release"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	released := packagesIn(t, dir)
	replaceIn(t, filepath.Join(dir, "python", "src", "toll", "errors.py"), "\n", "\n# Changed.\n")
	if out, err := buildPackages(t, dir); err == nil || !strings.Contains(out, "is released") || !strings.Contains(out, "toll/errors.py") {
		t.Fatalf("a released package was built from other sources: %v %s", err, out)
	}
	for file, line := range map[string]string{
		"typescript/package.json": `"version": "`, "python/pyproject.toml": `version = "`, "x402/package.json": `"version": "`,
	} {
		replaceIn(t, filepath.Join(dir, file), line+released[0].Version, line+laterVersion)
	}
	if out, err := buildPackages(t, dir); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := packagesIn(t, dir)
	if len(all) != len(released)+3 || !reflect.DeepEqual(all[:len(released)], released) {
		t.Fatalf("released: %+v\nafterwards: %+v", released, all)
	}
	for _, p := range all {
		must.Get(os.Stat(filepath.Join(dir, "packages", p.Path)))(t)
		if p.Released == (p.Version == laterVersion) {
			t.Errorf("%+v", p)
		}
	}
	return dir
}

// packageUser installs the packages of a service, with empty caches and no registry.
type packageUser struct {
	t        *testing.T
	key, url string
	dir, npm string
	env      []string
}

func newPackageUser(t *testing.T, key string) *packageUser {
	t.Helper()
	n := typescriptTools.find(t)
	u := &packageUser{t: t, key: key, dir: t.TempDir(), npm: must.Get(exec.LookPath("npm"))(t)}
	u.run(pythonProgram(), "-m", "venv", "venv")
	u.env = []string{
		"PATH=" + strings.Join([]string{filepath.Join(u.dir, "venv", "bin"), filepath.Dir(n.program), os.Getenv("PATH")}, ":"), "HOME=" + u.dir,
		"npm_config_registry=http://127.0.0.1:9/", "npm_config_fetch_retries=0", "npm_config_audit=false", "npm_config_fund=false",
		"npm_config_update_notifier=false", "PIP_NO_INDEX=1", "PIP_NO_CACHE_DIR=1", "PIP_DISABLE_PIP_VERSION_CHECK=1",
	}
	must.Do(t, os.WriteFile(filepath.Join(u.dir, "package.json"), []byte(`{"name":"user","private":true,"type":"module"}`), 0o644))
	for name, text := range map[string]string{"use.mjs": `
import { Toll, credit, price } from "@tollhq/toll";
import { ClientScheme } from "@tollhq/x402";
new ClientScheme("token");
const made = await new Toll().agents.registerWithPlan({
  agentMetadata: { name: "Ask" }, agentApi: { endpoints: [{ POST: "https://agent.example.com/ask" }] },
  planMetadata: { name: "Basic" }, priceConfig: price.free(), creditsConfig: credit.dynamic(100n, 1n, 10n),
});
console.log(made.planId);
`, "use.py": `
from toll import Toll, builders
with Toll() as toll:
    print(toll.agents.create_with_plan(
        name="Ask", endpoints=[{"POST": "https://agent.example.com/ask"}], plan_name="Basic",
        price=builders.free_price(), credits=builders.dynamic_credits(100, 1, 10),
    ).plan_id)
`} {
		must.Do(t, os.WriteFile(filepath.Join(u.dir, name), []byte(text), 0o644))
	}
	return u
}

// run runs a program in the directory of the user and returns its output.
func (u *packageUser) run(program string, args ...string) string {
	u.t.Helper()
	cmd := exec.CommandContext(u.t.Context(), program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = u.dir, append(os.Environ(), u.env...), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (u *packageUser) listing(url string) (l sdk.Listing) {
	u.t.Helper()
	u.url = url
	req := must.Get(http.NewRequestWithContext(u.t.Context(), http.MethodGet, url+sdk.Path, http.NoBody))(u.t)
	req.Header.Set("Accept", "application/json")
	res := must.Get(http.DefaultClient.Do(req))(u.t)
	defer res.Body.Close()
	must.Do(u.t, json.NewDecoder(res.Body).Decode(&l))
	return l
}

// install runs the commands that the service shows, and keeps the lock files.
func (u *packageUser) install(l sdk.Listing) {
	u.t.Helper()
	python, typescript, x402 := l.Current["python"], l.Current["typescript"], l.Current["x402"]
	u.run("sh", "-e", "-c", typescript.Install+"\n"+python.Install+"\n"+x402.Install)
	lock := string(must.Get(os.ReadFile(filepath.Join(u.dir, "package-lock.json")))(u.t))
	for _, want := range []string{typescript.URL, typescript.Integrity, x402.URL, x402.Integrity} {
		if !strings.Contains(lock, `"`+want+`"`) {
			u.t.Errorf("package-lock.json lacks %s:\n%s", want, lock)
		}
	}
	pinned := python.Name + " @ " + python.URL + " --hash=sha256:" + python.SHA256 + "\n"
	must.Do(u.t, os.WriteFile(filepath.Join(u.dir, "requirements.txt"), []byte(pinned), 0o644))
}

// installAgain removes the packages and the cache of npm, and installs the packages that the lock files pin.
func (u *packageUser) installAgain(before sdk.Listing) {
	u.t.Helper()
	for _, name := range []string{"node_modules", ".npm"} {
		must.Do(u.t, os.RemoveAll(filepath.Join(u.dir, name)))
	}
	u.run("sh", "-e", "-c", "pip uninstall --yes toll\nnpm ci\npip install --require-hashes -r requirements.txt")
	manifest := string(must.Get(os.ReadFile(filepath.Join(u.dir, "node_modules", "@tollhq", "toll", "package.json")))(u.t))
	if !strings.Contains(manifest, `"version": "`+before.Current["typescript"].Version+`"`) {
		u.t.Errorf("npm ci installed another version: %s", manifest)
	}
	if shown := u.run("sh", "-c", "pip show toll"); !strings.Contains(shown, "Version: "+before.Current["python"].Version+"\n") {
		u.t.Errorf("pip installed another version: %s", shown)
	}
}

// call creates a plan with each installed package.
func (u *packageUser) call() {
	u.t.Helper()
	for _, command := range []string{"node use.mjs", "python3 use.py"} {
		out := u.run("sh", "-c", "TOLL_URL="+u.url+" TOLL_API_KEY="+u.key+" "+command)
		if !regexp.MustCompile(`^\d+\n$`).MatchString(out) {
			u.t.Errorf("%s printed %q", command, out)
		}
	}
}

// TestPackages_Wheel compares the wheel with what hatchling makes of the same sources. Only names of the builder and the order of files differ.
func TestPackages_Wheel(t *testing.T) {
	t.Parallel()
	t.Run("python", func(t *testing.T) {
		python, dir := findPython(t), copySDKs(t)
		out := filepath.Join(dir, "wheels")
		args := []string{"-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", "--outdir", out, filepath.Join(dir, "python")}
		if text, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		var current sdk.Package
		for _, p := range packagesIn(t, dir) {
			if p.Language == "python" {
				current = p
			}
		}
		ours := unzipped(t, filepath.Join(dir, "packages", current.Path))
		theirs := unzipped(t, filepath.Join(out, filepath.Base(current.Path)))
		info := "toll-" + current.Version + ".dist-info/"
		for name, text := range theirs {
			switch {
			case name == info+"METADATA":
				sameMetadata(t, ours[name], text)
			case name == info+"WHEEL" || name == info+"RECORD":
				if ours[name] == "" {
					t.Errorf("the wheel lacks %s", name)
				}
			case ours[name] != text:
				t.Errorf("%s differs", name)
			}
		}
		if len(ours) != len(theirs) {
			t.Errorf("%d files, and hatchling has %d", len(ours), len(theirs))
		}
	})
}

func sameMetadata(t *testing.T, ours, theirs string) {
	t.Helper()
	a, b := must.Get(mail.ReadMessage(strings.NewReader(ours)))(t), must.Get(mail.ReadMessage(strings.NewReader(theirs)))(t)
	for field := range b.Header {
		if field != "Metadata-Version" && !reflect.DeepEqual(a.Header[field], b.Header[field]) {
			t.Errorf("%s is %q, and hatchling has %q", field, a.Header[field], b.Header[field])
		}
	}
	text, want := must.Get(io.ReadAll(a.Body))(t), must.Get(io.ReadAll(b.Body))(t)
	if string(text) != string(want) {
		t.Error("the descriptions differ")
	}
}

func unzipped(t *testing.T, path string) map[string]string {
	t.Helper()
	z := must.Get(zip.OpenReader(path))(t)
	defer z.Close()
	all := map[string]string{}
	for _, f := range z.File {
		r := must.Get(f.Open())(t)
		all[f.Name] = string(must.Get(io.ReadAll(r))(t))
		must.Do(t, r.Close())
	}
	return all
}
