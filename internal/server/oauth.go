package server

import (
	"net/http"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/outbound"
)

func (s *Server) newOAuth() *oauth.OAuth {
	proxies := s.cfg.limits().Proxies
	return oauth.New(oauth.Deps{
		Store: s.base.store, Auth: s.base.auth, Tokens: s.facilitator.Tokens, Clock: s.cfg.Clock, Issuer: s.PublicURL(),
		Resource: s.PublicURL() + api.Base, ClientPrefix: s.cfg.Namespace.Scheme, MaxKeys: s.cfg.Quotas.APIKeys, Log: s.cfg.Log,
		Documents: outbound.New(outbound.Config{Loopback: s.cfg.LoopbackWebhooks}),
		Source:    func(r *http.Request) string { return api.Source(r, proxies).String() },
	})
}

// oauthPages are the endpoints and documents of the authorization server, but for the pages of persons.
func (s *Server) oauthPages() []api.Page {
	pages := []api.Page{
		{Method: http.MethodPost, Path: "/oauth/token", Handler: s.oauth.Token()},
		{Method: http.MethodPost, Path: "/oauth/device_authorization", Handler: s.oauth.DeviceAuthorization()},
		{Method: http.MethodPost, Path: "/oauth/revoke", Handler: s.oauth.Revoke()},
		{Method: http.MethodPost, Path: "/oauth/register", Handler: s.oauth.Register()},
		{Method: http.MethodGet, Path: "/oauth/userinfo", Handler: s.oauth.UserInfo()},
		{Method: http.MethodPost, Path: "/oauth/userinfo", Handler: s.oauth.UserInfo()},
	}
	for path, document := range s.oauth.Documents() {
		pages = append(pages, api.Page{Method: http.MethodGet, Path: path, Handler: document})
	}
	return pages
}
