package server

import (
	"net/http"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/web"
)

// pages are the routes for people, and the exchange of their codes.
func (s *Server) pages() ([]api.Page, error) {
	o := oauth.New(oauth.Deps{
		Store: s.base.store, Auth: s.base.auth, Clock: s.cfg.Clock, Resource: s.PublicURL() + api.Base, MaxKeys: s.cfg.Quotas.APIKeys,
		Log: s.cfg.Log,
	})
	signIn, err := web.New(web.Deps{
		Auth: s.base.auth, OAuth: o, PublicURL: s.PublicURL(), Environment: s.base.auth.Environment(), Log: s.cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	return []api.Page{
		{Method: http.MethodGet, Path: "/auth/cli", Handler: signIn},
		{Method: http.MethodPost, Path: "/auth/cli", Handler: signIn},
		{Method: http.MethodPost, Path: "/oauth/token", Handler: o},
	}, nil
}
