// Package client is the Go SDK: one [Client] calls one service over HTTP with one API key.
//
//	c := client.New("") // TOLL_API_KEY and TOLL_URL
//
// # Selling
//
// A builder registers what is sold. Prices and credits come from the builders of package toll:
//
//	price, err := toll.PriceERC20(toll.UnitsOf(2_000_000), toll.USDCSandbox, myAddress)
//	r, err := c.RegisterAgentWithPlan(ctx,
//		client.AgentParams{Metadata: toll.Metadata{Name: "Ask"}},
//		client.PlanParams{Metadata: toll.Metadata{Name: "Basic"}, Price: price, Credits: toll.CreditsFixed(100, 2)})
//
// and changes it later: [Client.UpdatePlan], [Client.SetPlanListed], [Client.AttachPlan], and the same of agents. In an update,
// a member that is not set stays:
//
//	c.UpdatePlan(ctx, r.PlanID, toll.PlanUpdate{MaxOrders: toll.SetTo(toll.Int(50))})
//
// An agent takes payment: *Client is an [x402.Facilitator], so package paid and any test of it work with a client as with
// the service itself.
//
//	mux.Handle("POST /ask", paid.Handler(c, ask, paid.Plan(r.PlanID), paid.Agent(r.AgentID), paid.Credits(2)))
//
// # Buying
//
// A subscriber orders a plan, and gets an access token that pays for requests to the agent:
//
//	order, err := c.OrderPlan(ctx, planID)
//	tok, err := c.AccessToken(ctx, planID, client.WithRedemptionLimit(100), client.WithExpiry(time.Hour))
//	req.Header.Set("payment-signature", tok.AccessToken)
//	balance, err := c.Balance(ctx, planID)
//
// A delegation is a limit on money. A token that has one buys credits by itself when they run out:
//
//	d, err := c.CreateDelegation(ctx, client.DelegationParams{
//		Provider: toll.ProviderCrypto, SpendingLimit: 1000, Lifetime: 24 * time.Hour, Currency: "usdc"})
//	tok, err := c.AccessToken(ctx, planID, client.WithDelegation(d.DelegationID), client.WithOrderLimit(3))
//
// An order that is still under way when the service answers has no credits yet: [Client.WaitOrder] waits for them. An order by
// card is paid by a person, on the page of [Client.Checkout].
//
// # Paying whoever asks
//
// A [Transport] pays any service that speaks x402 version 2, within the limits of a [Purse]:
//
//	purse := client.NewPurse(client.Limits{Hosts: []string{"agent.example.com"}, CreditsPerCall: 5, Credits: 500})
//	h := &http.Client{Transport: client.NewTransport(purse, c.Payer(planID))}
//	res, err := h.Post("https://agent.example.com/ask", "application/json", body)
//
// What holds, whatever the server says:
//
//   - Only hosts of the limits are paid, and never more than the limits. A payment counts in full before it leaves and until
//     the service says that nothing of it can be burned any more; [CreditsPayer.Check] asks again.
//   - A resource of another host is not paid for. Credits go only to a server where the agent is registered, or for which the
//     caller vouches ([CreditsPayer.At]).
//
// What does not hold: servers on one host are not told apart by their paths; a wallet's
// authorization is good wherever its receiver is paid, so limits and hosts alone bound it; what a
// delegation buys ([CreditsPayer.Topped]) counts in no purse.
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
// # Events
//
// [Client.Events] is the past, [Client.FollowEvents] what happens from now on, and a webhook ([Client.CreateWebhook]) has it
// sent to a url, where [Client.ReadDelivery] checks the signature and reads the event:
//
//	event, err := c.ReadDelivery(r, secret)
//	if err != nil {
//		http.Error(w, "not a delivery", http.StatusForbidden)
//		return
//	}
//
// The same event may come more than once, under the same ID.
//
// # Errors
//
// Every error is a [*toll.Error], or wraps one, with the code, the hint and the correlation id of the service; errors.Is works
// with its sentinels and with toll.NewError of any code. A call without an answer is [toll.CodeUnavailable], and whether it
// was carried out is unknown. Verify and Settle answer refusals as values: see [x402.Facilitator].
//
// # Repeats
//
// After a failure of the network, 429, 502, 503 and 504 a call is repeated when that cannot do anything twice, at most
// [WithRetries] times, honouring Retry-After up to [WithMaxRetryWait] and the deadline of the context. That is so of reads, of
// updates, of settle and release under the id of a request, and of creations: each carries an Idempotency-Key, under which
// the service answers a repeat with its first answer. [WithIdempotencyKey] names the key, for repeats beyond this process.
// What is refused the second time, as the end of a key, is repeated only when the answer says that nothing was done. 408 says so
// of every call: it did not arrive in time.
//
// # Versions
//
// A client asks for the API version that its release was tested with, [Version]; [WithVersion] overrides it.
//
// # Tests
//
// Package tolltest is a whole service inside a test.
package client
