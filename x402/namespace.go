package x402

import (
	"errors"
	"fmt"
	"strings"
)

// Namespace is the set of brand words on the wire. No other code spells them, so a different Namespace serves clients of a different brand.
type Namespace struct {
	Scheme string // scheme prefix, reason infix, asset prefix and JWT claim object: "svc"
	Header string // header prefix: "Service"
	Word   string // word in paths and _meta keys: "service"
}

// ParseNamespace parses three words separated by commas: scheme prefix, header prefix, word, for example "acme,Acme,acme".
// Scheme and word are 1 to 32 lower-case letters and digits that begin with a letter, the header prefix 1 to 32 letters, digits
// and hyphens. "" is [Default].
func ParseNamespace(s string) (Namespace, error) {
	if s == "" {
		return Default, nil
	}
	words := strings.Split(s, ",")
	if len(words) != 3 {
		return Namespace{}, errors.New(
			"x402: a namespace must be three comma-separated words (scheme prefix, header prefix, and word), such as acme,Acme,acme")
	}
	n := Namespace{Scheme: words[0], Header: words[1], Word: words[2]}
	header := n.Header != "" && len(n.Header) <= 32 &&
		strings.Trim(n.Header, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == "" && strings.Trim(n.Header, "-") == n.Header
	if !isWord(n.Scheme) || !isWord(n.Word) || !header {
		return Namespace{}, errors.New("x402: in a namespace, the scheme prefix and the word must be 1 to 32 lowercase letters and digits, starting with a letter; the header prefix must be 1 to 32 letters, digits, and inner hyphens")
	}
	return n, nil
}

// isWord reports whether w is a valid scheme prefix or word.
func isWord(w string) bool {
	return w != "" && len(w) <= 32 && w[0] >= 'a' && w[0] <= 'z' &&
		strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Set is [ParseNamespace] for flags.
func (n *Namespace) Set(s string) (err error) {
	*n, err = ParseNamespace(s)
	return err
}

// String returns the input of [ParseNamespace], "" for the zero value.
func (n *Namespace) String() string {
	if *n == (Namespace{}) {
		return ""
	}
	return n.Scheme + "," + n.Header + "," + n.Word
}

// Type is the type of the value in the help of a flag.
func (n *Namespace) Type() string { return "words" }

// Default is the namespace of the interface specification.
var Default = Namespace{Scheme: "svc", Header: "Service", Word: "service"}

// SchemeCrypto is the scheme of plans that are bought on chain.
func (n Namespace) SchemeCrypto() string { return n.Scheme + ":erc4337" }

// SchemeCard is the scheme of plans that are bought with a card.
func (n Namespace) SchemeCard() string { return n.Scheme + ":card-delegation" }

// OtherBrand returns the part of an error that names both namespaces if scheme belongs to another namespace, else "".
func (n Namespace) OtherBrand(scheme string) string {
	brand, _, _ := strings.Cut(scheme, ":")
	other := Namespace{Scheme: brand}
	if brand == n.Scheme || !isWord(brand) ||
		scheme != other.SchemeCrypto() && scheme != other.SchemeCard() {
		return ""
	}
	return fmt.Sprintf(
		"the scheme %q belongs to the namespace %q; the namespace here is %q",
		scheme,
		brand,
		n.Scheme,
	)
}

// Asset is the asset of payment requirements: credits.
func (n Namespace) Asset() string { return n.Scheme + ":credits" }

// ConfigContract is the name under which strict clients look for the configuration contract of the interface.
func (n Namespace) ConfigContract() string { return strings.ToUpper(n.Scheme) + "Config" }

// Tool is the name under which chat hosts see a tool of the gateway.
func (n Namespace) Tool(name string) string { return n.Word + "_" + name }

// PluginID is the id of the gateway's plugin in a chat host.
func (n Namespace) PluginID() string { return n.Scheme + "-gateway" }

// AgentPath is the default path of the gateway's paid endpoint.
func (n Namespace) AgentPath() string { return "/" + n.Word + "/agent" }

// ConfigAPIKey is the second name of the configuration field apiKey of the gateway, from the interface specification.
func (n Namespace) ConfigAPIKey() string {
	if n == Default {
		return "nvmApiKey"
	}
	return n.Scheme + "ApiKey"
}

// PlanExtension is the extension that says where a plan is bought.
func (n Namespace) PlanExtension() string { return n.Scheme + "-plan" }

// CreditsExtension is the extension of a settlement that carries credits.
func (n Namespace) CreditsExtension() string { return n.Scheme + "-credits" }

// HeaderVersion is the request and response header of the API version.
func (n Namespace) HeaderVersion() string { return n.Header + "-Version" }

// HeaderResolvedFrom is the response header that says where the version came from.
func (n Namespace) HeaderResolvedFrom() string { return n.Header + "-Version-Resolved-From" }

// HeaderRequestID is the response header of a streamed paid answer.
func (n Namespace) HeaderRequestID() string { return n.Header + "-Request-Id" }

// HeaderCreditsUsed is a response header of programs behind the paid endpoint of the chat gateway: the credits of the response,
// at most the price.
func (n Namespace) HeaderCreditsUsed() string { return n.Header + "-Credits-Used" }

// HeaderWebhookID is the header of a delivery to a webhook that names it.
func (n Namespace) HeaderWebhookID() string { return n.Header + "-Webhook-Id" }

// HeaderWebhookTimestamp is the header of a delivery that says when it was sent, in seconds since 1970.
func (n Namespace) HeaderWebhookTimestamp() string { return n.Header + "-Webhook-Timestamp" }

// HeaderWebhookSignature is the signature header of a delivery: "v1=" and the HMAC-SHA256 of "id.timestamp.body" in hex, one
// for each valid secret.
func (n Namespace) HeaderWebhookSignature() string { return n.Header + "-Webhook-Signature" }

// Command returns the slash command of a chat host for an act, without the slash.
func (n Namespace) Command(act string) string { return n.Scheme + "_" + act }

// MetaCredits is the key in _meta of an MCP result under which its credits stand.
func (n Namespace) MetaCredits() string { return n.Word + "/credits" }

// ReasonSignature is the reason of an access token that does not verify.
func (n Namespace) ReasonSignature() string { return "invalid_" + n.Scheme + "_payload_signature" }

// ReasonExpired is the reason of an expired access token.
func (n Namespace) ReasonExpired() string { return "invalid_" + n.Scheme + "_payload_expired" }

// ReasonRevoked is the reason of a revoked access token.
func (n Namespace) ReasonRevoked() string { return "invalid_" + n.Scheme + "_payload_revoked" }

// ReasonUnknown is the reason of an access token without a permission.
func (n Namespace) ReasonUnknown() string { return "invalid_" + n.Scheme + "_payload_unknown" }

// ReasonPlanMismatch is the reason of an access token for another plan.
func (n Namespace) ReasonPlanMismatch() string { return "invalid_" + n.Scheme + "_plan_mismatch" }

// ReasonAgentMismatch is the reason of an access token for another agent.
func (n Namespace) ReasonAgentMismatch() string { return "invalid_" + n.Scheme + "_agent_mismatch" }

// ReasonResourceMismatch is the reason for a url and verb that the agent does not have.
func (n Namespace) ReasonResourceMismatch() string {
	return "invalid_" + n.Scheme + "_resource_mismatch"
}

// ReasonSignIn is the reason for an invalid sign-in of a wallet.
func (n Namespace) ReasonSignIn() string { return "invalid_" + n.Scheme + "_sign_in" }

// Reason words of the standard and of this service that carry no brand word (wire contract, section 16).
const (
	ReasonInvalidPayload      = "invalid_payload"
	ReasonInvalidVersion      = "invalid_x402_version"
	ReasonInvalidRequirements = "invalid_payment_requirements"
	ReasonUnsupportedScheme   = "unsupported_scheme"
	ReasonInvalidNetwork      = "invalid_network"
	ReasonAgentInactive       = "agent_inactive"
	ReasonInsufficientFunds   = "insufficient_funds"
	ReasonPlanExpired         = "plan_expired"
	ReasonRedemptionLimit     = "redemption_limit_reached"
	ReasonOrderLimit          = "order_limit_reached"
	ReasonInFlight            = "payment_in_flight"
	ReasonDuplicate           = "duplicate_settlement"
	ReasonConflict            = "settle_conflict"
	ReasonIdentifierConflict  = "payment_identifier_conflict"
	ReasonHoldExpired         = "hold_expired"
	ReasonTooManyHolds        = "too_many_holds"
	ReasonExceedsAmount       = "settlement_exceeds_amount"
	ReasonAmountOutOfRange    = "amount_out_of_range"
	ReasonUnauthorizedServer  = "unauthorized_server"
	ReasonPending             = "settlement_pending"
	ReasonVerifyFault         = "unexpected_verify_error"
	ReasonSettleFault         = "unexpected_settle_error"
	ReasonRateLimited         = "rate_limited"
	ReasonPlanUnlisted        = "plan_unlisted"
	ReasonTrialUsed           = "trial_used"
	ReasonDelegationNotFound  = "delegation_not_found"
	ReasonPaymentDeclined     = "payment_declined"
	ReasonPaymentUnavailable  = "payment_method_unavailable"
	ReasonKeyNotAllowed       = "key_not_allowed"
	ReasonDelegationRevoked   = "delegation_revoked"
	ReasonDelegationExpired   = "delegation_expired"
	ReasonDelegationExhausted = "delegation_exhausted"
	ReasonDelegationShort     = "delegation_insufficient"
)

// Version is the protocol version of every object here.
const Version = 2

// Headers of the HTTP transport, in the lower case in which they are documented.
const (
	HeaderSignature = "payment-signature" // request: the access token
	HeaderRequired  = "payment-required"  // 402: base64 of a PaymentRequired
	HeaderResponse  = "payment-response"  // paid answer: base64 of a SettleResponse
)

// Keys in _meta of the MCP transport.
const (
	MetaPayment  = "x402/payment"          // params: the PaymentPayload, or an access token
	MetaResponse = "x402/payment-response" // result of a paid call: the SettleResponse
)
