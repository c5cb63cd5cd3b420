package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/x402"
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
	if slices.Contains(os.Args, "finds") {
		type page struct {
			Results []string `json:"results"`
		}
		mcp.AddTool(s, &mcp.Tool{Name: "find"}, func(_ context.Context, _ *mcp.CallToolRequest, in input) (*mcp.CallToolResult, any, error) {
			res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "found"}}}
			if in.Q != "any" {
				res.StructuredContent = page{strings.Split(in.Q, ",")}
			}
			return res, nil, nil
		})
	}
	fmt.Fprintln(os.Stderr, "tools are ready")
	if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil && !errors.Is(err, io.EOF) {
		return 1
	}
	return 0
}

// tool URL NAME Q [PAYMENT] calls a tool of an MCP server and prints its text; ! when it asks for payment. PAYMENT may be the file of a
// wallet's key, NAME.key.
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
	if len(args) == 4 && strings.HasSuffix(args[3], ".key") {
		res, err := session.CallTool(ctx, p)
		ts.Check(err)
		p.Meta = mcp.Meta{"x402/payment": walletPayment(ts, ts.ReadFile(args[3]), res)}
	} else if len(args) == 4 {
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

// walletPayment signs the first entry of an unpaid result that a wallet can pay.
func walletPayment(ts *testscript.TestScript, key string, unpaid *mcp.CallToolResult) (payment map[string]any) {
	text, ok := unpaid.Content[0].(*mcp.TextContent)
	if !ok || !unpaid.IsError {
		ts.Fatalf("not asked for payment: %+v", unpaid)
	}
	ask, err := x402.ReadChallenge(http.Header{}, []byte(text.Text))
	ts.Check(err)
	k, err := evm.ParseKey(strings.TrimSpace(key))
	ts.Check(err)
	wallet := evm.NewWallet(k)
	for i := range ask.Entries {
		e := &ask.Entries[i]
		q, err := wallet.Quote(context.Background(), nil, e)
		if err != nil {
			continue
		}
		made, err := wallet.Pay(context.Background(), e, q)
		ts.Check(err)
		header, err := ask.Answer(e, made.Payload, "")
		ts.Check(err)
		ts.Check(x402.DecodeHeader(header, &payment))
		return payment
	}
	ts.Fatalf("no entry for wallets: %s", text.Text)
	return nil
}
