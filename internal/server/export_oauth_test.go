package server

import (
	"context"

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
