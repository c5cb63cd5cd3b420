// Package paidmcp sets prices for the tools, resources and prompts of an MCP server of the official Go SDK. An [x402.Facilitator]
// verifies and settles the payments: a client.Client of a service, or the service itself in the same process:
//
//	server := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
//	p := paidmcp.New(client.New(os.Getenv("TOLL_API_KEY")), paidmcp.Config{PlanID: planID, AgentID: agentID, ServerName: "demo"})
//	paidmcp.AddTool(p, server, &mcp.Tool{Name: "ask", Description: "Ask the agent"}, ask, paidmcp.Credits(5))
//
// # Steps of a call
//
//  1. The server removes the payment from params._meta["x402/payment"]: a PaymentPayload or an access token. Without it, a bearer
//     token pays, which is deprecated.
//  2. The facilitator verifies the payment for the logical url mcp://<server>/<type>/<name> and holds the credits. If it refuses,
//     the response states the price: a result with isError for tools, and the error -32003 for resources and prompts.
//  3. The handler runs. It finds the [Payment] in its context and never sees the access token.
//  4. The facilitator burns the credits once, under the id of the call. Then the server sends the result, with the receipt in
//     _meta. Errors, panics and requests for input are free: the hold is released. The call that supplies the input is paid.
//  5. If the settlement is refused, or its outcome is unknown after three tries, no part of the result is sent
//     (see [OnRedeemError]).
//
// The price of a call is fixed ([Credits]), or depends on its result ([CreditsFunc]) and, for the hold, on its arguments
// ([MaxCreditsFunc]). With [PerCall], a wallet without a plan can pay for a call with a fixed price. Its money is not held, so the
// authorization is executed before the result or any notification is sent.
//
// # Disconnects
//
// A caller that cancels a call or disconnects while the handler works cannot fetch the answer. [OnDisconnect], or
// [Config.OnDisconnect] for all items, decides whether the caller pays:
//
//   - [paid.Settle], the default for tools: the handler continues, its context does not end, and a result without isError is
//     settled.
//   - [paid.Release], the default for resources, prompts and tools with the annotation readOnlyHint: the context of the handler
//     ends and the hold is released. A caller who disconnects before the settlement gets the work for free.
//
// No credits are burned before the handler runs. Work for a disconnected caller ends with the hold at the latest. A [Stream] that has
// started ends at once, and the delivered part is settled. A client that can resume its stream (see [ServerConfig]) counts as connected.
//
// # Notifications
//
// Log messages and progress messages of a handler may contain paid content. They wait until the call is settled, and are dropped
// if it is not. Numeric progress is sent at once unless a message waits. With [Stream] all notifications are sent at once, backed
// by the hold, and the call is settled at its end or where it was cut; if the service is unreachable then, a [paid.Queue] retries.
// A notification belongs to a call by the context of its handler, or progress by its token. All other notifications are sent at
// once. So are requests to the caller, for input or sampling, because the handler waits for the response.
package paidmcp
