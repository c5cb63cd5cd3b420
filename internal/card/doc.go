// Package card is the card rail: orders of fiat plans are paid by card through Stripe. It is the only room that imports
// stripe-go, and it speaks to Stripe, or to the double of Stripe, over HTTP alone.
//
// # What decides
//
// The state of the object at Stripe decides, never an event. Webhooks, the list of events, and the job of an open order all end
// in [Rail.Sync] or in the same step of [Rail.Resume]: fetch the object, compare its terms with the row, and store what follows
// in one transaction with the order.
//
// # What is stored before it is sent
//
// Each request that changes something at Stripe is a row of card_calls first, with its idempotency key and its bytes. After a
// crash or a lost answer the same bytes are sent under the same key. A key that Stripe may have forgotten is never sent again:
// the object is looked up by list.
//
// # What is never stored
//
// Client secrets, addresses of Stripe's pages, numbers of cards. They are fetched when a page is shown, and not logged.
package card
