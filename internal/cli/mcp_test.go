package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"
)

// toolsProcess is the program "tools" of scripts: an MCP server over standard input and output that knows nothing of payments.
func toolsProcess() int {
	var options *mcp.ServerOptions
	if slices.Contains(os.Args, "fixed") {
		options = &mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}} // which do not change
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "Some Tools", Version: "1"}, options)
	type input struct {
		Q string `json:"q,omitempty"`
	}
	for _, name := range []string{"search", "count", "ping"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			text := name + " " + in.Q + " " + os.Getenv("TOLL_API_KEY")
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	}
	fmt.Fprintln(os.Stderr, "tools are ready")
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil && !errors.Is(err, io.EOF) {
		return 1
	}
	return 0
}

// tool URL NAME Q [PAYMENT] calls a tool of an MCP server and prints its text; ! when it asks for payment.
func tool(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 3 || len(args) > 4 {
		ts.Fatalf("usage: tool URL NAME Q [PAYMENT]")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "script", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: args[0], DisableStandaloneSSE: true}, nil)
	ts.Check(err)
	defer session.Close()
	p := &mcp.CallToolParams{Name: args[1], Arguments: map[string]string{"q": args[2]}}
	if len(args) == 4 {
		p.Meta = mcp.Meta{"x402/payment": args[3]}
	}
	res, err := session.CallTool(ctx, p)
	ts.Check(err)
	if res.IsError != neg {
		ts.Fatalf("isError is %v: %+v", res.IsError, res.StructuredContent)
	}
	for _, content := range res.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			fmt.Fprintln(ts.Stdout(), text.Text)
		}
	}
}
