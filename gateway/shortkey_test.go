package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// shortKey returns a short key of the account with a long one.
func shortKey(t *testing.T, svc *tolltest.Service, key string) *toll.APIKey {
	t.Helper()
	c := client.New(key, client.WithURL(svc.URL()))
	return must.Get(c.CreateKey(t.Context(), client.KeyParams{Form: toll.KeyShort}))(t)
}

// TestShortKey_Tools: the core learns the workspace of a short key from the service, once, and only for tools that spend or write.
func TestShortKey_Tools(t *testing.T) {
	svc := tolltest.New(t, tolltest.WithPayments())
	r := rigOf(t, svc, "ann", func(c *gateway.Config) { c.APIKey = shortKey(t, svc, c.APIKey).Key })
	own := "GET /api-keys/" + toll.ShortKeyID(r.opts.Config.APIKey).String()
	asked := func() (n int) {
		r.wire.mu.Lock()
		defer r.wire.mu.Unlock()
		for _, call := range r.wire.seen {
			if call == own {
				n++
			}
		}
		return n
	}
	r.run("checkBalance", `{}`)
	if n := asked(); n != 0 {
		t.Errorf("a tool that reads asks for the workspace %d times", n)
	}
	plan := r.run("createPlan", `{"name":"Own","priceAmount":"1.50","pricingType":"erc20","creditsAmount":5}`).text(t, "planId")
	sold := must.Get(client.New("", client.WithoutKey(), client.WithURL(svc.URL())).Plan(t.Context(), toll.PlanID(plan)))(t)
	if len(sold.Price.Receivers) == 0 || sold.Price.Receivers[0] != r.address {
		t.Errorf("receivers %v, want %s first", sold.Price.Receivers, r.address)
	}
	r.run("getAccessToken", `{}`)
	if n := asked(); n != 1 {
		t.Errorf("the workspace was read %d times", n)
	}

	// Without the workspace, a tool that spends does nothing.
	r.start()
	r.wire.alter(func(req *http.Request, body []byte) ([]byte, error) {
		if strings.Contains(req.URL.Path, "/api-keys/") {
			return nil, refusedBy(http.StatusServiceUnavailable)
		}
		return body, nil
	})
	r.wire.acts()
	r.refused(gateway.ServiceUnavailable, "getAccessToken", `{}`)
	if acts := r.wire.acts(); len(acts) != 0 {
		t.Errorf("it did %v", acts)
	}
}

// TestShortKey_Paste: a short key can be pasted, also behind its environment, and no answer, log, or readable file holds it.
func TestShortKey_Paste(t *testing.T) {
	s := newSigner(t)
	key := shortKey(t, s.svc, s.mine.Key).Key
	for _, args := range []string{key, "sandbox:" + key, "Sandbox:" + key} {
		text := s.command("svc_login", args)
		if !strings.Contains(text, "Logged in to sandbox as "+s.mine.Address.String()) || !strings.Contains(text, "Revoke it") {
			t.Errorf("%q", text)
		}
		if got, _, environment, address, err := s.core.LoginKey(); err != nil || got != key || address != s.mine.Address || environment != toll.Sandbox {
			t.Errorf("%s %s, %v", environment, address, err)
		}
		s.command("svc_logout", "")
	}
	forged := key[:len(key)-8] + "AAAAAAAA"
	for args, want := range map[string]string{
		forged: "rejected this key", "live:" + key: "is not a live service", "tk_live_" + key[11:]: "is not a live service",
		key[:30]: "is not an API key", key + " thanks": "Use /svc_login", strings.ToUpper(key[:11]) + key[11:]: "Use /svc_login",
	} {
		if text := s.command("svc_login", args); !strings.Contains(text, want) || strings.Contains(text, "Logged in") {
			t.Errorf("%.12s…: %q, want %q", args, text, want)
		}
	}
	s.holdsNot(key, forged)
}
