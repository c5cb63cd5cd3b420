package cli

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

// hints are next steps for the command line. They replace hints of the service, which name paths and headers.
var hints = map[toll.Code]string{
	toll.CodeBadRequest:            "--help describes every argument and flag.",
	toll.CodeBadPage:               "--page starts at 1, --offset is 1 to 100, --sort-by is created, updated, or name, and --sort-order is asc or desc.",
	toll.CodeBadPriceConfig:        "Create the price configuration with toll price, and the credits configuration with toll credits.",
	toll.CodeBadCreditsConfig:      "Create the credits configuration with toll credits, and the price configuration with toll price.",
	toll.CodePlanTermsFixed:        "To sell on different terms, create another plan.",
	toll.CodeDelegationIncomplete:  "Name a card with --payment-method-id; toll cards list shows your cards.",
	toll.CodeNotAuthenticated:      "Sign in with toll login, or create an API key with toll keys create --local on the machine of the service; toll whoami shows the current key.",
	toll.CodeBadAuthorization:      "Set the whole API key, including its prefix, in TOLL_API_KEY, --api-key-file, or toll config set apiKey -.",
	toll.CodeRightMissing:          "Use an API key with this right: toll keys list shows the rights of your keys, and toll login creates a key with your rights. TOLL_API_KEY overrides that key.",
	toll.CodeKeyNotFound:           "toll keys list shows the ids of your keys.",
	toll.CodeVersionUnknown:        "toll versions shows the supported versions.",
	toll.CodeNotAgentOwner:         "Use an API key of the workspace that owns the agent; toll agents list shows your agents.",
	toll.CodeNotPlanOwner:          "Use an API key of the workspace that owns the plan; toll plans list shows your plans.",
	toll.CodePlanNotAttached:       "toll agents plans AGENT shows the plans of an agent; toll agents attach PLAN --agent-id AGENT adds a plan.",
	toll.CodeMarginWithoutSubTasks: "Record the sub-tasks first with toll requests track.",
	toll.CodeFiatPlanOnCryptoRoute: "toll plans checkout PLAN shows the card payment page. To pay without this page, use --delegation-id with a delegation that charges a card.",
	toll.CodeDelegationFrozen:      "toll delegations unfreeze ID lets the delegation pay again. To use another card, create a delegation with toll delegations create.",
	toll.CodeCardUnreachable:       "Try again later; toll doctor shows whether the card processor responds.",
	toll.CodeTokenSignature:        "Create a new access token with toll tokens create PLAN.",
	toll.CodeTokenUndecodable:      "Use the access token exactly as toll tokens create prints it. With -q, the command prints only the token.",
	toll.CodePermissionNotFound:    "toll tokens list shows the hashes of your permissions.",
	toll.CodePermissionUnknown:     "Create a new access token with toll tokens create PLAN.",
	toll.CodePermissionRevoked:     "Create a new access token with toll tokens create PLAN.",
	toll.CodePermissionExpired:     "Create a new access token with toll tokens create PLAN.",
	toll.CodePaymentMethodUnusable: "toll cards list shows the payment methods.",
	toll.CodePaymentMethodRevoked:  "toll cards list shows the payment methods.",
	toll.CodePaymentRequired:       "Create an access token with toll tokens create PLAN, or use toll call --plan PLAN, which creates the token for you.",
	toll.CodeUnsupportedScheme:     "toll x402 supported shows the supported schemes and networks. A delegation must be in the currency of the plan.",
	toll.CodeHoldOver:              "toll x402 settlement REQUEST shows the outcome.",
	toll.CodeReleaseOfSettled:      "toll x402 settlement REQUEST shows the outcome.",
	toll.CodePaymentMethodNotFound: "toll cards list shows the payment methods.",
	toll.CodeUnknownDelegation:     "toll delegations list shows your delegations.",
	toll.CodeCheckoutWrongPlan:     "This plan is not sold by card: buy it with toll plans order PLAN.",
	toll.CodeWebhookNotFound:       "toll webhooks list shows your webhooks.",
	toll.CodeChainBalance: "toll wallet show prints the address and balances of your wallet. With -o json, this error includes the " +
		"missing amount. On the embedded chain, toll faucet adds test money.",
	toll.CodePersonNeeded:   "Sign in as a person with toll session start LOGIN.",
	toll.CodeProofNeeded:    "Confirm your password with toll session prove, and then repeat this command within ten minutes.",
	toll.CodeWrongWorkspace: "toll session show lists your workspaces, and toll session use WORKSPACE chooses one.",
	toll.CodePathNotFound:   "The service may be older than this program: toll doctor compares their versions.",
}

// pageHint explains the address that [pageOf] returns.
const pageHint = "Open the page in a browser within an hour. The cardholder can pay there for a new order for the same plan."

// pageOf is the address of a page on which a person can pay instead, "" when the error has none.
func pageOf(e *toll.Error) string {
	page, _ := e.Params["checkoutUrl"].(string)
	return pageIn(page)
}

// pageIn is an address that a browser can open, "" for another text. Any server may have written it.
func pageIn(text string) string {
	u, err := httpURL(text)
	if err != nil || len(text) > maxPage {
		return ""
	}
	return u.String()
}

// maxPage bounds the address of a page that is shown, in bytes.
const maxPage = 2048

// hintFor is what to do after an error of the service.
func (a *app) hintFor(e *toll.Error) string {
	own := hints[e.Code]
	order, _ := e.Params["orderId"].(string)
	switch {
	case pageOf(e) != "":
		return pageHint
	case e.Code == toll.CodeCardUnreachable && plainID.MatchString(order):
		return "The order is recorded. Do not repeat this command, because it would create another order. Wait for the result with toll orders get " + order + " --wait."
	case e.Code == toll.CodeCardUnreachable && e.RetryAfterSecs > 0:
		return "Try again in " + count(e.RetryAfterSecs, "second") + "."
	}
	// A hint that the service wrote for this case is more specific than the hint for its code.
	special := e.Hint != "" && e.Hint != e.Code.Info().Hint && !ofHTTP.MatchString(e.Hint)
	if own == "" || special {
		return a.withIDs(e.Hint)
	}
	if m := concerned.FindStringSubmatch(e.Details); m != nil {
		a.about(strings.ToUpper(m[1]), m[2])
	}
	return a.withIDs(own)
}

var (
	// ofHTTP matches names of the HTTP API, which mean nothing on the command line.
	ofHTTP = regexp.MustCompile(`params\.|pageSize|(GET|POST|PUT|PATCH|DELETE) /|Authorization|address in params`)
	// placeholder matches a word of a hint that an id replaces.
	placeholder = regexp.MustCompile(`\b(PLAN|AGENT|ORDER|REQUEST|HASH)\b`)
	// concerned matches the record that an error of the service is about.
	concerned = regexp.MustCompile(`\b(plan|agent)Id ([1-9][0-9]{0,77})\b`)
	// plainID matches an id that needs no quotes on a command line.
	plainID = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,127}$`)
)

// about keeps an id for hints, under the word that stands for it there. The first one counts.
func (a *app) about(word, id string) {
	if a.ids == nil {
		a.ids = map[string]string{}
	}
	if a.ids[word] == "" && plainID.MatchString(id) {
		a.ids[word] = id
	}
}

// aboutCommand keeps the ids of a command line.
func (a *app) aboutCommand(cmd *cobra.Command, args []string) {
	for i, word := range strings.Fields(cmd.Use)[1:] {
		if i < len(args) {
			a.about(strings.Trim(word, "[]"), args[i])
		}
	}
	for flag, word := range map[string]string{"plan": "PLAN", "plan-id": "PLAN", "agent-id": "AGENT", "agent": "AGENT", "request-id": "REQUEST"} {
		if f := cmd.Flags().Lookup(flag); f != nil && f.Changed {
			a.about(word, f.Value.String())
		}
	}
}

// withIDs puts the ids that are known in place of the words that stand for them.
func (a *app) withIDs(hint string) string {
	return placeholder.ReplaceAllStringFunc(hint, func(word string) string { return cmp.Or(a.ids[word], word) })
}
