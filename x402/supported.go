package x402

// Supported is what a facilitator serves (wire contract, section 18). Networks are exact, never wildcards.
type Supported struct {
	Kinds      []SupportedKind     `json:"kinds"`
	Extensions []string            `json:"extensions"`
	Signers    map[string][]string `json:"signers"` // addresses that act on a family of chains, for example "eip155:*"
}

// SupportedKind is one way to pay. Kinds of other schemes than those of this service have no Extra.
type SupportedKind struct {
	X402Version int            `json:"x402Version"`
	Scheme      string         `json:"scheme"`
	Network     string         `json:"network"`
	Extra       SupportedExtra `json:"extra,omitzero"`
}

// SupportedExtra is what a client must know of a kind.
type SupportedExtra struct {
	Version      string `json:"version"` // "1"
	CreditsAsset string `json:"creditsAsset"`
}

// ExtensionPaymentIdentifier is the extension by which a client names a request itself.
const ExtensionPaymentIdentifier = "payment-identifier"
