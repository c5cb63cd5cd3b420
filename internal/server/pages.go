package server

import (
	"net/http"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/outbound"
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
		Seal: s.base.ring.Seal, Open: s.base.ring.Open, Outbound: outbound.Config{Loopback: s.cfg.LoopbackWebhooks}, Operator: operatorPages{s}, Changes: changesSince, FindAgents: s.facilitator.Catalogue.FindAgents,
	})
}

// peoplePages are the routes for people.
func peoplePages(w *web.Web) (pages []api.Page) {
	w.Routes(func(method, path string, h http.Handler) {
		pages = append(pages, api.Page{Method: method, Path: path, Handler: h})
	})
	return pages
}
