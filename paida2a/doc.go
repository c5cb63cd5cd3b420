// Package paida2a puts a price on an agent of the Go SDK for A2A, using the x402 extension of that protocol ([ExtensionURI]). It
// uses an [x402.Facilitator]: a client.Client, or the service itself in the same process:
//
//	h := paida2a.Handler(client.New(os.Getenv("TOLL_API_KEY")), agent, paida2a.Config{
//		PlanID: planID, AgentID: agentID, Credits: 5, Card: a2a.AgentCard{Name: "demo", URL: "https://agent.example.com/ask"},
//	})
//
// # What happens to a task
//
//  1. A message opens a task. The response is the task, input-required, with its price in the metadata of its status
//     (payment-required). A client must activate the extension with the header X-A2A-Extensions, or its message is rejected.
//  2. The client declines (payment-rejected), which ends the task, or sends a PaymentPayload with the id of the task
//     (payment-submitted). The handler verifies the payment and holds the credits (payment-verified), or the task fails
//     (payment-failed) with the reason in capitals. If the service is unreachable, the task stays open, and the client can send the
//     same payment again.
//  3. The agent works on the original message, not on the message with the payment. It finds the [Payment] in its context. Neither
//     the agent nor the history of the task contains the payload.
//  4. The handler settles the completed task: it burns the credits, once, under the id of the run. After that, the artifacts and the
//     reply are available (payment-completed), with the receipt. If the agent fails the task, returns an error, or panics, the hold
//     is released. Failures are free and keep only the agent's last message. A question (input-required) is free too: the client
//     pays for the run that completes the task.
//  5. If a settlement is refused, or its outcome is still unknown after three attempts, the task fails without the agent's results.
//
// # Disconnects
//
// [Config.OnDisconnect] chooses what happens to work whose caller disconnects:
//
//   - [paid.Settle], the default: the agent continues, and the task can be fetched later. If the task is canceled, the agent's
//     context ends and its Cancel is called. If the agent stops, no credits are burned; if it still completes the task, it is paid.
//   - [paid.Release]: the task is canceled when the paying caller disconnects and no other caller follows it, and immediately by
//     tasks/cancel. No credits are burned, even if the work still finishes. A caller that did not wait (blocking false) counts as
//     connected.
//
// # Payments and tasks
//
// A payment for one request, with a nonce or a payment identifier, is bound to the first task for which it is sent. A bare access
// token pays for any task within its limits. Sending a payment again for its task returns the current task.
//
// Tasks are kept in memory, for [Config.TaskLife] and within [Config.MaxTasks] and [Config.MaxBytes]. message/stream and
// tasks/resubscribe report events in the same order. Events that an agent writes during a run are part of the paid result, and are
// sent after the settlement. Push notifications are not supported.
package paida2a
