package sdk_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/sdk"
)

// limit is the most bytes of all packages, which are part of each program. sdk/build.py has it, too.
const limit = 2_000_000

func index(t *testing.T) (all []sdk.Package) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile("packages/index.json"))(t), &all))
	return all
}

// TestPackages_Index compares the index with the files: each file is a package, and its hashes, its size, and its path are right.
func TestPackages_Index(t *testing.T) {
	t.Parallel()
	listed, size, names := []string{"index.json"}, 0, map[string]bool{}
	for _, p := range index(t) {
		body := must.Get(os.ReadFile("packages/" + p.Path))(t)
		sum, strong := sha256.Sum256(body), sha512.Sum512(body)
		if len(body) != p.Size || hex.EncodeToString(sum[:]) != p.SHA256 || "sha512-"+base64.StdEncoding.EncodeToString(strong[:]) != p.Integrity {
			t.Errorf("%s is not the file in the index: %d bytes, SHA-256 %x", p.Path, len(body), sum)
		}
		want := path.Base(p.Name) + "-" + p.Version + "-" + p.SHA256[:8] + ".tgz"
		if p.Language == "python" {
			want = p.SHA256[:8] + "/toll-" + p.Version + "-py3-none-any.whl"
		}
		if p.Path != want {
			t.Errorf("the path %s must be %s", p.Path, want)
		}
		inside := namesIn(t, body)
		if !slices.ContainsFunc(inside, func(name string) bool { return path.Base(name) == "LICENSE" }) {
			t.Errorf("%s has no LICENSE: %q", p.Path, inside)
		}
		listed, size, names[p.Name] = append(listed, p.Path), size+len(body), true
	}
	var found []string
	must.Do(t, fs.WalkDir(os.DirFS("packages"), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, name)
		}
		return err
	}))
	slices.Sort(listed)
	slices.Sort(found)
	if !slices.Equal(listed, found) {
		t.Errorf("the index lists %q, and the files are %q", listed, found)
	}
	if size > limit {
		t.Errorf("the packages have %d bytes together, more than %d", size, limit)
	}
	for _, one := range sdk.SDKs {
		if one.Key != "go" && !names[one.Import] {
			t.Errorf("%s has no package: %v", one.Name, names)
		}
	}
}

// namesIn returns the names of the files in a package.
func namesIn(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	if bytes.HasPrefix(archive, []byte("PK")) {
		for _, f := range must.Get(zip.NewReader(bytes.NewReader(archive), int64(len(archive))))(t).File {
			names = append(names, f.Name)
		}
		return names
	}
	files := tar.NewReader(must.Get(gzip.NewReader(bytes.NewReader(archive)))(t))
	for {
		f, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		must.Do(t, err)
		names = append(names, f.Name)
	}
}

// TestRoutes_Serve reads each package: browsers and proxies may keep it forever, and conditional requests and HEAD work.
func TestRoutes_Serve(t *testing.T) {
	t.Parallel()
	mux, paths := http.NewServeMux(), []string{}
	sdk.Routes(func(at string, h http.Handler) {
		mux.Handle(at, h)
		paths = append(paths, at)
	})
	for _, p := range index(t) {
		at := sdk.Path + "/" + p.Path
		if !slices.Contains(paths, at) {
			t.Errorf("%s is not served", at)
		}
		ask := func(method, etag string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, at, http.NoBody)
			if etag != "" {
				r.Header.Set("If-None-Match", etag)
			}
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			return w
		}
		got, head := ask(http.MethodGet, ""), ask(http.MethodHead, "")
		if sum := sha256.Sum256(got.Body.Bytes()); hex.EncodeToString(sum[:]) != p.SHA256 || got.Code != http.StatusOK {
			t.Errorf("GET %s: %d with %d bytes", at, got.Code, got.Body.Len())
		}
		if head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("Content-Length") != got.Header().Get("Content-Length") {
			t.Errorf("HEAD %s: %d %v", at, head.Code, head.Header())
		}
		h := got.Header()
		if h.Get("Cache-Control") != "public, max-age=31536000, immutable" || h.Get("ETag") != `"`+p.SHA256+`"` ||
			!regexp.MustCompile(`^application/(gzip|zip)$`).MatchString(h.Get("Content-Type")) {
			t.Errorf("GET %s: headers %v", at, h)
		}
		if again := ask(http.MethodGet, h.Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("GET %s with its ETag: %d", at, again.Code)
		}
	}
}

// TestSource_Install has the commands name a registry only if the operator has published the package there.
func TestSource_Install(t *testing.T) {
	t.Parallel()
	const url = "https://pay.example.com"
	for _, c := range []struct {
		published, repository, key, want string
	}{
		{"", "", "typescript", `^npm install https://pay\.example\.com/sdk/toll-[0-9.]+-[0-9a-f]{8}\.tgz$`},
		{"pypi,go", "", "typescript", `^npm install https://pay\.example\.com/sdk/`},
		{"npm", "", "typescript", `^npm install @tollhq/toll@[0-9.]+$`},
		{"", "", "python", `^pip install 'https://pay\.example\.com/sdk/[0-9a-f]{8}/toll-[0-9.]+-py3-none-any\.whl#sha256=[0-9a-f]{64}'$`},
		{" PyPI , npm", "", "python", `^pip install toll==[0-9.]+$`},
		{"pypi", "", "x402", `^npm install https://pay\.example\.com/sdk/x402-[0-9.]+-[0-9a-f]{8}\.tgz$`},
		{"npm", "", "x402", `^npm install @tollhq/x402@[0-9.]+$`},
		{"npm", "", "go", `^go mod edit -replace github\.com/tollhq/toll=\.\./toll # a clone of the repository\ngo get github\.com/tollhq/toll/client$`},
		{"go", "", "go", `^go get github\.com/tollhq/toll@latest$`},
		{"", "git.example.com/acme/toll", "go", `^go mod edit -replace github\.com/tollhq/toll=git\.example\.com/acme/toll@latest\ngo get github\.com/tollhq/toll/client$`},
		{"", "git.example.com/acme/toll@v1.1.0", "go", `=git\.example\.com/acme/toll@v1\.1\.0\n`},
	} {
		s := sdk.Source{URL: url, Published: must.Get(sdk.ParseRegistries(c.published))(t), Go: c.repository}
		must.Do(t, sdk.CheckRepository(c.repository))
		if got := s.Install(c.key); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

func TestSource_BadSettings(t *testing.T) {
	t.Parallel()
	if _, err := sdk.ParseRegistries("npm,crates"); err == nil || !strings.Contains(err.Error(), `npm, pypi, go; got "crates"`) {
		t.Error(err)
	}
	for _, at := range []string{"https://git.example.com/acme/toll", "toll", "git.example.com", "git.example.com/toll;pwd", "git.example.com/$(pwd)", "git.example.com/a b", "git.example.com/a@"} {
		if err := sdk.CheckRepository(at); err == nil || !strings.Contains(err.Error(), "git.example.com/acme/toll") {
			t.Errorf("%q: %v", at, err)
		}
	}
}

// TestSource_Lists reads the list as JSON and as Markdown.
func TestSource_Lists(t *testing.T) {
	t.Parallel()
	s := sdk.Source{URL: "https://pay.example.com"}
	ask := func(accept string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, sdk.Path, http.NoBody)
		r.Header.Set("Accept", accept)
		s.ServeHTTP(w, r)
		return w
	}
	var listing sdk.Listing
	must.Do(t, json.Unmarshal(ask("application/json").Body.Bytes(), &listing))
	if len(listing.Packages) != len(index(t)) || len(listing.Current) != len(sdk.SDKs) {
		t.Errorf("%+v", listing)
	}
	text := ask("*/*")
	if media := text.Header().Get("Content-Type"); media != "text/plain; charset=utf-8" {
		t.Errorf("the list is %s", media)
	}
	for _, l := range sdk.SDKs {
		one := listing.Current[l.Key]
		if one.Install != s.Install(l.Key) || l.Key != "go" && !strings.HasPrefix(one.URL, "https://pay.example.com/sdk/") {
			t.Errorf("%s: %+v", l.Key, one)
		}
		for line := range strings.SplitSeq(one.Install, "\n") {
			if !strings.Contains(text.Body.String(), "    "+line+"\n") {
				t.Errorf("the list lacks %q:\n%s", line, text.Body)
			}
		}
	}
}
