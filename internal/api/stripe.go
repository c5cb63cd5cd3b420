package api

import (
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// PathStripeEvent is where the card processor sends its events.
const PathStripeEvent = Base + "/fiat/stripe/webhook"

const (
	// maxStripeEvent bounds an event of the card processor, in bytes.
	maxStripeEvent = 512 << 10
	// maxStripeAge is how far the time in the signature of an event may be from ours, in both directions.
	maxStripeAge = 5 * time.Minute
)

// stripeHead refuses events that nobody could verify, by their head alone: what is sent without a signature, or with one of
// another time, costs no body.
func (h *handler) stripeHead(c *call) error {
	if h.StripeEvent == nil {
		return toll.NewError(toll.CodeCardOff)
	}
	lines := c.r.Header["Stripe-Signature"]
	if len(lines) != 1 {
		return toll.NewError(toll.CodeWebhookSignature).WithDetails("The request needs one header Stripe-Signature.")
	}
	at, ok := stripeTime(lines[0])
	if !ok {
		return toll.NewError(toll.CodeWebhookSignature).WithDetails("Stripe-Signature has no time t, in Unix seconds.")
	}
	if age := h.Machine().Sub(at); age > maxStripeAge || age < -maxStripeAge {
		return toll.NewError(toll.CodeWebhookSignature).WithDetails("The time of the signature is more than 300 s from the time of this service.")
	}
	return nil
}

// stripeTime reads the member t of a header Stripe-Signature, whose members are NAME=VALUE with commas between.
func stripeTime(header string) (at time.Time, ok bool) {
	for part := range strings.SplitSeq(header, ",") {
		if text, found := strings.CutPrefix(strings.TrimSpace(part), "t="); found {
			secs, err := strconv.ParseInt(text, 10, 64)
			return time.Unix(secs, 0), err == nil
		}
	}
	return time.Time{}, false
}

// StripeEventReceived is the answer to an event of the card processor.
type StripeEventReceived struct {
	Received bool `json:"received"`
}

func (h *handler) receiveStripeEvent(c *call, body []byte) (*StripeEventReceived, error) {
	if err := h.StripeEvent(c.r.Context(), c.r.Header["Stripe-Signature"][0], body); err != nil {
		return nil, err
	}
	return &StripeEventReceived{Received: true}, nil
}
