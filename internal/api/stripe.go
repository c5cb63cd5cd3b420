package api

import (
	"context"

	"github.com/tollhq/toll"
)

// PathStripeEvent is where the card processor sends its events.
const PathStripeEvent = Base + "/fiat/stripe/webhook"

// maxStripeEvent bounds an event of the card processor, in bytes.
const maxStripeEvent = 512 << 10

// StripeEvents takes the events of the card processor. signature is the header Stripe-Signature.
type StripeEvents interface {
	// CheckHead refuses an event that nobody could verify, by its header alone. Error:
	// [toll.CodeWebhookSignature].
	CheckHead(signature string) error
	// Receive verifies an event and stores it. body is as it came, byte for byte. Errors:
	// [toll.CodeWebhookSignature], those of the database.
	Receive(ctx context.Context, signature string, body []byte) error
}

// stripeHead refuses an event before its body is read.
func (h *handler) stripeHead(c *call) error {
	if h.StripeEvents == nil {
		return toll.NewError(toll.CodeCardOff)
	}
	lines := c.r.Header["Stripe-Signature"]
	if len(lines) != 1 {
		return toll.NewError(toll.CodeWebhookSignature).WithDetails("The request needs one header Stripe-Signature.")
	}
	return h.StripeEvents.CheckHead(lines[0])
}

// StripeEventReceived is the answer to an event of the card processor.
type StripeEventReceived struct {
	Received bool `json:"received"`
}

func (h *handler) receiveStripeEvent(c *call, body []byte) (*StripeEventReceived, error) {
	if err := h.StripeEvents.Receive(c.context, c.r.Header["Stripe-Signature"][0], body); err != nil {
		return nil, err
	}
	return &StripeEventReceived{Received: true}, nil
}
