package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/page"
)

// Cards is the card rail as persons meet it.
type Cards interface {
	rail.Enroller
	rail.Pages
	// Payment is that of [rail.Rail]: it has the signed address of the page of an open order.
	Payment(ctx context.Context, q store.Querier, orderID string) (rail.Payment, error)
}

// Paths of the pages of orders. The parameter is the id of the order.
var (
	PathCheckout      = rail.UsePage.Path("{orderId}")
	PathCheckoutDone  = rail.UseDone.Path("{orderId}")
	PathCheckoutAgain = rail.UseAgain.Path("{orderId}")
)

const (
	// maxLink bounds the signature of a link, in bytes.
	maxLink = 4096
	// againWait is how long a person waits for the page of a new order.
	againWait = 20 * time.Second
	// retryPage is after how many seconds a browser may ask again for a page that cannot tell yet.
	retryPage = "5"
	// mostLooks is how often pages of an account may ask the processor at a time, and lookEvery how soon
	// they may once more: a link is open to everybody, and the processor takes so many calls of all.
	mostLooks, lookEvery = 60, time.Second
	// seenCookie marks a browser that was shown the page of an order. It is sent to the pages of
	// this order alone, and says nothing else.
	seenCookie = "checkout-seen"
	// seenTime is how long that counts.
	seenTime = 2 * time.Hour
	// fiatDecimals are those of amounts in the currencies of cards.
	fiatDecimals = 6
)

// orderState says which part of the page of an order is shown.
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

// orderTitles are the headings of the page of an order.
var orderTitles = map[orderState]string{
	orderPay: "Pay an order", orderFrame: "Pay an order", orderUnpaid: "The order is not paid yet",
	orderWaiting: "The payment is being decided", orderAway: "The card processor does not answer",
	orderPaid: "The order is paid", orderFailed: "The order is not paid", orderAgain: "Confirm a payment",
}

// checkoutPage is what a person reads of an order before it is paid, and after.
type checkoutPage struct {
	Name    string // of the plan, as its owner chose it, in one plain line
	Buys    string
	Price   string
	Seller  toll.Address
	OrderID string
	Test    bool // no money moves
	State   orderState
	Why     string   // why nothing was paid, of orderFailed
	Back    []string // what went back of a paid order, in sentences; none when all of it stands
	Pay     string   // address of the page of the processor, of orderPay
	Link    string   // path and query of this page; of orderUnpaid that of the page on which to pay
	Next    *leave   // where the program that made the order wants the person to go on; nil: nowhere
}

// leave is an address that a program chose, to which the person goes on.
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
func linked(c *page.Context, use rail.Use) (*store.Order, error) {
	refuse := func() (*store.Order, error) {
		m := page.Message{Text: "This link is wrong, or it has ended.", Fault: true, Next: page.StartOver}
		return nil, page.Instead(c.Show(http.StatusNotFound, "message", page.Layout{Title: page.TitleMissing, Body: m}, ""))
	}
	if deps(c).Cards == nil {
		return nil, noCards(c)
	}
	text := c.R.URL.Query().Get("t")
	if text == "" || len(text) > maxLink {
		return refuse()
	}
	owner, id, ends, err := deps(c).Auth.OpenLink(string(use), text)
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
	o, err := store.OrderByID(c.Ctx(), deps(c).Store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && o.Subscriber != owner {
		return refuse()
	}
	return o, err
}

// noCards answers that the service has no card rail.
func noCards(c *page.Context) error {
	return c.Refuse(http.StatusFailedDependency, toll.NewError(toll.CodeCardOff).Text())
}

// CheckoutPage is GET and POST /checkout/{orderId}: a person reads an order and goes on to the page
// of the processor, or pays in a frame. Its link is the only credential, and is good for this order
// alone. The form asks for the page of the processor in the place of the frame, which is over then.
func (w *Web) CheckoutPage() page.Route {
	return w.page(func(c *page.Context) (page.View, error) {
		o, err := linked(c, rail.UsePage)
		if err != nil {
			return nil, err
		}
		return showOrder(c, o)
	}, func(c *page.Context) (page.View, error) {
		o, err := linked(c, rail.UsePage)
		if err != nil {
			return nil, err
		}
		if o.Open {
			if err := mayAsk(c, o.Subscriber); err != nil {
				return nil, err
			}
			if _, err := w.Cards.Page(c.Ctx(), o.ID, true); err != nil && !isAway(err) {
				return nil, err
			}
		}
		return c.Redirect(http.StatusSeeOther, ownLink(c))
	})
}

// CheckoutDone is GET /checkout/{orderId}/done: where the processor sends the browser. Nothing that
// the browser says counts (T79): the rail asks the processor, and the page shows the order.
//
// A browser that was shown the page of the order before goes on to the address that the program
// chose, once the order is paid. Every other one gets a link, so that whoever makes an order cannot
// send others on in our name.
func (w *Web) CheckoutDone() page.Route {
	return w.page(func(c *page.Context) (page.View, error) {
		o, err := linked(c, rail.UseDone)
		if err != nil {
			return nil, err
		}
		return showDone(c, o)
	}, func(c *page.Context) (page.View, error) {
		return nil, c.Refuse(http.StatusMethodNotAllowed, "This page has no form.")
	})
}

// CheckoutAgain is GET and POST /checkout/{orderId}/again: a new order in the place of one whose
// owner had to confirm it. A repeat leads to the same page.
func (w *Web) CheckoutAgain() page.Route {
	return w.page(func(c *page.Context) (page.View, error) {
		o, err := linked(c, rail.UseAgain)
		if err != nil {
			return nil, err
		}
		return render(c, o, func(p *checkoutPage) { p.State = orderAgain }, nil)
	}, func(c *page.Context) (page.View, error) {
		o, err := linked(c, rail.UseAgain)
		if err != nil {
			return nil, err
		}
		return replace(c, o)
	})
}

// replace makes an order in the place of a failed one, and leads to its page.
func replace(c *page.Context, o *store.Order) (page.View, error) {
	order, err := deps(c).Checkout.Replace(c.Ctx(), o.Subscriber, o.ID, rail.SessionInput{Hosted: true}, againWait)
	if err != nil && toll.AsError(err).Code == toll.CodeRecordChanged {
		return nil, c.Refuse(http.StatusConflict, "The plan has another price or other credits by now. Nothing was paid.")
	}
	if err != nil {
		return nil, err
	}
	if order.Result.URL == "" { // it is decided
		if o, err = store.OrderByID(c.Ctx(), deps(c).Store, order.OrderID); err != nil {
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

// ownLink is the path and query of this page.
func ownLink(c *page.Context) string {
	return c.R.URL.Path + "?" + url.Values{"t": {c.R.URL.Query().Get("t")}}.Encode()
}

// showOrder shows an order to whom has the link of its page.
func showOrder(c *page.Context, o *store.Order) (page.View, error) {
	o, to, away, err := ask(c, o)
	if err != nil {
		return nil, err
	}
	if o.Open {
		see(c, rail.UsePage.Path(o.ID), seenTime)
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

// showDone shows what became of an order.
func showDone(c *page.Context, o *store.Order) (page.View, error) {
	o, to, away, err := ask(c, o)
	if err != nil {
		return nil, err
	}
	set := decided(c, o)
	switch {
	case set != nil:
		next, err := nextOf(o)
		if err != nil {
			return nil, err
		}
		if _, err := c.R.Cookie(seenCookie); err == nil && next != nil && o.Status != toll.OrderFailed {
			see(c, rail.UsePage.Path(o.ID), -time.Second) // once: the back button gets a link
			return c.Redirect(http.StatusSeeOther, next.URL)
		}
	case away:
		set = func(p *checkoutPage) { p.State = orderAway }
	case to == rail.Shown{}:
		set = func(p *checkoutPage) { p.State = orderWaiting }
	default:
		payment, err := deps(c).Cards.Payment(c.Ctx(), deps(c).Store, o.ID)
		if err != nil {
			return nil, err
		}
		set = func(p *checkoutPage) {
			p.State = orderUnpaid
			if u, err := url.Parse(payment.CheckoutURL); err == nil && payment.CheckoutURL != "" {
				p.Link = u.RequestURI()
			}
		}
	}
	return render(c, o, set, nil)
}

// ask has the rail ask the processor about an open order, and returns the order as it is then, and how it is paid.
func ask(c *page.Context, o *store.Order) (now *store.Order, to rail.Shown, away bool, err error) {
	if !o.Open {
		return o, to, false, nil
	}
	if err := mayAsk(c, o.Subscriber); err != nil {
		return nil, to, false, err
	}
	to, err = deps(c).Cards.Page(c.Ctx(), o.ID, false)
	if away = isAway(err); err == nil || away {
		o, err = store.OrderByID(c.Ctx(), deps(c).Store, o.ID)
	}
	if err != nil {
		return nil, rail.Shown{}, false, err
	}
	return o, to, away, nil
}

// mayAsk counts a question to the processor for an account. Errors: too many of them.
func mayAsk(c *page.Context, owner toll.Address) error {
	r := deps(c).looks.Take(owner, 1, time.Since(deps(c).began))
	if !r.OK {
		e := toll.Errorf(toll.CodeRateLimited, "Pages of this account were opened too often.")
		e.RetryAfterSecs = int((r.Retry + time.Second - 1) / time.Second)
		return tooMany(c, e)
	}
	return nil
}

// tooMany refuses what was done too often.
func tooMany(c *page.Context, e *toll.Error) error {
	c.W.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	return c.RefuseNext(http.StatusTooManyRequests, e.Text(), "Wait, and then try again.")
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
func decided(c *page.Context, o *store.Order) func(*checkoutPage) {
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

// nextOf returns where the person goes on from an order: to the address for a paid one, else to that for one who does not pay.
func nextOf(o *store.Order) (*leave, error) {
	in, err := checkout.SessionOf(o)
	switch {
	case err != nil || in == nil:
		return nil, err
	case o.Status == toll.OrderConfirmed, o.Status == toll.OrderFinal:
		return leaveTo(in.SuccessURL), nil
	}
	return leaveTo(in.CancelURL), nil
}

// render shows the page of an order, with a frame of the processor when frame is not nil.
func render(c *page.Context, o *store.Order, set func(*checkoutPage), frame *page.Embedded) (page.View, error) {
	plan, err := store.PlanByID(c.Ctx(), deps(c).Store, o.Plan)
	if err != nil {
		return nil, err
	}
	next, err := nextOf(o)
	if err != nil {
		return nil, err
	}
	p := &checkoutPage{
		Name: cmp.Or(plain.Name(plan.Metadata.Name), "without a name"), Buys: page.GrantsOf(plan, o.Credits), Seller: plan.Owner, OrderID: o.ID,
		Price: toll.FormatAmount(o.Amount, plan.Price.Decimals()) + " " + strings.ToUpper(plan.Price.CurrencyName()),
		Test:  c.Environment != toll.Live, Link: ownLink(c), Next: next,
	}
	set(p)
	title := orderTitles[p.State]
	if p.State == orderPaid {
		var other string
		p.Back, other = wentBack(o, p.Price, strings.ToUpper(plan.Price.CurrencyName()))
		title = cmp.Or(other, title)
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

// wentBack says what went back of a paid order, and which title its page has for that; "" for the
// usual one. Both are empty while all of the order stands.
func wentBack(o *store.Order, price, currency string) (back []string, title string) {
	if o.RefundedCents > 0 {
		sum := toll.UnitsOfCents(o.RefundedCents)
		back = append(back, "Refunded: "+toll.FormatAmount(sum, fiatDecimals)+" "+currency+" of "+price+".")
		if title = "The order is refunded in part"; sum.Cmp(o.Amount) >= 0 {
			title = "The order is refunded"
		}
	}
	switch o.Dispute {
	case store.DisputeOpen:
		back, title = append(back, "The payment is disputed. Its bank decides who gets the money."), "The payment is disputed"
	case store.DisputeLost:
		sum, text := toll.UnitsOfCents(o.DisputedCents), "the money"
		if title = "The payment was taken back"; o.DisputedCents > 0 && sum.Cmp(o.Amount) < 0 {
			title, text = "The payment was taken back in part", toll.FormatAmount(sum, fiatDecimals)+" "+currency
		}
		back = append(back, "The payment was disputed, and its bank took "+text+" back.")
	}
	if o.RefundedCredits > 0 {
		back = append(back, "Taken back: "+o.RefundedCredits.Text()+" of "+o.Credits.Text()+".")
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

// originOf returns the origin of an address of the settings.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// formEnroll is the first word of what the ticket of that form says.
const formEnroll = "enroll"

// enrollPage is the form that begins an enrolment, and what became of the last one.
type enrollPage struct {
	Test   bool   // no money moves
	Ticket string // "": there is no form
	Card   string // that was enrolled; "" for none
	ID     string // of Card
	Open   bool   // the last enrolment has no card yet
	Link   string // path and query of this page
	Page   string // address of the page of the processor, where the browser goes next
}

// Enroll is GET and POST /cards/enroll: a person who signed in goes to the page of the processor to
// have a card saved, and comes back with the id of the enrolment, which tells nothing (T79): the rail
// asks the processor.
func (w *Web) Enroll() page.Route {
	return w.page(func(c *page.Context) (page.View, error) {
		if err := mayEnroll(c); err != nil {
			return nil, err
		}
		if id := c.R.URL.Query().Get("setup"); id != "" {
			return showEnrolled(c, id)
		}
		return askEnroll(c, http.StatusOK, "")
	}, func(c *page.Context) (page.View, error) {
		c.At = page.PathEnroll
		if err := mayEnroll(c); err != nil {
			return nil, err
		}
		if !c.Holds(c.Form.Get("ticket"), formEnroll) {
			return askEnroll(c, http.StatusForbidden, "The form is not one of this session. Send it once more.")
		}
		_, content, err := w.Cards.Enroll(c.Ctx(), c.Person.Address, w.Source(c.R), c.Origin()+page.PathEnroll)
		if e := toll.AsError(err); err != nil && e.HTTPStatus() == http.StatusTooManyRequests {
			return nil, tooMany(c, e)
		}
		if err != nil {
			return nil, err
		}
		// A redirect would have to be within form-action, and the page may be at a host of the operator.
		body := enrollPage{Test: w.Environment != toll.Live, Page: content}
		return c.Show(http.StatusOK, "enroll", page.Layout{Title: "The card page opens", Body: body, Refresh: content}, "")
	})
}

// mayEnroll returns nil for a person who may enrol cards.
func mayEnroll(c *page.Context) error {
	switch {
	case deps(c).Cards == nil:
		return noCards(c)
	case c.Person == nil:
		return page.Instead(c.SignIn.Ask(c, http.StatusOK, "Sign in to enrol a card.", c.Here(), ""))
	case !c.Person.Rights.Has(toll.RightSpend):
		return c.RefuseNext(http.StatusForbidden, auth.MissingRight(toll.RightSpend).Text(), "Sign out, and sign in with an API key that has it.")
	}
	return nil
}

func askEnroll(c *page.Context, status int, fault string) (page.View, error) {
	body := enrollPage{Test: c.Environment != toll.Live, Ticket: c.Ticket(formEnroll)}
	return c.Show(status, "enroll", page.Layout{Title: "Enrol a card", Fault: fault, Body: body}, "")
}

// showEnrolled shows what became of an enrolment of the person.
func showEnrolled(c *page.Context, id string) (page.View, error) {
	if err := mayAsk(c, c.Person.Address); err != nil {
		return nil, err
	}
	method, failure, err := deps(c).Cards.Enrolled(c.Ctx(), c.Person.Address, id)
	if err != nil {
		return nil, err
	}
	body := enrollPage{Test: c.Environment != toll.Live, Link: c.Here()}
	title := "The card is enrolled"
	switch {
	case method != "":
		m, err := store.PaymentMethodByID(c.Ctx(), deps(c).Store, c.Person.Address, method)
		if err != nil {
			return nil, err
		}
		body.ID, body.Card = m.ID, cardText(m)
	case failure != "":
		title, body.Ticket = "No card is enrolled", c.Ticket(formEnroll)
	default:
		title, body.Open, body.Ticket = "No card is enrolled yet", true, c.Ticket(formEnroll)
	}
	return c.Show(http.StatusOK, "enroll", page.Layout{Title: title, Fault: failure, Body: body}, "")
}

// cardText is a card as its owner knows it.
func cardText(m *store.PaymentMethod) string {
	text := plain.Name(m.Brand) + " card ending in " + plain.Name(m.Last4)
	if m.ExpMonth > 0 {
		text += ", valid until " + strconv.FormatInt(100+m.ExpMonth, 10)[1:] + "/" + strconv.FormatInt(m.ExpYear, 10)
	}
	return text
}
