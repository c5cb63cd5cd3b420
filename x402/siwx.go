package x402

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
)

// ExtensionSignIn is the extension for a wallet to prove its address without a payment.
const ExtensionSignIn = "sign-in-with-x"

// HeaderSignIn is the request header of the proof: base64 of a [SignIn].
const HeaderSignIn = "sign-in-with-x"

// TypeEIP191 is the accepted signature type: of a text, by the key of the address or as its code accepts it.
const TypeEIP191 = "eip191"

// KnownSignature reports whether signatureScheme is absent or belongs to EVM accounts: "eip191" for a key, "eip1271" for account code,
// "eip6492" for an account that may not be deployed. It is a hint to clients; the signature itself shows its type.
func KnownSignature(scheme string) bool {
	switch scheme {
	case "", TypeEIP191, "eip1271", "eip6492":
		return true
	}
	return false
}

// SignInExtension declares that a route accepts a sign-in.
type SignInExtension struct {
	Info            SignInInfo    `json:"info"`
	SupportedChains []SignInChain `json:"supportedChains"`
	Schema          any           `json:"schema"`
}

// SignInInfo are the parts of the signed text that the server chooses (EIP-4361). Times are in the form of [SignInTime].
type SignInInfo struct {
	Domain         string   `json:"domain"`
	URI            string   `json:"uri"`
	Version        string   `json:"version"` // "1"
	Nonce          string   `json:"nonce"`
	IssuedAt       string   `json:"issuedAt"`
	ExpirationTime string   `json:"expirationTime,omitempty"`
	Statement      string   `json:"statement,omitempty"`
	Resources      []string `json:"resources,omitempty"`
}

// SignInChain is a chain whose accounts may sign in.
type SignInChain struct {
	ChainID         string `json:"chainId"` // CAIP-2, for example "eip155:84532"
	Type            string `json:"type"`
	SignatureScheme string `json:"signatureScheme,omitempty"` // see [KnownSignature]
}

// NewSignInExtension declares a sign-in of the accounts of a chain.
func NewSignInExtension(info SignInInfo, network string) *SignInExtension {
	text := map[string]string{"type": "string"}
	properties := map[string]any{"resources": map[string]any{"type": "array", "items": text}}
	required := []string{"domain", "address", "uri", "version", "chainId", "type", "nonce", "issuedAt", "signature"}
	for _, name := range append([]string{"statement", "expirationTime"}, required...) {
		properties[name] = text
	}
	return &SignInExtension{
		Info: info, SupportedChains: []SignInChain{{ChainID: network, Type: TypeEIP191}},
		Schema: map[string]any{"type": "object", "properties": properties, "required": required},
	}
}

// SignInTime formats a time for sign-ins: UTC with milliseconds.
func SignInTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// SignIn proves possession of the key of an address. Absent members are "".
type SignIn struct {
	Domain         string   `json:"domain"`
	Address        string   `json:"address"` // as it was signed
	Statement      string   `json:"statement,omitempty"`
	URI            string   `json:"uri"`
	Version        string   `json:"version"`
	ChainID        string   `json:"chainId"`
	Type           string   `json:"type"`
	Nonce          string   `json:"nonce"`
	IssuedAt       string   `json:"issuedAt"`
	ExpirationTime string   `json:"expirationTime,omitempty"`
	NotBefore      string   `json:"notBefore,omitempty"`
	RequestID      string   `json:"requestId,omitempty"`
	Resources      []string `json:"resources,omitempty"`
	// SignatureScheme is not signed; see [KnownSignature].
	SignatureScheme string `json:"signatureScheme,omitempty"`
	Signature       string `json:"signature"` // 0x and hexadecimal digits
}

// NewSignIn returns the unsigned proof of an address for the declaration of a route.
func NewSignIn(info SignInInfo, chain SignInChain, address toll.Address) *SignIn {
	return &SignIn{
		Domain: info.Domain, Address: address.String(), Statement: info.Statement, URI: info.URI, Version: info.Version,
		ChainID: chain.ChainID, Type: chain.Type, Nonce: info.Nonce, IssuedAt: info.IssuedAt, ExpirationTime: info.ExpirationTime,
		Resources: info.Resources, SignatureScheme: chain.SignatureScheme,
	}
}

// maxSignInResources bounds the resources of a proof.
const maxSignInResources = 16

// DecodeSignIn decodes the header: base64 (either alphabet, padded or not) of the proof, or its JSON, of at most 8 KiB and 16
// resources. It rejects members that would make the text ambiguous: only visible ASCII, and blanks inside the statement. It
// checks nothing else. Errors: [toll.CodeTokenUndecodable].
func DecodeSignIn(s string) (*SignIn, error) {
	if len(s) > MaxTokenBytes {
		return nil, badSignIn("the proof is larger than 8 KiB")
	}
	p := new(SignIn)
	if err := DecodeHeader(s, p); err != nil {
		return nil, badSignIn("the proof is malformed").WithCause(err)
	}
	if len(p.Resources) > maxSignInResources {
		return nil, badSignIn("the proof has more than 16 resources")
	}
	words := []string{p.Domain, p.Address, p.URI, p.Version, p.ChainID, p.Type, p.Nonce, p.IssuedAt, p.Signature}
	if slices.Contains(words, "") {
		return nil, badSignIn("a required member is missing")
	}
	words = append(words, p.ExpirationTime, p.NotBefore, p.RequestID)
	for _, w := range append(words, p.Resources...) {
		if !visible(w) {
			return nil, badSignIn("a member has invalid characters")
		}
	}
	if !visible(strings.ReplaceAll(p.Statement, " ", "")) {
		return nil, badSignIn("the statement has invalid characters")
	}
	return p, nil
}

func badSignIn(why string) *toll.Error {
	return toll.Errorf(toll.CodeTokenUndecodable, "The sign-in cannot be decoded: %s.", why).WithReason(ReasonInvalidPayload)
}

// Text returns the signed text (EIP-4361). Proofs with different members have different texts, as [DecodeSignIn] rejects line breaks.
func (p *SignIn) Text() string {
	var b strings.Builder
	b.WriteString(p.Domain + " wants you to sign in with your Ethereum account:\n" + p.Address + "\n\n")
	if p.Statement != "" {
		b.WriteString(p.Statement + "\n")
	}
	_, chain, _ := strings.Cut(p.ChainID, ":")
	b.WriteString("\nURI: " + p.URI + "\nVersion: " + p.Version + "\nChain ID: " + chain + "\nNonce: " + p.Nonce + "\nIssued At: " + p.IssuedAt)
	for _, line := range []struct{ name, value string }{
		{"Expiration Time", p.ExpirationTime}, {"Not Before", p.NotBefore}, {"Request ID", p.RequestID},
	} {
		if line.value != "" {
			b.WriteString("\n" + line.name + ": " + line.value)
		}
	}
	if len(p.Resources) > 0 {
		b.WriteString("\nResources:")
		for _, r := range p.Resources {
			b.WriteString("\n- " + r)
		}
	}
	return b.String()
}

// SignatureBytes returns the signature; nil if it is not 0x and hexadecimal digits.
func (p *SignIn) SignatureBytes() []byte {
	digits, ok := strings.CutPrefix(p.Signature, "0x")
	b, err := hex.DecodeString(digits)
	if !ok || err != nil {
		return nil
	}
	return b
}

// Encode returns the header value: base64 (standard alphabet, padded) of the proof.
func (p *SignIn) Encode() (string, error) { return EncodeHeader(p) }
