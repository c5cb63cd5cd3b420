package double

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strings"
)

// testCard is how a card of Stripe's test mode behaves.
type testCard struct {
	number string
	name   string // of the payment method that stands for it: pm_card_…
	brand  string // visa when empty

	code, declineCode string // the card is declined; code is empty for one that works
	attaches          bool   // it can be set up and attached although it is declined

	auth    authRule
	dispute string // reason of the dispute that follows a charge
	inquiry bool   // the dispute is an inquiry
	refund  string // "fails" later, or is "pending" for a while
}

// authRule says when a card needs 3-D Secure.
type authRule int

const (
	authNever       authRule = iota
	authUnlessSetUp          // not off session after it was set up
	authAlways
)

// testCards are the cards of Stripe's page about testing that the double knows. It declines every
// other number, so that nobody's real card is taken.
var testCards = []testCard{
	{number: "4242424242424242", name: "pm_card_visa"},
	{number: "5555555555554444", name: "pm_card_mastercard", brand: "mastercard"},
	{
		number: "4000002500003155", name: "pm_card_authenticationRequiredOnSetup",
		auth: authUnlessSetUp,
	},
	{number: "4000002760003184", name: "pm_card_authenticationRequired", auth: authAlways},
	{
		number: "4000000000000002", name: "pm_card_visa_chargeDeclined",
		code: "card_declined", declineCode: "generic_decline",
	},
	{
		number: "4000000000009995", name: "pm_card_visa_chargeDeclinedInsufficientFunds",
		code: "card_declined", declineCode: "insufficient_funds",
	},
	{
		number: "4000000000009987", name: "pm_card_visa_chargeDeclinedLostCard",
		code: "card_declined", declineCode: "lost_card",
	},
	{number: "4000000000000069", name: "pm_card_chargeDeclinedExpiredCard", code: "expired_card"},
	{
		number: "4000000000000119", name: "pm_card_chargeDeclinedProcessingError",
		code: "processing_error",
	},
	{
		number: "4000000000000341", name: "pm_card_chargeCustomerFail", attaches: true,
		code: "card_declined", declineCode: "generic_decline",
	},
	{number: "4000000000000259", name: "pm_card_createDispute", dispute: "fraudulent"},
	{
		number: "4000000000001976", name: "pm_card_createDisputeInquiry",
		dispute: "fraudulent", inquiry: true,
	},
	{number: "4000000000005126", name: "pm_card_refundFail", refund: "fails"},
	{number: "4000000000007726", name: "pm_card_pendingRefund", refund: "pending"},
}

// messages are what people read, by code.
var messages = map[string]string{
	"card_declined":    "Your card was declined.",
	"expired_card":     "Your card has expired.",
	"processing_error": "An error occurred while processing your card. Try again in a little bit.",
}

func findCard(match func(testCard) bool) (testCard, bool) {
	i := slices.IndexFunc(testCards, match)
	if i < 0 {
		return testCard{}, false
	}
	return testCards[i], true
}

// cardNumbered finds the test card of a number as a person types it.
func cardNumbered(typed string) (testCard, *failure) {
	number := strings.NewReplacer(" ", "", "-", "").Replace(typed)
	if t, ok := findCard(func(t testCard) bool { return t.number == number }); ok {
		return t, nil
	}
	if !luhn(number) {
		return testCard{}, cardError("incorrect_number", "", "Your card number is incorrect.")
	}
	return testCard{}, cardError("card_declined", "test_mode_live_card", "Your card was declined. Your request was in test mode, but used a non test card.")
}

func cardNamed(name string) (testCard, bool) {
	return findCard(func(t testCard) bool { return t.name == name })
}

// luhn reports whether a number has the right check digit.
func luhn(number string) bool {
	if len(number) < 12 || len(number) > 19 || !digits(number) {
		return false
	}
	sum := 0
	for i := range len(number) {
		n := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

// fingerprint is equal for equal numbers of one double, and tells nothing about the number.
func (s *state) fingerprint(number string) text {
	mac := hmac.New(sha256.New, []byte(s.FingerprintKey))
	_, _ = mac.Write([]byte(number))
	return text(base32.StdEncoding.EncodeToString(mac.Sum(nil))[:16])
}

func (t testCard) decline() *failure {
	if t.code == "" {
		return nil
	}
	return cardError(t.code, t.declineCode, messages[t.code])
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }
