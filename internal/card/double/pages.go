package double

import (
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed page.html stripe.js leave.js
var files embed.FS

var pageTemplate = template.Must(template.ParseFS(files, "page.html"))

var formFields = takes("number expiry cvc name email result")

// view is a page, or where the browser goes instead.
type view struct {
	Status   int
	Redirect string

	Title   string
	Message string
	Error   string
	Action  string // of the form; empty for a page without one
	Session *session
	Total   string
	Items   []item
	Step    bool   // the 3-D Secure step
	Leave   string // where the page around the frame goes
	Typed   typed
	Parent  string // origin of the page around the frame
}

// typed has the fields that a form shows again after a declined card.
type typed struct{ Email, Name string }

func notice(status int, title, message string) view {
	return view{Status: status, Title: title, Message: message}
}

var noPage = notice(http.StatusNotFound, "Page not found", "The link is wrong or has expired.")

// page serves a page for people. Its only script leaves a frame after the payment.
func (d *Double) page(run func(*call) view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := params{}
		if r.Method == http.MethodPost {
			b, err := readAll(w, r, 8<<10)
			if err == nil {
				var f *failure
				if p, f = parseParams(string(b)); f == nil {
					f = formFields.check(p)
				}
				if f != nil {
					err = f
				}
			}
			if err != nil {
				show(w, notice(http.StatusBadRequest, "The form could not be read", "Go back and try again."))
				return
			}
		}
		show(w, d.runPage(r, p, run))
	}
}

func (d *Double) runPage(r *http.Request, p params, run func(*call) view) view {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.newCall(r)
	c.p = p
	changed := c.advance()
	if r.Method == http.MethodPost && c.st.size() >= d.opts.MaxRows {
		return notice(http.StatusTooManyRequests, "The card double is full", "The card double has reached its maximum number of rows.")
	}
	v := run(c)
	if changed || r.Method == http.MethodPost {
		if d.save() != nil {
			return notice(http.StatusInternalServerError, "The double cannot save its state", "Try again later.")
		}
		d.wakeAll()
	}
	return v
}

func show(w http.ResponseWriter, v view) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	if v.Redirect != "" {
		h.Set("Location", v.Redirect)
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	frames, script := "'none'", ""
	if v.Parent != "" {
		frames = v.Parent
	}
	if v.Leave != "" {
		script = "script-src 'self'; "
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; "+script+"style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors "+frames)
	w.WriteHeader(v.Status)
	_ = pageTemplate.Execute(w, v)
}

// shownSession finds the session of a page: by its id, or by its secret when it is embedded.
func (c *call) shownSession() (*session, bool) {
	secret := c.r.PathValue("secret")
	id, _, _ := strings.Cut(c.r.PathValue("id")+secret, "_secret_")
	s, ok := find[*session](c.st, id)
	return s, ok && (secret == "" || secret == string(s.ClientSecret))
}

func (c *call) showSession() view {
	s, ok := c.shownSession()
	if !ok {
		return noPage
	}
	return c.sessionView(s, http.StatusOK, "")
}

func (c *call) sessionView(s *session, status int, message string) view {
	parent := parentOf(c, s)
	switch s.Status {
	case "complete":
		return leave(s.back(), parent)
	case "expired":
		return notice(http.StatusGone, "This page has expired", "Go back to the page you came from, and start again.")
	}
	if f := c.lastError(s); f != nil && message == "" {
		message = f.Message
	}
	v := view{
		Status:  status,
		Title:   "Save a card",
		Error:   message,
		Action:  c.base + "/c/pay/" + s.ID,
		Session: s,
		Items:   c.st.hide(s.ID).Items,
		Typed:   typed{string(c.p.text("email")), string(c.p.text("name"))},
		Parent:  parent,
	}
	if s.Mode == "payment" {
		v.Title, v.Total = "Pay", byNumber(*s.AmountTotal)+" "+strings.ToUpper(string(s.Currency))
	}
	if parent != "" { // a declined card stays in the frame
		v.Action = c.base + "/c/embed/" + c.r.PathValue("secret")
	}
	return v
}

// parentOf returns the origin of the page around the frame in which a page of a session is shown, "" without a frame.
func parentOf(c *call, s *session) string {
	u, err := url.Parse(s.ReturnURL)
	if err != nil || c.r.PathValue("secret") == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// leave sends the browser to another page. Within a frame, the page around it goes there.
func leave(to, parent string) view {
	if parent == "" {
		return view{Redirect: to}
	}
	return view{Status: http.StatusOK, Title: "Continue", Leave: to, Parent: parent}
}

// lastError is why the last card of a session was not taken, or nil.
func (c *call) lastError(s *session) *failure {
	if pi, ok := find[*intent](c.st, string(s.PaymentIntent)); ok {
		return pi.LastPaymentError
	}
	if si, ok := find[*setupIntent](c.st, string(s.SetupIntent)); ok {
		return si.LastSetupError
	}
	return nil
}

func (c *call) submitSession() view {
	s, ok := c.shownSession()
	if !ok || s.Status != "open" {
		return c.showSession()
	}
	h := c.st.hide(s.ID)
	if h.Attempts++; h.Attempts > maxAttempts {
		return c.sessionView(s, http.StatusTooManyRequests, "Too many cards were tried on this page.")
	}
	m, f := c.typedCard()
	if f == nil {
		f = c.pay(s, m)
	}
	if f != nil {
		return c.sessionView(s, http.StatusPaymentRequired, f.Message)
	}
	if pi, ok := find[*intent](c.st, string(s.PaymentIntent)); ok && pi.NextAction != nil {
		return leave(pi.NextAction.RedirectToURL.URL, parentOf(c, s))
	}
	if si, ok := find[*setupIntent](c.st, string(s.SetupIntent)); ok && si.NextAction != nil {
		return leave(si.NextAction.RedirectToURL.URL, parentOf(c, s))
	}
	return c.sessionView(s, http.StatusOK, "")
}

func (c *call) typedCard() (*paymentMethod, *failure) {
	t, f := cardNumbered(string(c.p.text("number")))
	if f != nil {
		return nil, f
	}
	month, year, _ := strings.Cut(string(c.p.text("expiry")), "/")
	m, _ := strconv.ParseInt(strings.TrimSpace(month), 10, 64)
	y, _ := strconv.ParseInt(strings.TrimSpace(year), 10, 64)
	if y < 100 {
		y += int64(time.Unix(c.now, 0).UTC().Year()) / 100 * 100
	}
	if f := c.checkExpiry(m, y); f != nil {
		return nil, f
	}
	if cvc := string(c.p.text("cvc")); len(cvc) < 3 || len(cvc) > 4 || !digits(cvc) {
		return nil, cardError("invalid_cvc", "", "Your card's security code is invalid.")
	}
	owner := billing{Email: c.p.text("email"), Name: c.p.text("name")}
	return c.newMethod(t, m, y, owner), nil
}

func (c *call) showAuthentication() view {
	ch, ok := c.challenge(c.r.PathValue("secret"))
	switch {
	case !ok:
		return noPage
	case ch.action == nil:
		return c.afterChallenge(ch)
	}
	return view{Status: http.StatusOK, Title: "3-D Secure", Step: true,
		Message: "Your bank asks you to confirm that this is you.", Action: ch.action.RedirectToURL.URL}
}

func (c *call) submitAuthentication() view {
	ch, ok := c.challenge(c.r.PathValue("secret"))
	if !ok || ch.action == nil {
		return c.showAuthentication()
	}
	c.answer(ch, c.p.text("result") == "approve")
	return c.afterChallenge(ch)
}

// afterChallenge leads back to the page that the person came from.
func (c *call) afterChallenge(ch challenge) view {
	if ch.session.Status == "complete" {
		return view{Redirect: ch.session.back()}
	}
	return view{Redirect: c.base + "/c/pay/" + ch.session.ID}
}

// script serves stripe.js, which mounts the page of an embedded session in a frame as Stripe.js does, and leave.js, which closes the frame.
func script(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeFileFS(w, r, files, path.Base(r.URL.Path))
}
