package checkout

import (
	"context"
	"time"

	"github.com/tollhq/toll"
)

// Rail is a way in which money reaches the builder: the chain or the card processor. No rail is built in yet; orders of
// plans with a price are refused until one is.
//
// An error of either method decides nothing: the order stays open and is tried again. A *toll.Error with status 503 says
// that the rail cannot be used now and is shown to the caller; any other error means that the outcome is not known. What is
// decided is in the Payment.
type Rail interface {
	// Pay starts the payment of a recorded order, or goes on with the one that was started: the order id is its
	// idempotency key, so that an order is paid at most once whatever crashes between, also when several processes ask at
	// the same time. It returns when the payment is decided, when a person must act (CheckoutURL), or when ctx ends.
	Pay(ctx context.Context, p Purchase) (Payment, error)
	// Outcome tells what became of a payment that was started and that a person makes.
	Outcome(ctx context.Context, orderID string) (Payment, error)
}

// Rails are the ways that are there; nil for one that is not.
type Rails struct {
	Crypto Rail // plans priced in tokens
	Card   Rail // fiat plans
}

// Words of the rails in the records of orders.
const (
	railCrypto = "crypto"
	railCard   = "card"
)

func (r Rails) of(plan *toll.Plan) (string, Rail) {
	if plan.Price.IsCrypto {
		return railCrypto, r.Crypto
	}
	return railCard, r.Card
}

func (r Rails) byName(name string) Rail {
	switch name {
	case railCrypto:
		return r.Crypto
	case railCard:
		return r.Card
	}
	return nil
}

// Purchase is an order to be paid.
type Purchase struct {
	OrderID       string // UUID
	Plan          *toll.Plan
	Subscriber    toll.Address
	Credits       toll.Credits   // what the order grants
	Amounts       []toll.Units   // what each receiver gets: the price, for a pay-as-you-go plan times the credits
	Receivers     []toll.Address // of Amounts
	Total         toll.Units     // sum of Amounts
	DelegationID  string         // limit on money to pay with; "" when a person pays, or the wallet directly
	PaymentMethod string         // of the delegation: the card, or the address of the wallet
	Session       *SessionInput  // how a person pays; nil when nobody is asked
}

// SessionInput says how the page on which a person pays is made.
type SessionInput struct {
	Hosted     bool   `json:"hosted,omitempty"` // a page of the processor; else embedded into one of ours
	SuccessURL string `json:"successUrl,omitempty"`
	CancelURL  string `json:"cancelUrl,omitempty"`
}

// Payment is the state of a payment. Confirmed, final and failed decide it; every other state leaves the order open.
type Payment struct {
	Status        toll.OrderStatus
	TxHash        string // chain transaction, "" while none exists
	ProviderID    string // id of the payment at the rail; "" for TxHash
	FailureReason string // set when Status is failed
	// FailureCode is what the caller is told when Status is failed; "" is [toll.CodeOrderLacksMoney].
	FailureCode toll.Code
	Params      map[string]any // details of the failure for machines

	CheckoutURL string    // where a person pays, "" when nobody must act
	SessionID   string    // of the page
	CreatedAt   time.Time // of the page
	ExpiresAt   time.Time // of the page
}

func (p *Payment) decided() bool {
	return p.Status == toll.OrderConfirmed || p.Status == toll.OrderFinal || p.Status == toll.OrderFailed
}

// TakesCards reports whether fiat plans can be bought.
func (c *Checkout) TakesCards() bool { return c.rails.Card != nil }
