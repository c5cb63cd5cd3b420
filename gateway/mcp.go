package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/x402"
)

// firstModern is the first protocol version without sessions. A request without MCP-Protocol-Version uses an older version.
const firstModern = "2026-07-28"

// mcpIdle is the idle timeout of a session (protocol versions up to 2025-11-25).
const mcpIdle = 4 * time.Hour

// maxIndented is the size in bytes up to which results are indented. Indentation makes a deeply nested list many times longer.
const maxIndented = 64 << 10

// Headers of streamable HTTP.
const (
	headerVersion = "MCP-Protocol-Version"
	headerSession = "Mcp-Session-Id"
)

// mcpHandler serves all protocol versions of streamable HTTP. The caller has checked Host, Origin, and token. Calls without a
// session id, except initialize, are stateless.
func (c *Core) mcpHandler() http.Handler {
	get := func(*http.Request) *mcp.Server { return c.mcp }
	alone := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless:                  true,
		JSONResponse:               true,
		DisableLocalhostProtection: true,
		MaxRequestBodyBytes:        maxControl,
	})
	sessions := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		JSONResponse:               true,
		SessionTimeout:             mcpIdle,
		DisableLocalhostProtection: true,
		MaxRequestBodyBytes:        maxControl,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			serveVersion(w, r, sessions, alone)
			return
		}
		body, ok := readAll(w, r)
		if !ok {
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Accept", "application/json, text/event-stream") // the SDK requires both
		var message struct {
			Method string `json:"method"`
		}
		isFirst := x402.Decode(body, &message) == nil && message.Method == "initialize"
		if r.Header.Get(headerSession) == "" && !isFirst {
			alone.ServeHTTP(w, r)
			return
		}
		serveVersion(w, r, sessions, alone)
	})
}

func serveVersion(w http.ResponseWriter, r *http.Request, older, modern http.Handler) {
	if r.Header.Get(headerVersion) >= firstModern {
		older = modern
	}
	older.ServeHTTP(w, r)
}

// ServeMCP serves the tools over a pair of streams, one message per line, until ctx or in ends.
func (c *Core) ServeMCP(ctx context.Context, in io.ReadCloser, out io.Writer) error {
	err := c.mcp.Run(ctx, finishing{&mcp.IOTransport{Reader: in, Writer: nopCloser{out}}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// EndSessions closes the MCP sessions, whose streams would delay a shutdown.
func (c *Core) EndSessions() {
	for s := range c.mcp.Sessions() {
		_ = s.Close() // after a failure the session ends with its stream
	}
}

func (c *Core) newMCPServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{
		Name:    c.opts.Names.PluginID(),
		Version: c.opts.Version,
	}, &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{}})
	for _, t := range c.rows {
		s.AddTool(c.mcpTool(t), c.mcpCall(c.opts.Names.Tool(t.name)))
	}
	c.addLogin(s)
	return s
}

func (c *Core) mcpTool(t *tool) *mcp.Tool {
	described := &mcp.Tool{
		Name:        c.opts.Names.Tool(t.name),
		Title:       t.title,
		Description: t.description,
		InputSchema: t.inputSchema(),
		Annotations: &mcp.ToolAnnotations{
			Title:           t.title,
			ReadOnlyHint:    t.effect == EffectRead,
			DestructiveHint: jsonschema.Ptr(t.effect == EffectSpend),
			OpenWorldHint:   jsonschema.Ptr(true),
		},
	}
	if out, err := t.outputSchema(); err == nil {
		described.OutputSchema = out
	}
	return described
}

// mcpCall returns the handler of a tool. The text and structured content of a result or error contain the same JSON.
func (c *Core) mcpCall(name string) mcp.ToolHandler {
	return func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		caller := Caller{SessionKey: "mcp", SenderIsOwner: true, Channel: "mcp"}
		if r.Session != nil && r.Session.ID() != "" {
			caller.SessionKey = "mcp:" + r.Session.ID()
		}
		result, err := c.Call(ctx, name, r.Params.Arguments, "", caller)
		if err != nil {
			return mcpError(err)
		}
		return mcpResult(result, false)
	}
}

// mcpError returns the result for an error. For [NotAuthenticated] its hint names the login tool, not a slash command.
func mcpError(err error) (*mcp.CallToolResult, error) {
	e := *asError(err)
	if e.Code == NotAuthenticated {
		e.Message = "Not authenticated."
		if !e.Retryable { // otherwise a login is pending
			e.Hint = "Log in with the login tool of this server."
		}
	}
	return mcpResult(errorAnswer{&e}, true)
}

func mcpResult(v any, isError bool) (*mcp.CallToolResult, error) {
	b, err := x402.Encode(v)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if len(b) > maxIndented {
		text.Write(b)
	} else if err := json.Indent(&text, b, "", "  "); err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: text.String()}},
		StructuredContent: json.RawMessage(b),
		IsError:           isError,
	}, nil
}
