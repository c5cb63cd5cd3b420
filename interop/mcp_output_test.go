package interop

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/paidmcp"
)

// TestOutputSchemas: clients that check structured content read what an unpaid call of a tool with
// an output schema costs, and still check the answer of a paid one.
func TestOutputSchemas(t *testing.T) {
	t.Parallel()
	n := mcpClients.find(t).recent(t)
	s := run(t, servertest.Options{})
	sc := newScene(t, s, nil, func(s *setting) { s.resource, s.max = "mcp://demo/tools/*", 100 })
	p := paidmcp.New(s.client(s.builder), paidmcp.Config{PlanID: sc.plan, AgentID: sc.agent, ServerName: "demo"})
	server := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
	type measured struct {
		N int `json:"n"`
	}
	paidmcp.AddTool(p, server, &mcp.Tool{Name: "measure", Description: "Measures"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, measured, error) {
			return nil, measured{42}, nil
		}, paidmcp.Credits(5))
	// Its answer is none of its schema: a client that checks refuses it.
	p.AddTool(server, &mcp.Tool{
		Name: "lies", InputSchema: json.RawMessage(`{"type":"object"}`),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: map[string]any{"n": "many"}, Content: []mcp.Content{&mcp.TextContent{Text: "many"}}}, nil
	})
	paid := must.Get(paidmcp.NewServer(p, server, paidmcp.ServerConfig{ServiceURL: s.url}))(t)
	front := httptest.NewServer(paid.Handler())
	t.Cleanup(front.Close)
	t.Cleanup(func() {
		must.Check(t, paid.Close(context.Background()))
	})
	program := must.Get(os.ReadFile(filepath.Join("mcp", "priced.mjs")))(t)
	dir := must.Get(os.MkdirTemp(n.packages, "run"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must.Do(t, os.WriteFile(filepath.Join(dir, "priced.mjs"), program, 0o644))
	node := func(t *testing.T, args ...string) (string, error) {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, n.program, args...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+filepath.Dir(n.program)+":"+os.Getenv("PATH"))
		log := &servertest.Log{}
		cmd.Stderr = log
		out, err := cmd.Output()
		if err != nil {
			return string(out) + log.String(), err
		}
		return string(out), nil
	}
	for _, library := range []string{"sdk 1.12", "sdk 1.32", "ai", "ai with schemas", "langchain"} {
		t.Run(library, func(t *testing.T) {
			command := must.Get(json.Marshal(map[string]string{"url": front.URL + "/mcp", "token": sc.token, "library": library}))(t)
			text, err := node(t, filepath.Join(dir, "priced.mjs"), string(command))
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			type seen struct {
				Error      bool
				Structured map[string]any
				Text, Lies string
			}
			var out struct{ Unpaid, Paid seen }
			if err := json.Unmarshal([]byte(text), &out); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if !out.Unpaid.Error || !strings.Contains(out.Unpaid.Text, `"error":"payment required`) || !strings.Contains(out.Unpaid.Text, string(sc.plan)) {
				t.Errorf("unpaid: %+v", out.Unpaid)
			}
			if library != "langchain" && out.Unpaid.Structured["x402Version"] != 2.0 {
				t.Errorf("unpaid: %+v", out.Unpaid)
			}
			if out.Paid.Error || out.Paid.Structured["n"] != 42.0 {
				t.Errorf("paid: %+v", out.Paid)
			}
			if strings.HasPrefix(library, "sdk") && !strings.Contains(out.Paid.Lies, "does not match the tool's output schema") {
				t.Errorf("an answer of another form: %s", out.Paid.Lies)
			}
		})
	}
	inspector := filepath.Join(n.module("@modelcontextprotocol/inspector"), "clients", "launcher", "build", "index.js")
	inspect := func(t *testing.T, tool string, more ...string) (string, error) {
		return node(t, append([]string{
			inspector, "--cli", front.URL + "/mcp", "--transport", "http", "--method", "tools/call", "--tool-name", tool}, more...)...)
	}
	bearer := []string{"--header", "Authorization: Bearer " + sc.token}
	t.Run("inspector", func(t *testing.T) {
		if out, _ := inspect(t, "measure"); !strings.Contains(out, "payment required") || !strings.Contains(out, string(sc.plan)) ||
			strings.Contains(out, "does not match") {
			t.Errorf("unpaid: %s", out)
		}
		if out, err := inspect(t, "measure", bearer...); err != nil || !strings.Contains(out, `"n": 42`) {
			t.Errorf("paid: %v\n%s", err, out)
		}
	})
}
