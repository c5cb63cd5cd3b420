package server_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/metrics"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

var refusalLine = regexp.MustCompile(`(?m)^toll_refusals_total\{code="([^"]*)"\} (\d+)$`)

// refusalsOf returns the counters of refusals by the value of their label.
func refusalsOf(t *testing.T, text string) map[toll.Code]int {
	t.Helper()
	if all := strings.Count(text, "\ntoll_refusals_total{"); all != len(refusalLine.FindAllString(text, -1)) {
		t.Fatalf("a counter of refusals has other labels:\n%s", text)
	}
	counts := map[toll.Code]int{}
	for _, m := range refusalLine.FindAllStringSubmatch(text, -1) {
		n := must.Get(strconv.Atoi(m[2]))(t)
		counts[toll.Code(m[1])] = n
	}
	return counts
}

// answerTo sends a request with a key, or with none, and returns the status of the answer.
func answerTo(t *testing.T, key, method, url, body string, header ...string) int {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res := must.Get(http.DefaultClient.Do(r))(t)
	defer res.Body.Close()
	must.Get(io.Copy(io.Discard, res.Body))(t)
	return res.StatusCode
}

// Each way in which the service refuses counts once, by its code: errors, a demand for money, verdicts with status 200, and what
// middlewares of sellers ask for their callers. What succeeds counts nothing.
func TestMetrics_RefusalsByCode(t *testing.T) {
	s, url := start(t, server.Config{Data: storetest.Dir(t), Metrics: true, Rails: rails.Config{Card: rails.CardConfig{Mode: rails.CardOff}}})
	builder, subscriber := keys(t, s)
	c := newStand(t, url, builder, subscriber, 1)
	ctx, base := t.Context(), url+api.Base
	if r, err := c.settle(ctx, "one"); err != nil || !r.Success {
		t.Fatalf("%+v, %v", r, err)
	}
	before := refusalsOf(t, scrape(t, s))
	tool := func() {
		t.Helper()
		server := mcp.NewServer(&mcp.Implementation{Name: "demo"}, nil)
		p := paidmcp.New(c.builder, paidmcp.Config{PlanID: c.plan, AgentID: c.agent, ServerName: "demo"})
		paidmcp.AddTool(p, server, &mcp.Tool{Name: "ask"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			t.Error("an unpaid tool runs")
			return &mcp.CallToolResult{}, nil, nil
		}, paidmcp.Credits(1))
		theirs, ours := mcp.NewInMemoryTransports()
		must.Get(server.Connect(ctx, ours, nil))(t)
		session := must.Get(mcp.NewClient(&mcp.Implementation{Name: "caller"}, nil).Connect(ctx, theirs, nil))(t)
		defer session.Close()
		res, err := session.CallTool(ctx, &mcp.CallToolParams{
			Meta: mcp.Meta{"x402/payment": c.token.AccessToken}, Name: "ask", Arguments: map[string]any{},
		})
		if err != nil || !res.IsError {
			t.Errorf("a tool without credits: %+v, %v", res, err)
		}
	}
	page := httptest.NewServer(paid.Handler(c.builder, http.NotFoundHandler(), paid.Plan(c.plan), paid.Agent(c.agent), paid.Credits(1)))
	defer page.Close()
	for _, way := range []struct {
		name string
		code toll.Code
		act  func()
	}{
		{"no path", toll.CodePathNotFound, func() { answerTo(t, "", "GET", base+"/nothing", "") }},
		{"no key", toll.CodeNotAuthenticated, func() { answerTo(t, "", "GET", base+"/api-keys", "") }},
		{"a wrong body", toll.CodeBadRequest, func() { answerTo(t, builder.Key, "POST", base+"/x402/verify", "{") }},
		{"no plan", toll.CodePlanNotFound, func() { answerTo(t, builder.Key, "GET", base+"/protocol/plans/12345", "") }},
		{"a demand for money", toll.CodePaymentRequired, func() {
			if status := answerTo(t, "", "POST", base+"/x402/plans/"+string(c.plan)+"/order", ""); status != http.StatusPaymentRequired {
				t.Errorf("an order without money: %d", status)
			}
		}},
		{"settle", toll.CodeInsufficientCredits, func() {
			if r, err := c.settle(ctx, "two"); err != nil || r.Success {
				t.Errorf("%+v, %v", r, err)
			}
		}},
		{"verify", toll.CodeInsufficientCredits, func() {
			v, err := c.builder.Verify(ctx, &x402.VerifyRequest{PaymentRequired: c.required(), AccessToken: c.token.AccessToken})
			if err != nil || v.IsValid {
				t.Errorf("%+v, %v", v, err)
			}
		}},
		{"verify of a standard server", toll.CodeBadX402Version, func() {
			const body = `{"x402Version":1,"paymentPayload":{"x402Version":1},"paymentRequirements":{}}`
			if status := answerTo(t, builder.Key, "POST", base+"/x402/verify", body); status != http.StatusOK {
				t.Errorf("a verdict has the status %d", status)
			}
		}},
		{"settle of a standard server", toll.CodeBadX402Version, func() {
			const body = `{"x402Version":1,"paymentPayload":{"x402Version":1},"paymentRequirements":{}}`
			if status := answerTo(t, builder.Key, "POST", base+"/x402/settle", body); status != http.StatusOK {
				t.Errorf("a verdict has the status %d", status)
			}
		}},
		{"a tool of MCP", toll.CodeInsufficientCredits, tool},
		{"a middleware", toll.CodeInsufficientCredits, func() {
			if status := answerTo(t, "", "GET", page.URL, "", "payment-signature", c.token.AccessToken); status != http.StatusPaymentRequired {
				t.Errorf("a call without credits: %d", status)
			}
		}},
		{"a replay", "", func() {
			if r, err := c.settle(ctx, "one"); err != nil || !r.Success || !r.Replayed {
				t.Errorf("%+v, %v", r, err)
			}
		}},
	} {
		want := maps.Clone(before)
		if way.code != "" {
			want[way.code]++
		}
		way.act()
		if before = refusalsOf(t, scrape(t, s)); !maps.Equal(before, want) {
			for code := range want {
				if before[code] != want[code] {
					t.Errorf("%s: %d of %s, want %d", way.name, before[code], code, want[code])
				}
			}
		}
	}
}

// The label has a value for each code of the table, and no other one: no request and no answer adds one. Counting allocates nothing.
func TestMetrics_RefusalCodesAreClosed(t *testing.T) {
	var table []toll.Code
	for _, known := range toll.Codes() {
		table = append(table, known.Code)
	}
	slices.Sort(table)
	closed := func(text string) {
		t.Helper()
		if got := slices.Sorted(maps.Keys(refusalsOf(t, text))); !slices.Equal(got, table) {
			t.Errorf("the label has %d values, the table %d codes: %v", len(got), len(table), got)
		}
	}
	s, url := start(t, server.Config{Data: storetest.Dir(t), Metrics: true})
	closed(scrape(t, s))
	const strange = `BCK.STRANGE.0001"} 7`
	for _, path := range []string{
		"/api/v1/BCK.STRANGE.0001", "/api/v1/protocol/plans/BCK.STRANGE.0001", "/docs/errors/BCK.STRANGE.0001", "/api/v1/x402/verify",
	} {
		for _, method := range []string{"GET", "POST", "BREW"} {
			answerTo(t, strange, method, url+path, `{"code":"BCK.STRANGE.0001","errorReason":"strange","x402AccessToken":"BCK.STRANGE.0001"}`,
				"X-Correlation-Id", "BCK.STRANGE.0001", "payment-signature", "BCK.STRANGE.0001", "nvm-api-version", "BCK.STRANGE.0001")
		}
	}
	text := scrape(t, s)
	closed(text)
	all := 0
	for _, n := range refusalsOf(t, text) {
		all += n
	}
	if all != 12 {
		t.Errorf("%d of 12 requests of strangers were refused", all)
	}

	m := metrics.New(server.StoreOf(s), func() bool { return true }, jobs.NewGroup(nil))
	m.Refused("BCK.STRANGE.0001")
	m.Refused("")
	w := httptest.NewRecorder()
	metrics.Handler(m, jobs.NewGroup(nil)).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	closed(w.Body.String())
	if n := refusalsOf(t, w.Body.String())[toll.CodeInternal]; n != 2 {
		t.Errorf("%d refusals with a code that nobody knows", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Refused(toll.CodeInsufficientCredits) }); n != 0 {
		t.Errorf("a refusal allocates %v times", n)
	}
}
