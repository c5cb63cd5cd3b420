// Package client is the Go SDK: one [Client] calls one service over HTTP with one API key.
//
//	c := client.New("") // TOLL_API_KEY and TOLL_URL
//
// A builder registers what is sold:
//
//	r, err := c.RegisterAgentWithPlan(ctx, client.AgentParams{...}, client.PlanParams{...})
//
// A subscriber buys it, and gets an access token that pays for requests to the agent:
//
//	order, err := c.OrderPlan(ctx, planID)
//	tok, err := c.AccessToken(ctx, planID, client.WithRedemptionLimit(100), client.WithExpiry(time.Hour))
//	balance, err := c.Balance(ctx, planID)
//
// An agent takes payment: *Client is an [x402.Facilitator], so package paid and any test of it work with a client as with
// the service itself.
//
//	mux.Handle("POST /ask", paid.Handler(c, ask, paid.Plan(planID), paid.Credits(2)))
//
// # Lists
//
// Lists are iterators over all pages:
//
//	for plan, err := range c.Plans(ctx) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(plan.ID, plan.Metadata.Name)
//	}
//
// # Errors
//
// Every error is a [*toll.Error], or wraps one, with the code, the hint and the correlation id of the service; errors.Is works
// with its sentinels. A call without an answer is [toll.CodeUnavailable], and whether it was carried out is unknown. Verify
// and Settle answer refusals as values: see [x402.Facilitator].
//
// # Repeats
//
// Reads, and settle and release under the id of a request, are repeated after a failure of the network, 429, 502, 503 and
// 504: at most [WithRetries] times, honouring Retry-After up to [WithMaxRetryWait] and the deadline of the context. Nothing
// else is, since it could happen twice; [WithIdempotencyKey] makes a creation safe to repeat by hand.
//
// # Versions
//
// A client asks for the API version that its release was tested with, [Version]; [WithVersion] overrides it.
package client
