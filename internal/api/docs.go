package api

import (
	"bytes"
	"embed"
	"html/template"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
)

//go:embed docs.html errors.html
var pages embed.FS

// The pages work offline and without scripts; the policy holds them to that.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var pagePolicyHeader = []string{pagePolicy}

func (h *handler) docsPage(c *call) (document, error) {
	c.w.Header()["Content-Security-Policy"] = pagePolicyHeader
	return document{htmlType, h.documents().docs}, nil
}

func (h *handler) errorsPage(c *call) (document, error) {
	c.w.Header()["Content-Security-Policy"] = pagePolicyHeader
	return document{htmlType, h.documents().errors}, nil
}

func render(name string, data any) []byte {
	t := template.Must(template.New(name).Funcs(template.FuncMap{"anchor": anchor, "typeOf": typeOf, "refOf": refOf, "prose": prose, "slug": slug, "bodyOf": bodyOf, "has": slices.Contains[[]string]}).ParseFS(pages, name))
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err) // the template and its data are both part of the program
	}
	return b.Bytes()
}

func anchor(code toll.Code) string {
	return strings.ToLower(strings.ReplaceAll(string(code), ".", "-"))
}

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
		if c := toll.Code(strings.Trim(word, "`")); slices.ContainsFunc(toll.Codes(), func(info toll.CodeInfo) bool { return info.Code == c }) {
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

// accessWords explains who may call an operation.
var accessWords = []docsAccess{
	{open, "Anybody; no API key is needed."},
	{keyed, "Any valid API key. Lists hold what belongs to its account."},
	{self, "An API key of the account that the record belongs to; for others there is no such record (404)."},
	{owners, "An API key of the account that owns the plan or the agent; others are refused (403)."},
	{ends, "An API key of one of the two ends, the owner of the plan or the subscriber; for others there is no such record (404)."},
}

func slug(tag string) string { return strings.ToLower(strings.ReplaceAll(tag, " ", "-")) }

func renderErrors() []byte { return render("errors.html", toll.Codes()) }

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

func renderDocs(api *huma.OpenAPI) []byte {
	var groups []docsGroup
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
	return render("docs.html", map[string]any{"Info": api.Info, "Access": accessWords, "Groups": groups, "Schemas": api.Components.Schemas.Map()})
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

// typeOf says in a word or two what a schema is.
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
