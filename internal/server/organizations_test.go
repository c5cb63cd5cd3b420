package server_test

import (
	"net/http"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// TestIgnoreOrganizations: the setting takes calls of deployed clients that name an organization of another service.
func TestIgnoreOrganizations(t *testing.T) {
	for ignore, want := range map[bool]int{true: http.StatusOK, false: http.StatusForbidden} {
		o := newTown(t, "sqlite", func(c *server.Config) { c.IgnoreOrganizations = ignore })
		k := must.Get(o.s.CreateKey(t.Context(), server.KeyRequest{Account: "builder"}))(t)
		res := browser{t, o.address}.send(http.MethodGet, "/api/v1/organizations/my-memberships", "",
			"Authorization", "Bearer "+k.Key, "X-Current-Org-Id", "org-1")
		if res.status != want {
			t.Errorf("ignored %t: %d %s", ignore, res.status, res.body)
		}
	}
}
