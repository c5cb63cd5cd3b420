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
// not strict JSON. What the whole document depends on stays at its top: the dialect, and pointers into it
// are moved.
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
		if text = moved(schema); text == nil {
			return nil
		}
	}
	top["anyOf"] = slices.Concat([]byte(`[`), text, []byte(`,`+requiredSchema+`]`))
	out, err := json.Marshal(top)
	if err != nil {
		return nil
	}
	return out
}

// moved returns a schema, or a list of them, with its references to places of itself rewritten for
// its new place, {"anyOf": [schema]}; nil when it cannot be read. Values that are data are left
// alone, and so are schemas with an $id of their own.
func moved(schema map[string]json.RawMessage) json.RawMessage {
	if schema["$id"] == nil {
		for name, part := range schema {
			switch name {
			case "$ref":
				var to string
				if x402.Decode(part, &to) == nil && (to == "#" || strings.HasPrefix(to, "#/")) {
					part, _ = x402.Encode("#/anyOf/0" + strings.TrimPrefix(to, "#"))
				}
			case "const", "enum", "default", "examples":
			case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
				part = movedEach(part) // whose names are no keywords
			default:
				part = movedPart(part)
			}
			if part == nil {
				return nil
			}
			schema[name] = part
		}
	}
	out, err := x402.Encode(schema)
	if err != nil {
		return nil
	}
	return out
}

func movedEach(raw json.RawMessage) json.RawMessage {
	var parts map[string]json.RawMessage
	if x402.Decode(raw, &parts) != nil {
		return raw
	}
	for name, part := range parts {
		if parts[name] = movedPart(part); parts[name] == nil {
			return nil
		}
	}
	out, err := x402.Encode(parts)
	if err != nil {
		return nil
	}
	return out
}

func movedPart(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte(`"$ref"`)) {
		return raw
	}
	var schema map[string]json.RawMessage
	var list []json.RawMessage
	switch {
	case x402.Decode(raw, &schema) == nil:
		return moved(schema)
	case x402.Decode(raw, &list) == nil:
		for i := range list {
			if list[i] = movedPart(list[i]); list[i] == nil {
				return nil
			}
		}
		out, err := x402.Encode(list)
		if err != nil {
			return nil
		}
		return out
	}
	return raw
}
