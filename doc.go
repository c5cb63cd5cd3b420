// Package toll is the vocabulary of a payment gate for agents: the values of the domain, the rules that need nothing but
// those values, and the codes of errors. It imports the standard library only, so that everything else can import it.
//
// # The story in types
//
// A builder, who is an [Address], registers an [Agent] (what is paid for: endpoints) and a [Plan] (what is bought). A plan
// has a [Price] and a [CreditsConfig]: what an order costs, what it grants, and what a request burns. A subscriber makes an
// [Order] and then has a [Balance] of the plan, in [Lot] parts that may end. An [AccessToken] lets an agent burn those
// credits; the [Permission] behind it says how many, where and until when. The outcome of each paid request is a
// [Settlement]. An [APIKey] is how builders and subscribers talk to the service.
//
// # Numbers
//
// Nothing here is a float. [Credits] count units of use, 0 to 2^63-1. [Units] are base units of a token, 0 to 2^256-1.
// Both are decimal strings in answers, and are accepted as strings or as JSON integers, which are read digit by digit.
// [ParseAmount] and [FormatAmount] turn base units to and from money as people write it, exactly.
//
// # Names
//
// A [PlanID] and an [AgentID] are uint256 numbers as decimal text; a [Hash] is 32 bytes, an [Address] 20. They are types of
// their own, so that two of them cannot change places.
//
// # Registration
//
// Three dialects of JSON register a plan: flat, nested, and the files of the command line. One struct per object reads all
// of them ([PriceInput], [CreditsInput], [PlanInput], [AgentInput], [AgentPlanInput]), with nil for what was absent, and one
// normaliser makes the stored form ([NormalizePrice], [PlanInput.Plan]). Records go the other way: the JSON of a [Plan]
// and of an [Agent] holds the nested and the flat form at once ([PlanRecord], [AgentRecord]).
//
// # Errors
//
// Every failure that reaches a caller is an [*Error] with a [Code] that never changes its meaning. [Codes] lists them with
// their HTTP status. Callers branch on the code:
//
//	if errors.Is(err, toll.ErrInsufficientCredits) { ... }
package toll
