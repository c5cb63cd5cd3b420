package web

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauth"
)

// formConsent is the first word of what the ticket of that form says.
const formConsent = "consent"

// Decisions on a form.
const (
	approve = "approve"
	deny    = "deny"
)

// asked is what a program asks for, as a person reads it.
type asked struct {
	Request  string // the query of the program, or the code of a device
	Action   string // where the form goes
	Name     string // of the program, as it calls itself
	NamesUs  bool   // it is not ours, and its name looks as if
	ClientID string
	Site     string // host of the document that is its id; "" without one
	Website  string // as it says; "" for none
	Answer   string // host to which the answer goes; "" for a device
	Origin   string // of a device: where its request came from
	Device   string // of a device: the code that it shows
	Resource string
	Scope    string
	Key      bool    // an API key
	Rights   []right // of the API key, among which the person chooses
	Offers   []*offer
	Purses   []purse
	// Of a program that is not registered and names an agent as its id, else "".
	Agent, AgentID, AgentOwner string
	AnswerURL                  string // the whole address to which the answer goes
	Back                       string // this page, for the page of a card; "" when it is too long for that

	named bool   // the program names the plan or the agent
	leads string // where the browser goes then, as a source of the policy
}

// says is everything that the person agrees to, but for what they choose themselves.
func (a *asked) says() []string {
	s := []string{formConsent, a.Action, a.Request, a.Name, a.ClientID, a.Site, a.Website, a.Answer, a.Origin, a.Device, a.Resource, a.Scope, strconv.FormatBool(a.Key),
		a.Agent, a.AgentID, a.AgentOwner, a.AnswerURL}
	for _, o := range a.Offers {
		s = append(s, o.says()...)
	}
	for _, r := range a.Rights {
		s = append(s, string(r.Right))
	}
	return s
}

// right is a right as a person reads it.
type right struct {
	Right toll.Right
	Text  string
}

// rightTexts say what the rights are that a program can have.
var rightTexts = map[toll.Right]string{
	toll.RightRead:   "read your records: plans, agents, orders, credits, access tokens",
	toll.RightSell:   "sell for you: take payments of your agents, and burn credits of those who pay",
	toll.RightSpend:  "spend for you: make access tokens, buy plans, use your payment methods",
	toll.RightManage: "manage for you: change agents, plans and webhooks, and grant credits of your plans",
}

// choice is the form as it was sent, or as it is shown first.
type choice struct {
	Plan       toll.PlanID
	Limit      string
	Lifetime   string // seconds
	Delegation string
	Orders     string
	Rights     toll.Rights // nil: every one that is shown
}

// Gives reports whether a right is ticked.
func (c choice) Gives(r toll.Right) bool { return c.Rights == nil || c.Rights.Has(r) }

// lifetime is how long a program may be let in.
type lifetime struct {
	Secs  int64
	Label string
}

const defaultLifetime = 30 * toll.DaySecs

var lifetimes = []lifetime{
	{3600, "an hour"}, {toll.DaySecs, "a day"}, {7 * toll.DaySecs, "7 days"}, {defaultLifetime, "30 days"}, {90 * toll.DaySecs, "90 days"},
}

// mostOrders bounds how often a program may buy a plan.
const mostOrders = 1000

// suggested is the choice of a person who changes nothing: a plan that the server takes, what there
// is of it, and no purse. Where the server's plan is not known, or two sellers claim the server,
// the person has to choose the plan.
func (a *asked) suggested() choice {
	c := choice{Lifetime: strconv.FormatInt(defaultLifetime, 10), Orders: "1"}
	if len(a.Offers) == 0 {
		return c
	}
	o := a.Offers[0]
	c.Limit = cmp.Or(o.Available, o.Grants, 1).String()
	otherSeller := slices.ContainsFunc(a.Offers, func(b *offer) bool { return b.Server && b.Owner != o.Owner })
	if a.named || len(a.Offers) == 1 || o.Server && !otherSeller {
		c.Plan = o.ID
	}
	return c
}

func choiceIn(form url.Values) choice {
	get := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	rights := toll.Rights{}
	for _, word := range form["right"] {
		rights = append(rights, toll.Right(word))
	}
	return choice{toll.PlanID(get("plan")), get("limit"), get("lifetime"), get("delegation"), get("orders"), rights}
}

// read proves that a choice is one of those that the page gave, within its bounds. The second value says what is wrong.
func (w *Web) read(ctx context.Context, owner toll.Address, a *asked, c choice) (oauth.Choice, string, error) {
	var out oauth.Choice
	if a.Key {
		return a.readRights(c)
	}
	at := slices.IndexFunc(a.Offers, func(o *offer) bool { return o.ID == c.Plan })
	if at < 0 {
		return out, "Choose one of the plans.", nil
	}
	plan := a.Offers[at]
	out.PlanID = plan.ID
	if plan.Charges {
		limit, err := toll.ParseCredits(c.Limit)
		if err != nil || limit < 1 {
			return out, "The limit must be a whole number of credits, 1 at least.", nil
		}
		out.RedemptionLimit = &limit
	}
	for _, l := range lifetimes {
		if strconv.FormatInt(l.Secs, 10) == c.Lifetime {
			out.Lifetime = time.Duration(l.Secs) * time.Second
		}
	}
	if out.Lifetime == 0 {
		return out, "Choose one of the times.", nil
	}
	if c.Delegation == "" {
		return out, "", nil
	}
	if !slices.ContainsFunc(a.Purses, func(p purse) bool { return p.ID == c.Delegation }) {
		return out, "Choose one of the delegations, or none.", nil
	}
	if err := w.Checkout.UsableDelegation(ctx, owner, nil, c.Delegation, plan.plan); err != nil {
		e := toll.AsError(err)
		if e.HTTPStatus() >= http.StatusInternalServerError {
			return out, "", err
		}
		return out, "This delegation cannot buy the plan: " + e.Text(), nil
	}
	orders, err := strconv.ParseInt(c.Orders, 10, 64)
	if err != nil || orders < 1 || orders > mostOrders {
		return out, "The number of orders must be 1 to 1000.", nil
	}
	out.DelegationID, out.OrderLimit = c.Delegation, &orders
	return out, "", nil
}

// readRights is read for an API key.
func (a *asked) readRights(c choice) (oauth.Choice, string, error) {
	rights := toll.Rights{}
	for _, r := range a.Rights {
		if c.Rights.Has(r.Right) {
			rights = append(rights, r.Right)
		}
	}
	if len(rights) == 0 || len(rights) != len(c.Rights) {
		return oauth.Choice{}, "Choose at least one of the rights.", nil
	}
	return oauth.Choice{Rights: rights}, "", nil
}

// consentForm is the page on which a person decides.
type consentForm struct {
	*asked
	Choice    choice
	Lifetimes []lifetime
	Ticket    string
}

func showConsent(v *visit, status int, a *asked, c choice, fault string) {
	f := consentForm{asked: a, Choice: c, Lifetimes: lifetimes, Ticket: v.ticket(a.says()...)}
	v.show(status, "consent", shown{Title: "Let a program in?", Fault: fault, Body: f}, a.leads)
}

// Authorize is GET and POST /oauth/authorize (RFC 6749, section 3.1).
func (w *Web) Authorize() http.Handler {
	return w.page(
		func(v *visit) { authorize(v, v.r.URL.RawQuery) },
		func(v *visit) { authorize(v, v.form.Get("request")) },
	)
}

// authorize answers a request to be let in. What it says is read again when the form comes back.
func authorize(v *visit, request string) {
	v.at = place(PathAuthorize + "?" + request)
	q, err := url.ParseQuery(request)
	if err != nil || v.at == "" {
		v.refuse(http.StatusBadRequest, "The request could not be read.")
		return
	}
	auth, err := v.w.OAuth.Authorize(v.w.OAuth.From(v.r), q)
	var shown *oauth.PageError
	var back *oauth.RedirectError
	switch {
	case errors.As(err, &shown):
		v.refuse(http.StatusBadRequest, shown.Error())
		return
	case errors.As(err, &back):
		refuseProgram(v, back)
		return
	case err != nil:
		v.fail(err)
		return
	}
	if !v.w.fresh(v.person) {
		askSignIn(v, http.StatusOK, "A program asks for access to your account. Sign in to read what it wants, and to decide.", v.at, "")
		return
	}
	a, err := asksFor(v, v.ctx(), request, auth)
	if err != nil {
		v.fail(err)
		return
	}
	if v.r.Method != http.MethodPost {
		if err := v.w.OAuth.Shown(v.ctx(), auth, v.person.Address); err != nil {
			v.fail(err)
			return
		}
		showConsent(v, http.StatusOK, a, a.suggested(), "")
		return
	}
	decide(v, a,
		func(c oauth.Choice) (string, error) { return v.w.OAuth.Approve(v.ctx(), auth, v.person.Caller, c) },
		func() (string, error) { return v.w.OAuth.Deny(auth), nil },
		func(to string) { leaveFor(v, to, auth.RedirectHost) },
		func() (*asked, error) { return asksFor(v, v.ctx(), request, auth) },
	)
}

// refuseProgram answers a request that is refused to its program: the browser goes to this computer at once, and elsewhere when
// the person has read where that is. What is no fault of the program is not told to it there: the person opens the page again.
func refuseProgram(v *visit, back *oauth.RedirectError) {
	switch {
	case back.Local && v.r.Method == http.MethodPost:
		leaveFor(v, back.URL, back.Host)
		return
	case back.Local:
		v.redirect(http.StatusFound, back.URL)
		return
	}
	if back.Status >= http.StatusInternalServerError {
		v.unable(back.Status)
		return
	}
	m := message{
		Text: "The request of the program is refused: " + back.Text, Fault: true,
		Next: "Nobody has checked who is at the address below. Go there only if you came from there.",
		// Nothing that a browser runs can be registered ([toll.ValidRedirect]).
		To: template.URL(back.URL), Host: addressText(back.Host),
	}
	v.show(back.Status, "message", shown{Title: titleRefused, Body: m}, "")
}

// decide acts on a form that came back, once: the same form again gets the same answer.
func decide(v *visit,
	a *asked, yes func(oauth.Choice) (string, error), no func() (string, error), done func(answer string), again func() (*asked, error),
) {
	c := choiceIn(v.form)
	ticket := v.form.Get("ticket")
	if !v.holds(ticket, a.says()...) {
		showConsent(v, http.StatusForbidden, a, c, "This is not the form that you were shown: what is asked for has changed since, or you signed in again. Read it once more.")
		return
	}
	if v.form.Get("order") != "" {
		order(v, a, c, a.Back, again)
		return
	}
	var act func() (string, error)
	switch v.form.Get("decision") {
	case deny:
		act = no
	case approve:
		chosen, fault, err := v.w.read(v.ctx(), v.person.Address, a, c)
		if err != nil {
			v.fail(err)
			return
		}
		if fault != "" {
			showConsent(v, http.StatusBadRequest, a, c, fault)
			return
		}
		act = func() (string, error) { return yes(chosen) }
	default:
		showConsent(v, http.StatusBadRequest, a, c, "Allow it or refuse it.")
		return
	}
	answer, err := v.w.once(v.ctx(), ticket, act)
	if errors.Is(err, errAnswered) {
		v.refuse(http.StatusConflict, "This form was answered before.")
		return
	}
	if e := toll.AsError(err); err != nil && e.HTTPStatus() < http.StatusInternalServerError {
		showConsent(v, e.HTTPStatus(), a, c, e.Text())
		return
	}
	if err != nil {
		v.fail(err)
		return
	}
	done(answer)
}

// leadsTo returns where the browser may go right after the form, as a source of the policy: only to a scheme of a program. See
// [leaveFor].
func leadsTo(redirect string) string {
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme == "" || isWeb(u) {
		return ""
	}
	return u.Scheme + ":"
}

func isWeb(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" }

// leaveFor sends the browser to an address outside after a form. A browser holds a redirect to the form-action of the page, and so
// would the redirects of the other site be; a page that leads on is held to neither. Schemes of programs get the redirect: browsers
// open a program only after an act of the person.
func leaveFor(v *visit, to, host string) {
	if u, err := url.Parse(to); err != nil || !isWeb(u) {
		v.redirect(http.StatusFound, to)
		return
	}
	m := message{Text: "Your browser opens the next page.", To: template.URL(to), Host: addressText(host)}
	v.show(http.StatusOK, "message", shown{Title: "Continue", Body: m, Refresh: to}, "")
}
