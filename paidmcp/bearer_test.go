package paidmcp_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// TestKeys: the keys of the service are read once, again for a new one, and never for every invented one; while they cannot
// be had, a token is not held against its bearer, unless sign-in is required.
func TestKeys(t *testing.T) {
	svc := service(t)
	target := must.Get(url.Parse(svc.URL()))(t)
	var reads atomic.Int64
	var away atomic.Bool
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/jwks.json" {
			reads.Add(1)
		}
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		httputil.NewSingleHostReverseProxy(target).ServeHTTP(w, r)
	}))
	defer service.Close()
	open := func(signIn bool) *hosted {
		h := &hosted{t: t, svc: svc, mcp: mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1"}, nil)}
		// The facilitator is in the process, so that only the keys come over the network.
		h.pay = paidmcp.New(svc.Facilitator(), paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Clock: svc.Now})
		server := must.Get(paidmcp.NewServer(h.pay, h.mcp, paidmcp.ServerConfig{ServiceURL: service.URL, RequireSignIn: signIn}))(t)
		ts := httptest.NewServer(server.Handler())
		t.Cleanup(ts.Close)
		h.url = ts.URL
		return h
	}
	ann := svc.Subscriber(5)
	ping := message(1, "ping", nil)
	status := func(h *hosted, token string) int { return h.post(ping, bearer(token)).status }

	away.Store(true)
	lax, strict := open(false), open(true)
	if a, b := status(lax, ann.AccessToken), status(strict, ann.AccessToken); a != http.StatusOK || b != http.StatusServiceUnavailable {
		t.Errorf("without keys: %d, with sign-in %d", a, b)
	}
	if n := reads.Load(); n != 2 {
		t.Errorf("%d reads", n)
	}
	away.Store(false)
	svc.Advance(11 * time.Second)
	if a, b := status(lax, ann.AccessToken), status(strict, ann.AccessToken); a != http.StatusOK || b != http.StatusOK {
		t.Errorf("with keys: %d, with sign-in %d", a, b)
	}
	parts := strings.Split(ann.AccessToken, ".")
	// invented asks with keys that the service never had. The time of the service goes on meanwhile, also while nobody works.
	invented := func(what string, want int) {
		t.Helper()
		reads.Store(0)
		began := svc.Now()
		for i := range 40 {
			head := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"alg":"EdDSA","typ":"JWT","kid":"invented-%d"}`, i))
			if s := status(strict, head+"."+parts[1]+"."+parts[2]); s != want {
				t.Errorf("%s, an invented key: %d, want %d", what, s, want)
			}
		}
		if n, most := reads.Load(), 1+int64(svc.Now().Sub(began)/(10*time.Second)); n > most {
			t.Errorf("%s, invented keys caused %d reads, want %d at most", what, n, most)
		}
	}
	invented("with keys", http.StatusUnauthorized)
	refused := func(what, token string) {
		t.Helper()
		if a, b := status(lax, token), status(strict, token); a != http.StatusUnauthorized || b != http.StatusUnauthorized {
			t.Errorf("%s: %d, with sign-in %d", what, a, b)
		}
	}
	for _, head := range []string{
		`{"alg":"none"}`, `{"alg":"HS256","kid":"x"}`, `{"alg":"EdDSA"}`, `{"alg":"EdDSA","kid":"x","crit":["exp"]}`, `{"alg":"EdDSA","alg":"EdDSA","kid":"x"}`, "{",
	} {
		refused(head, base64.RawURLEncoding.EncodeToString([]byte(head))+"."+parts[1]+"."+parts[2])
	}
	body := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	forged := strings.ReplaceAll(string(body), string(svc.Plan()), "12345")
	if forged == string(body) {
		t.Fatalf("the token names no plan: %s", body)
	}
	refused("forged for another plan", parts[0]+"."+base64.RawURLEncoding.EncodeToString([]byte(forged))+"."+parts[2])
	// A service that goes away later changes nothing for keys that are known.
	session := "Mcp-Session-Id: " + lax.session(bearer(ann.AccessToken))
	away.Store(true)
	if a := lax.post(ping, session, bearer(ann.AccessToken)); a.status != http.StatusOK {
		t.Errorf("the session while the service is away: %d", a.status)
	}
	if s := status(strict, svc.Subscriber(0).AccessToken); s != http.StatusOK {
		t.Errorf("a new token while the service is away: %d", s)
	}
	svc.Advance(2 * time.Hour)
	if s := status(strict, ann.AccessToken); s != http.StatusOK {
		t.Errorf("with old keys: %d", s)
	}
	// Nobody knows whether it has made a key since: the token of one is refused for now, and not for good.
	invented("away", http.StatusServiceUnavailable)
	away.Store(false)
	svc.Advance(11 * time.Second)
	invented("back", http.StatusUnauthorized)
}

// late runs a function between the verdict of the service and its arrival.
type late struct {
	x402.Facilitator
	arrives func()
}

func (f *late) Verify(ctx context.Context, req *x402.VerifyRequest) (*x402.VerifyResponse, error) {
	v, err := f.Facilitator.Verify(ctx, req)
	f.arrives()
	return v, err
}

// A token that was revoked while its verdict was on the way is refused five seconds after the call, not after the answer.
func TestBearer_LateVerdict(t *testing.T) {
	svc := service(t)
	ann := svc.Subscriber(5)
	f := &late{Facilitator: svc.Facilitator(), arrives: sync.OnceFunc(func() {
		must.Do(t, ann.Client.RevokePermission(t.Context(), ann.Permission))
		svc.Advance(4 * time.Second)
	})}
	h := &hosted{t: t, svc: svc, mcp: mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1"}, nil)}
	h.pay = paidmcp.New(f, paidmcp.Config{PlanID: svc.Plan(), AgentID: svc.Agent(), ServerName: "demo", Clock: svc.Now})
	server := must.Get(paidmcp.NewServer(h.pay, h.mcp, paidmcp.ServerConfig{ServiceURL: svc.URL()}))(t)
	ts := httptest.NewServer(server.Handler())
	t.Cleanup(ts.Close)
	h.url = ts.URL
	ping := message(1, "ping", nil)
	if a := h.post(ping, bearer(ann.AccessToken)); a.status != http.StatusOK {
		t.Fatalf("before the revocation: %d %s", a.status, a.body)
	}
	svc.Advance(time.Second)
	if a := h.post(ping, bearer(ann.AccessToken)); a.status != http.StatusUnauthorized {
		t.Errorf("five seconds after the call: %d %s", a.status, a.body)
	}
}
