// Package paid puts a price on HTTP handlers. It is net/http middleware over an [x402.Facilitator], which is a
// client.Client of a service, or the service itself in the same process:
//
//	f := client.New(os.Getenv("TOLL_API_KEY"))
//	mux.Handle("POST /ask", paid.Handler(f, ask, paid.Plan(planID), paid.Agent(agentID), paid.Credits(2)))
//	mux.Handle("POST /sum", paid.Handler(f, sum, paid.Plan(planID), paid.CreditsFunc(byLength)))
//
// # What happens to a request
//
//  1. Its path is read once, and its sizes are checked. It may offer one access token, in one header.
//  2. The payment is verified with a hold: the credits are set aside, or the request gets 402 and says what it costs. When
//     the service cannot be asked, that is not the subscriber's fault: 503, and nothing runs.
//  3. The handler runs. It finds the [Payment] in its context and never sees the access token. What it writes is kept.
//  4. A 2xx answer is settled: the credits are burned, once, under the id of the request. Only then the answer leaves, with
//     its receipt in payment-response. Anything else gives the hold back and leaves as it is: errors are free.
//  5. A settlement that is refused is a 402 and one whose outcome stays unknown after three tries a 503, both without
//     a byte of what the handler wrote.
//
// # Streams
//
// A handler that flushes, answers with text/event-stream, or writes more than [MaxBuffer] streams: its bytes leave at once,
// on the strength of the hold. The answer then begins with Service-Request-Id in place of the receipt and is settled when it
// ends, or when it is cut after at least one byte was delivered. It cannot outlast its hold (see [HoldSecs]). When
// the service is away at the end, a [Queue] goes on trying and [OnUnsettled] is told.
//
// # Wallets
//
// [PerCall] lists what an answer costs a wallet in USDC or EURC, without a plan and an account. Nothing can be held of its money,
// so the settlement on the chain comes before anything that leaves: a whole answer waits for it, and a stream begins with it. One
// authorization of the wallet pays one answer. An answer that is no 2xx is not paid, and a stream that breaks after its beginning is.
//
// # More than one route
//
// [Handler] makes everything behind it paid. [Routes] puts a price list in front of a router, and [Proxy] in front of a
// server that knows nothing of payments.
//
// # What a handler gives up
//
// Its connection: it cannot hijack it, answer with 1xx, or change the protocol. And what would let a paid answer go to others
// or go for free: answers are private to caches, and If-None-Match and If-Modified-Since do not reach the handler, since
// a 304 would cost nothing. Range does: each part is an answer with its own price.
package paid
