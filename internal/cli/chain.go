package cli

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/rails"
)

// railFlags adds the settings of the rails that toll serve and toll doctor read.
func railFlags(c *cobra.Command, cfg *rails.Config) {
	chainFlags(c, &cfg.Chain)
	cardFlags(c, &cfg.Card)
}

// chainFlags say on which chain crypto plans are paid, and by which accounts.
func chainFlags(c *cobra.Command, cfg *rails.ChainConfig) {
	f := pflag.NewFlagSet("chain", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Mode), "chain", "", "embedded or off; default the endpoints of --chain-rpc-urls, without them the embedded chain in a sandbox and off on live")
	f.StringSliceVar(&cfg.RPCURLs, "chain-rpc-urls", nil, "JSON-RPC endpoints of the chain, with commas; live needs two")
	f.Var(wei(&cfg.MaxBaseFee, "1000000000"), "chain-max-base-fee-wei", "base fee above which nothing is sent")
	f.IntVar(&cfg.Relayers, "chain-relayers", 1, "accounts that send transactions")
	f.Var(wei(&cfg.RelayerFloor, ""), "chain-relayer-floor-wei", "what a relayer must have to be used; default the gas of 500 orders at the highest base fee")
	addWithEnv(c, f)
}

// paymentFlags adds the flags for payments of crypto plans, with the defaults of the service.
func paymentFlags(c *cobra.Command, cfg *rails.ChainConfig) {
	f := pflag.NewFlagSet("chain", pflag.ContinueOnError)
	f.StringVar(&cfg.HTTP, "chain-http", "", "loopback address on which the embedded chain answers JSON-RPC; default none")
	f.Var(blocks(&cfg.Confirmations, "3"), "chain-confirmations", "blocks on top of the one with a payment before credits are granted")
	f.Var(blocks(&cfg.TopUpConfirmations, "1"), "chain-topup-confirmations", "the same for a purchase in the midst of a request")
	f.Int64Var(&cfg.FastLimitCents, "chain-fast-limit-cents", 1000, "price above which credits are granted at a safe block only; -1 is always")
	f.Var(wei(&cfg.Tip, "1000000"), "chain-tip-wei", "what is offered above the base fee")
	f.IntVar(&cfg.BatchOps, "chain-batch-ops", 20, "orders in one transaction at most")
	f.IntVar(&cfg.BatchBytes, "chain-batch-bytes", 98304, "bytes of them at most")
	f.DurationVar(&cfg.BatchWindow, "chain-batch-window", 250*time.Millisecond, "how long a transaction waits for more orders; the embedded chain does not wait")
	f.Int64Var(&cfg.MaxLimitCents, "chain-max-limit-cents", 1_000_000, "highest limit of a new delegation")
	f.DurationVar(&cfg.MaxDuration, "chain-max-duration", 365*24*time.Hour, "longest life of a new delegation")
	f.Int64Var(&cfg.HourlyCents, "chain-signer-hourly-cents", 0, "most that is signed in any hour; 0 is 500000 on live and no bound in a sandbox, -1 no bound")
	f.DurationVar(&cfg.VoidAfter, "chain-void-after", 10*time.Minute, "after which a payment that does not land is made impossible")
	f.BoolVar(&cfg.Mirror, "chain-mirror", false, "put the burns of plans with onchainMirror onto the chain")
	f.DurationVar(&cfg.MirrorPeriod, "chain-mirror-period", time.Hour, "for which burns have one root; fixed by the first start with a mirror")
	f.Var(tokens(&cfg.Tokens), "chain-tokens", "ERC-20 tokens of plans that can be ordered beside USDC and EURC, with commas")
	addWithEnv(c, f)
}

// parsed is a flag whose value a function reads. text is the value as it was written, at first the default.
type parsed struct {
	kind, text string
	read       func(string) error
}

func (p *parsed) Type() string   { return p.kind }
func (p *parsed) String() string { return p.text }

func (p *parsed) Set(s string) error {
	p.text = s
	return p.read(s)
}

// blocks is a number of blocks. The settings have 0 for their default and less for none.
func blocks(into *int, byDefault string) *parsed {
	return &parsed{"int", byDefault, func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return errors.New("must be a number of blocks, at most 65535")
		}
		if *into = int(n); n == 0 {
			*into = -1
		}
		return nil
	}}
}

func wei(into **big.Int, byDefault string) *parsed {
	return &parsed{"wei", byDefault, func(s string) error {
		n, err := toll.ParseUnits(s)
		*into = n.Int()
		return err
	}}
}

// tokens are addresses with commas between.
func tokens(into *[]toll.Address) *parsed {
	return &parsed{"addresses", "", func(s string) error {
		*into = nil
		for text := range strings.SplitSeq(s, ",") {
			a, err := toll.ParseAddress(strings.TrimSpace(text))
			if err != nil {
				return err
			}
			*into = append(*into, a)
		}
		return nil
	}}
}
