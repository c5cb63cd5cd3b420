package gate_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"

	"github.com/tollhq/toll/internal/gate"
	"github.com/tollhq/toll/internal/must"
)

const sold = "plan: Pro\nroutes:\n"

const begun = "plan: Pro\nupstreams: { a: { url: \"http://127.0.0.1:1\" } }\nroutes:\n"

// TestConfig: what the schema refuses, Parse refuses too, with a message that names the member.
func TestConfig(t *testing.T) {
	resolved := schema(t)
	secret := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(secret, []byte("key\n"), 0o600))
	for name, c := range map[string]struct {
		text   string
		says   string // "" for a good configuration
		schema bool   // the schema refuses it too
	}{
		"search":                  {"plan: Pro\n" + strings.ReplaceAll(search, "UPSTREAM", "http://127.0.0.1:1"), "", false},
		"models":                  {"plan: Pro\n" + strings.ReplaceAll(models, "UPSTREAM", "http://127.0.0.1:1"), "", false},
		"secret":                  {strings.Replace(begun, "} }", ", headers: { x-key: \"${file:"+secret+"}\" } } }", 1) + "  - { match: GET /a, credits: 1 }", "", false},
		"empty":                   {"", "is empty", true},
		"no plan":                 {strings.TrimPrefix(begun, "plan: Pro\n") + "  - { match: GET /a, credits: 1 }", "plan is missing", true},
		"unknown member":          {begun + "  - { match: GET /a, credits: 1, prise: 2 }", "line 4: unknown member prise", true},
		"no price":                {begun + "  - { match: GET /a }", "routes[0] (GET /a): price is missing", true},
		"two prices":              {begun + "  - { match: GET /a, credits: 1, price: [ { base: 1 } ] }", "exclude each other", true},
		"free with a price":       {begun + "  - { match: GET /a, free: true, credits: 1 }", "a free route has no price", true},
		"negative":                {begun + "  - { match: GET /a, credits: -1 }", "credits must be", true},
		"fraction":                {begun + "  - { match: GET /a, price: [ { base: 0.5 } ] }", "whole number", true},
		"unknown quantity":        {begun + "  - { match: GET /a, price: [ { base: 1, results: 2 } ] }", "results", false},
		"unknown upstream":        {begun + "  - { match: GET /a, upstream: b, credits: 1 }", "upstream must be", false},
		"unknown preset":          {begun + "  - { match: GET /a, preset: b, price: [ { base: 1 } ] }", "preset must be", true},
		"operation":               {begun + "  - { match: GET /a, preset: openai, price: [ { input: 1 } ] }", "no operation", false},
		"omit":                    {begun + "  - { match: POST /v1/chat/completions, preset: openai, omit: [store, stream_options], price: [ { input: 1 } ] }", "", false},
		"omit the input":          {begun + "  - { match: POST /v1/chat/completions, preset: openai, omit: [messages], price: [ { input: 1 } ] }", "omit must list members", true},
		"omit a stranger":         {begun + "  - { match: POST /v1/responses, preset: openai, omit: [stream_options], price: [ { input: 1 } ] }", "omit must list members", false},
		"omit without a preset":   {begun + "  - { match: POST /a, omit: [store], credits: 1 }", "omit must list members", false},
		"twice":                   {begun + "  - { match: GET /a, credits: 1 }\n  - { match: GET /a, credits: 1 }", "already used", false},
		"URL":                     {strings.Replace(begun, "http:", "ftp:", 1) + "  - { match: GET /a, credits: 1 }", "upstreams.a.url", true},
		"no such file":            {strings.Replace(begun, "} }", ", headers: { x-key: \"${file:/no/such}\" } } }", 1) + "  - { match: GET /a, credits: 1 }", "/no/such", false},
		"two documents":           {begun + "  - { match: GET /a, credits: 1 }\n---\nplan: b\n", "one YAML document", false},
		"duplicate":               {begun + "  - { match: GET /a, credits: 1 }\nplan: b\n", "already defined", false},
		"meter without a place":   {begun + "  - { match: GET /a, credits: 1 }\nmeters: { m: { results: {} } }\n", "meters.m.results: set exactly one", true},
		"meter, a known name":     {begun + "  - { match: GET /a, credits: 1 }\nmeters: { m: { input: { header: x } } }\n", "input", false},
		"tokens without a preset": {begun + "  - { match: GET /a, price: [ { input: 1 } ] }", "need a preset", false},
		"above without a preset":  {begun + "  - { match: GET /a, price: [ { base: 1, above: { input: 1, rates: { output: 2 } } } ] }", "need a preset", false},
		"no upstreams":            {sold + "  - { match: GET /a, credits: 1 }", "upstreams is missing", true},
		"tools":                   {toolsOfServer, "", false},
		"tools, a URL":            {strings.Replace(begun, "http:", "https:", 1) + "  - { match: tools/a, credits: 1, upstream: a }", "", false},
		"two servers":             {strings.Replace(begun, "} }", "}, b: { url: \"http://127.0.0.1:1\" } }", 1) + "  - { match: tools/a, credits: 1 }", "one MCP server at most", false},
		"tools and routes":        {begun + "  - { match: tools/a, credits: 1 }\n  - { match: GET /a, credits: 1 }", "match must be an item", false},
		"routes and tools":        {begun + "  - { match: GET /a, credits: 1 }\n  - { match: tools/a, credits: 1 }", "tools/a", false},
		"another type":            {sold + "  - { match: tool/a, credits: 1 }", "upstreams is missing", true},
		"no name":                 {sold + "  - { match: tools/, credits: 1 }", "upstreams is missing", true},
		"a tool twice":            {sold + "  - { match: tools/a, credits: 1 }\n  - { match: tools/a, credits: 2 }", `"tools/a" is already used`, false},
		"a tool without a price":  {sold + "  - { match: tools/a }", "price is missing", true},
		"a resource with a table": {sold + "  - { match: \"resources/file:///a\", price: [ { base: 1 } ] }", "only tools can have a price table", false},
		"a tool with a preset":    {sold + "  - { match: tools/a, preset: openai, price: [ { base: 1 } ] }", "no operation", false},
		"a tool with a header":    {sold + "  - { match: tools/a, meter: m, price: [ { n: 1 } ] }\nmeters: { m: { n: { header: x } } }", "meters.m.n: a tool has no headers", false},
		"a tool and limits":       {sold + "  - { match: tools/a, credits: 1 }\nlimits: { concurrent: 1 }", "apply only to HTTP routes", false},
		"a tool and TLS":          {sold + "  - { match: tools/a, credits: 1 }\ntls: { cert: a, key: b }", "apply only to HTTP routes", false},
		"a tool and a timeout":    {strings.Replace(begun, "\" }", "\", timeout: 1s }", 1) + "  - { match: tools/a, credits: 1 }", "apply only to HTTP routes", false},
		"per call, of a table":    {sold + "  - { match: tools/a, per_call: 0.02 USDC, price: [ { base: 1 } ] }", "on a route with credits", false},
		"per call, of a free one": {sold + "  - { match: tools/a, per_call: 0.02 USDC, free: true }", "on a route with credits", false},
		"per call, in dollars":    {sold + "  - { match: tools/a, credits: 1, per_call: 0.02 USD }", "USDC or EURC", true},
		"per call, 7 decimals":    {sold + "  - { match: tools/a, credits: 1, per_call: 0.0000001 USDC }", "at most 6 decimals", false},
	} {
		_, err := gate.Parse([]byte(c.text))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
		var v any
		if yaml.Unmarshal([]byte(c.text), &v) != nil {
			continue
		}
		if err := resolved.Validate(jsonOf(t, v)); (err != nil) != c.schema {
			t.Errorf("%s: the schema says %v", name, err)
		}
	}
}

func schema(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	s := &jsonschema.Schema{}
	must.Do(t, json.Unmarshal([]byte(gate.Schema), s))
	return must.Get(s.Resolve(nil))(t)
}

func jsonOf(t *testing.T, v any) (out any) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(v))(t), &out))
	return out
}

// TestSchemaNamesEveryMember compares the schema with the members that Parse knows.
func TestSchemaNamesEveryMember(t *testing.T) {
	var s struct {
		Properties map[string]any `json:"properties"`
	}
	must.Do(t, json.Unmarshal([]byte(gate.Schema), &s))
	text := must.Get(yaml.Marshal(gate.Config{}))(t)
	var known map[string]any
	must.Do(t, yaml.Unmarshal(text, &known))
	for name := range known {
		if s.Properties[name] == nil {
			t.Errorf("the schema lacks %s", name)
		}
	}
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) != len(known) {
		t.Errorf("the schema has %v", names)
	}
}
