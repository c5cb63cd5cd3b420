package server_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/oauth"
	"github.com/tollhq/toll/x402"
)

// TestAgentAsClient: a program that names an agent as its client_id, without a registration, gets an access token of
// that agent and nothing wider. The page says which agent, and that nobody registered where the answer goes.
// T120
func TestAgentAsClient(t *testing.T) {
	m := newFair(t)
	other := must.Get(m.builder.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Other"}}))(t)
	m.clientID = string(m.agent)
	v := m.visitor()
	query := func(changes ...string) url.Values {
		q := m.query()
		q.Del("plan_id")
		return changed(q, changes)
	}

	page := m.consent(v, query())
	for _, text := range []string{
		"work with the agent", string(m.agent), m.owner.String(), "<strong><code>app.example.com</code></strong>", appCallback, "This address is not registered",
	} {
		if !strings.Contains(page.body, text) {
			t.Errorf("the page does not say %q:\n%s", text, mainPart.FindString(page.body))
		}
	}
	got := m.exchange(m.codeIn(v.submit(formOf(t, page).with("limit", "9").with("decision", "approve"))))
	if got.Access == "" || got.Refresh == "" {
		t.Fatalf("%+v", got)
	}
	r, err := m.builder.Settle(t.Context(), &x402.SettleRequest{PaymentRequired: m.required(), AccessToken: got.Access, AgentRequestID: "one", MaxAmount: new(toll.Credits(5))})
	if err != nil || !r.Success || r.Payer != m.buyer.String() {
		t.Errorf("%+v, %v", r, err)
	}
	for p, err := range m.subscriber.Permissions(t.Context()) {
		must.Do(t, err)
		if p.MaxCredits != nil && *p.MaxCredits == 9 && (p.AgentID == nil || *p.AgentID != m.agent) {
			t.Errorf("not bound to the agent: %+v", p)
		}
	}

	// Programs on this computer, on any port.
	if res := v.get("/oauth/authorize?" + query("redirect_uri", "http://127.0.0.1:4567/cb").Encode()); res.status != http.StatusOK ||
		!strings.Contains(res.body, "127.0.0.1:4567") {
		t.Errorf("loopback: %d %s", res.status, mainPart.FindString(res.body))
	}

	// Nothing leads away from these, whose client or redirect is not known.
	for name, q := range map[string]url.Values{
		"http":                   query("redirect_uri", "http://app.example.com/cb"),
		"scheme of a program":    query("redirect_uri", "com.example.app:/cb"),
		"user":                   query("redirect_uri", "https://a@app.example.com/cb"),
		"fragment":               query("redirect_uri", "https://app.example.com/cb#x"),
		"too long":               query("redirect_uri", "https://app.example.com/"+strings.Repeat("x", 1024)),
		"no agent":               query("client_id", "12345"),
		"another spelling":       query("client_id", "0"+m.clientID),
		"no redirect":            query("redirect_uri", ""),
		"redirect on our pages":  query("redirect_uri", m.issuer+"/cb"),
		"our pages as localhost": query("redirect_uri", strings.Replace(m.issuer, "127.0.0.1", "localhost", 1)+"/cb"),
		"our pages by IPv6":      query("redirect_uri", strings.Replace(m.issuer, "127.0.0.1", "[::1]", 1)+"/cb"),
	} {
		res := v.get("/oauth/authorize?" + q.Encode())
		if res.status != http.StatusBadRequest || res.header.Get("Location") != "" || strings.Contains(res.body, `href="https://app.example.com`) {
			t.Errorf("%s: %d %q %s", name, res.status, res.header.Get("Location"), mainPart.FindString(res.body))
		}
	}

	// These are told to the program by a link that says where it leads, and no browser goes there by itself.
	for name, q := range map[string]url.Values{
		"no PKCE":       query("code_challenge", ""),
		"plain PKCE":    query("code_challenge_method", "plain"),
		"an API key":    query("resource", m.issuer+"/api/v1"),
		"another agent": query("agent_id", string(other.AgentID)),
	} {
		res := v.get("/oauth/authorize?" + q.Encode())
		if res.status != http.StatusBadRequest || res.header.Get("Location") != "" || strings.Contains(res.body, `value="approve"`) {
			t.Errorf("%s: %d %q %s", name, res.status, res.header.Get("Location"), mainPart.FindString(res.body))
		}
	}

	// It is a public client: a secret is wrong, and so is a flow without a redirect.
	token := func(form url.Values) shown {
		return browser{t, m.url}.send(http.MethodPost, "/oauth/token", form.Encode())
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {got.Refresh}, "client_id": {m.clientID}}
	if res := token(changed(form, []string{"client_secret", "s"})); res.status != http.StatusUnauthorized {
		t.Errorf("with a secret: %d %s", res.status, res.body)
	}
	if res := token(form); res.status != http.StatusOK {
		t.Errorf("refresh: %d %s", res.status, res.body)
	}
	res := browser{t, m.url}.send(http.MethodPost, "/oauth/device_authorization", url.Values{"client_id": {m.clientID}}.Encode())
	if res.status != http.StatusBadRequest && res.status != http.StatusUnauthorized {
		t.Errorf("device: %d %s", res.status, res.body)
	}

	// A registration of the agent stays what it is: its redirect is known, others are still said to be of nobody.
	m.register(`{"client_name":"Registered","redirect_uris":["https://app.example.com/registered"],"agent_id":"` + m.clientID + `"}`)
	page = m.consent(v, query("redirect_uri", "https://app.example.com/registered"))
	if strings.Contains(page.body, "This address is not registered") || !strings.Contains(page.body, "Registered") {
		t.Errorf("%s", mainPart.FindString(page.body))
	}
	if page = m.consent(v, query()); !strings.Contains(page.body, "This address is not registered") {
		t.Errorf("%s", mainPart.FindString(page.body))
	}
}

// isRegistered reports whether the client and the redirect of a request are registered.
func (p *program) isRegistered(q url.Values) bool {
	p.t.Helper()
	a, err := p.s.OAuth().Authorize(p.t.Context(), q)
	var refused *oauth.PageError
	if err != nil && !errors.As(err, &refused) {
		p.t.Fatal(err)
	}
	return err == nil && a.Client.Agent == nil
}
