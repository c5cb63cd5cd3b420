package x402

import (
	"context"
	"encoding/json"

	"github.com/tollhq/toll"
)

// PaymentRequired describes the price of a request and the ways to pay it (wire contract, section 15).
type PaymentRequired struct {
	X402Version toll.Int                   `json:"x402Version"`
	Error       string                     `json:"error,omitempty"`
	Resource    Resource                   `json:"resource"`
	Accepts     []Requirements             `json:"accepts"`
	Extensions  map[string]json.RawMessage `json:"extensions"`
}

// Resource is the paid resource.
type Resource struct {
	URL         string `json:"url"`
	Description string `json:"description,omitempty"`
	MimeType    string `json:"mimeType,omitempty"`
}

// Requirements is one way to pay, an entry of accepts. Amount, Asset, PayTo and MaxTimeoutSeconds may be missing on input.
type Requirements struct {
	Scheme            string            `json:"scheme"`
	Network           string            `json:"network"`
	Amount            string            `json:"amount,omitempty"` // most credits that the request may burn, decimal
	Asset             string            `json:"asset,omitempty"`
	PayTo             string            `json:"payTo,omitempty"`
	MaxTimeoutSeconds toll.Int          `json:"maxTimeoutSeconds,omitzero"` // 1 to 900, life of the hold
	PlanID            string            `json:"planId"`
	Extra             RequirementsExtra `json:"extra"`
}

// RequirementsExtra is the extra member of requirements.
type RequirementsExtra struct {
	Version     string `json:"version,omitempty"` // "1"
	PlanID      string `json:"planId,omitempty"`
	AgentID     string `json:"agentId,omitempty"`
	HTTPVerb    string `json:"httpVerb,omitempty"`
	PaymentFlow string `json:"paymentFlow,omitempty"` // never sent; for credits any other than "authorization" is refused

	// Addresses to read (GET) and buy (POST) the plan, and to sign in: absolute URLs, or "" if unknown. They are for payers,
	// and not part of the bodies of verify and settle.
	PlanURL   string `json:"planUrl,omitempty"`
	OrderURL  string `json:"orderUrl,omitempty"`
	SignInURL string `json:"signInUrl,omitempty"`
}

// Terms are the data of a plan that a server needs to demand payment.
type Terms struct {
	PlanID    toll.PlanID
	PlanName  string
	Scheme    string // for example "svc:erc4337"
	Network   string // for example "eip155:84532"
	PayTo     string
	MinAmount toll.Credits
	MaxAmount toll.Credits
	Kind      toll.PlanKind
	// ServiceURL is the absolute base address of the service with /api/v1, the issuer of its access tokens, "" if unknown.
	ServiceURL string
	// OrderURL is where wallets without an account buy the plan, "" if they cannot.
	OrderURL string
}

// InBounds returns n within the minimum and maximum of the plan. It returns n unchanged for 0, without known bounds, and for a
// plan whose requests charge nothing.
func (t *Terms) InBounds(n toll.Credits) toll.Credits {
	if t == nil || n == 0 || t.MaxAmount == 0 || !t.Kind.Charges() {
		return n
	}
	return min(max(n, t.MinAmount), t.MaxAmount)
}

// VerifyRequest asks whether a request is payable (wire contract, section 16). With Stock it is the body of standard x402
// software, and its other members are ignored.
type VerifyRequest struct {
	Stock           *StockPayment
	PaymentRequired PaymentRequired
	AccessToken     string        // in any of the three forms
	MaxAmount       *toll.Credits // credits to check; at least the minimum of the plan, or 0; nil: the maximum of the plan
	Hold            bool          // set the credits aside
	HoldSecs        int           // 1 to 900, 0 = 60
	AgentRequestID  string        // optional, chosen by the caller
}

// VerifyResponse is the verdict, also a refusal (wire contract, section 16).
type VerifyResponse struct {
	IsValid        bool          `json:"isValid"`
	InvalidReason  string        `json:"invalidReason,omitempty"`
	InvalidMessage string        `json:"invalidMessage,omitempty"`
	Code           toll.Code     `json:"code,omitempty"`
	Payer          string        `json:"payer,omitempty"`
	Network        string        `json:"network,omitempty"`
	AgentRequestID string        `json:"agentRequestId,omitempty"`
	PlanID         toll.PlanID   `json:"planId,omitempty"`
	AgentID        toll.AgentID  `json:"agentId,omitempty"`
	Amount         *toll.Credits `json:"amount,omitempty"`
	URLMatching    string        `json:"urlMatching,omitempty"`
	VerbMatching   string        `json:"verbMatching,omitempty"`
	AgentRequest   *AgentRequest `json:"agentRequest,omitempty"`
	Extra          *VerifyExtra  `json:"extra,omitempty"`
	// ExtensionResponses reports the outcome of extensions, as JSON by extension, in the header extension-responses. It is for
	// the server, not for its client.
	ExtensionResponses json.RawMessage `json:"-"`
}

// AgentRequest describes the request to the agent that serves it.
type AgentRequest struct {
	AgentRequestID string       `json:"agentRequestId"`
	AgentName      string       `json:"agentName"`
	AgentID        toll.AgentID `json:"agentId"`
	Balance        toll.Balance `json:"balance"`
	URLMatching    string       `json:"urlMatching"`
	VerbMatching   string       `json:"verbMatching"`
	Batch          bool         `json:"batch"`
}

// VerifyExtra has the request id, and the hold if there is one.
type VerifyExtra struct {
	AgentRequestID string        `json:"agentRequestId,omitempty"` // of a good verdict
	HeldAmount     *toll.Credits `json:"heldAmount,omitempty"`
	HoldExpiresAt  *toll.Time    `json:"holdExpiresAt,omitempty"`
	CheckoutURL    string        `json:"checkoutUrl,omitempty"` // of a refusal: the page on which a person can pay instead
}

// SettleRequest burns credits (wire contract, section 17). With Stock it is the body of standard x402 software, and its other
// members are ignored.
type SettleRequest struct {
	Stock           *StockPayment
	PaymentRequired PaymentRequired
	AccessToken     string
	MaxAmount       *toll.Credits // nil: the held amount, else the maximum of the plan; 0 burns nothing and releases the hold
	MarginPercent   *Margin       // instead of MaxAmount: the credits of the recorded sub-tasks, and this much more
	AgentRequestID  string        // idempotency id; empty: the nonce names the request, else each call is a new one
	Batch           bool
	Labels          toll.UsageLabels // for usage; not part of the identity of the request
}

// SettleResponse is the receipt, or a refusal with Success false. All its numbers are strings.
type SettleResponse struct {
	Success          bool                       `json:"success"`
	ErrorReason      string                     `json:"errorReason,omitempty"`
	ErrorMessage     string                     `json:"errorMessage,omitempty"`
	Code             toll.Code                  `json:"code,omitempty"`
	Transaction      string                     `json:"transaction"` // commitment id of the ledger entry; "" on a refusal
	Network          string                     `json:"network"`
	Payer            string                     `json:"payer,omitempty"`
	CreditsRedeemed  *toll.Credits              `json:"creditsRedeemed,omitempty"`
	RemainingBalance *toll.Credits              `json:"remainingBalance,omitempty"`
	Amount           *toll.Credits              `json:"amount,omitempty"`
	OrderTx          string                     `json:"orderTx,omitempty"`
	Extra            *SettleExtra               `json:"extra,omitempty"`
	Extensions       map[string]json.RawMessage `json:"extensions,omitempty"`
	// Details are the details of a [toll.Error]: for a refused top-up, the code of the rail.
	Details string `json:"-"`
	// Replayed means that this is the stored response of an earlier call (header Idempotency-Replayed).
	Replayed bool `json:"-"`
	// Raw is the exact response, as received or stored.
	Raw []byte `json:"-"`
}

// SettleExtra repeats the receipt for clients that read extra, with the ids of the request.
type SettleExtra struct {
	AgentRequestID   string        `json:"agentRequestId,omitempty"`
	PlanID           toll.PlanID   `json:"planId,omitempty"`
	AgentID          toll.AgentID  `json:"agentId,omitempty"`
	CreditsRedeemed  *toll.Credits `json:"creditsRedeemed,omitempty"`
	RemainingBalance *toll.Credits `json:"remainingBalance,omitempty"`
	OrderTx          string        `json:"orderTx,omitempty"`
	RequestedAmount  *toll.Credits `json:"requestedAmount,omitempty"` // only when the bounds of the plan changed it
	// OriginalTransaction is the settlement that a refused repeat of a stock body repeats.
	OriginalTransaction string `json:"originalTransaction,omitempty"`
	CheckoutURL         string `json:"checkoutUrl,omitempty"` // of a refusal: the page on which a person can pay instead
}

// ReleaseRequest releases a hold without a burn. With Stock it is the body of standard x402 software.
type ReleaseRequest struct {
	Stock          *StockPayment
	AgentRequestID string
}

// ReleaseResponse is the response to a release. Repeating the release returns the same response.
type ReleaseResponse struct {
	Success        bool         `json:"success"`
	AgentRequestID string       `json:"agentRequestId"`
	Status         string       `json:"status"` // released or lapsed
	Released       toll.Credits `json:"released"`
}

// Facilitator decides about payments. A Go client satisfies it over HTTP, the service in process; middleware and tests
// are built on it alone.
//
// A verdict, refusals included, is an answer with a nil error. An error is a *toll.Error and means that the call itself failed, so that the
// subscriber is not to blame. For Settle there are three outcomes: success, refusal (Success false with any reason but settlement_pending),
// and unknown (settlement_pending, or an error): repeat an unknown one with the same AgentRequestID, which never burns twice.
type Facilitator interface {
	Terms(ctx context.Context, plan toll.PlanID) (*Terms, error)
	Verify(ctx context.Context, req *VerifyRequest) (*VerifyResponse, error)
	Settle(ctx context.Context, req *SettleRequest) (*SettleResponse, error)
	Release(ctx context.Context, req *ReleaseRequest) (*ReleaseResponse, error)
}
