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

// Offer is what a server binds itself to: the terms of one entry of accepts (extension offer-receipt, section 4.2).
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

// Receipt says that a resource was paid (extension offer-receipt, section 5.2).
type Receipt struct {
	Version     int    `json:"version"` // 1
	Network     string `json:"network"`
	ResourceURL string `json:"resourceUrl"`
	Payer       string `json:"payer"`
	IssuedAt    int64  `json:"issuedAt"` // seconds since 1970
	Transaction string `json:"transaction,omitempty"`
}

// FormatJWS is the one form in which statements are signed here: a compact JWS with EdDSA.
const FormatJWS = "jws"

// SignedOffer is an offer as it travels. AcceptIndex is a hint: what counts are the signed terms.
type SignedOffer struct {
	Format      string `json:"format"`
	AcceptIndex int    `json:"acceptIndex"`
	Signature   string `json:"signature"` // the compact JWS
}

// SignedReceipt is a receipt as it travels.
type SignedReceipt struct {
	Format    string `json:"format"`
	Signature string `json:"signature"`
}

// MaxOffers is how many offers one request may ask for.
const MaxOffers = 8

// OffersRequest asks for signed offers of what a server asks for: one for each entry of accepts.
type OffersRequest struct {
	PaymentRequired PaymentRequired `json:"paymentRequired"`
}

// OffersResponse are the offers, in the order of accepts.
type OffersResponse struct {
	Offers     []SignedOffer `json:"offers"`
	ValidUntil int64         `json:"validUntil"` // seconds since 1970, the end of each
}

// Offerer is a [Facilitator] that signs offers. The Go client and the service are.
type Offerer interface {
	Offers(ctx context.Context, req *OffersRequest) (*OffersResponse, error)
}

// OfferOf returns the offer of an entry of accepts. Its end is in seconds since 1970.
func OfferOf(resourceURL string, r *Requirements, validUntil int64) Offer {
	return Offer{
		Version: 1, ResourceURL: resourceURL, Scheme: r.Scheme, Network: r.Network, Asset: r.Asset, PayTo: r.PayTo,
		Amount: r.Amount, ValidUntil: validUntil,
	}
}

// OffersExtension returns the member offer-receipt of the extensions of a PaymentRequired. Its schema is short, as clients
// send all of it back.
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

// Offers reads the signed offers among the extensions of a PaymentRequired. None is an empty list, as is what cannot be read.
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

// ReceiptOf reads the signed receipt among the extensions of a settlement; false when there is none that can be read.
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

// KeyID returns the id under which the key of a signed text is found, of a statement its DID URL. It is "" when the text names
// none, is not signed with EdDSA, or wants extensions to be understood (crit).
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

// StatementKey returns the key of a DID document with this id. The error has the code [toll.CodeBadRequest].
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
	return nil, toll.Errorf(toll.CodeBadRequest, "The document has no such key.")
}

// Verify returns the signed terms. Whether the key may speak for the resource is for the caller to judge. Errors:
// [toll.CodeTokenSignature].
func (o SignedOffer) Verify(key ed25519.PublicKey) (*Offer, error) {
	out := new(Offer)
	return out, verifyStatement(o.Format, o.Signature, key, out)
}

// Verify returns what was signed. Whether the key may speak for the resource is for the caller to judge. Errors:
// [toll.CodeTokenSignature].
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
	return toll.Errorf(toll.CodeTokenSignature, "The statement does not verify.")
}

// VerifyJWS decodes what the key signed with EdDSA into v. Errors: [toll.CodeTokenSignature].
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
