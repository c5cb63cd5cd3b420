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
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
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
	return &leave{URL: address, Host: addressText(u.Host)}
}

// linked opens the signed link of a page of an order. Every other link, that of another order or
// use, an ended one, and one of an order that is not here get the same answer. nil: the answer was
// written.
func linked(v *visit, use rail.Use) *store.Order {
	refuse := func() *store.Order {
		m := message{Text: "This link is wrong, or it has ended.", Fault: true, Next: startAgain}
		v.show(http.StatusNotFound, "message", shown{Title: titleMissing, Body: m}, "")
		return nil
	}
	if v.w.Cards == nil {
		noCards(v)
		return nil
	}
	text := v.r.URL.Query().Get("t")
	if text == "" || len(text) > maxLink {
		return refuse()
	}
	owner, id, ends, err := v.w.Auth.OpenLink(string(use), text)
	if err != nil && toll.AsError(err).Code == toll.CodeDatabaseUnavailable {
		v.fail(err)
		return nil
	}
	now := v.w.Machine // by which the processor ends its pages, whatever the clock of a sandbox says
	if use == rail.UseAgain {
		now = v.w.Clock
	}
	if err != nil || v.r.URL.Path != use.Path(id) || !now().Before(ends) {
		return refuse()
	}
	o, err := store.OrderByID(v.ctx(), v.w.Store, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && o.Subscriber != owner {
		return refuse()
	}
	if err != nil {
		v.fail(err)
		return nil
	}
	return o
}

// noCards answers that the service has no card rail.
func noCards(v *visit) {
	v.refuse(http.StatusFailedDependency, toll.NewError(toll.CodeCardOff).Text())
}

// CheckoutPage is GET and POST /checkout/{orderId}: a person reads an order and goes on to the page
// of the processor, or pays in a frame. Its link is the only credential, and is good for this order
// alone. The form asks for the page of the processor in the place of the frame, which is over then.
func (w *Web) CheckoutPage() http.Handler {
	return w.page(func(v *visit) {
		if o := linked(v, rail.UsePage); o != nil {
			showOrder(v, o)
		}
	}, func(v *visit) {
		o := linked(v, rail.UsePage)
		if o == nil {
			return
		}
		if o.Open {
			if !mayAsk(v, o.Subscriber) {
				return
			}
			if _, err := w.Cards.Page(v.ctx(), o.ID, true); err != nil && !isAway(err) {
				v.fail(err)
				return
			}
		}
		v.redirect(http.StatusSeeOther, ownLink(v))
	})
}

// CheckoutDone is GET /checkout/{orderId}/done: where the processor sends the browser. Nothing that
// the browser says counts (T79): the rail asks the processor, and the page shows the order.
//
// A browser that was shown the page of the order before goes on to the address that the program
// chose, once the order is paid. Every other one gets a link, so that whoever makes an order cannot
// send others on in our name.
func (w *Web) CheckoutDone() http.Handler {
	return w.page(func(v *visit) {
		if o := linked(v, rail.UseDone); o != nil {
			showDone(v, o)
		}
	}, func(v *visit) { v.refuse(http.StatusMethodNotAllowed, "This page has no form.") })
}

// CheckoutAgain is GET and POST /checkout/{orderId}/again: a new order in the place of one whose
// owner had to confirm it. A repeat leads to the same page.
func (w *Web) CheckoutAgain() http.Handler {
	return w.page(func(v *visit) {
		if o := linked(v, rail.UseAgain); o != nil {
			render(v, o, func(p *checkoutPage) { p.State = orderAgain }, nil)
		}
	}, func(v *visit) {
		if o := linked(v, rail.UseAgain); o != nil {
			replace(v, o)
		}
	})
}

// replace makes an order in the place of a failed one, and leads to its page.
func replace(v *visit, o *store.Order) {
	c, err := v.w.Checkout.Replace(v.ctx(), o.Subscriber, o.ID, rail.SessionInput{Hosted: true}, againWait)
	if err != nil && toll.AsError(err).Code == toll.CodeRecordChanged {
		v.refuse(http.StatusConflict, "The plan has another price or other credits by now. Nothing was paid.")
		return
	}
	if err != nil {
		v.fail(err)
		return
	}
	if c.Result.URL == "" { // it is decided
		if o, err = store.OrderByID(v.ctx(), v.w.Store, c.OrderID); err != nil {
			v.fail(err)
			return
		}
		render(v, o, decided(v, o), nil)
		return
	}
	page, err := url.Parse(c.Result.URL)
	if err != nil {
		v.fail(err)
		return
	}
	v.redirect(http.StatusSeeOther, page.RequestURI()) // ours, whatever the public address is
}

// ownLink is the path and query of this page.
func ownLink(v *visit) string {
	return v.r.URL.Path + "?" + url.Values{"t": {v.r.URL.Query().Get("t")}}.Encode()
}

// showOrder shows an order to whom has the link of its page.
func showOrder(v *visit, o *store.Order) {
	o, to, away := ask(v, o)
	if o == nil {
		return
	}
	if o.Open {
		see(v, rail.UsePage.Path(o.ID), seenTime)
	}
	var frame *embedded
	set := decided(v, o)
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
	render(v, o, set, frame)
}

// showDone shows what became of an order.
func showDone(v *visit, o *store.Order) {
	o, to, away := ask(v, o)
	if o == nil {
		return
	}
	set := decided(v, o)
	switch {
	case set != nil:
		next, err := nextOf(o)
		if err != nil {
			v.fail(err)
			return
		}
		if _, err := v.r.Cookie(seenCookie); err == nil && next != nil && o.Status != toll.OrderFailed {
			see(v, rail.UsePage.Path(o.ID), -time.Second) // once: the back button gets a link
			v.redirect(http.StatusSeeOther, next.URL)
			return
		}
	case away:
		set = func(p *checkoutPage) { p.State = orderAway }
	case to == rail.Shown{}:
		set = func(p *checkoutPage) { p.State = orderWaiting }
	default:
		payment, err := v.w.Cards.Payment(v.ctx(), v.w.Store, o.ID)
		if err != nil {
			v.fail(err)
			return
		}
		set = func(p *checkoutPage) {
			p.State = orderUnpaid
			if u, err := url.Parse(payment.CheckoutURL); err == nil && payment.CheckoutURL != "" {
				p.Link = u.RequestURI()
			}
		}
	}
	render(v, o, set, nil)
}

// ask has the rail ask the processor about an open order, and returns the order as it is then, and
// how it is paid. A nil order: the answer was written.
func ask(v *visit, o *store.Order) (now *store.Order, to rail.Shown, away bool) {
	if !o.Open {
		return o, to, false
	}
	if !mayAsk(v, o.Subscriber) {
		return nil, to, false
	}
	to, err := v.w.Cards.Page(v.ctx(), o.ID, false)
	if away = isAway(err); err == nil || away {
		o, err = store.OrderByID(v.ctx(), v.w.Store, o.ID)
	}
	if err != nil {
		v.fail(err)
		return nil, rail.Shown{}, false
	}
	return o, to, away
}

// mayAsk counts a question to the processor for an account. When there were too many, the answer was
// written.
func mayAsk(v *visit, owner toll.Address) bool {
	r := v.w.looks.Take(owner, 1, time.Since(v.w.began))
	if !r.OK {
		e := toll.Errorf(toll.CodeRateLimited, "Pages of this account were opened too often.")
		e.RetryAfterSecs = int((r.Retry + time.Second - 1) / time.Second)
		tooMany(v, e)
	}
	return r.OK
}

// tooMany refuses what was done too often.
func tooMany(v *visit, e *toll.Error) {
	v.rw.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	v.refuseNext(http.StatusTooManyRequests, e.Text(), "Wait, and then try again.")
}

func isAway(err error) bool {
	return err != nil && toll.AsError(err).HTTPStatus() == http.StatusServiceUnavailable
}

// see marks the browser for the pages below a path, or takes the mark away when age is negative.
func see(v *visit, path string, age time.Duration) {
	http.SetCookie(v.rw, &http.Cookie{
		Name: seenCookie, Value: "1", Path: path, MaxAge: int(age / time.Second), HttpOnly: true,
		Secure: v.w.sessions.Cookie.Secure, SameSite: http.SameSiteLaxMode,
	})
}

// decided says how an order is shown whose outcome is known, nil while it is not.
func decided(v *visit, o *store.Order) func(*checkoutPage) {
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

// nextOf returns where the person goes on from an order: to the address for a paid one, else to
// that for one who does not pay.
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
func render(v *visit, o *store.Order, set func(*checkoutPage), frame *embedded) {
	plan, err := store.PlanByID(v.ctx(), v.w.Store, o.Plan)
	if err != nil {
		v.fail(err)
		return
	}
	next, err := nextOf(o)
	if err != nil {
		v.fail(err)
		return
	}
	p := &checkoutPage{
		Name: cmp.Or(plain.Name(plan.Metadata.Name), "without a name"), Buys: grants(plan, o.Credits), Seller: plan.Owner, OrderID: o.ID,
		Price: toll.FormatAmount(o.Amount, plan.Price.Decimals()) + " " + strings.ToUpper(plan.Price.CurrencyName()),
		Test:  v.w.Environment != toll.Live, Link: ownLink(v), Next: next,
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
		v.rw.Header().Set("Refresh", retryPage)
	case orderAway:
		status = http.StatusServiceUnavailable
		v.rw.Header().Set("Retry-After", retryPage)
	}
	v.show(status, "checkout", shown{Title: title, Body: p, Embedded: frame}, "")
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

// embedded is a form of the processor in a frame of a page of ours.
type embedded struct {
	Secret, Key string
	Source      string // address of the script of the processor
	hosts       hosts
}

// hosts are the origins that a frame of the processor needs, as the policy of a page names them.
type hosts struct{ script, frame, connect, img string }

// stripeScript is the origin of the script of Stripe, and stripeHosts what its frame needs by
// https://docs.stripe.com/security/guide.
const stripeScript = "https://js.stripe.com"

var stripeHosts = hosts{
	script:  "https://js.stripe.com https://*.js.stripe.com https://checkout.stripe.com",
	frame:   "https://js.stripe.com https://*.js.stripe.com https://checkout.stripe.com https://hooks.stripe.com",
	connect: "https://api.stripe.com https://checkout.stripe.com",
	img:     "https://*.stripe.com",
}

// frameOf returns the frame of a page of the processor: Stripe's, or that of a double, which has one
// origin.
func frameOf(to rail.Shown) *embedded {
	e := &embedded{Secret: to.ClientSecret, Key: to.PublishableKey, Source: to.Script, hosts: stripeHosts}
	if origin := originOf(to.Script); origin != stripeScript {
		e.hosts = hosts{script: origin, frame: origin, connect: origin, img: origin}
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
