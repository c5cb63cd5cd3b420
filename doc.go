// Package toll defines the domain types of a payment service for agents, the rules that depend only on those types, and the
// error codes. It imports only the standard library, so that every other package can import it.
//
// # Domain types
//
// A builder, identified by an [Address], registers an [Agent] with paid endpoints and a [Plan]. The [Price] of a plan is the cost of an
// order; its [CreditsConfig] sets the credits that an order grants and a request burns. A subscriber places an [Order] and receives a
// [Balance], divided into [Lot] values that may expire. An [AccessToken] lets an agent burn those credits within the limits of its
// [Permission]. A [Settlement] is the outcome of one paid request. Builders and subscribers call the service with an [APIKey].
//
// # Numbers
//
// Amounts are never floats. [Credits] count units of use, 0 to 2^63-1. [Units] are base units of a token, 0 to 2^256-1.
// Both are decimal strings in responses. Requests may send strings or JSON integers, which are parsed exactly.
// [ParseAmount] and [FormatAmount] convert exactly between decimal money amounts and base units.
//
// # Names
//
// A [PlanID] and an [AgentID] are uint256 numbers as decimal text; a [Hash] is 32 bytes, an [Address] 20. Each is a
// distinct type, so the compiler catches swapped arguments.
//
// # Registration
//
// A plan can be registered in three dialects of JSON: flat, nested, and the files of the command line. One struct per
// object reads every dialect ([PriceInput], [CreditsInput], [PlanInput], [AgentInput], [AgentPlanInput]); absent members
// are nil. [NormalizePrice] and [PlanInput.Plan] return the stored form. The JSON of a [Plan] or an [Agent] contains both
// the nested and the flat form ([PlanRecord], [AgentRecord]).
//
// # Errors
//
// Every failure that reaches a caller is an [*Error] with a [Code] that never changes its meaning. [Codes] lists the codes
// with their HTTP status. Callers branch on the code:
//
//	if errors.Is(err, toll.ErrInsufficientCredits) { ... }
package toll
