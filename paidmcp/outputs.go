package paidmcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

// requiredSchema describes a [x402.PaymentRequired] loosely, as versions of x402 add members.
const requiredSchema = `{"type":"object","description":"Payment requirements for an unpaid call (x402).",` +
	`"properties":{"x402Version":{"type":"integer"},"error":{"type":"string"},"resource":{"type":"object"},` +
	`"accepts":{"type":"array","items":{"type":"object"}}},"required":["x402Version","accepts"]}`

// listed returns a copy of a list of tools in which a tool with a price and an output schema has a schema that also accepts an
// unpaid result: clients refuse structured content that does not match the schema.
func (p *Payments) listed(res mcp.Result) mcp.Result {
	list, ok := res.(*mcp.ListToolsResult)
	if !ok || list == nil {
		return res
	}
	out := *list
	out.Tools = slices.Clone(list.Tools)
	for i, t := range out.Tools {
		if t == nil || t.OutputSchema == nil {
			continue
		}
		if pr := p.prices.of(Tools, t.Name); pr == nil || pr.isFree() {
			continue
		}
		if schema := eitherSchema(t.OutputSchema); schema != nil {
			tool := *t
			tool.OutputSchema = schema
			out.Tools[i] = &tool
		}
	}
	return &out
}

// eitherSchema returns {"type":"object","anyOf":[own, PaymentRequired]}, or nil if own cannot be decoded as strict JSON. $schema
// stays at the top, and references into the document are adjusted.
func eitherSchema(own any) json.RawMessage {
	text, ok := own.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(own); err != nil {
			return nil
		}
	}
	top := map[string]json.RawMessage{"type": json.RawMessage(`"object"`)}
	if bytes.Contains(text, []byte(`"$`)) {
		var schema map[string]json.RawMessage
		if x402.Decode(text, &schema) != nil {
			return nil
		}
		if dialect := schema["$schema"]; dialect != nil {
			top["$schema"] = dialect
			delete(schema, "$schema")
		}
		text, _ = x402.Encode(schema)
		text = moved(text, false)
	}
	top["anyOf"] = slices.Concat([]byte(`[`), text, []byte(`,`+requiredSchema+`]`))
	out, err := json.Marshal(top)
	if err != nil {
		return nil
	}
	return out
}

// moved rewrites the references of a schema, or a list of schemas, for its new place {"anyOf": [schema]}. It skips data, and
// schemas with their own $id. named means that raw maps names to schemas.
func moved(raw json.RawMessage, named bool) json.RawMessage {
	var list []json.RawMessage
	var schema map[string]json.RawMessage
	switch {
	case !bytes.Contains(raw, []byte(`"$ref"`)):
		return raw
	case x402.Decode(raw, &list) == nil:
		for i := range list {
			list[i] = moved(list[i], false)
		}
		raw, _ = x402.Encode(list)
		return raw
	case x402.Decode(raw, &schema) != nil, !named && schema["$id"] != nil:
		return raw
	}
	for name, part := range schema {
		switch {
		case named:
			schema[name] = moved(part, false)
		case name == "$ref":
			var to string
			if x402.Decode(part, &to) == nil && (to == "#" || strings.HasPrefix(to, "#/")) {
				schema[name], _ = x402.Encode("#/anyOf/0" + strings.TrimPrefix(to, "#"))
			}
		case slices.Contains(dataKeywords, name):
		default:
			schema[name] = moved(part, slices.Contains(namingKeywords, name))
		}
	}
	raw, _ = x402.Encode(schema)
	return raw
}

var (
	dataKeywords   = []string{"const", "enum", "default", "examples"}
	namingKeywords = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
