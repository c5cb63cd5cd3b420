package workspace

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
)

// TestStoryOf: the steps of an order that happened are those up to its state, and a failed one says why.
func TestStoryOf(t *testing.T) {
	price := toll.UnitsOfCents(100)
	for _, c := range []struct {
		order      toll.Order
		want, open string // titles of the steps that happened, and of the others
	}{
		{toll.Order{Status: toll.OrderConfirmed}, "Recorded, Credits granted", ""},
		{toll.Order{Status: toll.OrderCreated, Amount: price, Currency: "usdc"}, "Recorded", "Signed, Sent to the chain, Included in a block, Credits granted, Final"},
		{toll.Order{Status: toll.OrderIncluded, Amount: price, Currency: "usdc"}, "Recorded, Signed, Sent to the chain, Included in a block", "Credits granted, Final"},
		{toll.Order{Status: toll.OrderFinal, Amount: price, Currency: "usdc"}, "Recorded, Signed, Sent to the chain, Included in a block, Credits granted, Final", ""},
		{toll.Order{Status: toll.OrderCreated, Amount: price, Currency: "usd"}, "Recorded", "Paid by card, Credits granted"},
		{toll.Order{Status: toll.OrderConfirmed, Amount: price, Currency: "usd", RefundedCents: 50, Disputed: true}, "Recorded, Paid by card, Credits granted, Refunded, Disputed", ""},
		{toll.Order{Status: toll.OrderFailed, Amount: price, Currency: "usdc", FailureReason: "no money"}, "Recorded, Failed", ""},
	} {
		c.order.CreatedAt, c.order.When = toll.At(time.Unix(1, 0)), toll.At(time.Unix(2, 0))
		done, open := "", ""
		for _, s := range storyOf(&c.order) {
			to := &done
			if s.Tone == "" {
				to = &open
			}
			if *to != "" {
				*to += ", "
			}
			*to += s.Title
		}
		if done != c.want || open != c.open {
			t.Errorf("%s %s: happened %q, open %q", c.order.Status, c.order.Currency, done, open)
		}
	}
}
