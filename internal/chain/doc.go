// Package chain is the crypto rail: it moves money from the account of a subscriber to the receivers of a plan on an
// EVM chain with ERC-4337 user operations, at most once for an order, whatever crashes between.
//
// An order becomes one user operation, for ever: the nonce key of the operation comes from the order id, so that the chain
// itself refuses a second run. Its bytes are stored before they are sent, recovery sends the same bytes again, and the
// outcome is the event of the EntryPoint with the hash of the operation, never the status of a transaction of ours.
//
// The package owns its records, which it writes through functions of store, and no SQL. It owns no credits: it
// decides an order, with its credits, in the transaction that stores what the chain says of it ([rail.Orders]).
package chain
