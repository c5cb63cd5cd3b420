package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"html"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
)

// The document of the repository is the one that the service serves.
func TestOpenAPI_Document(t *testing.T) {
	s := newStack(t)
	compareGolden(t, filepath.Join("..", "..", "docs", "openapi.json"), s.do(actor{}, "GET", "/openapi.json", "").body)
}

// The document and the route table name the same operations.
func TestDocumentNamesEveryRoute(t *testing.T) {
	s := newStack(t)
	documented := s.operations(t)
	routes := api.Routes()
	for _, r := range routes {
		if !slices.Contains(documented, operation{r.Operation, r.Method, r.Path}) {
			t.Errorf("%s %s (%s) is not documented", r.Method, r.Path, r.Operation)
		}
	}
	for _, o := range documented {
		if !slices.ContainsFunc(routes, func(r api.RouteInfo) bool { return r.Operation == o.id && r.Method == o.method && r.Path == o.path }) {
			t.Errorf("%s %s (%s) is documented and no route", o.method, o.path, o.id)
		}
	}
	seen := map[string]bool{}
	for _, o := range documented {
		if seen[o.id] {
			t.Errorf("the operation id %s is there twice", o.id)
		}
		seen[o.id] = true
	}
}

// Whatever the golden exchanges answer fits the schema of its status, and no member of it is missing there.
func TestAnswersFitTheDocument(t *testing.T) {
	doc := document(t)
	files := must.Get(filepath.Glob(filepath.Join("..", "..", "testdata", "wire", "1.1", "*.json")))(t)
	checked := 0
	for _, file := range files {
		op := strings.TrimSuffix(filepath.Base(file), ".json")
		responses := doc.responses(op)
		if responses == nil {
			continue // a record of the root package
		}
		raw := must.Get(os.ReadFile(file))(t)
		var exchanges []exchange
		must.Do(t, json.Unmarshal(raw, &exchanges))
		for _, e := range exchanges {
			response, ok := responses[e.Response.Line].(map[string]any)
			if !ok {
				if e.Response.Line != "405" { // goes without saying
					t.Errorf("%s: %s answers %s, which is not documented", op, e.Request.Line, e.Response.Line)
				}
				continue
			}
			if e.Response.Body == nil {
				continue // no JSON
			}
			content, _ := response["content"].(map[string]any)
			media, _ := content["application/json"].(map[string]any)
			for _, fault := range doc.check(media["schema"], decodeAny(t, e.Response.Body), op+" "+e.Response.Line) {
				t.Error(fault)
			}
			record, _ := decodeAny(t, e.Response.Body).(map[string]any)
			if code, _ := record["code"].(string); code != "" && e.Response.Line >= "400" {
				if description, _ := response["description"].(string); !strings.Contains(description, code) {
					t.Errorf("%s: %s is not among the documented codes of %s: %s", op, code, e.Response.Line, description)
				}
			}
			checked++
		}
	}
	if checked < 80 {
		t.Errorf("only %d answers were checked", checked)
	}
}

// Bodies that are taken fit the schema of the request.
func TestRequestsFitTheDocument(t *testing.T) {
	doc := document(t)
	files := must.Get(filepath.Glob(filepath.Join("..", "..", "testdata", "wire", "1.1", "*.json")))(t)
	for _, file := range files {
		op := strings.TrimSuffix(filepath.Base(file), ".json")
		if doc.responses(op) == nil {
			continue
		}
		raw := must.Get(os.ReadFile(file))(t)
		var exchanges []exchange
		must.Do(t, json.Unmarshal(raw, &exchanges))
		for _, e := range exchanges {
			if e.Request.Body == nil || e.Response.Line >= "300" {
				continue
			}
			schema := doc.request(op)
			if schema == nil {
				t.Errorf("%s takes a body and documents none", op)
				continue
			}
			for _, fault := range doc.check(schema, decodeAny(t, e.Request.Body), op+" request") {
				// Names of golden files stand for values; requests may also use other forms than the schema's and old names.
				if !strings.Contains(fault, "does not match") && !strings.Contains(fault, "proofRequired") && !strings.Contains(fault, "is not of type") {
					t.Error(fault)
				}
			}
		}
	}
}

// Every operation is described, with an example request and an example answer, which fit the document.
func TestDocumentHasExamples(t *testing.T) {
	doc := document(t)
	object := func(v any, names ...string) map[string]any {
		for _, name := range names {
			m, _ := v.(map[string]any)
			v = m[name]
		}
		m, _ := v.(map[string]any)
		return m
	}
	for _, r := range api.Routes() {
		op := doc.operation(r.Operation)
		if text, _ := op["description"].(string); len(text) < 30 {
			t.Errorf("%s is not described: %q", r.Operation, text)
		}
		samples, _ := op["x-codeSamples"].([]any)
		if len(samples) != 1 || !strings.Contains(object(samples[0])["source"].(string), "$TOLL_URL/") {
			t.Errorf("%s has no example request", r.Operation)
		}
		parameters, _ := op["parameters"].([]any)
		for _, p := range parameters {
			if p := object(p); p["in"] == "path" && (p["example"] == nil || strings.ContainsAny(p["example"].(string), "{}")) {
				t.Errorf("%s has no example of %s", r.Operation, p["name"])
			}
		}
		if media := object(op, "requestBody", "content", "application/json"); media != nil {
			if media["example"] == nil {
				t.Errorf("%s has no example of its body", r.Operation)
			}
			for _, fault := range doc.check(media["schema"], decodeAny(t, mustJSON(media["example"])), r.Operation+" request") {
				if !strings.Contains(fault, "is not of type") { // a request may send numbers in other forms
					t.Error(fault)
				}
			}
		}
		answered := false
		for status, response := range doc.responses(r.Operation) {
			for media, content := range object(response, "content") {
				content := object(content)
				if content["example"] == nil {
					continue
				}
				answered = true
				if media != "application/json" || r.Operation == "readOpenAPI" { // any object
					continue
				}
				for _, fault := range doc.check(content["schema"], decodeAny(t, mustJSON(content["example"])), r.Operation+" "+status) {
					t.Error(fault)
				}
			}
		}
		if !answered {
			t.Errorf("%s has no example of its answer", r.Operation)
		}
	}
}

type openAPI map[string]any

func document(t *testing.T) openAPI {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "openapi.json")))(t)
	var doc openAPI
	must.Do(t, json.Unmarshal(raw, &doc))
	return doc
}

func (d openAPI) operation(id string) map[string]any {
	for _, item := range d["paths"].(map[string]any) {
		for _, op := range item.(map[string]any) {
			if o := op.(map[string]any); o["operationId"] == id {
				return o
			}
		}
	}
	return nil
}

func (d openAPI) responses(id string) map[string]any {
	r, _ := d.operation(id)["responses"].(map[string]any)
	return r
}

func (d openAPI) request(id string) any {
	body, _ := d.operation(id)["requestBody"].(map[string]any)
	content, _ := body["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	return media["schema"]
}

func decodeAny(t *testing.T, raw []byte) (v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	must.Do(t, dec.Decode(&v))
	return v
}

// check is as much of JSON Schema as the document uses, and stricter in two things: a member must be in the schema, and a value of an
// extensible enumeration must be in it.
func (d openAPI) check(schema, v any, path string) (faults []string) {
	s, ok := schema.(map[string]any)
	if !ok || len(s) == 0 {
		if !ok {
			return []string{path + ": no schema"}
		}
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, "#/components/schemas/")
		return d.check(d["components"].(map[string]any)["schemas"].(map[string]any)[name], v, path)
	}
	for _, several := range []string{"oneOf", "anyOf"} {
		if of, ok := s[several].([]any); ok {
			var nearest []string
			for _, one := range of {
				f := d.check(one, v, path)
				if len(f) == 0 {
					return nil
				}
				if nearest == nil || len(f) < len(nearest) {
					nearest = f
				}
			}
			return nearest
		}
	}
	if !hasType(s["type"], v) {
		return []string{path + ": " + strings.TrimSpace(string(mustJSON(v))) + " is not of type " + string(mustJSON(s["type"]))}
	}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				faults = append(faults, path+": no "+name.(string))
			}
		}
		for name, member := range v {
			if p, ok := properties[name]; ok {
				faults = append(faults, d.check(p, member, path+"."+name)...)
			} else if more, ok := s["additionalProperties"].(map[string]any); ok {
				faults = append(faults, d.check(more, member, path+"."+name)...)
			} else if s["additionalProperties"] != true {
				faults = append(faults, path+"."+name+" is not documented")
			}
		}
	case []any:
		for _, item := range v {
			faults = append(faults, d.check(s["items"], item, path+"[]")...)
		}
	case string:
		if pattern, ok := s["pattern"].(string); ok && !strings.HasPrefix(v, "<") && !regexp.MustCompile(pattern).MatchString(v) {
			faults = append(faults, path+": "+v+" does not match "+pattern)
		}
		enum, ok := s["enum"].([]any)
		if !ok {
			enum, ok = s["x-extensible-enum"].([]any)
			ok = ok && !strings.HasPrefix(v, "0x") // the address of a token is a currency
		}
		if ok && !slices.Contains(enum, any(v)) {
			faults = append(faults, path+": "+v+" is not in the enumeration")
		}
	}
	return faults
}

func hasType(want, v any) bool {
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return hasType(one, v) })
	}
	switch v := v.(type) {
	case nil:
		return want == "null"
	case bool:
		return want == "boolean"
	case string:
		return want == "string"
	case json.Number:
		return want == "number" || want == "integer" && !strings.ContainsAny(v.String(), ".eE")
	case []any:
		return want == "array"
	}
	return want == "object"
}

func mustJSON(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// Every code has its row on the page that docsUrl points to, and the pages need nothing from elsewhere.
func TestPages(t *testing.T) {
	s := newStack(t)
	docs, errors := s.do(actor{}, "GET", "/docs", ""), s.do(actor{}, "GET", "/docs/errors", "")
	tag := regexp.MustCompile(`<[^>]*>`)
	for _, c := range toll.Codes() {
		anchor := `<tr id="` + strings.ToLower(strings.ReplaceAll(string(c.Code), ".", "-")) + `">`
		_, after, found := strings.Cut(string(errors.body), anchor)
		if !found {
			t.Errorf("%s has no row", c.Code)
		}
		row, _, _ := strings.Cut(after, "</tr>")
		var cells []string
		for _, cell := range strings.Split(row, "</td>") {
			cells = append(cells, strings.TrimSpace(html.UnescapeString(tag.ReplaceAllString(cell, ""))))
		}
		for _, text := range []string{string(c.Code), strconv.Itoa(c.Status), c.Message, c.Hint} {
			if !slices.Contains(cells, text) {
				t.Errorf("the row of %s does not say: %s", c.Code, text)
			}
		}
	}
	for _, r := range api.Routes() {
		if !strings.Contains(string(docs.body), `id="`+r.Operation+`"`) {
			t.Errorf("%s is not on the page", r.Operation)
		}
	}
	for _, a := range []answer{docs, errors} {
		if a.status != 200 || a.header.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(a.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%d %v", a.status, a.header)
		}
		for _, outside := range []string{"http://", "https://", "<script", "src=", "@import", "url("} {
			if strings.Contains(strings.ToLower(string(a.body)), outside) && !(outside == "https://" && strings.Contains(string(a.body), "https://...")) {
				t.Errorf("a page needs something from elsewhere: %s", outside)
			}
		}
	}
}

// TestDocuments_Compressed: documents leave compressed where the client takes that, and are the same then. None is over 120 KB on the wire.
func TestDocuments_Compressed(t *testing.T) {
	s := newStack(t)
	for _, path := range []string{"/docs", "/docs.md", "/docs/errors", "/docs/records", "/docs/api/verify", "/docs/paying", "/docs/paying.md", "/llms.txt", "/openapi.json"} {
		plain := s.do(actor{}, "GET", path, "", "Accept-Encoding", "gzip;q=0")
		small := s.do(actor{}, "GET", path, "", "Accept-Encoding", "br, gzip")
		if plain.header.Get("Content-Encoding") != "" || small.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %q, and %q with gzip", path, plain.header.Get("Content-Encoding"), small.header.Get("Content-Encoding"))
			continue
		}
		for _, a := range []answer{plain, small} {
			if !strings.Contains(strings.Join(a.header.Values("Vary"), ","), "Accept-Encoding") || a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) && len(a.body) > 2048 {
				t.Errorf("%s: %v", path, a.header)
			}
		}
		z := must.Get(gzip.NewReader(bytes.NewReader(small.body)))(t)
		body := must.Get(io.ReadAll(z))(t)
		if !bytes.Equal(body, plain.body) || len(small.body) > 120<<10 {
			t.Errorf("%s: %d bytes of %d, compressed %d", path, len(body), len(plain.body), len(small.body))
		}
		t.Logf("%s: %d bytes, compressed %d", path, len(plain.body), len(small.body))
	}
}

// TestGuides: guides have pages and Markdown, and the search finds guides, calls and codes.
func TestGuides(t *testing.T) {
	s := newStack(t)
	for path, want := range map[string]string{
		"/docs/paying": "<h1>Call a paid agent</h1>", "/docs/paying.md": "# Call a paid agent", "/llms.txt": "(/docs/paying.md)",
		"/docs/search?q=access+token": "/docs/paying#the-access-token", "/docs/search?q=registerPlan": "/docs/api/registerPlan",
		"/docs/search?q=BCK.HTTP.404": "/docs/errors#bck-http-404", "/docs/search?q=%3Cscript%3E": "&lt;script&gt;",
		"/docs/search?q=" + strings.Repeat("%C3%A4", 300): "No page contains all", "/docs/search": "Enter words to search for",
	} {
		a := s.do(actor{}, "GET", path, "")
		if a.status != 200 || !strings.Contains(string(a.body), want) || strings.Contains(string(a.body), "<script") {
			t.Errorf("%s: %d, no %q in %.300s", path, a.status, want, a.body)
		}
		if p := a.header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") {
			t.Errorf("%s: policy %s", path, p)
		}
	}
	for _, path := range []string{"/docs/none", "/docs/none.md", "/docs/NONE.md", "/docs/..%2fgo", "/docs/paying%20dark", "/docs/api", "/docs/api/none", "/docs/api/none.md", "/docs/api/registerplan", "/docs/api/readPlan/x"} {
		if a := s.do(actor{}, "GET", path, ""); a.status != 404 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

// TestGuides_FileNames: the names of the files in the repository are names of the pages too, and slashes count as for every other path.
func TestGuides_FileNames(t *testing.T) {
	s := newStack(t)
	for path, same := range map[string]string{
		"/docs/SELL.md": "/docs/sell.md", "/docs/SELL": "/docs/sell", "/docs/sell/": "/docs/sell", "//docs//sell": "/docs/sell", "//docs//api//readPlan/": "/docs/api/readPlan",
	} {
		want := s.do(actor{}, "GET", same, "")
		if a := s.do(actor{}, "GET", path, ""); a.status != 200 || !bytes.Equal(a.body, want.body) {
			t.Errorf("%s: %d %.100s", path, a.status, a.body)
		}
	}
}

// TestFrontPage: a browser goes on from the address of the service to its pages; programs get JSON.
func TestFrontPage(t *testing.T) {
	s := newStack(t)
	for accept, want := range map[string]int{"text/html,*/*;q=0.8": 303, "*/*": 200, "application/json, text/html": 200, "": 200} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		api.New(s.deps(nil)).ServeHTTP(w, req)
		if to := w.Header().Get("Location"); w.Code != want || want == 303 && to != "/explore" {
			t.Errorf("%q: %d to %q", accept, w.Code, to)
		}
	}
}
