// Package page is the toolkit of pages. A page is a function of a [Context] that returns a [View], or an error, which one place turns into
// a page ([Context] answers it). [Site] has what all pages of a service share; an [Area] is a row of the table of pages of workspaces.
package page

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/gzipped"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/session"
)

// Context is one request of a browser. A page is a function of it.
type Context struct {
	*Site
	W       http.ResponseWriter
	R       *http.Request
	Form    url.Values      // of a POST
	Person  *session.Person // nil: nobody is signed in
	At      string          // of a POST: the page with its form
	Area    *Area           // of a page of a workspace
	Status  int             // with which that page is shown; 0 is 200
	Fault   string          // what was wrong with its form
	Refusal error           // the same, for the fields of that form
	Bought  bool            // the page shows purchases, of a kind that the workspace can also sell
	counted bool            // a call of the API has counted against limits
	sort    *Field          // the order of the list of the page; nil: it has one order
}

// Ctx returns the context of the request.
func (c *Context) Ctx() context.Context { return c.R.Context() }

// Here is the page that the browser shows.
func (c *Context) Here() string {
	if c.R.Method == http.MethodPost {
		return c.At
	}
	return LocalPath(c.R.URL.RequestURI())
}

// Layout is what a page says.
type Layout struct {
	Theme       string // light, dark, or "" for that of the system
	Frame       *frame // of a page of a workspace; nil for a page that stands alone
	Environment toll.Environment
	Public      bool // a page that everybody may open
	Title       string
	Person      *session.Person
	SignOut     string // ticket of the form that signs out
	Here        string // where that form leads
	Switch      []switchTo
	Fault       string // what was wrong with the last form; safe to show
	Body        any
	Embedded    *Embedded // a form of the card processor in a frame; nil for none
	Passkey     bool      // the page asks for a passkey, by a script
	Wallet      bool      // the page asks a wallet, by a script
	Wallets     Wallets   // form that it fills
	Refresh     string    // address to which the browser goes on by itself; "" for none
	Correlation string    // id of the request, for the log of the service
}

// switchTo leads to the same page in another workspace.
type switchTo struct {
	Text, To string
	Here     bool
}

// switches are the workspaces of the person; nil for one alone.
func switches(c *Context) []switchTo {
	if len(c.Person.Workspaces) < 2 {
		return nil
	}
	here, err := url.Parse(c.Here())
	if err != nil {
		return nil
	}
	out := make([]switchTo, len(c.Person.Workspaces))
	for i, o := range c.Person.Workspaces {
		at, to := o.Address.String(), *here
		if strings.HasPrefix(here.Path, "/w/") {
			to.Path, to.RawQuery = "/w/"+at+kept(c), ""
		} else {
			q := to.Query()
			q.Set("workspace", at)
			to.RawQuery = q.Encode()
		}
		out[i] = switchTo{Text: cmp.Or(plain.Name(o.Name), at[:8]+"…"+at[len(at)-4:]), To: to.String(), Here: o.Address == c.Person.Address}
	}
	return out
}

// kept is the page below a workspace that another workspace has as well: the members, or the list that this page is of.
func kept(c *Context) string {
	if c.Area == nil {
		return ""
	}
	return cmp.Or(c.Area.Under, c.Area.Path)
}

// View is the answer of a page.
type View interface{ write(c *Context) }

// document is a page that a template draws.
type document struct {
	status int
	name   string
	Layout
	leads string
}

// Show answers with a page. Its forms may lead to the service itself, and to the origin leads: a browser applies the policy of the page
// to the redirect after a form, too.
func (c *Context) Show(status int, name string, s Layout, leads string) (View, error) {
	return document{status, name, s, leads}, nil
}

func (d document) write(c *Context) {
	s := d.Layout
	s.Environment, s.Theme, s.Here, s.Correlation = c.Environment, c.Theme(c.R), c.Here(), c.W.Header().Get("X-Correlation-Id")
	if c.Person != nil {
		s.Person, s.SignOut = c.Person, c.Sessions.Ticket(c.Ctx(), FormSignOut)
		s.Switch = switches(c)
		if c.Area != nil {
			s.Frame = frameAround(c)
		}
	}
	var b bytes.Buffer
	if err := c.pages[d.name].ExecuteTemplate(&b, "layout.html", s); err != nil {
		c.Log.ErrorContext(c.Ctx(), "page rendering failed", slog.Any("err", err))
		d.status = http.StatusInternalServerError
		b.Reset()
	}
	h := c.W.Header()
	h.Set("Content-Security-Policy", policyOf(&s, d.leads))
	if s.Refresh != "" {
		h.Set("Refresh", "0; url="+s.Refresh)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept-Encoding") // the sessions add Cookie
	body := b.Bytes()
	if gzipped.Taken(c.R, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = gzipped.Bytes(body, gzip.DefaultCompression)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.W.WriteHeader(d.status)
	_, _ = c.W.Write(body) // the browser may have closed the connection
}

// Redirect leads the browser to another page. A form that was sent is not sent again there.
type Redirect struct {
	Status int
	To     string
}

func (r Redirect) write(c *Context) {
	c.W.Header().Set("Location", r.To)
	c.W.WriteHeader(r.Status)
}

// Redirect answers with [Redirect].
func (c *Context) Redirect(status int, to string) (View, error) { return Redirect{status, to}, nil }

// Stream is an answer that a page writes itself.
type Stream func()

func (s Stream) write(*Context) { s() }

// policyOf is the policy of a page: all comes from the service, and scripts are allowed where the page has one. Nothing is in the
// page itself: no style, no script.
func policyOf(s *Layout, leads string) string {
	var script, frames, connect string
	img := "'self' data:"
	if s.Frame != nil || s.Public || s.Passkey || s.Wallet {
		script = "'self'"
	}
	if s.Frame != nil {
		connect = "'self'"
	}
	if e := s.Embedded; e != nil {
		script, frames, connect, img = "'self' "+e.Hosts.Script, e.Hosts.Frame, e.Hosts.Connect, img+" "+e.Hosts.Img
	}
	policy := "default-src 'none'; style-src 'self'; font-src 'self'; img-src " + img + "; manifest-src 'self'; base-uri 'none'; form-action 'self'"
	if leads != "" {
		policy += " " + leads
	}
	for _, of := range [][2]string{{"script-src", script}, {"frame-src", frames}, {"connect-src", connect}} {
		if of[1] != "" {
			policy += "; " + of[0] + " " + of[1]
		}
	}
	return policy + "; frame-ancestors 'none'"
}

// Message is a page that only says something.
type Message struct {
	Text  string
	Fault bool
	Next  string       // what to do now; may be empty
	Links []Link       // pages on which to go on
	To    template.URL // address of a program, to which the person may go on; may be empty
	Host  string       // of To
}

const (
	TitleRefused = "Request rejected"
	TitleMissing = "Page not found"
	StartOver    = "Start again from the app that sent you here."
)

// Refusal is an error that its page says as it is.
type Refusal struct {
	Status            int
	Title, Text, Next string
}

func (r *Refusal) Error() string { return r.Text }

// Refuse refuses a request of a program. The text is safe to show.
func (c *Context) Refuse(status int, why string) error { return c.RefuseNext(status, why, StartOver) }

// RefuseNext is refuse with what to do next.
func (c *Context) RefuseNext(status int, why, next string) error {
	title := TitleRefused
	if status == http.StatusNotFound {
		title = TitleMissing
	}
	return &Refusal{status, title, why, next}
}

// Unable is the error of a fault of the service, without its cause.
func Unable(status int) error {
	return &Refusal{Status: status, Title: "Service unavailable", Text: "The service cannot process this request right now. Try again later."}
}

// instead is an error that is answered with a view, such as the page of a sign-in.
type instead struct{ View }

func (instead) Error() string { return "page: the response is another page" }

// Instead returns an error that is answered with the view, or err.
func Instead(view View, err error) error {
	if err != nil {
		return err
	}
	return instead{view}
}

// answer writes a view, or the page of an error: faults of the service are logged, and their texts not shown.
func (c *Context) answer(view View, err error) {
	if err == nil {
		view.write(c)
		return
	}
	if first, ok := errors.AsType[instead](err); ok {
		first.View.write(c)
		return
	}
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		e := toll.AsError(err)
		if r = (&Refusal{e.HTTPStatus(), TitleRefused, e.Text(), cmp.Or(nextStep(e), StartOver)}); r.Status >= http.StatusInternalServerError {
			c.Log.ErrorContext(c.Ctx(), "page failed", slog.Any("err", err))
			r, _ = errors.AsType[*Refusal](Unable(r.Status))
		}
		if r.Status == http.StatusNotFound {
			r.Title = TitleMissing
		}
	}
	if r.Status == http.StatusServiceUnavailable {
		c.W.Header().Set("Retry-After", "1")
	}
	body := Message{Text: r.Text, Fault: true, Next: r.Next}
	if r.Status == http.StatusNotFound && c.Area == nil {
		body.Links = nextPages(c)
	}
	document{status: r.Status, name: "message", Layout: Layout{Title: r.Title, Body: body}}.write(c)
}

// nextPages are offered where there is no page.
func nextPages(c *Context) []Link {
	out := []Link{{Text: "Your workspace", To: PathHome}}
	if c.Person != nil || !c.CloseReads {
		out = append(out, Link{Text: "Explore agents", To: PathExplore, Plain: true})
	}
	return append(out, Link{Text: "Read the documentation", To: "/docs", Plain: true})
}

// HasRight returns nil for a person who has a right here, else a refusal.
func (c *Context) HasRight(right toll.Right) error {
	if c.Person.Rights.Has(right) {
		return nil
	}
	who := "The API key that you signed in with does not have this right."
	if c.Person.User != nil {
		who = "Your role, " + string(c.Person.Workspace.Role) + ", does not have this right. Ask an owner or admin of the workspace to change your role."
	}
	return c.RefuseNext(http.StatusForbidden, "This requires the right "+string(right)+".", who)
}

// Param returns a part of the path that varies.
func (c *Context) Param(name string) string {
	have := strings.FieldsFunc(c.R.URL.EscapedPath(), func(r rune) bool { return r == '/' })
	for i, part := range strings.Split(strings.Trim(c.Area.Route(), "/"), "/") {
		if part == "{"+name+"}" && i < len(have) {
			text, err := url.PathUnescape(have[i])
			if err != nil {
				return ""
			}
			return text
		}
	}
	return ""
}

// Base is the path of the workspace, without a slash at its end.
func (c *Context) Base() string { return "/w/" + c.Person.Address.String() }

// To is the path of a page of the workspace.
func (c *Context) To(parts ...string) string {
	out := c.Base()
	for _, p := range parts {
		out += "/" + url.PathEscape(p)
	}
	return out
}

// Draw shows a page of the table.
func (c *Context) Draw(title string, body any) (View, error) {
	return c.Show(cmp.Or(c.Status, http.StatusOK), cmp.Or(c.Area.Template, "sheet"), Layout{Title: title, Fault: c.Fault, Body: body}, "")
}

// Missing returns a 404 for a record that does not exist or belongs to another workspace.
func (c *Context) Missing(what string) error {
	return c.RefuseNext(http.StatusNotFound, "This "+what+" does not exist in this workspace.", "")
}

// Failed returns [Context.Missing] if err is a 404, or a 400 outside a form, and any other error unchanged.
func (c *Context) Failed(what string, err error) error {
	if e := toll.AsError(err); e.HTTPStatus() == http.StatusNotFound || e.HTTPStatus() == http.StatusBadRequest && c.R.Method != http.MethodPost {
		return c.Missing(what)
	}
	return err
}

// SetChoice has the browser remember a choice for the pages below a path, or forget it.
func (c *Context) SetChoice(name, value, path string, keep bool) {
	cookie := c.Sessions.CookieBeside("")
	cookie.Name, cookie.Value, cookie.Path, cookie.MaxAge = name, value, path, 400*24*3600
	if !keep {
		cookie.Value, cookie.MaxAge = "", -1
	}
	http.SetCookie(c.W, cookie)
}

// Theme returns what the browser chose; "" for the colours of the system.
func (*Site) Theme(r *http.Request) string {
	cookie, err := r.Cookie(ThemeCookie)
	if err != nil || cookie.Value != "light" && cookie.Value != "dark" {
		return ""
	}
	return cookie.Value
}

// Embedded is a form of the processor in a frame of a page of ours.
type Embedded struct {
	Secret, Key string
	Source      string // address of the script of the processor
	Hosts       Hosts
}

// Hosts are the origins that a frame of the processor needs, as the policy of a page names them.
type Hosts struct{ Script, Frame, Connect, Img string }

// Wallets is a form that offers the wallets of the browser, which its script finds.
type Wallets struct {
	Label      string // what each button says before the name of the wallet; "" for no form
	Next, Link string
	Act        string // what it is for, from the page of the account
	Ticket     string
}

// Origin is where a page of another host sends this browser back: the public address, or the name of this machine under
// which the browser opened the page, which has its cookies.
func (c *Context) Origin() string {
	u, err := url.Parse(c.PublicURL)
	if err != nil || !toll.IsLoopback(u.Hostname()) || !toll.IsLoopback((&url.URL{Host: c.R.Host}).Hostname()) {
		return c.PublicURL
	}
	u.Host = c.R.Host
	return u.String()
}

// Rejected answers an error: retry shows the form with what the person can correct.
func (c *Context) Rejected(err error, retry func(status int, fault string) (View, error)) (View, error) {
	e := toll.AsError(err)
	if e.HTTPStatus() >= http.StatusInternalServerError {
		return nil, err
	}
	if e.RetryAfterSecs > 0 {
		c.W.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	}
	return retry(e.HTTPStatus(), explained(e))
}

// nextStep returns the hint of an error. A page has no use for the general hint about request bodies.
func nextStep(e *toll.Error) string {
	if e.Code == toll.CodeBadRequest && e.Hint == e.Code.Info().Hint {
		return ""
	}
	return e.Hint
}

// explained returns the message of an error with its next step.
func explained(e *toll.Error) string { return strings.TrimSpace(e.Text() + " " + nextStep(e)) }

// Ticket is [session.Sessions.Ticket] for a form that acts in the workspace in which it is shown, also when another tab has opened
// another workspace since.
func (c *Context) Ticket(says ...string) string {
	return c.Sessions.Ticket(c.Ctx(), append(says, c.Person.Address.Lower())...)
}

// Holds is [session.Sessions.Holds] for a form of [Context.Ticket].
func (c *Context) Holds(ticket string, says ...string) bool {
	return c.Sessions.Holds(c.Ctx(), ticket, append(says, c.Person.Address.Lower())...)
}

// ThemeCookie says which colours the browser wants: light, dark, or, without it, those of the system. It says nothing else.
const ThemeCookie = "theme"

// FormSignOut is the first word of what the ticket of that form says.
const FormSignOut = "sign-out"
