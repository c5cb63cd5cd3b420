package x402

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// HeaderExtensions is the header in which a facilitator tells a server what became of extensions: base64 of JSON, by
// extension. It is not for clients.
const HeaderExtensions = "extension-responses"

// ReasonEchoMismatch refuses a payment whose client changed what a server advertised.
const ReasonEchoMismatch = "extension_echo_mismatch"

// Declarations of the extension payment-identifier (x402 extension payment-identifier), ready made: they stand in every 402.
var (
	paymentIdentifierOptional = paymentIdentifier("false")
	paymentIdentifierRequired = paymentIdentifier("true")
)

func paymentIdentifier(required string) json.RawMessage {
	return json.RawMessage(`{"info":{"required":` + required + `},"schema":{"type":"object","properties":{"required":{"type":"boolean"},` +
		`"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`)
}

// PaymentIdentifier returns the member payment-identifier of the extensions of a 402: a client may, or must, name its
// request itself, with 16 to 128 of A-Z a-z 0-9 _ -. Do not change what it returns.
func PaymentIdentifier(required bool) json.RawMessage {
	if required {
		return paymentIdentifierRequired
	}
	return paymentIdentifierOptional
}

// generated are the members of info that a server makes anew for each 402, so that an earlier one may come back.
var generated = map[string][]string{
	ExtensionOfferReceipt: {"offers"},
	ExtensionSignIn:       {"nonce", "issuedAt", "expirationTime", "requestId"},
}

// EchoMismatch returns the first extension of which a client changed or dropped a member of info, "" when there is none. A
// client may leave an extension out and add members; what a server generates for each 402 is not compared.
func EchoMismatch(advertised, echoed map[string]json.RawMessage) string {
	first := ""
	for name, ours := range advertised {
		theirs, ok := echoed[name]
		if !ok || (first != "" && first < name) {
			continue
		}
		if !keeps(theirs, ours, generated[name]) {
			first = name
		}
	}
	return first
}

// keeps reports whether an extension still has the info of another one, but for these members.
func keeps(theirs, ours json.RawMessage, but []string) bool {
	want, ok := infoOf(ours)
	if !ok {
		return true // it advertises nothing
	}
	got, ok := infoOf(theirs)
	if !ok {
		return false
	}
	for _, name := range but {
		delete(want, name)
	}
	for name, value := range want {
		if !sameJSON(got[name], value) {
			return false
		}
	}
	return true
}

func infoOf(extension json.RawMessage) (map[string]json.RawMessage, bool) {
	var e struct {
		Info map[string]json.RawMessage `json:"info"`
	}
	if len(extension) == 0 || Decode(extension, &e) != nil || e.Info == nil {
		return nil, false
	}
	return e.Info, true
}

// sameJSON compares values, whatever the order of their members and their blanks.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := jsontext.Value(bytes.Clone(a)), jsontext.Value(bytes.Clone(b))
	return x.Canonicalize() == nil && y.Canonicalize() == nil && bytes.Equal(x, y)
}
