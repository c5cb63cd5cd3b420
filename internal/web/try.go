package web

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// tryLife is the life of the access token of a call from a page; the call ends it before.
	tryLife = 5 * time.Minute
	// tryTimeout bounds a call from a page.
	tryTimeout = 30 * time.Second
	// mostTries is how many calls from pages this process makes at a time, and mostTriesOf how many for one workspace.
	mostTries, mostTriesOf = 64, 2
	// maxTryBody bounds what is sent, in bytes, and maxTryText what is shown of an answer, in characters.
	maxTryBody, maxTryText = 8 << 10, 20_000
)

// tries counts the calls from pages that run, in all and by workspace.
type tries struct {
	mu  sync.Mutex
	all int
	of  map[toll.Address]int
}

// take reports whether a workspace may begin a call, which ends with [tries.give].
func (t *tries) take(workspace toll.Address) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= mostTries || t.of[workspace] >= mostTriesOf {
		return false
	}
	t.all++
	t.of[workspace]++
	return true
}

func (t *tries) give(workspace toll.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[workspace]--; t.of[workspace] == 0 {
		delete(t.of, workspace)
	}
}

// tryPages are the page on which a workspace calls an agent with its credits.
func tryPages() []areaPage {
	return []areaPage{{
		Path: "/try", Title: "Try it", Template: "try", Under: "/holdings", Right: toll.RightRead, Act: toll.RightSpend,
		Get: showTry, Post: postTry,
	}}
}

// tryPage is the form of a call, and the answer of the last one.
type tryPage struct {
	Agent, AgentTo string
	ID             string
	Address        field
	Verb, Plan     field
	Most, Body     field
	Ticket, Action string
	Ready          bool   // a plan can pay
	Buy            string // page of the first plan; "" for none
	Mint           string // credits that a test call of the seller needs; "" where it has them, or is not the seller
	Result         *tried
}

// tried is the answer of an agent.
type tried struct {
	Status      int
	OK          bool
	Text        string // "" of an empty answer
	Note        string
	Type        string
	Millis      int64
	Credits     string // burned, as the receipt says; "" without a receipt
	Transaction string
	Fault       string // why there is no answer
}

// tryCall is what the form of the page says.
type tryCall struct {
	agent   *toll.Agent
	plans   []*offer // of the agent, among those that it sells
	plan    toll.PlanID
	address string
	verb    string
	most    toll.Credits
	body    string
}

// tryAgent reads the agent that the page is about, and its plans. nil: the answer was written.
func tryAgent(v *visit, q url.Values) *tryCall {
	id, err := toll.ParseAgentID(q.Get("agent"))
	c := &tryCall{}
	if err == nil {
		c.agent, err = store.AgentByID(v.ctx(), v.w.Store, id)
	}
	if errors.Is(err, store.ErrNotFound) || err != nil && toll.AsError(err).Code == toll.CodeBadID {
		v.missing("agent")
		return nil
	}
	for _, ref := range c.plansOf() {
		var p *toll.Plan
		if p, err = store.PlanByID(v.ctx(), v.w.Store, ref.PlanID); err != nil {
			break
		}
		var o *offer
		if o, err = v.w.offer(v.ctx(), v.person.Address, p); err != nil {
			break
		}
		c.plans = append(c.plans, o)
	}
	if v.failed("agent", err) {
		return nil
	}
	slices.SortStableFunc(c.plans, func(a, b *offer) int {
		switch {
		case a.Ready() == b.Ready():
			return 0
		case a.Ready():
			return -1
		}
		return 1
	})
	return c
}

func (c *tryCall) plansOf() []toll.PlanRef {
	if c.agent == nil {
		return nil
	}
	return c.agent.Plans[:min(len(c.agent.Plans), mostOffers)]
}

// ready are the plans that can pay.
func (c *tryCall) ready() []*offer {
	return slices.DeleteFunc(slices.Clone(c.plans), func(o *offer) bool { return !o.Ready() })
}

func showTry(v *visit) {
	c := tryAgent(v, v.r.URL.Query())
	if c == nil {
		return
	}
	c.plan = toll.PlanID(v.r.URL.Query().Get("plan"))
	if v.form != nil {
		c.read(v.form)
	}
	drawTry(v, c, nil)
}

// read takes the form as it was sent.
func (c *tryCall) read(form url.Values) {
	c.address, c.verb, c.plan, c.body = strings.TrimSpace(form.Get("address")), form.Get("verb"), toll.PlanID(form.Get("plan")), form.Get("body")
}

func drawTry(v *visit, c *tryCall, result *tried) {
	page := tryPage{
		Agent: nameOf(c.agent.Metadata.Name), AgentTo: "/a/" + string(c.agent.ID), ID: string(c.agent.ID), Result: result,
		Ticket: v.ticket(v.r.URL.Path), Action: v.to("try") + "?agent=" + url.QueryEscape(string(c.agent.ID)),
	}
	address, verb := c.address, c.verb
	var verbs, plans []option
	for _, e := range c.agent.API.Endpoints {
		if u, err := url.Parse(e.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		address, verb = cmp.Or(address, e.URL), cmp.Or(verb, e.Verb)
		if !slices.ContainsFunc(verbs, func(o option) bool { return o.Value == e.Verb }) {
			verbs = append(verbs, option{Value: e.Verb, Text: e.Verb})
		}
	}
	most := c.most
	for _, o := range c.ready() {
		text := o.Name + ", time plan"
		if o.Charges {
			text = o.Name + ", " + o.Available.Text() + " left"
		}
		plans = append(plans, option{Value: string(o.ID), Text: text})
		if most == 0 && (c.plan == "" || c.plan == o.ID) {
			most = o.plan.Credits.MaxAmount
		}
	}
	page.Ready = len(plans) > 0
	if !page.Ready && len(c.plans) > 0 {
		o := c.plans[0]
		page.Buy = "/p/" + string(o.ID) + "?agent=" + string(c.agent.ID)
		if o.Owner == v.person.Address && o.Charges && v.person.Rights.Has(toll.RightManage) {
			page.Mint = o.plan.Credits.MaxAmount.Text()
		}
	}
	page.Address = field{Name: "address", Label: "Address", Value: address, Max: toll.MaxURLRunes, Required: true, Type: "url", Hint: "One of the endpoints of the agent. Fill in what stands in braces or after a colon."}
	page.Verb = field{Name: "verb", Label: "Method", Value: verb, Options: verbs}
	page.Plan = field{Name: "plan", Label: "Plan that pays", Value: string(c.plan), Options: plans}
	page.Most = field{Name: "most", Label: "It may burn at most", Value: max(most, 1).String(), Unit: "credits", Mode: "numeric", Required: true, Max: 19}
	page.Body = field{Name: "body", Label: "What to send", Value: cmp.Or(c.body, `{"text": "Toll puts a price on AI agents."}`), Area: true, Max: maxTryBody, Hint: "JSON, or any text. GET and HEAD send nothing."}
	v.draw("Try "+page.Agent, page)
}

// postTry makes the call, once for each form. The same form again gets the same answer.
func postTry(v *visit) {
	c := tryAgent(v, v.r.URL.Query())
	if c == nil {
		return
	}
	c.read(v.form)
	refuse := func(status int, fault string) {
		v.status, v.fault = status, fault
		drawTry(v, c, nil)
	}
	if v.form.Get("act") == "mint" {
		mintToTry(v, c, refuse)
		return
	}
	i := slices.IndexFunc(c.plans, func(o *offer) bool { return o.ID == c.plan })
	most, err := toll.ParseCredits(v.form.Get("most"))
	switch {
	case i < 0:
		refuse(http.StatusBadRequest, "Choose a plan of this agent.")
		return
	case err != nil || most < 1:
		refuse(http.StatusBadRequest, "The number of credits must be a whole number from 1 on.")
		return
	case len(c.body) > maxTryBody:
		refuse(http.StatusBadRequest, "What is sent has at most 8 KiB.")
		return
	}
	c.most = most
	if _, _, ok := x402.NewEndpoints(c.agent.API.Endpoints).Match(c.address, c.verb); !ok || v.w.outbound.Check(c.address) != nil {
		refuse(http.StatusBadRequest, "The address must be one of the endpoints of the agent, with its method, and one that this service may call.")
		return
	}
	text, err := v.w.once(v.ctx(), v.form.Get("ticket"), func() (string, error) {
		result, err := call(v, c)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(result)
		return string(b), err
	})
	if errors.Is(err, errAnswered) {
		refuse(http.StatusConflict, "This call was sent before, and it is still running. Its receipt will be in your requests.")
		return
	}
	if v.faulty(err, refuse) {
		return
	}
	var result tried
	if err := json.Unmarshal([]byte(text), &result); err != nil {
		v.fail(err)
		return
	}
	now := tryAgent(v, v.r.URL.Query()) // what the call left of each plan
	if now == nil {
		return
	}
	c.plans = now.plans
	drawTry(v, c, &result)
}

// mintToTry gives the workspace of the seller credits of its own plan: there is no free call.
func mintToTry(v *visit, c *tryCall, refuse func(int, string)) {
	if len(c.plans) == 0 || c.plans[0].Owner != v.person.Address {
		refuse(http.StatusBadRequest, "You do not sell this plan.")
		return
	}
	o := c.plans[0]
	_, err := v.w.API.Mint(client.WithIdempotencyKey(v.acting(), v.form.Get("ticket")), o.ID, v.person.Address, o.plan.Credits.MaxAmount, 0)
	if v.faulty(err, refuse) {
		return
	}
	v.redirect(http.StatusSeeOther, v.to("try")+"?agent="+url.QueryEscape(string(c.agent.ID)))
}

// call calls the agent with an access token of the workspace: for this agent, with the limit that the page showed, without
// orders. The token ends with the call.
func call(v *visit, c *tryCall) (*tried, error) {
	if !v.w.tries.take(v.person.Address) {
		e := toll.Errorf(toll.CodeRateLimited, "Other calls from pages of this workspace are running. Send it again in a minute.")
		e.RetryAfterSecs = int(tryTimeout / time.Second)
		return nil, e
	}
	defer v.w.tries.give(v.person.Address)
	token, err := v.w.API.AccessToken(v.acting(), c.plan, client.WithAgent(c.agent.ID), client.WithRedemptionLimit(c.most),
		client.WithOrderLimit(0), client.WithExpiry(tryLife))
	if err != nil {
		return nil, err
	}
	defer func() {
		// One that burned all that it may has ended itself.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.acting()), answerWait)
		defer cancel()
		_ = v.w.API.RevokePermission(ctx, token.PermissionHash)
	}()
	header := http.Header{x402.HeaderSignature: {token.AccessToken}, "Accept": {"application/json, text/*;q=0.9, */*;q=0.1"}}
	var body []byte
	if c.verb != http.MethodGet && c.verb != http.MethodHead {
		body = []byte(c.body)
		header.Set("Content-Type", "text/plain; charset=utf-8")
		if json.Valid(body) {
			header.Set("Content-Type", "application/json")
		}
	}
	began := time.Now()
	answer, err := v.w.outbound.Do(v.ctx(), c.verb, c.address, header, body)
	switch {
	case errors.Is(err, outbound.ErrRefused):
		return &tried{Fault: "This service does not call this address."}, nil
	case err != nil:
		return &tried{Fault: "No answer came within 30 seconds. What the agent did is in your requests."}, nil
	}
	return triedOf(answer, time.Since(began)), nil
}

// triedOf is an answer as the page shows it: text, never what a browser would run.
func triedOf(a *outbound.Answer, took time.Duration) *tried {
	t := &tried{
		Status: a.Status, OK: a.Status >= 200 && a.Status < 300, Millis: took.Milliseconds(), Type: plain.Name(a.Header.Get("Content-Type")),
		Text: plain.Lines(string(a.Body), maxTryText),
	}
	switch {
	case len(a.Body) == 0:
		t.Note = "The answer is empty."
	case !utf8.Valid(a.Body) && len(a.Body) < outbound.MaxBody:
		t.Text, t.Note = "", "The answer is not text: "+strconv.Itoa(len(a.Body))+" bytes."
	case len(a.Body) == outbound.MaxBody:
		t.Note = "The answer is longer than 1 MiB, of which this is the beginning."
	}
	var r x402.SettleResponse
	if value := a.Header.Get(x402.HeaderResponse); value != "" && x402.DecodeHeader(value, &r) == nil && r.Success {
		if r.CreditsRedeemed != nil {
			t.Credits = r.CreditsRedeemed.Text()
		}
		if tx, err := toll.ParseHash(r.Transaction); err == nil {
			t.Transaction = tx.String()
		}
	}
	return t
}
