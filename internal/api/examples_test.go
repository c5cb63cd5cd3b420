package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tollhq/toll/internal/must"
)

var pointer = regexp.MustCompile(`#/\$defs/([^"]+)`)

// Every example of a body in docs/openapi.json is valid under its schema: generators of clients and mock servers use both.
func TestOpenAPI_ExamplesAreValid(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "openapi.json")))(t)
	type media map[string]struct {
		Schema  json.RawMessage `json:"schema"`
		Example any             `json:"example"`
	}
	var document struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
		// A schema of the document refers to the others by pointers below #/components/schemas.
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	must.Do(t, json.Unmarshal([]byte(strings.ReplaceAll(string(text), "#/components/schemas/", "#/$defs/")), &document))
	resolved := map[string]*jsonschema.Resolved{}
	schemaOf := func(schema json.RawMessage) *jsonschema.Resolved {
		if r := resolved[string(schema)]; r != nil {
			return r
		}
		var whole map[string]any
		must.Do(t, json.Unmarshal(schema, &whole))
		used := map[string]json.RawMessage{} // all schemas of the document would take a minute
		for next := [][]byte{schema}; len(next) > 0; next = next[1:] {
			for _, found := range pointer.FindAllSubmatch(next[0], -1) {
				name := string(found[1])
				if _, known := used[name]; !known {
					used[name] = document.Components.Schemas[name]
					next = append(next, used[name])
				}
			}
		}
		whole["$defs"] = used
		joined := must.Get(json.Marshal(whole))(t)
		var s jsonschema.Schema
		must.Do(t, json.Unmarshal(joined, &s), schema)
		r, err := s.Resolve(nil)
		must.Do(t, err, schema)
		resolved[string(schema)] = r
		return r
	}
	n := 0
	check := func(where string, m media) {
		for kind, content := range m {
			if content.Example == nil || content.Schema == nil {
				continue
			}
			n++
			if err := schemaOf(content.Schema).Validate(content.Example); err != nil {
				t.Errorf("%s, %s: %v", where, kind, err)
			}
		}
	}
	for path, methods := range document.Paths {
		for method, raw := range methods {
			var op struct {
				RequestBody struct {
					Content media `json:"content"`
				} `json:"requestBody"`
				Responses map[string]struct {
					Content media `json:"content"`
				} `json:"responses"`
			}
			if json.Unmarshal(raw, &op) != nil {
				continue // parameters of a path
			}
			check(method+" "+path, op.RequestBody.Content)
			for status, answer := range op.Responses {
				check(method+" "+path+" "+status, answer.Content)
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d examples were found", n)
	}
}
