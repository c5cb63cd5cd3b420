// Package paida2a puts a price on an agent of the Go SDK for A2A, with the x402 extension of that protocol
// ([ExtensionURI]). It asks an [x402.Facilitator], which is a client.Client of a service, or the service itself in the same process:
//
//	h := paida2a.Handler(client.New(os.Getenv("TOLL_API_KEY")), agent, paida2a.Config{
//		PlanID: planID, AgentID: agentID, Credits: 5, Card: a2a.AgentCard{Name: "demo", URL: "https://agent.example.com/ask"},
//	})
//
// # What happens to a task
//
//  1. A message opens a task. The answer is the task, input-required, with what it costs in the metadata of its status
//     (payment-required). A client that does not activate the extension with the header X-A2A-Extensions is refused.
//  2. The client declines (payment-rejected), which ends the task, or sends a PaymentPayload with the id of the task
//     (payment-submitted). It is verified with a hold: the credits are set aside (payment-verified), or the task fails
//     (payment-failed) with the reason in capitals. When the service cannot be asked the task stays open, and the same payment may be
//     sent again.
//  3. The agent works on the message, not on the one that brought the payment. It finds the [Payment] in its context and never sees
//     the payload, and neither does the history of the task.
//  4. What it made is settled: the credits are burned, once, under the id of the run. Only then artifacts and answer can be had
//     (payment-completed), with the receipt. A task that the agent fails, an error and a panic give the hold back: failures are
//     free, and keep nothing but the agent's last message. So does a question (input-required): the run that has the answer is paid.
//  5. When a settlement is refused, or its outcome stays unknown after three tries, the task fails and nothing that the agent made
//     leaves.
//
// # Disconnects
//
// [Config.OnDisconnect] chooses what happens to work whose caller disconnects:
//
//   - [paid.Settle], the default: the agent continues, and the task can be fetched. The agent of a canceled task learns it from
//     its context and from Cancel. If it stops, nothing is burned; if it completes the task, that is settled.
//   - [paid.Release]: the task is canceled when the paying caller disconnects and no other one follows it, and by tasks/cancel
//     at once. Nothing is burned, also for work that still finishes. A caller that did not wait (blocking false) counts as
//     connected.
//
// # Payments and tasks
//
// A payment that names one request, by a nonce or a payment identifier, counts for the task for which it came first; an access
// token as it was issued pays for tasks within its limits. A payment that comes again for its own task gets the task as it is.
//
// Tasks are kept in memory, for [Config.TaskLife] and at most [Config.MaxTasks] and [Config.MaxBytes]. message/stream and
// tasks/resubscribe tell what happens in the same order; what an agent writes on the way is part of what is paid for, and waits.
// There are no push notifications.
package paida2a
