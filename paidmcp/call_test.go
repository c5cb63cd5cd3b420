package paidmcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// TestCall goes through a call of each item in both eras: asked for payment, paid, settled, told.
func TestCall(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(100)
	f := &teller{Facilitator: svc.Client()}
	s := newShop(svc, f, paidmcp.Credits(5))
	var seen paidmcp.Payment
	s.work = func(ctx context.Context, req mcp.Request) error {
		seen, _ = paidmcp.FromContext(ctx)
		if _, there := req.GetParams().GetMeta()["x402/payment"]; there {
			t.Error("the handler sees the payment")
		}
		return nil
	}
	left := toll.Credits(100)
	for _, era := range eras {
		l := dial(t, s.server, era)
		for _, item := range items {
			ran := s.count()
			kind, name, _ := strings.Cut(item, "/")
			url := "mcp://demo/" + kind + "/" + strings.ReplaceAll(name, "/", "%2F")
			a := l.call(item, nil)
			pr := a.demand(t, item)
			e := pr.Accepts[0]
			if pr.Error != "payment required" || pr.Resource.URL != url || e.Amount != "5" || e.PlanID != string(svc.Plan()) ||
				e.Extra.PlanURL != svc.URL()+"/api/v1/protocol/plans/"+string(svc.Plan()) || e.Extra.SignInURL != svc.URL()+"/sign-in" ||
				e.Extra.PlanID != string(svc.Plan()) || e.Extra.AgentID != string(svc.Agent()) || e.Extra.HTTPVerb != "POST" || e.MaxTimeoutSeconds != 60 {
				t.Errorf("%s: demand %+v", item, pr)
			}
			if a.Error != nil && a.Error.Message != "Authorization required. Available plans: "+string(svc.Plan())+` ("Test plan"). `+advice(svc.URL(), svc.Plan()) {
				t.Errorf("%s: %q", item, a.Error.Message)
			}
			if era >= "2026" && kind == "tools" && a.result(t).ResultType != "complete" {
				t.Errorf("a result of the newer era that does not say so: %s", a.Result)
			}
			if s.count() != ran {
				t.Errorf("%s ran unpaid", item)
			}

			for _, payment := range []any{payload(t, ann.AccessToken, ""), ann.AccessToken} {
				a = l.call(item, payment)
				receipt, credits := a.paid(t)
				left -= 5
				want := map[string]any{
					"success": true, "txHash": receipt.Transaction, "creditsRedeemed": "5", "remainingBalance": left.String(),
					"planId": string(svc.Plan()), "subscriberAddress": ann.Address.String(),
				}
				if fmt.Sprint(credits) != fmt.Sprint(want) {
					t.Errorf("%s: credits %v, want %v", item, credits, want)
				}
				if !strings.Contains(string(a.Result), content) {
					t.Errorf("%s: %s", item, a.Result)
				}
				if kind == "resources" && a.result(t).CacheScope != "private" {
					t.Errorf("others may read a paid resource from a cache: %s", a.Result)
				}
				if seen.Payer != ann.Address.String() || seen.Amount != 5 || seen.PlanID != svc.Plan() || seen.LogicalURL != url ||
					seen.AgentRequestID == "" || receipt.Extra.AgentRequestID != seen.AgentRequestID {
					t.Errorf("%s: payment %+v, receipt %+v", item, seen, receipt)
				}
			}
		}
	}
	if ann.Balance() != left || f.called("release") != 0 {
		t.Errorf("balance %s, %d releases", ann.Balance(), f.called("release"))
	}
}

// TestCall_Stored: the receipt in the answer is the stored one, byte for byte.
func TestCall_Stored(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(10)
	var raw []byte
	f := &teller{Facilitator: svc.Client()}
	f.settle = func(r *x402.SettleRequest) (*x402.SettleResponse, error) {
		s, err := f.Facilitator.Settle(context.Background(), r)
		if err == nil {
			raw = s.Raw
		}
		return s, err
	}
	a := dial(t, newShop(svc, f).server, eras[0]).call("tools/ask", ann.AccessToken)
	if got := a.result(t).Meta["x402/payment-response"]; string(got) != string(raw) {
		t.Errorf("receipt %s, stored %s", got, raw)
	}
}

// TestCall_Free: items without a price are not touched, and those of 0 credits need no access token.
func TestCall_Free(t *testing.T) {
	svc := service(t)
	f := &teller{Facilitator: svc.Client()}
	free := newShop(svc, f, paidmcp.Credits(0))
	l := dial(t, free.server, eras[1])
	for _, item := range items {
		a := l.call(item, nil)
		if r := a.result(t); r.IsError || r.Meta["x402/payment-response"] != nil {
			t.Errorf("%s: %s", item, a.Result)
		}
		if c := a.credits(t); fmt.Sprint(c) != fmt.Sprint(map[string]any{"success": true, "creditsRedeemed": "0", "planId": string(svc.Plan())}) {
			t.Errorf("%s: %v", item, c)
		}
	}
	free.server.AddTool(&mcp.Tool{Name: "plain", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(len(req.Params.Meta))}}}, nil
		})
	if r := dial(t, free.server, eras[0]).call("tools/plain", "a payment for nothing").result(t); len(r.Meta) != 0 || r.Content[0].Text != "0" {
		t.Errorf("%+v", r)
	}
	l.send(l.request("list", "tools/list", nil)) // a tool of that name: unknown, and not asked for payment
	if a := l.wait("list"); a.Error == nil || a.Error.Code != jsonrpc.CodeInvalidParams {
		t.Errorf("%s %+v", a.Result, a.Error)
	}
	if f.called("verify")+f.called("settle") != 0 {
		t.Errorf("the facilitator was asked: %v", f.calls)
	}
}

// TestCall_Function prices calls after they ran, within what is held.
func TestCall_Function(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(100)
	f := &teller{Facilitator: svc.Client()}
	var n toll.Credits
	var got paidmcp.CreditsContext
	s := newShop(svc, f, paidmcp.CreditsFunc(func(c paidmcp.CreditsContext) toll.Credits { got = c; return n }), paidmcp.MaxAmount(3))
	l := dial(t, s.server, eras[0])
	if e := l.call("tools/ask", nil).demand(t, "tools/ask").Accepts[0]; e.Amount != "10" {
		t.Errorf("a function holds the maximum of the plan: %+v", e)
	}
	for _, c := range []struct{ says, burns toll.Credits }{{3, 3}, {10, 10}, {5000, 10}} {
		n = c.says
		r, credits := l.call("tools/ask", ann.AccessToken).paid(t)
		if *r.CreditsRedeemed != c.burns || credits["creditsRedeemed"] != c.burns.String() {
			t.Errorf("%d: burned %s, %v", c.says, r.CreditsRedeemed, credits)
		}
	}
	if string(got.Args) != `{"prompt":"hi"}` || got.Request.LogicalURL != "mcp://demo/tools/ask" || got.Request.ToolName != "ask" ||
		got.Result.(*mcp.CallToolResult).Content[0].(*mcp.TextContent).Text != content {
		t.Errorf("%+v", got)
	}
	for _, says := range []toll.Credits{0, -4} {
		n = says
		a := l.call("prompts/ask", ann.AccessToken)
		want := map[string]any{"success": true, "creditsRedeemed": "0", "planId": string(svc.Plan()), "subscriberAddress": ann.Address.String()}
		if c := a.credits(t); fmt.Sprint(c) != fmt.Sprint(want) || a.result(t).Meta["x402/payment-response"] != nil || !strings.Contains(string(a.Result), content) {
			t.Errorf("%s", a.Result)
		}
	}
	if ann.Balance() != 77 || f.called("release") != 2 || fmt.Sprint(f.settled) != "[3 10 10]" {
		t.Errorf("balance %s, %v, settled %v", ann.Balance(), f.calls, f.settled)
	}
}

// TestCall_Bounded: a function of the arguments bounds the hold, and can reject a call before its payment is verified.
func TestCall_Bounded(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(20)
	f := &teller{Facilitator: svc.Client()}
	most, price, fails := toll.Credits(4), toll.Credits(3), error(nil)
	var before, after paidmcp.CreditsContext
	s := newShop(svc, f, paidmcp.MaxCreditsFunc(func(c paidmcp.CreditsContext) (toll.Credits, error) {
		if before = c; most < 0 {
			panic("no price")
		}
		return most, fails
	}), paidmcp.CreditsFunc(func(c paidmcp.CreditsContext) toll.Credits { after = c; return price }))
	var held toll.Credits
	s.work = func(ctx context.Context, _ mcp.Request) error {
		p, _ := paidmcp.FromContext(ctx)
		held = p.Amount
		svc.Advance(3 * time.Second)
		return nil
	}
	l := dial(t, s.server, eras[0])
	if e := l.call("tools/ask", nil).demand(t, "tools/ask").Accepts[0]; e.Amount != "4" {
		t.Errorf("the demand is %+v", e)
	}
	for _, burns := range []toll.Credits{3, 4} {
		if r, _ := l.call("tools/ask", ann.AccessToken).paid(t); *r.CreditsRedeemed != burns || held != 4 {
			t.Errorf("held %s, burned %s, want %s", held, r.CreditsRedeemed, burns)
		}
		price = 9 // above the hold
	}
	if string(before.Args) != `{"prompt":"hi"}` || before.Result != nil || before.Elapsed != 0 || after.Result == nil || after.Elapsed.Truncate(time.Second) != 3*time.Second {
		t.Errorf("%+v, %+v", before, after)
	}
	verified := f.called("verify")
	fails = toll.Errorf(toll.CodeBadRequest, "The argument prompt has no price.")
	if r := l.call("tools/ask", ann.AccessToken).result(t); !r.IsError || r.Content[0].Text != "The argument prompt has no price." {
		t.Errorf("%+v", r)
	}
	if a := l.call("prompts/ask", ann.AccessToken); a.Error == nil || a.Error.Code != jsonrpc.CodeInvalidParams || a.Error.Message != "The argument prompt has no price." {
		t.Errorf("%s %+v", a.Result, a.Error)
	}
	most = -1
	if a := l.call("tools/ask", ann.AccessToken); a.Error == nil || a.Error.Code != jsonrpc.CodeInternalError {
		t.Errorf("a panic: %s %+v", a.Result, a.Error)
	}
	if s.count() != 2 || f.called("verify") != verified || ann.Balance() != 13 {
		t.Errorf("%d runs, %v, balance %s", s.count(), f.calls, ann.Balance())
	}
}

// TestPerCall_Panics: malformed prices, and a facilitator that cannot tell whether it settles them.
func TestPerCall_Panics(t *testing.T) {
	svc := service(t)
	cents := paid.Exact{Currency: toll.CurrencyUSDC, Amount: toll.UnitsOf(20_000)}
	for want, f := range map[string]func(){
		"paidmcp: PerCall accepts USDC and EURC, not USD": func() { paidmcp.PerCall(paid.Exact{Currency: "USD", Amount: toll.UnitsOf(1)}) },
		"paidmcp: PerCall needs a facilitator that signs offers, such as client.Client": func() {
			paidmcp.New(&teller{Facilitator: svc.Client()}, paidmcp.Config{}).Price(paidmcp.Tools, "a", paidmcp.PerCall(cents))
		},
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("%v, want %q", got, want)
				}
			}()
			f()
		}()
	}
}

// TestCall_Held: a fixed price holds the larger of itself and MaxAmount, and burns itself.
func TestCall_Held(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(6)
	s := newShop(svc, svc.Facilitator(), paidmcp.Credits(2), paidmcp.MaxAmount(5))
	var held toll.Credits
	s.work = func(ctx context.Context, _ mcp.Request) error {
		p, _ := paidmcp.FromContext(ctx)
		held = p.Amount
		return nil
	}
	l := dial(t, s.server, eras[0])
	if r, _ := l.call("tools/ask", ann.AccessToken).paid(t); *r.CreditsRedeemed != 2 || held != 5 {
		t.Errorf("held %s, burned %s", held, r.CreditsRedeemed)
	}
	pr := l.call("tools/ask", ann.AccessToken).demand(t, "tools/ask")
	if !strings.HasPrefix(pr.Error, "payment required: insufficient_funds: ") || s.count() != 1 || ann.Balance() != 4 {
		t.Errorf("%+v, %d runs, balance %s", pr, s.count(), ann.Balance())
	}
	a := l.call("prompts/ask", ann.AccessToken)
	if a.Error == nil || !strings.HasPrefix(a.Error.Message, "Payment required. Available plans: ") {
		t.Errorf("%+v", a.Error)
	}
}

// TestCall_Resource: where the agent registers the address of the endpoint and not the items, that is verified.
func TestCall_Resource(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(10)
	for name, c := range map[string]struct {
		endpoints toll.EndpointList
		url       string
		paid      bool
	}{
		"each item":          {toll.EndpointList{{Verb: "POST", URL: "mcp://demo/tools/ask"}, {Verb: "POST", URL: "mcp://demo/resources/doc:%2F%2Fask"}}, "", true},
		"all of a type":      {toll.EndpointList{{Verb: "POST", URL: "mcp://demo/tools/*"}, {Verb: "POST", URL: "mcp://demo/resources/*"}}, "", true},
		"another server":     {toll.EndpointList{{Verb: "POST", URL: "mcp://other/tools/*"}}, "", false},
		"the endpoint":       {toll.EndpointList{{Verb: "POST", URL: "https://tools.example.com/mcp"}}, "https://tools.example.com/mcp", true},
		"another's endpoint": {toll.EndpointList{{Verb: "POST", URL: "https://other.example.com/mcp"}}, "https://tools.example.com/mcp", false},
	} {
		t.Run(name, func(t *testing.T) {
			agent := must.Get(svc.Client().RegisterAgent(context.Background(), client.AgentParams{
				Metadata: toll.Metadata{Name: "Agent"}, API: toll.AgentAPI{Endpoints: c.endpoints}, Plans: []toll.PlanID{svc.Plan()},
			}))(t)
			s := shopOf(svc, svc.Facilitator(), paidmcp.Config{PlanID: svc.Plan(), AgentID: agent.AgentID, ServerName: "demo", EndpointURL: c.url})
			for _, item := range items[:2] {
				a := dial(t, s.server, eras[0]).call(item, ann.AccessToken)
				if c.paid {
					a.paid(t)
					continue
				}
				pr := a.demand(t, item)
				if !strings.Contains(pr.Error, x402.Default.ReasonResourceMismatch()) || !strings.HasPrefix(pr.Resource.URL, "mcp://demo/") {
					t.Errorf("%+v", pr)
				}
			}
		})
	}
}

// TestCall_Plans: a server without a plan takes that of the access token when its agent has it, and names all of them.
func TestCall_Plans(t *testing.T) {
	svc := service(t)
	ctx := context.Background()
	other, err := svc.Client().RegisterPlan(ctx, client.PlanParams{Metadata: toll.Metadata{Name: "Other"}, Credits: toll.CreditsConfig{Amount: 50, MinAmount: 1, MaxAmount: 4}})
	must.Do(t, err)
	agent := must.Get(svc.Client().RegisterAgent(ctx, client.AgentParams{
		Metadata: toll.Metadata{Name: "Two plans"}, Plans: []toll.PlanID{svc.Plan(), other.PlanID},
	}))(t)
	foreign, err := svc.Client().RegisterPlan(ctx, client.PlanParams{Metadata: toll.Metadata{Name: "Foreign"}, Credits: toll.CreditsConfig{Amount: 50, MinAmount: 1, MaxAmount: 4}})
	must.Do(t, err)
	ann := svc.Subscriber(10)
	token := func(plan toll.PlanID) string {
		t.Helper()
		tk := must.Get(ann.Client.AccessToken(ctx, plan))(t)
		return tk.AccessToken
	}
	log, _ := quiet()
	s := shopOf(svc, svc.Client(), paidmcp.Config{AgentID: agent.AgentID, ServerName: "demo", Log: log})
	l := dial(t, s.server, eras[0])
	a := l.call("prompts/ask", nil)
	if pr := a.demand(t, "prompts/ask"); len(pr.Accepts) != 2 || pr.Accepts[0].PlanID != string(svc.Plan()) || pr.Accepts[1].PlanID != string(other.PlanID) ||
		a.Error.Message != "Authorization required. Available plans: "+string(svc.Plan())+` ("Test plan"), `+string(other.PlanID)+` ("Other"). `+advice(svc.URL(), svc.Plan()) {
		t.Errorf("%+v", a.Error)
	}
	for _, plan := range []toll.PlanID{svc.Plan(), other.PlanID} {
		if _, c := l.call("tools/ask", token(plan)).paid(t); c["planId"] != string(plan) {
			t.Errorf("%v", c)
		}
	}
	if pr := l.call("tools/ask", token(foreign.PlanID)).demand(t, "tools/ask"); !strings.Contains(pr.Error, x402.Default.ReasonPlanMismatch()) {
		t.Errorf("%+v", pr)
	}

	// The item's own plan wins over everything.
	own := shopOf(svc, svc.Facilitator(), paidmcp.Config{PlanID: svc.Plan(), AgentID: agent.AgentID, Log: log}, paidmcp.Plan(other.PlanID))
	if _, c := dial(t, own.server, eras[1]).call("tools/ask", token(other.PlanID)).paid(t); c["planId"] != string(other.PlanID) {
		t.Errorf("%v", c)
	}

	// Neither plan nor agent: whoever paid for anything of this builder would be served, so nobody is.
	none := shopOf(svc, svc.Facilitator(), paidmcp.Config{Log: log})
	for _, payment := range []any{nil, ann.AccessToken} {
		for _, item := range items {
			a := dial(t, none.server, eras[0]).call(item, payment)
			if a.Error == nil || a.Error.Code != -32002 || a.Error.Message != "Server misconfiguration: missing planId" {
				t.Errorf("%s %s %+v", item, a.Result, a.Error)
			}
		}
	}
	if none.count() != 0 {
		t.Error("it ran")
	}
}

// TestCall_Unreachable: when the service is away, the caller is told, and nothing runs.
func TestCall_Unreachable(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(10)
	down := func() error { return toll.NewError(toll.CodeUnavailable) }
	for name, f := range map[string]*teller{
		"terms":  {terms: func(toll.PlanID) (*x402.Terms, error) { return nil, down() }},
		"verify": {verify: func(*x402.VerifyRequest) (*x402.VerifyResponse, error) { return nil, down() }},
		"own key": {verify: func(*x402.VerifyRequest) (*x402.VerifyResponse, error) {
			return &x402.VerifyResponse{InvalidReason: x402.ReasonUnauthorizedServer, InvalidMessage: "key canary"}, nil
		}},
		"without hold": {verify: func(*x402.VerifyRequest) (*x402.VerifyResponse, error) {
			return &x402.VerifyResponse{IsValid: true, Amount: toll.Credits(1).Ptr()}, nil
		}},
	} {
		f.Facilitator = svc.Facilitator()
		s := newShop(svc, f)
		l := dial(t, s.server, eras[1])
		for _, item := range items {
			if pr := l.call(item, ann.AccessToken).demand(t, item); pr.Error != "plans unavailable" || pr.Accepts[0].PlanID != string(svc.Plan()) {
				t.Errorf("%s: %+v", name, pr)
			}
		}
		if s.count() != 0 || strings.Contains(l.sent(), "canary") {
			t.Errorf("%s: %d runs, %s", name, s.count(), l.sent())
		}
	}
}

// TestCall_Demanded: a handler may find that more has to be paid, and asks for it as the server does.
func TestCall_Demanded(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(10)
	f := &teller{Facilitator: svc.Facilitator()}
	s := newShop(svc, f)
	l := dial(t, s.server, eras[0])
	for _, err := range []error{
		&jsonrpc.Error{Code: paidmcp.CodePaymentRequired, Message: "more is needed"},
		fmt.Errorf("upstream: %w", toll.Errorf(toll.CodePaymentRequired, "more is needed")),
	} {
		s.work = func(context.Context, mcp.Request) error { return err }
		for _, item := range items {
			if pr := l.call(item, ann.AccessToken).demand(t, item); pr.Error != "payment required: more is needed" {
				t.Errorf("%s: %+v", item, pr)
			}
		}
	}
	if f.called("settle") != 0 || f.called("release") != 6 || ann.Balance() != 10 {
		t.Errorf("%v, balance %s", f.calls, ann.Balance())
	}
}

// TestReplay: one payment with a nonce is served once, however often it is sent at the same time.
func TestReplay(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(100)
	s := newShop(svc, svc.Facilitator(), paidmcp.Credits(5))
	payment := payload(t, ann.AccessToken, "one-payment-for-all-of-them")
	served, refused := together(t, s, 20, func(int) any { return payment })
	if served != 1 || refused != 19 || s.count() != 1 || ann.Balance() != 95 {
		t.Errorf("%d served, %d refused, %d runs, balance %s", served, refused, s.count(), ann.Balance())
	}
}

// TestShort: 30 payments on credits for 20 run the item 20 times.
func TestShort(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(100)
	s := newShop(svc, svc.Facilitator(), paidmcp.Credits(5))
	payments := make([]any, 30)
	for i := range payments {
		payments[i] = payload(t, ann.AccessToken, fmt.Sprint("nonce-", i))
	}
	served, refused := together(t, s, 30, func(i int) any { return payments[i] })
	if served != 20 || refused != 10 || s.count() != 20 || ann.Balance() != 0 {
		t.Errorf("%d served, %d refused, %d runs, balance %s", served, refused, s.count(), ann.Balance())
	}
}

// together makes n calls at once, over four connections, and says how many were served and refused.
func together(t *testing.T, s *shop, n int, payment func(i int) any) (served, refused int) {
	t.Helper()
	lines := make([]*line, 4)
	for i := range lines {
		lines[i] = dial(t, s.server, eras[i%2])
	}
	start := make(chan struct{})
	answers := make([]answer, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = lines[i%4].call(items[0], payment(i))
		})
	}
	close(start)
	wg.Wait()
	for _, a := range answers {
		if strings.Contains(string(a.Result), content) {
			a.paid(t)
			served++
			continue
		}
		a.demand(t, items[0])
		refused++
	}
	return served, refused
}

var errWork = errors.New("the work cannot be done")

// advice is what a text for models says of buying and signing in.
func advice(service string, plan toll.PlanID) string {
	return "POST " + service + "/api/v1/x402/plans/" + string(plan) + "/order orders the plan. People sign in at " + service + "/sign-in."
}

// TestCall_PriceBelowMinimum: the bounds of the plan count, for fixed prices and for functions.
func TestCall_PriceBelowMinimum(t *testing.T) {
	svc := service(t)
	ctx := context.Background()
	five := must.Get(svc.Client().RegisterPlan(ctx, client.PlanParams{
		Metadata: toll.Metadata{Name: "Five"}, Credits: toll.CreditsConfig{Amount: 50, MinAmount: 5, MaxAmount: 9},
	}))(t)
	ann := svc.Subscriber(1)
	must.Get(svc.Client().Mint(ctx, five.PlanID, ann.Address, 10, 0))(t)
	for name, price := range map[string]paidmcp.Option{
		"fixed": paidmcp.Credits(1), "function": paidmcp.CreditsFunc(func(paidmcp.CreditsContext) toll.Credits { return 1 }),
	} {
		tk := must.Get(ann.Client.AccessToken(ctx, five.PlanID))(t)
		s := shopOf(svc, svc.Client(), paidmcp.Config{PlanID: five.PlanID, ServerName: "demo"}, price)
		if _, c := dial(t, s.server, eras[0]).call("tools/ask", tk.AccessToken).paid(t); c["creditsRedeemed"] != "5" {
			t.Errorf("%s: %v", name, c)
		}
	}
}
