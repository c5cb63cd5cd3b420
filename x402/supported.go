package x402

// Supported lists what a facilitator serves (wire contract, section 18). Networks are exact, never wildcards.
type Supported struct {
	Kinds      []SupportedKind     `json:"kinds"`
	Extensions []string            `json:"extensions"`
	Signers    map[string][]string `json:"signers"` // addresses that act on a family of chains, for example "eip155:*"
}

// SupportedKind is one way to pay. Extra is only set for schemes of this service.
type SupportedKind struct {
	X402Version int            `json:"x402Version"`
	Scheme      string         `json:"scheme"`
	Network     string         `json:"network"`
	Extra       SupportedExtra `json:"extra,omitzero"`
}

// SupportedExtra has the details of a kind that clients need.
type SupportedExtra struct {
	Version      string `json:"version"` // "1"
	CreditsAsset string `json:"creditsAsset"`
}

// ExtensionPaymentIdentifier is the extension for clients to name a request.
const ExtensionPaymentIdentifier = "payment-identifier"
