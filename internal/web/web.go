// Package web serves the pages for people: it composes sign-in, consent, workspaces, public pages, orders, and cards. They load nothing
// from other origins, except the form of the card processor, which the page of an order may have in a frame.
//
// The toolkit is in web/page, sessions are in web/session, pages of a workspace are in web/workspace, and those of operators in web/operator.
package web

import (
	"context"
	"embed"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/meter"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web/operator"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/session"
	"github.com/tollhq/toll/internal/web/workspace"
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
	Operator operator.Operator
	Changes  func(version string) []workspace.Change // of the API since a version
	Outbound outbound.Config                         // where calls of the page that tries an agent may go
	// FindAgents searches the catalogue: agents last updated first, and where the next part begins.
	FindAgents func(ctx context.Context, query string, limit int, cursor string) (found []*store.ListedAgent, next string, err error)
}

// Web serves the pages.
type Web struct {
	Deps
	*page.Site
	looks *meter.Meter[toll.Address] // by accounts: questions to the card processor for a page
	began time.Time
}

// New returns the pages. Errors: a public address that is not an origin.
func New(d Deps) (*Web, error) {
	w := &Web{Deps: d, looks: meter.New[toll.Address](lookEvery, mostLooks), began: time.Now()}
	d.Pages.SignIn = w
	var err error
	w.Site, err = page.NewSite(d.Pages, session.Config{
		Store: d.Store, Auth: d.Auth, People: d.People, Seal: d.Seal, Open: d.Open, PublicURL: d.Pages.PublicURL, Clock: d.Pages.Clock,
	}, files, page.Set{Templates: files, Routes: append(w.peopleRoutes(), w.publicRoutes()...)}, workspace.Pages(workspace.Deps{
		Records: d.Checkout.Reports, Events: d.Events, Programs: programs{w}, Auth: d.Auth, People: d.People, Cards: d.Cards != nil, Changes: d.Changes, Outbound: d.Outbound,
	}), operator.Pages(d.Operator, d.People))
	if err == nil {
		w.Bridge = w
	}
	return w, err
}

// peopleRoutes are the pages of people outside workspaces.
func (w *Web) peopleRoutes() []page.Route {
	return []page.Route{
		at(page.PathHome, w.Home()), at(page.PathSignOut, w.SignOut()), at(page.PathWallet, w.Wallet()), at(page.PathOIDC, w.OIDC()), at(people.PathOIDC, w.OIDCBack()),
		at(page.PathSignIn, w.SignIn()), at(page.PathAuthorize, w.Authorize()), at(page.PathDevice, w.Device()), at(page.PathAccess, w.Access()),
		at(page.PathCLI, w.CLI()), at(PathCheckout, w.CheckoutPage()), at(PathCheckoutDone, w.CheckoutDone()),
		at(PathCheckoutAgain, w.CheckoutAgain()), at(page.PathEnroll, w.Enroll()), at(page.PathSignUp, w.SignUp()), at(page.PathJoin, w.Join()),
		at(page.PathRecover, w.Recover()), at(page.PathConfirm, w.confirm()), at(page.PathSecurity, w.Security()), at(page.PathMail, w.Mail()),
		at(people.PathMailStop, w.MailStop()),
	}
}

func at(path string, r page.Route) page.Route {
	r.Path = path
	return r
}

// deps returns the services behind a page.
func deps(c *page.Context) *Web { return c.Bridge.(*Web) }

// page returns a page that get shows and post acts for.
func (w *Web) page(get, post func(*page.Context) (page.View, error)) page.Route {
	return page.Route{Get: get, Post: post}
}

// admitUser begins a session for a person who proved a credential, see [session.Sessions.AdmitPerson].
func admitUser(c *page.Context, u toll.Person, proof string, at toll.Address) (err error) {
	c.Person, err = c.Sessions.AdmitPerson(c.W, c.R, u, proof, at)
	return err
}

// Home is GET /w: the overview of the workspace that was used last.
func (w *Web) Home() page.Route {
	return w.page(func(c *page.Context) (page.View, error) {
		if c.Person == nil {
			return c.SignIn.Ask(c, http.StatusOK, "", page.PathHome, "")
		}
		return c.Redirect(http.StatusSeeOther, firstPage(c))
	}, nil)
}
