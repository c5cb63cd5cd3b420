package client

import (
	"context"
	"net/http"

	"github.com/tollhq/toll"
)

// Wallet returns the wallet of the caller. Balances are empty while the service cannot reach the chain.
func (c *Client) Wallet(ctx context.Context) (*toll.Wallet, error) {
	return get[toll.Wallet](ctx, c, api("/wallet"))
}

// ExportWallet returns the private key of the wallet, once. Anyone with the key can spend from the wallet, and the service cannot
// revoke it. The call requires an API key with the right export that the operator created; otherwise it fails with
// [toll.CodeRightMissing] or [toll.CodeForbidden]. A second call fails with [toll.CodeExists]. The call is not retried.
func (c *Client) ExportWallet(ctx context.Context) (*toll.WalletKey, error) {
	return fetch[toll.WalletKey](ctx, c, call{method: http.MethodPost, path: api("/wallet/export")})
}

// FaucetParams are amounts on the embedded chain in decimal token units, such as "12.50". If all are empty, the service sends 100
// USDC, 100 EURC, and 0.1 ETH.
type FaucetParams struct {
	Address toll.Address `json:"address,omitzero"` // zero: the wallet of the caller
	USDC    string       `json:"usdc,omitzero"`    // "": none
	EURC    string       `json:"eurc,omitzero"`
	ETH     string       `json:"eth,omitzero"`
}

// Faucet funds an address with test tokens on the embedded chain. Live services, and services on another chain, do not have this
// route. The call is not retried.
func (c *Client) Faucet(ctx context.Context, p FaucetParams) (*toll.ActResult, error) {
	return fetch[toll.ActResult](ctx, c, call{method: http.MethodPost, path: api("/sandbox/faucet"), body: p})
}
