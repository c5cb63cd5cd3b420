package paidmcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// TestLapsed: the hold lapses while the item runs and its credits are burned elsewhere. Nothing of the item leaves.
func TestLapsed(t *testing.T) {
	svc := service(t)
	other := dial(t, newShop(svc, svc.Facilitator(), paidmcp.Credits(5)).server, eras[0])
	for _, mode := range []paidmcp.RedeemError{paidmcp.Ignore, paidmcp.Propagate} {
		ann := svc.Subscriber(5)
		f := &teller{Facilitator: svc.Facilitator()}
		s := newShop(svc, f, paidmcp.Credits(5), paidmcp.OnRedeemError(mode))
		s.work = func(context.Context, mcp.Request) error {
			svc.Advance(2 * time.Minute)
			other.call("tools/ask", ann.AccessToken).paid(t)
			return nil
		}
		l := dial(t, s.server, eras[1])
		a := l.call("tools/ask", ann.AccessToken)
		switch mode {
		case paidmcp.Propagate:
			if a.Error == nil || a.Error.Code != paidmcp.CodeMisconfigured || !strings.HasPrefix(a.Error.Message, "Failed to redeem credits: ") {
				t.Errorf("%s %+v", a.Result, a.Error)
			}
		default:
			if pr := a.demand(t, "tools/ask"); !strings.HasPrefix(pr.Error, "settlement failed: ") {
				t.Errorf("%+v", pr)
			}
		}
		if strings.Contains(l.sent(), content) || s.count() != 1 || ann.Balance() != 0 || f.called("settle") != 1 {
			t.Errorf("%s, %d runs, %v", l.sent(), s.count(), f.calls)
		}
	}
}

// TestInput: a result that asks for input costs nothing, and the call that brings it is paid.
func TestInput(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(10)
	s := newShop(svc, svc.Facilitator())
	s.p.AddTool(s.server, &mcp.Tool{Name: "form", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if req.Params.InputResponses == nil {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": &mcp.ElicitParams{Message: "who?"}}}, nil
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: content}}}, nil
		}, paidmcp.Credits(3))
	l := dial(t, s.server, eras[1])
	a := l.call("tools/form", ann.AccessToken)
	if r := a.result(t); r.ResultType != "input_required" || r.Meta["service/credits"] != nil || ann.Balance() != 10 {
		t.Fatalf("%s, balance %s", a.Result, ann.Balance())
	}
	text := strings.Replace(l.request("again", "tools/form", map[string]any{"x402/payment": ann.AccessToken}), `"name":"form"`,
		`"name":"form","inputResponses":{"name":{"action":"accept","content":{}}}`, 1)
	l.send(text)
	l.wait("again").paid(t)
	if ann.Balance() != 7 {
		t.Errorf("balance %s", ann.Balance())
	}
}

// TestBearer: over HTTP the deprecated header pays where _meta does not, the process says so once, and no handler sees it.
func TestBearer(t *testing.T) {
	svc := service(t)
	ann, bob := svc.Subscriber(10), svc.Subscriber(10)
	log, lines := quiet()
	s := shopOf(svc, svc.Facilitator(), paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), Log: log})
	s.work = func(_ context.Context, req mcp.Request) error {
		if h := req.GetExtra().Header; h.Get("Authorization") != "" || h.Get("payment-signature") != "" {
			t.Errorf("the handler sees the credential: %v", h)
		}
		return nil
	}
	h := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	defer h.Close()
	paidmcp.ForgetBearerWarning()
	post := func(authorization string, meta map[string]any) answer {
		t.Helper()
		l := &line{t: t, era: eras[1]}
		req := must.Get(http.NewRequest(http.MethodPost, h.URL, strings.NewReader(l.request("1", items[0], meta))))(t)
		for name, v := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": authorization,
			"MCP-Protocol-Version": eras[1], "Mcp-Method": "tools/call", "Mcp-Name": "ask", "payment-signature": bob.AccessToken,
		} {
			req.Header.Set(name, v)
		}
		res := must.Get(http.DefaultClient.Do(req))(t)
		defer res.Body.Close()
		body := must.Get(io.ReadAll(res.Body))(t)
		if i := bytes.Index(body, []byte("data: ")); i >= 0 {
			body = body[i+6:]
		}
		var a answer
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&a); err != nil {
			t.Fatalf("%d %s: %v", res.StatusCode, body, err)
		}
		return a
	}
	for range 2 {
		post("Bearer "+ann.AccessToken, nil).paid(t)
	}
	post("bearer "+ann.AccessToken, map[string]any{"x402/payment": []any{}}).paid(t)
	for _, authorization := range []string{"", "Basic " + ann.AccessToken, "Bearer "} {
		post(authorization, nil).demand(t, items[0])
	}
	if _, c := post("Bearer "+ann.AccessToken, map[string]any{"x402/payment": bob.AccessToken}).paid(t); c["subscriberAddress"] != bob.Address.String() {
		t.Errorf("what stands in _meta does not win: %v", c)
	}
	if pr := post("Bearer "+ann.AccessToken, map[string]any{"x402/payment": "broken"}).demand(t, items[0]); !strings.Contains(pr.Error, x402.ReasonInvalidPayload) {
		t.Errorf("a bearer token stands in for a bad payment: %+v", pr)
	}
	if ann.Balance() != 7 || bob.Balance() != 9 {
		t.Errorf("balances %s and %s", ann.Balance(), bob.Balance())
	}
	if n := strings.Count(lines.String(), "deprecated"); n != 1 || strings.Contains(lines.String(), ann.AccessToken) {
		t.Errorf("%d warnings: %s", n, lines)
	}
}

// TestProtect: one price list serves two servers, and a server that is protected twice charges once.
func TestProtect(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(20)
	f := &teller{Facilitator: svc.Facilitator()}
	s := newShop(svc, f, paidmcp.Credits(2))
	server := mcp.NewServer(&mcp.Implementation{Name: "second", Version: "1"}, nil)
	s.p.AddPrompt(server, &mcp.Prompt{Name: "ask"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{}}, nil
	}, paidmcp.Credits(4))
	s.p.Protect(server)
	s.p.Protect(server)
	if r, _ := dial(t, server, eras[0]).call("prompts/ask", ann.AccessToken).paid(t); fmt.Sprint(r.CreditsRedeemed) != "4" || ann.Balance() != 16 || f.called("verify") != 1 {
		t.Errorf("%+v, balance %s, %v", r, ann.Balance(), f.calls)
	}
}
