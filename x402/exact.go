package x402

import (
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/tollhq/toll"
)

// SchemeExact is the scheme of the standard that moves an exact amount of a token from a wallet.
const SchemeExact = "exact"

// MethodEIP3009 is the transfer method of exact entries here: the wallet signs an authorization, and anybody may submit it.
const MethodEIP3009 = "eip3009"

// Reasons of refused exact payments, as the standard names them.
const (
	ReasonExactSignature   = "invalid_exact_evm_payload_signature"
	ReasonExactValidAfter  = "invalid_exact_evm_payload_authorization_valid_after"
	ReasonExactValidBefore = "invalid_exact_evm_payload_authorization_valid_before"
	ReasonExactValue       = "invalid_exact_evm_payload_authorization_value_mismatch"
	ReasonExactRecipient   = "invalid_exact_evm_payload_recipient_mismatch"
	ReasonExactNonceUsed   = "invalid_exact_evm_nonce_already_used"
	ReasonExactBalance     = "invalid_exact_evm_insufficient_balance"
	ReasonTransactionState = "invalid_transaction_state"
)

// SaleRequired is what a route asks for that is paid with tokens, not with credits.
type SaleRequired struct {
	X402Version toll.Int                   `json:"x402Version"`
	Error       string                     `json:"error,omitempty"`
	Resource    Resource                   `json:"resource"`
	Accepts     []ExactRequirements        `json:"accepts"`
	Extensions  map[string]json.RawMessage `json:"extensions"`
}

// ExactRequirements is an entry of accepts of the scheme exact.
type ExactRequirements struct {
	Scheme            string     `json:"scheme"`
	Network           string     `json:"network"` // "eip155:" and the chain id
	Amount            string     `json:"amount"`  // base units of the asset, decimal
	Asset             string     `json:"asset"`   // address of the token
	PayTo             string     `json:"payTo"`
	MaxTimeoutSeconds toll.Int   `json:"maxTimeoutSeconds"`
	Extra             ExactExtra `json:"extra"`
}

// ExactExtra has the EIP-712 domain of the asset, which the wallet signs for.
type ExactExtra struct {
	Name                string `json:"name"`
	Version             string `json:"version"`
	AssetTransferMethod string `json:"assetTransferMethod,omitempty"`
	PlanID              string `json:"planId,omitempty"`
}

// ExactPayload is the payload of an exact payment.
type ExactPayload struct {
	Authorization ExactAuthorization `json:"authorization"`
	Signature     string             `json:"signature"` // 0x and the hex of r, s and v
}

// ExactAuthorization are the words that the wallet has signed: TransferWithAuthorization of EIP-3009. Times are seconds since
// 1970.
type ExactAuthorization struct {
	From        toll.Address `json:"from"`
	To          toll.Address `json:"to"`
	Value       toll.Units   `json:"value"`
	ValidAfter  toll.Units   `json:"validAfter"`
	ValidBefore toll.Units   `json:"validBefore"`
	Nonce       toll.Hash    `json:"nonce"`
}

// ExactPayment is an exact payment taken apart. Nothing of it has been checked but its form.
type ExactPayment struct {
	Accepted          ExactRequirements
	Authorization     ExactAuthorization
	Signature         []byte // of whatever length, at most 4 KiB
	PaymentIdentifier string // id of the extension payment-identifier, "" when absent
	ResourceURL       string // resource.url, "" when absent
	// Extensions are those of the payload, as they came.
	Extensions map[string]json.RawMessage
}

// maxSignatureBytes bounds what is read of a signature. Those of accounts with code are longer than 65 bytes.
const maxSignatureBytes = 4 << 10

// looseExact is what is accepted for ExactRequirements: amounts also as integers, and null or "" for what is absent.
type looseExact struct {
	Scheme            string           `json:"scheme"`
	Network           string           `json:"network"`
	Amount            looseAmount      `json:"amount"`
	Asset             string           `json:"asset"`
	PayTo             string           `json:"payTo"`
	MaxTimeoutSeconds orNone[toll.Int] `json:"maxTimeoutSeconds"`
	Extra             ExactExtra       `json:"extra"`
}

type exactBody struct {
	X402Version toll.Int    `json:"x402Version"`
	Resource    *Resource   `json:"resource"`
	Accepted    *looseExact `json:"accepted"`
	Payload     *struct {
		Authorization *struct {
			From        *toll.Address `json:"from"`
			To          *toll.Address `json:"to"`
			Value       *toll.Units   `json:"value"`
			ValidAfter  *toll.Units   `json:"validAfter"`
			ValidBefore *toll.Units   `json:"validBefore"`
			Nonce       *toll.Hash    `json:"nonce"`
		} `json:"authorization"`
		Signature *string `json:"signature"`
	} `json:"payload"`
	Extensions map[string]json.RawMessage `json:"extensions"`
}

// DecodeExact reads the value of payment-signature with which an entry of the scheme exact is paid: base64 (either alphabet,
// padded or not) of a PaymentPayload, or its JSON. A payload for another scheme is read as far as accepted; its authorization
// is then zero. Errors: [toll.CodeTokenUndecodable], [toll.CodeBadX402Version].
func DecodeExact(s string) (*ExactPayment, error) {
	if len(s) > MaxTokenBytes && !strings.HasPrefix(s, "{") || len(s) > maxPayloadBytes {
		return nil, badPayment("it is too large")
	}
	text, ok := headerText(s)
	if !ok || text[0] != '{' {
		return nil, badPayment("it is neither base64 of a JSON object nor a JSON object")
	}
	var head struct {
		X402Version toll.Int `json:"x402Version"`
		Accepted    *struct {
			Scheme string `json:"scheme"`
		} `json:"accepted"`
	}
	if err := Decode(text, &head); err != nil {
		return nil, badPayment("the payment payload is malformed").WithCause(err)
	}
	switch {
	case head.X402Version != Version:
		return nil, toll.NewError(toll.CodeBadX402Version)
	case head.Accepted == nil:
		return nil, badPayment("accepted is missing")
	case head.Accepted.Scheme != SchemeExact:
		return &ExactPayment{Accepted: ExactRequirements{Scheme: head.Accepted.Scheme}}, nil
	}
	var b exactBody
	if err := Decode(text, &b); err != nil {
		return nil, badPayment("the payment payload is malformed").WithCause(err)
	}
	return b.payment()
}

func (b *exactBody) payment() (*ExactPayment, error) {
	if b.Payload == nil || b.Payload.Authorization == nil || b.Payload.Signature == nil {
		return nil, badPayment("payload needs authorization and signature")
	}
	a := b.Payload.Authorization
	if a.From == nil || a.To == nil || a.Value == nil || a.ValidAfter == nil || a.ValidBefore == nil || a.Nonce == nil {
		return nil, badPayment("payload.authorization needs from, to, value, validAfter, validBefore and nonce")
	}
	digits, ok := strings.CutPrefix(*b.Payload.Signature, "0x")
	signature, err := hex.DecodeString(digits)
	if !ok || err != nil || len(signature) > maxSignatureBytes {
		return nil, badPayment("payload.signature is not 0x and hexadecimal digits")
	}
	p := &ExactPayment{
		Accepted: ExactRequirements{
			Scheme: b.Accepted.Scheme, Network: b.Accepted.Network, Amount: string(b.Accepted.Amount), Asset: b.Accepted.Asset,
			PayTo: b.Accepted.PayTo, MaxTimeoutSeconds: b.Accepted.MaxTimeoutSeconds.v, Extra: b.Accepted.Extra,
		},
		Authorization: ExactAuthorization{*a.From, *a.To, *a.Value, *a.ValidAfter, *a.ValidBefore, *a.Nonce},
		Signature:     signature, Extensions: b.Extensions,
	}
	if b.Resource != nil {
		p.ResourceURL = b.Resource.URL
	}
	if p.PaymentIdentifier, _, err = identifierOf(b.Extensions, badPayment); err != nil {
		return nil, err
	}
	return p, nil
}

func badPayment(why string) *toll.Error {
	return toll.Errorf(toll.CodeTokenUndecodable, "The payment cannot be decoded: %s.", why).WithReason(ReasonInvalidPayload)
}

// Pays reports whether the entry that a client accepted is this one. Addresses are compared without their case, and what the
// client left out of extra, or of maxTimeoutSeconds, is not compared: some clients keep only what they know.
func (r *ExactRequirements) Pays(accepted *ExactRequirements) bool {
	same := func(sent, ours string) bool { return sent == "" || sent == ours }
	return accepted.Scheme == r.Scheme && accepted.Network == r.Network && accepted.Amount == r.Amount &&
		strings.EqualFold(accepted.Asset, r.Asset) && strings.EqualFold(accepted.PayTo, r.PayTo) &&
		(accepted.MaxTimeoutSeconds == 0 || accepted.MaxTimeoutSeconds == r.MaxTimeoutSeconds) &&
		same(accepted.Extra.Name, r.Extra.Name) && same(accepted.Extra.Version, r.Extra.Version) &&
		same(accepted.Extra.AssetTransferMethod, r.Extra.AssetTransferMethod) && same(accepted.Extra.PlanID, r.Extra.PlanID)
}

// ExactReceipt is the receipt of an exact payment: the content of payment-response.
type ExactReceipt struct {
	Success      bool        `json:"success"`
	ErrorReason  string      `json:"errorReason,omitempty"`
	ErrorMessage string      `json:"errorMessage,omitempty"`
	Transaction  string      `json:"transaction"` // hash of the chain transaction, "" on a refusal
	Network      string      `json:"network"`
	Payer        string      `json:"payer,omitempty"`
	Amount       string      `json:"amount,omitempty"` // base units of the asset
	Extra        *ExactGrant `json:"extra,omitempty"`
	// Extensions has the signed receipt where it is switched on.
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
}

// ExactGrant is what a payment bought.
type ExactGrant struct {
	OrderID          string       `json:"orderId"`
	PlanID           toll.PlanID  `json:"planId"`
	CreditsGranted   toll.Credits `json:"creditsGranted"`
	RemainingBalance toll.Credits `json:"remainingBalance"` // right after the purchase
}
