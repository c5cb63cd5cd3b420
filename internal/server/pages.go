package server

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/rails"
	"github.com/tollhq/toll/internal/records"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/web"
	"github.com/tollhq/toll/internal/web/page"
	"github.com/tollhq/toll/internal/web/public"
	"github.com/tollhq/toll/internal/web/session"
	"github.com/tollhq/toll/internal/web/workspace"
	"github.com/tollhq/toll/sdk"
)

// site has the routes for people, and for programs that ask them; its NoPage answers people everywhere else.
func (s *Server) site() (api.Site, error) {
	w, err := s.web()
	if err != nil {
		return api.Site{}, err
	}
	return api.Site{Pages: slices.Concat(peoplePages(w), s.oauthPages(), packagePages()), Look: w, NoPage: w.NoPage}, nil
}

// web is the room of the pages.
func (s *Server) web() (*page.Site, error) {
	cards, _ := s.rails.Rails[store.RailCard].(public.Cards)
	proxies := s.cfg.limits().Proxies
	registries, _ := sdk.ParseRegistries(s.cfg.Published) // check has read them
	read := &records.Records{
		Store: s.base.store, Ledger: s.ledger, Checkout: s.checkout, Auth: s.base.auth, OAuth: s.oauth, Catalogue: s.facilitator.Catalogue, Card: s.rails.Rails[store.RailCard],
	}
	return web.New(web.Deps{
		Pages: page.Config{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }), Namespace: s.cfg.Namespace,
			PublicURL: s.PublicURL(), Environment: s.base.auth.Environment(), Clock: s.cfg.Clock, Machine: s.base.clock.machine, Address: func(r *http.Request) string { return api.Source(r, proxies).String() },
			Log: s.cfg.Log, Brand: s.cfg.Brand, CloseReads: s.cfg.CloseReads, Source: func(r *http.Request) string { return s.rails.Cards.Source(api.Source(r, proxies)) },
			SidesOf: func(ctx context.Context, workspace toll.Address) (sides page.Sides, err error) {
				sides.Sells, sides.Buys, err = store.SellsAndBuys(ctx, s.base.store, workspace)
				return sides, err
			},
			SDK: sdk.Source{URL: s.PublicURL(), Published: registries, Go: s.cfg.GoRepository},
		},
		Session: session.Config{
			Store: s.base.store, Auth: s.base.auth, People: s.people, Seal: s.base.ring.Seal, Open: s.base.ring.Open, PublicURL: s.PublicURL(), Clock: s.cfg.Clock,
		},
		Records: read,
		Rows:    s.checkout.Reports, Cards: cards, Coins: s.rails.Rails[store.RailCrypto] != nil, People: s.people, Events: s.events, Operator: operatorPages{s}, Changes: changesSince,
		Outbound: outbound.Config{Loopback: callsLoopback(s.base.auth.Environment(), s.cfg.Listen, s.PublicURL())}, Times: orderTimes(read),
	})
}

// orderTimes reads when an order got its credits from the journal, and the rest from the records of the card payment.
func orderTimes(read *records.Records) workspace.ReadTimes {
	st := read.Store
	return func(ctx context.Context, o *toll.Order) (out workspace.OrderTimes, err error) {
		if o.Status == toll.OrderCreated {
			open, err := read.LinkedOrder(ctx, o.OrderID)
			if err != nil {
				return out, err
			}
			out.PayURL = open.PayURL
		}
		out.Granted, err = store.GrantedAt(ctx, st, ledger.NewAccountID(o.PlanID, o.SubscriberAddress), o.OrderID)
		if store.NotFoundAs(err, nil) != nil {
			return out, err
		}
		card, err := rails.CardEvidenceOf(ctx, st, o.OrderID)
		if err != nil {
			return out, store.NotFoundAs(err, nil) // another rail
		}
		if card.PaidAt != nil {
			out.Paid = card.PaidAt.Time
		}
		for _, r := range card.Refunds {
			if r.Origin != "rejected" && r.State != "created" && r.State != "failed" {
				out.Refunds = append(out.Refunds, workspace.Refunded{At: r.CreatedAt.Time, Cents: r.Cents})
			}
		}
		for _, d := range card.Disputes {
			out.Disputed = d.CreatedAt.Time
		}
		return out, nil
	}
}

// callsLoopback reports whether test calls of pages reach this machine: only in a sandbox that listens on this machine alone, and is not
// published under another address by a proxy.
func callsLoopback(env toll.Environment, listen, publicURL string) bool {
	host, _, err := net.SplitHostPort(listen)
	u, err2 := url.Parse(publicURL)
	return env == toll.Sandbox && err == nil && err2 == nil && toll.IsLoopback(host) && toll.IsLoopback(u.Hostname())
}

// peoplePages are the routes for people.
func peoplePages(w *page.Site) (pages []api.Page) {
	w.Routes(func(method, path string, h http.Handler) {
		pages = append(pages, api.Page{Method: method, Path: path, Handler: h})
	})
	return pages
}

// packagePages are the packages of the SDKs.
func packagePages() (pages []api.Page) {
	sdk.Routes(func(path string, h http.Handler) {
		pages = append(pages, api.Page{Method: http.MethodGet, Path: path, Handler: h})
	})
	return pages
}
