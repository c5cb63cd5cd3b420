package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// sample is an example of a call in a language.
type sample struct{ name, language, text string }

// samplesOf returns the example request of an operation for the shell and for both SDKs.
func samplesOf(api *huma.OpenAPI, o *docsOperation) []sample {
	if o.Deprecated {
		return nil
	}
	c := newSampleCall(api, o)
	return []sample{
		{"curl", "sh", c.curl()},
		{"TypeScript", "ts", c.typescript()},
		{"Python", "python", c.python()},
	}
}

// methodFile has the methods of the SDKs, by operation id. The first word of a method is its name, with an asterisk if it returns a list to
// iterate over. The other words are its arguments: a part of the path or of the query, a member of the body, "body" for the whole body,
// "rest" for the members that no other argument has. NAME= before an argument makes it a keyword argument, # a number, ? a boolean.
//
//go:embed docs_samples.json
var methodFile []byte

type sdkMethod struct{ TypeScript, Python []string }

var sdkMethods = sync.OnceValue(func() (methods map[string]sdkMethod) {
	if err := json.Unmarshal(methodFile, &methods); err != nil {
		panic(err) // the file is part of the program
	}
	return methods
})

// sampleCall is the example request of an operation.
type sampleCall struct {
	*docsOperation
	api    *huma.OpenAPI
	shell  string // the command of the OpenAPI document
	path   string // with the values of parameters
	query  url.Values
	values map[string]string // of parameters
	body   json.RawMessage   // nil: none
	schema *huma.Schema      // of body
}

func newSampleCall(api *huma.OpenAPI, o *docsOperation) *sampleCall {
	c := &sampleCall{docsOperation: o, api: api, path: o.Path, query: url.Values{}, values: map[string]string{}}
	c.shell = o.Extensions["x-codeSamples"].([]map[string]string)[0]["source"]
	for _, p := range o.Parameters {
		value, ok := p.Example.(string)
		switch {
		case !ok:
			continue
		case p.In == "path":
			c.path = strings.ReplaceAll(c.path, "{"+p.Name+"}", value)
		case p.In == "query":
			c.query.Set(p.Name, value)
		}
		c.values[p.Name] = value
	}
	if o.RequestBody != nil {
		m := o.RequestBody.Content["application/json"]
		c.body, _ = m.Example.(json.RawMessage)
		c.schema = m.Schema
	}
	return c
}

func (c *sampleCall) curl() string {
	body := strings.ReplaceAll(indented(orEmpty(c.body)), "'", `'\''`)
	return strings.ReplaceAll(c.shell, " -d @request.json", " -d '"+body+"'")
}

func orEmpty(body json.RawMessage) json.RawMessage {
	if body == nil {
		return json.RawMessage("{}")
	}
	return body
}

// toPage reports whether the response is not JSON, which the SDKs do not read.
func (c *sampleCall) toPage() bool {
	return c.Responses["200"] != nil && c.Responses["200"].Content["text/html"] != nil
}

func (c *sampleCall) typescript() string {
	if c.toPage() {
		return "const response = await fetch(`${process.env.TOLL_URL}" + c.path + "`);\nconsole.log(await response.text());"
	}
	head := "import { Toll } from \"@tollhq/toll\";\n\nconst toll = new Toll(); // TOLL_URL and TOLL_API_KEY\n"
	if c.OperationID == "signUp" || c.OperationID == "signIn" {
		head = strings.Replace(head, "(); // TOLL_URL and TOLL_API_KEY", "({ apiKey: null }); // TOLL_URL", 1)
	}
	if name, args, ok := c.arguments(sdkMethods()[c.OperationID].TypeScript, typescript); ok {
		call := "toll." + strings.TrimPrefix(name, "*") + inCall(args)
		if name[0] == '*' {
			return head + "for await (const item of " + call + ") console.log(item);"
		}
		return head + "const result = await " + call + ";"
	}
	var options []string
	if len(c.query) > 0 {
		query, _ := json.Marshal(flat(c.query)) // cannot fail
		options = append(options, "query: "+typescript.literal(c.api, query, nil, ""))
	}
	if c.body != nil {
		options = append(options, "body: "+typescript.literal(c.api, c.body, nil, ""))
	}
	more := ""
	if len(options) > 0 {
		more = ", { " + strings.Join(options, ", ") + " }"
	}
	return head + "const result = await toll.request(\"" + c.Method + "\", \"" + c.path + "\"" + more + ");"
}

func (c *sampleCall) python() string {
	if c.toPage() {
		return "import os\n\nimport httpx\n\nprint(httpx.get(os.environ[\"TOLL_URL\"] + \"" + c.path + "\").text)"
	}
	head := "from toll import Toll\n\ntoll = Toll()  # TOLL_URL and TOLL_API_KEY\n"
	if name, args, ok := c.arguments(sdkMethods()[c.OperationID].Python, python); ok {
		call := "toll." + strings.TrimPrefix(name, "*") + inCall(args)
		if name[0] == '*' {
			return head + "for item in " + call + ":\n    print(item)"
		}
		if strings.Contains(call, "Decimal(") {
			head = "from decimal import Decimal\n\n" + head
		}
		return head + "result = " + call
	}
	args := `"` + c.Method + `", "` + c.path + `"`
	if len(c.query) > 0 {
		query, _ := json.Marshal(flat(c.query)) // cannot fail
		args += ", query=" + python.literal(c.api, query, nil, "")
	}
	if c.body != nil {
		args += ", body=" + python.literal(c.api, c.body, nil, "")
	}
	return head + "result = toll.request(" + args + ").json()"
}

// inCall returns the arguments of a call, each on its own line if several do not fit on one line.
func inCall(args []string) string {
	if len(args) < 2 {
		return "(" + strings.Join(args, "") + ")"
	}
	text := lines("(", ")", "", args, "")
	if strings.HasPrefix(text, "(\n") {
		deeper := make([]string, len(args))
		for i, a := range args {
			deeper[i] = strings.ReplaceAll(a, "\n", "\n  ")
		}
		return lines("(", ")", "", deeper, "")
	}
	return text
}

func flat(query url.Values) map[string]string {
	out := map[string]string{}
	for name := range query {
		out[name] = query.Get(name)
	}
	return out
}

// arguments returns the name of a method and its arguments for the example. ok is false for an operation without a method, and for an
// example that the arguments cannot express.
func (c *sampleCall) arguments(method []string, l language) (name string, args []string, ok bool) {
	if len(method) == 0 {
		return "", nil, false
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(orEmpty(c.body), &members) // not an object: then an argument takes the whole body
	schema := resolved(c.api, orAny(c.schema))
	for _, arg := range method[1:] {
		keyword, source, has := strings.Cut(arg, "=")
		if !has {
			keyword, source = "", arg
		}
		mark := source[:1]
		source = strings.TrimLeft(source, "#?")
		var text string
		member, inBody := members[source]
		value, inPath := c.values[source]
		switch {
		case source == "body" && c.body != nil:
			text, members = l.literal(c.api, c.body, c.schema, ""), nil
		case source == "rest" && len(members) > 0:
			rest, _ := json.Marshal(members) // was JSON before
			text, members = l.literal(c.api, rest, nil, ""), nil
		case inBody:
			text = l.literal(c.api, member, schema.Properties[source], "")
			delete(members, source)
		case inPath && mark == "?":
			text = l.words[value]
		case inPath:
			quoted, _ := json.Marshal(value) // cannot fail
			text = string(quoted)
		case keyword != "" || source == "body" || source == "rest":
			continue // optional
		default:
			return "", nil, false
		}
		if mark == "#" {
			text = strings.Trim(text, `"`)
		}
		if keyword != "" {
			text = keyword + "=" + text
		}
		args = append(args, text)
	}
	return method[0], args, len(members) == 0
}

func orAny(s *huma.Schema) *huma.Schema {
	if s == nil {
		return &huma.Schema{}
	}
	return s
}

// language writes values of JSON.
type language struct {
	words    map[string]string // true, false, and null
	bare     *regexp.Regexp    // names of members without quotes; nil: none
	spaced   bool              // within the braces of a short object
	amount   string            // follows an amount, which is a number; "": amounts are strings, as in JSON
	fraction string            // format of a number with a fraction; "": as in JSON
}

var (
	typescript = language{
		words: map[string]string{"true": "true", "false": "false", "null": "null"}, bare: regexp.MustCompile(`^[A-Za-z_$][\w$]*$`), spaced: true, amount: "n",
	}
	python = language{words: map[string]string{"true": "True", "false": "False", "null": "None"}, fraction: `Decimal("%s")`}
)

// decimals are the patterns of amounts: credits, base units, cents, and seconds. The TypeScript SDK takes them as bigint.
var decimals = regexp.MustCompile(`^\^\(0\|\[1-9\]\[0-9\](\*|\{0,\d+\})\)\$$`)

// widest bounds an object or a list on one line, in characters.
const widest = 72

// literal returns a value of JSON, which the schema describes if it is known.
func (l language) literal(api *huma.OpenAPI, raw json.RawMessage, s *huma.Schema, indent string) string {
	s = resolved(api, orAny(s))
	raw = bytes.TrimSpace(raw)
	deeper := indent + "  "
	switch raw[0] {
	case '{':
		var parts []string
		d := json.NewDecoder(bytes.NewReader(raw))
		_, _ = d.Token() // the brace; the examples are valid
		for d.More() {
			name, _ := d.Token()
			var value json.RawMessage
			_ = d.Decode(&value)
			text, _ := name.(string)
			of := s.Properties[text]
			if l.bare == nil || !l.bare.MatchString(text) {
				text = `"` + text + `"`
			}
			parts = append(parts, text+": "+l.literal(api, value, of, deeper))
		}
		if l.spaced {
			return lines("{", "}", " ", parts, indent)
		}
		return lines("{", "}", "", parts, indent)
	case '[':
		var values []json.RawMessage
		_ = json.Unmarshal(raw, &values)
		var parts []string
		for _, v := range values {
			parts = append(parts, l.literal(api, v, s.Items, deeper))
		}
		return lines("[", "]", "", parts, indent)
	case 't', 'f', 'n':
		return l.words[string(raw)]
	}
	if l.fraction != "" && bytes.ContainsAny(raw, ".") && raw[0] != '"' {
		return fmt.Sprintf(l.fraction, raw)
	}
	if l.amount != "" && decimals.MatchString(s.Pattern) {
		return strings.Trim(string(raw), `"`) + l.amount
	}
	return string(raw)
}

// lines returns parts between brackets, each on its own line if one line would be too long.
func lines(opening, closing, space string, parts []string, indent string) string {
	short := opening + space + strings.Join(parts, ", ") + space + closing
	switch {
	case len(parts) == 0:
		return opening + closing
	case len(indent)+len(short) <= widest && !slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(p, "\n") }):
		return short
	}
	return opening + "\n" + indent + "  " + strings.Join(parts, ",\n"+indent+"  ") + ",\n" + indent + closing
}
