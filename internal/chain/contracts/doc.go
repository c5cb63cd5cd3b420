// Package contracts knows the contracts that the crypto rail speaks to: where they are, what code they have, and what it takes
// to place them on a chain of one's own. Nothing here calls a chain, except the checks of [Check] and [CheckTokens].
//
// The creation code is in contracts.gen.json, which the program in the folder generate makes from pinned npm packages and
// from the Solidity in the folder solidity; decision 18 says why it is committed.
package contracts
