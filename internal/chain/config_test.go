package chain

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain/contracts"
	"github.com/tollhq/toll/internal/chain/endpoints"
	"github.com/tollhq/toll/internal/chain/signer"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

func TestDepth(t *testing.T) {
	cfg := Config{Confirmations: 3, TopUpConfirmations: 1, FastLimitCents: 1_000}
	for what, one := range map[string]struct {
		op     Op
		blocks uint64
		safe   bool
	}{
		"a small price":         {Op{Kind: KindOrder, Cents: 1_000}, 3, false},
		"a larger price":        {Op{Kind: KindOrder, Cents: 1_001}, 0, true},
		"a price without cents": {Op{Kind: KindOrder}, 0, true},
		"a small top-up":        {Op{Kind: KindOrder, Cents: 1, TopUp: true}, 1, false},
		"a larger top-up":       {Op{Kind: KindOrder, Cents: 1_001, TopUp: true}, 1, false},
		"a revocation":          {Op{Kind: KindRevoke}, 3, false},
	} {
		if blocks, safe := cfg.depth(&one.op); blocks != one.blocks || safe != one.safe {
			t.Errorf("%s: %d, %v, want %d, %v", what, blocks, safe, one.blocks, one.safe)
		}
		embedded := cfg
		embedded.Embedded = true
		if blocks, safe := embedded.depth(&one.op); blocks != 0 || safe {
			t.Errorf("%s on the embedded chain: %d, %v", what, blocks, safe)
		}
	}
}

func TestCents(t *testing.T) {
	for units, want := range map[int64]int64{1: 1, 9_999: 1, 10_000: 1, 10_001: 2, 1_000_000: 100} {
		if got := cents(big.NewInt(units)); got != want {
			t.Errorf("%d units are %d cents, want %d", units, got, want)
		}
	}
	if got := cents(new(big.Int).Lsh(big.NewInt(1), 200)); got != 1<<63-1 {
		t.Errorf("2^200 units are %d cents", got)
	}
}

type noOrders struct{ rail.Orders }

func TestNew(t *testing.T) {
	good := Config{
		Environment: toll.Live, Pool: new(endpoints.Pool), Store: new(store.Store), Signer: new(signer.Signer), Orders: noOrders{},
		Service: common.Address{1}, Relayers: []common.Address{{2}},
	}
	r := must.Get(New(good))(t)
	// 500 delegated orders of 200,000 gas at 1.001 gwei.
	if want := "100100000000000000"; r.cfg.ChainID != contracts.Base || r.cfg.RelayerFloor.String() != want {
		t.Errorf("chain id %d, floor %s, want 8453 and %s", r.cfg.ChainID, r.cfg.RelayerFloor, want)
	}
	for what, change := range map[string]func(*Config){
		"live on the embedded chain":      func(c *Config) { c.Embedded = true },
		"another chain":                   func(c *Config) { c.ChainID = contracts.BaseSepolia },
		"no endpoints":                    func(c *Config) { c.Pool = nil },
		"no database":                     func(c *Config) { c.Store = nil },
		"no signer":                       func(c *Config) { c.Signer = nil },
		"no service account":              func(c *Config) { c.Service = common.Address{} },
		"no relayer":                      func(c *Config) { c.Relayers = nil },
		"a relayer that is the service":   func(c *Config) { c.Relayers = []common.Address{c.Service} },
		"a negative limit of fast ones":   func(c *Config) { c.FastLimitCents = -1 },
		"a negative number of operations": func(c *Config) { c.BatchOps = -1 },
	} {
		cfg := good
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// What a paid contract says about delegations means nothing for a direct order.
func TestCodeOfReason(t *testing.T) {
	for reason, want := range map[string][2]toll.Code{
		"ERC20TransferAmountEnforcer:allowance-exceeded": {toll.CodeDelegationInsufficient, toll.CodeChainFailed},
		"TimestampEnforcer:expired-delegation":           {toll.CodeDelegationExpired, toll.CodeChainFailed},
		"CannotUseADisabledDelegation()":                 {toll.CodeDelegationRevoked, toll.CodeChainFailed},
		"AllowedCalldataEnforcer:invalid-calldata":       {toll.CodeDelegationPlanMismatch, toll.CodeChainFailed},
		"InvalidERC1271Signature()":                      {toll.CodeChainSignature, toll.CodeChainFailed},
		"ECDSAInvalidSignatureLength(0)":                 {toll.CodeChainSignature, toll.CodeChainFailed},
		"ERC20: transfer amount exceeds balance":         {toll.CodeChainBalance, toll.CodeChainBalance},
		"ERC20InsufficientBalance(0x01, 1, 2)":           {toll.CodeChainBalance, toll.CodeChainBalance},
		"TimestampEnforcer:early-delegation":             {toll.CodeChainFailed, toll.CodeChainFailed},
		"InvalidDelegate()":                              {toll.CodeChainFailed, toll.CodeChainFailed},
		"":                                               {toll.CodeChainFailed, toll.CodeChainFailed},
	} {
		if got := [2]toll.Code{codeOfReason(reason, true), codeOfReason(reason, false)}; got != want {
			t.Errorf("%q: %s, want %s", reason, got, want)
		}
	}
}
