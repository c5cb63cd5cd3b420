package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/tollhq/toll/internal/plain"
)

// Paths of the look that the operator chose.
const (
	PathBrand = "/brand.css"
	PathLogo  = "/brand/logo"
)

// maxLogo bounds a logo in bytes.
const maxLogo = 256 << 10

// Brand is the look that the operator gives the pages. The zero value is that of Toll.
type Brand struct {
	Name  string // of the service, on each page
	Color string // accent as #rrggbb
	Logo  string // file, PNG or SVG
}

// Text says what the look is.
func (b Brand) Text() string {
	text := cmp.Or(b.Name, "Toll")
	if b.Color != "" {
		text += ", " + b.Color
	}
	if b.Logo != "" {
		text += ", with a logo"
	}
	return text
}

var hexColor = regexp.MustCompile(`^#[0-9a-fA-F]{6}$`)

// Check returns what of the look cannot be shown. It does not read the logo.
func (b Brand) Check() error {
	switch {
	case b.Color != "" && !hexColor.MatchString(b.Color):
		return fmt.Errorf("the brand color must be #rrggbb; got %q", b.Color)
	case b.Name != plain.Name(b.Name):
		return fmt.Errorf("the brand name must be one line of plain text with at most 80 characters; got %q", b.Name)
	}
	return nil
}

// brand is a look that was read.
type brand struct {
	name   string
	sheet  []byte // nil: the look is that of Toll
	href   string // of the sheet, named by what is in it
	logo   []byte // nil: none
	format string // media type of the logo
}

func (b Brand) read() (out brand, err error) {
	out.name = cmp.Or(b.Name, "Toll")
	if b.Logo != "" {
		if out.logo, err = os.ReadFile(b.Logo); err != nil {
			return out, fmt.Errorf("read the brand logo: %w", err)
		}
		head := out.logo[:min(len(out.logo), 1024)]
		switch {
		case len(out.logo) > maxLogo:
			return out, errors.New("the brand logo must be at most 256 KiB")
		case bytes.HasPrefix(out.logo, []byte("\x89PNG\r\n\x1a\n")):
			out.format = "image/png"
		case bytes.Contains(head, []byte("<svg")):
			out.format = "image/svg+xml"
		default:
			return out, errors.New("the brand logo must be a PNG or SVG file")
		}
	}
	var css strings.Builder
	if b.Color != "" {
		css.WriteString(accentStyle(b.Color))
	}
	if out.logo != nil {
		css.WriteString(".logo { background: url(" + PathLogo + ") center / contain no-repeat; mask: none; }\n")
	}
	if css.Len() > 0 {
		out.sheet = []byte(css.String())
		sum := sha256.Sum256(append(out.sheet, out.logo...))
		out.href = PathBrand + "?" + hex.EncodeToString(sum[:6])
	}
	return out, nil
}

// accentStyle makes the accent of a colour, in light and dark. Text on it is what contrasts more with it.
func accentStyle(color string) string {
	ink := "#ffffff"
	if luminance(color) > 0.18 { // where black and white contrast alike
		ink = "#101010"
	}
	return ":root {\n" +
		"  --accent: light-dark(color-mix(in oklab, " + color + " 88%, black), color-mix(in oklab, " + color + " 55%, white));\n" +
		"  --accent-ink: light-dark(" + ink + ", #101010);\n" +
		"  --accent-soft: light-dark(color-mix(in oklab, " + color + " 10%, white), color-mix(in oklab, " + color + " 22%, #131311));\n" +
		"  --accent-line: light-dark(color-mix(in oklab, " + color + " 30%, white), color-mix(in oklab, " + color + " 40%, #131311));\n}\n"
}

// luminance is about the relative luminance of a colour, from 0 to 1.
func luminance(color string) float64 {
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, _ := strconv.ParseUint(color[1+2*i:3+2*i], 16, 8) // checked
		c := float64(n) / 255
		sum += weight * c * c
	}
	return sum
}

// brandRoutes are the routes of the look. Without a brand, the only route is the icon at the path that browsers try.
func (w *Site) brandRoutes() []Route {
	serve := func(at, media string, body []byte) Route {
		return Route{Path: at, Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			h := rw.Header()
			h.Set("Cache-Control", "public, max-age=3600")
			h.Set("Content-Type", media)
			h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox") // an SVG runs no script
			_, _ = rw.Write(body)                                                                      // the browser has gone; there is nobody to tell
		})}
	}
	icon := w.assets.files[path.Base(w.assets.paths["favicon.ico"])]
	out := []Route{serve("/favicon.ico", icon.media, icon.plain)}
	if w.brand.sheet != nil {
		out = append(out, serve(PathBrand, "text/css; charset=utf-8", w.brand.sheet))
	}
	if w.brand.logo != nil {
		out = append(out, serve(PathLogo, w.brand.format, w.brand.logo))
	}
	return out
}
