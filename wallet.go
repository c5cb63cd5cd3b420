package toll

// Custody says who has the key of a wallet.
type Custody string

// Custodies of a wallet.
const (
	CustodyService Custody = "service" // the service alone
	CustodyShared  Custody = "shared"  // its owner, too: the key was exported
	// CustodyExternal is a wallet of the owner, whose key the service never had.
	CustodyExternal Custody = "external"
)

// Wallet is the account of a principal on the chain. The service holds its key.
type Wallet struct {
	Address    Address        `json:"address"`
	Network    string         `json:"network"`
	ChainID    int64          `json:"chainId"`
	Custody    Custody        `json:"custody"`
	ExportedAt *Time          `json:"exportedAt"`
	Explorer   *string        `json:"explorer"` // page about the account; null when the chain is not a public one
	Balances   []TokenBalance `json:"balances"` // of all three tokens; empty while the chain cannot be read
}

// TokenBalance is what an account has of one token.
type TokenBalance struct {
	Symbol       string  `json:"symbol"`       // ETH, USDC or EURC
	TokenAddress Address `json:"tokenAddress"` // zero: the native token
	Decimals     int64   `json:"decimals"`
	Amount       Units   `json:"amount"` // base units
}

// WalletKey is the private key of a wallet. It is given out once.
type WalletKey struct {
	Address    Address `json:"address"`
	PrivateKey string  `json:"privateKey"` // 0x and 64 hexadecimal digits
	Custody    Custody `json:"custody"`
}
