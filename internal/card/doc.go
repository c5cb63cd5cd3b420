// Package card is the card rail: Stripe charges the orders of fiat plans. Only this package imports stripe-go. It sends HTTP requests
// to Stripe, or to the double of Stripe.
//
// # How a payment is decided
//
// The state of the object at Stripe decides, never an event. Webhooks, the list of events, and the job of an open order all end in
// [Rail.Sync] or in a step of [Rail.Resume]. A step passes the row and the answer of Stripe to the function next, and stores the
// transition that next returns in one transaction with the order.
//
// # Calls are stored before they are sent
//
// Each request that changes an object at Stripe is a row of card_calls first, with its idempotency key and its bytes. After a crash or
// a lost answer the same bytes are sent under the same key. When Stripe may have forgotten a key, a list shows whether the object exists.
//
// # Secrets are not stored
//
// Client secrets, addresses of Stripe's pages, and card numbers are fetched when a page is shown. They are neither stored nor logged.
package card
