package x402

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
)

// HeaderExtensions is the header in which a facilitator reports the outcome of extensions to a server, not to its client:
// base64 of JSON, by extension.
const HeaderExtensions = "extension-responses"

// ReasonEchoMismatch refuses a payment whose client changed an advertised extension.
const ReasonEchoMismatch = "extension_echo_mismatch"

// Prepared declarations of the extension payment-identifier, for every 402.
var (
	paymentIdentifierOptional = paymentIdentifier("false")
	paymentIdentifierRequired = paymentIdentifier("true")
)

func paymentIdentifier(required string) json.RawMessage {
	return json.RawMessage(`{"info":{"required":` + required + `},"schema":{"type":"object","properties":{"required":{"type":"boolean"},` +
		`"id":{"type":"string","minLength":16,"maxLength":128,"pattern":"^[a-zA-Z0-9_-]+$"}},"required":["required"]}}`)
}

// PaymentIdentifier returns the member payment-identifier of the extensions of a 402: a client may, or must, name its request
// with 16 to 128 of A-Z a-z 0-9 _ -. The result is read-only.
func PaymentIdentifier(required bool) json.RawMessage {
	if required {
		return paymentIdentifierRequired
	}
	return paymentIdentifierOptional
}

// generated are members of info that differ in each 402, so that a client may repeat an earlier one.
var generated = map[string][]string{
	ExtensionOfferReceipt: {"offers"},
	ExtensionSignIn:       {"nonce", "issuedAt", "expirationTime", "requestId"},
}

// EchoMismatch returns the first extension in name order with a changed or missing member of info, or "". A client may omit
// an extension and add members; generated members are ignored.
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

// keeps reports whether theirs contains the info of ours, except for the members in but.
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

// sameJSON compares values regardless of member order and blanks.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := jsontext.Value(bytes.Clone(a)), jsontext.Value(bytes.Clone(b))
	return x.Canonicalize() == nil && y.Canonicalize() == nil && bytes.Equal(x, y)
}
