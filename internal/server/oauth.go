package server

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/facilitator"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/store"
)

// newOAuth returns the authorization server.
func (s *Server) newOAuth() *oauth.OAuth {
	proxies := s.cfg.limits().Proxies
	return oauth.New(oauth.Deps{
		Store: s.base.store, Auth: s.base.auth, Permissions: permissions{s.facilitator}, Clock: s.cfg.Clock, Issuer: s.PublicURL(),
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

// permissions are those of the facilitator, as the authorization server asks for them.
type permissions struct{ f *facilitator.Facilitator }

func (p permissions) request(want oauth.Permission) *facilitator.PermissionRequest {
	secs := int64(want.Life / time.Second)
	metadata, err := json.Marshal(map[string]string{"clientId": want.ClientID, "clientName": want.ClientName})
	if err != nil {
		metadata = nil // a map of texts is always JSON
	}
	r := &facilitator.PermissionRequest{
		PlanID: want.PlanID, AgentID: want.AgentID, RedemptionLimit: want.RedemptionLimit, OrderLimit: want.OrderLimit, ExpiresInSecs: &secs,
		Metadata: metadata, TokenFormat: "jwt", Resource: want.Resource,
	}
	if want.DelegationID != "" {
		r.Delegation = &facilitator.DelegationConfig{ID: want.DelegationID}
	}
	return r
}

func (p permissions) Check(ctx context.Context, want oauth.Permission) error {
	return p.f.CheckPermission(ctx, auth.Caller{Address: want.Owner}, p.request(want))
}

func (p permissions) Create(
	ctx context.Context, want oauth.Permission, also func(*store.Tx, *toll.AccessToken) error,
) (*toll.AccessToken, error) {
	return p.f.CreatePermission(ctx, auth.Caller{Address: want.Owner}, p.request(want), also)
}

func (p permissions) Renew(
	ctx context.Context, old toll.Hash, want oauth.Permission, also func(*store.Tx, *toll.AccessToken) error,
) (*toll.AccessToken, error) {
	want.DelegationID = "" // it stays the one of the earlier permission
	t, err := p.f.RenewPermission(ctx, auth.Caller{Address: want.Owner}, old, p.request(want), also)
	var e *toll.Error
	if errors.Is(err, facilitator.ErrSpent) ||
		errors.As(err, &e) && (e.Code == toll.CodePermissionAlreadyRevoked || e.Code == toll.CodePermissionNotFound) {
		return nil, oauth.ErrEnded
	}
	return t, err
}

func (p permissions) Revoke(ctx context.Context, owner toll.Address, id toll.Hash) error {
	err := p.f.RevokePermission(ctx, owner, id)
	var e *toll.Error
	if errors.As(err, &e) && (e.Code == toll.CodePermissionAlreadyRevoked || e.Code == toll.CodePermissionNotFound) {
		return nil
	}
	return err
}

func (p permissions) Active(ctx context.Context, owner toll.Address, id toll.Hash) (bool, error) {
	r, err := p.f.Permission(ctx, owner, id)
	if err != nil {
		return false, err
	}
	return r.Status == toll.StatusActive || r.Status == toll.StatusExhausted, nil
}

// forgetOAuth removes what the authorization server does not need any more, and goes on with what it was interrupted in,
// until ctx ends.
func (s *Server) forgetOAuth(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(forgetEvery/2 + rand.N(forgetEvery)):
		}
		for more := true; more; {
			var err error
			if more, err = s.oauth.Sweep(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Log.Warn("sweep of the authorization server", "error", err.Error())
			}
			more = more && err == nil
		}
	}
}
