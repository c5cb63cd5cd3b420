package workspace

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
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
	"github.com/tollhq/toll/x402"
)

const (
	// tryLife is the life of the access token of a call from a page; the call ends it before.
	tryLife = 5 * time.Minute
	// tryTimeout bounds a call from a page.
	tryTimeout = 30 * time.Second
	// mostTries is how many calls from pages this process makes at a time, and mostTriesOf how many for one workspace.
	mostTries, mostTriesOf = 64, 2
	// mostTriesHour bounds the calls of a workspace from pages in an hour, because each response is stored for 20 minutes, with up to 130 KB.
	mostTriesHour = 600
	// maxTryBody bounds what is sent, in bytes, and maxTryText what is shown of an answer, in characters.
	maxTryBody, maxTryText = 8 << 10, 20_000
)

// tries counts the calls from pages that run, in all and by workspace.
type tries struct {
	mu   sync.Mutex
	all  int
	of   map[toll.Address]int
	hour *meter.Quota
}

func newTries() *tries {
	return &tries{of: map[toll.Address]int{}, hour: meter.NewQuota("test calls", 0, mostTriesHour)}
}

// take begins a call of a workspace, which ends with [tries.give]. Errors: [toll.CodeRateLimited].
func (t *tries) take(workspace toll.Address) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all >= mostTries || t.of[workspace] >= mostTriesOf {
		e := toll.Errorf(toll.CodeRateLimited, "Too many test calls are running. Try again in a minute.")
		e.RetryAfterSecs = int(tryTimeout / time.Second)
		return e
	}
	if e := t.hour.Take(workspace, 1); e != nil {
		return e.WithHint("Try again later, or call the agent with an access token.")
	}
	t.all++
	t.of[workspace]++
	return nil
}

func (t *tries) give(workspace toll.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[workspace]--; t.of[workspace] == 0 {
		delete(t.of, workspace)
	}
}

// tryPage is the form of a call, and the answer of the last one.
type tryPage struct {
	Agent, AgentTo string
	ID             string
	Address        page.Field
	Verb, Plan     page.Field
	Most, Body     page.Field
	Ticket, Action string
	Ready          bool   // a plan can pay
	Buy            string // page of the first plan; "" for none
	Mint           string // credits that a test call of the seller needs; "" where it has them, or is not the seller
	Result         *tried
	Share          string // page for buyers, once a test of the seller succeeded
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
	Asked       tryForm
}

// tryForm has the fields of the form.
type tryForm struct {
	Plan    toll.PlanID
	Address string
	Verb    string
	Most    toll.Credits
	Body    string
}

// tryCall is a call, and the agent and its plans.
type tryCall struct {
	tryForm
	agent *toll.Agent
	plans []*tryPlan // of the agent, among those that it sells
}

// tryPlan is a plan that may pay for a call.
type tryPlan struct {
	*toll.Plan
	left *toll.Balance
}

// Ready reports whether the plan can pay now.
func (p *tryPlan) Ready() bool {
	return p.Price.IsFree() && !p.IsTrial || p.Kind().Covers(p.left.Available, p.Kind().NeedsPeriod() && p.left.IsSubscriber, 1)
}

// tryAgent reads the agent that the page is about, and its plans.
func tryAgent(c *page.Context, q url.Values) (*tryCall, error) {
	id, err := toll.ParseAgentID(q.Get("agent"))
	asked := &tryCall{}
	if err == nil {
		asked.agent, err = c.API.Agent(c.Acting(), id)
	}
	if err != nil && (toll.AsError(err).HTTPStatus() == http.StatusNotFound || toll.AsError(err).Code == toll.CodeBadID) {
		return nil, c.Missing("agent")
	}
	for _, ref := range asked.plansOf() {
		var p *toll.Plan
		if p, err = c.API.Plan(c.Acting(), ref.PlanID); err != nil {
			break
		}
		var left *toll.Balance
		if left, err = c.API.Balance(c.Acting(), p.ID); err != nil {
			break
		}
		asked.plans = append(asked.plans, &tryPlan{p, left})
	}
	if err != nil {
		return nil, c.Failed("agent", err)
	}
	slices.SortStableFunc(asked.plans, func(a, b *tryPlan) int {
		switch {
		case a.Ready() == b.Ready():
			return 0
		case a.Ready():
			return -1
		}
		return 1
	})
	return asked, nil
}

func (c *tryCall) plansOf() []toll.PlanRef {
	if c.agent == nil {
		return nil
	}
	return c.agent.Plans[:min(len(c.agent.Plans), mostOffers)]
}

// ready are the plans that can pay.
func (c *tryCall) ready() []*tryPlan {
	return slices.DeleteFunc(slices.Clone(c.plans), func(o *tryPlan) bool { return !o.Ready() })
}

func showTry(c *page.Context) (page.View, error) {
	asked, err := tryAgent(c, c.R.URL.Query())
	if err != nil {
		return nil, err
	}
	asked.Plan = toll.PlanID(c.R.URL.Query().Get("plan"))
	if c.Form != nil {
		asked.read(c.Form)
	}
	result, err := lastTry(c)
	if err != nil {
		return nil, err
	}
	if result != nil {
		asked.tryForm = result.Asked
	}
	return drawTry(c, asked, result)
}

// lastTry returns the stored response to a form of this session, or nil.
func lastTry(c *page.Context) (result *tried, err error) {
	ticket := c.R.URL.Query().Get("form")
	if c.R.Method != http.MethodGet || !c.Holds(ticket, c.R.URL.Path) {
		return nil, nil
	}
	_, err = c.Sessions.Take(c.Ctx(), ticket, func(answer []byte) ([]byte, error) { return nil, json.Unmarshal(answer, &result) })
	return result, err
}

// read takes the form as it was sent.
func (c *tryCall) read(form url.Values) {
	c.Address, c.Verb, c.Plan, c.Body = strings.TrimSpace(form.Get("address")), form.Get("verb"), toll.PlanID(form.Get("plan")), form.Get("body")
}

func drawTry(c *page.Context, asked *tryCall, result *tried) (page.View, error) {
	content := tryPage{
		Agent: page.NameOf(asked.agent.Metadata.Name), AgentTo: "/a/" + string(asked.agent.ID), ID: string(asked.agent.ID), Result: result,
		Ticket: c.Ticket(c.R.URL.Path), Action: c.To("try") + "?agent=" + url.QueryEscape(string(asked.agent.ID)),
	}
	address, verb := asked.Address, asked.Verb
	if yours := asked.agent.Owner == c.Person.Address; yours && result != nil {
		if result.Transaction != "" && result.OK {
			content.Share = shareURL(c, asked.agent.ID)
		}
		if result.Status == http.StatusServiceUnavailable {
			result.Note = "Your server could not use its API key or reach this service; its log says which."
		}
	}
	var verbs, plans []page.Option
	for _, e := range asked.agent.API.Endpoints {
		if u, err := url.Parse(e.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		address, verb = cmp.Or(address, e.URL), cmp.Or(verb, e.Verb)
		if !slices.ContainsFunc(verbs, func(o page.Option) bool { return o.Value == e.Verb }) {
			verbs = append(verbs, page.Option{Value: e.Verb, Text: e.Verb})
		}
	}
	most := asked.Most
	for _, o := range asked.ready() {
		text := page.NameOf(o.Metadata.Name) + " (time plan)"
		if o.Kind().Charges() {
			text = page.NameOf(o.Metadata.Name) + " (" + o.left.Available.Text() + " left)"
		}
		plans = append(plans, page.Option{Value: string(o.ID), Text: text})
		if most == 0 && (asked.Plan == "" || asked.Plan == o.ID) {
			most = o.Credits.MaxAmount
		}
	}
	content.Ready = len(plans) > 0
	if !content.Ready && len(asked.plans) > 0 {
		o := asked.plans[0]
		content.Buy = "/p/" + string(o.ID) + "?agent=" + string(asked.agent.ID)
		if o.Owner == c.Person.Address && o.Kind().Charges() && c.Person.Rights.Has(toll.RightManage) {
			content.Mint = o.Credits.MaxAmount.Text()
		}
	}
	content.Address = page.Field{Name: "address", Label: "URL", Value: address, Max: toll.MaxURLRunes, Required: true, Type: "url", Hint: "An endpoint of the agent. Replace path parameters such as {id} or :id with values."}
	content.Verb = page.Field{Name: "verb", Label: "Method", Value: verb, Options: verbs}
	content.Plan = page.Field{Name: "plan", Label: "Plan", Value: string(asked.Plan), Options: plans}
	content.Most = page.Field{Name: "most", Label: "Maximum credits", Value: max(most, 1).String(), Unit: "credits", Mode: "numeric", Required: true, Max: 19}
	sample := `{"text": "Toll puts a price on AI agents."}`
	if verb == http.MethodGet || verb == http.MethodHead {
		sample = ""
	}
	content.Body = page.Field{Name: "body", Label: "Request body", Value: cmp.Or(asked.Body, sample), Area: true, Max: maxTryBody, Hint: "JSON or text. GET and HEAD requests have no body."}
	return c.Draw("Try the agent "+content.Agent, content)
}

// postTry makes the call, once for each form. The same form again gets the same answer.
func (w *pages) postTry(c *page.Context) (page.View, error) {
	asked, err := tryAgent(c, c.R.URL.Query())
	if err != nil {
		return nil, err
	}
	asked.read(c.Form)
	refuse := func(status int, fault string) (page.View, error) {
		c.Status, c.Fault = status, fault
		return drawTry(c, asked, nil)
	}
	if c.Form.Get("act") == "mint" {
		return mintToTry(c, asked, refuse)
	}
	i := slices.IndexFunc(asked.plans, func(o *tryPlan) bool { return o.ID == asked.Plan })
	most, err := toll.ParseCredits(c.Form.Get("most"))
	switch {
	case i < 0:
		return refuse(http.StatusBadRequest, "Choose a plan of this agent.")
	case err != nil || most < 1:
		return refuse(http.StatusBadRequest, "Maximum credits must be a whole number of at least 1.")
	case len(asked.Body) > maxTryBody:
		return refuse(http.StatusBadRequest, "The request body must be at most 8 KiB.")
	}
	asked.Most = most
	if _, _, ok := x402.NewEndpoints(asked.agent.API.Endpoints).Match(asked.Address, asked.Verb); !ok || w.outbound.Check(asked.Address) != nil {
		return refuse(http.StatusBadRequest, "The method and URL do not match an endpoint of the agent, or this service is not allowed to call the URL.")
	}
	_, err = c.Sessions.Once(c.Ctx(), c.Form.Get("ticket"), func() (string, error) {
		result, err := w.call(c, asked)
		if err != nil {
			return "", err
		}
		result.Asked = asked.tryForm
		b, err := json.Marshal(result)
		return string(b), err
	})
	if errors.Is(err, session.ErrAnswered) {
		return refuse(http.StatusConflict, "This call was already sent and is still running. You can find its receipt under Requests.")
	}
	if err != nil {
		return c.Rejected(err, refuse)
	}
	return c.Redirect(http.StatusSeeOther, c.To("try")+"?"+url.Values{"agent": {string(asked.agent.ID)}, "form": {c.Form.Get("ticket")}}.Encode())
}

// shareURL is the page of an agent for buyers.
func shareURL(c *page.Context, id toll.AgentID) string { return c.PublicURL + "/a/" + string(id) }

// mintToTry gives the workspace of the seller credits of its own plan: there is no free call.
func mintToTry(c *page.Context, asked *tryCall, refuse func(int, string) (page.View, error)) (page.View, error) {
	if len(asked.plans) == 0 || asked.plans[0].Owner != c.Person.Address {
		return refuse(http.StatusBadRequest, "You do not sell this plan.")
	}
	o := asked.plans[0]
	_, err := c.API.Mint(client.WithIdempotencyKey(c.Acting(), c.Form.Get("ticket")), o.ID, c.Person.Address, o.Credits.MaxAmount, 0)
	if err != nil {
		return c.Rejected(err, refuse)
	}
	return c.Redirect(http.StatusSeeOther, c.To("try")+"?agent="+url.QueryEscape(string(asked.agent.ID)))
}

// call calls the agent with an access token of the workspace: for this agent, with the limit that the page showed, without
// orders. The token ends with the call.
func (w *pages) call(c *page.Context, asked *tryCall) (*tried, error) {
	if err := w.tries.take(c.Person.Address); err != nil {
		return nil, err
	}
	defer w.tries.give(c.Person.Address)
	token, err := c.API.AccessToken(c.Acting(), asked.Plan, client.WithAgent(asked.agent.ID), client.WithRedemptionLimit(asked.Most),
		client.WithOrderLimit(0), client.WithExpiry(tryLife))
	if err != nil {
		return nil, err
	}
	defer func() {
		// One that burned all that it may has ended itself.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Acting()), session.AnswerWait)
		defer cancel()
		_ = c.API.RevokePermission(ctx, token.PermissionHash)
	}()
	header := http.Header{x402.HeaderSignature: {token.AccessToken}, "Accept": {"application/json, text/*;q=0.9, */*;q=0.1"}}
	var body []byte
	if asked.Verb != http.MethodGet && asked.Verb != http.MethodHead {
		body = []byte(asked.Body)
		header.Set("Content-Type", "text/plain; charset=utf-8")
		if json.Valid(body) {
			header.Set("Content-Type", "application/json")
		}
	}
	began := time.Now()
	answer, err := w.outbound.Do(c.Ctx(), asked.Verb, asked.Address, header, body)
	switch {
	case errors.Is(err, outbound.ErrRefused):
		return &tried{Fault: "This service is not allowed to call this URL."}, nil
	case errors.Is(err, outbound.ErrNoConnection):
		return &tried{Fault: "Could not connect to " + hostOf(asked.Address) + ". " + startServer(c, asked.agent) + " No credits were burned."}, nil
	case err != nil && time.Since(began) < tryTimeout:
		return &tried{Fault: "The agent closed the connection without a valid response. Find the outcome under Requests."}, nil
	case err != nil:
		return &tried{Fault: "The agent did not respond within 30 seconds. Find the outcome under Requests."}, nil
	}
	return triedOf(answer, time.Since(began)), nil
}

// hostOf is the host and port of an address.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the agent"
	}
	return page.AddressText(u.Host)
}

// startServer is the next step after a call without a connection.
func startServer(c *page.Context, a *toll.Agent) string {
	if a.Owner == c.Person.Address {
		return "Start your server, then send the request again."
	}
	return "Try again later."
}

// triedOf is an answer as the page shows it: text, never what a browser would run.
func triedOf(a *outbound.Answer, took time.Duration) *tried {
	t := &tried{
		Status: a.Status, OK: a.Status >= 200 && a.Status < 300, Millis: took.Milliseconds(), Type: plain.Name(a.Header.Get("Content-Type")),
		Text: plain.Lines(string(a.Body), maxTryText),
	}
	switch {
	case len(a.Body) == 0:
		t.Note = "The response is empty."
	case !utf8.Valid(a.Body) && len(a.Body) < outbound.MaxBody:
		t.Text, t.Note = "", "The response is not text: "+strconv.Itoa(len(a.Body))+" bytes."
	case len(a.Body) == outbound.MaxBody:
		t.Note = "The response is longer than 1 MiB. Only the beginning is shown."
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
