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
	counted bool            // a call of the API has counted against limits
	sort    *Field          // the order of the list of the page; nil: it has one order
}

// Ctx returns the context of the request.
func (v *Context) Ctx() context.Context { return v.R.Context() }

// Here is the page that the browser shows.
func (v *Context) Here() string {
	if v.R.Method == http.MethodPost {
		return v.At
	}
	return LocalPath(v.R.URL.RequestURI())
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
func switches(v *Context) []switchTo {
	if len(v.Person.Workspaces) < 2 {
		return nil
	}
	here, err := url.Parse(v.Here())
	if err != nil {
		return nil
	}
	out := make([]switchTo, len(v.Person.Workspaces))
	for i, o := range v.Person.Workspaces {
		at, to := o.Address.String(), *here
		if strings.HasPrefix(here.Path, "/w/") {
			to.Path, to.RawQuery = "/w/"+at+kept(v), ""
		} else {
			q := to.Query()
			q.Set("workspace", at)
			to.RawQuery = q.Encode()
		}
		out[i] = switchTo{Text: cmp.Or(plain.Name(o.Name), at[:8]+"…"+at[len(at)-4:]), To: to.String(), Here: o.Address == v.Person.Address}
	}
	return out
}

// kept is the page below a workspace that another workspace has as well: the members, or the list that this page is of.
func kept(v *Context) string {
	if v.Area == nil {
		return ""
	}
	return cmp.Or(v.Area.Under, v.Area.Path)
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
func (v *Context) Show(status int, name string, s Layout, leads string) (View, error) {
	return document{status, name, s, leads}, nil
}

func (d document) write(v *Context) {
	s := d.Layout
	s.Environment, s.Theme, s.Here, s.Correlation = v.Environment, theme(v), v.Here(), v.W.Header().Get("X-Correlation-Id")
	if v.Person != nil {
		s.Person, s.SignOut = v.Person, v.Sessions.Ticket(v.Ctx(), FormSignOut)
		s.Switch = switches(v)
		if v.Area != nil {
			s.Frame = frameAround(v)
		}
	}
	var b bytes.Buffer
	if err := v.pages[d.name].ExecuteTemplate(&b, "layout.html", s); err != nil {
		v.Log.ErrorContext(v.Ctx(), "page", slog.Any("err", err))
		d.status = http.StatusInternalServerError
		b.Reset()
	}
	h := v.W.Header()
	h.Set("Content-Security-Policy", policyOf(&s, d.leads))
	if s.Refresh != "" {
		h.Set("Refresh", "0; url="+s.Refresh)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept-Encoding") // the sessions add Cookie
	body := b.Bytes()
	if gzipped.Taken(v.R, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = gzipped.Bytes(body, gzip.DefaultCompression)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	v.W.WriteHeader(d.status)
	_, _ = v.W.Write(body) // the browser may have closed the connection
}

// Redirect leads the browser to another page. A form that was sent is not sent again there.
type Redirect struct {
	Status int
	To     string
}

func (r Redirect) write(v *Context) {
	v.W.Header().Set("Location", r.To)
	v.W.WriteHeader(r.Status)
}

// Redirect answers with [Redirect].
func (v *Context) Redirect(status int, to string) (View, error) { return Redirect{status, to}, nil }

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
	TitleRefused = "This was refused"
	TitleMissing = "There is no such page"
	StartOver    = "Start again from the program that sent you here."
)

// Refusal is an error that its page says as it is.
type Refusal struct {
	Status            int
	Title, Text, Next string
}

func (r *Refusal) Error() string { return r.Text }

// Refuse refuses a request of a program. The text is safe to show.
func (v *Context) Refuse(status int, why string) error { return v.RefuseNext(status, why, StartOver) }

// RefuseNext is refuse with what to do next.
func (v *Context) RefuseNext(status int, why, next string) error {
	title := TitleRefused
	if status == http.StatusNotFound {
		title = TitleMissing
	}
	return &Refusal{status, title, why, next}
}

// Unable is the error of a fault of the service, without its cause.
func Unable(status int) error {
	return &Refusal{Status: status, Title: "This does not work now", Text: "The service cannot do this now. Try again."}
}

// instead is an error that is answered with a view, such as the page of a sign-in.
type instead struct{ View }

func (instead) Error() string { return "page: another page comes first" }

// Instead returns an error that is answered with the view, or err.
func Instead(view View, err error) error {
	if err != nil {
		return err
	}
	return instead{view}
}

// answer writes a view, or the page of an error: faults of the service are logged, and their texts not shown.
func (v *Context) answer(view View, err error) {
	if err == nil {
		view.write(v)
		return
	}
	if first, ok := errors.AsType[instead](err); ok {
		first.View.write(v)
		return
	}
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		e := toll.AsError(err)
		if r = (&Refusal{e.HTTPStatus(), TitleRefused, e.Text(), StartOver}); r.Status >= http.StatusInternalServerError {
			v.Log.ErrorContext(v.Ctx(), "a page failed", slog.Any("err", err))
			r, _ = errors.AsType[*Refusal](Unable(r.Status))
		}
		if r.Status == http.StatusNotFound {
			r.Title = TitleMissing
		}
	}
	if r.Status == http.StatusServiceUnavailable {
		v.W.Header().Set("Retry-After", "1")
	}
	body := Message{Text: r.Text, Fault: true, Next: r.Next}
	if r.Status == http.StatusNotFound && v.Area == nil {
		body.Links = nextPages(v)
	}
	document{status: r.Status, name: "message", Layout: Layout{Title: r.Title, Body: body}}.write(v)
}

// nextPages are offered where there is no page.
func nextPages(v *Context) []Link {
	out := []Link{{Text: "Your workspace", To: PathHome}}
	if v.Person != nil || !v.CloseReads {
		out = append(out, Link{Text: "Explore agents", To: PathExplore, Plain: true})
	}
	return append(out, Link{Text: "Read the documents", To: "/docs", Plain: true})
}

// HasRight returns nil for a person who has a right here, else a refusal.
func (v *Context) HasRight(right toll.Right) error {
	if v.Person.Rights.Has(right) {
		return nil
	}
	who := "The API key with which you signed in lacks it."
	if v.Person.User != nil {
		who = "Your role here, " + string(v.Person.Workspace.Role) + ", does not have it. An owner or admin of the workspace can change that."
	}
	return v.RefuseNext(http.StatusForbidden, "This takes the right "+string(right)+".", who)
}

// Param returns a part of the path that varies.
func (v *Context) Param(name string) string {
	have := strings.FieldsFunc(v.R.URL.EscapedPath(), func(r rune) bool { return r == '/' })
	for i, part := range strings.Split(strings.Trim(v.Area.Route(), "/"), "/") {
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
func (v *Context) Base() string { return "/w/" + v.Person.Address.String() }

// To is the path of a page of the workspace.
func (v *Context) To(parts ...string) string {
	out := v.Base()
	for _, p := range parts {
		out += "/" + url.PathEscape(p)
	}
	return out
}

// Draw shows a page of the table.
func (v *Context) Draw(title string, body any) (View, error) {
	return v.Show(cmp.Or(v.Status, http.StatusOK), v.Area.Template, Layout{Title: title, Fault: v.Fault, Body: body}, "")
}

// Missing answers for a record that is not there, or not of this workspace, which is the same.
func (v *Context) Missing(what string) error {
	return v.RefuseNext(http.StatusNotFound, "There is no such "+what+" in this workspace.", "")
}

// Failed returns the refusal for a record that is not there, and every other error as it is.
func (v *Context) Failed(what string, err error) error {
	if e := toll.AsError(err); e.HTTPStatus() == http.StatusNotFound || e.HTTPStatus() == http.StatusBadRequest && v.R.Method != http.MethodPost {
		return v.Missing(what)
	}
	return err
}

// SetChoice has the browser remember a choice for the pages below a path, or forget it.
func (v *Context) SetChoice(name, value, path string, keep bool) {
	c := v.Sessions.CookieBeside("")
	c.Name, c.Value, c.Path, c.MaxAge = name, value, path, 400*24*3600
	if !keep {
		c.Value, c.MaxAge = "", -1
	}
	http.SetCookie(v.W, c)
}

// theme returns what the browser chose; "" for the colours of the system.
func theme(v *Context) string {
	c, err := v.R.Cookie(ThemeCookie)
	if err != nil || c.Value != "light" && c.Value != "dark" {
		return ""
	}
	return c.Value
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
func (v *Context) Origin() string {
	u, err := url.Parse(v.PublicURL)
	if err != nil || !toll.IsLoopback(u.Hostname()) || !toll.IsLoopback((&url.URL{Host: v.R.Host}).Hostname()) {
		return v.PublicURL
	}
	u.Host = v.R.Host
	return u.String()
}

// Rejected answers an error: retry shows the form with what the person can correct.
func (v *Context) Rejected(err error, retry func(status int, fault string) (View, error)) (View, error) {
	e := toll.AsError(err)
	if e.HTTPStatus() >= http.StatusInternalServerError {
		return nil, err
	}
	if e.RetryAfterSecs > 0 {
		v.W.Header().Set("Retry-After", strconv.Itoa(e.RetryAfterSecs))
	}
	return retry(e.HTTPStatus(), e.Text())
}

// Ticket is [session.Sessions.Ticket] for a form that acts in the workspace in which it is shown, also when another tab has opened
// another workspace since.
func (v *Context) Ticket(says ...string) string {
	return v.Sessions.Ticket(v.Ctx(), append(says, v.Person.Address.Lower())...)
}

// Holds is [session.Sessions.Holds] for a form of [Context.Ticket].
func (v *Context) Holds(ticket string, says ...string) bool {
	return v.Sessions.Holds(v.Ctx(), ticket, append(says, v.Person.Address.Lower())...)
}

// ThemeCookie says which colours the browser wants: light, dark, or, without it, those of the system. It says nothing else.
const ThemeCookie = "theme"

// FormSignOut is the first word of what the ticket of that form says.
const FormSignOut = "sign-out"
