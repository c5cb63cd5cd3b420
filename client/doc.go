// Package client is the Go SDK: one [Client] calls one service over HTTP with one API key.
//
//	c := client.New("") // TOLL_API_KEY and TOLL_URL
//
// # Selling
//
// A builder registers an agent and a plan. Package toll has constructors for prices and credits:
//
//	price, err := toll.PriceERC20(toll.UnitsOf(2_000_000), toll.USDCSandbox, myAddress)
//	r, err := c.RegisterAgentWithPlan(ctx,
//		client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}},
//		client.PlanParams{Metadata: toll.Metadata{Name: "Basic"}, Price: price, Credits: toll.CreditsFixed(100, 2)})
//
// [Client.UpdatePlan], [Client.SetPlanListed], [Client.AttachPlan], and the matching methods for agents change them later. An
// update leaves unset fields unchanged:
//
//	c.UpdatePlan(ctx, r.PlanID, toll.PlanUpdate{MaxOrders: toll.SetTo(toll.Int(50))})
//
// To accept payments, pass the client to package paid. A *Client is an [x402.Facilitator], as is the service itself, so both work there:
//
//	mux.Handle("POST /ask", paid.Handler(c, ask, paid.Plan(r.PlanID), paid.Agent(r.AgentID), paid.Credits(2)))
//
// # Buying
//
// A subscriber orders a plan and creates an access token that pays for requests to the agent:
//
//	order, err := c.OrderPlan(ctx, planID)
//	tok, err := c.AccessToken(ctx, planID, client.WithRedemptionLimit(100), client.WithExpiry(time.Hour))
//	req.Header.Set("payment-signature", tok.AccessToken)
//	balance, err := c.Balance(ctx, planID)
//
// A delegation is a spending limit. An access token with a delegation buys more credits when they run out:
//
//	d, err := c.CreateDelegation(ctx, client.DelegationParams{
//		Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: 24 * time.Hour, Currency: "usdc"})
//	tok, err := c.AccessToken(ctx, planID, client.WithDelegation(d.DelegationID), client.WithOrderLimit(3))
//
// An order may still be pending when the service responds. [Client.WaitOrder] waits for its credits. For an order by card, a
// person pays on the page that [Client.Checkout] returns.
//
// # Paying any server
//
// A [Transport] pays any server that speaks x402 version 2, within the limits of a [Purse]:
//
//	purse := client.NewPurse(client.Limits{Hosts: []string{"agent.example.com"}, CreditsPerCall: 5, Credits: 500})
//	h := &http.Client{Transport: client.NewTransport(purse, c.Payer(planID))}
//	res, err := h.Post("https://agent.example.com/ask", "application/json", body)
//
// The transport guarantees, regardless of the server:
//
//   - It pays only hosts in the limits, and never more than the limits. A payment counts in full from before it is sent until
//     the service confirms that no more of it can be burned. [CreditsPayer.Check] updates its state.
//   - It does not pay for a resource on another server. Credits go only to a server where the agent is registered, or to a host
//     that the caller trusts ([CreditsPayer.At]).
//
// It does not distinguish servers on one host by their paths. Any server can submit a wallet's authorization to pay the same receiver, so
// only limits and hosts bound it. Orders that a delegation pays for ([CreditsPayer.Topped]) do not count against the purse.
//
// # Lists
//
// Methods that list records return iterators over all pages:
//
//	for plan, err := range c.Plans(ctx) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(plan.ID, plan.Metadata.Name)
//	}
//
// # Events
//
// [Client.Events] lists past events, [Client.FollowEvents] streams new ones, and a webhook ([Client.CreateWebhook]) delivers
// them to a URL. There, [Client.ReadDelivery] checks the signature and returns the event:
//
//	event, err := c.ReadDelivery(r, secret)
//	if err != nil {
//		http.Error(w, "not a delivery", http.StatusForbidden)
//		return
//	}
//
// The same event may arrive more than once, with the same ID.
//
// # Errors
//
// Errors of calls are, or wrap, a [*toll.Error] with the code, hint, and correlation id of the service. Match them with
// errors.Is and a sentinel of package toll, or toll.NewError of any code. A call without a response fails with
// [toll.CodeUnavailable], and its outcome is unknown. Verify and Settle return refusals as values: see [x402.Facilitator].
//
// # Retries
//
// After a network failure or a status 429, 502, 503, or 504, the client retries calls that cannot take effect twice, at most
// [WithRetries] times. It honors Retry-After up to [WithMaxRetryWait] and the deadline of the context. Reads, updates, settle
// and release under the id of a request, and creations are safe to retry. A creation carries an Idempotency-Key, and the service
// answers a retry under the same key with the first response. [WithIdempotencyKey] sets the key, so that another process can
// retry too. A removal, such as revoking a key, is refused the second time, so the client retries it only after a response that
// rules out an effect. Every call is retried after 408, because the request did not arrive completely.
//
// # Versions
//
// A client requests [Version], the API version that its release was tested with. [WithVersion] overrides it.
//
// # Tests
//
// Package tolltest runs a complete service inside a test.
package client
