package interop

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// tools is a managed MCP server with one tool for 5 credits, and a session of a client of the official SDK.
type tools struct {
	*scene
	*party
	session *mcp.ClientSession
	reached chan struct{} // a call that pauses is there
	pass    chan struct{}
}

func openTools(t *testing.T, s *service, a *actors, pause bool, opts ...paidmcp.Option) *tools {
	t.Helper()
	c := newScene(t, s, a, func(s *setting) { s.resource, s.max = "mcp://demo/tools/ask", 100 })
	m := &tools{scene: c, reached: make(chan struct{}), pass: make(chan struct{})}
	runs := new(atomic.Int64)
	m.party = c.own(func(r *recorder) http.Handler {
		p := paidmcp.New(client.New(c.builder.Key, client.WithURL(r.url)), paidmcp.Config{PlanID: c.plan, AgentID: c.agent, ServerName: "demo"})
		server := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
		tool := &mcp.Tool{Name: "ask", Description: "Ask the agent"}
		paidmcp.AddTool(p, server, tool, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			runs.Add(1)
			if pause {
				m.reached <- struct{}{}
				<-m.pass
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "42"}}}, nil, nil
		}, append(opts, paidmcp.Credits(5))...)
		managed := must.Get(paidmcp.NewServer(p, server, paidmcp.ServerConfig{}))(t)
		t.Cleanup(func() {
			must.Check(t, managed.Close(context.Background()))
		})
		return managed.Handler()
	})
	m.party.runs = func() int { return int(runs.Load()) }
	var err error
	m.session, err = mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1.0.0"}, nil).Connect(
		t.Context(), &mcp.StreamableClientTransport{Endpoint: m.base + "/mcp", DisableStandaloneSSE: true}, nil)
	must.Do(t, err)
	t.Cleanup(func() { _ = m.session.Close() }) // the server may be gone
	return m
}

func (m *tools) call(payment any) (*mcp.CallToolResult, error) {
	p := &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{}}
	if payment != nil {
		p.Meta = mcp.Meta{"x402/payment": payment}
	}
	return m.session.CallTool(m.Context(), p)
}

// asked returns what an unpaid call is told to pay.
func (m *tools) asked() goRequired {
	m.Helper()
	r := must.Get(m.call(nil))(m)
	return m.refusal(r)
}

// refusal takes what is asked for out of a result, which says it twice.
func (m *tools) refusal(r *mcp.CallToolResult) (asked goRequired) {
	m.Helper()
	text, ok := r.Content[0].(*mcp.TextContent)
	if !r.IsError || !ok {
		m.Fatalf("%+v", r)
	}
	var said any
	if err := json.Unmarshal([]byte(text.Text), &said); err != nil || !reflect.DeepEqual(said, r.StructuredContent) {
		m.Errorf("%s is not %v: %v", text.Text, r.StructuredContent, err)
	}
	must.Do(m, json.Unmarshal([]byte(text.Text), &asked))
	return asked
}

// payment pays what an unpaid call is told, with the plug-in.
func (m *tools) payment() goPayload {
	m.Helper()
	asked := m.asked()
	payload := must.Get(x402.NewClientScheme(m.scheme, x402.StaticToken(m.token)).CreatePaymentPayload(m.Context(), asked.Accepts[0]))(m)
	return goPayload{2, payload, asked.Accepts[0], asked.Resource, asked.Extensions}
}

// answered makes sure that a call was paid.
func (m *tools) answered(r *mcp.CallToolResult, err error) {
	m.Helper()
	if err != nil || r.IsError || r.Content[0].(*mcp.TextContent).Text != "42" {
		m.Fatalf("%+v %v", r, err)
	}
	receipt, _ := r.Meta["x402/payment-response"].(map[string]any)
	credits, _ := r.Meta["service/credits"].(map[string]any)
	if receipt["success"] != true || receipt["creditsRedeemed"] != "5" || credits["success"] != true || credits["txHash"] != receipt["transaction"] {
		m.Errorf("%+v", r.Meta)
	}
}

func paidTool(t *testing.T, s *service, a *actors) {
	m := openTools(t, s, a, false)
	asked := m.asked()
	if asked.X402Version != 2 || !strings.HasPrefix(asked.Error, "payment required") || asked.Resource.URL != "mcp://demo/tools/ask" || asked.Accepts[0].Amount != "5" {
		t.Errorf("%+v", asked)
	}
	m.answered(m.call(m.payment()))
	m.ends(1, []int{5}, 95)
}

func toolTwice(t *testing.T, s *service, a *actors) {
	m := openTools(t, s, a, false)
	payment := m.payment()
	m.answered(m.call(payment))
	r := must.Get(m.call(payment))(t)
	if asked := m.refusal(r); !strings.Contains(asked.Error, x402.ReasonDuplicate) {
		t.Errorf("%+v", asked)
	}
	m.ends(1, []int{5}, 95)
}

func toolReused(t *testing.T, s *service, a *actors) {
	m := openTools(t, s, a, false)
	token := m.buyToken(client.WithTokenFormat(x402.RenderingX402))
	var payment map[string]any
	must.Do(t, json.Unmarshal(decoded(t, token), &payment))
	for range 2 {
		m.answered(m.call(payment))
	}
	m.ends(2, []int{5, 5}, 90)
}

func toolUnsettled(t *testing.T, s *service, a *actors) {
	for what, mode := range map[string]paidmcp.RedeemError{"ignore": paidmcp.Ignore, "propagate": paidmcp.Propagate} {
		t.Run(what, func(t *testing.T) {
			m := openTools(t, s, a, true, paidmcp.OnRedeemError(mode))
			payment := m.payment()
			type result struct {
				r   *mcp.CallToolResult
				err error
			}
			done := make(chan result, 1)
			go func() {
				r, err := m.call(payment)
				done <- result{r, err}
			}()
			<-m.reached
			m.advance(76 * time.Second)
			m.burnElsewhere()
			close(m.pass)
			got := <-done
			if mode == paidmcp.Ignore {
				if got.err != nil {
					t.Fatal(got.err)
				}
				if asked := m.refusal(got.r); !strings.HasPrefix(asked.Error, "settlement failed") {
					t.Errorf("%+v", asked)
				}
			} else if e, ok := errors.AsType[*jsonrpc.Error](got.err); !ok || e.Code != -32002 || strings.Contains(string(e.Data), "42") {
				t.Errorf("%+v %v", got.r, got.err)
			}
			m.ends(1, nil, 0)
		})
	}
}
