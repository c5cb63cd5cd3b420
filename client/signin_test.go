package client_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
)

// TestAddress: a long key contains its address. For a short one the client asks the service, once, and not for payments.
func TestAddress(t *testing.T) {
	const address = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
	short := "tk_sandbox_" + strings.Repeat("Az09-_b1", 4)
	id := toll.ShortKeyID(short).String()
	down := true
	s := serve(t, func(_ int, c sent) (int, map[string]string, string) {
		switch {
		case down:
			return 401, nil, errorBody
		case c.target == "/api/v1/api-keys/"+id && c.header.Get("Authorization") == "Bearer "+short:
			return 200, nil, `{"id":"` + id + `","address":"` + address + `","prefix":"tk_sandbox_"}`
		}
		t.Errorf("%s %s", c.method, c.target)
		return 404, nil, errorBody
	})
	long := "sandbox:e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+address+`","jti":"`+id+`"}`)) + ".c2ln"
	if got, err := client.New(long, client.WithURL(s.URL)).Address(t.Context()); err != nil || got != toll.MustAddress(address) || s.calls() != 0 {
		t.Errorf("long: %s, %v, %d calls", got, err, s.calls())
	}
	if c, err := client.ReadKey(short); err != nil || c.ID.String() != id || !c.Address.IsZero() {
		t.Errorf("claims %+v, %v", c, err)
	}
	c := client.New(short, client.WithURL(s.URL))
	if got, err := c.Address(t.Context()); err == nil {
		t.Errorf("refused: %s", got)
	}
	down = false
	for range 3 {
		if got, err := c.Address(t.Context()); err != nil || got != toll.MustAddress(address) {
			t.Errorf("short: %s, %v", got, err)
		}
	}
	if s.calls() != 2 {
		t.Errorf("%d calls", s.calls())
	}
	for _, bad := range []string{short[1:], short + "A", "sandbox:" + short, "tk_sandbox_", "sandbox:x.y.z"} {
		if _, err := client.ReadKey(bad); toll.AsError(err).Code != toll.CodeKeyMalformed || strings.Contains(err.Error(), "Az09") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

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
