package x402

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tollhq/toll"
)

// ExtensionOfferReceipt is the extension of signed offers in a 402 and of a signed receipt in a settlement.
const ExtensionOfferReceipt = "offer-receipt"

// Offer is a binding offer: the terms of one entry of accepts (extension offer-receipt, section 4.2).
type Offer struct {
	Version     int    `json:"version"` // 1
	ResourceURL string `json:"resourceUrl"`
	Scheme      string `json:"scheme"`
	Network     string `json:"network"`
	Asset       string `json:"asset"`
	PayTo       string `json:"payTo"`
	Amount      string `json:"amount"`              // credits, or base units of the asset
	ValidUntil  int64  `json:"validUntil,omitzero"` // seconds since 1970, 0 without end
}

// Receipt confirms the payment for a resource (extension offer-receipt, section 5.2).
type Receipt struct {
	Version     int    `json:"version"` // 1
	Network     string `json:"network"`
	ResourceURL string `json:"resourceUrl"`
	Payer       string `json:"payer"`
	IssuedAt    int64  `json:"issuedAt"` // seconds since 1970
	Transaction string `json:"transaction,omitempty"`
}

// FormatJWS is the only signature format here: a compact JWS with EdDSA.
const FormatJWS = "jws"

// SignedOffer is a signed offer. AcceptIndex is a hint; only the signed terms count.
type SignedOffer struct {
	Format      string `json:"format"`
	AcceptIndex int    `json:"acceptIndex"`
	Signature   string `json:"signature"` // the compact JWS
}

// SignedReceipt is a signed receipt.
type SignedReceipt struct {
	Format    string `json:"format"`
	Signature string `json:"signature"`
}

// MaxOffers bounds the offers of one request.
const MaxOffers = 8

// OffersRequest requests a signed offer for each entry of accepts.
type OffersRequest struct {
	PaymentRequired PaymentRequired `json:"paymentRequired"`
}

// OffersResponse are the offers in the order of accepts.
type OffersResponse struct {
	Offers     []SignedOffer `json:"offers"`
	ValidUntil int64         `json:"validUntil"` // end of every offer, in seconds since 1970
}

// Offerer is a [Facilitator] that signs offers, such as the Go client and the service.
type Offerer interface {
	Offers(ctx context.Context, req *OffersRequest) (*OffersResponse, error)
}

// OfferOf returns the offer of an entry of accepts. It ends at validUntil, in seconds since 1970.
func OfferOf(resourceURL string, r *Requirements, validUntil int64) Offer {
	return Offer{
		Version: 1, ResourceURL: resourceURL, Scheme: r.Scheme, Network: r.Network, Asset: r.Asset, PayTo: r.PayTo,
		Amount: r.Amount, ValidUntil: validUntil,
	}
}

// OffersExtension returns the member offer-receipt of the extensions of a PaymentRequired. Its schema is short, because clients
// send it back.
func OffersExtension(offers []SignedOffer) json.RawMessage {
	return statements(struct {
		Offers []SignedOffer `json:"offers"`
	}{offers}, "offers")
}

// ReceiptExtension returns the member offer-receipt of the extensions of a settlement.
func ReceiptExtension(r SignedReceipt) json.RawMessage {
	return statements(struct {
		Receipt SignedReceipt `json:"receipt"`
	}{r}, "receipt")
}

func statements(info any, member string) json.RawMessage {
	b, err := Encode(&struct {
		Info   any `json:"info"`
		Schema any `json:"schema"`
	}{info, struct {
		Type     string   `json:"type"`
		Required []string `json:"required"`
	}{"object", []string{member}}})
	if err != nil {
		panic(err) // strings and integers always encode
	}
	return b
}

// Offers returns the signed offers in the extensions of a PaymentRequired, empty if absent or malformed.
func Offers(extensions map[string]json.RawMessage) []SignedOffer {
	var e struct {
		Info struct {
			Offers []SignedOffer `json:"offers"`
		} `json:"info"`
	}
	if raw := extensions[ExtensionOfferReceipt]; len(raw) == 0 || Decode(raw, &e) != nil {
		return nil
	}
	return e.Info.Offers
}

// ReceiptOf returns the signed receipt in the extensions of a settlement; false if absent or malformed.
func ReceiptOf(extensions map[string]json.RawMessage) (SignedReceipt, bool) {
	var e struct {
		Info struct {
			Receipt SignedReceipt `json:"receipt"`
		} `json:"info"`
	}
	if raw := extensions[ExtensionOfferReceipt]; len(raw) == 0 || Decode(raw, &e) != nil {
		return SignedReceipt{}, false
	}
	return e.Info.Receipt, e.Info.Receipt.Signature != ""
}

// KeyID returns the key id of a signed text, for a statement its DID URL. It is "" without an id, without EdDSA, or with
// critical extensions (crit).
func KeyID(jws string) string {
	var h struct {
		Algorithm string          `json:"alg"`
		KeyID     string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
	}
	part, _, _ := strings.Cut(jws, ".")
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil || Decode(b, &h) != nil || h.Algorithm != "EdDSA" || h.Critical != nil {
		return ""
	}
	return h.KeyID
}

// StatementKey returns the key with this id in a DID document. Errors: [toll.CodeBadRequest].
func StatementKey(document []byte, keyID string) (ed25519.PublicKey, error) {
	var doc struct {
		Methods []struct {
			ID  string `json:"id"`
			Key struct {
				Curve string `json:"crv"`
				X     string `json:"x"`
			} `json:"publicKeyJwk"`
		} `json:"verificationMethod"`
	}
	if err := Decode(document, &doc); err != nil {
		return nil, err
	}
	for _, m := range doc.Methods {
		if m.ID != keyID || m.Key.Curve != "Ed25519" {
			continue
		}
		if x, err := base64.RawURLEncoding.DecodeString(m.Key.X); err == nil && len(x) == ed25519.PublicKeySize {
			return x, nil
		}
	}
	return nil, toll.Errorf(toll.CodeBadRequest, "The DID document does not contain this key.")
}

// Verify returns the signed terms. The caller must check that the key may sign for the resource. Errors: [toll.CodeTokenSignature].
func (o SignedOffer) Verify(key ed25519.PublicKey) (*Offer, error) {
	out := new(Offer)
	return out, verifyStatement(o.Format, o.Signature, key, out)
}

// Verify returns the signed content. The caller must check that the key may sign for the resource. Errors: [toll.CodeTokenSignature].
func (r SignedReceipt) Verify(key ed25519.PublicKey) (*Receipt, error) {
	out := new(Receipt)
	return out, verifyStatement(r.Format, r.Signature, key, out)
}

func verifyStatement(format, jws string, key ed25519.PublicKey, v any) error {
	if format != FormatJWS {
		return badStatement()
	}
	return VerifyJWS(jws, key, v)
}

func badStatement() error {
	return toll.Errorf(toll.CodeTokenSignature, "The signature cannot be verified.")
}

// VerifyJWS verifies an EdDSA signature and decodes the content into v. Errors: [toll.CodeTokenSignature].
func VerifyJWS(jws string, key ed25519.PublicKey, v any) error {
	if !isJWS(jws) || KeyID(jws) == "" || len(key) != ed25519.PublicKeySize {
		return badStatement()
	}
	end := strings.LastIndexByte(jws, '.')
	signature, err := base64.RawURLEncoding.Strict().DecodeString(jws[end+1:])
	if err != nil || !ed25519.Verify(key, []byte(jws[:end]), signature) {
		return badStatement()
	}
	payload, err := base64.RawURLEncoding.Strict().DecodeString(jws[strings.IndexByte(jws, '.')+1 : end])
	if err != nil || Decode(payload, v) != nil {
		return badStatement()
	}
	return nil
}
