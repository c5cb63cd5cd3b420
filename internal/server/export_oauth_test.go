package server

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/store"
)

// OAuth returns the authorization server, for tests that stand in for the pages of persons.
func (s *Server) OAuth() *oauth.OAuth { return s.oauth }

// RevokeFamily decides that the family of a permission ends, and dies before it does anything about it.
func (s *Server) RevokeFamily(ctx context.Context, permission toll.Hash) error {
	return s.base.store.Tx(ctx, func(tx *store.Tx) error {
		g, err := store.OAuthGrantOfAccess(ctx, tx, permission)
		if err != nil {
			return err
		}
		return store.RevokeOAuthGrant(ctx, tx, g.ID, s.cfg.Clock())
	})
}

// BeforeRenewal runs f when the next permission is about to be renewed, which has been read then.
func (s *Server) BeforeRenewal(f func()) {
	s.oauth.BeforeRenewal = func() {
		s.oauth.BeforeRenewal = nil
		f()
	}
}

// RegisterMany registers n addresses of clients with ten each, or of one client that is shared, as if that many programs had
// come now. It returns the id of the first client.
func (s *Server) RegisterMany(ctx context.Context, shared string, n int) (first string, err error) {
	return cmp.Or(shared, "many-0"), s.base.store.Tx(ctx, func(tx *store.Tx) error {
		now := s.cfg.Clock()
		for i := range n {
			c := store.OAuthClient{ID: cmp.Or(shared, fmt.Sprint("many-", i/10)), Name: "Many", AuthMethod: "none", Details: "{}", Grants: []string{"authorization_code"}, CreatedAt: now}
			if i%10 == 0 {
				if err := store.InsertOAuthClient(ctx, tx, c); err != nil {
					return err
				}
			}
			r := store.OAuthRedirect{URI: fmt.Sprint("https://many.example.com/", i), Name: "Many", Shared: shared != ""}
			if err := store.InsertOAuthRedirect(ctx, tx, c.ID, r, now); err != nil {
				return err
			}
		}
		return nil
	})
}
