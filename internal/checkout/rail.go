package checkout

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Rail is a way in which money reaches the builder: the chain or the card processor. Orders of plans whose rail is not there
// are refused.
//
// An error of either method decides nothing: the order stays open and is tried again. A *toll.Error with status 503 says
// that the rail cannot be used now and is shown to the caller; any other error means that the outcome is not known. What is
// decided is in the Payment.
type Rail interface {
	// Pay starts the payment of a recorded order, or goes on with the one that was started: the order id is its
	// idempotency key, so that an order is paid at most once whatever crashes between, also when several processes ask at
	// the same time. It returns when the payment is decided, when a person must act (CheckoutURL), or when ctx ends.
	Pay(ctx context.Context, p Purchase) (Payment, error)
	// Outcome tells what became of a payment that was started, without waiting for it.
	Outcome(ctx context.Context, orderID string) (Payment, error)
}

// Delegator is a crypto rail on which a delegation is more than a record: a signature that the chain enforces.
type Delegator interface {
	// SignatureRequest returns what the holder of OwnerAccount signs. It reads the chain, and sends nothing.
	SignatureRequest(ctx context.Context, d *Delegation) (*SignatureRequest, error)
	// CheckSignature verifies Signature, and Authorization when there is one, as the chain would. Errors:
	// [toll.CodeChainSignature], [toll.CodeChainForeignCode], and those with status 503.
	CheckSignature(ctx context.Context, d *Delegation) error
	// Revoke disables a delegation whose account the service holds. True says that it is disabled; false without an error that
	// what disables it is under way, whatever happens to this process. Until it is disabled it is asked again. A repeat does no
	// harm.
	Revoke(ctx context.Context, d *Delegation) (done bool, err error)
	// Revocation returns the call with which the holder of OwnerAccount disables the delegation. It sends nothing.
	Revocation(ctx context.Context, d *Delegation) (*Call, error)
}

// Seller is a crypto rail on which wallets buy that have no account here: with an authorization of a token, signed off the chain
// (EIP-3009), which the rail carries out.
type Seller interface {
	// Domain returns the domain in which holders of a token sign. false: the token is not taken in this way, or there is no
	// chain. It asks nobody.
	Domain(token toll.Address) (evm.Domain, bool)
	// Accepts tells whether code of an account takes a signature of a digest for that of the account (ERC-1271), whose own key has
	// not made it. false: it does not, it has no code, or there is no chain. Errors are those with status 503.
	Accepts(ctx context.Context, account toll.Address, digest [32]byte, signature []byte) (bool, error)
	// CheckSale tells whether an authorization would pay an order as the chain is now. It sends and stores nothing, and uses no
	// OrderID. used says that the chain has carried it out already, so that everybody can know it. Errors: those of a sale that
	// cannot be paid, with Reason, and those with status 503.
	CheckSale(ctx context.Context, s Sale) (used bool, err error)
	// Sell is Pay for an order that an authorization pays. The order is paid when the chain has carried the authorization out,
	// whoever sent it; an authorization pays one order. A failure has its reason word in Params, as "reason".
	Sell(ctx context.Context, s Sale) (Payment, error)
	// Dead tells whether an authorization has moved nothing and never will: nobody had it carried out before its end, which is in
	// a block that stays. It uses neither OrderID nor Signature. Errors are those of a chain that cannot be asked now.
	Dead(ctx context.Context, s Sale) (bool, error)
}

// Sale is an order that an authorization pays: the wallet From owns the credits.
type Sale struct {
	OrderID       string   // UUID
	Account       [16]byte // of the order; zero for a sale of another server
	Token         toll.Address
	Authorization evm.Authorization
	Signature     []byte // of From: 65 bytes of its key, or what its code takes, at most [evm.MaxSignature] bytes
}

// Delegation is a limit on money as a rail knows it. Together with the keys of the accounts it says all that is signed, so
// none of it ever changes but Signature and Authorization, which are set once.
type Delegation struct {
	ID                string // UUID
	Owner             toll.Address
	OwnerAccount      toll.Address // account that the user holds; zero: the wallet that the service holds for Owner
	Currency          string       // "usdc" or "eurc" on the chain
	LimitCents        int64
	CreatedAt         time.Time
	ExpiresAt         time.Time
	AllowedRecipients []toll.Address  // empty: any
	Signature         []byte          // of OwnerAccount; nil: the service signs, or the signature is still to come
	Authorization     json.RawMessage // signed EIP-7702 authorization of OwnerAccount as it was handed in; nil: none was
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
	OrderID       string   // UUID
	Account       [16]byte // ledger account of the order
	Plan          *toll.Plan
	Subscriber    toll.Address
	Credits       toll.Credits   // what the order grants
	Amounts       []toll.Units   // what each receiver gets: the price, for a pay-as-you-go plan times the credits
	Receivers     []toll.Address // of Amounts
	Total         toll.Units     // sum of Amounts
	DelegationID  string         // limit on money to pay with; "" when a person pays, or the wallet directly
	Delegation    *Delegation    // of DelegationID; nil when it is ""
	PaymentMethod string         // of the delegation: the card, or the address of the wallet
	TopUp         bool           // a request waits for it
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
	Params      map[string]any // details of the failure for machines; JSON
	// Ended says of a failure that the chain itself has decided it. Nobody can have the authorization of a sale carried out any more
	// then, as they can of one that failed before anything was sent.
	Ended bool

	CheckoutURL string    // where a person pays, "" when nobody must act
	SessionID   string    // of the page
	CreatedAt   time.Time // of the page
	ExpiresAt   time.Time // of the page
}

func (p *Payment) decided() bool { o := p.outcome(); return o.Decided() }

// outcome is the part of a payment that decides its order.
func (p *Payment) outcome() rail.Outcome {
	return rail.Outcome{
		Status: p.Status, TxHash: p.TxHash, ProviderID: p.ProviderID, FailureReason: p.FailureReason, FailureCode: p.FailureCode,
		Params: p.Params, Ended: p.Ended,
	}
}

// TakesCards reports whether fiat plans can be bought.
func (c *Checkout) TakesCards() bool { return c.rails.Card != nil }

// pays reports whether a delegation is of the provider and in the currency of a plan, neither of which ever changes.
func (c *Checkout) pays(d *store.Delegation, plan *toll.Plan) error {
	provider := toll.ProviderCard
	if plan.Price.IsCrypto {
		provider = toll.ProviderCrypto
	}
	switch {
	case d.Provider != provider:
		return toll.Errorf(toll.CodeUnsupportedScheme, "The delegation is of the provider %s, the plan needs %s.", d.Provider, provider)
	case d.Currency != currencyOf(plan, c.env):
		return toll.Errorf(toll.CodeUnsupportedScheme, "The delegation is in %s, the plan is not.", d.Currency)
	}
	return nil
}

// currencyOf returns the currency of delegations that pay for a plan, "" when none does.
func currencyOf(plan *toll.Plan, env toll.Environment) string {
	if !plan.Price.IsCrypto {
		return strings.ToLower(plan.Price.CurrencyName())
	}
	switch plan.Price.PayToken(env) {
	case env.USDC():
		return "usdc"
	case env.EURC():
		return "eurc"
	}
	return ""
}
