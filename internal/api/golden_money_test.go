package api_test

import (
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/checkout/railtest"
)

// recordMoney are the routes on which money moves, with stand-ins in place of a chain and a card processor.
func recordMoney(t *testing.T, version string, files map[string][]exchange) {
	s, crypto, _ := newPaidStack(t)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op string, who actor, method, path, body string) answer {
		t.Helper()
		return r.call(version, op, who, method, base+path, body)
	}
	priced, fiat, free := s.plan(s.b1, pricedPlan), s.plan(s.b1, cardPlan), s.plan(s.b1, freePlan)
	s.card(s.s1, "pm_1")
	s.card(s.s1, "pm_2")

	limit := call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"erc4337","spendingLimitCents":150,"durationSecs":3600,"currency":"usdc","maxTransactions":1}`).text(t, "delegationId")
	snake := call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"stripe","spending_limit_cents":"1000","duration_secs":"3600","currency":"usd","provider_payment_method_id":"pm_1","plan_id":"`+fiat+`"}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"paypal","spendingLimitCents":1,"durationSecs":3600,"currency":"usd"}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"erc4337","spendingLimitCents":0,"durationSecs":1.5,"currency":"usdc"}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"stripe","spendingLimitCents":1,"durationSecs":3600,"currency":"usd","providerPaymentMethodId":"pm_9"}`)
	call("createDelegation", actor{}, "POST", "/delegation/create", `{}`)
	call("signDelegation", s.s1, "POST", "/delegation/"+limit+"/signature", `{"signature":"0x00"}`)
	call("signDelegation", s.s1, "POST", "/delegation/"+limit+"/signature", `{}`)
	call("signDelegation", s.b1, "POST", "/delegation/"+limit+"/signature", `{"signature":"0x00"}`)

	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"`+limit+`"}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"`+limit+`"}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"6fa1c0de-0000-4000-8000-000000000000"}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"x"}`)
	crypto.Behave(railtest.Behaviour{Decline: true, Code: "BCK.PROTOCOL.0011", Reason: "no funds"})
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", "")
	crypto.Behave(railtest.Behaviour{})

	opened := call("openCheckout", s.s1, "POST", "/protocol/plans/"+fiat+"/checkout", `{"sessionType":"hosted","successUrl":"https://app.example/ok","cancelUrl":"https://app.example/no"}`).text(t, "orderId")
	call("readOrder", s.s1, "GET", "/protocol/orders/"+opened, "")
	call("openCheckout", s.s1, "POST", "/protocol/plans/"+priced+"/checkout", "")
	call("openCheckout", s.s1, "POST", "/protocol/plans/"+free+"/checkout", "")
	call("openCheckout", s.s1, "POST", "/protocol/plans/"+fiat+"/checkout", `{"sessionType":"popup","successUrl":"x"}`)
	call("openCheckout", s.s1, "POST", "/protocol/plans/11111/checkout", "")
	call("openStripePayment", s.s1, "POST", "/fiat/stripe/payment", `{"planId":"`+fiat+`"}`)
	call("openStripePayment", s.s1, "POST", "/fiat/stripe/payment", `{}`)
	call("receiveStripeEvent", actor{}, "POST", "/fiat/stripe/webhook", `{"id":"evt_1"}`)

	call("listDelegations", s.s1, "GET", "/delegation?pageSize=1", "")
	call("listDelegations", s.s1, "GET", "/delegation?accessible=true", "")
	call("listDelegations", s.s1, "GET", "/delegation?accessible=maybe", "")
	call("readDelegation", s.s1, "GET", "/delegation/"+limit, "")
	call("readDelegation", s.b1, "GET", "/delegation/"+limit, "")
	call("readDelegation", s.s1, "GET", "/delegation/7", "")
	call("listDelegationTransactions", s.s1, "GET", "/delegation/"+limit+"/transactions", "")
	call("listDelegationTransactions", s.b1, "GET", "/delegation/"+limit+"/transactions", "")
	call("listPaymentMethods", s.s1, "GET", "/payment-methods", "")
	call("listPaymentMethods", s.s1, "GET", "/payment-methods?provider=stripe&accessible=true", "")
	call("listPaymentMethods", s.s1, "GET", "/payment-methods?provider=paypal", "")
	call("updatePaymentMethod", s.s1, "PATCH", "/payment-methods/pm_1", `{"alias":"Work","allowedApiKeyIds":["`+s.s1.keyID.String()+`"]}`)
	call("updatePaymentMethod", s.s1, "PATCH", "/payment-methods/pm_1", `{"alias":null,"allowedApiKeyIds":null}`)
	call("updatePaymentMethod", s.s1, "PATCH", "/payment-methods/"+strings.ToLower(s.s1.address.String()), `{"alias":"Mine"}`)
	call("updatePaymentMethod", s.b1, "PATCH", "/payment-methods/pm_1", `{"alias":"Mine"}`)
	call("deletePaymentMethod", s.s1, "DELETE", "/payment-methods/pm_1", "")
	call("deletePaymentMethod", s.s1, "DELETE", "/payment-methods/"+s.s1.address.String(), "")
	call("deletePaymentMethod", s.s1, "DELETE", "/payment-methods/pm_9", "")
	call("readDelegation", s.s1, "GET", "/delegation/"+snake.text(t, "delegationId"), "")
	call("revokeDelegation", s.s1, "DELETE", "/delegation/"+limit, "")
	call("revokeDelegation", s.s1, "DELETE", "/delegation/"+limit, "")
	call("revokeDelegation", s.b1, "DELETE", "/delegation/"+limit, "")

	call("readClock", s.s1, "GET", "/sandbox/clock", "")
	operator := s.operator()
	call("advanceClock", operator, "POST", "/sandbox/clock", `{"advanceSecs":60}`)
	call("advanceClock", operator, "POST", "/sandbox/clock", `{"advanceSecs":-1}`)
	call("advanceClock", s.s1, "POST", "/sandbox/clock", `{"advanceSecs":60}`)
	call("readClock", s.s1, "GET", "/sandbox/clock", "")
}
