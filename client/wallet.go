package client

import (
	"context"
	"net/http"

	"github.com/tollhq/toll"
)

// Wallet returns the wallet of the caller. Its balances are empty while the chain cannot be read.
func (c *Client) Wallet(ctx context.Context) (*toll.Wallet, error) {
	return get[toll.Wallet](ctx, c, api("/wallet"))
}

// ExportWallet returns the private key of the wallet, once: whoever has the key can spend what is in the wallet, and the
// service cannot take it back. It needs an API key that the operator made, with the right export, else the error has the code
// [toll.CodeRightMissing] or [toll.CodeForbidden]; a second call is refused with [toll.CodeExists]. The call is not repeated.
func (c *Client) ExportWallet(ctx context.Context) (*toll.WalletKey, error) {
	return fetch[toll.WalletKey](ctx, c, call{method: http.MethodPost, path: api("/wallet/export")})
}

// FaucetParams ask for money of the embedded chain, in whole units of each token, such as "12.50". Without any amount it is
// 100 USDC, 100 EURC and 0.1 ETH.
type FaucetParams struct {
	Address toll.Address `json:"address,omitzero"` // zero: the wallet of the caller
	USDC    string       `json:"usdc,omitzero"`    // "": none
	EURC    string       `json:"eurc,omitzero"`
	ETH     string       `json:"eth,omitzero"`
}

// Faucet fills an account with money of the embedded chain, which is worth nothing. A service with another chain, and a live
// one, has no such route. The call is not repeated.
func (c *Client) Faucet(ctx context.Context, p FaucetParams) (*toll.ActResult, error) {
	return fetch[toll.ActResult](ctx, c, call{method: http.MethodPost, path: api("/sandbox/faucet"), body: p})
}
