package public

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/web/page"
)

// Cards is the card rail as persons meet it.
type Cards interface {
	rail.Enroller
	rail.Pages
}

const (
	// maxLink bounds the signature of a link, in bytes.
	maxLink = 4096
	// againWait is how long a person waits for the page of a new order.
	againWait = 20 * time.Second
	// retryPage is after how many seconds a browser may ask again for a page that cannot tell yet.
	retryPage = "5"
	// mostLooks is how often pages of an account may ask the processor at a time, and lookEvery how soon they may once more.
	mostLooks, lookEvery = 60, time.Second
	// seenCookie marks a browser that was shown the page of an order. It is sent to the pages of this order alone.
	seenCookie   = "checkout-seen"
	seenTime     = 2 * time.Hour
	fiatDecimals = 6
)

type orderState string

const (
	orderPay     orderState = "pay"     // a link leads to the page of the processor
	orderFrame   orderState = "frame"   // the form of the processor is in a frame
	orderUnpaid  orderState = "unpaid"  // the browser came back, and nothing was paid
	orderWaiting orderState = "waiting" // the processor has not decided
	orderAway    orderState = "away"    // the processor does not answer
	orderPaid    orderState = "paid"
	orderFailed  orderState = "failed"
	orderAgain   orderState = "again" // a new order in the place of a failed one
)

var orderTitles = map[orderState]string{
	orderPay: "Pay for your order", orderFrame: "Pay for your order", orderUnpaid: "Order not paid yet",
	orderWaiting: "Payment in progress", orderAway: "Card processor unavailable",
	orderPaid: "Order paid", orderFailed: "Order not paid", orderAgain: "Confirm your payment",
}

// checkoutPage is what a person reads of an order before it is paid, and after.
type checkoutPage struct {
	Name    string // of the plan, as its owner chose it, in one plain line
	Buys    string
	Price   string
	Seller  toll.Address
	OrderID string
	Test    bool // no money moves
	Charges bool // requests charge credits
	State   orderState
	Why     string      // why nothing was paid, of orderFailed
	Back    []string    // what went back of a paid order, in sentences; none when all of it stands
	Pay     string      // address of the page of the processor, of orderPay
	Link    string      // path and query of this page; for orderUnpaid, of the payment page
	Then    []page.Link // next steps of the subscriber after a payment; nil for other people
	Try     string      // page that calls the agent, beside Then; "" for none
	Next    *leave      // return address in the order; nil without one
}

type leave struct{ URL, Host string }

// leaveTo returns nil for no address. Orders are refused whose addresses are not http or https.
func leaveTo(address string) *leave {
	u, err := url.Parse(address)
	if address == "" || err != nil {
		return nil
	}
	return &leave{URL: address, Host: page.AddressText(u.Host)}
}

// linked opens the signed link of a page of an order. Every other link, that of another order or
// use, an ended one, and one of an order that is not here get the same answer.
func (w *pages) linked(c *page.Context, use rail.Use) (*records.LinkedOrder, error) {
	refuse := func() (*records.LinkedOrder, error) {
		m := page.Message{Text: "This link is invalid or has expired.", Fault: true, Next: page.StartOver}
		return nil, page.Instead(c.Show(http.StatusNotFound, "message", page.Layout{Title: page.TitleMissing, Body: m}, ""))
	}
	if w.Cards == nil {
		return nil, noCards(c)
	}
	text := c.R.URL.Query().Get("t")
	if text == "" || len(text) > maxLink {
		return refuse()
	}
	owner, id, ends, err := w.Records.Auth.OpenLink(string(use), text)
	if err != nil && toll.AsError(err).Code == toll.CodeDatabaseUnavailable {
		return nil, err
	}
	now := c.Machine // by which the processor ends its pages, whatever the clock of a sandbox says
	if use == rail.UseAgain {
		now = c.Clock
	}
	if err != nil || c.R.URL.Path != use.Path(id) || !now().Before(ends) {
		return refuse()
	}
	o, err := w.Records.LinkedOrder(c.Ctx(), id)
	if err != nil && toll.AsError(err).Code == toll.CodeOrderNotFound || err == nil && o.SubscriberAddress != owner {
		return refuse()
	}
	return o, err
}

func noCards(c *page.Context) error {
	return c.Refuse(http.StatusFailedDependency, toll.NewError(toll.CodeCardOff).Text())
}

// linkedPage returns a page of an order: get shows it, post acts.
func (w *pages) linkedPage(use rail.Use, get, post func(*page.Context, *records.LinkedOrder) (page.View, error)) page.Route {
	with := func(h func(*page.Context, *records.LinkedOrder) (page.View, error)) func(*page.Context) (page.View, error) {
		return func(c *page.Context) (page.View, error) {
			o, err := w.linked(c, use)
			if err != nil {
				return nil, err
			}
			return h(c, o)
		}
	}
	return page.Route{Path: use.Path("{orderId}"), Get: with(get), Post: with(post)}
}

// orderRoutes are the pages of orders. Their links are the only credentials, each for one order.
//
// On the page of an order a person goes on to the page of the processor, or pays in a frame. Its form asks for the page of the
// processor in place of the frame, which ends then. The processor sends the browser to the page done. It trusts nothing that the
// browser says (T79): the rail asks the processor. A browser that saw the page of the order before continues to the address of the
// program once the order is paid; every other one gets a link, so that the maker of an order cannot redirect others in our name.
// The page again makes a new order in place of one whose owner had to confirm it. A repeat leads to the same page.
func (w *pages) orderRoutes() []page.Route {
	return []page.Route{
		w.linkedPage(rail.UsePage, w.showOrder, w.leaveFrame),
		w.linkedPage(rail.UseDone, w.showDone, func(c *page.Context, _ *records.LinkedOrder) (page.View, error) {
			return nil, c.Refuse(http.StatusMethodNotAllowed, "This page cannot be submitted as a form.")
		}),
		w.linkedPage(rail.UseAgain, func(c *page.Context, o *records.LinkedOrder) (page.View, error) {
			return render(c, o, func(p *checkoutPage) { p.State = orderAgain }, nil)
		}, w.replace),
	}
}

func (w *pages) leaveFrame(c *page.Context, o *records.LinkedOrder) (page.View, error) {
	if o.Open {
		if err := w.mayAsk(c, o.SubscriberAddress); err != nil {
			return nil, err
		}
		if _, err := w.Cards.Page(c.Ctx(), o.OrderID, true); err != nil && !isAway(err) {
			return nil, err
		}
	}
	return c.Redirect(http.StatusSeeOther, ownLink(c))
}

func (w *pages) replace(c *page.Context, o *records.LinkedOrder) (page.View, error) {
	order, err := w.Records.Checkout.Replace(c.Ctx(), o.SubscriberAddress, o.OrderID, rail.SessionInput{Hosted: true}, againWait)
	if err != nil && toll.AsError(err).Code == toll.CodeRecordChanged {
		return nil, c.Refuse(http.StatusConflict, "The price or the credits of the plan have changed. Nothing was paid.")
	}
	if err != nil {
		return nil, err
	}
	if order.Result.URL == "" { // it is decided
		if o, err = w.Records.LinkedOrder(c.Ctx(), order.OrderID); err != nil {
			return nil, err
		}
		return render(c, o, decided(c, o), nil)
	}
	body, err := url.Parse(order.Result.URL)
	if err != nil {
		return nil, err
	}
	return c.Redirect(http.StatusSeeOther, body.RequestURI()) // ours, whatever the public address is
}

func ownLink(c *page.Context) string {
	return c.R.URL.Path + "?" + url.Values{"t": {c.R.URL.Query().Get("t")}}.Encode()
}

func (w *pages) showOrder(c *page.Context, o *records.LinkedOrder) (page.View, error) {
	o, to, away, err := w.ask(c, o)
	if err != nil {
		return nil, err
	}
	if o.Open {
		see(c, rail.UsePage.Path(o.OrderID), seenTime)
	}
	var frame *page.Embedded
	set := decided(c, o)
	switch {
	case set != nil:
	case away:
		set = func(p *checkoutPage) { p.State = orderAway }
	case to.URL != "":
		set = func(p *checkoutPage) { p.State, p.Pay = orderPay, to.URL }
	case to.ClientSecret != "":
		set, frame = func(p *checkoutPage) { p.State = orderFrame }, frameOf(to)
	default:
		set = func(p *checkoutPage) { p.State = orderWaiting }
	}
	return render(c, o, set, frame)
}

func (w *pages) showDone(c *page.Context, o *records.LinkedOrder) (page.View, error) {
	o, to, away, err := w.ask(c, o)
	if err != nil {
		return nil, err
	}
	set := decided(c, o)
	switch {
	case set != nil:
		next := nextOf(o)
		if _, err := c.R.Cookie(seenCookie); err == nil && next != nil && o.Status != toll.OrderFailed {
			see(c, rail.UsePage.Path(o.OrderID), -time.Second) // once: the back button gets a link
			return c.Redirect(http.StatusSeeOther, next.URL)
		}
	case away:
		set = func(p *checkoutPage) { p.State = orderAway }
	case to == rail.Shown{}:
		set = func(p *checkoutPage) { p.State = orderWaiting }
	default:
		set = func(p *checkoutPage) {
			p.State = orderUnpaid
			if u, err := url.Parse(o.PayURL); err == nil && o.PayURL != "" {
				p.Link = u.RequestURI()
			}
		}
	}
	return render(c, o, set, nil)
}

// ask has the rail ask the processor about an open order, and returns the order as it is then, and how it is paid.
func (w *pages) ask(c *page.Context, o *records.LinkedOrder) (now *records.LinkedOrder, to rail.Shown, away bool, err error) {
	if !o.Open {
		return o, to, false, nil
	}
	if err := w.mayAsk(c, o.SubscriberAddress); err != nil {
		return nil, to, false, err
	}
	to, err = w.Cards.Page(c.Ctx(), o.OrderID, false)
	if away = isAway(err); err == nil || away {
		o, err = w.Records.LinkedOrder(c.Ctx(), o.OrderID)
	}
	if err != nil {
		return nil, rail.Shown{}, false, err
	}
	return o, to, away, nil
}

// mayAsk counts a question to the processor for an account. Errors: too many of them.
func (w *pages) mayAsk(c *page.Context, owner toll.Address) error {
	r := w.looks.Take(owner, 1, time.Since(w.began))
	if !r.OK {
		e := toll.Errorf(toll.CodeRateLimited, "Payment pages of this workspace were opened too often. Wait a moment, then try again.")
		e.RetryAfterSecs = int((r.Retry + time.Second - 1) / time.Second)
		return tooMany(c, e)
	}
	return nil
}

func tooMany(c *page.Context, e *toll.Error) error {
	c.W.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	body := page.Message{Text: e.Text(), Fault: true, Links: []page.Link{{Text: "Try again", To: c.Here()}}}
	return page.Instead(c.Show(http.StatusTooManyRequests, "message", page.Layout{Title: page.TitleRefused, Body: body}, ""))
}

func isAway(err error) bool {
	return err != nil && toll.AsError(err).HTTPStatus() == http.StatusServiceUnavailable
}

// see marks the browser for the pages below a path, or takes the mark away when age is negative.
func see(c *page.Context, path string, age time.Duration) {
	cookie := c.Sessions.CookieBeside("")
	cookie.Name, cookie.Value, cookie.Path, cookie.MaxAge = seenCookie, "1", path, int(age/time.Second)
	http.SetCookie(c.W, cookie)
}

// decided says how an order is shown whose outcome is known, nil while it is not.
func decided(c *page.Context, o *records.LinkedOrder) func(*checkoutPage) {
	switch o.Status {
	case toll.OrderConfirmed, toll.OrderFinal:
		return func(p *checkoutPage) { p.State = orderPaid }
	case toll.OrderFailed:
		return func(p *checkoutPage) {
			p.State, p.Why = orderFailed, cmp.Or(plain.Name(o.FailureReason), "Nothing was paid.")
		}
	}
	return nil
}

// nextOf returns where the person goes on from an order: to the address for a paid one, else to the one for a canceled order.
func nextOf(o *records.LinkedOrder) *leave {
	if o.Status == toll.OrderConfirmed || o.Status == toll.OrderFinal {
		return leaveTo(o.SuccessURL)
	}
	return leaveTo(o.CancelURL)
}

// render shows the page of an order, with a frame of the processor when frame is not nil.
func render(c *page.Context, o *records.LinkedOrder, set func(*checkoutPage), frame *page.Embedded) (page.View, error) {
	plan := o.Plan
	p := &checkoutPage{
		Name: cmp.Or(plain.Name(plan.Metadata.Name), "unnamed"), Buys: page.GrantsOf(plan, o.CreditsGranted), Seller: plan.Owner, OrderID: o.OrderID,
		Price: toll.FormatAmount(o.Amount, plan.Price.Decimals()) + " " + strings.ToUpper(plan.Price.CurrencyName()),
		Test:  c.Environment != toll.Live, Charges: plan.Kind().Charges(), Link: ownLink(c), Next: nextOf(o),
	}
	set(p)
	title := orderTitles[p.State]
	if p.State == orderPaid {
		var err error
		var other string
		p.Back, other = wentBack(o, p.Price, strings.ToUpper(plan.Price.CurrencyName()))
		if title = cmp.Or(other, title); len(p.Back) == 0 && subscribes(c, o) {
			base := "/w/" + o.SubscriberAddress.String()
			if p.Try, err = tryOf(c, base, plan.ID); err != nil {
				return nil, err
			}
			p.Then = []page.Link{
				{Text: "Create access token", Plain: p.Try != "", To: base + "/tokens/new?" + url.Values{"plan": {string(o.Plan.ID)}}.Encode()},
				{Text: "View order", To: base + "/orders/" + o.OrderID, Plain: true}, {Text: "How to call it", To: "/p/" + string(o.Plan.ID), Plain: true},
			}
		}
	}
	status := http.StatusOK
	switch p.State {
	case orderWaiting:
		c.W.Header().Set("Refresh", retryPage)
	case orderAway:
		status = http.StatusServiceUnavailable
		c.W.Header().Set("Retry-After", retryPage)
	}
	return c.Show(status, "checkout", page.Layout{Title: title, Body: p, Embedded: frame}, "")
}

// tryOf returns the page on which a workspace calls the first listed agent of a plan, or "".
func tryOf(c *page.Context, base string, plan toll.PlanID) (string, error) {
	agents, err := page.PartOf[*toll.Agent](c, list.AgentsOfPlan.Under(string(plan)), url.Values{"pageSize": {strconv.Itoa(mostAgents)}, "sortOrder": {"asc"}})
	for _, a := range agents.Items {
		if a.IsListed {
			return base + "/try?" + url.Values{"agent": {string(a.ID)}, "plan": {string(plan)}}.Encode(), err
		}
	}
	return "", err
}

// subscribes reports whether the person is signed in to the workspace that placed an order.
func subscribes(c *page.Context, o *records.LinkedOrder) bool {
	if c.Person == nil {
		return false
	}
	for _, w := range c.Person.Workspaces {
		if w.Address == o.SubscriberAddress {
			return true
		}
	}
	return c.Person.Address == o.SubscriberAddress // an API key
}

// wentBack says what went back of a paid order, and which title its page has for that; "" for the
// usual one. Both are empty while all of the order stands.
func wentBack(o *records.LinkedOrder, price, currency string) (back []string, title string) {
	if o.RefundedCents > 0 {
		sum := toll.UnitsOfCents(int64(o.RefundedCents))
		back = append(back, "Refunded: "+toll.FormatAmount(sum, fiatDecimals)+" "+currency+" of "+price+".")
		if title = "Order partially refunded"; sum.Cmp(o.Amount) >= 0 {
			title = "Order refunded"
		}
	}
	switch {
	case o.Disputed && !o.Lost:
		back, title = append(back, "The payment is disputed. The bank decides the outcome."), "Payment disputed"
	case o.Lost:
		sum, text := toll.UnitsOfCents(o.DisputedCents), "the money"
		if title = "Payment reversed"; o.DisputedCents > 0 && sum.Cmp(o.Amount) < 0 {
			title, text = "Payment partially reversed", toll.FormatAmount(sum, fiatDecimals)+" "+currency
		}
		back = append(back, "The payment was disputed, and the bank took back "+text+".")
	}
	if o.RefundedCredits > 0 {
		back = append(back, "Taken back: "+o.RefundedCredits.Text()+" of "+o.CreditsGranted.Text()+".")
	}
	return back, title
}

// stripeScript is the origin of the script of Stripe, and stripeHosts what its frame needs by https://docs.stripe.com/security/guide.
const stripeScript = "https://js.stripe.com"

var stripeHosts = page.Hosts{
	Script:  "https://js.stripe.com https://*.js.stripe.com https://checkout.stripe.com",
	Frame:   "https://js.stripe.com https://*.js.stripe.com https://checkout.stripe.com https://hooks.stripe.com",
	Connect: "https://api.stripe.com https://checkout.stripe.com",
	Img:     "https://*.stripe.com",
}

// frameOf returns the frame of a page of the processor: Stripe's, or that of a double, which has one origin.
func frameOf(to rail.Shown) *page.Embedded {
	e := &page.Embedded{Secret: to.ClientSecret, Key: to.PublishableKey, Source: to.Script, Hosts: stripeHosts}
	if origin := originOf(to.Script); origin != stripeScript {
		e.Hosts = page.Hosts{Script: origin, Frame: origin, Connect: origin, Img: origin}
	}
	return e
}

func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

type enrollPage struct {
	Test   bool   // no money moves
	Ticket string // "": there is no form
	Card   string // that was enrolled; "" for none
	ID     string // of Card
	Open   bool   // the last enrolment has no card yet
	Link   string // path and query of this page
	Page   string // address of the page of the processor, where the browser goes next
}

// enroll is GET /cards/enroll: a person who signed in goes to the page of the processor to have a card saved, and comes back with the
// id of the enrolment, which tells nothing (T79): the rail asks the processor.
func (w *pages) enroll(c *page.Context) (page.View, error) {
	if err := w.mayEnroll(c); err != nil {
		return nil, err
	}
	if id := c.R.URL.Query().Get("setup"); id != "" {
		return w.showEnrolled(c, id)
	}
	return askEnroll(c, http.StatusOK, "")
}

func (w *pages) beginEnroll(c *page.Context) (page.View, error) {
	c.At = page.PathEnroll
	if err := w.mayEnroll(c); err != nil {
		return nil, err
	}
	if !c.Holds(c.Form.Get("ticket"), formEnroll) {
		return askEnroll(c, http.StatusForbidden, page.Stale)
	}
	_, content, err := w.Cards.Enroll(c.Ctx(), c.Person.Address, c.Source(c.R), c.Origin()+page.PathEnroll)
	if e := toll.AsError(err); err != nil && e.HTTPStatus() == http.StatusTooManyRequests {
		return nil, tooMany(c, e)
	}
	if err != nil {
		return nil, err
	}
	// A redirect would have to be within form-action, and the page may be at a host of the operator.
	body := enrollPage{Test: c.Environment != toll.Live, Page: content}
	return c.Show(http.StatusOK, "enroll", page.Layout{Title: "Opening the card processor's page", Body: body, Refresh: content}, "")
}

func (w *pages) mayEnroll(c *page.Context) error {
	switch {
	case w.Cards == nil:
		return noCards(c)
	case c.Person == nil:
		return page.Instead(c.SignIn.Ask(c, http.StatusOK, "Sign in to enroll a card.", c.Here(), ""))
	case !c.Person.Rights.Has(toll.RightSpend):
		return c.RefuseNext(http.StatusForbidden, auth.MissingRight(toll.RightSpend).Text(), "Sign out, then sign in with an API key that has this right.")
	}
	return nil
}

func askEnroll(c *page.Context, status int, fault string) (page.View, error) {
	body := enrollPage{Test: c.Environment != toll.Live, Ticket: c.Ticket(formEnroll)}
	return c.Show(status, "enroll", page.Layout{Title: "Enroll card", Fault: fault, Body: body}, "")
}

func (w *pages) showEnrolled(c *page.Context, id string) (page.View, error) {
	if err := w.mayAsk(c, c.Person.Address); err != nil {
		return nil, err
	}
	method, failure, err := w.Cards.Enrolled(c.Ctx(), c.Person.Address, id)
	if err != nil {
		return nil, err
	}
	body := enrollPage{Test: c.Environment != toll.Live, Link: c.Here()}
	title := "Card enrolled"
	switch {
	case method != "":
		all, err := c.API.PaymentMethods(c.Acting())
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, func(m toll.PaymentMethod) bool { return m.ID == method }); i >= 0 {
			body.Card = cardText(&all[i])
		}
		body.ID = method
	case failure != "":
		title, body.Ticket = "Card not enrolled", c.Ticket(formEnroll)
	default:
		title, body.Open, body.Ticket = "Card not enrolled yet", true, c.Ticket(formEnroll)
	}
	return c.Show(http.StatusOK, "enroll", page.Layout{Title: title, Fault: failure, Body: body}, "")
}

func cardText(m *toll.PaymentMethod) string {
	text := plain.Name(m.Brand) + " card ending in " + plain.Name(m.Last4)
	if m.ExpMonth > 0 {
		text += ", valid until " + strconv.FormatInt(100+m.ExpMonth, 10)[1:] + "/" + strconv.FormatInt(m.ExpYear, 10)
	}
	return text
}
