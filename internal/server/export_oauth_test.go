package server

import "github.com/tollhq/toll/internal/oauth"

// OAuth returns the authorization server, for tests that stand in for the pages of persons.
func (s *Server) OAuth() *oauth.OAuth { return s.oauth }
