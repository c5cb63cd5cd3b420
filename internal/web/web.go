// Package web is the pages for people: sign-in of a browser, consent to what programs ask for, and what they got; the page of a
// card order, and that on which a card is enrolled. They ask nothing of others, but for the form of the card processor, which
// the page of an order may have in a frame.
//
// Pages of a workspace are rows of one table, see [areaPages]: an area is one file with its rows and one template a page. Their
// forms work without scripts.
package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/gzipped"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// maxForm bounds the body of a form in bytes.
const maxForm = 16 << 10

//go:embed *.html
var pages embed.FS

// Deps is what the pages are built on.
type Deps struct {
	Store       *store.Store
	Ledger      *ledger.Ledger
	Checkout    *checkout.Checkout
	Auth        *auth.Auth
	OAuth       *oauth.OAuth
	Handler     http.Handler                            // of the API, which pages call as a client
	Namespace   x402.Namespace                          // brand words on the wire
	Seal        func(plain, aad []byte) ([]byte, error) // where a browser was sent holds a one-time code
	Open        func(sealed, aad []byte) ([]byte, error)
	PublicURL   string // origin of the service, whose pages may send its forms
	Environment toll.Environment
	Clock       func() time.Time
	Machine     func() time.Time // by which the links of orders end, whatever the clock of a sandbox says
	Cards       Cards            // nil: no card rail, and its pages say so
	People      *people.People
	Events      *events.Events
	Operation   func(context.Context) (Operation, error)
	// VerifyBackup reads a whole backup by its name, and opens it.
	VerifyBackup func(ctx context.Context, name string) (VerifiedBackup, error)
	MakeBackup   func()                        // soon, in the background
	Changes      func(version string) []Change // of the API since a version
	Source       func(*http.Request) string    // names who asks, for the limit of enrolments, without telling the address
	Address      func(*http.Request) string    // address of who asks, for limits and the audit log
	Log          *slog.Logger
	Outbound     outbound.Config // where calls of the page that tries an agent may go
	Brand        Brand
	CloseReads   bool // public pages are for people who signed in
	// FindAgents searches the catalogue: agents last updated first, and where the next part begins.
	FindAgents func(ctx context.Context, query string, limit int, cursor string) (found []*store.ListedAgent, next string, err error)
}

// Web serves the pages.
type Web struct {
	Deps
	origin   *http.CrossOriginProtection
	sessions *scs.SessionManager
	pages    map[string]*template.Template
	assets   *assets
	API      *client.Client // see [newAPI]
	areas    []areaPage
	signIns  *meter.Quota
	looks    *meter.Meter[toll.Address] // by accounts, of what was asked of the card processor for a page
	began    time.Time
	outbound *outbound.Client
	brand    brand
	tries    *tries // calls from pages that run
	payers   *cache.Cache[payersKey, []stat]
}

// maxSignIns is how often an account may sign in within an hour: each is a session that stays for days.
const maxSignIns = 600

// New returns the pages. Errors: a public address that is no origin.
func New(d Deps) (*Web, error) {
	w := &Web{
		Deps: d, origin: http.NewCrossOriginProtection(), pages: map[string]*template.Template{},
		API: newAPI(d), signIns: meter.NewQuota("sign-ins", 0, maxSignIns), looks: meter.New[toll.Address](lookEvery, mostLooks), began: time.Now(),
		payers: cache.New[payersKey, []stat](mostPayers),
	}
	var err error
	if w.brand, err = d.Brand.read(); err != nil {
		return nil, err
	}
	d.Outbound.Timeout = tryTimeout
	w.outbound, w.tries = outbound.New(d.Outbound), &tries{of: map[toll.Address]int{}}
	u, err := url.Parse(d.PublicURL)
	if err != nil {
		return nil, err
	}
	if err := w.origin.AddTrustedOrigin(u.Scheme + "://" + u.Host); err != nil {
		return nil, err
	}
	w.sessions = newSessions(d, u)
	w.sessions.ErrorFunc = func(rw http.ResponseWriter, r *http.Request, err error) {
		(&visit{w: w, rw: rw, r: r}).fail(err)
	}
	if w.assets, err = newAssets(); err != nil {
		return nil, err
	}
	w.areas = slices.DeleteFunc(areaPages(), func(p areaPage) bool { return p.Sandbox && d.Environment == toll.Live })
	return w, w.parse()
}

// parse reads the templates: a page is the layout, the components, and the file that defines its body.
func (w *Web) parse() error {
	names := []string{
		"sign_in", "cli", "consent", "device", "access", "checkout", "enroll", "message", "sign_up", "join", "recover", "confirm",
		"security", "mail", "mail_stop", "newcomer", "wallet", "explore", "public_agent", "public_plan", "receipts",
	}
	for _, p := range w.areas {
		names = append(names, p.Template)
	}
	common, err := template.New("layout.html").Funcs(w.functions()).ParseFS(pages, "layout.html", "components.html")
	for _, name := range names {
		if err == nil && w.pages[name] == nil {
			if w.pages[name], err = common.Clone(); err == nil {
				_, err = w.pages[name].ParseFS(pages, name+".html")
			}
		}
	}
	return err
}

// workspaceOf returns the workspace that a request names, "" for none: below /w/, in a field of its form, or in its query.
func workspaceOf(r *http.Request) string {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/w/"); ok {
		at, _, _ := strings.Cut(rest, "/")
		return cmp.Or(at, "-")
	}
	if r.Method == http.MethodPost {
		return r.PostForm.Get("workspace")
	}
	return r.URL.Query().Get("workspace")
}

// visit is one request of a browser.
type visit struct {
	w       *Web
	rw      http.ResponseWriter
	r       *http.Request
	form    url.Values // of a POST
	person  *person    // nil: nobody signed in
	at      string     // of a POST: the page with its form
	area    *areaPage  // of a page of a workspace
	status  int        // with which that page is shown; 0 is 200
	fault   string     // what was wrong with its form
	refusal error      // the same, for the fields of that form
	sort    *field     // the order of the list of the page; nil: it has one order
}

func (v *visit) ctx() context.Context { return v.r.Context() }

// here is the page that the browser shows.
func (v *visit) here() string {
	if v.r.Method == http.MethodPost {
		return v.at
	}
	return place(v.r.URL.RequestURI())
}

// page serves a path: get shows, post acts.
func (w *Web) page(get, post func(*visit)) http.Handler {
	inner := w.sessions.LoadAndSave(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		v := &visit{w: w, rw: rw, r: r}
		var err error
		v.person, err = w.person(r.Context(), workspaceOf(r))
		if errors.Is(err, errNotMember) {
			v.refuseNext(http.StatusNotFound, "There is no such workspace, or you are not a member of it.", "")
			return
		}
		if err != nil {
			v.fail(err)
			return
		}
		actor := store.Actor{Kind: "local", Source: w.Address(r), Agent: r.UserAgent()}
		if p := v.person; p != nil {
			actor.Kind, actor.ID = "key", p.KeyID.String()
			if p.User != nil {
				actor.Kind, actor.ID = "user", p.User.ID.String()
			}
		}
		ctx := store.WithActor(r.Context(), actor)
		if c, err := r.Cookie(w.browserCookie().Name); err == nil {
			ctx = people.WithBrowser(ctx, c.Value)
		}
		v.r = r.WithContext(ctx)
		if r.Method != http.MethodPost {
			get(v)
			return
		}
		v.form = r.PostForm
		post(v)
	}))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		h := rw.Header()
		h.Del("Access-Control-Allow-Origin")
		h.Del("Access-Control-Expose-Headers")
		h.Set("Cache-Control", "no-store")
		h.Set("X-Frame-Options", "DENY")
		// With no-referrer browsers would send the form with "Origin: null".
		h.Set("Referrer-Policy", "same-origin")
		if r.Method == http.MethodPost {
			v := &visit{w: w, rw: rw, r: r}
			// The library compares hosts alone where a browser does not say from which site a form comes.
			plain := strings.HasPrefix(w.PublicURL, "https:") && strings.HasPrefix(r.Header.Get("Origin"), "http:")
			if err := w.origin.Check(r); err != nil || plain || w.unnamed(r) {
				v.refuse(http.StatusForbidden, "The form was sent by another page.")
				return
			}
			media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
			r.Body = http.MaxBytesReader(rw, r.Body, maxForm)
			if err != nil || media != "application/x-www-form-urlencoded" || r.ParseForm() != nil {
				v.refuse(http.StatusBadRequest, "The form could not be read.")
				return
			}
		}
		inner.ServeHTTP(rw, r.WithContext(withVisited(r.Context())))
	})
}

// unnamed reports whether a form comes with a session, and without a word on the page that sent it. Every browser says that.
func (w *Web) unnamed(r *http.Request) bool {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		return false
	}
	_, err := r.Cookie(w.sessions.Cookie.Name)
	return err == nil
}

// shown is what a page says.
type shown struct {
	Theme       string // light, dark, or "" for that of the system
	Frame       *frame // of a page of a workspace; nil for a page that stands alone
	Environment toll.Environment
	Public      bool // a page that everybody may open
	Title       string
	Person      *person
	SignOut     string // ticket of the form that signs out
	Here        string // where that form leads
	Switch      []switchTo
	Fault       string // what was wrong with the last form; safe to show
	Body        any
	Embedded    *embedded // a form of the card processor in a frame; nil for none
	Passkey     bool      // the page asks for a passkey, by a script
	Wallet      bool      // the page asks a wallet, by a script
	Wallets     wallets   // form that it fills
	Refresh     string    // address to which the browser goes on by itself; "" for none
	Correlation string    // id of the request, for the log of the service
}

// switchTo leads to the same page in another workspace.
type switchTo struct {
	Text, To string
	Here     bool
}

// switches are the workspaces of the person; nil for one alone.
func switches(v *visit) []switchTo {
	if len(v.person.Workspaces) < 2 {
		return nil
	}
	here, err := url.Parse(v.here())
	if err != nil {
		return nil
	}
	out := make([]switchTo, len(v.person.Workspaces))
	for i, o := range v.person.Workspaces {
		at, to := o.Address.String(), *here
		if strings.HasPrefix(here.Path, "/w/") {
			to.Path, to.RawQuery = "/w/"+at+kept(v), ""
		} else {
			q := to.Query()
			q.Set("workspace", at)
			to.RawQuery = q.Encode()
		}
		out[i] = switchTo{Text: cmp.Or(plain.Name(o.Name), at[:8]+"…"+at[len(at)-4:]), To: to.String(), Here: o.Address == v.person.Address}
	}
	return out
}

// kept is the page below a workspace that another workspace has as well: the members, or the list that this page is of.
func kept(v *visit) string {
	if v.area == nil {
		return ""
	}
	return cmp.Or(v.area.Under, v.area.Path)
}

// show answers with a page. Its forms may lead to the service itself, and to what else leads names: a browser holds the
// redirect after a form to it as well.
func (v *visit) show(status int, name string, s shown, leads string) {
	s.Environment, s.Theme, s.Here, s.Correlation = v.w.Environment, theme(v), v.here(), v.rw.Header().Get("X-Correlation-Id")
	if v.person != nil {
		s.Person, s.SignOut = v.person, v.w.ticket(v.ctx(), formSignOut)
		s.Switch = switches(v)
		if v.area != nil {
			s.Frame = frameAround(v)
		}
	}
	var b bytes.Buffer
	if err := v.w.pages[name].ExecuteTemplate(&b, "layout.html", s); err != nil {
		v.w.Log.ErrorContext(v.ctx(), "page", slog.Any("err", err))
		status = http.StatusInternalServerError
		b.Reset()
	}
	h := v.rw.Header()
	h.Set("Content-Security-Policy", policyOf(&s, leads))
	if s.Refresh != "" {
		h.Set("Refresh", "0; url="+s.Refresh)
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept-Encoding") // the sessions add Cookie
	body := b.Bytes()
	if gzipped.Taken(v.r, "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = gzipped.Bytes(body, gzip.DefaultCompression)
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	v.rw.WriteHeader(status)
	_, _ = v.rw.Write(body) // the browser has gone; there is nobody to tell
}

// policyOf is the policy of a page: all comes from the service, and scripts are allowed where the page has one. Nothing is in the
// page itself: no style, no script.
func policyOf(s *shown, leads string) string {
	var script, frames, connect string
	img := "'self' data:"
	if s.Frame != nil || s.Public || s.Passkey || s.Wallet {
		script = "'self'"
	}
	if s.Frame != nil {
		connect = "'self'"
	}
	if e := s.Embedded; e != nil {
		script, frames, connect, img = "'self' "+e.hosts.script, e.hosts.frame, e.hosts.connect, img+" "+e.hosts.img
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

// message is a page that only says something.
type message struct {
	Text  string
	Fault bool
	Next  string       // what to do now; may be empty
	Ways  []link       // pages on which to go on
	To    template.URL // address of a program, to which the person may go on; may be empty
	Host  string       // of To
}

const (
	titleRefused = "This was refused"
	titleMissing = "There is no such page"
	startAgain   = "Start again from the program that sent you here."
)

// refuse says why something cannot go on. The text is safe to show.
func (v *visit) refuse(status int, why string) { v.refuseNext(status, why, startAgain) }

// refuseNext is refuse with what to do now.
func (v *visit) refuseNext(status int, why, next string) {
	body, title := message{Text: why, Fault: true, Next: next}, titleRefused
	if status == http.StatusNotFound {
		title = titleMissing
		if v.area == nil {
			body.Ways = nextPages(v)
		}
	}
	v.show(status, "message", shown{Title: title, Body: body}, "")
}

// nextPages are pages on which whoever is lost can go on.
func nextPages(v *visit) []link {
	out := []link{{Text: "Your workspace", To: PathHome}}
	if v.person != nil || !v.w.CloseReads {
		out = append(out, link{Text: "Explore agents", To: PathExplore, Plain: true})
	}
	return append(out, link{Text: "Read the documents", To: "/docs", Plain: true})
}

// NoPage answers a person whose address has no page, or takes only forms (405).
func (w *Web) NoPage(rw http.ResponseWriter, r *http.Request, status int) {
	w.page(func(v *visit) {
		if status == http.StatusMethodNotAllowed {
			v.refuseNext(status, "This address only takes what a form sends, and has nothing to show.", "Go back to the page with the form, and send it from there.")
			return
		}
		v.refuseNext(status, "Nothing is at this address. It was mistyped, or what was there has gone.", "")
	}, nil).ServeHTTP(rw, r)
}

// fail answers an error that is not the person's.
func (v *visit) fail(err error) {
	e := toll.AsError(err)
	status := e.HTTPStatus()
	if status < http.StatusInternalServerError {
		v.refuse(status, e.Text())
		return
	}
	v.w.Log.ErrorContext(v.ctx(), "a page failed", slog.Any("err", err))
	v.unable(status)
}

// unable says that nobody can go on now, for a fault of the service.
func (v *visit) unable(status int) {
	if status == http.StatusServiceUnavailable {
		v.rw.Header().Set("Retry-After", "1")
	}
	v.show(status, "message", shown{Title: "This does not work now", Body: message{Text: "The service cannot do this now. Try again.", Fault: true}}, "")
}

// redirect leads the browser on. A form that was sent is not sent again there.
func (v *visit) redirect(status int, to string) {
	v.rw.Header().Set("Location", to)
	v.rw.WriteHeader(status)
}
