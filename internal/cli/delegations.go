package cli

import (
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
)

func delegationsCommand(a *app) *cobra.Command {
	return group("delegations", "Manage delegations: spending limits within which access tokens buy plans", "",
		delegationsCreate(a, "create"),
		a.resource(call{
			use: "sign ID", short: "Submit the signature of the paying account",
			long: `Submit the signature of the --owner-account over the typedData that toll delegations create printed. If
account.codeRequired is true in that output, the account must also sign an EIP-7702 authorization.`,
			example: "toll delegations sign 6fa1c0de-0000-4000-8000-000000000000 --signature 0x… --authorization @authorization.json",
			method:  http.MethodPost, path: "/delegation/ID/signature",
			flags: []flag{
				{"signature", "signature", word, "the signature, 0x and hexadecimal digits"},
				{"authorization", "authorization", object, "the signed authorization, as JSON"},
			},
			require: []string{"signature"},
		}),
		a.resource(call{
			use: "list", short: "List your delegations", list: list.Delegations,
			flags: []flag{{"accessible", "accessible", toggle, "only delegations that this API key can use now"}},
		}),
		a.get("get ID", "Show a delegation", "/delegation/ID"),
		a.act("revoke ID", "Revoke a delegation and the access tokens that use it", http.MethodDelete, "/delegation/ID"),
		a.resource(call{
			use: "unfreeze ID", short: "Let a frozen delegation pay again, after declined charges or a dispute",
			method: http.MethodPost, path: "/delegation/ID/unfreeze",
		}),
		a.resource(call{
			use: "transactions ID", short: "List the orders that a delegation paid",
			list: list.DelegationTransactions,
		}),
		hidden("list-payment-methods", cardsList(a, "list")),
	)
}

// providerOf returns the provider that pays in a currency.
func providerOf(currency string) (toll.Provider, error) {
	switch strings.ToLower(currency) {
	case "usdc", "eurc":
		return toll.ProviderCrypto, nil
	case "usd", "eur":
		return toll.ProviderCard, nil
	}
	return "", usagef("--currency must be usdc, eurc, usd, or eur")
}

func delegationsCreate(a *app, use string) *cobra.Command {
	c := a.resource(call{
		use: use, short: "Create a delegation, which allows orders up to a limit",
		long: `Create a delegation, which allows orders up to a sum of money for a limited time. It applies to every plan unless you name a plan.

With --owner-account, the orders are paid by an account whose private key you hold. The delegation is usable only after this account
has signed the typedData of the response, and you have submitted the signature with toll delegations sign.`,
		example: "toll delegations create --spending-limit-cents 1000 --duration-secs 604800 --currency usdc\n" +
			"toll delegations create --spending-limit-cents 1000 --duration-secs 604800 --currency usd --card pm_…",
		method: http.MethodPost, path: "/delegation/create", made: "delegationId",
		flags: []flag{
			{"provider", "provider", word.offering(string(toll.ProviderCrypto), string(toll.ProviderCard)), "erc4337 (the wallet) or stripe (a card); default depends on the currency"},
			{"spending-limit-cents", "spendingLimitCents", digits, "spending limit, in cents of the currency"},
			{"duration-secs", "durationSecs", digits, "lifetime in seconds, 60 or more"},
			{"currency", "currency", word.offering(currencies...), "usdc or eurc for the wallet, usd or eur for a card"},
			{"payment-method-id", "providerPaymentMethodId", methodID, "id of the card to charge, from toll cards list; --card is an alias"},
			{"plan-id", "planId", planID, "restrict the delegation to one plan"},
			{"max-transactions", "maxTransactions", digits, "maximum number of orders"},
			{"api-key-id", "apiKeyId", keyID, "restrict the delegation to one API key"},
			{"owner-account", "ownerAccount", address, "account that pays, if you hold its key yourself"},
			{"allowed-recipients", "allowedRecipients", words, "allow payments only to these addresses, separated by commas"},
		},
		require: []string{"spending-limit-cents", "duration-secs", "currency"},
		change: func(_ *cobra.Command, r *request) error {
			currency := value[string](r.in, "currency")
			by, err := providerOf(currency)
			if err != nil {
				return err
			}
			r.in["currency"] = strings.ToLower(currency)
			if r.in["provider"] == nil {
				r.in["provider"] = by
			}
			for _, to := range value[[]string](r.in, "allowedRecipients") {
				if _, err := toll.ParseAddress(to); err != nil {
					return flagError("allowed-recipients", err)
				}
			}
			return nil
		},
	})
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "card" {
			name = "payment-method-id"
		}
		return pflag.NormalizedName(name)
	})
	return c
}
