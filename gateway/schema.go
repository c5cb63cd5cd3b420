package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// toolEntry describes a tool to hosts.
type toolEntry struct {
	Name         string             `json:"name"`
	Title        string             `json:"title"`
	Description  string             `json:"description"`
	Effect       Effect             `json:"effect"`
	InputSchema  *jsonschema.Schema `json:"inputSchema"`
	OutputSchema *jsonschema.Schema `json:"outputSchema,omitempty"`
}

// entries returns the description of each tool for hosts, in documented order.
func entries(names x402.Namespace) ([]toolEntry, error) {
	var list []toolEntry
	for _, t := range registry() {
		out, err := t.outputSchema()
		if err != nil {
			return nil, err
		}
		list = append(list, toolEntry{
			Name:         names.Tool(t.name),
			Title:        t.title,
			Description:  t.description,
			Effect:       t.effect,
			InputSchema:  t.inputSchema(),
			OutputSchema: out,
		})
	}
	return list, nil
}

// registryHash returns a hash of everything that a plugin registers with its host: sha256: and 64 hexadecimal digits.
func registryHash(names x402.Namespace) (string, error) {
	list, err := entries(names)
	if err != nil {
		return "", err
	}
	for i := range list {
		list[i].OutputSchema = nil // plugins do not register output schemas
	}
	b, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// inputSchema returns the JSON Schema of a tool's arguments.
func (t *tool) inputSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}}
	for _, p := range t.params {
		s.Properties[p.name] = p.schema()
		s.PropertyOrder = append(s.PropertyOrder, p.name)
		if p.required {
			s.Required = append(s.Required, p.name)
		}
	}
	return s
}

func (p *param) schema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: p.description}
	switch p.kind {
	case kindID:
		s.Pattern = idPattern
	case kindInteger:
		s.Type, s.Minimum, s.Maximum = "integer", number(p.least), number(p.most)
	case kindFlag:
		s.Type = "boolean"
	case kindList:
		s.Type = ""
		s.AnyOf = []*jsonschema.Schema{
			{Type: "string"},
			{Type: "array", Items: &jsonschema.Schema{Type: "string"}, MaxItems: jsonschema.Ptr(maxList)},
		}
	case kindText, kindURL:
		for _, v := range p.oneOf {
			s.Enum = append(s.Enum, v)
		}
		if p.oneOf == nil {
			s.MinLength, s.MaxLength = jsonschema.Ptr(1), jsonschema.Ptr(int(p.mostRunes()))
		}
	}
	if p.fallback != nil {
		s.Default, _ = json.Marshal(p.fallback) // strings, integers, and bools always encode
	}
	return s
}

const idPattern = "^[1-9][0-9]{0,77}$"

// number returns a bound for a schema. n must be exact in floating point.
func number(n int64) *float64 { return new(float64(n)) }

// wireTypes are the schemas of types with their own JSON encoding.
var wireTypes = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[toll.Credits]():      {Type: "string"},
	reflect.TypeFor[toll.Units]():        {Type: "string"},
	reflect.TypeFor[toll.Cents]():        {Type: "string"},
	reflect.TypeFor[toll.Address]():      {Type: "string"},
	reflect.TypeFor[toll.Hash]():         {Type: "string"},
	reflect.TypeFor[toll.Time]():         {Type: "string"},
	reflect.TypeFor[toll.Int]():          {Type: "integer"},
	reflect.TypeFor[time.Time]():         {Type: "string"},
	reflect.TypeFor[json.RawMessage]():   {Description: "Any JSON value."}, // MCP clients reject true, the encoding of an empty schema
	reflect.TypeFor[*toll.PlanID]():      {Type: "string"},
	reflect.TypeFor[*toll.Address]():     {Type: "string"},
	reflect.TypeFor[map[string]any]():    {Type: "object"},
	reflect.TypeFor[[]json.RawMessage](): {Type: "array"},
}

// outputSchema returns the JSON Schema against which hosts validate the answer of a tool. All members are optional, because an
// answer is a result, a quote, or an error as {"error": …}.
func (t *tool) outputSchema() (*jsonschema.Schema, error) {
	s, err := jsonschema.ForType(reflect.TypeOf(t.output), &jsonschema.ForOptions{TypeSchemas: wireTypes})
	if err != nil {
		return nil, err
	}
	loosen(s)
	if s.Properties == nil {
		s.Properties = map[string]*jsonschema.Schema{}
	}
	s.Properties["warnings"] = &jsonschema.Schema{
		Type:        "array",
		Items:       &jsonschema.Schema{Type: "string"},
		Description: "Messages for the user.",
	}
	s.Properties["error"] = &jsonschema.Schema{
		Type:        "object",
		Description: "Returned instead of a result: code, message, hint, and retryable.",
	}
	return s, nil
}

// loosen makes all members optional and allows additional members.
func loosen(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	s.Required = nil
	if s.Properties != nil {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		loosen(p)
	}
	loosen(s.Items)
}

type toolsAnswer struct {
	Registry string      `json:"registry"`
	Tools    []toolEntry `json:"tools"`
}

func (c *Core) serveTools(w http.ResponseWriter, _ *http.Request) {
	list, err := entries(c.opts.Names)
	if err != nil {
		fail(w, http.StatusInternalServerError, "internal", "The list of tools cannot be created.")
		return
	}
	answer(w, http.StatusOK, toolsAnswer{c.hash, list})
}
