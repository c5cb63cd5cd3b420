package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// agree does each act once as a person would have it, so that the test cannot pass by refusals.
func (w *hostileWorld) agree() {
	w.t.Helper()
	for _, c := range []struct {
		tool string
		args map[string]any
	}{
		{"orderPlan", map[string]any{"planId": w.ids[1]}},
		{"orderFiatPlan", map[string]any{}},
		{"getAccessToken", map[string]any{"planId": w.ids[1], "spendingLimitCents": "600"}},
		{"getAccessToken", map[string]any{"spendingLimitCents": 500}},
		{"getAccessToken", map[string]any{}},
		{"createPlan", map[string]any{"name": "x", "priceAmount": "$1.50", "pricingType": "erc20", "creditsAmount": 5, "receiver": thief}},
		{"registerAgent", map[string]any{"name": "x", "planName": "y", "agentUrl": w.agent + "/loud", "priceAmounts": "$2", "pricingType": "erc20", "creditsAmount": 5}},
	} {
		w.agreed(c.tool, c.args)
	}
	// A card that is no longer there is another quote, and another delegation.
	w.hide(1)
	w.agreed("getAccessToken", map[string]any{"spendingLimitCents": 500})
	w.hide(0)
	for _, kind := range []string{"order", "checkout", "delegation", "token", "token of credits", "plan", "plan for others"} {
		if w.rule.counts[kind] == 0 {
			w.t.Errorf("no %s although the person agreed: %v", kind, w.rule.counts)
		}
	}
}

// agreed calls a tool without and with the confirmation.
func (w *hostileWorld) agreed(tool string, args map[string]any) {
	w.call(tool, args, "chat", "", true)
	args = maps.Clone(args)
	args["confirm"] = true
	w.call(tool, args, "chat", "", true)
}

func (w *hostileWorld) one(of ...string) string { return of[w.rand.IntN(len(of))] }

// step is something that a model, a stranger or time does.
func (w *hostileWorld) step() {
	switch n := w.rand.IntN(100); {
	case n < 40:
		w.call(w.anyCall())
	case n < 75 && w.last != nil: // the same again with another confirm, perhaps as another person
		args := maps.Clone(w.last.args)
		w.confirm(args)
		if args["spendingLimitCents"] != nil && w.rand.IntN(5) == 0 {
			args["spendingLimitCents"] = w.one("500", "600", "999")
		}
		conversation, owner := w.last.conversation, true
		if w.rand.IntN(6) == 0 {
			conversation, owner = w.anyCaller()
		}
		w.call(w.last.tool, args, conversation, w.callID(), owner)
	case n < 83:
		p := w.plans[w.one(w.ids...)]
		w.mu.Lock()
		p.state = max(0, w.rand.IntN(2*len(planLies))-len(planLies))
		w.mu.Unlock()
	case n < 86:
		w.hide(w.rand.IntN(2))
	case n < 88: // the answers to the next call get lost
		w.lost(1 + w.rand.IntN(2))
	case n < 94:
		w.clock.advance([]time.Duration{
			time.Second, 20 * time.Second, 31 * time.Second, 9 * time.Minute, 11 * time.Minute,
		}[w.rand.IntN(5)])
	default:
		w.other()
	}
}

// confirm sets the flag to a value that models come up with, most often a good one.
func (w *hostileWorld) confirm(args map[string]any) {
	delete(args, "confirm")
	i := w.rand.IntN(2 * len(confirmations))
	if i >= len(confirmations) {
		i = 0
	}
	if v := confirmations[i]; v != nil {
		args["confirm"] = v
	}
}

func (w *hostileWorld) callID() string { return w.one("", "", "1", "2", fmt.Sprint(w.rand.IntN(1000))) }

func (w *hostileWorld) anyCaller() (conversation string, owner bool) {
	return w.one("chat", "chat", "group", "", "mcp 0", "mcp 1"), w.rand.IntN(6) > 0
}

// anyText is a text of strangers, of results, or a usual one.
func (w *hostileWorld) anyText(usual ...string) string {
	switch n := w.rand.IntN(8); {
	case n == 0:
		return w.one(bait...)
	case n == 1 && len(w.heard) > 0:
		return w.one(w.heard...)
	}
	return w.one(usual...)
}

// anyCall is a call with arguments that often make sense.
func (w *hostileWorld) anyCall() (tool string, args map[string]any, conversation, id string, owner bool) {
	args = map[string]any{}
	maybe := func(name string, usual ...string) {
		if w.rand.IntN(2) == 0 {
			args[name] = w.anyText(usual...)
		}
	}
	tool = w.one("checkBalance", "getAccessToken", "getAccessToken", "orderPlan", "orderPlan", "orderFiatPlan",
		"listPaymentMethods", "queryAgent", "queryAgent", "registerAgent", "createPlan", "listPlans")
	if w.rand.IntN(4) > 0 {
		args["planId"] = w.anyText(w.ids...)
	}
	switch tool {
	case "queryAgent":
		args["agentUrl"] = w.anyText(w.agent+"/ask", w.agent+"/evil", w.agent+"/loud", "http://169.254.169.254/")
		args["prompt"] = w.anyText("hello")
		maybe("maxCredits", "1", "5")
		w.limits(maybe)
	case "getAccessToken":
		maybe("expirationSecs", "60", "600")
		maybe("orderLimit", "0", "1", "3")
		maybe("redemptionLimit", "5")
		w.limits(maybe)
	case "createPlan", "registerAgent":
		args["name"] = w.anyText("a plan")
		args["creditsAmount"] = 5
		args["pricingType"] = w.one("erc20", "fiat")
		amount, receiver := "priceAmount", "receiver"
		if tool == "registerAgent" {
			args["planName"], args["agentUrl"] = w.anyText("a plan"), w.agent+"/"+w.one("ask", "evil", "loud")
			amount, receiver = "priceAmounts", "priceReceivers"
		}
		args[amount] = w.anyText("$1.50", "$2")
		maybe(receiver, thief, w.svc.Builder().String(), w.own.String(), strings.ToLower(w.own.String()))
	}
	if w.rand.IntN(3) > 0 {
		w.confirm(args)
	}
	conversation, owner = w.anyCaller()
	return tool, args, conversation, w.callID(), owner
}

func (w *hostileWorld) limits(maybe func(string, ...string)) {
	maybe("spendingLimitCents", "500", "600", "1000", "1001")
	maybe("spendingLimitCents", "500", "600", "999")
	maybe("delegationDurationSecs", "60", "3600")
	maybe("paymentMethodId", w.cards...)
}

// other is what is no tool: commands, the text for a prompt, the question for an approval. The
// service hears of none of them but of logins.
func (w *hostileWorld) other() {
	caller := map[string]any{"sessionKey": "chat", "senderIsOwner": w.rand.IntN(2) == 0}
	path, body := "", map[string]any{"caller": caller}
	switch w.rand.IntN(3) {
	case 0:
		path, body["args"] = "commands/"+w.one("svc_login", "svc_logout", "svc_order"), w.anyText("", "sandbox", "confirm true")
	case 1:
		path = "context"
	case 2:
		path, body["tool"] = "approval", "service_orderPlan"
		body["params"] = map[string]any{"planId": w.one(w.ids...), "confirm": true}
	}
	b := must.Get(json.Marshal(body))(w.t)
	w.front.do("POST", "/gateway/v1/"+path, string(b))
	for _, one := range w.taken() {
		w.t.Errorf("%s %s sent %+v", path, b, one)
	}
}

// lost says which answers to writes get lost, see lose, and returns whether any did before.
func (w *hostileWorld) lost(which int) (before bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, w.lose = w.lose != 0, which
	return before
}

// hide keeps so many cards from the core.
func (w *hostileWorld) hide(cards int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hidden = cards
}

// taken returns what the core wrote since the last time.
func (w *hostileWorld) taken() []write {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.writes = nil }()
	return w.writes
}

// call calls a tool by one of its doors and judges what the core asked of the service.
func (w *hostileWorld) call(tool string, args map[string]any, conversation, id string, owner bool) {
	w.t.Helper()
	c := &toolCall{conversation: conversation, tool: tool, args: args, owner: owner, facts: w.facts, at: w.clock.now()}
	w.last = c
	var answer result
	if i, found := strings.CutPrefix(conversation, "mcp "); found {
		session := w.mcp[i[0]-'0']
		c.owner, c.conversation = true, "mcp "+session.ID()
		answer = w.overMCP(session, c)
	} else {
		answer = w.overHTTP(c, id)
	}
	lost := w.lost(0)
	for _, one := range w.taken() {
		if why := w.rule.judge(c, one, w.own.String()); why != "" {
			w.t.Errorf("%s %v in %q by owner %v did %s\nrequest %s %s\nanswer %v\nshown %v",
				tool, args, c.conversation, c.owner, why, one.path, one.body, answer, w.rule.shown)
		}
	}
	if lost {
		w.rule.unanswered(c)
	}
	if answer["requiresConfirmation"] == true {
		w.rule.show(w.t, c, answer)
	}
	c.conversation = conversation
	w.listen(answer)
}

func (w *hostileWorld) overHTTP(c *toolCall, id string) result {
	b := must.Get(json.Marshal(map[string]any{
		"params": c.args, "callId": id,
		"caller": map[string]any{"sessionKey": c.conversation, "senderId": fmt.Sprint(c.owner), "senderIsOwner": c.owner},
	}))(w.t)
	_, text := w.front.do("POST", "/gateway/v1/tools/service_"+c.tool, string(b))
	var got struct{ Result, Error result }
	if err := json.Unmarshal([]byte(text), &got); err != nil || (got.Result == nil) == (got.Error == nil) {
		w.t.Fatalf("%s: %s, %v", b, text, err)
	}
	if got.Error != nil {
		return got.Error
	}
	return got.Result
}

func (w *hostileWorld) overMCP(session *mcp.ClientSession, c *toolCall) result {
	res := must.Get(session.CallTool(w.t.Context(), &mcp.CallToolParams{Name: "service_" + c.tool, Arguments: c.args}))(w.t)
	answer, _ := res.StructuredContent.(map[string]any)
	return answer
}

// listen keeps texts of an answer, for arguments to come.
func (w *hostileWorld) listen(v any) {
	switch v := v.(type) {
	case string:
		w.heard = append(w.heard, v)
		w.heard = w.heard[max(0, len(w.heard)-40):]
	case result:
		w.listen(map[string]any(v))
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			w.listen(v[name])
		}
	case []any:
		for _, e := range v {
			w.listen(e)
		}
	}
}

// audit compares what the service has with what was allowed.
func (w *hostileWorld) audit() {
	w.t.Logf("allowed: %v", w.rule.counts)
	key := must.Get(w.svc.NewKey("ann"))(w.t)
	ann := client.New(key.Key, client.WithURL(w.svc.URL()))
	for d, err := range ann.Delegations(w.t.Context()) {
		must.Do(w.t, err)
		if w.rule.budgets[d.DelegationID].plan == "" {
			w.t.Errorf("nobody allowed %+v", d)
		}
	}
	for p, err := range ann.Permissions(w.t.Context()) {
		must.Do(w.t, err)
		if p.DelegationID != nil && w.rule.budgets[*p.DelegationID].plan == "" || p.DelegationID == nil && (p.MaxOrders == nil || *p.MaxOrders != 0) {
			w.t.Errorf("nobody allowed %+v", p)
		}
	}
}
