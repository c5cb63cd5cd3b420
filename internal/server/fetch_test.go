package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// Addresses in records and payments are data: whatever is registered, verified and settled, nobody calls them.
// T110
func TestNothingIsFetched(t *testing.T) {
	var calls atomic.Int64
	bait := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		t.Errorf("fetched: %s %s", r.Method, r.URL)
	}))
	defer bait.Close()
	s, url := start(t, server.Config{Data: storetest.Dir(t)})
	builder, subscriber := keys(t, s)
	ctx := context.Background()
	b, sub := client.New(builder.Key, client.WithURL(url)), client.New(subscriber.Key, client.WithURL(url))
	reg := must.Get(b.RegisterAgentWithPlan(ctx, client.AgentParams{
		Metadata: toll.Metadata{Name: "bait", SampleLink: bait.URL + "/sample", Integration: bait.URL + "/integration"},
		API: toll.AgentAPI{
			Endpoints:          toll.EndpointList{{Verb: "POST", URL: bait.URL + "/ask"}},
			AgentDefinitionURL: bait.URL + "/openapi.json", OpenEndpoints: []string{bait.URL + "/open"},
		},
	}, client.PlanParams{Metadata: toll.Metadata{Name: "bait"}, Credits: toll.CreditsConfig{Amount: 10, MinAmount: 1, MaxAmount: 1}}))(t)
	token := must.Get(sub.AccessToken(ctx, reg.PlanID, client.WithResource(bait.URL+"/resource")))(t)
	terms := must.Get(b.Terms(ctx, reg.PlanID))(t)
	required := x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: bait.URL + "/ask", AgentID: reg.AgentID, HTTPVerb: "POST"})
	v, err := b.Verify(ctx, &x402.VerifyRequest{PaymentRequired: *required, AccessToken: token.AccessToken, Hold: true})
	if err != nil || !v.IsValid {
		t.Fatalf("%+v %v", v, err)
	}
	r, err := b.Settle(ctx, &x402.SettleRequest{PaymentRequired: *required, AccessToken: token.AccessToken, AgentRequestID: v.AgentRequestID})
	if err != nil || !r.Success {
		t.Fatalf("%+v %v", r, err)
	}
	payload := must.Get(x402.WithNonce(token.AccessToken, "bait"))(t)
	stock := &x402.StockPayment{Payload: payload, Requirements: required.Accepts[0]}
	if v, err := b.Verify(ctx, &x402.VerifyRequest{Stock: stock}); err != nil || !v.IsValid {
		t.Fatalf("%+v %v", v, err)
	}
	must.Get(b.Agent(ctx, reg.AgentID))(t)
	if n := calls.Load(); n != 0 {
		t.Fatalf("%d requests went out", n)
	}
}
