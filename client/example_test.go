package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

// stand-in for a service, so that the examples run anywhere; tolltest.New starts a real one.
func standIn() *httptest.Server {
	mux := http.NewServeMux()
	answer := func(pattern string, status int, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	answer("GET /api/v1/protocol/plans/4474/balance", 200, `{"planId":"4474","planName":"Basic","planType":"credits","balance":"100","held":"5","available":"95"}`)
	answer("GET /api/v1/protocol/plans/1", 404, errorBody)
	answer("GET /api/v1/protocol/plans", 200, `{"plans":[{"planId":"4474","metadata":{"main":{"name":"Basic"}}},{"planId":"4475","metadata":{"main":{"name":"Pro"}}}],"nextCursor":null}`)
	answer("POST /api/v1/x402/settle", 200, `{"success":true,"transaction":"0xab","network":"eip155:84532","creditsRedeemed":"2","remainingBalance":"98"}`)
	answer("POST /api/v1/delegation/create", 201, `{"delegationId":"6c3b18dd-0000-4000-8000-000000000001","status":"Active","expiresAt":"2026-11-22T01:52:18.322Z"}`)
	answer("POST /api/v1/x402/permissions", 201, `{"accessToken":"eyJ.eyJ.sig","delegationId":"6c3b18dd-0000-4000-8000-000000000001","status":"Active"}`)
	answer("PUT /api/v1/protocol/plans/4474", 200, `{"success":true,"message":"The plan is changed.","httpStatus":200}`)
	answer("GET /api/v1/events/stream", 200, "id: 1\ndata: "+`{"id":"00000000-0000-7000-8000-000000000001","type":"order.paid","sequence":1,"object":{"kind":"order","id":"o-1","sequence":1},"data":{},"createdAt":"2026-11-21T01:52:18.322Z"}`+"\n\n")
	return httptest.NewServer(mux)
}

func ExampleClient_Balance() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))

	b, err := c.Balance(context.Background(), "4474")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(b.PlanName, b.Balance, "of which held", b.Held)
	// Output: Basic 100 of which held 5
}

func ExampleClient_Plans() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))

	for plan, err := range c.Plans(context.Background()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(plan.ID, plan.Metadata.Name)
	}
	// Output:
	// 4474 Basic
	// 4475 Pro
}

func ExampleClient_Plan_error() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))

	_, err := c.Plan(context.Background(), "1")
	var e *toll.Error
	if errors.Is(err, toll.ErrPlanNotFound) && errors.As(err, &e) {
		fmt.Println(e.Code, e.HTTPStatus(), e.CorrelationID)
	}
	// Output: BCK.PROTOCOL.0003 404 corr-1
}

// A settlement has three outcomes. What is unknown is repeated with the same id, which never burns twice.
func ExampleClient_Settle() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))

	s, err := c.Settle(context.Background(), &x402.SettleRequest{
		PaymentRequired: *x402.NewPaymentRequired([]*x402.Terms{{PlanID: "4474"}}, x402.Options{Endpoint: "https://agent.example.com/ask"}),
		AccessToken:     "the access token of the request", AgentRequestID: "req_1", MaxAmount: toll.Credits(2).Ptr(),
	})
	switch {
	case err != nil || s.ErrorReason == x402.ReasonPending:
		fmt.Println("unknown: repeat it with the same id")
	case !s.Success:
		fmt.Println("refused:", s.ErrorReason)
	default:
		fmt.Println("burned", s.CreditsRedeemed, "left", s.RemainingBalance)
	}
	// Output: burned 2 left 98
}

// A token with a delegation buys credits by itself: here at most 10.00 in a day, and three orders.
func ExampleClient_CreateDelegation() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))
	ctx := context.Background()

	d, err := c.CreateDelegation(ctx, client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: 24 * time.Hour, Currency: "usdc",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tok, err := c.AccessToken(ctx, "4474", client.WithDelegation(d.DelegationID), client.WithOrderLimit(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Status, *tok.DelegationID == d.DelegationID)
	// Output: Active true
}

// What is not set stays as it is.
func ExampleClient_UpdatePlan() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))

	r, err := c.UpdatePlan(context.Background(), "4474", toll.PlanUpdate{
		Metadata:  toll.MetadataUpdate{Description: toll.SetTo("100 calls, a month")},
		MaxOrders: toll.Clear[toll.Int](),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Message)
	// Output: The plan is changed.
}

// The loop ends with the context, or when it is left; a connection that breaks is made again.
func ExampleClient_FollowEvents() {
	service := standIn()
	defer service.Close()
	c := client.New("sandbox:key", client.WithURL(service.URL))

	for e, err := range c.FollowEvents(context.Background(), "") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(e.Sequence, e.Type, e.Object.ID)
		break
	}
	// Output: 1 order.paid o-1
}
