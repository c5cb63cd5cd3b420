package api_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
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
	s.clock.advance(1e9) // lists have an order
	snake := call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"stripe","spending_limit_cents":"1000","duration_secs":"3600","currency":"usd","provider_payment_method_id":"pm_1","plan_id":"`+fiat+`"}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"paypal","spendingLimitCents":1,"durationSecs":3600,"currency":"usd"}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"erc4337","spendingLimitCents":0,"durationSecs":1.5,"currency":"usdc"}`)
	call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"stripe","spendingLimitCents":1,"durationSecs":3600,"currency":"usd","providerPaymentMethodId":"pm_9"}`)
	call("createDelegation", actor{}, "POST", "/delegation/create", `{}`)
	call("signDelegation", s.s1, "POST", "/delegation/"+limit+"/signature", `{"signature":"0x00"}`)
	call("signDelegation", s.s1, "POST", "/delegation/"+limit+"/signature", `{}`)
	call("signDelegation", s.b1, "POST", "/delegation/"+limit+"/signature", `{"signature":"0x00"}`)
	s.clock.advance(1e9)
	held := call("createDelegation", s.s1, "POST", "/delegation/create", `{"provider":"erc4337","spendingLimitCents":300,"durationSecs":3600,"currency":"usdc","ownerAccount":"0x70997970C51812dc3A010C7d01b50e0d17dc79C8"}`).text(t, "delegationId")
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"`+held+`"}`)
	call("signDelegation", s.s1, "POST", "/delegation/"+held+"/signature", `{"signature":"0x22"}`)
	call("signDelegation", s.s1, "POST", "/delegation/"+held+"/signature", fmt.Sprintf(`{"signature":"0x%x","authorization":{"chainId":"0x14a34"}}`, railtest.Signature))

	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"`+limit+`"}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"`+limit+`"}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"6fa1c0de-0000-4000-8000-000000000000"}`)
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", `{"delegationId":"x"}`)
	crypto.Behave(railtest.Behaviour{Decline: true, Code: "BCK.PROTOCOL.0011", Reason: "no funds"})
	call("orderPlan", s.s1, "POST", "/protocol/plans/"+priced+"/order", "")
	crypto.Behave(railtest.Behaviour{})

	s.clock.advance(1e9)
	opened := call("openCheckout", s.s1, "POST", "/protocol/plans/"+fiat+"/checkout", `{"sessionType":"hosted","successUrl":"https://app.example/ok","cancelUrl":"https://app.example/no"}`).text(t, "orderId")
	call("readOrder", s.s1, "GET", "/protocol/orders/"+opened, "")
	gift := s.do(s.s1, "POST", base+"/protocol/plans/"+free+"/order", "").text(t, "orderId")
	call("refundOrder", s.b1, "POST", "/protocol/orders/"+gift+"/refund", `{"amountCents":"50"}`)
	call("refundOrder", s.s1, "POST", "/protocol/orders/"+gift+"/refund", "")
	call("refundOrder", s.b1, "POST", "/protocol/orders/6fa1c0de-0000-4000-8000-000000000000/refund", "")
	call("refundOrder", s.b1, "POST", "/protocol/orders/x/refund", `{"amountCents":"50.5"}`)
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
	call("unfreezeDelegation", s.s1, "POST", "/delegation/"+limit+"/unfreeze", "")
	call("unfreezeDelegation", s.b1, "POST", "/delegation/"+limit+"/unfreeze", "")
	call("revokeDelegation", s.s1, "DELETE", "/delegation/"+limit, "")
	call("revokeDelegation", s.s1, "DELETE", "/delegation/"+limit, "")
	call("revokeDelegation", s.b1, "DELETE", "/delegation/"+limit, "")
	call("revokeDelegation", s.s1, "DELETE", "/delegation/"+held, "")

	call("readClock", s.s1, "GET", "/sandbox/clock", "")
	operator := s.operator()
	call("advanceClock", operator, "POST", "/sandbox/clock", `{"advanceSecs":60}`)
	call("advanceClock", operator, "POST", "/sandbox/clock", `{"advanceSecs":-1}`)
	call("advanceClock", s.s1, "POST", "/sandbox/clock", `{"advanceSecs":60}`)
	call("readClock", s.s1, "GET", "/sandbox/clock", "")
}

// recordWork are the stock bodies, top-ups on the way, and the parts of the work for a request.
func recordWork(t *testing.T, version string, files map[string][]exchange) {
	s, _, _ := newPaidStack(t)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op string, who actor, method, path, body string) answer {
		t.Helper()
		return r.call(version, op, who, method, base+path, body)
	}
	plan := s.plan(s.b1, `{"name":"Dynamic","priceConfig":{"tokenAddress":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","amounts":[1000000]},"creditsConfig":{"amount":100,"minAmount":1,"maxAmount":50}}`)
	limit := s.do(s.s1, "POST", base+"/delegation/create", `{"provider":"erc4337","spendingLimitCents":500,"durationSecs":3600,"currency":"usdc"}`).text(t, "delegationId")
	token := call("createPermission", s.s1, "POST", "/x402/permissions", `{"planId":"`+plan+`","delegationConfig":{"delegationId":"`+limit+`"},"orderLimit":2,"tokenFormat":"x402"}`).text(t, "accessToken")
	call("createPermission", s.s1, "POST", "/x402/permissions", `{"planId":"`+plan+`","delegationConfig":{"spendingLimitCents":500,"durationSecs":3600}}`)

	id := call("verify", s.b1, "POST", "/x402/verify", paymentBody(plan, token, `,"hold":true,"maxAmount":"20"`)).text(t, "agentRequestId")
	call("recordSubTask", s.b1, "POST", "/protocol/agent-sub-tasks", `{"agentRequestId":"`+id+`","creditsToRedeem":"3","tag":"search","description":"Searched","status":"success","metadata":{"a":1}}`)
	s.clock.advance(1e9)
	call("recordSubTask", s.b1, "POST", "/protocol/agent-sub-tasks", `{"requestId":"`+id+`","creditsUsed":4,"taskName":"write"}`)
	call("recordSubTask", s.b1, "POST", "/protocol/agent-sub-tasks", `{"status":"done","tag":7}`)
	call("recordSubTask", s.b1, "POST", "/protocol/agent-sub-tasks", `{"agentRequestId":"unknown"}`)
	call("recordSubTask", s.b2, "POST", "/protocol/agent-sub-tasks", `{"agentRequestId":"`+id+`"}`)
	call("listSubTasks", s.b1, "GET", "/protocol/agent-sub-tasks?agentRequestId="+id, "")
	call("listSubTasks", s.b1, "GET", "/protocol/agent-sub-tasks", "")
	call("listSubTasks", s.b2, "GET", "/protocol/agent-sub-tasks?agentRequestId="+id, "")
	call("settle", s.b1, "POST", "/x402/settle", paymentBody(plan, token, `,"marginPercent":2.5,"agentRequestId":"`+id+`"`))
	call("settle", s.b1, "POST", "/x402/settle", paymentBody(plan, token, `,"marginPercent":11`))

	payload := must.Get(base64.StdEncoding.DecodeString(token))(t)
	stock := func(amount string) string {
		return `{"x402Version":2,"paymentPayload":` + string(payload) + `,"paymentRequirements":{"scheme":"svc:erc4337","network":"eip155:84532","amount":"` + amount +
			`","asset":"svc:credits","payTo":"` + s.b1.address.String() + `","maxTimeoutSeconds":60,"extra":{"version":"1","planId":"` + plan + `"}}}`
	}
	call("verify", s.b1, "POST", "/x402/verify", stock("51"))
	call("verify", s.b1, "POST", "/x402/verify", stock("9"))
	call("verify", s.b1, "POST", "/x402/verify", stock("9"))
	call("verify", s.b2, "POST", "/x402/verify", stock("9"))
	call("settle", s.b1, "POST", "/x402/settle", stock("10"))
	call("settle", s.b1, "POST", "/x402/settle", stock("8"))
	call("settle", s.b1, "POST", "/x402/settle", stock("8"))
	call("settle", s.b1, "POST", "/x402/settle", stock("7"))
	call("release", s.b1, "POST", "/x402/release", stock("8"))
	call("supported", actor{}, "GET", "/x402/supported", "")
	call("readProof", actor{}, "GET", "/credits/proofs/"+mirroredBurn.String(), "")
	call("readProof", actor{}, "GET", "/credits/proofs/"+openBurn.String(), "")
	call("readProof", actor{}, "GET", "/credits/proofs/"+mirroredBurn.String()[:64]+"ff", "")
}

// recordEvents are events and webhooks. Nothing is sent: no sender runs.
func recordEvents(t *testing.T, version string, files map[string][]exchange) {
	s := newStack(t)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op string, who actor, method, path, body string) answer {
		t.Helper()
		return r.call(version, op, who, method, base+path, body)
	}
	s.plan(s.b1, freePlan)
	call("listEvents", s.b1, "GET", "/events?type=plan.created&since=2026-11-21T00:00:00Z&sortOrder=asc", "")
	call("listEvents", s.b1, "GET", "/events?type=nonsense&since=yesterday", "")
	call("listEvents", actor{}, "GET", "/events", "")
	call("followEvents", s.b1, "HEAD", "/events/stream", "")
	call("followEvents", actor{}, "GET", "/events/stream", "")

	id := call("createWebhook", s.b1, "POST", "/webhooks", `{"url":"https://hooks.example.com/toll","types":["settlement.settled","order.paid"],"description":"Books"}`).text(t, "id")
	call("createWebhook", s.b1, "POST", "/webhooks", `{"url":"http://169.254.169.254/latest"}`)
	call("createWebhook", s.b1, "POST", "/webhooks", `{"types":["nonsense"]}`)
	at := "/webhooks/" + id
	call("listWebhooks", s.b1, "GET", "/webhooks?status=active&limit=1", "")
	call("listWebhooks", s.b1, "GET", "/webhooks?status=broken", "")
	call("readWebhook", s.b1, "GET", at, "")
	call("readWebhook", s.b2, "GET", at, "")
	call("readWebhook", s.b1, "GET", "/webhooks/7", "")
	call("updateWebhook", s.b1, "PATCH", at, `{"url":"https://hooks.example.com/other","types":null,"description":null,"status":"paused"}`)
	call("updateWebhook", s.b1, "PATCH", at, `{"status":"active"}`)
	call("updateWebhook", s.b1, "PATCH", at, `{"url":null,"status":"off"}`)
	call("updateWebhook", s.b2, "PATCH", at, `{"status":"paused"}`)
	sent := call("testWebhook", s.b1, "POST", at+"/test", "").text(t, "id")
	call("testWebhook", s.b2, "POST", at+"/test", "")
	call("rotateWebhook", s.b1, "POST", at+"/rotate", "")
	call("rotateWebhook", s.b2, "POST", at+"/rotate", "")
	call("listDeliveries", s.b1, "GET", at+"/deliveries?status=pending", "")
	call("listDeliveries", s.b1, "GET", at+"/deliveries?status=lost", "")
	call("listDeliveries", s.b2, "GET", at+"/deliveries", "")
	call("resendDelivery", s.b1, "POST", at+"/deliveries/"+sent+"/resend", "")
	call("resendDelivery", s.b1, "POST", at+"/deliveries/"+id+"/resend", "")
	call("deleteWebhook", s.b1, "DELETE", at, "")
	call("deleteWebhook", s.b1, "DELETE", at, "")
}

// recordPeople are the routes about people.
func recordPeople(t *testing.T, version string, files map[string][]exchange) {
	s := newStack(t)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op string, who actor, method, path, body string, headers ...string) answer {
		t.Helper()
		s.clock.advance(1e9) // lists have an order
		return r.call(version, op, who, method, base+path, body, headers...)
	}
	const login = "olga"
	signed := call("signUp", actor{}, "POST", "/people", `{"name":"Olga","login":"`+login+`","password":"`+goodPassword+`"}`)
	call("signUp", actor{}, "POST", "/people", `{"login":"`+login+`","password":"`+goodPassword+`"}`)
	owner := actor{key: signed.text(t, "token")}
	at := []string{"X-Current-Org-Id", signed.member(t, "organizations").([]any)[0].(map[string]any)["id"].(string)}
	again := call("signIn", actor{}, "POST", "/session", `{"login":"`+login+`","password":"`+goodPassword+`"}`)
	call("signIn", actor{}, "POST", "/session", `{"login":"`+login+`","password":"wrong"}`)
	call("readSession", owner, "GET", "/session", "")
	call("readSession", s.b1, "GET", "/session", "")
	call("proveSession", owner, "POST", "/session/proof", `{"password":"`+goodPassword+`"}`)
	call("createInvitation", owner, "POST", "/invitations", `{"role":"viewer","note":"Vera"}`, at...)
	i := call("createInvitation", owner, "POST", "/invitations", `{"role":"developer"}`, at...)
	call("createInvitation", owner, "POST", "/invitations", `{"role":"god"}`, at...)
	call("listInvitations", owner, "GET", "/invitations?limit=1", "", at...)
	other := call("signUp", actor{}, "POST", "/people", `{"login":"second`+login+`","password":"`+goodPassword+`"}`)
	second := actor{key: other.text(t, "token")}
	call("acceptInvitation", second, "POST", "/invitations/accept", `{"link":"`+i.text(t, "link")+`"}`)
	call("acceptInvitation", second, "POST", "/invitations/accept", `{"link":"x"}`)
	call("listMembers", second, "GET", "/members?sortOrder=asc", "", at...)
	call("listMembers", s.b1, "GET", "/members", "")
	call("setRole", owner, "PATCH", "/members/"+other.text(t, "person.id"), `{"spendLimitCents":5000}`, at...)
	call("setRole", owner, "PATCH", "/members/"+other.text(t, "person.id"), `{"role":"admin"}`, at...)
	call("setRole", owner, "PATCH", "/members/"+signed.text(t, "person.id"), `{"role":"viewer"}`, at...)
	call("listSessions", owner, "GET", "/sessions?limit=1", "")
	call("endSession", owner, "DELETE", "/sessions/"+toll.NewUUID(), "")
	call("endSession", owner, "DELETE", "/sessions/"+again.text(t, "session.id"), "")
	call("listMemberSessions", owner, "GET", "/members/"+other.text(t, "person.id")+"/sessions", "", at...)
	call("listMemberSessions", second, "GET", "/members/"+signed.text(t, "person.id")+"/sessions", "", at...)
	call("endMemberSessions", second, "DELETE", "/members/"+signed.text(t, "person.id")+"/sessions", "", at...)
	call("renewRecoveryCodes", owner, "POST", "/credentials/recovery-codes", "")
	call("renewRecoveryCodes", s.b1, "POST", "/credentials/recovery-codes", "")
	first := call("listCredentials", owner, "GET", "/credentials?sortOrder=asc&limit=1", "").member(t, "credentials").([]any)[0].(map[string]any)["id"].(string)
	call("removeCredential", owner, "DELETE", "/credentials/"+first, "")
	call("removeCredential", owner, "DELETE", "/credentials/"+toll.NewUUID(), "")
	call("removeMember", second, "DELETE", "/members/"+signed.text(t, "person.id"), "", at...)
	call("removeMember", owner, "DELETE", "/members/"+other.text(t, "person.id"), "", at...)
	call("revokeInvitation", owner, "DELETE", "/invitations/"+i.text(t, "id"), "", at...)
	call("endMemberSessions", owner, "DELETE", "/members/"+signed.text(t, "person.id")+"/sessions", "", at...)
	call("listAuditLog", owner, "GET", "/audit-log?act=member.role&since=2026-11-01&limit=1", "", at...)
	call("listAuditLog", owner, "GET", "/audit-log?act=a%20b", "", at...)
	own := other.member(t, "organizations").([]any)[0].(map[string]any)["id"].(string)
	call("renameWorkspace", second, "PATCH", "/workspaces/x", `{"name":"Bob's agents"}`, "X-Current-Org-Id", own)
	call("renameWorkspace", second, "PATCH", "/workspaces/"+own, `{"name":"Bob's agents"}`, "X-Current-Org-Id", own)
	call("readWorkspace", second, "GET", "/workspaces/"+own, "", "X-Current-Org-Id", own)
	call("readWorkspace", second, "GET", "/workspaces/x", "", "X-Current-Org-Id", own)
	call("deleteWorkspace", second, "DELETE", "/workspaces/x", "", "X-Current-Org-Id", own)
	call("deleteWorkspace", second, "DELETE", "/workspaces/"+own, "", "X-Current-Org-Id", own)
	call("signOut", second, "DELETE", "/session", "")
	call("signOut", second, "DELETE", "/session", "")
}
