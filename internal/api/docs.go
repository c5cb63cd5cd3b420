package api

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/docs"
	"github.com/tollhq/toll/internal/gzipped"
)

// Look draws the frame of the pages of the documentation.
type Look interface {
	// Theme returns the color theme that the browser chose; "" for the theme of the system.
	Theme(r *http.Request) string
	// Document returns a page with a menu and a main part.
	Document(theme, title string, menu, main template.HTML) []byte
}

// plainLook draws pages without styles, for a service without pages for people.
type plainLook struct{}

func (plainLook) Theme(*http.Request) string { return "" }

func (plainLook) Document(_, title string, menu, main template.HTML) []byte {
	return render("plain", map[string]any{"Title": title, "Menu": menu, "Main": main})
}

// pagePolicy is the content policy of the documentation: all comes from the service, and nothing is in the page itself.
const pagePolicy = "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

var pagePolicyHeader = []string{pagePolicy}

//go:embed docs.html
var pageTemplates string

var templates = sync.OnceValue(func() *template.Template { return template.Must(template.New("").Parse(pageTemplates)) })

func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // the template and its data are both part of the program, but for the words of a search
	}
	return b.Bytes()
}

// docPages are all pages of the documentation.
type docPages struct {
	index    docs.Index
	menu     []docsMenuGroup
	look     Look
	html     map[docsView]func() rendered
	markdown map[string]func() rendered // by slug
}

// docsView is a page in the colors of a theme.
type docsView struct{ slug, theme string }

type docsMenuGroup struct {
	Name       string
	Operations bool
	Pages      []docs.Guide
}

// Has reports whether a page is in the group.
func (g docsMenuGroup) Has(path string) bool {
	return slices.ContainsFunc(g.Pages, func(p docs.Guide) bool { return p.Path() == path })
}

func newDocPages(api *huma.OpenAPI, service string, look Look) *docPages {
	p := &docPages{look: look, html: map[docsView]func() rendered{}, markdown: map[string]func() rendered{}}
	about, operations := reference(api, toll.Changelog)
	guides := docs.Guides(service)
	p.index = docs.NewIndex(slices.Concat(operations, guides, about))
	for _, g := range slices.Concat(about, operations, guides) {
		if n := len(p.menu); n == 0 || p.menu[n-1].Name != g.Group {
			p.menu = append(p.menu, docsMenuGroup{Name: g.Group, Operations: strings.HasPrefix(g.Slug, pathOperations)})
		}
		last := &p.menu[len(p.menu)-1]
		last.Pages = append(last.Pages, g)
		for _, theme := range []string{"", "light", "dark"} {
			p.html[docsView{g.Slug, theme}] = once(func() []byte { return p.draw(theme, g.Title, &g, render("article", &g)) })
		}
		p.markdown[g.Slug] = once(func() []byte { return g.Markdown })
	}
	return p
}

// once renders a document when it is first requested.
func once(f func() []byte) func() rendered {
	return sync.OnceValue(func() rendered { plain := f(); return rendered{plain, gzipped.Bytes(plain, gzip.BestCompression)} })
}

// draw returns a page. Its menu has the operations only within the reference of the API. here is nil for a page without an entry.
func (p *docPages) draw(theme, title string, here *docs.Guide, main []byte) []byte {
	data := map[string]any{"Here": "", "Reference": false, "Groups": p.menu}
	if here != nil {
		data["Here"], data["Reference"] = here.Path(), here.Group == groupAPI || strings.HasPrefix(here.Slug, pathOperations)
	}
	menu := render("menu", data)
	return p.look.Document(theme, title, template.HTML(menu), template.HTML(main)) // our own templates rendered both
}

// llms lists all pages for programs (llmstxt.org).
func (p *docPages) llms() []byte {
	var b docText
	b.add("# Toll\n\n> A payment gate for AI agents: plans, credits, access tokens, and receipts over HTTP 402 (x402).\n\n" +
		"The API is also described by an [OpenAPI document](/openapi.json). The [SDKs](/sdk) are packages of this service. To add payments to a " +
		"service, start with [this prompt](/docs/prompt.md).\n")
	for _, operations := range []bool{false, true} {
		for _, g := range p.menu {
			if g.Operations != operations {
				continue
			}
			b.add("\n## %s\n\n", g.Name)
			for _, page := range g.Pages {
				b.add("- [%s](%s.md): %s\n", page.Title, page.Path(), page.Summary())
			}
		}
	}
	return b.Bytes()
}

func (d *documents) docsPage(c *call) document   { return d.tablePage(c, "") }
func (d *documents) errorsPage(c *call) document { return d.tablePage(c, "errors") }

func (d *documents) tablePage(c *call, slug string) document {
	pageHeaders(c.w)
	p := d.pages()
	return document{htmlType, p.html[docsView{slug, p.look.Theme(c.r)}]()}
}

func pageHeaders(w http.ResponseWriter) {
	w.Header()["Content-Security-Policy"] = pagePolicyHeader
	w.Header().Add("Vary", "Cookie") // has the theme
}

// docRoutes are the pages that the OpenAPI document leaves out.
func (d *documents) docRoutes() []Page {
	get := func(path string, f http.HandlerFunc) Page {
		return Page{Method: http.MethodGet, Path: path, Handler: f}
	}
	return []Page{
		get("/docs.md", d.page), get("/docs/{guide}", d.page), get("/docs/"+pathOperations+"{operation}", d.page),
		get("/docs/search", func(w http.ResponseWriter, r *http.Request) {
			d.writeFound(w, r, http.StatusOK, r.URL.Query().Get("q"))
		}),
		get("/llms.txt", func(w http.ResponseWriter, r *http.Request) {
			writeDoc(w, r, http.StatusOK, plainType, d.llms())
		}),
	}
}

var (
	plainType    = []string{"text/plain; charset=utf-8"}
	markdownType = []string{"text/markdown; charset=utf-8"}
)

func writeDoc(w http.ResponseWriter, r *http.Request, status int, media []string, t rendered) {
	w.Header()["Content-Type"] = media
	pageHeaders(w)
	body := t.forClient(w, r)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // fails only if the caller has closed the connection
}

// page is GET of a page, or of its Markdown: with .md after the path, or with text/markdown but not text/html in Accept.
func (d *documents) page(w http.ResponseWriter, r *http.Request) {
	at := strings.Join(strings.FieldsFunc(r.URL.Path, func(c rune) bool { return c == '/' }), "/") // repeated slashes count as one, as for the router
	name, p := strings.TrimPrefix(strings.TrimPrefix(at, "docs"), "/"), d.pages()
	slug, asMarkdown := strings.CutSuffix(name, ".md")
	accept := strings.Join(r.Header.Values("Accept"), ",")
	asMarkdown = asMarkdown || strings.Contains(accept, "text/markdown") && !strings.Contains(accept, "text/html")
	w.Header().Add("Vary", "Accept")
	if p.markdown[slug] == nil {
		slug = strings.ToLower(slug) // files such as docs/SELL.md, which the README links
	}
	shown, media := p.html[docsView{slug, p.look.Theme(r)}], htmlType
	if asMarkdown {
		shown, media = p.markdown[slug], markdownType
	}
	if shown == nil {
		d.writeFound(w, r, http.StatusNotFound, slug)
		return
	}
	writeDoc(w, r, http.StatusOK, media, shown())
}

func (d *documents) writeFound(w http.ResponseWriter, r *http.Request, status int, query string) {
	query = strings.ToValidUTF8(query[:min(len(query), docs.MaxQuery)], "")
	p := d.pages()
	found := render("found", map[string]any{"Query": query, "Found": p.index.Search(query)})
	writeDoc(w, r, status, htmlType, rendered{plain: p.draw(p.look.Theme(r), "Search", nil, found)})
}
