package toll

// Custody tells which side holds the key of a wallet.
type Custody string

// Custodies of a wallet.
const (
	CustodyService Custody = "service" // the service alone
	CustodyShared  Custody = "shared"  // also its owner: the key was exported
	// CustodyExternal is a wallet whose key the service never had.
	CustodyExternal Custody = "external"
)

// Wallet is the on-chain account of a workspace. The service holds its key unless Custody is external.
type Wallet struct {
	Address    Address        `json:"address"`
	Network    string         `json:"network"`
	ChainID    int64          `json:"chainId"`
	Custody    Custody        `json:"custody"`
	ExportedAt *Time          `json:"exportedAt"`
	Explorer   *string        `json:"explorer"` // page of the account; null when the chain is private
	Balances   []TokenBalance `json:"balances"` // all three tokens; empty while the chain cannot be read
}

// TokenBalance is the balance of an account in one token.
type TokenBalance struct {
	Symbol       string  `json:"symbol"`       // ETH, USDC or EURC
	TokenAddress Address `json:"tokenAddress"` // zero: the native token
	Decimals     int64   `json:"decimals"`
	Amount       Units   `json:"amount"` // base units
}

// WalletKey is the private key of a wallet. It is returned only once.
type WalletKey struct {
	Address    Address `json:"address"`
	PrivateKey string  `json:"privateKey"` // 0x and 64 hexadecimal digits
	Custody    Custody `json:"custody"`
}
