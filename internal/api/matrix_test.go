package api_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// dump returns the rows of all tables of an SQLite database, but for when keys were last used.
func dump(t *testing.T, st *store.Store) string {
	t.Helper()
	ctx := context.Background()
	column := func(q string, args ...any) (out []string) {
		rows := must.Get(st.Query(ctx, q, args...))(t)
		defer rows.Close()
		for rows.Next() {
			var s string
			must.Do(t, rows.Scan(&s))
			out = append(out, s)
		}
		must.Do(t, rows.Err())
		return out
	}
	var all []string
	for _, table := range column(`SELECT t.name || ': ' || group_concat('quote(' || c.name || ')', '||'',''||') FROM sqlite_master t, pragma_table_info(t.name) c
		WHERE t.type = 'table' AND c.name <> 'last_used_at' GROUP BY t.name ORDER BY t.name`) {
		name, columns, _ := strings.Cut(table, ": ")
		all = append(all, name+":")
		all = append(all, column("SELECT coalesce(group_concat(row, char(10)), '') FROM (SELECT "+columns+" AS row FROM "+name+" ORDER BY row)")...)
	}
	return strings.Join(all, "\n")
}

// commits returns a number that changes with every commit to the SQLite database of a store, made by whomever.
func commits(t *testing.T, st *store.Store) func() int64 {
	t.Helper()
	var file string
	must.Do(t, st.QueryRow(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file))
	db := must.Get(sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(60000)"))(t)
	t.Cleanup(func() { must.Do(t, db.Close()) })
	one := must.Get(db.Conn(t.Context()))(t) // which compares with what it saw itself
	return func() (n int64) {
		t.Helper()
		must.Do(t, one.QueryRowContext(t.Context(), "PRAGMA data_version").Scan(&n))
		return n
	}
}

// Every route of the document, called by everybody with the ids of B1. The owner comes last, as only it may change them. What takes
// the right to manage, to move money, to let others in or to export is in the audit log, with the key that did it.
// T17 T169
func TestPrivilegeMatrix(t *testing.T) {
	s, _, _ := newPaidStack(t)
	plan := s.plan(s.b1, freePlan)
	agent := s.agent(s.b1, plan)
	token, _ := s.token(s.s1, plan)
	_, permission := s.token(s.b1, plan)
	_, doomedPermission := s.token(s.b1, plan)
	doomedKey, turnedKey := s.keyOf(s.b1.address, "1.1"), s.keyOf(s.b1.address, "1.1")
	order := s.do(s.s1, "POST", base+"/protocol/plans/"+plan+"/order", "").text(t, "orderId")
	settled := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, ""))
	request, transaction := settled.text(t, "extra.agentRequestId"), settled.text(t, "transaction")
	held := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true`)).text(t, "agentRequestId")
	renewed := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true`)).text(t, "agentRequestId")

	rehearsed := s.do(s.b1, "POST", base+"/protocol/agents/simulate/start", "").text(t, "agentRequestId")

	loose, spare := s.plan(s.b1, freePlan), s.plan(s.b1, freePlan)
	spareAgent := s.agent(s.b1, spare)
	fiat := s.plan(s.b1, cardPlan)
	const limit = `{"provider":"erc4337","spendingLimitCents":1000,"durationSecs":3600,"currency":"usdc"}`
	delegation := s.do(s.b1, "POST", base+"/delegation/create", limit).text(t, "delegationId")
	doomedDelegation := s.do(s.b1, "POST", base+"/delegation/create", limit).text(t, "delegationId")
	hook := s.do(s.b1, "POST", base+"/webhooks", `{"url":"https://hooks.example.com/toll"}`).text(t, "id")
	doomedHook := s.do(s.b1, "POST", base+"/webhooks", `{"url":"https://hooks.example.com/toll"}`).text(t, "id")
	sent := s.do(s.b1, "POST", base+"/webhooks/"+hook+"/test", "").text(t, "id")
	s.clock.advance(1e9) // a resend moves the delivery to a later time
	s.card(s.b1, "pm_kept")
	s.card(s.b1, "pm_doomed")
	revoked := s.keyOf(s.b1.address, "1.1")
	must.Get(s.auth.EndKey(context.Background(), s.b1.address, revoked.keyID))(t)
	callers := []struct {
		name string
		who  actor
	}{{"no key", actor{}}, {"revoked key", revoked}, {"subscriber", s.s1}, {"other builder", s.b2}, {"owner", s.b1}}

	// Statuses in the order of the callers.
	open := [5]int{200, 200, 200, 200, 200}
	gone := [5]int{410, 410, 410, 410, 410}
	keyed := [5]int{401, 401, 200, 200, 200}
	created := [5]int{401, 401, 201, 201, 201}
	mine := [5]int{401, 401, 404, 404, 200}    // exists for its owner only
	owned := [5]int{401, 401, 403, 403, 200}   // is public, and its owner's to change
	parties := [5]int{401, 401, 200, 404, 200} // for the subscriber as well
	human := [5]int{401, 401, 403, 403, 403}   // takes a person
	mint := `{"planId":"` + plan + `","amount":"1","creditsReceiver":"` + s.b1.address.String() + `"}`
	back := strings.Replace(mint, "creditsReceiver", "holderAddress", 1)
	table := map[string]struct {
		want [5]int
		body string
	}{
		"readInfo": {open, ""}, "readHealth": {open, ""}, "readReady": {open, ""}, "readJWKS": {open, ""}, "readOpenAPI": {open, ""}, "readDocs": {open, ""}, "readErrorDocs": {open, ""},
		"readVersions":  {keyed, ""},
		"registerAgent": {[5]int{401, 401, 403, 403, 200}, `{"name":"x","plans":["` + plan + `"]}`}, "registerAgentWithPlan": {keyed, `{"agentMetadata":{},"agentApi":{},"planMetadata":{},"priceConfig":{},"creditsConfig":{}}`},
		"listAgents": {keyed, ""}, "readAgent": {open, ""}, "listPlansOfAgent": {open, ""},
		"registerPlan": {keyed, freePlan}, "listPlans": {keyed, ""}, "readPlan": {open, ""}, "listAgentsOfPlan": {open, ""}, "readBalance": {keyed, ""}, "readBalanceOf": {open, ""},
		"orderPlan": {keyed, "{}"}, "readOrder": {parties, ""}, "listOrders": {keyed, ""}, "listSubscribers": {owned, ""}, "listHoldings": {keyed, ""}, "listUsage": {keyed, ""}, "listRevenue": {keyed, ""}, "listRefusals": {keyed, ""}, "listRequests": {keyed, ""}, "readRequest": {parties, ""}, "search": {[5]int{401, 401, 400, 400, 400}, ""}, "mintCredits": {owned, mint}, "mintExpirableCredits": {owned, mint}, "takeBackCredits": {owned, back},
		"verify": {owned, paymentBody(plan, token, "")}, "settle": {owned, paymentBody(plan, token, "")}, "renew": {mine, `{"agentRequestId":"` + renewed + `","holdSecs":90}`}, "release": {mine, `{"agentRequestId":"` + held + `"}`},
		"updateAgent": {owned, `{"description":"changed"}`}, "setAgentListed": {owned, ""}, "attachPlan": {owned, ""}, "detachPlan": {owned, ""},
		"addEndpoints": {owned, `{"endpoints":[{"POST":"/added"}]}`},
		"updatePlan":   {owned, `{"description":"changed"}`}, "setPlanListed": {owned, ""},
		"openCheckout": {keyed, "{}"}, "openStripePayment": {keyed, `{"planId":"` + fiat + `"}`}, "receiveStripeEvent": {[5]int{424, 424, 424, 424, 424}, "{}"},
		"createDelegation": {created, limit}, "signDelegation": {[5]int{401, 401, 404, 404, 400}, `{"signature":"0x"}`}, "listDelegations": {keyed, ""}, "readDelegation": {mine, ""},
		"refundOrder": {[5]int{401, 401, 403, 404, 409}, "{}"}, "unfreezeDelegation": {mine, ""},
		"revokeDelegation": {mine, ""}, "listDelegationTransactions": {mine, ""}, "listPaymentMethods": {keyed, ""}, "updatePaymentMethod": {mine, `{"alias":"y"}`}, "deletePaymentMethod": {mine, ""},
		"listEvents": {keyed, ""}, "followEvents": {keyed, ""}, "createWebhook": {created, `{"url":"https://hooks.example.com/toll"}`}, "listWebhooks": {keyed, ""},
		"readWebhook": {mine, ""}, "updateWebhook": {mine, `{"description":"y"}`}, "deleteWebhook": {mine, ""}, "testWebhook": {[5]int{401, 401, 404, 404, 202}, ""},
		"rotateWebhook": {mine, ""}, "listDeliveries": {mine, ""}, "resendDelivery": {[5]int{401, 401, 404, 404, 202}, ""},
		"recordSubTask": {mine, `{"agentRequestId":"` + request + `","creditsToRedeem":1}`}, "listSubTasks": {mine, ""}, "supported": {open, ""},
		"readDID": {open, ""}, "listResources": {open, ""}, "searchResources": {open, ""}, "signOffers": {owned, offersBody(plan)},
		"readClock": {keyed, ""}, "advanceClock": {[5]int{401, 401, 403, 403, 403}, `{"advanceSecs":1}`},
		"readSettlement": {parties, ""}, "findSettlement": {parties, ""}, "readProof": {open, ""},
		"buyPlan": {[5]int{400, 400, 400, 400, 400}, ""}, "signInToPlan": {[5]int{402, 402, 402, 402, 402}, ""},
		"readWallet": {keyed, ""}, "exportWallet": {keyed, ""}, "useFaucet": {keyed, "{}"},
		"createPermission": {created, `{"planId":"` + plan + `"}`}, "listPermissions": {keyed, ""}, "readPermission": {mine, ""}, "revokePermission": {mine, ""},
		"createKey": {created, `{}`}, "listKeys": {keyed, ""}, "listOrganizations": {keyed, ""}, "listMyMemberships": {keyed, ""}, "deleteWorkspace": {[5]int{401, 401, 404, 404, 403}, ""}, "readWorkspace": {[5]int{401, 401, 404, 404, 200}, ""}, "renameWorkspace": {[5]int{401, 401, 404, 404, 200}, `{"name":"x"}`}, "readKey": {mine, ""}, "readKeyCalls": {mine, ""}, "updateKey": {mine, `{"name":"y"}`}, "rotateKey": {[5]int{401, 401, 404, 404, 201}, "{}"}, "revokeKey": {mine, ""},
		"signUp": {[5]int{400, 400, 400, 400, 400}, "{}"}, "signIn": {[5]int{401, 401, 401, 401, 401}, "{}"},
		"readSession": {human, ""}, "proveSession": {human, "{}"}, "signOut": {human, ""}, "acceptInvitation": {human, "{}"}, "listSessions": {human, ""}, "endSession": {human, ""},
		"listCredentials": {human, ""}, "removeCredential": {human, ""}, "renewRecoveryCodes": {human, ""}, "listMemberSessions": {[5]int{401, 401, 404, 404, 404}, ""}, "endMemberSessions": {[5]int{401, 401, 404, 404, 404}, ""},
		"listMembers": {keyed, ""}, "listAuditLog": {keyed, ""}, "listInvitations": {keyed, ""}, "createInvitation": {created, `{"role":"viewer"}`}, // of workspaces without people
		"setRole": {[5]int{401, 401, 404, 404, 404}, `{"role":"viewer"}`}, "removeMember": {[5]int{401, 401, 404, 404, 404}, ""}, "revokeInvitation": {[5]int{401, 401, 404, 404, 404}, ""},
		"startSimulation": {keyed, "{}"}, "finishSimulation": {mine, `{"agentRequestId":"` + rehearsed + `"}`},
		"retiredMPP": {[5]int{501, 501, 501, 501, 501}, "{}"}, "retiredMPPOf": {[5]int{501, 501, 501, 501, 501}, "{}"},
		"retiredRedeem": {gone, ""}, "retiredBurn": {gone, ""}, "retiredInitialize": {gone, ""}, "retiredToken": {gone, ""}, "retiredValidate": {gone, ""},
	}
	changes := map[string]bool{
		"renameWorkspace": true,
		"registerAgent":   true, "registerAgentWithPlan": true, "registerPlan": true, "orderPlan": true, "mintCredits": true, "mintExpirableCredits": true, "takeBackCredits": true,
		"createWebhook": true, "updateWebhook": true, "deleteWebhook": true, "testWebhook": true, "rotateWebhook": true, "resendDelivery": true,
		"recordSubTask": true, "openCheckout": true, "openStripePayment": true, "createDelegation": true, "revokeDelegation": true, "updatePaymentMethod": true, "deletePaymentMethod": true,
		"updateAgent": true, "setAgentListed": true, "attachPlan": true, "detachPlan": true, "addEndpoints": true, "updatePlan": true, "setPlanListed": true,
		"settle": true, "renew": true, "release": true, "createPermission": true, "revokePermission": true, "createKey": true, "updateKey": true, "revokeKey": true, "rotateKey": true, "exportWallet": true, "createInvitation": true,
	}
	noted := map[string]bool{} // in the audit log
	for _, r := range api.Routes() {
		noted[r.Operation] = changes[r.Operation] && !slices.Contains([]toll.Right{toll.RightSell, toll.RightSpend}, r.Right)
	}
	noted["createDelegation"] = true // its limits are proved by the audit
	delete(noted, "testWebhook")     // they change nothing that stays
	delete(noted, "resendDelivery")
	acts := func(who actor) (n int64) {
		t.Helper()
		must.Do(t, s.store.QueryRow(t.Context(), "SELECT COUNT(*) FROM audit_log WHERE actor_kind = 'key' AND actor = $1", who.keyID.String()).Scan(&n))
		return n
	}
	documented := 0
	version := commits(t, s.store)
	seen, before := version(), dump(t, s.store)
	for _, op := range s.operations(t) {
		documented++
		row, ok := table[op.id]
		if !ok {
			t.Errorf("%s is not in the matrix", op.id)
			continue
		}
		agent, plan, delegation, card, hook := agent, plan, delegation, "pm_kept", hook // those that other rows need stay as they are
		switch op.id {
		case "openCheckout":
			plan = fiat
		case "deleteWebhook":
			hook = doomedHook
		case "revokeDelegation":
			delegation = doomedDelegation
		case "deletePaymentMethod":
			card = "pm_doomed"
		case "attachPlan":
			plan = loose
		case "detachPlan", "updateAgent", "addEndpoints", "setAgentListed", "updatePlan", "setPlanListed":
			agent, plan = spareAgent, spare
		}
		path := strings.NewReplacer("{workspace}", s.b1.address.Lower(), "{userId}", toll.NewUUID(), "{sessionId}", toll.NewUUID(), "{credentialId}", toll.NewUUID(), "{transaction}", mirroredBurn.String(), "{state}", "false", "{delegationId}", delegation, "{paymentMethodId}", card, "{webhookId}", hook, "{deliveryId}", sent, "{agentId}", agent, "{planId}", plan, "{address}", s.s1.address.String(), "{orderId}", order, "{agentRequestId}", request).Replace(op.path)
		key, hash := s.b1.keyID.String(), permission
		switch op.id {
		case "findSettlement":
			path += "?transaction=" + transaction
		case "listSubTasks":
			path += "?agentRequestId=" + request
		case "revokePermission":
			hash = doomedPermission
		case "rotateKey":
			key = turnedKey.keyID.String()
		case "revokeKey":
			key = doomedKey.keyID.String()
		}
		path = strings.NewReplacer("{id}", key, "{hash}", hash).Replace(path)
		for i, c := range callers {
			method := op.method
			if op.id == "followEvents" {
				method = "HEAD" // the stream itself would not end
			}
			were := acts(c.who)
			a := s.do(c.who, method, path, row.body)
			if n := acts(c.who) - were; (n > 0) != (noted[op.id] && row.want[i] < 300) {
				t.Errorf("%s by %s: %d acts in the audit log", op.id, c.name, n)
			}
			if a.status != row.want[i] {
				t.Errorf("%s by %s: %d, want %d: %.300s", op.id, c.name, a.status, row.want[i], a.body)
			}
			allowed := row.want[i] < 300 && changes[op.id]
			after := before
			if now := version(); now != seen { // else nobody wrote anything
				seen, after = now, dump(t, s.store)
			}
			if !allowed && after != before {
				t.Errorf("%s by %s changed the database", op.id, c.name)
			} else if allowed && after == before {
				t.Errorf("%s by %s changed nothing, so its row proves nothing", op.id, c.name)
			}
			before = after
		}
	}
	if documented != len(table) {
		t.Errorf("%d operations in the document, %d in the matrix", documented, len(table))
	}
}

// An operator can close the reads that are open otherwise; the documents about the service stay open.
func TestClosedReads(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	agent := s.agent(s.b1, plan)
	closed := api.New(s.deps(func(d *api.Deps) { d.Policy.CloseReads = true }))
	for _, path := range []string{
		"/protocol/plans/" + plan, "/protocol/plans/" + plan + "/agents", "/protocol/agents/" + agent, "/protocol/agents/" + agent + "/plans",
		"/protocol/plans/" + plan + "/balance/" + s.s1.address.String(),
	} {
		if a := s.do(actor{}, "GET", base+path, ""); a.status != 200 {
			t.Errorf("open %s: %d %s", path, a.status, a.body)
		}
		if a := s.through(closed, actor{}, "GET", base+path, ""); a.status != 401 || a.code() != "BCK.AUTH.0002" && a.code() != "BCK.AUTH.0012" {
			t.Errorf("closed %s: %d %s", path, a.status, a.body)
		}
		if a := s.through(closed, s.b2, "GET", base+path, ""); a.status != 200 {
			t.Errorf("closed %s with a key: %d %s", path, a.status, a.body)
		}
		if a := s.through(closed, s.keyWith(s.b2, toll.RightSell), "GET", base+path, ""); a.status != 403 || a.code() != string(toll.CodeRightMissing) {
			t.Errorf("closed %s without the right read: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/", "/health", "/.well-known/jwks.json", "/openapi.json", "/docs"} {
		if a := s.through(closed, actor{}, "GET", path, ""); a.status != 200 {
			t.Errorf("closed %s: %d", path, a.status)
		}
	}
}

type operation struct{ id, method, path string }

// operations reads the document that the service serves.
func (s *stack) operations(t *testing.T) []operation {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		}
	}
	must.Do(t, json.Unmarshal(s.do(actor{}, "GET", "/openapi.json", "").body, &doc))
	var out []operation
	for path, methods := range doc.Paths {
		for method, op := range methods {
			out = append(out, operation{op.OperationID, strings.ToUpper(method), path})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].id < out[j].id })
	return out
}
