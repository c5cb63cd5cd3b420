// Package paid puts a price on HTTP handlers. It is net/http middleware over an [x402.Facilitator], which is a
// client.Client of a service, or the service itself in the same process:
//
//	f := client.New(os.Getenv("TOLL_API_KEY"))
//	here := paid.PublicURL("https://agent.example.com")
//	mux.Handle("POST /ask", paid.Handler(f, ask, here, paid.Plan(planID), paid.Agent(agentID), paid.Credits(2)))
//	mux.Handle("POST /sum", paid.Handler(f, sum, here, paid.Plan(planID), paid.CreditsFunc(byLength)))
//
// # What happens to a request
//
//  1. Its path is read once, and its sizes are checked. It may offer one access token, in one header.
//  2. The payment is verified with a hold: the credits are set aside, or the request gets 402 and says what it costs. When
//     the service cannot be asked, that is not the subscriber's fault: 503, and nothing runs.
//  3. The handler runs. It finds the [Payment] in its context and never sees the access token, in whatever header the
//     caller sent it ([TokenHeaders]). What it writes is kept.
//  4. A 2xx answer is settled: the credits are burned, once, under the id of the request. Only then the answer leaves, with
//     its receipt in payment-response. Anything else gives the hold back and leaves as it is: errors are free.
//  5. A settlement that is refused is a 402 and one whose outcome stays unknown after three tries a 503, both without
//     a byte of what the handler wrote.
//
// # Streams
//
// A handler that flushes, answers with text/event-stream, or writes more than [MaxBuffer] streams: its bytes leave at once. A
// stream with a fixed price is settled when its first byte is ready. It begins with its receipt, needs no hold from then on, and
// costs its price however it ends.
//
// An event stream gets a comment each 15 s between two events, which is not counted, and a header that keeps proxies from gathering
// events.
//
// A stream that [CreditsFunc] prices runs on the strength of its hold. It begins with Service-Request-Id in place of the receipt
// and is settled when it ends, or when it is cut after at least one byte was delivered. The hold is renewed at half of its life,
// for 24 hours at most, if the facilitator is an [x402.Renewer]. When it could not be renewed, the stream is cut at the end of the
// hold: an event stream ends with an error event, and a reader who stalled pays too. When the service is away at the end, a
// [Queue] goes on trying and calls [OnUnsettled].
//
// # Disconnects
//
// A caller may disconnect while the handler works. [OnDisconnect] chooses who bears that:
//
//   - [Settle], the default for POST, PUT, PATCH, DELETE and other unsafe methods: the handler continues, its context does not
//     end, and a 2xx is settled. The subscriber pays for an answer that was not read.
//   - [Release], the default for GET, HEAD and OPTIONS: the context of the handler ends and the hold is released. A caller who
//     disconnects in time gets the work for free.
//
// The moment matters:
//
//   - Before the handler runs, nothing runs and nothing is burned.
//   - While it runs, and after it, the choice applies. Work for a disconnected caller ends with the hold at the latest. A status
//     other than 2xx, a panic, a handler that returned without an answer after its context ended, and a request whose body is
//     incomplete are free.
//   - During the settlement the answer is settled.
//   - While the answer streams, the context of the handler ends. With Settle the stream is settled, also without a byte
//     delivered; with Release after at least one byte.
//
// Payments of wallets follow the same rules. A deadline that the program sets on the request is not a disconnect: work that it
// stops is free.
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
// The method of the request decides what it costs. Many frameworks let a header or a parameter "_method" of the query, a form or a
// JSON body name another method. Where that method could have another price, [Routes] and [Proxy] answer such a request 405. To see
// it they read form and JSON bodies of a POST on such a path, up to 1 MiB; a larger one is 413 and a malformed one 400.
//
// # What a handler gives up
//
// Its connection: it cannot hijack it, answer with 1xx, or change the protocol. And what would let a paid answer go to others
// or go for free: answers are private to caches, and If-None-Match and If-Modified-Since do not reach the handler, since
// a 304 would cost nothing. Range does: each part is an answer with its own price.
package paid
