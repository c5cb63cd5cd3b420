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

// chainFlags adds the flags for the chain of crypto plans and the accounts that send transactions.
func chainFlags(c *cobra.Command, cfg *rails.ChainConfig) {
	f := pflag.NewFlagSet("chain", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Mode), "chain", "", "embedded or off; default the chain of --chain-rpc-urls if set, otherwise the embedded chain in a sandbox and off on live")
	f.StringSliceVar(&cfg.RPCURLs, "chain-rpc-urls", nil, "JSON-RPC endpoints of the chain, separated by commas; live needs two")
	f.Var(wei(&cfg.MaxBaseFee, "1000000000"), "chain-max-base-fee-wei", "maximum base fee at which transactions are sent")
	f.IntVar(&cfg.Relayers, "chain-relayers", 1, "number of accounts that send transactions")
	f.Var(wei(&cfg.RelayerFloor, ""), "chain-relayer-floor-wei", "minimum balance that a relayer needs to be used; default the gas of 500 orders at the maximum base fee")
	addWithEnv(c, f)
}

// paymentFlags adds the flags for payments of crypto plans, with the defaults of the service.
func paymentFlags(c *cobra.Command, cfg *rails.ChainConfig) {
	f := pflag.NewFlagSet("chain", pflag.ContinueOnError)
	f.StringVar(&cfg.HTTP, "chain-http", "", "loopback address on which the embedded chain serves JSON-RPC; default none")
	f.Var(blocks(&cfg.Confirmations, "3"), "chain-confirmations", "blocks that must follow the block of a payment before the service grants credits")
	f.Var(blocks(&cfg.TopUpConfirmations, "1"), "chain-topup-confirmations", "blocks that must follow the block of a payment that is made during a request")
	f.Int64Var(&cfg.FastLimitCents, "chain-fast-limit-cents", 1000,
		"price in cents above which the service grants credits only after the payment is in a safe block; -1 means for every price")
	f.Var(wei(&cfg.Tip, "1000000"), "chain-tip-wei", "tip in addition to the base fee")
	f.IntVar(&cfg.BatchOps, "chain-batch-ops", 20, "maximum number of orders in one transaction")
	f.IntVar(&cfg.BatchBytes, "chain-batch-bytes", 98304, "maximum size of the orders in one transaction, in bytes")
	f.DurationVar(&cfg.BatchWindow, "chain-batch-window", 250*time.Millisecond, "how long a transaction waits for more orders; the embedded chain does not wait")
	f.Int64Var(&cfg.MaxLimitCents, "chain-max-limit-cents", 1_000_000, "highest spending limit of a new delegation, in cents")
	f.DurationVar(&cfg.MaxDuration, "chain-max-duration", 365*24*time.Hour, "longest lifetime of a new delegation")
	f.Int64Var(&cfg.HourlyCents, "chain-signer-hourly-cents", 0,
		"maximum cents of payments that a process signs per hour; 0 means 500000 on live and no limit in a sandbox, -1 means no limit")
	f.DurationVar(&cfg.VoidAfter, "chain-void-after", 10*time.Minute, "how long a payment can stay unconfirmed before it is voided")
	f.BoolVar(&cfg.Mirror, "chain-mirror", false, "publish the burned credits of plans with onchainMirror on the chain, as Merkle roots")
	f.DurationVar(&cfg.MirrorPeriod, "chain-mirror-period", time.Hour, "period that one Merkle root covers; fixed by the first start with --chain-mirror")
	f.Var(tokens(&cfg.Tokens), "chain-tokens", "ERC-20 tokens accepted as payment for plans, in addition to USDC and EURC, separated by commas")
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
			return errors.New("must be a number of blocks from 0 to 65535")
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
