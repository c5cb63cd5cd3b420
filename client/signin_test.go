package client_test

import (
	"context"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// TestRevokeToken_Headers: forms go to the authorization server, which knows programs by other means. They carry neither the API
// key nor the version of the service.
func TestRevokeToken_Headers(t *testing.T) {
	s := serve(t, always(200, `{}`))
	must.Do(t, s.client().RevokeToken(context.Background(), "an access token"))
	last := s.sent[len(s.sent)-1]
	if last.header.Get("Authorization") != "" || last.header.Get("Service-Version") != "" ||
		last.header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		t.Errorf("sent %v", last.header)
	}
}
