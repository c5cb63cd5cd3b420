// Package paid puts a price on HTTP handlers. It is net/http middleware that uses an [x402.Facilitator]: a client.Client, or the
// service itself in the same process:
//
//	f := client.New(os.Getenv("TOLL_API_KEY"))
//	here := paid.PublicURL("https://agent.example.com")
//	mux.Handle("POST /ask", paid.Handler(f, ask, here, paid.Plan(planID), paid.Agent(agentID), paid.Credits(2)))
//	mux.Handle("POST /sum", paid.Handler(f, sum, here, paid.Plan(planID), paid.CreditsFunc(byLength)))
//
// # What happens to a request
//
//  1. The route checks the path and the sizes of the request, and reads its access token. A request has at most one token.
//  2. The route verifies the payment and holds the credits. Otherwise the request gets a 402 that contains the price. If the
//     service is unreachable, which is not the subscriber's fault, the request gets 503 and the handler does not run.
//  3. The handler runs. It finds the [Payment] in its context and never sees the access token, regardless of the header
//     that contained it ([TokenHeaders]). The route buffers the response.
//  4. The route settles a 2xx response: it burns the credits, once, under the id of the request, and then sends the response
//     with its receipt in payment-response. For any other status, it releases the hold and sends the response: errors are free.
//  5. If the settlement is refused, the request gets 402. If its outcome is still unknown after three attempts, the request
//     gets 503. Neither contains any part of the handler's response.
//
// # Streams
//
// A response streams, which means that its bytes are sent immediately, if the handler flushes, responds with text/event-stream, or
// writes more than [MaxBuffer]. A stream with a fixed price is settled when its first byte is ready. It begins with its receipt,
// does not need a hold after that, and costs its price even if it is interrupted.
//
// An event stream gets a comment every 15 s between two events, which does not count as content, and a header that keeps proxies
// from buffering events.
//
// A stream that [CreditsFunc] prices depends on its hold. It begins with Service-Request-Id in place of the receipt, and is settled when it
// ends, or when it is interrupted after at least one delivered byte. The hold is renewed at half of its life, for at most 24 hours, if the
// facilitator is an [x402.Renewer]. If renewal fails, the stream is cut when the hold ends: an event stream ends with an error event, and a
// stalled reader pays too. If the service is unreachable at the end of a stream, a [Queue] retries the settlement and calls [OnUnsettled].
//
// # Disconnects
//
// A caller may disconnect while the handler works. [OnDisconnect] chooses who pays for the work:
//
//   - [Settle], the default for POST, PUT, PATCH, DELETE, and other unsafe methods: the handler continues, its context does not
//     end, and a 2xx is settled. The subscriber pays for an unread response.
//   - [Release], the default for GET, HEAD, and OPTIONS: the handler's context ends and the hold is released. A caller who
//     disconnects early gets the work for free.
//
// The result depends on the moment of the disconnect:
//
//   - Before the handler runs: the handler does not run and no credits are burned.
//   - While the handler runs, and after it: the choice applies. Work for a disconnected caller ends at the latest when the hold
//     ends. A status other than 2xx, a panic, a handler that returned without a response after its context ended, and a request
//     with an incomplete body are free.
//   - During the settlement: the response is settled.
//   - While the response streams: the handler's context ends. With Settle, the stream is settled, even before its first delivered
//     byte; with Release, after at least one byte.
//
// Payments of wallets follow the same rules. A deadline that the program sets on the request does not count as a disconnect: work
// that it stops is free.
//
// # Wallets
//
// [PerCall] lists the price of a response for wallets in USDC or EURC, which need neither a plan nor an account. Their money cannot
// be held, so it is settled on the chain before a response is sent or a stream begins. Each authorization of a wallet pays for one
// response. The wallet pays only for a 2xx, and for a stream even if it is interrupted.
//
// # Multiple routes
//
// [Handler] prices one handler, [Routes] puts a price list in front of a router, and [Proxy] in front of any other HTTP server.
//
// The price depends on the request method. Many frameworks let a header, or a parameter "_method" in the query, a form, or a JSON
// body override the method. If the other method could have a different price, [Routes] and [Proxy] reject the request with 405. To
// detect overrides, they read form and JSON bodies of a POST on such a path, up to 1 MiB. They reject a larger body with 413 and a
// malformed body with 400.
//
// # Limitations of handlers
//
// A handler cannot hijack the connection, respond with 1xx, or change the protocol. Shared caches must not store paid responses, so
// they are marked private. If-None-Match and If-Modified-Since do not reach the handler, since a 304 would be free. Range does:
// each part is a response with its own price.
package paid
