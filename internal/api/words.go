package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tollhq/toll"
)

// extensible is the member of a schema with the known values of a string to which later releases can add values.
const extensible = "x-extensible-enum"

// vocabulary lists the values of members, each as Record.member.
type vocabulary struct {
	members string // separated by spaces
	words   []any
	open    bool // later releases can add values
}

func wordsOf[T ~string](words ...T) (out []any) {
	for _, w := range words {
		out = append(out, string(w))
	}
	return out
}

func vocabularies() []vocabulary {
	key := wordsOf(toll.StatusActive, toll.StatusRevoked, toll.StatusExpired)
	permission := append(slices.Clone(key), string(toll.StatusExhausted))
	request := wordsOf("held", "settled", "released", "lapsed")
	limits := wordsOf(toll.AccessLimits()...)
	input := wordsOf(toll.CurrencyUSD, toll.CurrencyEUR, toll.CurrencyUSDC, toll.CurrencyEURC)
	price := append(slices.Clone(input), toll.CurrencyETH)
	delegation := wordsOf("usdc", "eurc", "usd", "eur")
	auth := wordsOf("none", "basic", "oauth", "bearer")
	categories := wordsOf(toll.CategoryValidation, toll.CategoryAuth, toll.CategoryBusiness, toll.CategoryIntegration, toll.CategoryInternal)
	return []vocabulary{
		{"Permission.status AccessToken.status", permission, false},
		{"APIKey.status KeyRotated.status", key, false},
		{"KeyRevoked.status PermissionRevoked.status", wordsOf(toll.StatusRevoked), false},
		{"Delegation.status", append(slices.Clone(permission), string(toll.StatusPending), string(toll.StatusFrozen)), false},
		{"DelegationCreated.status", wordsOf(toll.StatusActive, toll.StatusPending), false},
		{"DelegationTransaction.status", wordsOf(toll.TransactionPending, toll.TransactionSucceeded, toll.TransactionFailed), false},
		{"PaymentMethod.status", wordsOf(toll.StatusActive, toll.StatusRevoked), false},
		{"RequestStep.status", request, false},
		{"Settlement.status RequestRecord.status", append(slices.Clone(request), "pending"), false},
		{"ReleaseResponse.status", wordsOf("released", "lapsed"), false},
		{"WalletAnswer.status", wordsOf(toll.OrderCreated, toll.OrderSigned, toll.OrderSent, toll.OrderIncluded, toll.OrderConfirmed, toll.OrderFinal, toll.OrderFailed), false},
		{"CheckoutSession.paymentStatus", wordsOf("unpaid", "paid"), false},
		{"Webhook.status WebhookSecret.status WebhookChange.status", wordsOf(toll.WebhookActive, toll.WebhookPaused), false},
		{"WebhookDelivery.status", wordsOf(toll.DeliveryPending, toll.DeliverySucceeded, toll.DeliveryFailed), false},
		{"SubTask.status", wordsOf(toll.SubTaskSuccess, toll.SubTaskFailed, toll.SubTaskPending), false},
		{"BurnProof.status", wordsOf(toll.ProofOpen, toll.ProofAnchored, toll.ProofFinal), false},
		{"AccessToken.tokenFormat", wordsOf("jwt", "x402"), false},
		{"Invitation.role Member.role Organization.role MyMembership.role", wordsOf(toll.Roles()...), false},
		{"APIKey.rights KeyRotated.rights", wordsOf(toll.AllRights()...), false},
		{"KeyInput.rights", wordsOf(toll.RightRead, toll.RightSell, toll.RightSpend, toll.RightManage, toll.RightMoney, toll.RightKeys), false},
		{"APIKey.madeBy KeyRotated.madeBy", wordsOf(toll.MadeLocally, toll.MadeByUser, toll.MadeByKey, toll.MadeByGrant), false},
		{"Info.environment", wordsOf(toll.Sandbox, toll.Live), false},
		{"Wallet.custody WalletKey.custody", wordsOf(toll.CustodyService, toll.CustodyShared, toll.CustodyExternal), false},
		{"PriceInput.priceType", wordsOf("FIXED_PRICE", "FREE"), false},
		{"CreditsInput.creditsType", wordsOf("FIXED", "EXPIRABLE"), false},
		{"CreditsInput.accessType CreditsInput.subscriptionType", limits, false},
		{"PriceInput.currency PlanInput.currency AgentPlanInput.currency PlanUpdate.currency", input, false},
		{"DelegationInput.currency DelegationConfig.currency", delegation, false},
		{"DelegationInput.provider", wordsOf(toll.ProviderCrypto, toll.ProviderCard), false},
		{"AgentAPIInput.authType AgentInput.authType AgentAPIUpdate.authType AgentUpdate.authType", auth, false},

		{"Plan.accessLimit PlanFacts.accessLimit Balance.planType", limits, true},
		{"FlatPrice.priceType", wordsOf("FIXED_PRICE", "FREE"), true},
		{"FlatCredits.creditsType", wordsOf("FIXED", "EXPIRABLE"), true},
		{"Price.currency PlanFacts.currency Order.currency Revenue.currency", price, true},
		{"Delegation.currency DelegationTransaction.currency", delegation, true},
		{"Delegation.provider PaymentMethod.provider", wordsOf(toll.ProviderCrypto, toll.ProviderCard), true},
		{"PlanFacts.fiatPaymentProvider", wordsOf(toll.ProviderCard), true},
		{"PaymentMethod.type", wordsOf(toll.PaymentCard, toll.PaymentWallet), true},
		{"AgentAPI.authType", auth, true},
		{"Error.category PaymentRequiredError.category", categories, true},
		{"Act.actorKind", wordsOf("user", "key", "local"), true},
		{"Credential.kind", wordsOf("password", "passkey", "recovery", "mail", "oidc", "wallet"), true},
		{"EventObject.kind", wordsOf("agent", "plan", "order", "balance", "settlement", "permission", "delegation", "api_key", "wallet", "webhook"), true},
		{"SearchResult.type", wordsOf(searched...), true},
		{"CatalogueItem.type", wordsOf("http", "mcp"), true},
		{"TokenBalance.symbol", wordsOf(toll.CurrencyETH, toll.CurrencyUSDC, toll.CurrencyEURC), true},
	}
}

// enumerate writes the values and the types of members that reflection cannot see into their schemas. It panics if a member is not documented or has an enumeration already.
func (s schemas) enumerate() {
	for _, name := range []string{"Settlement", "RequestRecord"} {
		s.Map()[name].Properties["receipt"] = &huma.Schema{Ref: schemaPrefix + "SettleResponse"}
	}
	s.Map()["Balance"].Properties["pricePerCredit"] = &huma.Schema{
		Type: huma.TypeNumber, Minimum: new(0.0), Description: "Price of one credit in whole units of the currency.",
	}
	for _, v := range vocabularies() {
		for name := range strings.FieldsSeq(v.members) {
			record, member, _ := strings.Cut(name, ".")
			var p *huma.Schema
			if object := s.Map()[record]; object != nil {
				p = object.Properties[member]
			}
			if p != nil && p.Items != nil {
				p.Items = new(*p.Items)
				p = p.Items
			}
			if p == nil || p.Type != huma.TypeString || p.Enum != nil {
				panic(fmt.Sprintf("%s is not a string without an enumeration", name)) // the table is part of the program
			}
			words := slices.Clone(v.words)
			if p.Nullable {
				words = append(words, nil)
			}
			if !v.open {
				p.Enum = words
				continue
			}
			if p.Extensions == nil {
				p.Extensions = map[string]any{}
			}
			p.Extensions[extensible] = words
		}
	}
}
