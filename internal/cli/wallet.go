package cli

import (
	"encoding/json"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/server"
)

func (a *app) walletCommand() *cobra.Command {
	return group("wallet", "The wallet that the service holds for you", "",
		command("show", "Show its address, and what is in it", func(cmd *cobra.Command, _ []string) error {
			got, err := a.call(cmd.Context(), http.MethodGet, "/wallet", nil, nil)
			if err != nil {
				return err
			}
			if a.set.output != formatTable {
				return a.record(got)
			}
			return a.showWallet(got)
		}),
		a.walletExport(),
	)
}

// showWallet prints the members, and money in whole units with a line for each token.
func (a *app) showWallet(got json.RawMessage) error {
	members, err := membersOf(got)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, m := range members {
		if m.name != "balances" {
			rows = append(rows, []string{m.name, text(m.value)})
			continue
		}
		var balances []toll.TokenBalance
		if err := json.Unmarshal(m.value, &balances); err != nil {
			return unreadable(err)
		}
		if len(balances) == 0 {
			a.say("warning", "the chain cannot be read now: nothing is known of the balances")
		}
		for _, b := range balances {
			rows = append(rows, []string{b.Symbol, toll.FormatAmount(b.Amount, int(b.Decimals))})
		}
	}
	return a.writeRows(nil, rows)
}

func (a *app) walletExport() *cobra.Command {
	var (
		cfg     server.Config
		local   bool
		account string
	)
	c := command("export", "Print its private key, once", nil)
	c.Long = `Print the private key of a wallet. It is printed once: later the service refuses, and the custody is shared for ever.

With --local it is the wallet of an account in the database itself, beside the service or while it is stopped. Without it is your own,
and your API key must be one of toll keys create --local with the right export: no key of a sign-in, of a program or of another key has
that.`
	c.Example = "(umask 077; toll wallet export --local --account alice --yes -q >wallet.key)"
	c.Flags().BoolVar(&local, "local", false, "work on the database of this machine")
	c.Flags().StringVar(&account, "account", "", "name of the account, with --local")
	storeFlags(c, &cfg)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if !local {
			if err := onlyLocal(cmd, "account"); err != nil {
				return err
			}
		} else if account == "" {
			return usagef("toll wallet export --local needs --account")
		}
		if !a.flags.yes {
			return usagef("whoever has the key can spend what is in the wallet, and it is printed once: repeat the command with --yes")
		}
		if !local {
			return a.make(cmd.Context(), "/wallet/export", nil, "privateKey")
		}
		cfg.Release = release()
		key, err := server.ExportLocalWallet(cmd.Context(), cfg, account)
		if err != nil {
			return err
		}
		b, err := json.Marshal(key)
		if err != nil {
			return err
		}
		return a.made(b, "privateKey")
	}
	return c
}

func (a *app) faucetCommand() *cobra.Command {
	var usdc, eurc, eth string
	c := command("faucet [ADDRESS]", "Money of the embedded chain, which is worth nothing", nil)
	c.Long = `Give an account money of the embedded chain of a sandbox, in whole units; without an address your own wallet, and without
an amount 100 USDC, 100 EURC and 0.1 ETH.`
	c.Example = "toll faucet 0x5B38Da6a701c568545dCfcB03FcB875f56beddC4 --usdc 25 --eth 0.1"
	f := c.Flags()
	f.StringVar(&usdc, "usdc", "", "USDC, such as 12.50")
	f.StringVar(&eurc, "eurc", "", "EURC, such as 12.50")
	f.StringVar(&eth, "eth", "", "ETH, such as 0.1")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{}
		if len(args) > 0 {
			if _, err := toll.ParseAddress(args[0]); err != nil {
				return usageError{err}
			}
			in["address"] = args[0]
		}
		for _, amount := range []struct {
			name, value string
			decimals    int
		}{{"usdc", usdc, 6}, {"eurc", eurc, 6}, {"eth", eth, 18}} {
			if amount.value == "" {
				continue
			}
			if _, err := wholeUnits(amount.name, amount.value, amount.decimals); err != nil {
				return err
			}
			in[amount.name] = amount.value
		}
		return a.send(cmd.Context(), http.MethodPost, "/sandbox/faucet", in)
	}
	return c
}
