package paidmcp_test

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/tolltest"
)

type question struct {
	Prompt string `json:"prompt"`
}

// A tool with a price: unpaid it answers what it costs, paid it answers, and the receipt is in _meta. The service is a real one
// inside the program; elsewhere the facilitator is client.New.
func Example() {
	svc, err := tolltest.Start()
	if err != nil {
		panic(err)
	}
	defer svc.Close()

	server := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	p := paidmcp.New(svc.Facilitator(), paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo"})
	ask := func(ctx context.Context, _ *mcp.CallToolRequest, q question) (*mcp.CallToolResult, any, error) {
		payment, _ := paidmcp.FromContext(ctx)
		text := fmt.Sprintf("%q costs %s credits at most", q.Prompt, payment.Amount)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
	paidmcp.AddTool(p, server, &mcp.Tool{Name: "ask", Description: "Ask the agent"}, ask, paidmcp.Credits(2))

	ann := svc.Subscriber(10)
	ctx := context.Background()
	ours, theirs := mcp.NewInMemoryTransports()
	go server.Run(ctx, ours)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "ann", Version: "1.0.0"}, nil).Connect(ctx, theirs, nil)
	if err != nil {
		panic(err)
	}
	defer session.Close()
	for _, meta := range []mcp.Meta{nil, {"x402/payment": ann.AccessToken}} {
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Meta: meta, Name: "ask", Arguments: question{"why"}})
		if err != nil {
			panic(err)
		}
		if res.IsError {
			fmt.Println(res.StructuredContent.(map[string]any)["error"])
			continue
		}
		fmt.Println(res.Content[0].(*mcp.TextContent).Text)
		fmt.Println(res.Meta["service/credits"].(map[string]any)["remainingBalance"], "left")
	}
	// Output:
	// payment required
	// "why" costs 2 credits at most
	// 8 left
}
