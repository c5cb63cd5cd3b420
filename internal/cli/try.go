package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/x402"
)

func tryCommand(a *app) *cobra.Command {
	t := &trial{app: a}
	c := command("try AGENT", "Send a paid test request to your agent", func(cmd *cobra.Command, args []string) error {
		err := t.run(cmd.Context(), args[0])
		if _, isUsage := errors.AsType[usageError](err); err != nil && !isUsage {
			t.fail()
		}
		return err
	})
	c.Long = `Send a paid test request to an agent, to check that your server takes payments. The response goes to stdout, the burned credits and
the receipt to stderr. If a step fails, the command shows which one and what to do next.

The command calls the first HTTP endpoint of the agent, or the one in --endpoint. It pays with your credits, through an access token that is
valid for this request only. In a sandbox, if you sell the plan and have too few credits for a request, the command mints them for your
workspace. In a live environment, it mints no credits.`
	c.Example = "toll try Ask\ntoll try Ask --endpoint \"POST /ask\" --data '{\"prompt\":\"hello\"}'"
	f := c.Flags()
	f.StringVar(&t.endpoint, "endpoint", "", `HTTP method and path or URL, such as "POST /ask"; it must match an endpoint of the agent`)
	f.StringVarP(&t.request.data, "data", "d", "", "request body; @path reads it from a file, - from stdin; default {}, and none for GET and HEAD")
	f.DurationVar(&t.request.timeout, "timeout", callTime, "timeout of the whole test")
	a.completeArgs(c, "")
	return c
}

// trial is a paid test request.
type trial struct {
	*app
	endpoint string // as set on the command line
	request  callFlags
	step     string // that runs now; "" after a failure is shown
	agent    *toll.Agent
	plan     *toll.Plan // that pays
}

// fail shows the step that failed, once.
func (t *trial) fail() {
	if t.step != "" && !t.asJSON() {
		t.say("failed", "%s", t.step)
	}
	t.step = ""
}

func (t *trial) run(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, t.request.timeout)
	defer cancel()
	c := t.client()
	t.step = "find the agent"
	if err := t.findAgent(ctx, name); err != nil {
		return err
	}
	t.step = "choose an endpoint"
	e, err := testEndpoint(t.agent.API.Endpoints, t.endpoint)
	if err != nil {
		return err
	}
	t.step = "choose a plan that pays"
	if err := t.choosePlan(ctx); err != nil {
		return err
	}
	most := t.plan.Credits.MaxAmount
	t.step = "create an access token"
	token, err := c.AccessToken(ctx, t.plan.ID, client.WithAgent(t.agent.ID), client.WithRedemptionLimit(most), client.WithOrderLimit(0),
		client.WithExpiry(callTokenLife))
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTime)
		defer cancel()
		_ = c.RevokePermission(ctx, token.PermissionHash) // a token that has burned its limit is revoked already
	}()
	t.step = "call " + e.Verb + " " + e.URL
	return t.call(ctx, e, token.AccessToken)
}

func (t *trial) findAgent(ctx context.Context, name string) error {
	if t.set.key == "" {
		return toll.NewError(toll.CodeNotAuthenticated)
	}
	text, err := t.resolve(ctx, references[agentID.ref], name)
	if err != nil {
		return err
	}
	id, err := toll.ParseAgentID(text)
	if err != nil {
		return toll.Errorf(toll.CodeAgentNotFound, "You have no agent %q.", name).WithHint("toll agents list shows your agents.")
	}
	t.agent, err = t.client().Agent(ctx, id)
	return err
}

// testEndpoint returns the endpoint to call: the first one with an http or https URL without parameters, or else the chosen one, such as
// "POST /ask". A chosen path is on the server of an endpoint, and must match an endpoint.
func testEndpoint(all toll.EndpointList, chosen string) (e toll.Endpoint, err error) {
	if chosen != "" {
		if e, err = readEndpoint(chosen); err != nil {
			return e, err
		}
	}
	known := x402.NewEndpoints(all)
	var web toll.EndpointList
	for _, own := range all {
		u, err := url.Parse(own.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			continue
		}
		web = append(web, own)
		if chosen == "" {
			if !strings.ContainsAny(own.URL, "*{}") && !strings.Contains(u.Path, "/:") {
				return own, nil
			}
			continue
		}
		at, err := u.Parse(e.URL)
		if err != nil {
			break
		}
		if _, _, ok := known.Match(at.String(), e.Verb); ok {
			return toll.Endpoint{Verb: e.Verb, URL: at.String()}, nil
		}
	}
	switch {
	case len(web) == 0:
		return e, errors.New("the agent has no http or https endpoint: add one with toll agents add-endpoints")
	case chosen == "":
		return e, usagef("every endpoint of the agent has parameters: set --endpoint to one with values in their place; the agent has %s", endpointTexts(web))
	}
	return e, usagef("--endpoint %q does not match an endpoint of the agent: it has %s", chosen, endpointTexts(web))
}

// choosePlan chooses a plan of the agent for which the workspace has enough credits. In a sandbox, it mints the credits of a plan that the
// workspace sells.
func (t *trial) choosePlan(ctx context.Context) error {
	c := t.client()
	self, err := callerAddress(ctx, c)
	if err != nil {
		return err
	}
	t.about("AGENT", string(t.agent.ID))
	if len(t.agent.Plans) == 0 {
		return errors.New(t.withIDs("no plan is attached to the agent: attach one with toll agents attach PLAN --agent-id AGENT"))
	}
	var own, first *toll.Plan
	for _, ref := range t.agent.Plans[:min(len(t.agent.Plans), maxBought)] {
		p, err := c.Plan(ctx, ref.PlanID)
		if err != nil {
			return err
		}
		b, err := c.Balance(ctx, p.ID)
		if err != nil {
			return err
		}
		covers := func(n toll.Credits) bool { return p.Kind().Covers(b.Available, b.IsSubscriber, n) }
		if covers(p.Credits.MaxAmount) {
			t.plan = p
			return nil
		}
		if t.plan == nil && (covers(max(p.Credits.MinAmount, 1)) || p.Price.IsFree() && !p.IsTrial) {
			t.plan = p
		}
		if own == nil && p.Owner == self && p.Kind().Charges() {
			own = p
		}
		first = cmp.Or(first, p)
	}
	if own == nil && t.plan != nil {
		return nil
	}
	if own == nil {
		t.about("PLAN", string(first.ID))
		return toll.Errorf(toll.CodeInsufficientCredits, "You have no credits for this agent.").WithHint("Get credits with toll plans order PLAN.")
	}
	return t.mint(ctx, own, self)
}

// mint mints the credits of one request in a sandbox. In a live environment, it mints nothing, and returns an error if no plan can pay.
func (t *trial) mint(ctx context.Context, own *toll.Plan, self toll.Address) error {
	c := t.client()
	info, err := c.Info(ctx)
	if err != nil {
		return err
	}
	name, n := cmp.Or(own.Metadata.Name, string(own.ID)), own.Credits.MaxAmount
	if info.Environment != toll.Sandbox {
		if t.plan != nil {
			return nil
		}
		t.about("PLAN", string(own.ID))
		return toll.Errorf(toll.CodeInsufficientCredits, "You have no credits of your plan %s.", name).WithHint(fmt.Sprintf(
			"In a live environment, this command mints no credits. Mint them with toll plans mint PLAN --credits-receiver %s --credits-amount %s, "+
				"and then repeat the command.", self, n))
	}
	t.step = "mint credits"
	if _, err := c.Mint(ctx, own.ID, self, n, 0); err != nil {
		return err
	}
	t.plan = own
	t.remark("minted %s of your plan %s for this request", n.Text(), name)
	return nil
}

// remark shows a note, unless the output is for a program.
func (t *trial) remark(format string, args ...any) {
	if !t.asJSON() && t.set.output != formatQuiet {
		t.say("note", format, args...)
	}
}

func (t *trial) call(ctx context.Context, e toll.Endpoint, token string) error {
	t.request.method = e.Verb
	if !slices.Contains([]string{http.MethodGet, http.MethodHead}, e.Verb) {
		t.request.data = cmp.Or(t.request.data, "{}")
	}
	req, err := callRequest(ctx, &t.console, e.URL, t.request)
	if err != nil {
		return err
	}
	req.Header.Set(x402.HeaderSignature, token)
	t.remark("calling %s %s, paid with plan %s", e.Verb, e.URL, cmp.Or(t.plan.Metadata.Name, string(t.plan.ID)))
	res, err := callClient().Do(req)
	if err != nil {
		return fmt.Errorf("%w; check that your server, or its gate, is running at this address, and then repeat the command", noAnswer(err))
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		t.fail()
	}
	if err := callAnswer(t.app, res, "", t.hint); err != nil {
		if hint := hintOfStatus(res.StatusCode); hint != "" && !t.asJSON() {
			t.say("hint", "%s", t.withIDs(hint))
		}
		return err
	}
	if !hasReceipt(&t.console, res.Header) {
		return errors.New("your server responded without taking the payment: require payments in your code, or put a gate in front of it (toll gate)")
	}
	return nil
}

// hint is the next step after a 402 for the seller of an agent.
func (t *trial) hint(p x402.PaymentRequired) string {
	switch word, _, _ := strings.Cut(p.Error, ":"); word {
	case x402.ReasonInsufficientFunds, x402.ReasonPlanExpired:
		return hintOf(t.app, p)
	}
	return fmt.Sprintf("Your server must require payments with plan %s for agent %s, at most %s per request.",
		t.plan.ID, t.agent.ID, t.plan.Credits.MaxAmount.Text())
}

// hintOfStatus is the next step after a response with another status than 402.
func hintOfStatus(status int) string {
	switch {
	case status < 300, status == http.StatusPaymentRequired:
		return ""
	case status < 400:
		return "The command follows no redirects. Add the URL to which your server redirects with toll agents add-endpoints AGENT."
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed:
		return "Your server does not serve this method and path. toll agents get AGENT shows the endpoints of the agent; --endpoint chooses one."
	}
	return "Errors burn no credits. Find the cause in the log of your server, and then repeat the command."
}
