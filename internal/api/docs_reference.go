package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
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

// groupAPI is the group of the pages about the whole API. An operation is in the group of its tag.
const groupAPI = "API"

// pathOperations is where the pages of operations are, below /docs.
const pathOperations = "api/"

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

var (
	marked     = regexp.MustCompile("`[^`]+`|BCK(\\.[A-Z0-9]+)+|docs/[A-Z0-9-]+\\.md")
	guideFile  = regexp.MustCompile(`^docs/([A-Z0-9-]+)\.md$`)
	escapeText = strings.NewReplacer(`\`, `\\`, "<", `\<`, "*", `\*`, "[", `\[`, "]", `\]`).Replace
)

// prose returns a description as Markdown: text in backticks is code, and error codes and guides are links.
func prose(text string) string {
	var b strings.Builder
	last := 0
	for _, at := range marked.FindAllStringIndex(text, -1) {
		b.WriteString(escapeText(text[last:at[0]]))
		word := strings.Trim(text[at[0]:at[1]], "`")
		last = at[1]
		code := "`" + word + "`"
		if m := guideFile.FindStringSubmatch(word); m != nil {
			code = "[" + code + "](/docs/" + strings.ToLower(m[1]) + ")"
		} else if c := toll.Code(word); knownCodes()[c] {
			code = codeLink(c)
		}
		b.WriteString(code)
	}
	return b.String() + escapeText(text[last:])
}

func codeLink(c toll.Code) string { return "[`" + string(c) + "`](/docs/errors#" + anchor(c) + ")" }

// docText is a document in Markdown that is being written.
type docText struct{ bytes.Buffer }

func (d *docText) add(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// paragraph adds a paragraph, unless it is empty.
func (d *docText) paragraph(text string) {
	if text != "" {
		d.add("%s\n\n", text)
	}
}

func (d *docText) code(language, text string) { d.add("```%s\n%s\n```\n\n", language, text) }

// table adds a table, unless it has no rows.
func (d *docText) table(head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	d.add("| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, row := range rows {
		for _, cell := range row {
			d.add("| %s ", strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`))
		}
		d.add("|\n")
	}
	d.add("\n")
}

// reference returns the pages about the whole API, and the pages of its operations. Their Markdown is the one model of a page.
func reference(api *huma.OpenAPI, changelog string) (about, operations []docs.Guide) {
	groups := groupsOf(api)
	about = []docs.Guide{indexPage(api, groups), errorsPage(), recordsPage(api), docs.Reference("changelog", groupAPI, []byte(changelog), false)}
	for _, g := range groups {
		for i := range g.Operations {
			operations = append(operations, operationPage(api, &g.Operations[i], g.Tag))
		}
	}
	return about, operations
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

var accessRows = [][]string{
	{"`" + string(open) + "`", "You can call this operation without an API key."},
	{"`" + string(keyed) + "`", "Any valid API key. Lists contain the records of its workspace."},
	{"`" + string(self) + "`", "An API key of the workspace that owns the record; otherwise the response is 404."},
	{"`" + string(owners) + "`", "An API key of the workspace that owns the plan or the agent; otherwise the response is 403."},
	{"`" + string(ends) + "`", "An API key of the owner of the plan or of the subscriber; otherwise the response is 404."},
	{"`" + string(person) + "`", "The session of a person. While a workspace has no people, an API key created by the operator works too."},
}

var (
	pageLink = regexp.MustCompile(`<a (href="/docs/(?:api/|records#)(\w+)")`)
	tagIDs   = strings.NewReplacer(`<h2 id="access"`, `<h2 id="access"`, `<h2 id="records"`, `<h2 id="records"`, `<h2 id="`, `<h2 id="tag-`)
)

// indexPage lists the operations and the records. Each has an anchor there, because links from before they had pages lead to it.
func indexPage(api *huma.OpenAPI, groups []docsGroup) docs.Guide {
	var d docText
	d.add("# %s API %s\n\n", api.Info.Title, api.Info.Version)
	d.paragraph("New to Toll? [Sell your first request](/docs/sell), [buy your first request](/docs/buy), or [add Toll with a coding agent](/docs/prompt).")
	d.paragraph(prose(api.Info.Description))
	d.paragraph("The same reference is available as an [OpenAPI document](/openapi.json). Every page of this documentation is also available as Markdown: add `.md` to its address. " +
		"[`/llms.txt`](/llms.txt) lists these documents.")
	d.paragraph("## Access")
	d.paragraph("Send an API key in the header `Authorization: Bearer`, including the prefix of the key. Each operation requires one of these kinds of access:")
	d.table([]string{"Access", "Meaning"}, accessRows)
	for _, g := range groups {
		d.add("## %s\n\n", g.Tag)
		d.paragraph(prose(g.About))
		var rows [][]string
		for _, o := range g.Operations {
			rows = append(rows, []string{"[" + o.OperationID + "](/docs/" + pathOperations + o.OperationID + ")", prose(o.Summary), "`" + o.Method + " " + o.Path + "`"})
		}
		d.table([]string{"Operation", "Purpose", "Request"}, rows)
	}
	d.paragraph("## Records")
	var names []string
	for _, name := range slices.Sorted(maps.Keys(api.Components.Schemas.Map())) {
		names = append(names, recordRef(name))
	}
	d.paragraph("Requests and responses consist of these records: " + strings.Join(names, ", ") + ".")
	page := docs.Reference("", groupAPI, d.Bytes(), false)
	page.HTML = template.HTML(tagIDs.Replace(pageLink.ReplaceAllString(string(page.HTML), `<a id="$2" $1`)))
	page.Sections = page.Sections[:2] // the other sections repeat other pages
	return page
}

var codeRow = regexp.MustCompile(`<tr>\n<td[^>]*><code>(BCK[A-Z0-9.]+)</code></td>`)

func errorsPage() docs.Guide {
	var d docText
	d.paragraph("# Error codes")
	d.paragraph("Clients must branch only on `code`. If a code is marked as retryable, the same call can succeed later. See also the [API reference](/docs).")
	var rows [][]string
	sections := []docs.Section{{Text: "Every error code with its status, its message, and the next step."}}
	for _, c := range toll.Codes() {
		retryable := "no"
		if c.Retryable {
			retryable = "yes"
		}
		rows = append(rows, []string{"`" + string(c.Code) + "`", strconv.Itoa(c.Status), string(c.Category), retryable, escapeText(c.Message), escapeText(c.Hint)})
		sections = append(sections, docs.Section{Anchor: anchor(c.Code), Heading: string(c.Code), Text: c.Message + " " + c.Hint})
	}
	d.table([]string{"Code", "Status", "Category", "Retry", "Message", "Next step"}, rows)
	page := docs.Reference("errors", groupAPI, d.Bytes(), false)
	page.HTML = template.HTML(codeRow.ReplaceAllStringFunc(string(page.HTML), func(row string) string {
		return `<tr id="` + anchor(toll.Code(codeRow.FindStringSubmatch(row)[1])) + `">` + strings.TrimPrefix(row, "<tr>")
	}))
	page.Sections = sections
	return page
}

func recordsPage(api *huma.OpenAPI) docs.Guide {
	var d docText
	d.paragraph("# Records")
	d.paragraph("Members marked with an asterisk are required in requests and always present in responses. See also the [API reference](/docs).")
	all := api.Components.Schemas.Map()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d.add("## %s\n\n", name)
		d.schema(all[name])
	}
	return docs.Reference("records", groupAPI, d.Bytes(), true)
}

// schema describes the record, or the alternatives, of a schema.
func (d *docText) schema(s *huma.Schema) {
	d.paragraph(prose(s.Description))
	d.paragraph(values(s))
	if len(s.OneOf)+len(s.AnyOf) > 0 {
		d.paragraph("One of: " + typeOf(s) + ".")
	}
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		member := "`" + name + "`"
		if slices.Contains(s.Required, name) {
			member += ` \*`
		}
		rows = append(rows, []string{member, typeOf(s.Properties[name]), strings.TrimSpace(prose(s.Properties[name].Description) + " " + values(s.Properties[name]))})
	}
	d.table([]string{"Member", "Type", "Description"}, rows)
}

// values returns a sentence with the values of a schema, or of the items of an array.
func values(s *huma.Schema) string {
	if s.Items != nil {
		s = s.Items
	}
	known, _ := s.Extensions[extensible].([]any)
	end := "."
	if known != nil {
		end = ", or a value of a later release."
	}
	var words []string
	for _, w := range slices.Concat(s.Enum, known) {
		if w != nil {
			words = append(words, fmt.Sprintf("`%v`", w))
		}
	}
	if words == nil {
		return ""
	}
	return "One of: " + strings.Join(words, ", ") + end
}

func recordRef(name string) string { return "[" + name + "](/docs/records#" + name + ")" }

// typeOf returns the type of a schema as Markdown, with links to the records in it.
func typeOf(s *huma.Schema) string {
	switch {
	case s == nil:
		return "any"
	case s.Ref != "":
		return recordRef(strings.TrimPrefix(s.Ref, schemaPrefix))
	case s.Type == huma.TypeArray:
		return "array of " + typeOf(s.Items)
	case s.Nullable:
		return s.Type + " or null"
	case s.Type != "":
		return s.Type
	}
	var of []string
	for _, one := range slices.Concat(s.OneOf, s.AnyOf) {
		of = append(of, typeOf(one))
	}
	return cmp.Or(strings.Join(of, " or "), "any")
}

func operationPage(api *huma.OpenAPI, o *docsOperation, tag string) docs.Guide {
	var d docText
	d.add("# %s\n\n", prose(o.Summary))
	request := o.Method + " " + o.Path
	d.add("`%s`\n\n", request)
	d.paragraph(prose(o.Description))
	d.add("Operation `%s`. Access: [`%v`](/docs#access).\n\n", o.OperationID, o.Extensions["x-auth"])
	var rows [][]string
	for _, p := range o.Parameters {
		about := cmp.Or(p.Description, p.Schema.Description)
		if ref := p.Schema.Ref; ref != "" && about == "" {
			about = typeOf(p.Schema)
		} else {
			about = prose(about)
		}
		if p.Example != nil {
			about += fmt.Sprintf(" Example: `%v`", p.Example)
		}
		name := "`" + p.Name + "`"
		if p.Required {
			name += ` \*`
		}
		rows = append(rows, []string{name, p.In, strings.TrimSpace(about)})
	}
	if len(rows) > 0 {
		d.paragraph("## Parameters")
		d.table([]string{"Name", "In", "Description"}, rows)
	}
	if o.RequestBody != nil {
		d.paragraph("## Body")
		d.body(api, o.RequestBody.Content)
	}
	if samples := samplesOf(api, o); len(samples) > 0 {
		d.paragraph("## Example request")
		for _, s := range samples {
			d.add("### %s\n\n", s.name)
			d.code(s.language, s.text)
		}
	}
	rows = nil
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		res := o.Responses[status]
		if status < "400" || len(knownIn(res.Description)) == 0 {
			d.add("## Response %s\n\n", status)
			d.body(api, res.Content)
			continue
		}
		for _, c := range knownIn(res.Description) {
			rows = append(rows, []string{status, codeLink(c), escapeText(c.Info().Message), escapeText(c.Info().Hint)})
		}
	}
	if len(rows) > 0 {
		d.paragraph("## Errors")
		d.table([]string{"Status", "Code", "Message", "Next step"}, rows)
	}
	page := docs.Reference(pathOperations+o.OperationID, tag, d.Bytes(), false)
	page.Sections = []docs.Section{{Heading: o.OperationID, Text: request + ". " + o.Description}}
	return page
}

// knownIn returns the codes that the description of a response lists.
func knownIn(description string) (codes []toll.Code) {
	for c := range strings.SplitSeq(description, ", ") {
		if knownCodes()[toll.Code(c)] {
			codes = append(codes, toll.Code(c))
		}
	}
	return codes
}

// body describes the content of a request or a response, with its example.
func (d *docText) body(api *huma.OpenAPI, content map[string]*huma.MediaType) {
	for _, media := range slices.Sorted(maps.Keys(content)) {
		m := content[media]
		if media != "application/json" {
			d.paragraph("As `" + media + "`. " + prose(m.Schema.Description))
			continue
		}
		if m.Schema.Ref != "" {
			d.paragraph(typeOf(m.Schema))
		}
		d.schema(resolved(api, m.Schema))
		if raw, ok := m.Example.(json.RawMessage); ok {
			d.code("json", indented(raw))
		}
	}
}

// resolved returns a schema, or the schema to which it refers.
func resolved(api *huma.OpenAPI, s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		return api.Components.Schemas.Map()[strings.TrimPrefix(s.Ref, schemaPrefix)]
	}
	return s
}

func indented(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		panic(err) // the examples are part of the program
	}
	return b.String()
}
