package oauth_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/internal/seal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Whether a token under an address that another process has brought is ours, the database says: while it is silent, nobody is told that
// the token is revoked (RFC 7009, section 2.2.1).
func TestRevoke_NotKnownNow(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var passed atomic.Int64 // nanoseconds
	clock := func() time.Time { return now.Add(time.Duration(passed.Load())) }
	open := func() *store.Store {
		st := must.Get(store.Open(t.Context(), store.Config{Data: storetest.Dir(t)}))(t)
		storetest.Follow(t, st)
		t.Cleanup(func() { _ = st.Close() })
		return st
	}
	of := open()
	start := func(issuer string) *auth.Auth {
		return must.Get(auth.Bootstrap(t.Context(), of, seal.New([32]byte{1}), auth.Config{
			Environment: toll.Sandbox, Issuer: issuer, IssuerGiven: true, ClaimObject: "svc", Clock: clock,
		}))(t)
	}
	ours, other := start("https://old.example.com/api/v1"), start("https://new.example.com/api/v1")
	token := must.Get(other.SignToken(auth.Claims{
		Subscriber: toll.MustAddress("0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"), Hash: toll.NewHash(), PlanID: toll.NewPlanID(),
		IssuedAt: now, ExpiresAt: now.Add(time.Hour), Scheme: "svc:erc4337", Network: toll.Sandbox.Network(),
	}))(t)
	o := oauth.New(oauth.Deps{Store: open(), Auth: ours, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	revoke := func() int {
		r := httptest.NewRequest(http.MethodPost, "/oauth/revoke", strings.NewReader(url.Values{"token": {token}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		o.Revoke().ServeHTTP(w, r)
		return w.Code
	}
	must.Do(t, of.Close())
	passed.Store(int64(2 * time.Second))
	if got := revoke(); got != http.StatusServiceUnavailable {
		t.Errorf("a token that cannot be checked: %d", got)
	}
}
