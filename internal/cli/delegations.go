package cli

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tollhq/toll"
)

var delegationColumns = []column{
	{"DELEGATION", "delegationId"}, {"PROVIDER", "provider"}, {"STATUS", "status"}, {"LIMIT", "spendingLimitCents"}, {"SPENT", "amountSpentCents"},
	{"LEFT", "remainingBudgetCents"}, {"CURRENCY", "currency"}, {"EXPIRES", "expiresAt"},
}

func (a *app) delegationsCommand() *cobra.Command {
	var accessible bool
	list := a.queryCommand("list", "List your delegations", "delegations", delegationColumns, func([]string) string { return "/delegation" },
		func(q url.Values) error {
			if accessible {
				q.Set("accessible", "true")
			}
			return nil
		})
	list.Flags().BoolVar(&accessible, "accessible", false, "only those that this API key can spend from now")
	transactions := a.listCommand("transactions ID", "List the orders that a delegation paid", "transactions", []column{
		{"ID", "id"}, {"CENTS", "amountCents"}, {"CURRENCY", "currency"}, {"STATUS", "status"}, {"ORDER", "orderId"}, {"CREATED", "createdAt"},
	}, func(args []string) string { return segments("delegation", args[0], "transactions") })
	return group("delegations", "Delegations: limits on money, within which access tokens buy plans", "",
		a.delegationsCreate("create"), a.delegationsSign(), list,
		command("get ID", "Show a delegation", func(cmd *cobra.Command, args []string) error {
			return a.get(cmd.Context(), segments("delegation", args[0]), nil)
		}),
		command("revoke ID", "End a delegation, and the access tokens that use it", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodDelete, segments("delegation", args[0]), nil)
		}),
		transactions,
	)
}

// providerOf is the way that pays in a currency.
func providerOf(currency string) (toll.Provider, error) {
	switch strings.ToLower(currency) {
	case "usdc", "eurc":
		return toll.ProviderCrypto, nil
	case "usd", "eur":
		return toll.ProviderCard, nil
	}
	return "", usagef("--currency is usdc, eurc, usd or eur")
}

func (a *app) delegationsCreate(use string) *cobra.Command {
	var provider, limit, duration, currency, method, plan, transactions, key, account string
	var recipients []string
	c := command(use, "Allow orders up to a sum", nil)
	c.Long = `Allow orders up to a sum of money, for some time. A delegation is good for every plan unless one is named.

With --owner-account the money is that of an account which you hold. The delegation then waits: let the account sign the
typedData of the answer, and hand the signature in with toll delegations sign.`
	c.Example = "toll delegations create --spending-limit-cents 1000 --duration-secs 604800 --currency usdc"
	f := c.Flags()
	f.StringVar(&provider, "provider", "", "erc4337 (the wallet) or stripe (a card); default by the currency")
	f.StringVar(&limit, "spending-limit-cents", "", "most that may be spent, in cents of the currency")
	f.StringVar(&duration, "duration-secs", "", "life in seconds, 60 or more")
	f.StringVar(&currency, "currency", "", "usdc or eurc for the wallet, usd or eur for a card")
	f.StringVar(&method, "payment-method-id", "", "the card, see toll cards list")
	f.StringVar(&plan, "plan-id", "", "the one plan that may be bought")
	f.StringVar(&transactions, "max-transactions", "", "most orders that may be paid")
	f.StringVar(&key, "api-key-id", "", "the one API key that may use it")
	f.StringVar(&account, "owner-account", "", "the account that pays, when you hold its key yourself")
	f.StringSliceVar(&recipients, "allowed-recipients", nil, "the only addresses that may be paid, with commas")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "card" {
			name = "payment-method-id"
		}
		return pflag.NormalizedName(name)
	})
	require(c, "spending-limit-cents", "duration-secs", "currency")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		by, err := providerOf(currency)
		if err != nil {
			return err
		}
		in := body{"provider": first(provider, string(by)), "currency": strings.ToLower(currency)}
		in.text("providerPaymentMethodId", method)
		if plan != "" {
			if _, err := toll.ParsePlanID(plan); err != nil {
				return flagError("plan-id", err)
			}
		}
		for _, to := range recipients {
			if err := checkAddress("allowed-recipients", to); err != nil {
				return err
			}
		}
		if account != "" {
			if err := checkAddress("owner-account", account); err != nil {
				return err
			}
		}
		in.text("ownerAccount", account)
		in.text("planId", plan)
		in.text("apiKeyId", key)
		if len(recipients) > 0 {
			in["allowedRecipients"] = recipients
		}
		for _, n := range []struct{ name, flag, value string }{
			{"spendingLimitCents", "spending-limit-cents", limit}, {"durationSecs", "duration-secs", duration},
			{"maxTransactions", "max-transactions", transactions},
		} {
			if err := in.digits(n.name, n.flag, n.value); err != nil {
				return err
			}
		}
		return a.make(cmd.Context(), "/delegation/create", in, "delegationId")
	}
	return c
}

func (a *app) delegationsSign() *cobra.Command {
	var signature, authorization string
	c := command("sign ID", "Hand in the signature of the account that pays", nil)
	c.Long = `Hand in what the account of --owner-account signed: the typedData that toll delegations create printed. An account that has
no code yet (account.codeRequired) signs an EIP-7702 authorization as well.`
	c.Example = "toll delegations sign 6fa1c0de-0000-4000-8000-000000000000 --signature 0x… --authorization @authorization.json"
	c.Flags().StringVar(&signature, "signature", "", "the signature, 0x and hexadecimal digits")
	c.Flags().StringVar(&authorization, "authorization", "", "the signed authorization, as JSON")
	require(c, "signature")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{"signature": signature}
		if err := in.json(a, "authorization", "authorization", authorization); err != nil {
			return err
		}
		return a.send(cmd.Context(), http.MethodPost, segments("delegation", args[0], "signature"), in)
	}
	return c
}

var cardColumns = []column{
	{"ID", "id"}, {"TYPE", "type"}, {"BRAND", "brand"}, {"LAST 4", "last4"}, {"ALIAS", "alias"}, {"PROVIDER", "provider"}, {"STATUS", "status"},
}

func (a *app) cardsCommand() *cobra.Command {
	return group("cards", "Payment methods: cards and the wallet", "",
		a.cardsList("list"), a.cardsUpdate(),
		command("revoke ID", "Take a card away, and end the delegations that use it", func(cmd *cobra.Command, args []string) error {
			return a.send(cmd.Context(), http.MethodDelete, segments("payment-methods", args[0]), nil)
		}),
		hidden("delegate", a.delegationsCreate("create")),
	)
}

func (a *app) cardsList(use string) *cobra.Command {
	var provider string
	var accessible bool
	c := command(use, "List your cards, then your wallet", func(cmd *cobra.Command, _ []string) error {
		q := url.Values{}
		if provider != "" {
			q.Set("provider", provider)
		}
		if accessible {
			q.Set("accessible", "true")
		}
		got, err := a.call(cmd.Context(), http.MethodGet, "/payment-methods", q, nil)
		if err != nil {
			return err
		}
		return a.array(got, cardColumns)
	})
	c.Flags().StringVar(&provider, "provider", "", "stripe or erc4337")
	c.Flags().BoolVar(&accessible, "accessible", false, "only those that this API key can use now")
	return c
}

func (a *app) cardsUpdate() *cobra.Command {
	var alias, keys string
	c := command("update ID", "Name a payment method, or say which API keys may use it", nil)
	c.Flags().StringVar(&alias, "alias", "", "its name; empty takes it away")
	c.Flags().StringVar(&keys, "allowed-keys", "", "ids of API keys, with commas; empty lets every key")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in := body{}
		if cmd.Flags().Changed("alias") {
			in["alias"] = nil
			in.text("alias", alias)
		}
		if cmd.Flags().Changed("allowed-keys") {
			in["allowedApiKeyIds"] = nil
			if ids := idList([]string{keys}); len(ids) > 0 {
				in["allowedApiKeyIds"] = ids
			}
		}
		if len(in) == 0 {
			return usagef("toll cards update needs --alias or --allowed-keys")
		}
		return a.send(cmd.Context(), http.MethodPatch, segments("payment-methods", args[0]), in)
	}
	return c
}
