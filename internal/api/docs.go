package api

import (
	"bytes"
	"embed"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/docs"
)

//go:embed docs.html errors.html guide.html found.html docs_parts.html
var pages embed.FS

// The pages work offline and without scripts; the policy holds them to that.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

var pagePolicyHeader = []string{pagePolicy}

func (d *documents) docsPage(c *call) document   { return htmlPage(c, d.docs()) }
func (d *documents) errorsPage(c *call) document { return htmlPage(c, d.errors()) }

func htmlPage(c *call, text rendered) document {
	c.w.Header()["Content-Security-Policy"] = pagePolicyHeader
	return document{htmlType, text}
}

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"anchor": anchor, "typeOf": typeOf, "refOf": refOf, "prose": prose, "slug": slug, "bodyOf": bodyOf, "has": slices.Contains[[]string],
	}).ParseFS(pages, "*.html"))
})

func render(name string, data any) []byte {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		panic(err) // the template and its data are both part of the program, but for the words of a search
	}
	return b.Bytes()
}

func anchor(code toll.Code) string {
	return strings.ToLower(strings.ReplaceAll(string(code), ".", "-"))
}

var knownCodes = sync.OnceValue(func() map[toll.Code]bool {
	known := map[toll.Code]bool{}
	for _, c := range toll.Codes() {
		known[c.Code] = true
	}
	return known
})

var marked = regexp.MustCompile("`[^`]+`|BCK(\\.[A-Z0-9]+)+")

// prose renders a description: what stands in backticks is code, and an error code leads to its row.
func prose(text string) template.HTML {
	var b strings.Builder
	last := 0
	for _, at := range marked.FindAllStringIndex(text, -1) {
		b.WriteString(template.HTMLEscapeString(text[last:at[0]]))
		word := text[at[0]:at[1]]
		last = at[1]
		code := "<code>" + template.HTMLEscapeString(strings.Trim(word, "`")) + "</code>"
		if c := toll.Code(strings.Trim(word, "`")); knownCodes()[c] {
			code = `<a href="/docs/errors#` + anchor(c) + `">` + code + "</a>"
		}
		b.WriteString(code)
	}
	b.WriteString(template.HTMLEscapeString(text[last:]))
	return template.HTML(b.String()) // every part is escaped above
}

type docsAccess struct {
	Word    access
	Meaning string
}

var accessWords = []docsAccess{
	{open, "You can call this operation without an API key."},
	{keyed, "Any valid API key. Lists contain the records of its workspace."},
	{self, "An API key of the workspace that owns the record; otherwise the response is 404."},
	{owners, "An API key of the workspace that owns the plan or the agent; otherwise the response is 403."},
	{ends, "An API key of the owner of the plan or of the subscriber; otherwise the response is 404."},
}

func slug(tag string) string { return strings.ToLower(strings.ReplaceAll(tag, " ", "-")) }

type docsMenu []docsMenuGroup

type docsMenuGroup struct {
	Name   string
	Guides []docs.Guide
}

func menuOf(guides []docs.Guide) (menu docsMenu) {
	for _, g := range guides {
		if len(menu) == 0 || menu[len(menu)-1].Name != g.Group {
			menu = append(menu, docsMenuGroup{Name: g.Group})
		}
		last := &menu[len(menu)-1]
		last.Guides = append(last.Guides, g)
	}
	return menu
}

// docRoutes are the pages of the guides, which are no part of the OpenAPI document.
func (d *documents) docRoutes() []Page {
	get := func(path string, f func(http.ResponseWriter, *http.Request)) Page {
		return Page{Method: http.MethodGet, Path: path, Handler: http.HandlerFunc(f)}
	}
	return []Page{
		get("/docs/{guide}", d.guidePage),
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
	w.Header()["Content-Type"], w.Header()["Content-Security-Policy"] = media, pagePolicyHeader
	body := t.forClient(w, r)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller has gone; there is nobody to tell
}

func (d *documents) guidePage(w http.ResponseWriter, r *http.Request) {
	name, media := strings.TrimPrefix(r.URL.Path, "/docs/"), htmlType
	slug, asMarkdown := strings.CutSuffix(name, ".md")
	page := d.guides()[name]
	if page == nil {
		d.writeFound(w, r, http.StatusNotFound, slug)
		return
	}
	if asMarkdown {
		media = markdownType
	}
	writeDoc(w, r, http.StatusOK, media, page())
}

func (d *documents) writeFound(w http.ResponseWriter, r *http.Request, status int, query string) {
	query = strings.ToValidUTF8(query[:min(len(query), docs.MaxQuery)], "")
	found := docs.Search(d.reference(), query)
	body := render("found.html", map[string]any{"Here": "", "Menu": d.menu(), "Query": query, "Found": found})
	writeDoc(w, r, status, htmlType, rendered{plain: body})
}

func referenceOf(groups []docsGroup) []docs.Guide {
	calls := docs.Guide{Title: "API"}
	for _, g := range groups {
		for _, o := range g.Operations {
			calls.Sections = append(calls.Sections, docs.Section{Anchor: o.OperationID, Heading: o.OperationID, Text: o.Method + " " + o.Path + " " + o.Summary})
		}
	}
	codes := docs.Guide{Slug: "errors", Title: "Error"}
	for _, c := range toll.Codes() {
		codes.Sections = append(codes.Sections, docs.Section{Anchor: anchor(c.Code), Heading: string(c.Code), Text: c.Message + " " + c.Hint})
	}
	return []docs.Guide{calls, codes}
}

// llmsText says to programs that read where the documents are (llms.txt).
func llmsText(menu docsMenu) []byte {
	var b bytes.Buffer
	b.WriteString("# Toll\n\n> A payment gate for AI agents: plans, credits, access tokens, and receipts over HTTP 402 (x402).\n\n" +
		"## Reference\n\n- [OpenAPI document](/openapi.json): every call of the API\n- [Error codes](/docs/errors): every code and the next step\n")
	for _, g := range menu {
		b.WriteString("\n## " + g.Name + "\n\n")
		for _, guide := range g.Guides {
			b.WriteString("- [" + guide.Title + "](/docs/" + guide.Slug + ".md)\n")
		}
	}
	return b.Bytes()
}

type docsOperation struct {
	Method, Path string
	*huma.Operation
	Parameters []*huma.Param // references resolved
}

type docsGroup struct {
	Tag        string
	About      string
	Operations []docsOperation
}

func groupsOf(api *huma.OpenAPI) (groups []docsGroup) {
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		item := api.Paths[path]
		for _, o := range []struct {
			method string
			op     *huma.Operation
		}{{http.MethodGet, item.Get}, {http.MethodPost, item.Post}, {http.MethodPut, item.Put}, {http.MethodPatch, item.Patch}, {http.MethodDelete, item.Delete}} {
			if o.op == nil {
				continue
			}
			d := docsOperation{Method: o.method, Path: path, Operation: o.op}
			for _, p := range o.op.Parameters {
				if p.Ref != "" {
					p = api.Components.Parameters[strings.TrimPrefix(p.Ref, parameterPrefix)]
				}
				d.Parameters = append(d.Parameters, p)
			}
			tag := o.op.Tags[0]
			i := slices.IndexFunc(groups, func(g docsGroup) bool { return g.Tag == tag })
			if i < 0 {
				i = len(groups)
				groups = append(groups, docsGroup{Tag: tag, About: aboutTag(api, tag)})
			}
			groups[i].Operations = append(groups[i].Operations, d)
		}
	}
	return groups
}

func aboutTag(api *huma.OpenAPI, name string) string {
	for _, t := range api.Tags {
		if t.Name == name {
			return t.Description
		}
	}
	return ""
}

func bodyOf(content map[string]*huma.MediaType) *huma.Schema {
	if m := content["application/json"]; m != nil {
		return m.Schema
	}
	return nil
}

func typeOf(s *huma.Schema) string {
	var of []string
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return refOf(s)
	case s.Type == huma.TypeArray:
		return "array of " + typeOf(s.Items)
	case s.Nullable:
		return s.Type + " or null"
	case s.Type != "":
		return s.Type
	}
	for _, one := range slices.Concat(s.OneOf, s.AnyOf) {
		of = append(of, typeOf(one))
	}
	if len(of) == 0 {
		return "any"
	}
	return strings.Join(of, " or ")
}

// refOf returns the name of the component that a schema, or the items of it, refer to; "" for none.
func refOf(s *huma.Schema) string {
	if s == nil {
		return ""
	}
	if s.Ref != "" {
		return strings.TrimPrefix(s.Ref, schemaPrefix)
	}
	for _, one := range s.AnyOf {
		if one.Ref != "" {
			return refOf(one)
		}
	}
	return refOf(s.Items)
}
