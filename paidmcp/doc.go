// Package paidmcp puts prices on the tools, resources and prompts of an MCP server of the official Go SDK. It asks an
// [x402.Facilitator], which is a client.Client of a service, or the service itself in the same process:
//
//	server := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, nil)
//	p := paidmcp.New(client.New(os.Getenv("TOLL_API_KEY")), paidmcp.Config{PlanID: planID, AgentID: agentID, ServerName: "demo"})
//	paidmcp.AddTool(p, server, &mcp.Tool{Name: "ask", Description: "Ask the agent"}, ask, paidmcp.Credits(5))
//
// # What happens to a call
//
//  1. Its payment is taken from params._meta["x402/payment"], a PaymentPayload or an access token, and removed. A bearer token
//     counts where there is none, which is deprecated.
//  2. It is verified for the logical url mcp://<server>/<type>/<name> with a hold: the credits are set aside, or the caller is
//     told what the call costs, a tool's caller by a result with isError, others by the error -32003.
//  3. The handler runs. It finds the [Payment] in its context and never sees the access token.
//  4. Its result is settled: the credits are burned, once, under the id of the call. Only then it leaves, with the receipt in
//     _meta. An error of the handler, a result with isError and a panic give the hold back: errors are free. So is a result that asks for input; the call that answers it is paid.
//  5. When a settlement is refused, or its outcome stays unknown after three tries, nothing of the result leaves
//     (see [OnRedeemError]).
//
// # Disconnects
//
// A caller may cancel a call or disconnect while the handler works, and then cannot fetch the answer. [OnDisconnect], or
// [Config.OnDisconnect] for all items, chooses who bears that:
//
//   - [paid.Settle], the default for tools: the handler continues, its context does not end, and a result without isError is
//     settled.
//   - [paid.Release], the default for resources, prompts and tools with the annotation readOnlyHint: the context of the handler
//     ends and the hold is released. A caller who disconnects in time gets the work for free.
//
// Before the handler runs nothing is burned. Work for a disconnected caller ends with the hold at the latest. A [Stream] that
// has begun ends at once, and what was delivered is settled. A client that can resume its stream (see [ServerConfig]) counts as
// connected.
//
// # Notifications
//
// What a handler says during a call, its log messages and the words in its progress, may be what is paid for. It waits until
// the call is settled and is dropped when it is not; progress in numbers alone passes. With [Stream] everything leaves as it
// comes, on the strength of the hold, and is settled at the end of the call or where it was cut; when the service is away
// then, a [paid.Queue] goes on trying. A notification belongs to a call by the context of its handler, and progress by its
// token as well: one that is sent with another context is not held back, and neither is a request to the caller, for input or
// sampling, since the handler waits for its answer.
package paidmcp
