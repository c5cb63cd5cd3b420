package rails

import (
	"context"
	"math/big"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
)

// ChainEmbedded reports whether the chain is the one inside the program, which pays at once or never.
func (n *Chain) Embedded() bool { return n.source == embeddedChain }

// explorers are sites about the public chains.
var explorers = map[toll.Environment]string{toll.Live: "https://basescan.org", toll.Sandbox: "https://sepolia.basescan.org"}

// Explorer returns the address of a site about the chain, "" for the embedded one.
func (n *Chain) Explorer() string {
	if n.Embedded() {
		return ""
	}
	return explorers[n.env()]
}

// Contracts returns the contracts that payments go through, by name.
func (n *Chain) Contracts() map[string]toll.Address {
	named := map[string]toll.Address{
		"EntryPoint":                        toll.Address(contracts.EntryPoint),
		"DelegationManager":                 toll.Address(contracts.DelegationManager),
		"AccountCode":                       toll.Address(contracts.AccountCode),
		"ERC20TransferAmountEnforcer":       toll.Address(contracts.ERC20TransferAmountEnforcer),
		"NativeTokenTransferAmountEnforcer": toll.Address(contracts.NativeTokenTransferAmountEnforcer),
		"TimestampEnforcer":                 toll.Address(contracts.TimestampEnforcer),
		"LimitedCallsEnforcer":              toll.Address(contracts.LimitedCallsEnforcer),
		"AllowedCalldataEnforcer":           toll.Address(contracts.AllowedCalldataEnforcer),
		"USDC":                              n.env().USDC(),
		"EURC":                              n.env().EURC(),
	}
	if n.burns != nil {
		named["CreditMirror"] = toll.Address(n.burns.contract)
	}
	return named
}

// Account returns the account that acts for everybody on the chain, zero when the chain is off.
func (n *Chain) Account() toll.Address {
	if n.keys == nil {
		return toll.Address{}
	}
	return toll.Address(n.keys.service)
}

// URL returns where the embedded chain answers JSON-RPC, "" when it does not, or does not run yet.
func (n *Chain) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.running; r != nil && r.dev != nil {
		return r.dev.URL()
	}
	return ""
}

// Seen returns what the last looks have read of the chain.
func (n *Chain) Seen() chain.Seen {
	if n.rail == nil {
		return chain.Seen{}
	}
	return n.rail.Seen()
}

// BlockOf returns the number of the block that holds a transaction of the chain.
func (n *Chain) BlockOf(ctx context.Context, tx toll.Hash) (uint64, error) {
	r, err := n.need(ctx)
	if err != nil {
		return 0, err
	}
	var block uint64
	err = r.pool.Read(ctx, func(ctx context.Context, c *endpoints.Conn) error {
		receipt, err := c.TransactionReceipt(ctx, common.Hash(tx))
		if err == nil {
			block = receipt.BlockNumber.Uint64()
		}
		return err
	})
	return block, err
}

// Balances returns what an account has. Errors have status 503.
func (n *Chain) Balances(ctx context.Context, account toll.Address) ([]toll.TokenBalance, error) {
	if _, err := n.need(ctx); err != nil {
		return nil, err
	}
	w, err := n.rail.Wallet(ctx, common.Address(account))
	if err != nil {
		return nil, err
	}
	env := n.env()
	all := []toll.TokenBalance{
		{Symbol: "ETH", Decimals: 18}, {Symbol: "USDC", TokenAddress: env.USDC(), Decimals: 6}, {Symbol: "EURC", TokenAddress: env.EURC(), Decimals: 6},
	}
	for i, amount := range []*big.Int{w.Native, w.USDC, w.EURC} {
		if all[i].Amount, err = toll.ParseUnits(amount.String()); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Faucet gives an account money of the embedded chain and returns the last transaction. What was given before an error stays.
func (n *Chain) Faucet(ctx context.Context, account toll.Address, usdc, eurc, wei toll.Units) (tx toll.Hash, err error) {
	r, err := n.need(ctx)
	if err != nil {
		return toll.Hash{}, err
	}
	env, to := n.env(), common.Address(account)
	var hash common.Hash
	if !usdc.IsZero() {
		hash, err = r.dev.Mint(ctx, common.Address(env.USDC()), to, usdc.Int())
	}
	if err == nil && !eurc.IsZero() {
		hash, err = r.dev.Mint(ctx, common.Address(env.EURC()), to, eurc.Int())
	}
	if err == nil && !wei.IsZero() {
		hash, err = r.dev.Fund(ctx, to, wei.Int())
	}
	if err != nil {
		return toll.Hash{}, unusableChain(err)
	}
	return toll.Hash(hash), nil
}
