package paidmcp_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
)

// TestOutputSchema: a tool with a price is listed with a schema that takes its own answers and the
// demand for payment, and nothing else.
func TestOutputSchema(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(50)
	s := newShop(svc, svc.Facilitator())
	schemas := map[string]string{
		"plain":  `{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}},"required":["n"]}`,
		"closed": `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}`,
		"refs": `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
			"$defs":{"const":{"type":"integer"},"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"},"$ref":{"$ref":"#/$defs/const"}}}},
			"properties":{"n":{"$ref":"#/$defs/const"},"default":{"$ref":"#/$defs/node"},"self":{"$ref":"#"},"data":{"const":{"$ref":"#/x"}}},"required":["n"]}`,
		"named": `{"$id":"https://example.com/own","type":"object","$defs":{"n":{"type":"integer"}},"properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}`,
	}
	answer := json.RawMessage(`{"n":1}`)
	add := func(name string, options ...paidmcp.Option) {
		s.p.AddTool(s.server, &mcp.Tool{
			Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(schemas[name]),
		}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{StructuredContent: answer, Content: []mcp.Content{&mcp.TextContent{Text: string(answer)}}}, nil
		}, options...)
	}
	for name := range schemas {
		add(name)
	}
	listed := func(l *line) map[string]json.RawMessage {
		var meta string
		if l.era >= "2026" {
			meta = `"_meta":` + modernMeta("")
		}
		l.send(`{"jsonrpc":"2.0","id":"tools","method":"tools/list","params":{` + meta + `}}`)
		var list struct {
			Tools []struct {
				Name         string
				OutputSchema json.RawMessage
			}
		}
		if a := l.wait("tools"); json.Unmarshal(a.Result, &list) != nil {
			t.Fatalf("%s %+v", a.Result, a.Error)
		}
		out := map[string]json.RawMessage{}
		for _, one := range list.Tools {
			out[one.Name] = one.OutputSchema
		}
		return out
	}
	for _, era := range eras {
		l := dial(t, s.server, era)
		all := listed(l)
		if all["ask"] != nil {
			t.Errorf("a tool without a schema got one: %s", all["ask"])
		}
		for name := range schemas {
			var schema jsonschema.Schema
			if err := json.Unmarshal(all[name], &schema); err != nil || schema.Type != "object" || len(schema.AnyOf) != 2 {
				t.Fatalf("%s: %s %v", name, all[name], err)
			}
			r, err := schema.Resolve(nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, all[name])
			}
			valid := func(raw json.RawMessage) error {
				var v any
				must.Do(t, json.Unmarshal(raw, &v))
				return r.Validate(v)
			}
			unpaid := l.call("tools/"+name, nil)
			unpaid.demand(t, "tools/"+name)
			if err := valid(unpaid.result(t).Structured); err != nil {
				t.Errorf("%s, unpaid: %v", name, err)
			}
			a := l.call("tools/"+name, ann.AccessToken)
			a.paid(t)
			if err := valid(a.result(t).Structured); err != nil {
				t.Errorf("%s, paid: %v", name, err)
			}
			for _, wrong := range []string{`{"n":"one"}`, `{"x402Version":2}`, `{}`} {
				if valid(json.RawMessage(wrong)) == nil {
					t.Errorf("%s takes %s", name, wrong)
				}
			}
		}
	}
	for _, wrong := range []string{`{"n":1,"self":{"n":"one"}}`, `{"n":1,"default":{"next":{"next":1}}}`, `{"n":1,"data":{"$ref":"#/anyOf/0/x"}}`} {
		var schema jsonschema.Schema
		var v any
		must.Do(t, json.Unmarshal(listed(dial(t, s.server, eras[0]))["refs"], &schema))
		r, err := schema.Resolve(nil)
		if err != nil || json.Unmarshal([]byte(wrong), &v) != nil || r.Validate(v) == nil {
			t.Errorf("takes %s: %v", wrong, err)
		}
	}
	// Without a price a schema stays as it is, and what the server holds is never changed.
	add("closed", paidmcp.Credits(0))
	if got := listed(dial(t, s.server, eras[0]))["closed"]; string(got) != schemas["closed"] {
		t.Errorf("%s", got)
	}
	s.p.Price(paidmcp.Tools, "plain", paidmcp.Credits(0))
	if got := listed(dial(t, s.server, eras[1]))["plain"]; string(got) != schemas["plain"] {
		t.Errorf("%s", got)
	}
}
