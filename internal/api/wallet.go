package api

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/tollhq/toll"
)

// Chain is what the API shows of the chain on which crypto plans are paid.
type Chain struct {
	// Contracts are those that payments go through, by name.
	Contracts map[string]toll.Address
	// Explorer is the address of a site about the chain, without a slash at the end; "" when there is none.
	Explorer string
	// Balances are what an account has. Errors have status 503.
	Balances func(ctx context.Context, account toll.Address) ([]toll.TokenBalance, error)
	// Faucet gives an account base units of the tokens of the embedded chain, and returns the last transaction. nil: the chain
	// is another one.
	Faucet func(ctx context.Context, account toll.Address, usdc, eurc, wei toll.Units) (toll.Hash, error)
}

func walletRoutes() []route {
	const at = Base + "/wallet"
	return []route{
		{
			op: "readWallet", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Wallet", summary: "The wallet of the caller, and what is in it",
			action: reads((*handler).readWallet),
		},
		{
			op: "exportWallet", method: "POST", path: at + "/export", auth: keyed, right: toll.RightExport, session: true, fresh: true, tag: "Wallet",
			summary: "The private key of the wallet, once, for an owner; or with an API key of the operator, while the workspace has no people. The custody is shared afterwards",
			action:  reads((*handler).exportWallet), codes: []toll.Code{toll.CodeForbidden, toll.CodeExists},
		},
		{
			op: "useFaucet", method: "POST", path: Base + "/sandbox/faucet", auth: keyed, right: toll.RightSpend, tag: "Sandbox", sandbox: true,
			summary: "Money of the embedded chain, which is worth nothing",
			action:  takes((*handler).useFaucet), codes: []toll.Code{toll.CodeBadNumber, toll.CodeBadAddress, toll.CodePathNotFound, toll.CodeChainUnreachable},
		},
	}
}

func (h *handler) readWallet(c *call) (*toll.Wallet, error) {
	ctx := c.context
	known, err := h.Auth.Wallet(ctx, c.caller.Address)
	if err != nil {
		return nil, err
	}
	w := &toll.Wallet{
		Address: known.Address, Network: h.network, ChainID: h.Environment.ChainID(), Custody: toll.CustodyService, ExportedAt: known.ExportedAt,
	}
	switch {
	case known.External:
		w.Custody = toll.CustodyExternal
	case known.ExportedAt != nil:
		w.Custody = toll.CustodyShared
	}
	if h.Chain == nil {
		return w, nil
	}
	if h.Chain.Explorer != "" {
		page := h.Chain.Explorer + "/address/" + w.Address.String()
		w.Explorer = &page
	}
	if w.Balances, err = h.Chain.Balances(ctx, w.Address); err != nil {
		// The address is worth having while the chain is away; an empty list says that nothing is known of the money.
		h.log.WarnContext(ctx, "balances of a wallet were not read", "error", err.Error())
		w.Balances = nil
	}
	return w, nil
}

func (h *handler) exportWallet(c *call) (*toll.WalletKey, error) {
	key, err := h.Auth.ExportWallet(c.context, c.caller)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	return &toll.WalletKey{Address: c.caller.Address, PrivateKey: "0x" + hex.EncodeToString(key), Custody: toll.CustodyShared}, nil
}

// FaucetInput asks for money of the embedded chain, in whole units of each token. Without any amount it is 100 USDC, 100 EURC
// and 0.1 ETH.
type FaucetInput struct {
	Address *toll.Address `json:"address,omitzero" doc:"Default the wallet of the caller."`
	USDC    *string       `json:"usdc,omitzero" doc:"Whole units, such as 12.50."`
	EURC    *string       `json:"eurc,omitzero" doc:"Whole units."`
	ETH     *string       `json:"eth,omitzero" doc:"Whole units."`
}

// Most that one call of the faucet gives, in whole units.
const (
	maxFaucetTokens = "1000000"
	maxFaucetETH    = "10"
)

func (h *handler) useFaucet(c *call, in *FaucetInput) (*toll.ActResult, error) {
	if h.Chain == nil || h.Chain.Faucet == nil {
		return nil, toll.NewError(toll.CodePathNotFound).WithHint("The faucet belongs to the embedded chain, and this service uses another one or none.")
	}
	if in.USDC == nil && in.EURC == nil && in.ETH == nil {
		tokens, eth := "100", "0.1"
		in.USDC, in.EURC, in.ETH = &tokens, &tokens, &eth
	}
	to := c.caller.Address
	if in.Address != nil {
		to = *in.Address
	}
	if to.IsZero() {
		return nil, toll.NewError(toll.CodeBadAddress).WithParam("path", "address")
	}
	given := map[string]any{"address": to}
	var faults []toll.Fault
	amount := func(name string, text *string, decimals int, most string) (units toll.Units) {
		if text == nil {
			return units
		}
		bound, _ := toll.ParseAmount(most, decimals) // a constant
		units, err := toll.ParseAmount(*text, decimals)
		if err != nil || units.Cmp(bound) > 0 {
			faults = append(faults, toll.Fault{Path: name, Message: fmt.Sprintf("must be an amount in whole units, such as 12.50, with at most %d decimals and up to %s", decimals, most)})
			return toll.Units{}
		}
		given[name] = *text
		return units
	}
	usdc := amount("usdc", in.USDC, 6, maxFaucetTokens)
	eurc := amount("eurc", in.EURC, 6, maxFaucetTokens)
	wei := amount("eth", in.ETH, 18, maxFaucetETH)
	if len(faults) > 0 {
		return nil, toll.Faults(faults)
	}
	tx, err := h.Chain.Faucet(c.context, to, usdc, eurc, wei)
	if err != nil {
		return nil, err
	}
	return &toll.ActResult{
		Success: true, Message: "The money is in the account.", TxHash: tx, HTTPStatus: 200, When: toll.At(h.now()), Data: given,
	}, nil
}
