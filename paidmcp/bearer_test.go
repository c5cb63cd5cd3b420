package paidmcp_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/paidmcp"
	"github.com/tollhq/toll/x402"
)

// TestBearers: the service decides about a bearer token, once in a while. While it is away, a token that it has confirmed keeps
// its holder, and another one is not held against its bearer, unless sign-in is required.
func TestBearers(t *testing.T) {
	svc := service(t)
	var away atomic.Bool
	f := &teller{Facilitator: svc.Client()}
	f.verify = func(r *x402.VerifyRequest) (*x402.VerifyResponse, error) {
		if away.Load() {
			return nil, errors.New("away")
		}
		return f.Facilitator.Verify(context.Background(), r)
	}
	lax, strict := hostOn(t, svc, f, paidmcp.ServerConfig{}), hostOn(t, svc, f, paidmcp.ServerConfig{RequireSignIn: true})
	ann, ben := svc.Subscriber(5), svc.Subscriber(0)
	wants := func(what, token string, atLax, atStrict int) {
		t.Helper()
		ping := message(1, "ping", nil)
		if a, b := lax.post(ping, bearer(token)).status, strict.post(ping, bearer(token)).status; a != atLax || b != atStrict {
			t.Errorf("%s: %d, with sign-in %d; want %d and %d", what, a, b, atLax, atStrict)
		}
	}
	wants("a token", ann.AccessToken, http.StatusOK, http.StatusOK)
	wants("without credits", ben.AccessToken, http.StatusOK, http.StatusOK)
	before := f.called("verify")
	wants("again", ann.AccessToken, http.StatusOK, http.StatusOK)
	if n := f.called("verify") - before; n > 0 {
		t.Errorf("%d questions about a token that was just confirmed", n)
	}

	parts := strings.Split(ann.AccessToken, ".")
	for _, head := range []string{
		`{"alg":"none"}`, `{"alg":"HS256","kid":"x"}`, `{"alg":"EdDSA"}`, `{"alg":"EdDSA","typ":"JWT","kid":"invented"}`,
		`{"alg":"EdDSA","kid":"x","crit":["exp"]}`, `{"alg":"EdDSA","alg":"EdDSA","kid":"x"}`, "{",
	} {
		token := base64.RawURLEncoding.EncodeToString([]byte(head)) + "." + parts[1] + "." + parts[2]
		wants(head, token, http.StatusUnauthorized, http.StatusUnauthorized)
	}

	// The service does not tell the builder of one plan whether the token of another one's is good.
	plan, err := ann.Client.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "hers"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	hers, err := ann.Client.AccessToken(t.Context(), plan.PlanID)
	if err != nil {
		t.Fatal(err)
	}
	wants("of another builder's plan", hers.AccessToken, http.StatusOK, http.StatusUnauthorized)
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []toll.PlanID{plan.PlanID, "12345"} {
		forged := base64.RawURLEncoding.EncodeToString([]byte(strings.ReplaceAll(string(body), string(svc.Plan()), string(id))))
		wants("forged for plan "+string(id), parts[0]+"."+forged+"."+parts[2], http.StatusOK, http.StatusUnauthorized)
	}

	session := "Mcp-Session-Id: " + lax.session(bearer(ann.AccessToken))
	away.Store(true)
	svc.Advance(time.Minute)
	wants("confirmed, away", ann.AccessToken, http.StatusOK, http.StatusOK)
	if a := lax.post(message(1, "ping", nil), session, bearer(ann.AccessToken)); a.status != http.StatusOK {
		t.Errorf("the session while the service is away: %d", a.status)
	}
	wants("new, away", svc.Subscriber(5).AccessToken, http.StatusOK, http.StatusServiceUnavailable)
	svc.Advance(2 * time.Hour)
	wants("confirmed long ago, away", ann.AccessToken, http.StatusOK, http.StatusServiceUnavailable)
	away.Store(false)
	wants("back", ann.AccessToken, http.StatusOK, http.StatusOK)
}
