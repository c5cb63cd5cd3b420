package x402

import (
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/tollhq/toll"
)

// SchemeExact is the standard scheme that transfers an exact amount of a token from a wallet.
const SchemeExact = "exact"

// MethodEIP3009 is the transfer method of exact entries: the wallet signs an authorization that anyone may submit.
const MethodEIP3009 = "eip3009"

// Reasons of refused exact payments in the standard.
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

// SaleRequired is the demand of a route that is paid with tokens.
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

// ExactExtra has the EIP-712 domain of the asset, for the signature of the wallet.
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

// ExactAuthorization is the signed TransferWithAuthorization of EIP-3009. Times are in seconds since 1970.
type ExactAuthorization struct {
	From        toll.Address `json:"from"`
	To          toll.Address `json:"to"`
	Value       toll.Units   `json:"value"`
	ValidAfter  toll.Units   `json:"validAfter"`
	ValidBefore toll.Units   `json:"validBefore"`
	Nonce       toll.Hash    `json:"nonce"`
}

// ExactPayment is a parsed exact payment. Only its form was checked.
type ExactPayment struct {
	Accepted          ExactRequirements
	Authorization     ExactAuthorization
	Signature         []byte // of whatever length, at most 4 KiB
	PaymentIdentifier string // id of the extension payment-identifier, "" when absent
	ResourceURL       string // resource.url, "" when absent
	// Extensions are the extensions of the payload as received.
	Extensions map[string]json.RawMessage
}

// maxSignatureBytes bounds a signature. Accounts with code have signatures longer than 65 bytes.
const maxSignatureBytes = 4 << 10

// looseExact accepts integers as amounts, and null or "" for absent members.
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

// DecodeExact decodes the value of payment-signature for scheme exact: base64 (either alphabet, padded or not) of a
// PaymentPayload, or its JSON. For another scheme, it reads only accepted and leaves the authorization zero. Errors:
// [toll.CodeTokenUndecodable], [toll.CodeBadX402Version].
func DecodeExact(s string) (*ExactPayment, error) {
	if len(s) > MaxTokenBytes && !strings.HasPrefix(s, "{") || len(s) > maxPayloadBytes {
		return nil, badPayment("the payment payload is too large")
	}
	text, ok := headerText(s)
	if !ok || text[0] != '{' {
		return nil, badPayment("expected a JSON object or the base64 of a JSON object")
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
		return nil, badPayment("payload.authorization needs from, to, value, validAfter, validBefore, and nonce")
	}
	digits, ok := strings.CutPrefix(*b.Payload.Signature, "0x")
	signature, err := hex.DecodeString(digits)
	if !ok || err != nil || len(signature) > maxSignatureBytes {
		return nil, badPayment("payload.signature must be 0x and hexadecimal digits")
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

// Pays reports whether a client accepted this entry. Addresses are compared case-insensitively. Absent members of extra and
// an absent maxTimeoutSeconds are ignored, because some clients keep only known members.
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
	// Extensions has the signed receipt, if enabled.
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
}

// ExactGrant is the purchase paid by an exact payment.
type ExactGrant struct {
	OrderID          string       `json:"orderId"`
	PlanID           toll.PlanID  `json:"planId"`
	CreditsGranted   toll.Credits `json:"creditsGranted"`
	RemainingBalance toll.Credits `json:"remainingBalance"` // right after the purchase
}
