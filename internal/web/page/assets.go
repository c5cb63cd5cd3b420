package page

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/tollhq/toll/internal/gzipped"
)

// PathAsset is where the files of the pages are. A name has the hash of the file in it, so that browsers keep it for ever.
const PathAsset = "/assets/{name}"

// asset is a file of the pages.
type asset struct {
	media    string
	plain    []byte
	br, gzip []byte // compressed; nil: it is not
}

// assets are the files of the pages: by their names in the program, where they are; by their names there, what they are.
type assets struct {
	static fs.FS
	paths  map[string]string
	files  map[string]asset
}

// mediaTypes are those of the files of the pages.
var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".ico": "image/x-icon", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".woff2": "font/woff2",
}

// newAssets reads the files below static. Those of others come compressed; ours are compressed here, as they change often and are
// small. Style sheets name other files by url(NAME), which becomes their address.
func newAssets(static fs.FS) (*assets, error) {
	a := &assets{static: static, paths: map[string]string{}, files: map[string]asset{}}
	var sheets []string
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		media := mediaTypes[path.Ext(name)]
		if err != nil || d.IsDir() || media == "" {
			return err
		}
		if path.Ext(name) == ".css" {
			sheets = append(sheets, name)
			return nil
		}
		plain, err := fs.ReadFile(static, name)
		if err != nil {
			return err
		}
		return a.add(name, media, plain)
	})
	if err != nil {
		return nil, err
	}
	var own []byte
	for _, name := range sheets { // in the order of their names: the tokens come last and are variables alone
		plain, err := fs.ReadFile(static, name)
		if err != nil {
			return nil, err
		}
		if strings.Contains(name, "/vendor/") {
			err = a.add(name, mediaTypes[".css"], plain)
		} else {
			own = append(own, plain...)
		}
		if err != nil {
			return nil, err
		}
	}
	own, err = a.resolve(own)
	if err != nil {
		return nil, err
	}
	return a, a.add("static/style.css", mediaTypes[".css"], own)
}

var urlOfSheet = regexp.MustCompile(`url\(([a-z0-9.-]+)\)`)

func (a *assets) resolve(sheet []byte) (out []byte, err error) {
	out = urlOfSheet.ReplaceAllFunc(sheet, func(m []byte) []byte {
		name := string(urlOfSheet.FindSubmatch(m)[1])
		if a.paths[name] == "" {
			err = errors.Join(err, fmt.Errorf("style sheet uses %q, which is not in static", name))
		}
		return []byte("url(" + a.paths[name] + ")")
	})
	return out, err
}

func (a *assets) add(name, media string, plain []byte) error {
	sum := sha256.Sum256(plain)
	base, ext := path.Base(name), path.Ext(name)
	hashed := strings.TrimSuffix(base, ext) + "." + hex.EncodeToString(sum[:6]) + ext
	f := asset{media: media, plain: plain}
	switch {
	case ext == ".woff2": // is compressed in itself
	case strings.Contains(name, "/vendor/"):
		var err1, err2 error
		f.br, err1 = fs.ReadFile(a.static, name+".br")
		f.gzip, err2 = fs.ReadFile(a.static, name+".gz")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	default:
		f.gzip = gzipped.Bytes(plain, gzip.BestCompression)
	}
	a.paths[base], a.files[hashed] = "/assets/"+hashed, f
	return nil
}

// Asset is GET /assets/{name}.
func (w *Site) Asset() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		f, ok := w.assets.files[path.Base(r.URL.Path)]
		if !ok || path.Dir(r.URL.Path) != "/assets" {
			h.Set("Cache-Control", "no-store")
			http.Error(rw, "File not found.", http.StatusNotFound)
			return
		}
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("Content-Type", f.media)
		body := f.plain
		switch {
		case f.br != nil && gzipped.Taken(r, "br"):
			h.Set("Content-Encoding", "br")
			body = f.br
		case f.gzip != nil && gzipped.Taken(r, "gzip"):
			h.Set("Content-Encoding", "gzip")
			body = f.gzip
		}
		h.Set("Vary", "Accept-Encoding")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = rw.Write(body) // the browser has gone; there is nobody to tell
	})
}
