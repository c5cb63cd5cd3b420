package cli

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
)

// hints are the next steps in words of this program, where those of the service speak of paths and headers.
var hints = map[toll.Code]string{
	toll.CodeBadRequest:            "--help says what every argument and flag takes.",
	toll.CodeBadPage:               "--page starts at 1, --offset is 1 to 100, --sort-by is created, updated or name, --sort-order is asc or desc.",
	toll.CodeBadPriceConfig:        "toll price makes prices, and toll credits what an order gives.",
	toll.CodeBadCreditsConfig:      "toll credits makes what an order gives, and toll price prices.",
	toll.CodePlanTermsFixed:        "Register another plan for other terms.",
	toll.CodeDelegationIncomplete:  "A card is named with --payment-method-id; toll cards list shows yours.",
	toll.CodeNotAuthenticated:      "Sign in with toll login, or make an API key with toll keys create --local beside the service; toll whoami shows which one is used.",
	toll.CodeBadAuthorization:      "Set the whole API key with its prefix, in TOLL_API_KEY, --api-key-file or toll config set apiKey -.",
	toll.CodeKeyNotFound:           "toll keys list shows the ids of yours.",
	toll.CodeVersionUnknown:        "toll versions shows those that are served.",
	toll.CodeNotAgentOwner:         "Use an API key of the owner of the agent; toll agents list shows yours.",
	toll.CodeNotPlanOwner:          "Use an API key of the owner of the plan; toll plans list shows yours.",
	toll.CodePlanNotAttached:       "toll agents plans AGENT shows the plans of an agent; toll agents attach PLAN --agent-id AGENT adds one.",
	toll.CodeMarginWithoutSubTasks: "Record the sub-tasks first with toll requests track.",
	toll.CodeFiatPlanOnCryptoRoute: "toll plans checkout PLAN gets the page on which a card pays; --delegation-id names a limit on a card that pays at once.",
	toll.CodeDelegationFrozen:      "toll delegations unfreeze ID lets it pay again; toll delegations create makes one with another card.",
	toll.CodeCardUnreachable:       "Try again later; toll doctor says whether the card processor answers.",
	toll.CodeTokenSignature:        "toll tokens create PLAN makes a new access token.",
	toll.CodeTokenUndecodable:      "Give the accessToken as toll tokens create printed it; -q prints it alone.",
	toll.CodePermissionNotFound:    "toll tokens list shows the hashes of yours.",
	toll.CodePermissionUnknown:     "toll tokens create PLAN makes a new access token.",
	toll.CodePermissionRevoked:     "toll tokens create PLAN makes a new access token.",
	toll.CodePermissionExpired:     "toll tokens create PLAN makes a new access token.",
	toll.CodePaymentMethodUnusable: "toll cards list shows the payment methods.",
	toll.CodePaymentMethodRevoked:  "toll cards list shows the payment methods.",
	toll.CodePaymentRequired:       "toll tokens create PLAN makes an access token; toll call --plan PLAN pays by itself.",
	toll.CodeUnsupportedScheme:     "toll x402 supported shows the schemes and networks; a delegation must be in the currency of the plan.",
	toll.CodeHoldOver:              "toll x402 settlement REQUEST shows what became of it.",
	toll.CodeReleaseOfSettled:      "toll x402 settlement REQUEST shows what became of it.",
	toll.CodePaymentMethodNotFound: "toll cards list shows the payment methods.",
	toll.CodeUnknownDelegation:     "toll delegations list shows yours.",
	toll.CodeCheckoutWrongPlan:     "toll plans order PLAN buys a plan that is not paid by card.",
	toll.CodeWebhookNotFound:       "toll webhooks list shows yours.",
	toll.CodeChainBalance:          "toll wallet show tells the address and what is in it, -o json of this command what is missing; toll faucet fills it on the embedded chain.",
	toll.CodePersonNeeded:          "toll session start LOGIN signs in as a person.",
	toll.CodeProofNeeded:           "toll session prove proves the password; repeat this within ten minutes.",
	toll.CodeWrongWorkspace:        "toll session show lists your workspaces, and toll session use WORKSPACE chooses one.",
	toll.CodePathNotFound:          "The service may be older than this program: toll doctor compares them.",
}

// pageHint is what to do with the page of [pageOf].
const pageHint = "Open the page in a browser within an hour: there the owner of the card pays a new order of the same plan."

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
		return "The order is recorded, and a repeat makes another one: toll orders get " + order + " --wait shows what becomes of it."
	case e.Code == toll.CodeCardUnreachable && e.RetryAfterSecs > 0:
		return "Try again in " + count(e.RetryAfterSecs, "second") + "."
	}
	// A hint that the service made for this case knows more than one for every case of its code.
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
	// ofHTTP is what hints for programs speak of, and a command line does not show.
	ofHTTP = regexp.MustCompile(`params\.|pageSize|(GET|POST|PUT|PATCH|DELETE) /|Authorization|address in params`)
	// placeholder is a word of a hint that stands for an id.
	placeholder = regexp.MustCompile(`\b(PLAN|AGENT|ORDER|REQUEST|HASH)\b`)
	// concerned is what an error of the service is about.
	concerned = regexp.MustCompile(`\b(plan|agent)Id ([1-9][0-9]{0,77})\b`)
	// plainID is an id that can stand in a command line.
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
