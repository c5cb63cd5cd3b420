package interop

//lint:file-ignore SA1019 logging and sampling are deprecated in the newest protocol, and the older ones are served as well

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/paidmcp"
)

// pixel is a PNG of one pixel, and silence a WAV without a sample.
var (
	pixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx" +
		"\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82")
	silence = []byte("RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00\x80>\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00")
)

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// everything registers what the published conformance suite asks of a server, each item with the price 0, so that each call
// goes through the payments.
func everything(p *paidmcp.Payments, s *mcp.Server) {
	free := paidmcp.Credits(0)
	tool := func(name string, h func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
		paidmcp.AddTool(p, s, &mcp.Tool{Name: name, Description: "For the conformance suite"},
			func(ctx context.Context, r *mcp.CallToolRequest, _ map[string]any) (*mcp.CallToolResult, any, error) {
				res, err := h(ctx, r)
				return res, nil, err
			}, free)
	}
	content := func(name string, c ...mcp.Content) {
		tool(name, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: c}, nil
		})
	}
	inner := func(uri string) mcp.Content {
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "Inside a result."}}
	}
	content("test_simple_text", &mcp.TextContent{Text: "This is a simple text response for testing."})
	content("test_image_content", &mcp.ImageContent{Data: pixel, MIMEType: "image/png"})
	content("test_audio_content", &mcp.AudioContent{Data: silence, MIMEType: "audio/wav"})
	content("test_embedded_resource", inner("test://embedded-resource"))
	content("test_multiple_content_types", &mcp.TextContent{Text: "Several kinds:"}, &mcp.ImageContent{Data: pixel, MIMEType: "image/png"}, inner("test://mixed"))
	tool("test_error_handling", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, errors.New("this tool intentionally returns an error for testing")
	})
	tool("test_tool_with_logging", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if err := r.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: text}); err != nil {
				return nil, err
			}
			time.Sleep(20 * time.Millisecond)
		}
		return said("logged"), nil
	})
	tool("test_tool_with_progress", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, done := range []float64{0, 50, 100} {
			if token := r.Params.GetProgressToken(); token != nil {
				if err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 100}); err != nil {
					return nil, err
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		return said("done"), nil
	})
	tool("test_reconnection", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Extra != nil && r.Extra.CloseSSEStream != nil {
			r.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
		}
		time.Sleep(100 * time.Millisecond)
		return said("the connection came back"), nil
	})
	asks(tool)
	paidmcp.AddTool(p, s, &mcp.Tool{Name: "json_schema_2020_12_tool", Description: "For the conformance suite", InputSchema: json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
		"$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}}}`)},
		func(context.Context, *mcp.CallToolRequest, json.RawMessage) (*mcp.CallToolResult, any, error) {
			return said("read"), nil, nil
		}, free)
	resources(p, s)
	prompts(p, s, inner)
}

// asks registers the tools that ask the client for something.
func asks(tool func(string, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error))) {
	tool("test_sampling", func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ Prompt string }
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		res, err := r.Session.CreateMessage(ctx, &mcp.CreateMessageParams{
			MaxTokens: 100, Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: in.Prompt}}},
		})
		if err != nil {
			return nil, err
		}
		text, _ := res.Content.(*mcp.TextContent)
		return said("LLM response: " + text.Text), nil
	})
	elicit := func(name, schema string) {
		tool(name, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Please answer", RequestedSchema: json.RawMessage(schema)})
			if err != nil {
				return nil, err
			}
			return said(fmt.Sprintf("Elicitation completed: action=%s, content=%v", res.Action, res.Content)), nil
		})
	}
	elicit("test_elicitation", `{"type":"object","required":["username","email"],"properties":{
		"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}}}`)
	elicit("test_elicitation_sep1034_defaults", `{"type":"object","required":[],"properties":{
		"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`)
	titles := `[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]`
	elicit("test_elicitation_sep1330_enums", `{"type":"object","properties":{
		"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},"titledSingle":{"type":"string","oneOf":`+titles+`},
		"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
		"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
		"titledMulti":{"type":"array","items":{"anyOf":`+titles+`}}}}`)
}

func resources(p *paidmcp.Payments, s *mcp.Server) {
	free := paidmcp.Credits(0)
	give := func(c mcp.ResourceContents) mcp.ResourceHandler {
		return func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&c}}, nil
		}
	}
	text := mcp.ResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."}
	p.AddResource(s, &mcp.Resource{URI: text.URI, Name: "static-text", MIMEType: text.MIMEType}, give(text), free)
	binary := mcp.ResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: pixel}
	p.AddResource(s, &mcp.Resource{URI: binary.URI, Name: "static-binary", MIMEType: binary.MIMEType}, give(binary), free)
	watched := mcp.ResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "Watch me."}
	p.AddResource(s, &mcp.Resource{URI: watched.URI, Name: "watched", MIMEType: watched.MIMEType}, give(watched), free)
	p.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", MIMEType: "application/json"},
		func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id, _, _ := strings.Cut(strings.TrimPrefix(r.Params.URI, "test://template/"), "/")
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
				URI: r.Params.URI, MIMEType: "application/json", Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id),
			}}}, nil
		}, free)
}

func prompts(p *paidmcp.Payments, s *mcp.Server, inner func(string) mcp.Content) {
	prompt := func(name string, arguments []string, make func(args map[string]string) []mcp.Content) {
		var as []*mcp.PromptArgument
		for _, a := range arguments {
			as = append(as, &mcp.PromptArgument{Name: a, Description: "Anything", Required: true})
		}
		p.AddPrompt(s, &mcp.Prompt{Name: name, Description: "For the conformance suite", Arguments: as}, func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			res := &mcp.GetPromptResult{}
			for _, c := range make(r.Params.Arguments) {
				res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
			}
			return res, nil
		}, paidmcp.Credits(0))
	}
	text := func(s string) mcp.Content { return &mcp.TextContent{Text: s} }
	prompt("test_simple_prompt", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{text("This is a simple prompt for testing.")}
	})
	prompt("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{text(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]))}
	})
	prompt("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []mcp.Content {
		return []mcp.Content{inner(a["resourceUri"]), text("Please process the embedded resource above.")}
	})
	prompt("test_prompt_with_image", nil, func(map[string]string) []mcp.Content {
		return []mcp.Content{&mcp.ImageContent{Data: pixel, MIMEType: "image/png"}, text("Please analyze the image above.")}
	})
}

// everythingOptions are the parts of the suite that are no items.
func everythingOptions() *mcp.ServerOptions {
	nothing := func(context.Context, *mcp.SubscribeRequest) error { return nil }
	return &mcp.ServerOptions{
		SubscribeHandler: nothing, UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(context.Context, *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
		},
	}
}
