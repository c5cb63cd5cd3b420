// Package web serves the pages for people: it composes sign-in, consent, workspaces, public pages, orders, and cards. They load nothing
// from other origins, except the form of the card processor, which the page of an order may have in a frame.
//
// Pages of a workspace are rows of one table, see [areaPages]: an area is one file with its rows and one template a page. Their
// forms work without scripts. The toolkit is in web/page, sessions are in web/session.
package web

import (
	"context"
	"embed"
	"net/http"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
)

//go:generate sh -c "cd generate && npm ci --ignore-scripts --no-audit --no-fund && node vendor.mjs"

//go:embed *.html static
var files embed.FS

// Deps has what the pages are built on.
type Deps struct {
	Pages    page.Config
	Seal     func(plain, aad []byte) ([]byte, error) // answers to forms, which may hold one-time codes
	Open     func(sealed, aad []byte) ([]byte, error)
	Store    *store.Store
	Ledger   *ledger.Ledger
	Checkout *checkout.Checkout
	Auth     *auth.Auth
	OAuth    *oauth.OAuth
	Cards    Cards // nil: no card rail
	People   *people.People
	Events   *events.Events
	Operator Operator
	Changes  func(version string) []Change // of the API since a version
	Outbound outbound.Config               // where calls of the page that tries an agent may go
	// FindAgents searches the catalogue: agents last updated first, and where the next part begins.
	FindAgents func(ctx context.Context, query string, limit int, cursor string) (found []*store.ListedAgent, next string, err error)
}

// Web serves the pages.
type Web struct {
	Deps
	*page.Site
	looks    *meter.Meter[toll.Address] // by accounts: questions to the card processor for a page
	began    time.Time
	outbound *outbound.Client
	tries    *tries // calls from pages that run
	payers   *cache.Cache[payersKey, []page.Stat]
}

// New returns the pages. Errors: a public address that is not an origin.
func New(d Deps) (*Web, error) {
	w := &Web{Deps: d, looks: meter.New[toll.Address](lookEvery, mostLooks), began: time.Now(), payers: cache.New[payersKey, []page.Stat](mostPayers)}
	d.Outbound.Timeout = tryTimeout
	w.outbound, w.tries = outbound.New(d.Outbound), &tries{of: map[toll.Address]int{}}
	areas := slices.DeleteFunc(areaPages(), func(p page.Area) bool { return p.Sandbox && d.Pages.Environment == toll.Live })
	var err error
	w.Site, err = page.NewSite(d.Pages, session.Config{
		Store: d.Store, Auth: d.Auth, People: d.People, Seal: d.Seal, Open: d.Open, PublicURL: d.Pages.PublicURL, Clock: d.Pages.Clock,
	}, files, areas, []string{
		"sign_in", "cli", "consent", "device", "access", "checkout", "enroll", "message", "sign_up", "join", "recover", "confirm",
		"security", "mail", "mail_stop", "newcomer", "wallet", "explore", "public_agent", "public_plan", "receipts",
	})
	return w, err
}

// webKey is the key of [Web] in the context of a request for one of its pages.
type webKey struct{}

// deps returns the services behind a page.
func deps(c *page.Context) *Web { return c.R.Context().Value(webKey{}).(*Web) }

// page serves a path: get shows, post acts.
func (w *Web) page(get, post func(*page.Context) (page.View, error)) http.Handler {
	serve := w.Serve(get, post)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		serve.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), webKey{}, w)))
	})
}

// NoPage answers a person whose address has no page, or takes only forms (405).
func (w *Web) NoPage(rw http.ResponseWriter, r *http.Request, status int) {
	w.page(func(c *page.Context) (page.View, error) {
		if status == http.StatusMethodNotAllowed {
			return nil, c.RefuseNext(status, "This address only takes what a form sends, and has nothing to show.", "Go back to the page with the form, and send it from there.")
		}
		return nil, c.RefuseNext(status, "Nothing is at this address. It was mistyped, or what was there has gone.", "")
	}, nil).ServeHTTP(rw, r)
}

// admitUser begins a session for a person who proved a credential, see [session.Sessions.AdmitPerson].
func admitUser(c *page.Context, u toll.Person, proof string, at toll.Address) (err error) {
	c.Person, err = c.Sessions.AdmitPerson(c.W, c.R, u, proof, at)
	return err
}

// storePage returns the part of a list as the stores take it.
func storePage(p page.Listing) store.Page {
	return store.Page{Size: p.Size, Cursor: p.Cursor, Sort: store.Sort(p.Sort), Ascending: p.Ascending}
}
