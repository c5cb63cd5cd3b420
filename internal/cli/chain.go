package cli

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/crypto"
)

// whereFlags say on which chain crypto plans are paid, and by which accounts.
func whereFlags(c *cobra.Command, cfg *crypto.Config) {
	f := pflag.NewFlagSet("chain", pflag.ContinueOnError)
	f.StringVar((*string)(&cfg.Mode), "chain", "", "embedded or off; default the endpoints of --chain-rpc-urls, without them the embedded chain in a sandbox and off on live")
	f.StringSliceVar(&cfg.RPCURLs, "chain-rpc-urls", nil, "JSON-RPC endpoints of the chain, with commas; live needs two")
	f.Var(&wei{&cfg.MaxBaseFee, "1000000000"}, "chain-max-base-fee-wei", "base fee above which nothing is sent")
	f.IntVar(&cfg.Relayers, "chain-relayers", 1, "accounts that send transactions")
	f.Var(&wei{&cfg.RelayerFloor, ""}, "chain-relayer-floor-wei", "what a relayer must have to be used; default the gas of 500 orders at the highest base fee")
	addWithEnv(c, f)
}

// chainFlags are whereFlags, and how crypto plans are paid. Their defaults are those of the service.
func chainFlags(c *cobra.Command, cfg *crypto.Config) {
	whereFlags(c, cfg)
	f := pflag.NewFlagSet("chain", pflag.ContinueOnError)
	f.StringVar(&cfg.HTTP, "chain-http", "", "loopback address on which the embedded chain answers JSON-RPC; default none")
	f.Var(&blocks{&cfg.Confirmations, "3"}, "chain-confirmations", "blocks on top of the one with a payment before credits are granted")
	f.Var(&blocks{&cfg.TopUpConfirmations, "1"}, "chain-topup-confirmations", "the same for a purchase in the midst of a request")
	f.Int64Var(&cfg.FastLimitCents, "chain-fast-limit-cents", 1000, "price above which credits are granted at a safe block only; -1 is always")
	f.Var(&wei{&cfg.Tip, "1000000"}, "chain-tip-wei", "what is offered above the base fee")
	f.IntVar(&cfg.BatchOps, "chain-batch-ops", 20, "orders in one transaction at most")
	f.IntVar(&cfg.BatchBytes, "chain-batch-bytes", 98304, "bytes of them at most")
	f.DurationVar(&cfg.BatchWindow, "chain-batch-window", 250*time.Millisecond, "how long a transaction waits for more orders; the embedded chain does not wait")
	f.Int64Var(&cfg.MaxLimitCents, "chain-max-limit-cents", 1_000_000, "highest limit of a new delegation")
	f.DurationVar(&cfg.MaxDuration, "chain-max-duration", 365*24*time.Hour, "longest life of a new delegation")
	f.Int64Var(&cfg.HourlyCents, "chain-signer-hourly-cents", 0, "most that is signed in any hour; 0 is 500000 on live and no bound in a sandbox, -1 no bound")
	f.DurationVar(&cfg.VoidAfter, "chain-void-after", 10*time.Minute, "after which a payment that does not land is made impossible")
	f.BoolVar(&cfg.Mirror, "chain-mirror", false, "put the burns of plans with onchainMirror onto the chain")
	f.DurationVar(&cfg.MirrorPeriod, "chain-mirror-period", time.Hour, "for which burns have one root; fixed by the first start with a mirror")
	f.Var(&tokens{&cfg.Tokens}, "chain-tokens", "ERC-20 tokens of plans that can be ordered beside USDC and EURC, with commas")
	addWithEnv(c, f)
}

// blocks is a number of blocks, with the text that stands for its default. The settings have 0 for that and less for none.
type blocks struct {
	n       *int
	without string
}

func (b *blocks) Type() string { return "int" }

func (b *blocks) String() string {
	if b.n == nil || *b.n == 0 {
		return b.without
	}
	return fmt.Sprint(max(*b.n, 0))
}

func (b *blocks) Set(s string) error {
	var n uint16
	if _, err := fmt.Sscanf(s, "%d", &n); err != nil || fmt.Sprint(n) != s {
		return fmt.Errorf("%q is no number of blocks", s)
	}
	if *b.n = int(n); n == 0 {
		*b.n = -1
	}
	return nil
}

// wei is an exact amount, with the text that stands for its default.
type wei struct {
	n       **big.Int
	without string
}

func (w *wei) Type() string { return "wei" }

func (w *wei) String() string {
	if w.n == nil || *w.n == nil {
		return w.without
	}
	return (*w.n).String()
}

func (w *wei) Set(s string) error {
	units, err := toll.ParseUnits(s)
	if err != nil {
		return fmt.Errorf("%q is no whole number of wei", s)
	}
	*w.n = units.Int()
	return nil
}

// tokens are addresses with commas between.
type tokens struct{ list *[]toll.Address }

func (t *tokens) Type() string { return "addresses" }

func (t *tokens) String() string {
	if t.list == nil {
		return ""
	}
	texts := make([]string, len(*t.list))
	for i, a := range *t.list {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}

func (t *tokens) Set(s string) error {
	var list []toll.Address
	for text := range strings.SplitSeq(s, ",") {
		a, err := toll.ParseAddress(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("%q is no address of a token", text)
		}
		list = append(list, a)
	}
	*t.list = list
	return nil
}
