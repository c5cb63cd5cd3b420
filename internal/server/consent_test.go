package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

// TestCodeFlow: what a person allows is what the program gets: one plan, so many credits, so long; and it pays.
// T122
func TestCodeFlow(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	first := v.get("/oauth/authorize?" + m.query().Encode())
	if first.status != http.StatusOK || strings.Contains(first.body, "Notes") || !strings.Contains(first.body, "toll keys create") {
		t.Fatalf("before the sign-in: %d %s", first.status, mainPart.FindString(first.body))
	}
	if res := v.submit(formOf(t, first).with("api_key", "sandbox:not.a.key")); res.status != http.StatusUnauthorized || strings.Contains(res.body, "not.a.key") ||
		len(v.jar.Cookies(v.base)) != 0 {
		t.Errorf("a wrong key: %d %v", res.status, v.jar.Cookies(v.base))
	}
	shown := v.signIn(first, m.person.Key)
	for _, text := range []string{
		"Notes", "<strong><code>app.example.com</code></strong>", m.clientID, "https://agent.example.com/mcp", "credits mcp:tools", ">Plan<",
		"<strong>50</strong> credits", m.buyer.String(), m.owner.String(), "1.00 USDC",
	} {
		if !strings.Contains(shown.body, text) {
			t.Errorf("the page does not say %q:\n%s", text, mainPart.FindString(shown.body))
		}
	}
	p := formOf(t, shown)
	if p.values.Get("limit") != "50" || p.values.Get("plan") != string(m.plan) || p.values.Get("lifetime") != "2592000" {
		t.Errorf("suggested: %v", p.values)
	}
	got := m.exchange(m.codeIn(v.submit(p.with("limit", "3").with("lifetime", "3600").with("decision", "approve"))))
	if got.Access == "" || got.ExpiresIn > 3600 {
		t.Fatalf("%+v", got)
	}
	settle := func(id string, n toll.Credits) (*x402.SettleResponse, error) {
		return m.builder.Settle(t.Context(), &x402.SettleRequest{
			PaymentRequired: m.required(), AccessToken: got.Access, AgentRequestID: id, MaxAmount: n.Ptr(),
		})
	}
	if r, err := settle("one", 3); err != nil || !r.Success || r.Payer != m.buyer.String() {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := settle("two", 1); err == nil && r.Success {
		t.Error("more than the person allowed")
	}
	if b := m.balance(t); b.Available != 47 {
		t.Errorf("%d credits", b.Available)
	}
	for p, err := range m.subscriber.Permissions(t.Context()) {
		must.Do(t, err)
		if p.MaxCredits != nil && *p.MaxCredits == 3 && p.ExpiresAt.Sub(p.CreatedAt.Time) > time.Hour {
			t.Errorf("%+v", p)
		}
	}
	// Refused, the program learns that and nothing else.
	res := v.submit(formOf(t, m.consent(v, m.query())).with("decision", "deny"))
	to, ok := leaves(res)
	u, err := url.Parse(to)
	if err != nil || !ok || u.Query().Get("error") != "access_denied" || u.Query().Has("code") || u.Host != "app.example.com" {
		t.Errorf("%d %q", res.status, to)
	}
	for _, secret := range []string{m.person.Key, got.Access, got.Refresh, v.jar.Cookies(v.base)[0].Value} {
		if strings.Contains(m.log.String(), secret) {
			t.Errorf("%.12s… is in the log", secret)
		}
	}
}

// TestConsent: what was not shown in this session, as it is sent, is not agreed to.
// T122
func TestConsent(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	page := m.consent(v, m.query())
	policy := page.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "form-action 'self';") ||
		strings.Contains(policy, "unsafe") || page.header.Get("X-Frame-Options") != "DENY" || page.header.Get("Cache-Control") != "no-store" ||
		page.header.Get("Access-Control-Allow-Origin") != "" || page.header.Get("Referrer-Policy") != "same-origin" || strings.Contains(page.body, "<script") {
		t.Errorf("%v", page.header)
	}
	good := formOf(t, page).with("decision", "approve")
	blocked := func(what string, want int, s shown) {
		t.Helper()
		if s.status != want || s.header.Get("Location") != "" {
			t.Errorf("%s: %d to %q\n%s", what, s.status, s.header.Get("Location"), mainPart.FindString(s.body))
		}
	}
	for what, header := range map[string][]string{
		"foreign origin": {"Origin", "https://evil.example.com", "Sec-Fetch-Site", ""},
		"null origin":    {"Origin", "null", "Sec-Fetch-Site", ""},
		"cross-site":     {"Sec-Fetch-Site", "cross-site"},
		"same-site":      {"Sec-Fetch-Site", "same-site"},
	} {
		blocked(what, http.StatusForbidden, v.submit(good, header...))
	}
	blocked("json", http.StatusBadRequest, v.submit(good, "Content-Type", "application/json"))
	blocked("no ticket", http.StatusForbidden, v.submit(good.with("ticket")))
	blocked("a made-up ticket", http.StatusForbidden, v.submit(good.with("ticket", "AAAA."+strings.Repeat("A", 43))))

	// Another person's form, and another form of this person.
	mallory := m.visitor()
	theirs := formOf(t, mallory.signIn(mallory.get("/oauth/authorize?"+m.query().Encode()), m.other.Key))
	blocked("a ticket of another session", http.StatusForbidden, v.submit(good.with("ticket", theirs.values.Get("ticket"))))
	second := must.Get(m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Dearer"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(1000, 100),
	}))(t)
	for name, value := range map[string]string{
		"plan_id": string(second.PlanID), "resource": "https://evil.example.com/mcp", "scope": "everything", "state": "x", "client_id": m.register(
			`{"client_name":"Other","redirect_uris":["` + appCallback + `"]}`),
	} {
		q := m.query()
		q.Set(name, value)
		blocked("the ticket of another "+name, http.StatusForbidden, v.submit(good.with("request", q.Encode())))
	}

	// Values that the page did not give.
	for _, c := range [][2]string{
		{"plan", string(second.PlanID)}, {"plan", ""}, {"limit", ""}, {"limit", "0"}, {"limit", "-1"}, {"limit", "1e3"}, {"limit", "9223372036854775808"}, {"limit", "1.5"},
		{"lifetime", "31536000"}, {"lifetime", ""}, {"lifetime", "3601"}, {"lifetime", "-3600"}, {"delegation", "5e0f1b0e-8f7e-4b39-9d0a-52b7c1e0a111"},
		{"decision", ""}, {"decision", "yes"},
	} {
		blocked(c[0]+"="+c[1], http.StatusBadRequest, v.submit(good.with(c[0], c[1])))
	}

	// Terms that changed while the person read.
	must.Get(m.builder.UpdatePlan(t.Context(), m.plan, toll.PlanUpdate{Metadata: toll.MetadataUpdate{Name: toll.SetTo("Renamed")}}))(t)
	res := v.submit(good)
	blocked("other terms", http.StatusForbidden, res)
	if !strings.Contains(res.body, "Renamed") {
		t.Error("the new terms are not shown")
	}
	good = formOf(t, res).with("decision", "approve")

	// A double click: one answer, and later too, as long as it is kept.
	answers := make([]shown, 4)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = v.browser.send(http.MethodPost, good.action, good.values.Encode(), "Cookie", cookieOf(v), "Origin", v.url)
		})
	}
	wg.Wait()
	code := m.codeIn(answers[0])
	for _, a := range append(answers, v.submit(good), v.submit(good.with("decision", "deny"))) {
		if m.codeIn(a) != code {
			t.Errorf("two answers to one form")
		}
	}
	if got := m.exchange(code); got.Access == "" {
		t.Errorf("%+v", got)
	}

	// An hour after the sign-in the form is worth nothing, and a new sign-in is not enough: the page comes again.
	good = formOf(t, m.consent(v, m.query())).with("decision", "approve")
	m.ahead.Add(int64(time.Hour))
	res = v.submit(good)
	blocked("an old sign-in", http.StatusOK, res)
	if again := v.signIn(res, m.person.Key); again.status != http.StatusOK || again.header.Get("Location") != "" || !strings.Contains(again.body, "app.example.com") {
		t.Errorf("after a new sign-in: %d %s", again.status, mainPart.FindString(again.body))
	}
	blocked("the form from before the new sign-in", http.StatusForbidden, v.submit(good))
}

func cookieOf(v *visitor) string {
	for _, c := range v.jar.Cookies(v.base) {
		if !strings.Contains(c.Name, "browser") { // which stays after a sign-out
			return c.Name + "=" + c.Value
		}
	}
	v.t.Fatal("no cookie")
	return ""
}

// TestNamesOnPages: whatever a program calls itself is text, and the host of its answer stands beside it.
// T120
func TestNamesOnPages(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	for name, ours := range map[string]bool{
		`<script>alert(1)</script>`: false, `"><img src=x onerror=alert(1)>`: false, `{{.Person}} javascript:alert(1)`: false, `</title><b>`: false,
		"Toll": true, "T0ll Support": true,
	} {
		body, err := json.Marshal(map[string]any{"client_name": name, "redirect_uris": []string{appCallback}, "client_uri": "https://" + "x.example.com/<b>"})
		must.Do(t, err)
		m.clientID = m.register(string(body))
		s := m.consent(v, m.query())
		if strings.Contains(s.body, "<script") || strings.Contains(s.body, "<img") || strings.Contains(s.body, "<b>") ||
			!strings.Contains(s.body, "<strong><code>app.example.com</code></strong>") || strings.Contains(s.body, "not part of this service") != ours {
			t.Errorf("%q:\n%s", name, mainPart.FindString(s.body))
		}
	}
}
