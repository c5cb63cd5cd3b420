// Package x402 implements version 2 of the x402 payment protocol.
//
// # Payments
//
// A server requests payment with a [PaymentRequired], which [NewPaymentRequired] builds from the [Terms] of plans. The
// subscriber sends an access token: a compact JWS, or a payment payload around it. [DecodeToken] reads both forms and
// [EncodeToken] writes the second. The server calls a [Facilitator]: Verify (which may hold credits), Settle (which burns
// them), or Release. Package client implements Facilitator over HTTP, and the service implements it in process.
//
// A client reads the challenge of any server with [ReadChallenge], pays one [Entry] of it with [Challenge.Answer], and reads the receipt
// with [ReadSettlement]. It pays with an access token ([NewCreditsPayload]) or, for the scheme exact, with a signed authorization
// ([ExactPayload], which [DecodeExact] reads). [ClientScheme] and [ServerScheme] are plug-ins for other x402 software.
//
// A service signs [SignedOffer] and [SignedReceipt], a wallet signs [SignIn], and a [Catalogue] lists paid resources.
//
// # Trust
//
// Only the JWS inside an access token is signed. The sender claims the rest: after checking the signature, call
// [Token.Contradicts] to compare these claims with the signed content. [Endpoints] compares URLs in one normal form. A URL
// that two parsers could read differently matches no endpoint.
//
// # Text
//
// [Decode] and [Encode] are the only JSON decoder and encoder of the project. Decode is strict where decoders disagree in
// harmful ways (duplicate names, case, UTF-8, depth, trailing bytes), ignores unknown members, and reports all wrong
// members of a body at once. Header values go through [EncodeHeader] and [DecodeHeader].
//
// # Words
//
// A [Namespace] holds every brand word on the wire. [ReasonOf] and [CodeOf] translate between the reason words of the
// protocol and the error codes of package toll.
package x402
