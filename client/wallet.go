package client

import (
	"context"
	"net/http"

	"github.com/tollhq/toll"
)

// Wallet returns the wallet of the caller. Its balances are empty while the chain is unreachable.
func (c *Client) Wallet(ctx context.Context) (*toll.Wallet, error) {
	return get[toll.Wallet](ctx, c, api("/wallet"))
}

// ExportWallet returns the private key of the wallet, once: anyone with the key can spend the wallet, and the service cannot
// revoke it. It needs an API key that the operator made, with the right export; otherwise the error is [toll.CodeRightMissing]
// or [toll.CodeForbidden]. A second call is refused with [toll.CodeExists]. The call is not retried.
func (c *Client) ExportWallet(ctx context.Context) (*toll.WalletKey, error) {
	return fetch[toll.WalletKey](ctx, c, call{method: http.MethodPost, path: api("/wallet/export")})
}

// FaucetParams are amounts of the embedded chain in whole units of each token, such as "12.50". The default is 100 USDC, 100
// EURC and 0.1 ETH.
type FaucetParams struct {
	Address toll.Address `json:"address,omitzero"` // zero: the wallet of the caller
	USDC    string       `json:"usdc,omitzero"`    // "": none
	EURC    string       `json:"eurc,omitzero"`
	ETH     string       `json:"eth,omitzero"`
}

// Faucet funds an account with worthless money of the embedded chain. Services with another chain, and live ones, have no such
// route. The call is not retried.
func (c *Client) Faucet(ctx context.Context, p FaucetParams) (*toll.ActResult, error) {
	return fetch[toll.ActResult](ctx, c, call{method: http.MethodPost, path: api("/sandbox/faucet"), body: p})
}
