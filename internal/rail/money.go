package rail

import (
	"context"
	"fmt"
	"time"

	"github.com/tollhq/toll"
)

// Later is the error of [Rail.Resume] with which a rail asks for another run after a time, although nothing failed: a person has
// not paid yet, or the processor has not decided. Without it the job stays held until its hold ends.
type Later struct{ After time.Duration }

func (l *Later) Error() string {
	return fmt.Sprintf("the outcome is not known yet; retry after %s", l.After)
}

// Adjustment is what became of the money of a confirmed order after it was paid. It is the whole state, not a change: the same
// adjustment again changes nothing, and a smaller one gives credits back.
type Adjustment struct {
	RefundedCents int64  // of all refunds that have not failed
	Dispute       string // "", or a word of store.Order.Dispute
	DisputedCents int64  // of the disputes that are open or lost; 0: such a dispute is about the whole payment
	// Inquiry says that the bank began to ask. It notifies, and changes nothing. Set it once, with the row of the inquiry.
	Inquiry bool
}

// Refund is money of a paid order that its builder gives back.
type Refund struct {
	ID      string // UUID
	OrderID string
	Cents   int64 // 0: all that is left
	By      toll.Address
}

// Refunder is a rail that gives money back.
type Refunder interface {
	// BeginRefund inserts the row of a refund and the job that sends it. The credits are taken back when the processor has made
	// the refund. Errors: [toll.CodeRefundRefused] while a dispute is open, and for more than is left.
	BeginRefund(ctx context.Context, t *Tx, r Refund) error
	// Refunded reads a refund: how many cents of the order are given back, and whether this one is decided, failed included.
	Refunded(ctx context.Context, refundID string) (decided bool, failure string, err error)
}

// Use is what a signed link of ours leads to. It is good for nothing else.
type Use string

const (
	UsePage  Use = "checkout"       // the page of an open order; valid as long as its session
	UseDone  Use = "checkout-done"  // what became of it, where the processor sends the browser; valid a day longer
	UseAgain Use = "checkout-again" // a new order in the place of one that needed its owner; valid an hour
)

func (u Use) Path(orderID string) string {
	path := "/checkout/" + orderID
	switch u {
	case UseDone:
		return path + "/done"
	case UseAgain:
		return path + "/again"
	}
	return path
}

// Enroller is a rail on which persons enrol what they pay with, on pages of the processor.
type Enroller interface {
	// Enroll returns the address of a page on which the owner enrols a card. back is an address of ours, without a query, where
	// the browser goes afterwards with the query setup=ID. source names who asks, for the limit of attempts: a hash of a network
	// address. Errors: [toll.CodeRateLimited], [toll.CodeCardUnreachable].
	Enroll(ctx context.Context, owner toll.Address, source, back string) (setupID, page string, err error)
	// Enrolled fetches an enrolment of the owner: the id of the payment method once the card works, "" before. failure says why
	// it never will. Errors: [toll.CodePaymentMethodNotFound], [toll.CodeCardUnreachable].
	Enrolled(ctx context.Context, owner toll.Address, setupID string) (methodID, failure string, err error)
}

// Pages is a rail on whose pages persons pay.
type Pages interface {
	// Page returns how the page of an open order is shown: an address of the processor to send the browser to, or the secret and
	// the key with which the page of ours embeds it. hosted asks for an address: an embedded page is ended first, and its result
	// is shown if it was paid. Both fields of Shown are "" when nothing is to be paid any more.
	Page(ctx context.Context, orderID string, hosted bool) (Shown, error)
	// ReplaceURL returns the address of a page of ours on which the owner makes a new order in the place of a failed one. It is
	// signed, and valid until ends. It asks nobody.
	ReplaceURL(owner toll.Address, orderID string, ends time.Time) (string, error)
	// EndUnpaid ends the page of an order that nobody is paying, first at the processor, and decides the order: it has failed, or was
	// paid meanwhile. ended reports that it has failed. Errors are those of a processor that cannot be asked now.
	EndUnpaid(ctx context.Context, orderID string) (ended bool, err error)
}

// Shown is the page of an order. It is never stored or logged.
type Shown struct {
	URL            string // of the processor
	ClientSecret   string // of an embedded page
	PublishableKey string
	Script         string // address of the script of the processor
}
