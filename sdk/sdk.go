// Package sdk has the packages of the SDKs for TypeScript and Python and of the x402 plug-in as a service serves them, and the commands that
// install them.
//
// sdk/build.py builds the packages. The path of a package contains the start of its SHA-256 hash and so names its content. A released
// package stays in the program, so lock files and pinned requirements keep working after an upgrade. No address returns the newest
// package, because npm and pip store an address with the hash of its content, and an upgrade would break installations.
package sdk

import (
	"embed"
	"encoding/json"
	"net/http"
	"path"
	"sync"
)

// Path is the page that lists the packages, which are below it.
const Path = "/sdk"

//go:embed packages
var files embed.FS

// Package is one version of a package.
type Package struct {
	Language  string `json:"language"` // "typescript" or "python"
	Name      string `json:"name"`     // in imports and registries
	Version   string `json:"version"`
	Path      string `json:"path"` // below [Path]
	Size      int    `json:"size"` // bytes
	SHA256    string `json:"sha256"`
	Integrity string `json:"integrity"` // as package-lock.json has it
	Released  bool   `json:"released"`
}

// index returns all packages. The current package of a name comes last.
var index = sync.OnceValue(func() (all []Package) {
	text, err := files.ReadFile("packages/index.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic(err) // part of the program
	}
	return all
})

// current returns the newest package with a name.
func current(name string) (last Package) {
	for _, p := range index() {
		if p.Name == name {
			last = p
		}
	}
	return last
}

var mediaTypes = map[string]string{".tgz": "application/gzip", ".whl": "application/zip"}

// Routes calls add with the path of each package and its handler for GET and HEAD.
func Routes(add func(path string, h http.Handler)) {
	for _, p := range index() {
		add(Path+"/"+p.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Type", mediaTypes[path.Ext(p.Path)])
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
			h.Set("ETag", `"`+p.SHA256+`"`)
			http.ServeFileFS(w, r, files, "packages/"+p.Path)
		}))
	}
}
