package auth

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
)

// SignStatement signs an offer or a receipt: a compact JWS (EdDSA) whose key id is a DID URL of this service, for example
// "did:web:pay.example.com#kPrK…". A statement is no credential: its keys open nothing here.
func (a *Auth) SignStatement(payload []byte) (string, error) {
	key, err := signerOf(a.keys().statements, a.clock())
	if err != nil {
		return "", err
	}
	jws := key.sign(payload)
	if len(jws) > maxJWS {
		return "", toll.Errorf(toll.CodeBadRequest, "The signed offer or receipt would be longer than 8 KiB.")
	}
	return jws, nil
}

// DID returns the DID document (did:web) with the keys of offers and receipts: those that sign, those that will, and those
// that signed within the last year.
func (a *Auth) DID() []byte { return a.keys().did }

// didOf returns the did:web identifier of a public address: its host, and its port percent-encoded (did:web method, section
// 3.1). A path has no part in it.
func didOf(issuer string) string {
	u, err := url.Parse(issuer)
	if err != nil {
		return "did:web:"
	}
	return "did:web:" + strings.ReplaceAll(u.Host, ":", "%3A")
}

// DIDDocument is a set of public keys with the names under which they sign (did:web).
type DIDDocument struct {
	Context             []string    `json:"@context"`
	ID                  string      `json:"id"`
	VerificationMethods []DIDMethod `json:"verificationMethod"`
	AssertionMethods    []string    `json:"assertionMethod"`
}

// DIDMethod is one public key.
type DIDMethod struct {
	ID         string `json:"id"`
	Type       string `json:"type"`
	Controller string `json:"controller"`
	PublicKey  struct {
		Curve   string `json:"crv"`
		X       string `json:"x"`
		KeyType string `json:"kty"`
	} `json:"publicKeyJwk"`
}

func didDocument(did string, keys []*signingKey) []byte {
	doc := DIDDocument{
		Context: []string{"https://www.w3.org/ns/did/v1"}, ID: did, VerificationMethods: []DIDMethod{}, AssertionMethods: []string{},
	}
	for _, k := range keys {
		m := DIDMethod{ID: k.kid, Type: "JsonWebKey2020", Controller: did}
		m.PublicKey.Curve, m.PublicKey.X, m.PublicKey.KeyType = "Ed25519", base64.RawURLEncoding.EncodeToString(k.public), "OKP"
		doc.VerificationMethods = append(doc.VerificationMethods, m)
		doc.AssertionMethods = append(doc.AssertionMethods, k.kid)
	}
	text, err := encodeExact(doc)
	if err != nil {
		panic(err) // strings always encode
	}
	return text
}
