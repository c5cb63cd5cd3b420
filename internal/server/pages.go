package server

import "github.com/tollhq/toll/internal/api"

// pages are the routes for people, and for programs that ask them.
func (s *Server) pages() ([]api.Page, error) {
	people, err := s.peoplePages(s.oauth)
	return append(people, s.oauthPages()...), err
}
