package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

const usdcDecimals = 6

// priceUSDC makes a price of whole units: the token is that of the service, and the receiver its
// caller.
func (a *app) priceUSDC() *cobra.Command {
	var receiver string
	c := command("usdc AMOUNT", "A price in USDC, in whole units", nil)
	c.Long = `A price in USDC, in whole units such as 1.00, exact to six decimals.

The service that is configured is asked for the address of its USDC and, without --receiver, for the wallet of your account.`
	c.Example = "toll price usdc 1.00"
	const usage = "address that is paid; default the wallet of your account"
	c.Flags().StringVar(&receiver, "receiver", "", usage)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		amount, err := toll.ParseAmount(args[0], usdcDecimals)
		if err != nil {
			return usagef(
				"AMOUNT must be whole USDC with at most %d decimals, such as 1.00; got %q",
				usdcDecimals,
				args[0],
			)
		}
		if amount.IsZero() {
			return usagef("a plan that costs nothing has the price of: toll price free")
		}
		if err := a.loadProfile(); err != nil {
			return err
		}
		token, err := a.tokenOfService(cmd.Context(), toll.CurrencyUSDC, toll.Environment.USDC)
		if err != nil {
			return err
		}
		to, err := a.receiver(cmd.Context(), receiver)
		if err != nil {
			return err
		}
		made, err := toll.PriceERC20(amount, token, to)
		if err != nil {
			return err
		}
		made.Currency = toll.CurrencyUSDC
		return a.built(made)
	}
	return c
}

// tokenOfService returns the address of a currency where the service is, else in the environment
// that is set.
func (a *app) tokenOfService(
	ctx context.Context, currency string, in func(toll.Environment) toll.Address,
) (toll.Address, error) {
	if a.set.url != "" || a.set.environment == "" {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		info, err := a.client().Info(ctx)
		if err == nil {
			return toll.ParseAddress(cmp.Or(at(info.Deployment, "contracts."+currency), in(info.Environment).String()))
		}
		if a.set.environment == "" {
			return toll.Address{}, err
		}
		a.say("note", "%s does not say which %s it takes; this is that of %s", a.client().URL(), currency, a.set.environment)
	}
	return in(toll.Environment(a.set.environment)), nil
}

// receiver returns who is paid: the address that is given, else the wallet of the account.
func (a *app) receiver(ctx context.Context, given string) (toll.Address, error) {
	if given != "" {
		to, err := toll.ParseAddress(given)
		if err != nil {
			return to, flagError("receiver", err)
		}
		return to, nil
	}
	if a.set.key == "" {
		return toll.Address{}, usagef(
			"toll price usdc needs --receiver, or an API key whose wallet is paid",
		)
	}
	return callerAddress(ctx, a.client())
}
