package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// TestPages follows cursors, stops when the loop does, and ends with the error of a page.
func TestPages(t *testing.T) {
	key := func(n int) string {
		return fmt.Sprintf(`{"id":"0x%064d","name":null,"prefix":"sandbox","tail":"abcdef","address":"0x%040d","version":"1.1","status":"Active","createdAt":"2026-11-21T01:52:18.322Z","expiresAt":null,"lastUsedAt":null}`, n, n)
	}
	var broken bool
	s := serve(t, func(n int, c sent) (int, map[string]string, string) {
		u, _ := url.Parse(c.target)
		q := u.Query()
		if u.Path != "/api/v1/api-keys" || q.Get("pageSize") != "2" || q.Get("sortOrder") != "asc" || q.Get("sortBy") != "name" {
			t.Errorf("target %s", c.target)
		}
		switch q.Get("cursor") {
		case "":
			return 200, nil, `{"apiKeys":[` + key(1) + `,` + key(2) + `],"total":5,"nextCursor":"c1"}`
		case "c1":
			return 200, nil, `{"apiKeys":[` + key(3) + `,` + key(4) + `],"total":5,"nextCursor":"c2"}`
		}
		if broken {
			return 400, nil, errorBody
		}
		return 200, nil, `{"apiKeys":[` + key(5) + `],"total":5,"nextCursor":null}`
	})
	opts := []client.ListOption{client.PageSize(2), client.SortBy("name"), client.Ascending()}
	read := func(most int) (ids string, err error) {
		for k, e := range s.client().Keys(context.Background(), opts...) {
			if e != nil {
				err = e
				continue
			}
			ids += k.ID.String()[65:]
			if len(ids) == most {
				break
			}
		}
		return ids, err
	}
	if ids, err := read(9); ids != "12345" || err != nil || s.calls() != 3 {
		t.Errorf("%s, %v, %d calls", ids, err, s.calls())
	}
	if ids, err := read(3); ids != "123" || err != nil || s.calls() != 5 {
		t.Errorf("%s, %v, %d calls", ids, err, s.calls())
	}
	broken = true
	if ids, err := read(9); ids != "1234" || !errors.Is(err, toll.ErrPlanNotFound) {
		t.Errorf("%s, %v", ids, err)
	}
	loop := serve(t, always(200, `{"plans":[],"nextCursor":"again"}`))
	n := 0
	for _, err := range loop.client().Plans(context.Background()) {
		if n++; err == nil || n > 1 {
			t.Errorf("%d: %v", n, err)
		}
	}
	if loop.calls() != 2 {
		t.Errorf("%d calls of an endless list", loop.calls())
	}
}

func TestRecordsAsRead(t *testing.T) {
	p := `{"id":"4474","planId":"4474","name":"Basic","owner":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","isListed":true,"accessLimit":"credits","maxOrders":7,
	 "priceConfig":{"priceType":"FIXED_PRICE","tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1000000],"receivers":[]},
	 "metadata":{"main":{"name":"Basic","description":"100 calls","tags":["ai"],"dateCreated":"2026-11-21T01:52:17.872Z","price":"1.00","isTrialPlan":false},
	  "plan":{"accessLimit":"credits","isTrialPlan":false,"currency":"USDC"},"curation":{"isListed":true}},
	 "registry":{"owner":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","price":{"tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":["1000000"],"receivers":["0x70997970C51812dc3A010C7d01b50e0d17dc79C8"],"isCrypto":true,"currency":"USDC"},
	  "credits":{"isRedemptionAmountFixed":true,"redemptionType":4,"onchainMirror":false,"durationSecs":"0","amount":"100","minAmount":"5","maxAmount":"5"},"lastUpdated":1795225937872}}`
	got, err := serve(t, always(200, p)).client().Plan(context.Background(), plan)
	if err != nil || got.ID != plan || got.Metadata.Name != "Basic" || got.Credits.MaxAmount != 5 || got.MaxOrders != 7 || got.Price.Total().String() != "1000000" || !got.IsListed {
		t.Errorf("%+v, %v", got, err)
	}
	a := `{"id":"5063","agentId":"5063","owner":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","plans":[{"planId":"4474","name":"Basic"}],
	 "metadata":{"main":{"name":"Ask","description":"","tags":[],"dateCreated":"2026-11-21T01:52:18.100Z"},
	  "agent":{"endpoints":[{"POST":"https://agent.example.com/ask"}],"openEndpoints":[],"authType":"none","strictEndpoints":false,"hasCredentials":true},"curation":{"isListed":true}},
	 "registry":{"owner":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8","plans":["4474"],"lastUpdated":1795225938100}}`
	ag, err := serve(t, always(200, a)).client().Agent(context.Background(), agent)
	if err != nil || ag.ID != agent || !ag.HasPlan(plan) || len(ag.API.Endpoints) != 1 || ag.API.Endpoints[0].URL != "https://agent.example.com/ask" || !ag.API.HasCredentials {
		t.Errorf("%+v, %v", ag, err)
	}
}

// TestGoldenRequests fixes what each operation sends.
func TestGoldenRequests(t *testing.T) {
	s := serve(t, always(400, errorBody))
	c, ctx := s.client(), context.Background()
	holder := toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266")
	name := "laptop"
	ag := client.AgentParams{
		Metadata: toll.Metadata{Name: "Ask"}, Plans: []toll.PlanID{plan},
		API:         toll.AgentAPI{Endpoints: []toll.Endpoint{{Verb: "POST", URL: "https://agent.example.com/ask"}}, AuthType: "bearer"},
		Credentials: toll.Credentials{Token: "upstream"},
	}
	pl := client.PlanParams{
		Metadata: toll.Metadata{Name: "Basic"}, Credits: toll.CreditsConfig{Amount: 100, MinAmount: 1, MaxAmount: 10}, MaxOrders: 3,
		Price: toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{holder}, IsCrypto: true},
	}
	for _, f := range []func(){
		func() { c.RegisterAgentWithPlan(ctx, ag, pl) },
		func() { c.RegisterAgent(ctx, ag) },
		func() {
			c.RegisterPlan(ctx, client.PlanParams{Metadata: toll.Metadata{Name: "Free"}, Nonce: "7", IsTrial: true})
		},
		func() { c.OrderPlan(ctx, plan) },
		func() { c.Mint(ctx, plan, holder, 50, 0) },
		func() { c.Mint(ctx, plan, holder, 50, time.Hour) },
		func() { c.TakeBack(ctx, plan, holder, 5) },
		func() { c.Balance(ctx, plan) },
		func() { c.BalanceOf(ctx, plan, holder) },
		func() { c.AccessToken(ctx, plan) },
		func() {
			c.AccessToken(ctx, plan, client.WithAgent(agent), client.WithRedemptionLimit(0), client.WithOrderLimit(0), client.WithExpiry(time.Hour),
				client.WithDelegation("d-1"), client.WithTokenFormat("x402"), client.WithMetadata([]byte(`{"a":1}`)))
		},
		func() { firstOf(c.Permissions(ctx, client.OfPlan(plan), client.WithStatus(toll.StatusActive))) },
		func() { c.Permission(ctx, toll.Hash{1}) },
		func() { c.RevokePermission(ctx, toll.Hash{1}) },
		func() { c.CreateKey(ctx, client.KeyParams{Name: "ci", ExpiresIn: time.Hour, Version: "1.0"}) },
		func() { c.Key(ctx, toll.Hash{1}) },
		func() { c.RecentCalls(ctx, toll.Hash{1}) },
		func() { c.UpdateKey(ctx, toll.Hash{1}, &name, nil) },
		func() { c.RevokeKey(ctx, toll.Hash{1}) },
		func() { c.Settlement(ctx, "a/b?c") },
		func() { c.Request(ctx, "a/b?c") },
		func() { c.SettlementByTransaction(ctx, "0xab") },
		func() { firstOf(c.AgentPlans(ctx, agent)) },
		func() { firstOf(c.PlanAgents(ctx, plan)) },
		func() { c.Versions(ctx) },
		func() { c.Info(ctx) },
		func() {
			price, _ := toll.PriceFiat(toll.UnitsOf(2_000_000), holder, toll.CurrencyEUR)
			c.RegisterPlan(ctx, client.PlanParams{Metadata: toll.Metadata{Name: "Card"}, Price: price, Credits: toll.CreditsDynamic(100, 1, 1)})
		},
		func() { c.UpdatePlan(ctx, plan, toll.PlanUpdate{}) },
		func() {
			c.UpdatePlan(ctx, plan, toll.PlanUpdate{
				Metadata:  toll.MetadataUpdate{Name: toll.SetTo("Better"), Tags: toll.SetTo([]string{}), CustomData: toll.Clear[json.RawMessage]()},
				MaxOrders: toll.Clear[toll.Int](),
			})
		},
		func() {
			c.UpdateAgent(ctx, agent, toll.AgentUpdate{
				Metadata: toll.MetadataUpdate{Description: toll.SetTo("Asks")},
				API: toll.AgentAPIUpdate{
					Endpoints: toll.SetTo(toll.EndpointList{{Verb: "POST", URL: "https://agent.example.com/ask"}}), Token: toll.Clear[string](),
				},
			})
		},
		func() {
			c.AddEndpoints(ctx, agent, toll.EndpointsInput{
				Endpoints:     toll.EndpointList{{Verb: "POST", URL: "https://agent.example.com/ask"}, {Verb: "GET", URL: "/files/:name"}},
				OpenEndpoints: []string{"https://agent.example.com/health"},
			})
		},
		func() { c.SetPlanListed(ctx, plan, true) },
		func() { c.SetAgentListed(ctx, agent, false) },
		func() { c.AttachPlan(ctx, agent, plan) },
		func() { c.DetachPlan(ctx, agent, plan) },
		func() { c.OrderPlan(ctx, plan, client.PaidBy("d-1")) },
		func() { c.Order(ctx, "o-1") },
		func() { c.WaitOrder(ctx, "o-1") },
		func() { c.RefundOrder(ctx, "o-1", 0) },
		func() { c.RefundOrder(ctx, "o-1", 250) },
		func() {
			c.Checkout(ctx, plan, client.CheckoutParams{SessionType: "hosted", SuccessURL: "https://a.example.com/done"})
		},
		func() {
			c.CreateDelegation(ctx, client.DelegationParams{Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: time.Hour, Currency: "usdc"})
		},
		func() {
			c.CreateDelegation(ctx, client.DelegationParams{
				Provider: toll.ProviderCard, SpendingLimit: 1000, Lifetime: time.Hour, Currency: "usd", PaymentMethodID: "pm_1", PlanID: plan,
				MaxTransactions: 3, APIKeyID: &toll.Hash{1}, AllowedRecipients: []toll.Address{holder}, MerchantAccountID: "acct_1",
			})
		},
		func() {
			c.CreateDelegation(ctx, client.DelegationParams{
				Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: time.Hour, Currency: "usdc", OwnerAccount: holder,
			})
		},
		func() { c.SignDelegation(ctx, "d-1", "0x01", nil) },
		func() { c.SignDelegation(ctx, "d-1", "0x01", []byte(`{"nonce":0}`)) },
		func() { firstOf(c.Delegations(ctx, client.Accessible())) },
		func() { c.Delegation(ctx, "d-1") },
		func() { c.RevokeDelegation(ctx, "d-1") },
		func() { c.UnfreezeDelegation(ctx, "d-1") },
		func() { firstOf(c.DelegationTransactions(ctx, "d-1", client.PageSize(5))) },
		func() { c.PaymentMethods(ctx, client.Accessible(), client.OfProvider(toll.ProviderCard)) },
		func() {
			c.UpdatePaymentMethod(ctx, "pm_1", client.PaymentMethodUpdate{
				Alias: toll.Clear[string](), AllowedAPIKeyIDs: toll.SetTo([]toll.Hash{{1}}),
			})
		},
		func() { c.RemovePaymentMethod(ctx, "pm_1") },
		func() {
			c.RecordSubTask(ctx, client.SubTaskParams{AgentRequestID: "r-1", Credits: 2, Tag: "search", Status: toll.SubTaskSuccess, Metadata: []byte(`{"a":1}`)})
		},
		func() { firstOf(c.SubTasks(ctx, "r-1")) },
		func() {
			firstOf(c.Events(ctx, client.OfType(toll.EventOrderPaid), client.Since(time.Unix(1_795_226_400, 0)), client.Ascending()))
		},
		func() { c.CreateWebhook(ctx, client.WebhookParams{URL: "https://a.example.com/hook"}) },
		func() { firstOf(c.Webhooks(ctx)) },
		func() { c.Webhook(ctx, "w-1") },
		func() {
			c.UpdateWebhook(ctx, "w-1", client.WebhookUpdate{Types: toll.Clear[[]toll.EventType](), Status: toll.SetTo(toll.WebhookPaused)})
		},
		func() { c.DeleteWebhook(ctx, "w-1") },
		func() { c.RotateWebhook(ctx, "w-1") },
		func() { c.TestWebhook(ctx, "w-1") },
		func() { firstOf(c.WebhookDeliveries(ctx, "w-1", client.Filter("status", "failed"))) },
		func() { c.ResendDelivery(ctx, "w-1", "d-1") },
		func() { c.Ready(ctx) },
		func() { c.Supported(ctx) },
		func() { c.Clock(ctx) },
		func() { c.AdvanceClock(ctx, 90*time.Minute) },
	} {
		f()
	}
	var dump strings.Builder
	for _, one := range s.sent {
		fmt.Fprintf(&dump, "%s %s\n", one.method, one.target)
		if one.body != "" {
			fmt.Fprintf(&dump, "  %s\n", one.body)
		}
	}
	path := filepath.Join("testdata", "requests.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		must.Do(t, os.WriteFile(path, []byte(dump.String()), 0o644))
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != dump.String() {
		t.Errorf("%s (%v)\ngot\n%s", path, err, dump.String())
	}
}

func TestReady(t *testing.T) {
	s := serve(t, always(503, `{"status":"not_ready","checks":{"database":"failing","chain":"off","card":"off"}}`))
	if r, err := s.client().Ready(context.Background()); err != nil || r.Status != "not_ready" || r.Checks["database"] != "failing" {
		t.Errorf("%+v, %v", r, err)
	}
	s = serve(t, always(502, "<html>"))
	if r, err := s.client().Ready(context.Background()); !errors.Is(err, toll.NewError(toll.CodeUnavailable)) {
		t.Errorf("%+v, %v", r, err)
	}
}
