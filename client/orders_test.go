package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

func orderBody(status toll.OrderStatus) string {
	return fmt.Sprintf(`{"success":%t,"orderId":"o-1","status":"%s","planId":"4474","txHash":"","creditsGranted":"0","amount":"0","currency":"USDC","message":"","httpStatus":200,"data":{},"when":"2026-11-21T01:52:18.322Z"}`,
		status != toll.OrderFailed, status)
}

func TestWaitOrder(t *testing.T) {
	for _, end := range []toll.OrderStatus{toll.OrderConfirmed, toll.OrderFinal, toll.OrderFailed} {
		s := serve(t, func(n int, _ sent) (int, map[string]string, string) {
			switch n {
			case 1:
				return 200, nil, orderBody(toll.OrderCreated)
			case 2:
				return 503, nil, errorBody
			case 3:
				return 200, nil, orderBody(toll.OrderSent)
			}
			return 200, nil, orderBody(end)
		})
		o, err := s.client().WaitOrder(context.Background(), "o-1")
		if err != nil || o.Status != end || o.Success != (end != toll.OrderFailed) || s.calls() != 4 {
			t.Errorf("%s: %+v, %v, %d calls", end, o, err, s.calls())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := serve(t, func(n int, _ sent) (int, map[string]string, string) {
		if n == 2 {
			cancel()
		}
		return 200, nil, orderBody(toll.OrderSent)
	})
	if o, err := s.client().WaitOrder(ctx, "o-1"); !errors.Is(err, context.Canceled) || o == nil || o.Status != toll.OrderSent {
		t.Errorf("%+v, %v", o, err)
	}
}

// The service answers 202 with the order while it is under way.
func TestOrderUnderWay(t *testing.T) {
	s := serve(t, always(202, orderBody(toll.OrderCreated)))
	if o, err := s.client().OrderPlan(context.Background(), plan, client.PaidBy("d-1")); err != nil || o.Status != toll.OrderCreated || s.calls() != 1 {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestLists_Paths: each list asks its own path with its filters, and reads its own member.
func TestLists_Paths(t *testing.T) {
	at := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	const one = `[{}],"nextCursor":null}`
	orders := serve(t, always(200, `{"orders":`+one))
	subscribers := serve(t, always(200, `{"subscribers":`+one))
	holdings := serve(t, always(200, `{"holdings":`+one))
	usage := serve(t, always(200, `{"usage":`+one))
	refusals := serve(t, always(200, `{"refusals":`+one))
	revenue := serve(t, always(200, `{"revenue":`+one))
	requests := serve(t, func(n int, _ sent) (int, map[string]string, string) {
		if n == 1 { // a page that is empty is not the end
			return 200, nil, `{"requests":[],"nextCursor":"c"}`
		}
		return 200, nil, `{"requests":` + one
	})
	ctx := context.Background()
	count := func(err error) int {
		must.Check(t, err)
		return 1
	}
	n := 0
	for _, err := range orders.client().Orders(ctx, client.AsSeller(), client.OfPlan("7"), client.Since(at), client.Until(at)) {
		n += count(err)
	}
	for _, err := range subscribers.client().Subscribers(ctx, "7") {
		n += count(err)
	}
	for _, err := range holdings.client().Holdings(ctx) {
		n += count(err)
	}
	for _, err := range usage.client().Usage(ctx, client.AsBuyer(), client.By("plan"), client.OfAgent("5")) {
		n += count(err)
	}
	for _, err := range revenue.client().Revenue(ctx, client.By("hour"), client.Ascending()) {
		n += count(err)
	}
	for _, err := range refusals.client().Refusals(ctx) {
		n += count(err)
	}
	for _, err := range requests.client().Requests(ctx, client.OfPlan("7"), client.InState("lapsed")) {
		n += count(err)
	}
	if n != 7 {
		t.Errorf("%d records", n)
	}
	for s, want := range map[*service]string{
		orders:      "/api/v1/protocol/orders?pageSize=100&planId=7&role=seller&since=2026-11-21T00%3A00%3A00.000Z&until=2026-11-21T00%3A00%3A00.000Z",
		subscribers: "/api/v1/protocol/plans/7/subscribers?pageSize=100", holdings: "/api/v1/protocol/holdings?pageSize=100",
		usage:    "/api/v1/protocol/usage?agentId=5&by=plan&pageSize=100&role=buyer",
		refusals: "/api/v1/protocol/refusals?pageSize=100",
		requests: "/api/v1/protocol/requests?pageSize=100&planId=7&status=lapsed",
		revenue:  "/api/v1/protocol/revenue?by=hour&pageSize=100&sortOrder=asc",
	} {
		if got := s.sent[0].target; got != want {
			t.Errorf("%s, not %s", got, want)
		}
	}
}
