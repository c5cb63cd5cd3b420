package tolltest_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

func pay(h http.Handler, token string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodGet, "/ask", nil)
	if token != "" {
		req.Header.Set(x402.HeaderSignature, token)
	}
	res := httptest.NewRecorder()
	h.ServeHTTP(res, req)
	return res
}

func answers(runs *int) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *runs++ })
}

func TestBothFacilitatorsBurnFromOneBalance(t *testing.T) {
	svc := tolltest.New(t)
	var runs int
	inProcess := paid.Handler(svc.Facilitator(), answers(&runs), paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(2))
	overHTTP := paid.Handler(svc.Client(), answers(&runs), paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(2))
	ann, bob := svc.Subscriber(4), svc.Subscriber(0)
	for i, h := range []http.Handler{inProcess, overHTTP} {
		if res := pay(h, ann.AccessToken); res.Code != http.StatusOK {
			t.Fatalf("paid call %d: %d %s", i, res.Code, res.Body)
		}
	}
	if got := ann.Balance(); got != 0 {
		t.Errorf("balance is %v, want 0", got)
	}
	for _, token := range []string{ann.AccessToken, bob.AccessToken, ""} {
		if res := pay(overHTTP, token); res.Code != http.StatusPaymentRequired {
			t.Errorf("without credits or token: %d", res.Code)
		}
	}
	if runs != 2 {
		t.Errorf("the handler ran %d times, want 2", runs)
	}
}

func TestAdvanceEndsAccessTokens(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithStart(time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)))
	var runs int
	h := paid.Handler(svc.Facilitator(), answers(&runs), paid.Plan(svc.Plan()), paid.Credits(1))
	ann := svc.Subscriber(5, client.WithExpiry(time.Hour))
	if res := pay(h, ann.AccessToken); res.Code != http.StatusOK {
		t.Fatalf("before the end: %d %s", res.Code, res.Body)
	}
	svc.Advance(time.Hour)
	res := pay(h, ann.AccessToken)
	if res.Code != http.StatusPaymentRequired || !strings.Contains(res.Body.String(), string(toll.CodePermissionExpired)) {
		t.Errorf("after the end: %d %s", res.Code, res.Body)
	}
	if got := ann.Balance(); got != 4 || runs != 1 {
		t.Errorf("balance %v after %d runs, want 4 after 1", got, runs)
	}
}

func TestWithPlanAndAgent(t *testing.T) {
	svc := tolltest.New(t,
		tolltest.WithPlan(client.PlanParams{Metadata: toll.Metadata{Name: "Free"}, Credits: toll.CreditsConfig{Amount: 7, MinAmount: 1, MaxAmount: 1}}),
		tolltest.WithAgent(client.AgentParams{Metadata: toll.Metadata{Name: "Other"}}))
	var runs int
	h := paid.Handler(svc.Facilitator(), answers(&runs), paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(1))
	ann := svc.Subscriber(0)
	if res := pay(h, ann.AccessToken); res.Code != http.StatusOK {
		t.Fatalf("a free plan is ordered on demand: %d %s", res.Code, res.Body)
	}
	if got := ann.Balance(); got != 6 {
		t.Errorf("balance is %v, want 6", got)
	}
}

func TestPayments(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPayments())
	ctx := t.Context()
	ann := svc.Subscriber(0)
	delegation := ann.Delegate(250)
	o, err := ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(delegation))
	if err != nil || !o.Success || o.CreditsGranted != 100 {
		t.Fatalf("%+v, %v", o, err)
	}
	if got := ann.Balance(); got != 100 {
		t.Errorf("balance %v", got)
	}
	if n, sum := svc.Paid(); n != 1 || sum.String() != "1000000" {
		t.Errorf("%d orders paid, %v", n, sum)
	}
	svc.Decline(true)
	if o, err := ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(delegation)); err == nil && o.Success {
		t.Errorf("a declined order: %+v", o)
	}
	svc.Decline(false)
	if _, err := ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(delegation)); err != nil {
		t.Error(err)
	}
	d, err := ann.Client.Delegation(ctx, delegation)
	if err != nil || d.AmountSpentCents != 200 || d.RemainingBudgetCents != 50 {
		t.Errorf("%+v, %v", d, err)
	}
	_, err = ann.Client.OrderPlan(ctx, svc.Plan(), client.PaidBy(delegation))
	var e *toll.Error
	if !errors.As(err, &e) || e.HTTPStatus() != http.StatusPaymentRequired {
		t.Errorf("above the limit: %v", err)
	}
	n := 0
	for tx, err := range ann.Client.DelegationTransactions(ctx, delegation) {
		if err != nil || tx.AmountCents != 100 {
			t.Errorf("%+v, %v", tx, err)
		}
		n++
	}
	if n < 2 {
		t.Errorf("%d transactions", n)
	}
	methods, err := ann.Client.PaymentMethods(ctx)
	if err != nil || len(methods) != 1 || methods[0].Type != toll.PaymentWallet {
		t.Errorf("%+v, %v", methods, err)
	}
	if _, err := ann.Client.RevokeDelegation(ctx, delegation); err != nil {
		t.Error(err)
	}
	before := svc.Now()
	svc.Advance(time.Hour)
	if svc.Now().Sub(before) < time.Hour {
		t.Error("the clock stood still")
	}
	svc.Mint(ann.Address, 7)
	if got := ann.Balance(); got != 207 {
		t.Errorf("balance %v", got)
	}
}

// TestTopUp: a token with a delegation buys what a request needs, as long as money and order limit last.
func TestTopUp(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPayments())
	ann := svc.Subscriber(0)
	tok := must.Get(ann.Client.AccessToken(t.Context(), svc.Plan(), client.WithDelegation(ann.Delegate(1000)), client.WithOrderLimit(1)))(t)
	var runs int
	h := paid.Handler(svc.Client(), answers(&runs), paid.Plan(svc.Plan()), paid.Agent(svc.Agent()), paid.Credits(10))
	svc.Decline(true)
	if res := pay(h, tok.AccessToken); res.Code != http.StatusPaymentRequired || runs != 0 {
		t.Errorf("declined: %d %s", res.Code, res.Body)
	}
	svc.Decline(false)
	for i := range 11 {
		want := http.StatusOK
		if i == 10 {
			want = http.StatusPaymentRequired // 100 credits were bought, and the one order is used up
		}
		if res := pay(h, tok.AccessToken); res.Code != want {
			t.Errorf("call %d: %d %s", i, res.Code, res.Body)
		}
	}
	if n, _ := svc.Paid(); n != 1 || runs != 10 {
		t.Errorf("%d orders paid, %d runs", n, runs)
	}
}
