package cli

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/admin"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/server"
)

func walletCommand(a *app) *cobra.Command {
	return group("wallet", "The wallet that the service holds for you", "",
		a.resource(call{
			use: "show", short: "Show the address and balances of the wallet", path: "/wallet",
			show: func(_ *cobra.Command, got json.RawMessage) error {
				if a.set.output != formatTable {
					return a.show(got)
				}
				return showWallet(&a.console, got)
			},
		}),
		walletExport(a),
	)
}

// showWallet prints the members, and money in whole units with a line for each token.
func showWallet(con *console, got json.RawMessage) error {
	members, err := membersOf(got)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, m := range members {
		if m.name != "balances" {
			rows = append(rows, []string{m.name, list.TextOf(m.value)})
			continue
		}
		var balances []toll.TokenBalance
		if err := json.Unmarshal(m.value, &balances); err != nil {
			return unreadable(err)
		}
		if len(balances) == 0 {
			con.say("warning", "the chain cannot be read now: the balances are unknown")
		}
		for _, b := range balances {
			rows = append(rows, []string{b.Symbol, toll.FormatAmount(b.Amount, int(b.Decimals))})
		}
	}
	return con.writeRows(nil, rows)
}

func walletExport(a *app) *cobra.Command {
	var (
		cfg     server.Config
		local   bool
		account string
	)
	c := a.resource(call{
		use: "export", short: "Print the private key of the wallet, only once",
		long: `Print the private key of a wallet, only once. From then on, you and the service both control the wallet.

With --local, read the private key from the database on this machine, while the service runs or is stopped; --account names the workspace.
Without --local, print the private key of your workspace's wallet: sign in as an owner with toll session start. While the workspace
has no people, an API key with the right export, created with toll keys create --local, also works; keys from sign-ins, connected apps, or
other keys never have this right.`,
		example: "(umask 077; toll wallet export --local --account alice --yes -q >wallet.key)",
		method:  http.MethodPost, path: "/wallet/export", made: "privateKey",
		change: func(cmd *cobra.Command, _ *request) error {
			if local && account == "" {
				return usagef("toll wallet export --local needs --account")
			}
			if !local {
				if err := onlyLocal(cmd, "account"); err != nil {
					return err
				}
			}
			if !a.flags.yes {
				return usagef("anyone with the key can spend everything in the wallet, and the key is printed only once: to continue, repeat the command with --yes")
			}
			return nil
		},
		local: func(ctx context.Context, _ *request) (any, error) {
			if !local {
				return nil, nil
			}
			cfg.Release = release()
			return admin.ExportLocalWallet(ctx, cfg, account)
		},
	})
	c.Flags().BoolVar(&local, "local", false, "work directly on the database, without the service")
	c.Flags().StringVar(&account, "account", "", "name or address of the workspace; requires --local")
	storeFlags(c, &cfg)
	return c
}

func faucetCommand(a *app) *cobra.Command {
	whole := func(decimals int) kind {
		exact := money(decimals)
		return kind{name: exact.name, read: func(a *app, flag string, given []string) (any, error) {
			_, err := exact.read(a, flag, given)
			return given[len(given)-1], err
		}}
	}
	return a.resource(call{
		use: "faucet [ADDRESS]", short: "Get test money on the embedded chain",
		long: `Send test money to an address on the embedded chain of a sandbox. Without an address, your own wallet receives the money. Without
an amount, the faucet sends 100 USDC, 100 EURC, and 0.1 ETH.`,
		example: "toll faucet 0x5B38Da6a701c568545dCfcB03FcB875f56beddC4 --usdc 25 --eth 0.1",
		method:  http.MethodPost, path: "/sandbox/faucet",
		flags: []flag{
			{"usdc", "usdc", whole(6), "amount in USDC, such as 12.50"},
			{"eurc", "eurc", whole(6), "amount in EURC, such as 12.50"},
			{"eth", "eth", whole(18), "amount in ETH, such as 0.1"},
		},
		change: func(_ *cobra.Command, r *request) error {
			if len(r.args) == 0 {
				return nil
			}
			to, err := toll.ParseAddress(r.args[0])
			if err != nil {
				return usageError{err}
			}
			r.in["address"] = to
			return nil
		},
	})
}
