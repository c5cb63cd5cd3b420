package tolltest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
	"github.com/tollhq/toll/x402"
)

// TestClientAgainstTheService calls what the SDK has on a real service, as a builder does.
func TestClientAgainstTheService(t *testing.T) {
	svc := tolltest.New(t)
	c, ctx := svc.Client(), t.Context()
	good := func(what string, err error) {
		t.Helper()
		must.Check(t, err, what)
	}

	for i, price := range []func() (toll.Price, error){
		func() (toll.Price, error) { return toll.PriceFree(), nil },
		func() (toll.Price, error) { return toll.PriceFiat(toll.UnitsOf(2_500_000), svc.Builder(), "eur") },
		func() (toll.Price, error) { return toll.PriceNative(toll.UnitsOf(1), svc.Builder()) },
		func() (toll.Price, error) {
			return toll.PriceERC20(toll.UnitsOf(1), toll.USDCSandbox, svc.Builder())
		},
		func() (toll.Price, error) { return toll.PriceEURC(toll.UnitsOf(1), svc.Builder(), toll.Address{}) },
		func() (toll.Price, error) {
			return toll.PricePayAsYouGo(toll.UnitsOf(10), svc.Builder(), toll.USDCSandbox)
		},
	} {
		p, err := price()
		good("builder", err)
		credits := toll.CreditsDynamic(50, 1, 1)
		if p.TemplateAddress == toll.PayAsYouGoTemplate {
			credits = toll.CreditsPayAsYouGo()
		}
		r, err := c.RegisterPlan(ctx, client.PlanParams{Metadata: toll.Metadata{Name: fmt.Sprint("Plan ", i)}, Price: p, Credits: credits})
		if err != nil {
			t.Errorf("plan %d: %v", i, err)
			continue
		}
		read, err := c.Plan(ctx, r.PlanID)
		if err != nil || read.Price.Total().Cmp(p.Total()) != 0 || read.Price.IsCrypto != p.IsCrypto || read.Credits.IsRedemptionAmountFixed ||
			!read.Kind().Prepaid() != (p.TemplateAddress == toll.PayAsYouGoTemplate) {
			t.Errorf("plan %d: %+v, %v", i, read, err)
		}
	}

	plan, agent := svc.Plan(), svc.Agent()
	_, err := c.UpdatePlan(ctx, plan, toll.PlanUpdate{
		Metadata: toll.MetadataUpdate{Description: toll.SetTo("better"), Tags: toll.SetTo([]string{"a"})}, MaxOrders: toll.SetTo(toll.Int(9)),
	})
	good("update plan", err)
	if p, err := c.Plan(ctx, plan); err != nil || p.Metadata.Description != "better" || p.MaxOrders != 9 || p.Metadata.Name != "Test plan" {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = c.UpdatePlan(ctx, plan, toll.PlanUpdate{Metadata: toll.MetadataUpdate{Description: toll.Clear[string]()}, MaxOrders: toll.Clear[toll.Int]()})
	good("clear", err)
	if p, err := c.Plan(ctx, plan); err != nil || p.Metadata.Description != "" || p.MaxOrders != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	_, err = c.UpdatePlan(ctx, plan, toll.PlanUpdate{PriceConfig: &toll.PriceInput{Amounts: []toll.Units{toll.UnitsOf(7)}}})
	if !errors.Is(err, toll.NewError(toll.CodePlanTermsFixed)) {
		t.Errorf("another price: %v", err)
	}
	_, err = c.UpdateAgent(ctx, agent, toll.AgentUpdate{
		API: toll.AgentAPIUpdate{Endpoints: toll.SetTo(toll.EndpointList{{Verb: "POST", URL: "https://a.example.com/ask"}}), Token: toll.SetTo("s")},
	})
	good("update agent", err)
	if a, err := c.Agent(ctx, agent); err != nil || len(a.API.Endpoints) != 1 || !a.API.HasCredentials {
		t.Errorf("%+v, %v", a, err)
	}
	for _, listed := range []bool{false, false, true} {
		r, err := c.SetAgentListed(ctx, agent, listed)
		good("list agent", err)
		_, err = c.SetPlanListed(ctx, plan, listed)
		good("list plan", err)
		if err == nil && !r.Success {
			t.Errorf("%+v", r)
		}
	}
	_, err = c.DetachPlan(ctx, agent, plan)
	good("detach", err)
	if _, err = c.DetachPlan(ctx, agent, plan); !errors.Is(err, toll.NewError(toll.CodePlanNotAttached)) {
		t.Errorf("detach again: %v", err)
	}
	for range 2 {
		_, err = c.AttachPlan(ctx, agent, plan)
		good("attach", err)
	}

	n := 0
	for p, err := range c.Plans(ctx, client.PageSize(2), client.SortBy("name"), client.Ascending()) {
		good("plans", err)
		if p == nil {
			break
		}
		n++
	}
	if n != 7 {
		t.Errorf("%d plans", n)
	}
	free := client.PlanParams{Metadata: toll.Metadata{Name: "Free"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(5, 1), Nonce: "1"}
	first, err := c.RegisterPlan(ctx, free)
	good("nonce", err)
	again, err := c.RegisterPlan(ctx, free)
	if err != nil || again.PlanID != first.PlanID {
		t.Errorf("the same nonce: %v, %v", again, err)
	}
	ann := svc.Subscriber(0)
	o, err := ann.Client.OrderPlan(ctx, first.PlanID)
	if err != nil || !o.Success {
		t.Fatalf("%+v, %v", o, err)
	}
	for _, who := range []*client.Client{ann.Client, c} {
		if got, err := who.Order(ctx, o.OrderID); err != nil || got.Status != o.Status {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if got, err := ann.Client.WaitOrder(ctx, o.OrderID); err != nil || got.CreditsGranted != 5 {
		t.Errorf("%+v, %v", got, err)
	}

	// The same key and body is the same creation, in any process.
	once := client.WithIdempotencyKey(ctx, "mint-1")
	for range 3 {
		_, err = c.Mint(once, plan, ann.Address, 4, time.Hour)
		good("mint", err)
	}
	if got := ann.Balance(); got != 4 {
		t.Errorf("three mints under one key: %v", got)
	}
	if _, err := c.Mint(once, plan, ann.Address, 5, time.Hour); !errors.Is(err, toll.NewError(toll.CodeIdempotencyMismatch)) {
		t.Errorf("another body: %v", err)
	}

	tok, err := ann.Client.AccessToken(ctx, plan, client.WithOrderLimit(0), client.WithMetadata([]byte(`{"a":1}`)))
	good("token", err)
	required := *x402.NewPaymentRequired([]*x402.Terms{{
		PlanID: plan, Scheme: x402.Default.SchemeCrypto(), Network: toll.Sandbox.Network(), PayTo: svc.Builder().String(), MinAmount: 1, MaxAmount: 10,
	}}, x402.Options{AgentID: agent})
	v, err := c.Verify(ctx, &x402.VerifyRequest{PaymentRequired: required, AccessToken: tok.AccessToken, MaxAmount: toll.Credits(2).Ptr(), Hold: true})
	if err != nil || !v.IsValid {
		t.Fatalf("%+v, %v", v, err)
	}
	_, err = c.RecordSubTask(ctx, client.SubTaskParams{AgentRequestID: v.AgentRequestID, Credits: 1, Tag: "search", Status: toll.SubTaskSuccess})
	good("sub-task", err)
	n = 0
	for st, err := range c.SubTasks(ctx, v.AgentRequestID) {
		if err != nil || st.Tag != "search" || st.Credits != 1 {
			t.Errorf("%+v, %v", st, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d sub-tasks", n)
	}
	if s, err := c.Settle(ctx, &x402.SettleRequest{PaymentRequired: required, AccessToken: tok.AccessToken, AgentRequestID: v.AgentRequestID}); err != nil || !s.Success {
		t.Errorf("%+v, %v", s, err)
	}

	clock, err := c.Clock(ctx)
	if err != nil || clock.OffsetSecs != 0 {
		t.Errorf("%+v, %v", clock, err)
	}
	if _, err := ann.Client.AdvanceClock(ctx, time.Hour); err == nil || toll.AsError(err).HTTPStatus() != http.StatusForbidden {
		t.Errorf("a stranger moved the clock: %v", err)
	}
}

// opening tells when an answer begins.
type opening struct{ answers chan struct{} }

func (o opening) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		o.answers <- struct{}{}
	}
	return res, err
}

// TestEventsAgainstTheService: what happened is in the list, in the stream that follows it, and arrives at a webhook that checks it.
func TestEventsAgainstTheService(t *testing.T) {
	svc := tolltest.New(t)
	c := svc.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	arrived := make(chan *toll.Event, 16)
	secret := make(chan string, 1)
	var known string
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if known == "" {
			known = <-secret
		}
		e, err := c.ReadDelivery(r, known)
		if err != nil {
			t.Errorf("delivery: %v", err)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		arrived <- e
	}))
	defer hook.Close()
	made, err := c.CreateWebhook(ctx, client.WebhookParams{URL: hook.URL, Types: []toll.EventType{toll.EventCreditsMinted}, Description: "test"})
	if err != nil || made.Secret == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	secret <- made.Secret

	key := must.Get(svc.NewKey("builder"))(t)
	begun := opening{make(chan struct{}, 16)}
	follower := client.New(key.Key, client.WithURL(svc.URL()), client.WithHTTPClient(&http.Client{Transport: begun}))
	followed := make(chan *toll.Event, 16)
	go func() {
		for e, err := range follower.FollowEvents(ctx, "") {
			if err != nil {
				t.Errorf("follow: %v", err)
				return
			}
			followed <- e
		}
	}()
	select {
	case <-begun.answers: // the stream begins at the moment when it opens
	case <-ctx.Done():
		t.Fatal("the stream does not open")
	}
	holder := toll.Address{9}
	svc.Mint(holder, 7)
	balance := string(svc.Plan()) + "/" + holder.String()
	for name, ch := range map[string]chan *toll.Event{"stream": followed, "webhook": arrived} {
		for found := false; !found; {
			select {
			case e := <-ch:
				found = e.Type == toll.EventCreditsMinted && strings.EqualFold(e.Object.ID, balance)
			case <-ctx.Done():
				t.Fatalf("the %s has no event of the mint", name)
			}
		}
	}
	n := 0
	for e, err := range c.Events(ctx, client.OfType(toll.EventCreditsMinted), client.PageSize(1)) {
		must.Do(t, err)
		var data toll.CreditsMoved
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Amount != 7 || data.HolderAddress != holder {
			t.Errorf("%s, %v", e.Data, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d mints", n)
	}
	if w, err := c.UpdateWebhook(ctx, made.ID, client.WebhookUpdate{Status: toll.SetTo(toll.WebhookPaused), Types: toll.Clear[[]toll.EventType]()}); err != nil ||
		w.Status != toll.WebhookPaused || len(w.Types) != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	if w, err := c.RotateWebhook(ctx, made.ID); err != nil || w.Secret == "" || w.Secret == made.Secret {
		t.Errorf("%+v, %v", w, err)
	}
	n = 0
	for d, err := range c.WebhookDeliveries(ctx, made.ID) {
		if err != nil || d.Type != toll.EventCreditsMinted {
			t.Errorf("%+v, %v", d, err)
			break
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d deliveries", n)
	}
	must.Check(t, c.DeleteWebhook(ctx, made.ID))
	for w, err := range c.Webhooks(ctx) {
		t.Errorf("%+v, %v", w, err)
	}
}
