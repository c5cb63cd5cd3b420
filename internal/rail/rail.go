// Package rail holds the types that checkout and the rails share. A rail is a way in which money reaches the builder: the
// chain or the card processor. The order is the business record, the rail's own row its execution; both lie in the same
// database and are joined by the id of the order.
package rail

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/store"
)

// Names of rails in orders.
const (
	Crypto = store.RailCrypto // pays plans priced in tokens
	Card   = store.RailCard   // pays fiat plans
)

// Rails are the rails of a service by their names. Orders of another rail are refused.
type Rails map[string]Rail

// Rail pays orders.
//
// The rail has one row for an order, under the order's id. [Rail.Begin] inserts it in the transaction that records the order;
// from then on the rail moves it, and decides the order through [Orders] in the transaction that stores what decides it. Any
// number of processes may do so: the order id is the idempotency key of the payment.
type Rail interface {
	// Connect hands over the orders that the rail decides. It is called once, before the rail is used.
	Connect(o Orders)
	// Prepare refuses a purchase that can never be paid: a *toll.Error below status 500 with code, details and params of the failed order.
	// After any other error the order is not recorded. For a pay-as-you-go plan the purchase is that of one credit. It reaches no network.
	Prepare(ctx context.Context, p *Purchase) error
	// Begin inserts the row of a prepared purchase, and does nothing else. A repeat changes nothing.
	Begin(ctx context.Context, tx *store.Tx, p *Purchase) error
	// Resume does the steps of an open order that need a caller; the rail does the rest in the background. A repeat does no harm. An error
	// decides nothing. A *toll.Error with status 503 says that the rail is unavailable now; the rail keeps it as the [Delay] of the
	// payment. A *[Later] is not a failure.
	Resume(ctx context.Context, p *Purchase) error
	// Payment reads the row of an order, and nothing else. [store.ErrNotFound]: it was not begun.
	Payment(ctx context.Context, q store.Querier, orderID string) (Payment, error)
}

// Delegator is a crypto rail on which a delegation is more than a record: a signature that the chain enforces.
type Delegator interface {
	// SignatureRequest returns what the holder of OwnerAccount signs. It reads the chain, and sends nothing.
	SignatureRequest(ctx context.Context, d *Delegation) (*SignatureRequest, error)
	// CheckSignature verifies Signature, and Authorization when there is one, as the chain would. Errors:
	// [toll.CodeChainSignature], [toll.CodeChainForeignCode], and those with status 503.
	CheckSignature(ctx context.Context, d *Delegation) error
	// Revoke disables a delegation whose account the service holds. True says that it is disabled; false without an error that what
	// disables it is under way, whatever happens to this process. Until it is disabled it is asked again. A repeat does no harm.
	Revoke(ctx context.Context, d *Delegation) (done bool, err error)
	// Revocation returns the call with which the holder of OwnerAccount disables the delegation. It sends nothing.
	Revocation(ctx context.Context, d *Delegation) (*Call, error)
}

// Seller is a crypto rail that sells to wallets without an account here: it executes a signed token authorization (EIP-3009).
type Seller interface {
	// Domain returns the domain in which holders of a token sign, false for an unsupported token and without a chain. It makes no call.
	Domain(token toll.Address) (evm.Domain, bool)
	// Accepts reports whether the code of an account accepts a signature of a digest (ERC-1271), false without code or chain.
	// Errors have status 503.
	Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error)
	// CheckSale checks whether an authorization would pay an order now, without OrderID. It sends and stores nothing. used reports
	// that the chain has executed it, so that it is public. Errors: why the sale cannot be paid, with Reason, and status 503.
	CheckSale(ctx context.Context, s Sale) (used bool, err error)
	// Sell executes an authorization that settles for another server, without an order, and returns when it is decided or ctx ends.
	// It is paid when the chain has executed it, once, by any sender. A failure has Params["reason"]. An error decides nothing.
	Sell(ctx context.Context, s Sale) (Payment, error)
	// Recheck reports whether somebody else has executed the authorization of a sale that failed unsent; the chain then decides again.
	Recheck(ctx context.Context, orderID string) (bool, error)
	// Dead reports whether an authorization expired unused, in a final block. It uses neither OrderID nor Signature. Errors: the chain
	// is unavailable.
	Dead(ctx context.Context, s Sale) (bool, error)
}

// Sale is an order that an authorization pays: the wallet From owns the credits.
type Sale struct {
	OrderID       string    // UUID
	Account       [16]byte  // of the order; zero for a sale of another server
	OrderedAt     time.Time // zero: now
	Token         toll.Address
	Authorization evm.Authorization
	Signature     []byte // of From: 65 bytes of its key, or what its code takes, at most [evm.MaxSignature] bytes
}

// Delegation is a spending limit as a rail knows it. Its fields are signed, so only Signature and Authorization change, once.
type Delegation struct {
	ID                string // UUID
	Owner             toll.Address
	OwnerAccount      toll.Address // account that the user holds; zero: the wallet that the service holds for Owner
	Currency          string       // "usdc" or "eurc" on the chain
	LimitCents        int64
	CreatedAt         time.Time
	ExpiresAt         time.Time
	AllowedRecipients []toll.Address // empty: any
	Signature         []byte         // of OwnerAccount; nil: the service signs, or the signature is still to come
	// Authorization is the signed EIP-7702 authorization of OwnerAccount as it was handed in; nil: none was. It goes along with
	// the first order that finds the account without code.
	Authorization json.RawMessage
}

// SignatureRequest is what the holder of an account signs.
type SignatureRequest struct {
	TypedData    map[string]any // EIP-712, as wallets take it
	Account      toll.Address
	CodeRequired bool // the account has no code yet, so an authorization belongs to the signature
}

// Call is a transaction for the holder of an account to send.
type Call struct {
	To   toll.Address
	Data []byte
}

// Purchase is an order to be paid.
type Purchase struct {
	OrderID       string    // UUID
	Account       [16]byte  // ledger account of the order
	OrderedAt     time.Time // zero: now
	Plan          *toll.Plan
	Sale          *Sale        // the authorization that pays; nil for other orders
	Token         toll.Address // of a crypto plan; zero: the native token
	Subscriber    toll.Address
	Credits       toll.Credits   // what the order grants
	Amounts       []toll.Units   // what each receiver gets: the price, for a pay-as-you-go plan times the credits
	Receivers     []toll.Address // of Amounts
	Total         toll.Units     // sum of Amounts
	DelegationID  string         // limit on money to pay with; "" when a person pays, or the wallet directly
	Delegation    *Delegation    // of DelegationID; nil when it is ""
	PaymentMethod string         // of the delegation: the card, or the address of the wallet
	TopUp         bool           // a request waits for it
	Means
}

// Means says how an order is paid.
type Means struct {
	Rail    string
	Session *SessionInput // how a person pays; nil when no person does
}

// SessionInput says how the page on which a person pays is made.
type SessionInput struct {
	Hosted     bool   `json:"hosted,omitempty"` // a page of the processor; else embedded into one of ours
	SuccessURL string `json:"successUrl,omitempty"`
	CancelURL  string `json:"cancelUrl,omitempty"`
}

type Payment struct {
	Outcome
	Delay       *Delay    // why it cannot go on now; nil when it can
	CheckoutURL string    // where a person pays, "" when nobody must act
	SessionID   string    // of the page
	CreatedAt   time.Time // of the page
	ExpiresAt   time.Time // of the page
}

// Delay says why a payment cannot be carried on now.
type Delay struct {
	Code  toll.Code `json:"code"`
	Until time.Time `json:"until"` // before which another try is of no use
}

// NewDelay returns the delay that the error of a rail which cannot be used asks for; nil for other errors.
func NewDelay(err error, now time.Time) *Delay {
	e, ok := errors.AsType[*toll.Error](err)
	if !ok || e.HTTPStatus() != 503 {
		return nil
	}
	return &Delay{Code: e.Code, Until: now.Add(time.Duration(max(e.RetryAfterSecs, 1)) * time.Second)}
}

func (d *Delay) Err(now time.Time) *toll.Error {
	e := toll.NewError(d.Code)
	e.RetryAfterSecs = max(int(d.Until.Sub(now)/time.Second), 1)
	return e
}

// Orders is how a rail decides orders.
type Orders interface {
	// Change runs f in one transaction that holds the lock of an account, so that a rail writes its row and decides the order
	// together. f may run several times, so it changes nothing outside the database; what the rail keeps in memory moves after
	// Change has returned nil. f must not reach the network. The error is that of f, or of the database.
	Change(ctx context.Context, account [16]byte, f func(t *Tx) error) error
	// Spent says in a transaction of the rail how many base units have been spent of a delegation in all. A repeat changes nothing. It
	// must be the last write of the transaction, as Disabled is. Errors: [toll.CodeUnknownDelegation].
	Spent(ctx context.Context, tx *store.Tx, delegationID string, units toll.Units) error
	// Disabled says in a transaction of the rail that a delegation was revoked there. A repeat changes nothing. Errors:
	// [toll.CodeUnknownDelegation].
	Disabled(ctx context.Context, tx *store.Tx, delegationID string) error
	// Unmatched stores a card payment without an order in a transaction of the rail. load inserts or locks the row, changes it,
	// and returns it. The delegation that its metadata name, "" for none, counts its cents as paid until they are refunded or an
	// order has them. It must be the last write of the transaction.
	Unmatched(ctx context.Context, tx *store.Tx, delegationID string, load func() (*store.CardOrphan, error)) error
}

// Tx is a transaction that holds the lock of an account.
type Tx struct {
	*store.Tx
	decide     func(orderID string, o Outcome) error
	returnSlot func(orderID string) error
	adjust     func(orderID string, a Adjustment) error
}

// NewTx returns a transaction whose orders decide, returnSlot and adjust write. adjust is nil where no rail adjusts.
func NewTx(
	tx *store.Tx, decide func(orderID string, o Outcome) error, returnSlot func(orderID string) error,
	adjust func(orderID string, a Adjustment) error,
) *Tx {
	return &Tx{tx, decide, returnSlot, adjust}
}

// Decide writes what became of the payment of an order of the account, with its credits. An outcome that the order already has changes
// nothing. A failed order that is paid after all gets its credits, and a confirmed one that failed loses them again; a final order is
// never undone. After an error the transaction must end: the rail then keeps its evidence in a transaction of its own and tries again
// later. Errors: [toll.CodeOrderNotFound], refusals of the ledger, those of the database.
func (t *Tx) Decide(orderID string, o Outcome) error { return t.decide(orderID, o) }

// ReturnSlot lets another order of the plan take the slot of an open order of the account, because it is unknown when its payment
// is decided. The order keeps its other reservations: the payment may still succeed, and is then an order of the plan beyond
// its limit. A repeat changes nothing, and neither does a decided order. Errors: [toll.CodeOrderNotFound], those of the database.
func (t *Tx) ReturnSlot(orderID string) error { return t.returnSlot(orderID) }

// Adjust writes what became of the money of a confirmed order of the account: refunds and disputes. Credits are taken back or
// returned, the delegation is frozen, and events are added, by the difference to what the order has. The order stays confirmed.
// Errors: [toll.CodeOrderNotFound], refusals of the ledger, those of the database.
func (t *Tx) Adjust(orderID string, a Adjustment) error { return t.adjust(orderID, a) }

// Outcome is what became of a payment.
type Outcome struct {
	Status        toll.OrderStatus // confirmed, final or failed; of a [Payment] any
	TxHash        string           // chain transaction, "" for none
	ProviderID    string           // id of the payment at the rail; "" for TxHash
	FailureReason string           // of a failure
	// FailureCode is the code that the caller gets; "" is [toll.CodeOrderLacksMoney].
	FailureCode toll.Code
	Params      map[string]any // details of the failure for machines; JSON
	// Ended: the chain itself has decided the failure, so nobody can have the authorization of a
	// sale carried out any more. After a failure before anything was sent they still can.
	Ended bool
	// Declined says of a failure that the bank refused the charge. Three in a row freeze the delegation.
	Declined bool
	// Unsure says of a failure that the payment may still show up, and is then given back. The delegation reserves its amount
	// until the same failure is decided without Unsure.
	Unsure bool
	// WithinLimits refuses an outcome that confirms a failed order when its plan has no place for
	// it: the error is [ErrNoPlace], and the rail gives the money back.
	WithinLimits bool
}

// Values of the member class in [Outcome.Params]: why a card payment failed. The other classes mean that the card was declined.
const (
	ClassFunds       = "insufficient_funds"
	ClassPageExpired = "page_expired"
)

// ErrNoPlace says that a failed order which was paid late does not fit into the limits of its plan.
var ErrNoPlace = errors.New("rail: the order was paid after its plan reached its maximum number of orders")

// Decided reports whether the status is one that decides an order.
func (o *Outcome) Decided() bool {
	return o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal || o.Status == toll.OrderFailed
}
