package api

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
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
	t := template.Must(template.New(name).Funcs(template.FuncMap{"anchor": anchor, "typeOf": typeOf, "refOf": refOf}).ParseFS(pages, name))
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		panic(err) // the template and its data are both part of the program
	}
	return b.Bytes()
}

func anchor(code toll.Code) string {
	return strings.ToLower(strings.ReplaceAll(string(code), ".", "-"))
}

func renderErrors() []byte { return render("errors.html", toll.Codes()) }

type docsOperation struct {
	Method, Path string
	*huma.Operation
	Parameters []*huma.Param // references resolved
	Body       *huma.Schema
	Responses  []docsResponse
}

type docsResponse struct {
	Status string
	*huma.Response
	Body *huma.Schema
}

type docsGroup struct {
	Tag        string
	Operations []docsOperation
}

type docsSchema struct {
	Name    string
	Members []docsMember
}

type docsMember struct {
	Name     string
	Required bool
	*huma.Schema
}

func renderDocs(api *huma.OpenAPI) []byte {
	var groups []docsGroup
	for _, path := range sortedKeys(api.Paths) {
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
			if o.op.RequestBody != nil {
				d.Body = bodyOf(o.op.RequestBody.Content)
			}
			for _, status := range sortedKeys(o.op.Responses) {
				r := o.op.Responses[status]
				d.Responses = append(d.Responses, docsResponse{Status: status, Response: r, Body: bodyOf(r.Content)})
			}
			tag := o.op.Tags[0]
			i := slices.IndexFunc(groups, func(g docsGroup) bool { return g.Tag == tag })
			if i < 0 {
				i = len(groups)
				groups = append(groups, docsGroup{Tag: tag})
			}
			groups[i].Operations = append(groups[i].Operations, d)
		}
	}
	all := api.Components.Schemas.Map()
	records := make([]docsSchema, 0, len(all))
	for _, name := range sortedKeys(all) {
		s := docsSchema{Name: name}
		for _, member := range sortedKeys(all[name].Properties) {
			s.Members = append(s.Members, docsMember{member, slices.Contains(all[name].Required, member), all[name].Properties[member]})
		}
		records = append(records, s)
	}
	return render("docs.html", map[string]any{"Info": api.Info, "Groups": groups, "Schemas": records})
}

func bodyOf(content map[string]*huma.MediaType) *huma.Schema {
	if m := content["application/json"]; m != nil {
		return m.Schema
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
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
