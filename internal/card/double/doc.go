// Package double is a stateful double of Stripe's HTTP API, with pages on which a person pays with test cards. No money moves. A program
// with stripe-go v85 cannot tell it from Stripe's test mode, as far as it uses what the double has.
//
//	d, err := double.New(double.Options{
//		SecretKey: "sk_test_0123456789",
//		File:      "double.json",
//		Webhooks:  []double.Webhook{{URL: hook, Secrets: []string{"whsec_1"}}},
//	})
//	defer d.Close()
//	server := httptest.NewServer(d.Handler())
//
// Point stripe-go at it with BackendConfig.URL and MaxNetworkRetries 0. A request with an
// idempotency key is repeated by net/http itself when a connection that was used before breaks.
//
// # What there is
//
//	/v1/…              customers, payment_methods, checkout/sessions (mode setup and payment,
//	                   ui_mode hosted_page and embedded_page), setup_intents, setup_attempts,
//	                   payment_intents (off session, confirmed at once), charges, refunds,
//	                   disputes, balance_transactions, events, webhook_endpoints, account; the
//	                   table is in routes.go
//	/c/pay/{session}   the page of a session: plain HTML without a script
//	/c/embed/{secret}  the same in a frame
//	/c/authenticate/…  the 3-D Secure step
//	/dahlia/stripe.js  mounts the page of an embedded session in a frame; leave.js beside it leaves the frame
//	/_double/faults    POST a [Fault] as JSON: from this machine, with the secret key
//	/_double/books     GET the [Books]
//
// It has one account, test mode only, USD and EUR, cards only, and one version of the API. It has no Connect, invoices, subscriptions,
// taxes, coupons, search, manual capture, saved cards on pages, evidence of disputes, and no fields of the API that are always null. A
// parameter that the double does not know is refused, even if Stripe knows it: a test must not pass because a parameter was ignored.
//
// # Cards
//
// The numbers are those of Stripe's page about testing; cards.go has all of them. The API takes the
// names of payment methods that stand for them.
//
//	4242 4242 4242 4242  pm_card_visa                           succeeds
//	4000 0025 0000 3155  pm_card_authenticationRequiredOnSetup  3-D Secure, then works off session
//	4000 0027 6000 3184  pm_card_authenticationRequired         always 3-D Secure
//	4000 0000 0000 0002  pm_card_visa_chargeDeclined            declined, as 9995, 9987, 0069, 0119
//	4000 0000 0000 0341  pm_card_chargeCustomerFail             can be saved, declined when charged
//	4000 0000 0000 0259  pm_card_createDispute                  is disputed later
//	4000 0000 0000 1976  pm_card_createDisputeInquiry           is inquired about later
//	4000 0000 0000 5126  pm_card_refundFail                     a refund fails later
//	4000 0000 0000 7726  pm_card_pendingRefund                  a refund is pending for a while
//
// Every other number is declined. The double keeps of a card its brand, its last four digits, its
// date and a fingerprint, and logs nothing about it.
//
// # Time
//
// Everything follows Options.Now, plus what the fault "clock" added. "Later" is Options.Later.
// Webhooks are signed with the time of Options.Now, so that moving the clock does not make them too
// old for their receiver. Only a request that hangs, and limits on slow peers, use real time.
//
// # State
//
// A request is answered after its changes are in Options.File. The file is replaced as a whole, so
// that a crash leaves the old state or the new one; that takes some milliseconds for each thousand
// objects. Options.MaxRows bounds it: above that, requests that create something get status 429.
package double
