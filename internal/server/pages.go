package server

import (
	"net/http"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web"
	"github.com/tollhq/toll/internal/web/page"
)

// pages are the routes for people, and for programs that ask them; noPage answers people everywhere else.
func (s *Server) pages() (pages []api.Page, noPage func(http.ResponseWriter, *http.Request, int), err error) {
	w, err := s.web()
	if err != nil {
		return nil, nil, err
	}
	return append(peoplePages(w), s.oauthPages()...), w.NoPage, nil
}

// web is the room of the pages.
func (s *Server) web() (*web.Web, error) {
	cards, _ := s.rails.Rails[store.RailCard].(web.Cards)
	proxies := s.cfg.limits().Proxies
	return web.New(web.Deps{
		Pages: page.Config{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }), Namespace: s.cfg.Namespace,
			PublicURL: s.PublicURL(), Environment: s.base.auth.Environment(), Clock: s.cfg.Clock, Machine: s.base.clock.machine, Address: func(r *http.Request) string { return api.Source(r, proxies).String() },
			Log: s.cfg.Log, Brand: s.cfg.Brand, CloseReads: s.cfg.CloseReads, Source: func(r *http.Request) string { return s.rails.Cards.Source(api.Source(r, proxies)) },
		},
		Store: s.base.store, Ledger: s.ledger, Checkout: s.checkout, Auth: s.base.auth, OAuth: s.oauth, People: s.people, Events: s.events, Cards: cards,
		Seal: s.base.ring.Seal, Open: s.base.ring.Open, Outbound: outbound.Config{Loopback: s.cfg.LoopbackWebhooks}, Operator: s, Changes: changesSince, FindAgents: s.facilitator.Catalogue.FindAgents,
	})
}

func peoplePages(w *web.Web) []api.Page {
	pages := []api.Page{
		{Method: http.MethodPost, Path: page.PathSignOut, Handler: w.SignOut()}, {Method: http.MethodPost, Path: page.PathWallet, Handler: w.Wallet()},
		{Method: http.MethodPost, Path: page.PathOIDC, Handler: w.OIDC()}, {Method: http.MethodGet, Path: people.PathOIDC, Handler: w.OIDCBack()},
	}
	for path, h := range map[string]http.Handler{
		page.PathSignIn: w.SignIn(), page.PathAuthorize: w.Authorize(), page.PathDevice: w.Device(), page.PathAccess: w.Access(), page.PathCLI: w.CLI(),
		web.PathCheckout: w.CheckoutPage(), web.PathCheckoutDone: w.CheckoutDone(), web.PathCheckoutAgain: w.CheckoutAgain(), page.PathEnroll: w.Enroll(),
		page.PathSignUp: w.SignUp(), page.PathJoin: w.Join(), page.PathRecover: w.Recover(), page.PathConfirm: w.Confirm(),
		page.PathSecurity: w.Security(), page.PathMail: w.Mail(), people.PathMailStop: w.MailStop(),
	} {
		pages = append(pages, api.Page{Method: http.MethodGet, Path: path, Handler: h}, api.Page{Method: http.MethodPost, Path: path, Handler: h})
	}
	for _, r := range append(w.WorkspaceRoutes(), w.PublicRoutes()...) {
		pages = append(pages, api.Page{Method: r.Method, Path: r.Path, Handler: r.Handler})
	}
	return pages
}
