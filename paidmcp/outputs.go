package paidmcp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// requiredSchema describes a [x402.PaymentRequired] loosely, as versions of x402 add members.
const requiredSchema = `{"type":"object","description":"What an unpaid call is asked to pay (x402).",` +
	`"properties":{"x402Version":{"type":"integer"},"error":{"type":"string"},"resource":{"type":"object"},` +
	`"accepts":{"type":"array","items":{"type":"object"}}},"required":["x402Version","accepts"]}`

// listed returns the tools of a list as callers may get their answers: clients refuse structured
// content that does not match the output schema, also that of an unpaid call. So a tool that has a
// price and an output schema is listed with a schema that takes either. The list is not changed.
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

// eitherSchema returns {"type":"object","anyOf":[own, PaymentRequired]}, nil for a schema that is
// no JSON object. What the whole document depends on stays at its top: the dialect, and pointers into it
// are moved.
func eitherSchema(own any) json.RawMessage {
	text, ok := own.(json.RawMessage)
	if !ok {
		var err error
		if text, err = json.Marshal(own); err != nil {
			return nil
		}
	}
	top := map[string]any{"type": "object"}
	var moved any = json.RawMessage(text)
	if bytes.Contains(text, []byte(`"$`)) {
		var schema map[string]any
		in := json.NewDecoder(bytes.NewReader(text))
		in.UseNumber() // bounds stay exact
		if in.Decode(&schema) != nil {
			return nil
		}
		if dialect, ok := schema["$schema"]; ok {
			top["$schema"] = dialect
			delete(schema, "$schema")
		}
		move(schema, false)
		moved = schema
	}
	top["anyOf"] = []any{moved, json.RawMessage(requiredSchema)}
	out, err := json.Marshal(top)
	if err != nil {
		return nil
	}
	return out
}

// move rewrites the references of a schema to places of itself for its new place, {"anyOf": [schema]}.
// Values that are data are left alone, and so are schemas with an $id of their own. named says that
// the names of v are no keywords.
func move(v any, named bool) {
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			move(part, false)
		}
	case map[string]any:
		if !named && v["$id"] != nil {
			return
		}
		for name, part := range v {
			if named {
				move(part, false)
				continue
			}
			switch name {
			case "$ref":
				if to, _ := part.(string); to == "#" || strings.HasPrefix(to, "#/") {
					v[name] = "#/anyOf/0" + strings.TrimPrefix(to, "#")
				}
			case "const", "enum", "default", "examples":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				move(part, true)
			default:
				move(part, false)
			}
		}
	}
}
