package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/web/session"
	"github.com/tollhq/toll/sdk"
	"github.com/tollhq/toll/x402"
)

// maxForm bounds the body of a form in bytes. A form spells a byte with up to three, so the longest description takes 48 KiB.
const maxForm = 64 << 10

// Config has what all pages of a service share.
type Config struct {
	Handler     http.Handler   // of the API, which pages call as a client
	Namespace   x402.Namespace // brand words on the wire
	PublicURL   string         // origin of the service, whose pages may send its forms
	Environment toll.Environment
	Clock       func() time.Time
	Machine     func() time.Time           // by which the links of orders end, whatever the clock of a sandbox says
	Source      func(*http.Request) string // pseudonym of the client, for the limit of enrolments
	Address     func(*http.Request) string // address of the client, for limits and the audit log
	Log         *slog.Logger
	Brand       Brand
	CloseReads  bool // public pages are for people who signed in
	SignIn      SignIn
	Cards       bool // the service takes cards
	SDK         sdk.Source
	SidesOf     func(ctx context.Context, workspace toll.Address) (Sides, error)
}

// Set is the pages of one package.
type Set struct {
	Templates fs.FS // NAME.html of each page, which defines "body"; nil: those of other packages
	Routes    []Route
	Areas     []Area
}

// Site has what all pages of a service share, once it was read.
type Site struct {
	Config
	API      *client.Client // see [newAPI]
	Sessions *session.Sessions
	Areas    []Area
	Name     string // of the service
	routes   []Route
	origin   *http.CrossOriginProtection
	pages    map[string]*template.Template
	assets   *assets
	brand    brand
	sides    *cache.Cache[toll.Address, Sides]
}

// NewSite returns the site of the pages of all sets. Their templates share layout.html and components.html of files, which has the
// directory static as well. Errors: a public address that is not an origin, a brand or a template that cannot be read.
func NewSite(d Config, s session.Config, files fs.FS, sets ...Set) (*Site, error) {
	w := &Site{Config: d, API: newAPI(d), origin: http.NewCrossOriginProtection(), pages: map[string]*template.Template{}, sides: cache.New[toll.Address, Sides](mostSides)}
	var err error
	if w.brand, err = d.Brand.read(); err != nil {
		return nil, err
	}
	w.Name = w.brand.name
	u, err := url.Parse(d.PublicURL)
	if err != nil {
		return nil, err
	}
	if err := w.origin.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return nil, err
	}
	w.Sessions, err = session.New(s, func(rw http.ResponseWriter, r *http.Request, err error) {
		(&Context{Site: w, W: rw, R: r}).answer(nil, err)
	})
	if err != nil {
		return nil, err
	}
	if w.assets, err = newAssets(files); err != nil {
		return nil, err
	}
	common, err := template.New("layout.html").Funcs(w.functions()).ParseFS(files, "layout.html", "components.html")
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		w.routes = append(w.routes, set.Routes...)
		for _, a := range set.Areas {
			if !a.Sandbox || d.Environment != toll.Live {
				w.Areas = append(w.Areas, a)
			}
		}
		if set.Templates == nil {
			continue
		}
		names, err := fs.Glob(set.Templates, "*.html")
		if err != nil {
			return nil, err
		}
		for _, file := range names {
			name := strings.TrimSuffix(file, ".html")
			if common.Lookup(file) != nil || w.pages[name] != nil {
				continue
			}
			t, err := common.Clone()
			if err == nil {
				w.pages[name], err = t.ParseFS(set.Templates, file)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// WorkspaceOf returns the workspace that a request names, "" for none: below /w/, in a field of its form, or in its query.
func WorkspaceOf(r *http.Request) string {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/w/"); ok {
		at, _, _ := strings.Cut(rest, "/")
		return cmp.Or(at, "-")
	}
	if r.Method == http.MethodPost {
		return r.PostForm.Get("workspace")
	}
	return r.URL.Query().Get("workspace")
}

// Serve serves a path: get shows, post acts.
func (w *Site) Serve(get, post func(*Context) (View, error)) http.Handler {
	inner := w.Sessions.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		c := &Context{Site: w, W: rw, R: r}
		var err error
		c.Person, err = w.Sessions.Person(r.Context(), WorkspaceOf(r))
		if errors.Is(err, session.ErrNotMember) {
			err = c.RefuseNext(http.StatusNotFound, "This workspace does not exist, or you are not a member.", "")
		}
		if err != nil {
			c.answer(nil, err)
			return
		}
		c.R = r.WithContext(w.Sessions.Acting(r, c.Person, w.Address(r)))
		if r.Method != http.MethodPost {
			c.answer(get(c))
			return
		}
		c.Form = r.PostForm
		c.answer(post(c))
	}))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Del("Access-Control-Allow-Origin")
		h.Del("Access-Control-Expose-Headers")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Frame-Options", "DENY")
		// With no-referrer browsers would send the form with "Origin: null".
		h.Set("Referrer-Policy", "same-origin")
		if r.Method == http.MethodPost {
			c := &Context{Site: w, W: rw, R: r}
			// The library compares hosts alone where a browser does not say from which site a form comes.
			plain := strings.HasPrefix(w.PublicURL, "https:") && strings.HasPrefix(r.Header.Get("Origin"), "http:")
			// Every browser names the page that sent a form with a session.
			_, none := r.Cookie(w.Sessions.CookieBeside("session").Name)
			unnamed := none == nil && r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == ""
			if w.origin.Check(r) != nil || plain || unnamed {
				c.answer(nil, c.Refuse(http.StatusForbidden, "The form was submitted from another site."))
				return
			}
			media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			r.Body = http.MaxBytesReader(rw, r.Body, maxForm)
			if err != nil || media != "application/x-www-form-urlencoded" || r.ParseForm() != nil {
				c.answer(nil, c.Refuse(http.StatusBadRequest, "The form data is invalid or too large."))
				return
			}
		}
		inner.ServeHTTP(rw, r)
	})
}

// Routes calls add for each method of each page, and for the files that pages use.
func (w *Site) Routes(add func(method, path string, h http.Handler)) {
	routes := slices.Concat([]Route{{Path: PathAsset, Handler: w.Asset()}, {Path: PathTheme, Post: chooseTheme}}, w.brandRoutes(), w.routes)
	for i := range w.Areas {
		routes = append(routes, w.Areas[i].served())
	}
	for _, r := range routes {
		h := r.Handler
		switch {
		case r.Raw != nil:
			h = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) { r.Raw(&Context{Site: w, W: rw, R: req}) })
		case h == nil:
			h = w.Serve(r.Get, r.Post)
		}
		if r.Get != nil || h != nil && r.Post == nil {
			add(http.MethodGet, r.Path, h)
		}
		if r.Post != nil {
			add(http.MethodPost, r.Path, h)
		}
	}
}

// Document returns a page of the documentation in the look of public pages. It depends only on the arguments and the brand.
func (w *Site) Document(theme, title string, menu, main template.HTML) []byte {
	var b bytes.Buffer
	s := Layout{Theme: theme, Public: true, Title: title, Body: map[string]template.HTML{"Menu": menu, "Main": main}}
	if err := w.pages["document"].ExecuteTemplate(&b, "layout.html", s); err != nil {
		panic(err) // the template is part of the program
	}
	return b.Bytes()
}

// NoPage answers a person whose address has no page, or takes only forms (405).
func (w *Site) NoPage(rw http.ResponseWriter, r *http.Request, status int) {
	w.Serve(func(c *Context) (View, error) {
		if status == http.StatusMethodNotAllowed {
			return nil, c.RefuseNext(status, "This address only accepts form submissions.", "Go back to the form and submit it there.")
		}
		return nil, c.RefuseNext(status, "There is no page at this address. It may be mistyped, or the page was removed.", "")
	}, nil).ServeHTTP(rw, r)
}

// chooseTheme is POST /theme: a browser chooses its colors.
func chooseTheme(c *Context) (View, error) {
	to := c.Form.Get("theme")
	c.SetChoice(ThemeCookie, to, "/", to == "light" || to == "dark")
	return c.Redirect(http.StatusSeeOther, cmp.Or(LocalPath(c.Form.Get("next")), PathHome))
}

// Paths of the pages around workspaces.
const (
	PathHome  = "/w"
	PathTheme = "/theme"
)

// newAPI returns a client of the API that calls its handler inside the process: a page reads and acts as any program does, with the
// rights of the signed-in person or API key. Each call needs the context of [Context.Acting].
func newAPI(d Config) *client.Client {
	return client.New("", client.WithoutKey(), client.WithURL(d.PublicURL), client.WithNamespace(d.Namespace),
		client.WithHTTPClient(&http.Client{Transport: inside{d.Handler}}), client.WithRetries(0), client.WithLog(d.Log))
}

// Acting is the context for calls of [Site.API] on behalf of the signed-in person. They count once against limits.
func (c *Context) Acting() context.Context {
	p := auth.Page{Source: c.Address(c.R), Counted: &c.counted}
	if c.Person != nil {
		p.Caller, p.Proof, p.AuthenticatedAt = c.Person.Caller, c.Person.Proof, c.Person.Since
	}
	return auth.WithPage(c.Ctx(), p)
}

// inside is a transport that calls a handler in place of a server.
type inside struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper. It refuses a request without a [auth.Page], for which the
// handler would take the caller from headers.
func (t inside) RoundTrip(r *http.Request) (*http.Response, error) {
	page := auth.PageOf(r.Context())
	if page == nil {
		return nil, http.ErrNotSupported
	}
	in := r.Clone(r.Context())
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), net.JoinHostPort(page.Source, "0")
	if in.Body == nil {
		in.Body = http.NoBody
	}
	rec := &recorder{header: http.Header{}}
	t.handler.ServeHTTP(rec, in)
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	return &http.Response{
		Status: http.StatusText(rec.status), StatusCode: rec.status, Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(&rec.body), ContentLength: int64(rec.body.Len()), Request: r,
	}, nil
}

// recorder keeps an answer in memory. The API bounds its answers.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
}
