package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// consentRule decides what the core may ask of the service: nothing that pays, raises a limit or
// names a new recipient without a quote of exactly these terms in this conversation, at most ten
// minutes before, and a confirmation by the owner after it. One quote allows one act.
type consentRule struct {
	shown []shownQuote
	// halves are confirmed limits whose delegation was asked for and whose answer got lost: the call
	// again asks for the access token under the same confirmation.
	halves  []shownQuote
	allowed map[string]string // what was allowed, by its Idempotency-Key: it may be repeated
	budgets map[string]budget // the delegations that were allowed, by id
	counts  map[string]int    // acts by kind
}

// budget is what a delegation can pay.
type budget struct{ plan, limit, card string }

// shownQuote is a quote as a person saw it.
type shownQuote struct {
	conversation string
	terms        string
	at           time.Time
}

// toolCall is a call of a tool, as the test made it.
type toolCall struct {
	conversation string
	tool         string // without the word of the namespace
	args         map[string]any
	owner        bool
	facts        func(plan string) string // of a plan at this moment, see hostileWorld.facts
	at           time.Time
	taken        string // terms of the quote that this call used up
}

// write is a request of the core that is no read.
type write struct {
	path, body, key string
	answer          string // of the service, also when the core did not get it
}

// confirmed: true and "true", and nothing else.
func (c *toolCall) confirmed() bool { return c.args["confirm"] == true || c.args["confirm"] == "true" }

func (c *toolCall) text(name string) string {
	if s, ok := c.args[name].(string); ok {
		return s
	}
	return ""
}

// terms joins what a person agrees to.
func terms(parts ...any) string {
	b, _ := json.Marshal(parts)
	return string(b)
}

// show notes the quote of an answer.
func (r *consentRule) show(t *testing.T, c *toolCall, q result) {
	text := func(name string) string { return textOf(q[name]) }
	plan := text("planId")
	var is string
	switch c.tool {
	case "orderPlan", "orderFiatPlan":
		is = terms(c.tool, plan, c.facts(plan))
	case "getAccessToken", "queryAgent":
		d := budget{plan: plan, card: text("paymentMethodId")}
		is = limitTerms(c, d, text("spendingLimitCents"), q["delegationDurationSecs"]) + terms(q["orderLimit"])
		if agent := text("agentUrl"); c.tool == "queryAgent" && agent != c.text("agentUrl") {
			t.Errorf("the quote of %v shows the agent %q", c.args, agent)
		}
	case "createPlan", "registerAgent":
		price, _ := q["price"].(map[string]any)
		is = terms(c.tool, c.text("name"), c.text("planName"), c.text("agentUrl"), price["amounts"], price["receivers"])
	default:
		t.Errorf("%s answered with a quote: %v", c.tool, q)
	}
	if facts := c.facts(plan); facts != "" {
		if shown := terms(q["priceUnits"], q["credits"]); !strings.HasPrefix(facts, shown) {
			t.Errorf("the quote of %s shows %s; the plan has %s", c.tool, shown, facts)
		}
	}
	r.shown = append(r.shown, shownQuote{c.conversation, is, c.at})
}

// unanswered notes a call whose answers got lost.
func (r *consentRule) unanswered(c *toolCall) {
	if c.taken != "" && (c.tool == "getAccessToken" || c.tool == "queryAgent") {
		r.halves = append(r.halves, shownQuote{c.conversation, c.taken, c.at})
	}
}

// take uses up a quote of these terms, unless the call has used one already.
func (r *consentRule) take(c *toolCall, kind, is string) bool {
	if !c.owner || !c.confirmed() {
		return false
	}
	if c.taken != "" {
		return c.taken == is
	}
	fits := func(q shownQuote) bool {
		return q.conversation == c.conversation && q.terms == is && c.at.Sub(q.at) <= 10*time.Minute
	}
	if i := slices.IndexFunc(r.halves, fits); i >= 0 && kind == "token" {
		r.halves = slices.Delete(r.halves, i, i+1)
	} else if i := slices.IndexFunc(r.shown, fits); i >= 0 {
		r.shown = slices.Delete(r.shown, i, i+1)
	} else {
		return false
	}
	c.taken = is
	return true
}

// judge reports whether the core may send w during c; otherwise why says what w would do.
func (r *consentRule) judge(c *toolCall, w write, own string) (why string) {
	if said, ok := r.allowed[w.key]; ok && w.key != "" && said == w.path+w.body && c.owner {
		return "" // the same request again has no further effect
	}
	var body map[string]any
	_ = json.Unmarshal([]byte(w.body), &body)
	kind, is, free := r.terms(c, w, body, own)
	switch {
	case kind == "":
		return "an unknown request"
	case !c.owner, !free && !r.take(c, kind, is):
		return kind + " on " + is
	}
	r.counts[kind]++
	r.allowed[w.key] = w.path + w.body
	if kind == "delegation" {
		var made struct{ DelegationID string }
		_ = json.Unmarshal([]byte(w.answer), &made)
		r.budgets[made.DelegationID] = budget{textOf(body["planId"]), textOf(body["spendingLimitCents"]), textOf(body["providerPaymentMethodId"])}
	}
	return ""
}

// terms says what a request does and on which terms; free ones need no confirmation.
func (r *consentRule) terms(c *toolCall, w write, body map[string]any, own string) (kind, is string, free bool) {
	parts := strings.Split(strings.Trim(w.path, "/"), "/")
	last := parts[len(parts)-1]
	switch {
	case c.tool == "orderPlan" && last == "order", c.tool == "orderFiatPlan" && last == "checkout":
		plan := parts[len(parts)-2]
		return last, terms(c.tool, plan, c.facts(plan)), false
	case w.path == "/delegation/create":
		d := budget{textOf(body["planId"]), textOf(body["spendingLimitCents"]), textOf(body["providerPaymentMethodId"])}
		return "delegation", r.ordersOf(c, limitTerms(c, d, d.limit, body["durationSecs"])), false
	case w.path == "/x402/permissions" && (c.tool == "getAccessToken" || c.tool == "queryAgent"):
		config, _ := body["delegationConfig"].(map[string]any)
		if config == nil {
			return "token of credits", "", body["orderLimit"] == 0.0
		}
		d, ok := r.budgets[textOf(config["delegationId"])]
		limit, secs := digitsOf(c.args["spendingLimitCents"]), any(c.args["delegationDurationSecs"])
		if secs == nil {
			secs = "3600"
		}
		// Where orders do not bound what is spent, the delegation does.
		if !ok || d.plan != body["planId"] || body["orderLimit"] == nil && d.limit != limit {
			return "token of another delegation", "", false
		}
		return "token", limitTerms(c, d, limit, secs) + terms(body["orderLimit"]), false
	case w.path == "/protocol/plans" && c.tool == "createPlan", w.path == "/protocol/agents/plans" && c.tool == "registerAgent":
		return r.created(c, body, own)
	case strings.HasPrefix(w.path, "/x402/permissions/") && c.tool == "queryAgent":
		return "revocation", "", true
	}
	return "", "", false
}

// limitTerms is what a person agrees to for a spending limit, but for the number of orders.
func limitTerms(c *toolCall, d budget, limit string, secs any) string {
	agent := ""
	if c.tool == "queryAgent" {
		agent = c.text("agentUrl")
	}
	return terms(c.tool, d.plan, c.facts(d.plan), limit, digitsOf(secs), d.card, agent)
}

// ordersOf completes the terms of a delegation with the number of orders that the quote showed: the
// access token must have it.
func (r *consentRule) ordersOf(c *toolCall, begin string) string {
	for _, q := range slices.Backward(r.shown) {
		if q.conversation == c.conversation && strings.HasPrefix(q.terms, begin) {
			return q.terms
		}
	}
	return begin
}

// digitsOf writes a number of JSON as the text of it.
func digitsOf(v any) string {
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

func textOf(v any) string { s, _ := v.(string); return s }

// created is a plan that others may pay. Money to the own account needs no confirmation.
func (r *consentRule) created(c *toolCall, body map[string]any, own string) (kind, is string, free bool) {
	plan, agentURL, name := body, "", ""
	if inner, ok := body["plan"].(map[string]any); ok {
		agent, _ := body["agent"].(map[string]any)
		plan, agentURL = inner, addressOf(agent)
		name = nameOf(agent)
	}
	price, _ := plan["priceConfig"].(map[string]any)
	receivers, _ := price["receivers"].([]any)
	kind = "plan"
	if free = !slices.ContainsFunc(receivers, func(to any) bool { return to != own }); !free {
		kind = "plan for others"
	}
	if agentURL == "" {
		return kind, terms(c.tool, nameOf(plan), "", "", price["amounts"], receivers), free
	}
	return kind, terms(c.tool, name, nameOf(plan), agentURL, price["amounts"], receivers), free
}

func nameOf(v map[string]any) string {
	m, _ := v["metadataAttributes"].(map[string]any)
	s, _ := m["name"].(string)
	return s
}

func addressOf(agent map[string]any) string {
	api, _ := agent["agentApiAttributes"].(map[string]any)
	list, _ := api["endpoints"].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		for _, url := range m {
			s, _ := url.(string)
			return s
		}
	}
	return ""
}
