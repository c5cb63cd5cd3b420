package workspace

import (
	"fmt"
	"strings"
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
		for _, s := range storyOf(&c.order, OrderTimes{}) {
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

// TestStoryOf_Times: each step has its own time. A refund or a dispute does not move the steps before it.
func TestStoryOf_Times(t *testing.T) {
	at := func(secs int64) time.Time { return time.Unix(secs, 0).UTC() }
	card := toll.Order{Status: toll.OrderConfirmed, Amount: toll.UnitsOfCents(500), Currency: "usd", CreatedAt: toll.At(at(10)), When: toll.At(at(90))}
	refunded, disputed := card, card
	refunded.RefundedCents, disputed.RefundedCents, disputed.Disputed = 300, 300, true
	final := toll.Order{Status: toll.OrderFinal, Amount: toll.UnitsOfCents(500), Currency: "usdc", CreatedAt: toll.At(at(10)), When: toll.At(at(90))}
	times := OrderTimes{Paid: at(20), Granted: at(30), Refunds: []Refunded{{At: at(60), Cents: 100}, {At: at(70), Cents: 200}}, Disputed: at(80)}
	reversed := final
	reversed.Status = toll.OrderFailed
	early := times
	early.Paid = at(5)
	for what, c := range map[string]struct {
		order toll.Order
		times OrderTimes
		want  string // titles and seconds; 0: none
	}{
		"not indexed yet":               {card, OrderTimes{}, "Recorded 10, Paid by card 90, Credits granted 90"},
		"refunded, not indexed":         {refunded, OrderTimes{}, "Recorded 10, Paid by card 0, Credits granted 0, Refunded 0"},
		"refunded twice":                {refunded, times, "Recorded 10, Paid by card 20, Credits granted 30, Refunded 60, Refunded 70"},
		"refunded and disputed":         {disputed, times, "Recorded 10, Paid by card 20, Credits granted 30, Refunded 60, Refunded 70, Disputed 80"},
		"the processor's clock is slow": {refunded, early, "Recorded 10, Paid by card 30, Credits granted 30, Refunded 60, Refunded 70"},
		"reversed":                      {reversed, OrderTimes{Granted: at(30)}, "Recorded 10, Credits granted 30, Payment reversed 90"},
		"final":                         {final, OrderTimes{Granted: at(30)}, "Recorded 10, Signed 0, Sent to the chain 0, Included in a block 0, Credits granted 30, Final 90"},
	} {
		var got []string
		for _, s := range storyOf(&c.order, c.times) {
			secs := int64(0)
			if !s.At.IsZero() {
				secs = s.At.Unix()
			}
			got = append(got, fmt.Sprint(s.Title, " ", secs))
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s:\n%s, want\n%s", what, text, c.want)
		}
	}
}

// TestOrderState: refunds, disputes, and expired pages have their own words.
func TestOrderState(t *testing.T) {
	price := toll.UnitsOfCents(500)
	for want, o := range map[string]toll.Order{
		"Granted":            {Status: toll.OrderConfirmed, Currency: "usdc"},
		"Paid":               {Status: toll.OrderConfirmed, Amount: price, Currency: "usd"},
		"Awaiting payment":   {Status: toll.OrderCreated, Amount: price, Currency: "eur"},
		"Processing":         {Status: toll.OrderSent, Amount: price, Currency: "usdc"},
		"Expired":            {Status: toll.OrderFailed, Amount: price, Currency: "usd", FailureCode: toll.FailureExpired},
		"Failed":             {Status: toll.OrderFailed, Amount: price, Currency: "usd", FailureCode: toll.FailureDeclined, FailureReason: "The card has expired."},
		"Partially refunded": {Status: toll.OrderConfirmed, Amount: price, Currency: "usd", RefundedCents: 499},
		"Refunded":           {Status: toll.OrderConfirmed, Amount: price, Currency: "usd", RefundedCents: 500},
		"Disputed":           {Status: toll.OrderConfirmed, Amount: price, Currency: "usd", RefundedCents: 1, Disputed: true},
	} {
		if got := orderState(&o).Text; got != want {
			t.Errorf("%+v is %q, want %q", o, got, want)
		}
	}
}
