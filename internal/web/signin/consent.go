package signin

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
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/offer"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

const approve, deny = "approve", "deny"

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
	Offers   []*plan
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

// plan is an offer on the page of a consent.
type plan struct {
	*offer.Offer
	Server bool // its owner says that it is for the server that asks
}

func (p *plan) rank() (n int) {
	if !p.Server {
		n = 2
	}
	if !p.Ready() {
		n++
	}
	return n
}

func (p *plan) says() []string { return append(p.Says(), strconv.FormatBool(p.Server)) }

type purse struct{ ID, Text string }

func purses(c *page.Context) ([]purse, error) {
	list, err := page.PartOf[*toll.Delegation](c, list.Delegations, url.Values{"accessible": {"true"}, "pageSize": {strconv.Itoa(offer.Most)}})
	if err != nil {
		return nil, err
	}
	out := make([]purse, 0, len(list.Items))
	for _, d := range list.Items {
		text := toll.FormatAmount(toll.UnitsOfCents(int64(d.RemainingBudgetCents)), 6) + " " + strings.ToUpper(d.Currency) + " until " + page.Date(d.ExpiresAt.Time)
		out = append(out, purse{d.DelegationID, text})
	}
	return out, nil
}

type right struct {
	Right toll.Right
	Text  string
}

var rightTexts = map[toll.Right]string{
	toll.RightRead:   "Read your plans, agents, orders, credits, and access tokens",
	toll.RightSell:   "Sell for you: accept payments for your agents and burn the credits of subscribers",
	toll.RightSpend:  "Spend for you: create access tokens, buy plans, and use your payment methods",
	toll.RightManage: "Manage for you: change agents, plans, and webhooks, and grant credits of your plans",
}

type choice struct {
	Plan       toll.PlanID
	Limit      string
	Lifetime   string // seconds
	Delegation string
	Orders     string
	Rights     toll.Rights // nil: every one that is shown
}

func (c choice) Gives(r toll.Right) bool { return c.Rights == nil || c.Rights.Has(r) }

type lifetime struct {
	Secs  int64
	Label string
}

const defaultLifetime = 30 * toll.DaySecs

var lifetimes = []lifetime{
	{3600, "1 hour"}, {toll.DaySecs, "1 day"}, {7 * toll.DaySecs, "7 days"}, {defaultLifetime, "30 days"}, {90 * toll.DaySecs, "90 days"},
}

const mostOrders = 1000

// suggested is the choice of a person who changes nothing: a plan that the server takes, what there is of it, and no purse. Where the
// server's plan is not known, or two sellers claim the server, the person has to choose the plan.
func (a *asked) suggested() choice {
	c := choice{Lifetime: strconv.FormatInt(defaultLifetime, 10), Orders: "1"}
	if len(a.Offers) == 0 {
		return c
	}
	o := a.Offers[0]
	c.Limit = cmp.Or(o.Available, o.Grants, 1).String()
	otherSeller := slices.ContainsFunc(a.Offers, func(b *plan) bool { return b.Server && b.Owner != o.Owner })
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
func (w *Consent) read(ctx context.Context, owner toll.Address, a *asked, c choice) (oauth.Choice, string, error) {
	var out oauth.Choice
	if a.Key {
		return a.readRights(c)
	}
	at := slices.IndexFunc(a.Offers, func(o *plan) bool { return o.ID == c.Plan })
	if at < 0 {
		return out, "Choose a plan.", nil
	}
	chosen := a.Offers[at]
	out.PlanID = chosen.ID
	if chosen.Charges {
		limit, err := toll.ParseCredits(c.Limit)
		if err != nil || limit < 1 {
			return out, "The credit limit must be a whole number of at least 1.", nil
		}
		out.RedemptionLimit = &limit
	}
	for _, l := range lifetimes {
		if strconv.FormatInt(l.Secs, 10) == c.Lifetime {
			out.Lifetime = time.Duration(l.Secs) * time.Second
		}
	}
	if out.Lifetime == 0 {
		return out, "Choose when the access expires.", nil
	}
	if c.Delegation == "" {
		return out, "", nil
	}
	if !slices.ContainsFunc(a.Purses, func(p purse) bool { return p.ID == c.Delegation }) {
		return out, "Choose a delegation from the list.", nil
	}
	if err := w.Records.Checkout.Delegations.Usable(ctx, owner, nil, c.Delegation, chosen.Plan); err != nil {
		e := toll.AsError(err)
		if e.HTTPStatus() >= http.StatusInternalServerError {
			return out, "", err
		}
		return out, "This delegation cannot buy the plan: " + e.Text(), nil
	}
	orders, err := strconv.ParseInt(c.Orders, 10, 64)
	if err != nil || orders < 1 || orders > mostOrders {
		return out, "Maximum orders must be a whole number from 1 to 1000.", nil
	}
	out.DelegationID, out.OrderLimit = c.Delegation, &orders
	return out, "", nil
}

func (a *asked) readRights(c choice) (oauth.Choice, string, error) {
	rights := toll.Rights{}
	for _, r := range a.Rights {
		if c.Rights.Has(r.Right) {
			rights = append(rights, r.Right)
		}
	}
	if len(rights) == 0 || len(rights) != len(c.Rights) {
		return oauth.Choice{}, "Choose at least one right.", nil
	}
	return oauth.Choice{Rights: rights}, "", nil
}

type consentForm struct {
	*asked
	Choice    choice
	Lifetimes []lifetime
	Ticket    string
}

func showConsent(c *page.Context, status int, a *asked, sent choice, fault string) (page.View, error) {
	f := consentForm{asked: a, Choice: sent, Lifetimes: lifetimes, Ticket: c.Ticket(a.says()...)}
	return c.Show(status, "consent", page.Layout{Title: "Allow access?", Fault: fault, Body: f}, a.leads)
}

// authorizePage is GET and POST /oauth/authorize (RFC 6749, section 3.1).
func (w *Consent) authorizePage() page.Route {
	return route(page.PathAuthorize,
		func(c *page.Context) (page.View, error) { return w.authorize(c, c.R.URL.RawQuery) },
		func(c *page.Context) (page.View, error) { return w.authorize(c, c.Form.Get("request")) },
	)
}

// authorize answers a request to be let in. What it says is read again when the form comes back.
func (w *Consent) authorize(c *page.Context, request string) (page.View, error) {
	c.At = page.LocalPath(page.PathAuthorize + "?" + request)
	q, err := url.ParseQuery(request)
	if err != nil || c.At == "" {
		return nil, c.Refuse(http.StatusBadRequest, "The request from the app is malformed.")
	}
	auth, err := w.OAuth.Authorize(w.OAuth.From(c.R), q)
	var shown *oauth.PageError
	var back *oauth.RedirectError
	switch {
	case errors.As(err, &shown):
		return nil, c.Refuse(http.StatusBadRequest, shown.Error())
	case errors.As(err, &back):
		return refuseProgram(c, back)
	case err != nil:
		return nil, err
	}
	if !c.Sessions.Recent(c.Person) {
		return c.SignIn.Ask(c, http.StatusOK, "An app requests access to your workspace. Sign in to review the request.", c.At, "")
	}
	a, err := w.asksFor(c, request, auth)
	if err != nil {
		return nil, err
	}
	if c.R.Method != http.MethodPost {
		if err := w.OAuth.Shown(c.Ctx(), auth, c.Person.Address); err != nil {
			return nil, err
		}
		return showConsent(c, http.StatusOK, a, a.suggested(), "")
	}
	return w.decide(c, a,
		func(o oauth.Choice) (string, error) { return w.OAuth.Approve(c.Ctx(), auth, c.Person.Caller, o) },
		func() (string, error) { return w.OAuth.Deny(auth), nil },
		func(to string) (page.View, error) { return leaveFor(c, to, auth.RedirectHost) },
		func() (*asked, error) { return w.asksFor(c, request, auth) },
	)
}

// refuseProgram answers a request that is refused to its program: the browser goes to this computer at once, and elsewhere when
// the person has read where that is. What is no fault of the program is not told to it there: the person opens the page again.
func refuseProgram(c *page.Context, back *oauth.RedirectError) (page.View, error) {
	switch {
	case back.Local && c.R.Method == http.MethodPost:
		return leaveFor(c, back.URL, back.Host)
	case back.Local:
		return c.Redirect(http.StatusFound, back.URL)
	}
	if back.Status >= http.StatusInternalServerError {
		return nil, page.Unable(back.Status)
	}
	m := page.Message{
		Text: "The request from the app was rejected: " + back.Text, Fault: true,
		Next: "The address below is not verified. Follow the link only if you came from there.",
		// Nothing that a browser runs can be registered ([toll.ValidRedirect]).
		To: template.URL(back.URL), Host: page.AddressText(back.Host),
	}
	return c.Show(back.Status, "message", page.Layout{Title: page.TitleRefused, Body: m}, "")
}

// decide acts on a form that came back, once: the same form again gets the same answer.
func (w *Consent) decide(c *page.Context,
	a *asked, yes func(oauth.Choice) (string, error), no func() (string, error), done func(answer string) (page.View, error), again func() (*asked, error),
) (page.View, error) {
	sent := choiceIn(c.Form)
	ticket := c.Form.Get("ticket")
	if !c.Holds(ticket, a.says()...) {
		return showConsent(c, http.StatusForbidden, a, sent, "This form is out of date: the request changed, or you signed in again. Review it and decide again.")
	}
	if c.Form.Get("order") != "" {
		return w.order(c, a, sent, a.Back, again)
	}
	var act func() (string, error)
	switch c.Form.Get("decision") {
	case deny:
		act = no
	case approve:
		chosen, fault, err := w.read(c.Ctx(), c.Person.Address, a, sent)
		if err != nil {
			return nil, err
		}
		if fault != "" {
			return showConsent(c, http.StatusBadRequest, a, sent, fault)
		}
		act = func() (string, error) { return yes(chosen) }
	default:
		return showConsent(c, http.StatusBadRequest, a, sent, "Choose Allow or Deny.")
	}
	answer, err := c.Sessions.Once(c.Ctx(), ticket, act)
	if errors.Is(err, session.ErrAnswered) {
		return nil, c.Refuse(http.StatusConflict, "This form was already submitted.")
	}
	if e := toll.AsError(err); err != nil && e.HTTPStatus() < http.StatusInternalServerError {
		return showConsent(c, e.HTTPStatus(), a, sent, e.Text())
	}
	if err != nil {
		return nil, err
	}
	return done(answer)
}

// order orders a plan on the page of consent, once for each form: a free one, one that a card pays, on the page of the processor, or
// one that the wallet of the workspace pays. back is the page to which the person comes back from the card; again reads what is
// asked once more.
func (w *Consent) order(c *page.Context, a *asked, sent choice, back string, again func() (*asked, error)) (page.View, error) {
	id := toll.PlanID(c.Form.Get("order"))
	at := slices.IndexFunc(a.Offers, func(o *plan) bool { return o.ID == id })
	pay, err := c.Sessions.Once(c.Ctx(), c.Form.Get("ticket"), func() (string, error) {
		if at < 0 || a.Offers[at].Order == "" {
			return "", toll.Errorf(toll.CodeBadRequest, "This plan cannot be ordered here.")
		}
		return offer.Buy(c, a.Offers[at].Plan, back, back)
	})
	if errors.Is(err, session.ErrAnswered) {
		return nil, c.Refuse(http.StatusConflict, "This form was already submitted.")
	}
	if err != nil {
		return c.Rejected(err, func(status int, fault string) (page.View, error) {
			return showConsent(c, status, a, sent, "The plan was not ordered: "+fault)
		})
	}
	if pay != "" {
		return c.Redirect(http.StatusSeeOther, pay)
	}
	if a, err = again(); err != nil {
		return nil, err
	}
	next := a.suggested()
	if at := slices.IndexFunc(a.Offers, func(o *plan) bool { return o.ID == id }); at >= 0 {
		next.Plan, next.Limit = id, max(a.Offers[at].Available, a.Offers[at].Grants, 1).String()
	}
	return showConsent(c, http.StatusOK, a, next, "")
}

// leadsTo returns where the browser may go right after the form, as a source of the policy: only to a scheme of a program. See [leaveFor].
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
func leaveFor(c *page.Context, to, host string) (page.View, error) {
	if u, err := url.Parse(to); err != nil || !isWeb(u) {
		return c.Redirect(http.StatusFound, to)
	}
	m := page.Message{Text: "Your browser is opening the next page.", To: template.URL(to), Host: page.AddressText(host)}
	return c.Show(http.StatusOK, "message", page.Layout{Title: "Continue", Body: m, Refresh: to}, "")
}

// maxBack bounds the address to which a person comes back from the page of a card, in bytes.
const maxBack = 2048

func (w *Consent) asksFor(c *page.Context, request string, in *oauth.Authorization) (*asked, error) {
	a, err := w.asks(c, in.Client, in.Asked)
	if err != nil {
		return nil, err
	}
	a.Action, a.Request = page.PathAuthorize, request
	if back := c.Origin() + page.LocalPath(page.PathAuthorize+"?"+request); len(back) <= maxBack {
		a.Back = back
	}
	a.Answer, a.leads = page.AddressText(in.RedirectHost), leadsTo(in.RedirectURI)
	if agent := in.Client.Agent; agent != nil {
		a.Agent, a.AgentID, a.AgentOwner = cmp.Or(plain.Name(agent.Metadata.Name), "(unnamed)"), string(agent.ID), agent.Owner.String()
		a.NamesUs = page.NamesUs(agent.Metadata.Name)
		a.AnswerURL = page.AddressText(in.RedirectURI)
	}
	return a, nil
}

func (w *Consent) asksOn(c *page.Context, d *oauth.DeviceRequest) (*asked, error) {
	a, err := w.asks(c, d.Client, d.Asked)
	if err != nil {
		return nil, err
	}
	a.Action, a.Request = page.PathDevice, d.UserCode
	a.Back = c.Origin() + page.PathDevice + "?" + url.Values{"user_code": {d.UserCode}}.Encode()
	a.Device, a.Origin = d.UserCode, page.AddressText(d.Source)
	return a, nil
}

// rights says which rights of an API key a person can give, of those that are asked for.
func (a *asked) rights(who auth.Caller, asked toll.Rights) {
	if !who.Rights.Has(toll.RightKeys) {
		return
	}
	for _, r := range asked.Within(who.Gives()) {
		a.Rights = append(a.Rights, right{r, rightTexts[r]})
	}
}

// offers returns the plans among which a person can choose. Plans of the server at the resource come first, then those that can be
// paid with.
func (w *Consent) offers(c *page.Context, in oauth.Asked) ([]*plan, error) {
	all, err := w.Records.Offers(c.Ctx(), c.Person.Address, in, offer.Most)
	if err != nil {
		return nil, err
	}
	out := make([]*plan, 0, len(all))
	for _, one := range all {
		p := &plan{Offer: offer.Of(one.Plan, one.Balance), Server: one.Server}
		p.SetOrder(c)
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b *plan) int { return cmp.Compare(a.rank(), b.rank()) })
	return out, nil
}

// asks is what a program asks for, with the plans and the delegations among which the person chooses.
func (w *Consent) asks(c *page.Context, by oauth.Client, in oauth.Asked) (a *asked, err error) {
	a = &asked{
		Name: cmp.Or(plain.Name(by.Name), "Unnamed app"), NamesUs: !by.Ours && page.NamesUs(by.Name),
		ClientID: by.ID, Site: page.AddressText(by.Site), Website: page.AddressText(by.URI),
		Resource: page.AddressText(in.Resource), Scope: in.Scope, Key: in.Kind == oauth.KindAPIKey,
		named: in.PlanID != "" || in.AgentID != "",
	}
	a.rights(c.Person.Caller, in.Rights)
	if a.Key {
		return a, nil
	}
	a.Offers, err = w.offers(c, in)
	if err == nil && len(a.Offers) > 0 {
		a.Purses, err = purses(c)
	}
	return a, err
}

type deviceForm struct {
	Code   string
	Ticket string
}

// device is GET and POST /device (RFC 8628, section 3.3). Codes are looked up by forms only, of persons who signed in.
func (w *Consent) device() page.Route {
	return route(page.PathDevice, func(c *page.Context) (page.View, error) {
		if err := signedInForDevice(c); err != nil {
			return nil, err
		}
		return askCode(c, http.StatusOK, c.R.URL.Query().Get("user_code"), "")
	}, func(c *page.Context) (page.View, error) {
		c.At = page.PathDevice
		if err := signedInForDevice(c); err != nil {
			return nil, err
		}
		code := c.Form.Get("request")
		deciding := code != ""
		if !deciding {
			code = c.Form.Get("user_code")
			if !c.Holds(c.Form.Get("ticket"), formDevice) {
				return askCode(c, http.StatusForbidden, code, "This form belongs to another session. Submit it again.")
			}
		}
		d, err := w.OAuth.Device(w.OAuth.From(c.R), c.Person.Address, code)
		if e := toll.AsError(err); err != nil && e.HTTPStatus() < http.StatusInternalServerError {
			return askCode(c, e.HTTPStatus(), code, e.Text())
		}
		if err != nil {
			return nil, err
		}
		a, err := w.asksOn(c, d)
		if err != nil {
			return nil, err
		}
		if !deciding {
			return showConsent(c, http.StatusOK, a, a.suggested(), "")
		}
		return w.decide(c, a,
			func(chosen oauth.Choice) (string, error) {
				return "Access allowed.", w.OAuth.ApproveDevice(w.OAuth.From(c.R), code, c.Person.Caller, chosen)
			},
			func() (string, error) { return "Access denied.", w.OAuth.DenyDevice(c.Ctx(), code) },
			func(text string) (page.View, error) {
				return c.Show(http.StatusOK, "message", page.Layout{Title: "Done", Body: page.Message{Text: text, Next: "Return to the device. It continues automatically."}}, "")
			},
			func() (*asked, error) { return w.asksOn(c, d) },
		)
	})
}

// signedInForDevice returns nil for a person who proved a credential a short time ago, else it asks for a sign-in.
func signedInForDevice(c *page.Context) error {
	if c.Sessions.Recent(c.Person) {
		return nil
	}
	next := page.PathDevice
	if code := c.R.FormValue("user_code"); code != "" {
		next += "?" + url.Values{"user_code": {code}}.Encode()
	}
	return page.Instead(c.SignIn.Ask(c, http.StatusOK, "An app on a device requests access to your workspace. Sign in to review the request.", next, ""))
}

func askCode(c *page.Context, status int, code, fault string) (page.View, error) {
	return c.Show(status, "device", page.Layout{
		Title: "Approve a device", Fault: fault, Body: deviceForm{plain.Name(code), c.Ticket(formDevice)},
	}, "")
}

type cliForm struct {
	Start  oauth.Start
	Host   string // where the code goes
	AskKey bool   // nobody has signed in a short time ago
	Here   string // this page
	Ticket string
}

// cli is GET and POST /auth/cli: a person lets a program on the same computer have an API key of its own.
func (w *Consent) cli() page.Route {
	return route(page.PathCLI, func(c *page.Context) (page.View, error) {
		start, err := oauth.ParseStart(c.R.URL.Query())
		if err != nil {
			return nil, refuseStart(c, err)
		}
		return showCLI(c, http.StatusOK, start, "")
	}, func(c *page.Context) (page.View, error) {
		start, err := oauth.ParseStart(c.Form)
		if err != nil {
			return nil, refuseStart(c, err)
		}
		return w.letIn(c, start)
	})
}

// refuseStart says why a program cannot be let in, and what the person can do instead.
func refuseStart(c *page.Context, err error) error {
	e, _ := errors.AsType[oauth.StartError](err)
	return c.RefuseNext(http.StatusBadRequest, err.Error(), cmp.Or(e.Next, page.StartOver))
}

func showCLI(c *page.Context, status int, start oauth.Start, fault string) (page.View, error) {
	f := cliForm{Start: start, Host: start.Host(), AskKey: !c.Sessions.Recent(c.Person), Here: startPath(start)}
	if !f.AskKey {
		f.Ticket = c.Ticket(f.says()...)
	}
	return c.Show(status, "cli", page.Layout{Title: "Allow access from this computer?", Fault: fault, Body: f}, "http://"+f.Host)
}

func startPath(s oauth.Start) string {
	return page.PathCLI + "?" + url.Values{"callback_url": {s.Callback}, "state": {s.State}, "code_challenge": {s.Challenge}}.Encode()
}

func (f *cliForm) says() []string {
	return []string{formCLI, f.Start.Callback, f.Start.State, f.Start.Challenge}
}

func (w *Consent) letIn(c *page.Context, start oauth.Start) (page.View, error) {
	again := func(status int, fault string) (page.View, error) { return showCLI(c, status, start, fault) }
	var who auth.Caller
	switch key := strings.TrimSpace(c.Form.Get("api_key")); {
	case key != "":
		caller, err := w.Auth.Authenticate(c.Ctx(), []string{"Bearer " + key})
		if err != nil {
			return badKey(c, err, again)
		}
		who = caller
	case !c.Sessions.Recent(c.Person):
		return again(http.StatusUnauthorized, "Paste an API key.")
	case !c.Holds(c.Form.Get("ticket"), (&cliForm{Start: start}).says()...):
		return again(http.StatusForbidden, "This form belongs to another session. Review it and submit it again.")
	default:
		who = c.Person.Caller
	}
	code, err := w.OAuth.Issue(c.Ctx(), who, start)
	if e := toll.AsError(err); err != nil && e.Code == toll.CodeRightMissing {
		return again(e.HTTPStatus(), e.Text())
	}
	if err != nil {
		return nil, err
	}
	return c.Redirect(http.StatusSeeOther, start.Answer(code))
}
