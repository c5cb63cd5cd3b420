package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
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

type wallets struct {
	auth        *auth.Auth
	chain       *Chain
	environment toll.Environment
	clock       clock
	log         *slog.Logger
}

func (s wallets) routes() []route {
	const at = Base + "/wallet"
	return []route{
		{
			op: "readWallet", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Wallet", summary: "Read your wallet and its balances",
			action: reads(s.readWallet),
		},
		{
			op: "exportWallet", method: "POST", path: at + "/export", auth: keyed, right: toll.RightExport, session: true, fresh: true, tag: "Wallet",
			summary: "Export the private key of the wallet; you can do this only once. Requires an owner, or an API key created by the operator while the workspace has no people. Afterwards, both you and the service have the key",
			action:  reads(s.exportWallet), codes: []toll.Code{toll.CodeForbidden, toll.CodeExists},
		},
		{
			op: "useFaucet", method: "POST", path: Base + "/sandbox/faucet", auth: keyed, right: toll.RightSpend, tag: "Sandbox", sandbox: true,
			summary: "Get free test money on the embedded chain",
			action:  takes(s.useFaucet), codes: []toll.Code{toll.CodeBadNumber, toll.CodeBadAddress, toll.CodePathNotFound, toll.CodeChainUnreachable},
		},
	}
}

func (s wallets) readWallet(c *call) (*toll.Wallet, error) {
	ctx := c.context
	known, err := s.auth.Wallet(ctx, c.caller.Address)
	if err != nil {
		return nil, err
	}
	w := &toll.Wallet{
		Address: known.Address, Network: s.environment.Network(), ChainID: s.environment.ChainID(), Custody: toll.CustodyService, ExportedAt: known.ExportedAt,
	}
	switch {
	case known.External:
		w.Custody = toll.CustodyExternal
	case known.ExportedAt != nil:
		w.Custody = toll.CustodyShared
	}
	if s.chain == nil {
		return w, nil
	}
	if s.chain.Explorer != "" {
		page := s.chain.Explorer + "/address/" + w.Address.String()
		w.Explorer = &page
	}
	if w.Balances, err = s.chain.Balances(ctx, w.Address); err != nil {
		// The address is worth having while the chain is away; an empty list says that nothing is known of the money.
		s.log.WarnContext(ctx, "reading the balances of a wallet failed", "error", err.Error())
		w.Balances = nil
	}
	return w, nil
}

func (s wallets) exportWallet(c *call) (*toll.WalletKey, error) {
	key, err := s.auth.ExportWallet(c.context, c.caller)
	if err != nil {
		return nil, err
	}
	defer clear(key)
	return &toll.WalletKey{Address: c.caller.Address, PrivateKey: "0x" + hex.EncodeToString(key), Custody: toll.CustodyShared}, nil
}

// FaucetInput asks for money of the embedded chain, in whole units of each token. Without any amount it is 100 USDC, 100 EURC and 0.1 ETH.
type FaucetInput struct {
	Address *toll.Address `json:"address,omitzero" doc:"Defaults to your wallet."`
	USDC    *string       `json:"usdc,omitzero" doc:"Amount in units of the token, such as 12.50."`
	EURC    *string       `json:"eurc,omitzero" doc:"Amount in units of the token."`
	ETH     *string       `json:"eth,omitzero" doc:"Amount in units of the token."`
}

// Most that one call of the faucet gives, in whole units.
const (
	maxFaucetTokens = "1000000"
	maxFaucetETH    = "10"
)

func (s wallets) useFaucet(c *call, in *FaucetInput) (*toll.ActResult, error) {
	if s.chain == nil || s.chain.Faucet == nil {
		return nil, toll.NewError(toll.CodePathNotFound).WithHint("The faucet works only on the embedded chain, which this service does not use.")
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
			faults = append(faults, toll.Fault{Path: name, Message: fmt.Sprintf("must be an amount in whole units, such as 12.50, with at most %d decimals and at most %s", decimals, most)})
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
	tx, err := s.chain.Faucet(c.context, to, usdc, eurc, wei)
	if err != nil {
		return nil, err
	}
	return &toll.ActResult{
		Success: true, Message: "Money sent.", TxHash: tx, HTTPStatus: 200, When: toll.At(s.clock.now()), Data: given,
	}, nil
}

// TestClock is the clock of a sandbox, which an operator can move forward.
type TestClock struct {
	// Ahead is how far it is ahead of the clock of the machine.
	Ahead func() time.Duration
	// Advance moves it, for every process.
	Advance func(ctx context.Context, d time.Duration) error
}

type sandbox struct {
	auth  *auth.Auth
	clock clock
	test  *TestClock
}

func (s sandbox) routes() []route {
	const at = Base + "/sandbox/clock"
	return []route{
		{
			op: "readClock", method: "GET", path: at, auth: keyed, right: toll.RightRead, tag: "Sandbox", summary: "Read the clock of the sandbox", sandbox: true,
			action: reads(s.readClock),
		},
		{
			op: "advanceClock", method: "POST", path: at, auth: keyed, right: toll.RightManage, tag: "Sandbox", sandbox: true,
			summary: "Move the clock of the sandbox forward, with an API key of an operator",
			action:  takes(s.advanceClock), codes: []toll.Code{toll.CodeForbidden, toll.CodeBadNumber},
		},
	}
}

// Clock is the time of a sandbox.
type Clock struct {
	Now        toll.Time `json:"now"`
	OffsetSecs int64     `json:"offsetSecs" doc:"Seconds that the sandbox is ahead of the clock of the machine."`
}

func (s sandbox) readClock(*call) (*Clock, error) {
	return &Clock{Now: toll.At(s.clock()), OffsetSecs: int64(s.test.Ahead() / time.Second)}, nil
}

type ClockInput struct {
	AdvanceSecs toll.Int `json:"advanceSecs" minimum:"0" doc:"Seconds to move the clock forward. The clock never goes back."`
}

func (*ClockInput) required() []string { return []string{"advanceSecs"} }

func (s sandbox) advanceClock(c *call, in *ClockInput) (*Clock, error) {
	const century = 100 * toll.YearSecs
	if in.AdvanceSecs < 0 || in.AdvanceSecs > century {
		return nil, toll.Errorf(toll.CodeBadNumber, "advanceSecs must be 0 to %d: the clock never goes back.", int64(century)).
			WithParam("path", "advanceSecs")
	}
	operator, err := s.auth.IsOperator(c.context, c.caller.Address)
	if err != nil {
		return nil, err
	}
	if !operator {
		return nil, toll.NewError(toll.CodeForbidden).
			WithHint("Only an operator can move the clock. Create a key with toll keys create --local --operator.")
	}
	if err := s.test.Advance(c.context, time.Duration(in.AdvanceSecs)*time.Second); err != nil {
		return nil, err
	}
	return s.readClock(c)
}
