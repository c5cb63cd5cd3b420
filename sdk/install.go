package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Module is the path of the Go module, in imports and in go.mod.
const Module = "github.com/tollhq/toll"

// SDK is a package that a service installs. Its guide is at /docs/KEY.
type SDK struct{ Key, Name, Import string }

// SDKs are an SDK for each language, and the plug-in with which published x402 software pays with credits.
var SDKs = []SDK{
	{"typescript", "TypeScript", "@tollhq/toll"}, {"python", "Python", "toll"}, {"go", "Go", Module + "/client"},
	{"x402", "x402 plug-in for TypeScript", "@tollhq/x402"},
}

// registries are where an operator can publish the SDKs.
var registries = []string{"npm", "pypi", "go"}

// Source says where the users of a service install the SDKs from.
type Source struct {
	URL       string   // public address of the service
	Published []string // registries with the packages of this release, see [ParseRegistries]
	Go        string   // module path of a repository, may be empty, see [CheckRepository]
}

// ParseRegistries reads a list of registries, separated by commas: npm, pypi, go.
func ParseRegistries(list string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		switch {
		case name == "":
		case !slices.Contains(registries, name):
			return nil, fmt.Errorf("the registries of the SDKs must be %s; got %q", strings.Join(registries, ", "), name)
		default:
			out = append(out, name)
		}
	}
	return out, nil
}

// repository is a module path with a host, and perhaps a version. It has no character that a shell reads.
var repository = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9._~-]+)+(@[A-Za-z0-9._+-]+)?$`)

// CheckRepository refuses an address that `go get` does not accept.
func CheckRepository(at string) error {
	if at != "" && !repository.MatchString(at) {
		return errors.New("the Go repository must be a module path, such as git.example.com/acme/toll or git.example.com/acme/toll@v1.1.0, " +
			"without https://")
	}
	return nil
}

// packageOf returns the current package of an SDK, or an empty one for Go, which no service serves.
func packageOf(key string) (p Package) {
	for _, one := range SDKs {
		if one.Key == key {
			p = current(one.Import)
		}
	}
	return p
}

func (s Source) urlOf(p Package) string { return s.URL + Path + "/" + p.Path }

// Install returns the shell commands that install the SDK with a key, one in each line.
func (s Source) Install(key string) string {
	p := packageOf(key)
	switch p.Language {
	case "typescript":
		if slices.Contains(s.Published, "npm") {
			return "npm install " + p.Name + "@" + p.Version
		}
		return "npm install " + s.urlOf(p)
	case "python":
		if slices.Contains(s.Published, "pypi") {
			return "pip install " + p.Name + "==" + p.Version
		}
		return "pip install '" + s.urlOf(p) + "#sha256=" + p.SHA256 + "'"
	}
	switch {
	case s.Go != "":
		at := s.Go
		if !strings.Contains(at, "@") {
			at += "@latest"
		}
		return "go mod edit -replace " + Module + "=" + at + "\ngo get " + Module + "/client"
	case slices.Contains(s.Published, "go"):
		return "go get " + Module + "@latest"
	}
	return "go mod edit -replace " + Module + "=../toll # a clone of the repository\ngo get " + Module + "/client"
}

// Listed is a package in the JSON of [Source.ServeHTTP].
type Listed struct {
	Language  string `json:"language"`
	Name      string `json:"name"`
	Version   string `json:"version,omitempty"`
	URL       string `json:"url,omitempty"`
	Size      int    `json:"size,omitempty"` // bytes
	SHA256    string `json:"sha256,omitempty"`
	Integrity string `json:"integrity,omitempty"`
	Install   string `json:"install,omitempty"` // only of the current version
}

// Listing is the JSON of [Source.ServeHTTP]: the current version of each SDK by its key, and all packages that the service keeps.
type Listing struct {
	Current  map[string]Listed `json:"current"`
	Packages []Listed          `json:"packages"`
}

func (s Source) listing() Listing {
	l := Listing{Current: map[string]Listed{}}
	for _, p := range index() {
		l.Packages = append(l.Packages, s.listed(p))
	}
	for _, one := range SDKs {
		now := Listed{Language: "go", Name: Module}
		if p := packageOf(one.Key); p.Name != "" {
			now = s.listed(p)
		}
		now.Install = s.Install(one.Key)
		l.Current[one.Key] = now
	}
	return l
}

func (s Source) listed(p Package) Listed {
	return Listed{Language: p.Language, Name: p.Name, Version: p.Version, URL: s.urlOf(p), Size: p.Size, SHA256: p.SHA256, Integrity: p.Integrity}
}

func (s Source) markdown() string {
	var b strings.Builder
	b.WriteString("# SDKs\n\nThe address of a package never changes. This service keeps every released version.\n")
	for _, l := range SDKs {
		fmt.Fprintf(&b, "\n## %s\n\n    %s\n\nImport `%s`. Guide: %s/docs/%s.md\n",
			l.Name, strings.ReplaceAll(s.Install(l.Key), "\n", "\n    "), l.Import, s.URL, l.Key)
	}
	return b.String()
}

// ServeHTTP lists the SDKs for programs: as JSON if the client accepts it, otherwise as Markdown.
func (s Source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	media, body := "text/plain; charset=utf-8", []byte(s.markdown())
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		media = "application/json"
		body, _ = json.Marshal(s.listing()) // cannot fail
	}
	w.Header().Set("Content-Type", media)
	_, _ = w.Write(body) // the client may have disconnected
}
