package rails

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"runtime"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/devchain"
)

// Defaults of [ChainConfig].
const (
	defaultConfirmations      = 3
	defaultTopUpConfirmations = 1
	defaultFastLimitCents     = 1000
	defaultHourlyCents        = 500_000 // on live
	defaultBatchWindow        = 250 * time.Millisecond
	defaultMirrorPeriod       = time.Hour
	maxRelayers               = 64
)

// ChainMode says whether crypto plans can be bought, and where.
type ChainMode string

// Modes of the chain.
const (
	ChainAuto     ChainMode = ""         // RPCURLs; without them the embedded chain in a sandbox, off on live
	ChainEmbedded ChainMode = "embedded" // the embedded chain, started with the service; live refuses it
	ChainOff      ChainMode = "off"      // no crypto plans
)

// ChainConfig says on which chain crypto plans are paid, and how. The zero value is a chain inside the program for a
// sandbox, started when it is first needed, and none on live. Numbers are defaults when they are 0.
type ChainConfig struct {
	Mode ChainMode
	// RPCURLs are JSON-RPC endpoints of the chain of the environment, http or https. They may hold credentials and are
	// never logged. Live needs two.
	RPCURLs []string
	// HTTP is a loopback address with a port on which the embedded chain answers JSON-RPC, too; empty: it does not.
	HTTP string
	// Confirmations are the blocks on top of the one with the payment before credits are granted, 0 = 3; for a purchase in
	// the midst of a request TopUpConfirmations, 0 = 1. Negative: none. The embedded chain waits for none.
	Confirmations, TopUpConfirmations int
	// FastLimitCents is the price above which credits are granted at a safe block only, 0 = 1000. Negative: always.
	FastLimitCents int64
	// MaxBaseFee is the base fee above which nothing is sent, Tip what is offered above it, in wei for a unit of gas; nil is
	// 1000000000 and 1000000.
	MaxBaseFee, Tip *big.Int
	// Relayers are the accounts that send transactions, 0 = 1. RelayerFloor is how many wei one must have to be used; nil is
	// what 500 orders cost at MaxBaseFee.
	Relayers     int
	RelayerFloor *big.Int
	// BatchOps operations, 0 = 20, and BatchBytes bytes of them, 0 = 98304, go into one transaction, and those that come within
	// BatchWindow, 0 = 250 ms, negative none. The embedded chain has no window.
	BatchOps, BatchBytes int
	BatchWindow          time.Duration
	// MaxLimitCents and MaxDuration bound new delegations: 0 = 1,000,000 cents and 365 days.
	MaxLimitCents int64
	MaxDuration   time.Duration
	// HourlyCents bounds what the service signs in any hour and process, 0 = 500,000 on live and no bound in a sandbox. Negative: no bound.
	HourlyCents int64
	// VoidAfter is how long a payment that was sent may take before it is made impossible, 0 = 10 minutes.
	VoidAfter time.Duration
	// Mirror puts the burns of plans with onchainMirror onto the chain, a root for each MirrorPeriod, 0 = 1 h. The length is
	// fixed by the first start with a mirror.
	Mirror       bool
	MirrorPeriod time.Duration
	// Tokens are the ERC-20 tokens of plans that can be ordered, beside USDC and EURC.
	Tokens []toll.Address
}

// Check refuses settings that are wrong in every environment.
func (c *ChainConfig) Check() error {
	switch c.Mode {
	case ChainAuto, ChainOff:
	case ChainEmbedded:
		if len(c.RPCURLs) > 0 {
			return errors.New("the embedded chain cannot be combined with TOLL_CHAIN_RPC_URLS (--chain-rpc-urls): set only one of them")
		}
	default:
		return fmt.Errorf(
			"TOLL_CHAIN (--chain) must be embedded, off, or empty; got %q. If it is empty, the service uses the default chain of the environment",
			c.Mode)
	}
	for _, n := range []*big.Int{c.MaxBaseFee, c.Tip, c.RelayerFloor} {
		if n != nil && (n.Sign() < 0 || n.BitLen() > 256) {
			return errors.New("--chain-max-base-fee-wei, --chain-tip-wei, and --chain-relayer-floor-wei must be whole numbers, 0 or more")
		}
	}
	switch {
	case c.HTTP != "" && len(c.RPCURLs) > 0:
		return errors.New("only the embedded chain serves JSON-RPC: TOLL_CHAIN_HTTP (--chain-http) cannot be combined with TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)")
	case c.Relayers < 0 || c.Relayers > maxRelayers:
		return fmt.Errorf("the number of relayers must be 1 to %d", maxRelayers)
	case c.BatchOps < 0 || c.BatchBytes < 0 || c.MaxLimitCents < 0 || c.MaxDuration < 0 || c.VoidAfter < 0:
		return errors.New(
			"--chain-batch-ops, --chain-batch-bytes, --chain-max-limit-cents, --chain-max-duration, and --chain-void-after must not be negative")
	case c.MirrorPeriod != 0 && (c.MirrorPeriod < time.Minute || c.MirrorPeriod%time.Second != 0):
		return errors.New("TOLL_CHAIN_MIRROR_PERIOD (--chain-mirror-period) must be a whole number of seconds, at least one minute")
	case c.Confirmations > math.MaxInt32 || c.TopUpConfirmations > math.MaxInt32:
		return errors.New("the number of confirmations must be at most 2147483647")
	}
	return nil
}

// CheckIn implements [Settings]: live rejects the embedded chain and a single endpoint.
func (c *ChainConfig) CheckIn(env toll.Environment) error {
	switch {
	case env != toll.Live:
	case c.Mode == ChainEmbedded || c.HTTP != "":
		return errors.New("the live environment cannot use the embedded chain: set TOLL_CHAIN_RPC_URLS (--chain-rpc-urls) to endpoints of " + toll.Live.Network())
	case c.Mode == ChainAuto && len(c.RPCURLs) == 1:
		return errors.New("the live environment needs two endpoints, which must agree on final blocks: add another endpoint to TOLL_CHAIN_RPC_URLS (--chain-rpc-urls), separated by a comma")
	}
	return nil
}

// The build tag nodevchain leaves the embedded chain out. FullArchive names the release file of a program with it.
const (
	HasEmbeddedChain = devchain.Included
	FullArchive      = "toll_VERSION_" + runtime.GOOS + "_" + runtime.GOARCH + ".tar.gz"
)

// source is where the chain is.
type chainSource string

const (
	noChain       chainSource = "none"
	embeddedChain chainSource = "embedded"
	rpcChain      chainSource = "rpc"
)

// source returns where the chain of an environment is, and what to set when it is nowhere. data is the data directory, empty for none.
func (c *ChainConfig) source(env toll.Environment, data string) (s chainSource, missing string) {
	switch {
	case c.Mode == ChainOff:
		return noChain, "The operator has turned off the chain (TOLL_CHAIN, --chain)."
	case len(c.RPCURLs) > 0:
		return rpcChain, ""
	case env == toll.Live:
		return noChain, "The operator must set TOLL_CHAIN_RPC_URLS (--chain-rpc-urls) to two endpoints of " + env.Network() + "."
	case !HasEmbeddedChain:
		return noChain, "This program was built without the embedded chain: the operator must take the file " + FullArchive +
			" of a release, or set endpoints with TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)."
	case data == "":
		return noChain, "The embedded chain needs a data directory: the operator must set TOLL_DATA (--data), or endpoints with TOLL_CHAIN_RPC_URLS (--chain-rpc-urls)."
	}
	return embeddedChain, ""
}

// rail returns the part of the settings that the rail has, with defaults.
func (c *ChainConfig) rail(embedded bool) chain.Config {
	window := cmp.Or(c.BatchWindow, defaultBatchWindow)
	if embedded {
		window = 0
	}
	out := chain.Config{
		Embedded: embedded, Confirmations: uint64(max(cmp.Or(c.Confirmations, defaultConfirmations), 0)),
		TopUpConfirmations: uint64(max(cmp.Or(c.TopUpConfirmations, defaultTopUpConfirmations), 0)),
		FastLimitCents:     max(cmp.Or(c.FastLimitCents, defaultFastLimitCents), 0),
		MaxBaseFee:         c.MaxBaseFee, Tip: c.Tip, RelayerFloor: c.RelayerFloor, BatchOps: c.BatchOps, BatchBytes: c.BatchBytes,
		BatchWindow: max(window, 0), VoidAfter: c.VoidAfter,
	}
	for _, t := range c.Tokens {
		out.Tokens = append(out.Tokens, common.Address(t))
	}
	return out
}

// hourlyCents is the cap of the signer, 0 for none.
func (c *ChainConfig) hourlyCents(env toll.Environment) int64 {
	if c.HourlyCents == 0 && env == toll.Live {
		return defaultHourlyCents
	}
	return max(c.HourlyCents, 0)
}
