package server

import (
	"context"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/chain/contracts"
)

// connect takes the chain of the settings as the crypto rail, unless one was given.
func (s *Server) connect(ctx context.Context) error {
	if s.cfg.Rails.Crypto != nil {
		return nil
	}
	n, err := newNetwork(ctx, s.cfg, s.base)
	if err != nil {
		return err
	}
	if n.source == sourceNone {
		n.end()
		if s.cfg.Chain.Mode != ChainOff {
			s.cfg.Log.Warn("crypto plans cannot be ordered", "reason", n.missing)
		}
		return nil
	}
	s.chain, s.cfg.Rails.Crypto = n, cryptoRail{n}
	return nil
}

// orderWait is how long the answer to an order waits; 0 is the default of the API. The embedded chain pays at once or never.
func (s *Server) orderWait() time.Duration {
	if s.cfg.OrderWait == 0 && s.chain != nil && s.chain.source == sourceEmbedded {
		return 10 * time.Second
	}
	return s.cfg.OrderWait
}

// explorers are sites about the public chains.
var explorers = map[toll.Environment]string{toll.Live: "https://basescan.org", toll.Sandbox: "https://sepolia.basescan.org"}

// chainOfAPI is what the API shows of the chain, nil for none.
func (s *Server) chainOfAPI() *api.Chain {
	n := s.chain
	if n == nil {
		return nil
	}
	c := &api.Chain{
		Balances: n.balances,
		Contracts: map[string]toll.Address{
			"EntryPoint": toll.Address(contracts.EntryPoint), "DelegationManager": toll.Address(contracts.DelegationManager),
			"AccountCode":                       toll.Address(contracts.AccountCode),
			"ERC20TransferAmountEnforcer":       toll.Address(contracts.ERC20TransferAmountEnforcer),
			"NativeTokenTransferAmountEnforcer": toll.Address(contracts.NativeTokenTransferAmountEnforcer),
			"TimestampEnforcer":                 toll.Address(contracts.TimestampEnforcer),
			"LimitedCallsEnforcer":              toll.Address(contracts.LimitedCallsEnforcer),
			"AllowedCalldataEnforcer":           toll.Address(contracts.AllowedCalldataEnforcer),
			"USDC":                              s.base.auth.Environment().USDC(),
			"EURC":                              s.base.auth.Environment().EURC(),
		},
	}
	if n.burns != nil {
		c.Contracts["CreditMirror"] = toll.Address(n.burns.contract)
	}
	if n.source == sourceEmbedded {
		c.Faucet = n.faucet
	} else {
		c.Explorer = explorers[s.base.auth.Environment()]
	}
	return c
}

func (n *network) balances(ctx context.Context, account toll.Address) ([]toll.TokenBalance, error) {
	r, err := n.need(ctx)
	if err != nil {
		return nil, err
	}
	w, err := r.rail.Wallet(ctx, common.Address(account))
	if err != nil {
		return nil, err
	}
	env := n.base.auth.Environment()
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

// faucet makes money of the embedded chain. What was made before an error stays.
func (n *network) faucet(ctx context.Context, account toll.Address, usdc, eurc, wei toll.Units) (tx toll.Hash, err error) {
	r, err := n.need(ctx)
	if err != nil {
		return toll.Hash{}, err
	}
	env, to := n.base.auth.Environment(), common.Address(account)
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
