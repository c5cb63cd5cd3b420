// Package x402 speaks version 2 of the x402 payment protocol.
//
// # The objects
//
// A server that wants to be paid answers with a [PaymentRequired], which [NewPaymentRequired] makes from the [Terms] of
// plans. The subscriber sends an access token: a compact JWS, or a payment payload around it. [DecodeToken] takes each
// form and [EncodeToken] writes the second one. The server asks a [Facilitator] about it: Verify (which may set credits
// aside), Settle (which burns them) or Release. A Go client satisfies Facilitator over HTTP, the service in process.
//
// A client reads what any server asks for with [ReadChallenge], pays one [Entry] of it with [Challenge.Answer] and reads the
// receipt with [ReadSettlement]. What it sends is an access token ([NewCreditsPayload]) or, for the scheme exact, an
// authorization that a wallet has signed ([ExactPayload], which [DecodeExact] reads). [ClientScheme] and [ServerScheme] are
// plug-ins for software of others.
//
// [SignedOffer] and [SignedReceipt] are statements of a service, [SignIn] is the proof of a wallet, and a [Catalogue] lists what
// can be paid for.
//
// # What is trusted
//
// Only the JWS inside an access token is signed. Everything around it is a claim of the sender: after the signature was
// checked, [Token.Contradicts] compares it with what was signed. Urls are compared in one normal form by [Endpoints],
// and a url that two readers could read differently falls under no endpoint.
//
// # Text
//
// [Decode] is the one JSON decoder of the project and [Encode] the one encoder. Decode is strict where differences
// between decoders hurt (duplicate names, case, UTF-8, depth, bytes after the end), ignores what it does not know, and
// reports all wrong members of a body at once. Header values go through [EncodeHeader] and [DecodeHeader].
//
// # Words
//
// Every brand word on the wire comes out of one [Namespace]. [ReasonOf] and [CodeOf] translate between the reason words of
// the protocol and the error codes of package toll.
package x402
