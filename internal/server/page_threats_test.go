package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/server"
	pages "github.com/tollhq/toll/internal/web/page"
)

// scripts are texts of strangers that become scripts, forms or addresses on a page that does not escape them for their place.
var scripts = []string{
	`<script>alert(1)</script>`, `"><script>alert(2)</script>`, `'><script>alert(3)</script>`, `</title><script>alert(4)</script>`,
	`</textarea><script>alert(5)</script>`, `</style><script>alert(6)</script>`, `<img src=x onerror=alert(7)>`, `"><img src=x onerror=alert(8)>`,
	`<svg onload=alert(9)>`, `<svg><script>alert(10)</script></svg>`, `<body onload=alert(11)>`, `<iframe src="javascript:alert(12)">`,
	`<a href="javascript:alert(13)">x</a>`, `javascript:alert(14)`, `JaVaScRiPt:alert(15)`, "java\tscript:alert(16)", ` javascript:alert(17)`,
	`data:text/html,<script>alert(18)</script>`, `vbscript:msgbox(19)`, `" onmouseover="alert(20)`, `' onfocus='alert(21)' autofocus='`,
	`" autofocus onfocus=alert(22) x="`, `<input onfocus=alert(23) autofocus>`, `<details open ontoggle=alert(24)>`, `<video><source onerror=alert(25)>`,
	`<math><mi xlink:href="data:x,<script>alert(26)</script>">`, `<form action="javascript:alert(27)"><button>`, `<object data="javascript:alert(28)">`,
	`<embed src="javascript:alert(29)">`, `<base href="https://evil.example/">`, `<meta http-equiv=refresh content="0;url=javascript:alert(31)">`,
	`<link rel=stylesheet href="https://evil.example/x.css">`, `<style>@import "https://evil.example/x"</style>`, `{{.}}{{printf "%s" "<b>"}}`,
	`${alert(35)}`, "`${alert(36)}`", `<!--<script>alert(37)//-->`, `<![CDATA[<script>alert(38)</script>]]>`, `%3Cscript%3Ealert(39)%3C/script%3E`,
	`&lt;script&gt;alert(40)&lt;/script&gt;`, `<noscript><p title="</noscript><img src=x onerror=alert(41)>">`, `<x contenteditable onblur=alert(42)>`,
}

// markup is what none of these texts may have put on a page.
var markup = regexp.MustCompile(`(?i)<(script|img|svg|iframe|math|object|embed|base|body onload|video|noscript|x contenteditable)[ >][^>]*(alert|evil|onerror)|` +
	`<script>|(href|src|action|formaction|data|content)="\s*(java\s*script|data:text|vbscript|https://evil)|<[^>"]*("[^"]*"[^>"]*)*\son[a-z]+=`)

// getPages are the pages for people with their parts filled in, "x" where nothing else is known.
func getPages(t *testing.T, o *town, parts map[string]string) (paths []string) {
	t.Helper()
	all := must.Get(server.PeoplePages(o.s))(t)
	part := regexp.MustCompile(`\{(\w+)\}`)
	for _, p := range all {
		if p.Method != http.MethodGet || p.Path == pages.PathAsset {
			continue
		}
		paths = append(paths, part.ReplaceAllStringFunc(p.Path, func(name string) string {
			if v := parts[name[1:len(name)-1]]; v != "" {
				return v
			}
			return "x"
		}))
	}
	if len(paths) < 20 {
		t.Fatalf("only %d pages", len(paths))
	}
	return paths
}

// TestStoredScript: what a stranger wrote is text on every page, in names, descriptions, notes and addresses.
// T150
func TestStoredScript(t *testing.T) {
	found := 0 // the search finds most of them where nothing escapes them
	for _, text := range scripts {
		if markup.MatchString("<p>"+text+"</p>") || markup.MatchString(`<a href="`+text+`">`) {
			found++
		}
	}
	if found < 30 {
		t.Fatalf("the search finds %d of %d", found, len(scripts))
	}
	o := newTown(t, "sqlite", nil)
	alice := o.signUp("alice", "")
	w := alice.workspace()
	api := client.New(alice.keyOf(w), client.WithURL(o.address), client.WithRetries(0))
	parts := map[string]string{"workspace": w}
	var invited string
	for i, text := range scripts {
		r, err := api.RegisterAgentWithPlan(t.Context(), client.AgentParams{
			Metadata: toll.Metadata{Name: text, Description: text, Author: text, Tags: []string{text}},
		}, client.PlanParams{
			Metadata: toll.Metadata{Name: text, Description: text}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
		})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		order := must.Get(api.OrderPlan(t.Context(), r.PlanID))(t)
		if _, err := api.CreateKey(t.Context(), client.KeyParams{Name: text}); err != nil && !strings.Contains(text, "\t") {
			t.Fatal(err)
		}
		parts["agent"], parts["plan"], parts["order"] = string(r.AgentID), string(r.PlanID), order.OrderID
		if i < 5 { // links are limited
			m := linkIn.FindStringSubmatch(alice.act("/w/"+w+"/members", "act", "invite", "role", "viewer", "note", text).body)
			if m == nil {
				t.Fatal("no link")
			}
			invited = m[1]
		}
		visits := getPages(t, o, parts)
		if i%8 != 0 { // every text on the pages of its records, some on all
			visits = slices.DeleteFunc(visits, func(path string) bool {
				return !strings.Contains(path, parts["agent"]) && !strings.Contains(path, parts["plan"]) && !strings.Contains(path, parts["order"])
			})
		}
		if i == 0 {
			for _, path := range slices.Clone(visits) {
				visits = append(visits, path+"?next="+url.QueryEscape(text)+"&link="+url.QueryEscape(text)+"&q="+url.QueryEscape(text))
			}
		}
		seen := false
		for _, path := range visits {
			got := alice.get(path)
			body := got.body
			if h := got.header; strings.HasPrefix(h.Get("Content-Disposition"), "attachment;") && h.Get("X-Content-Type-Options") == "nosniff" &&
				!strings.Contains(h.Get("Content-Type"), "html") {
				continue // a browser saves the file
			}
			seen = seen || strings.Contains(body, fmt.Sprintf("(%d)", i+1))
			if m := markup.FindString(body); m != "" {
				t.Errorf("%q on %s became %q", text, path, m)
			}
			if strings.ContainsAny(text, `<>"`) && strings.Contains(body, text) && !strings.HasPrefix(text, "&lt;") {
				t.Errorf("%q stands on %s as it was sent", text, path)
			}
		}
		if !seen && strings.Contains(text, "alert(") {
			t.Errorf("no page shows %q, so this proves nothing", text)
		}
	}
	// The name of a person, and that of a program.
	eve := newVisitor(t, o.address)
	form := formOf(t, eve.get("/sign-up?link="+invited))
	if res := eve.submit(form.with("name", scripts[1]+"\u202ex\x00\r\n").with("login", "eve").with("password", goodPassword)); res.status != http.StatusSeeOther {
		t.Fatalf("sign-up: %d", res.status)
	}
	var name string
	if err := server.StoreOf(o.s).QueryRow(t.Context(), "SELECT name FROM users WHERE name LIKE '%alert%'").Scan(&name); err != nil || name != scripts[1]+"x" {
		t.Errorf("the name %q, %v", name, err)
	}
	for _, path := range []string{"/account/security", "/w/" + w + "/members"} {
		for _, v := range []*visitor{eve, alice} {
			if body := v.get(path).body; markup.MatchString(body) {
				t.Errorf("a name of a person on %s: %q", path, markup.FindString(body))
			}
		}
	}
	for _, text := range scripts {
		body := must.Get(json.Marshal(map[string]any{"client_name": text, "redirect_uris": []string{appCallback}}))(t)
		var program struct {
			ID string `json:"client_id"`
		}
		res := o.plainly(http.MethodPost, "/oauth/register", string(body), "Content-Type", "application/json")
		if res.status == http.StatusTooManyRequests {
			break
		}
		if err := json.Unmarshal([]byte(res.body), &program); err != nil || program.ID == "" {
			continue // refused
		}
		q := url.Values{
			"response_type": {"code"}, "client_id": {program.ID}, "redirect_uri": {appCallback}, "state": {text}, "scope": {"credits"},
			"code_challenge": {strings.Repeat("a", 43)}, "code_challenge_method": {"S256"},
		}
		if body := alice.get("/oauth/authorize?" + q.Encode()).body; markup.MatchString(body) {
			t.Errorf("a program %q on the page of consent: %q", text, markup.FindString(body))
		}
	}
}

// plainly sends a request without cookies.
func (o *town) plainly(method, path, body string, header ...string) shown {
	o.t.Helper()
	return browser{o.t, o.address}.send(method, path, body, header...)
}

// TestOpenRedirect: a page leads on to a page of its own, whatever an address says.
// T151
func TestOpenRedirect(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice := o.signUp("alice", "")
	key, _ := keys(t, o.s) // sign-ins by password have limits
	own := regexp.MustCompile(`^/[a-z]`)
	signOut := regexp.MustCompile(`action="/sign-out"[^>]*><input type="hidden" name="ticket" value="([^"]*)"`)
	for i, next := range []string{
		"javascript:alert(1)", "JAVASCRIPT:alert(1)", "java\nscript:alert(1)", "data:text/html,x", "//evil.example", "///evil.example", `/\evil.example`,
		`\\evil.example`, `/\/evil.example`, "https:evil.example", "https://evil.example", "https:/evil.example", "%2f%2fevil.example", "/%2fevil.example",
		"/%5cevil.example", "/sign-in/..//evil.example", "/w/0x1234//evil.example", "/w/0x1234/../..//evil.example", "/account/security@evil.example", "@evil.example",
		"/account/security\r\nLocation: https://evil.example", "\thttps://evil.example", " //evil.example", "/.evil.example", "http://localhost.evil.example",
		o.address + "@evil.example/", o.address + ".evil.example/", "/oauth/../..//evil.example", "/sign-in?next=//evil.example#//evil.example",
	} {
		v := newVisitor(t, o.address)
		form := formOf(t, v.get("/sign-in?next="+url.QueryEscape(next)))
		if got := form.values.Get("next"); got != "" && !own.MatchString(got) {
			t.Errorf("the form of a sign-in has next %q", got)
		}
		answers := map[string]shown{
			"/sign-in of who is signed in": alice.get("/sign-in?next=" + url.QueryEscape(next)),
			"/sign-in":                     v.submit(form.with("api_key", key.Key).with("next", next)),
			"/theme":                       v.post(pages.PathTheme, url.Values{"theme": {"dark"}, "next": {next}}),
		}
		if res := answers["/sign-in"]; res.status != http.StatusSeeOther {
			t.Fatalf("sign-in: %d", res.status)
		}
		ticket := signOut.FindStringSubmatch(v.get("/account/access").body)
		if ticket == nil {
			t.Fatal("nothing to sign out with")
		}
		answers["/sign-out"] = v.post("/sign-out", url.Values{"ticket": {ticket[1]}, "next": {next}})
		if i%4 == 0 {
			answers["/confirm"] = alice.act("/confirm", "password", goodPassword, "next", next)
		}
		for from, res := range answers {
			for _, to := range append(res.header.Values("Location"), res.header.Values("Refresh")...) {
				u, err := url.Parse(to)
				if err != nil || u.Host != "" || u.Scheme != "" || !own.MatchString(to) || strings.ContainsAny(to, "\\\r\n") {
					t.Errorf("%s with next %q leads to %q", from, next, to)
				}
			}
			if m := regexp.MustCompile(`(?i)(href|action)="(javascript:|data:|//|/\\|https?:/*evil)`).FindString(res.body); m != "" {
				t.Errorf("%s with next %q links %q", from, next, m)
			}
		}
	}
}

// TestEveryWayIn: whatever a person signs up or in with, it leads to a page of the service.
// T151
func TestEveryWayIn(t *testing.T) {
	post, p := newPostOffice(t), newIDProvider(t)
	ln := listenAnywhere(t)
	o := newTownOn(t, "sqlite", ln, func(cfg *server.Config) {
		cfg.Listen, cfg.Mail = ln.Addr().String(), people.MailConfig{URL: post.url, From: "Toll <toll@example.com>"}
		cfg.OIDC = people.OIDCConfig{Issuer: p.url, ClientID: providerClient, ClientSecret: providerSecret}
	})
	o.address = o.s.PublicURL()
	mails := 0
	own := regexp.MustCompile(`^/[a-z]`)
	for i, next := range []string{"https://evil.example/sign-in", "//evil.example/", `/\evil.example`} {
		who := fmt.Sprint("ann", i)
		pocket := newPocket(t, o.address)
		leads := func(what string, res shown) {
			t.Helper()
			to := res.header.Get("Location")
			if res.status != http.StatusSeeOther || !own.MatchString(to) || strings.Contains(to, "evil") {
				t.Errorf("%s with next %q: %d to %q\n%s", what, next, res.status, to, mainPart.FindString(res.body))
			}
		}
		v := newVisitor(t, o.address)
		form := formOf(t, v.get("/sign-up?next="+url.QueryEscape(next)))
		leads("a password", v.submit(form.with("name", "Ann").with("login", who).with("password", goodPassword)))
		form = formOf(t, newVisitor(t, o.address).get("/sign-up"))
		leads("a password", newVisitor(t, o.address).submit(form.with("name", "Ann").with("login", "b"+who).with("password", goodPassword).with("next", next)))
		p.as(map[string]any{"sub": who})
		for what, signIn := range map[string]func(v *visitor) shown{
			"a code by mail": func(v *visitor) shown {
				mails++
				address := who + "@example.com"
				res := v.submit(formOf(t, v.get("/sign-in/mail?next="+url.QueryEscape(next))).with("mail", address).with("next", next))
				return v.submit(formOf(t, res).with("code", post.code(mails, address)))
			},
			"a provider": func(v *visitor) shown { return v.get(v.toProvider(p, next)) },
			"a wallet": func(v *visitor) shown {
				return v.submit(pocket.signsText(t, v.post("/sign-in/wallet", url.Values{"address": {pocket.Address().String()}, "next": {next}})))
			},
		} {
			v := newVisitor(t, o.address)
			res := signIn(v)
			if res.status != http.StatusOK || !strings.Contains(res.body, "Create account") {
				t.Fatalf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
			}
			leads(what+" of somebody new", v.submit(formOf(t, res).with("name", "Ann").with("next", next)))
			leads(what, signIn(newVisitor(t, o.address)))
		}
	}
}

// TestCrossSite: a form of another site, one that does not say where it comes from, and JSON as text change nothing, on each
// route for people and each one of the API that takes the session of a browser. No page acts on GET.
// T152
func TestCrossSite(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice := o.signUp("alice", "")
	w := alice.workspace()
	all := must.Get(server.PeoplePages(o.s))(t)
	sites := map[string][]string{
		"another site":    {"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"},
		"an old browser":  {"Origin", "https://evil.example"},
		"no origin":       {"Origin", "null"},
		"a sibling":       {"Origin", strings.Replace(o.address, "127.0.0.1", "127.0.0.2", 1), "Sec-Fetch-Site", "same-site"},
		"says nothing":    nil,
		"a data document": {"Origin", "null", "Sec-Fetch-Site", "cross-site"},
	}
	fill := strings.NewReplacer("{workspace}", w)
	ticket := ticketOf.FindStringSubmatch(mainPart.FindString(alice.get("/w/" + w + "/members").body))[1]
	values := url.Values{"ticket": {ticket}, "act": {"invite"}, "role": {"owner"}, "theme": {"dark"}, "workspace": {w}}
	bob := o.signUp("bob", "")
	link := bob.invite(bob.workspace(), "viewer")
	before := rowsOf(t, o)
	posts := 0
	for _, p := range all {
		path := regexp.MustCompile(`\{\w+\}`).ReplaceAllString(fill.Replace(p.Path), "x")
		if p.Method != http.MethodPost {
			if res := alice.get(path + "?" + values.Encode()); res.status >= 500 {
				t.Errorf("GET %s: %d", path, res.status)
			}
			continue
		}
		posts++
		for what, header := range sites {
			if res := alice.visit(http.MethodPost, path, values.Encode(), header); res.status != http.StatusForbidden {
				t.Errorf("POST %s from %s: %d", path, what, res.status)
			}
		}
		body := `{"act":"invite","role":"owner","ticket":"` + ticket + `"}`
		for _, media := range []string{"text/plain", "application/json", "multipart/form-data; boundary=x"} {
			header := []string{"Origin", o.address, "Sec-Fetch-Site", "same-origin", "Content-Type", media}
			if res := alice.visit(http.MethodPost, path, body, header); res.status != http.StatusBadRequest {
				t.Errorf("POST %s as %s: %d", path, media, res.status)
			}
		}
	}
	if posts < 15 {
		t.Errorf("only %d routes take forms", posts)
	}

	// The API with the cookie of the browser.
	unsafe := 0
	for _, op := range o.operations() {
		if !op.session || op.method == http.MethodGet {
			continue
		}
		unsafe++
		for what, header := range sites {
			for _, media := range []string{"application/json", "text/plain"} {
				header := append([]string{"X-Current-Org-Id", w, "Content-Type", media}, header...)
				res := alice.visit(op.method, op.path, `{"role":"owner","name":"evil","rights":["read"]}`, header)
				if res.status != http.StatusForbidden {
					t.Errorf("%s %s from %s: %d %s", op.method, op.path, what, res.status, res.body)
				}
			}
		}
	}
	if unsafe < 10 {
		t.Errorf("only %d operations", unsafe)
	}
	if after := rowsOf(t, o); !slices.Equal(before, after) {
		t.Errorf("rows before %v, after %v", before, after)
	}
	// Nor does a form of the service itself that was not shown in this session.
	for path, form := range map[string]url.Values{
		"/account/security": {"act": {"codes"}}, "/confirm": {"password": {goodPassword}}, "/join": {"link": {link}}, "/sign-out": {},
		"/w/" + w + "/members": {"act": {"invite"}, "role": {"owner"}},
	} {
		for _, ticket := range []string{"", "a.b", ticket} {
			if path == "/w/"+w+"/members" && len(ticket) > 3 {
				continue // its own
			}
			form.Set("ticket", ticket)
			if res := alice.post(path, form); res.status != http.StatusForbidden {
				t.Errorf("POST %s with the ticket %q: %d", path, ticket, res.status)
			}
		}
	}
	if after := rowsOf(t, o); !slices.Equal(before, after) {
		t.Errorf("rows before %v, after %v", before, after)
	}
	// The same form from its own page acts.
	if res := alice.post("/w/"+w+"/members", values); !linkIn.MatchString(res.body) {
		t.Errorf("from the page itself: %d", res.status)
	}
}

// rowsOf counts the rows of what a form could make or end.
func rowsOf(t *testing.T, o *town) (all []string) {
	t.Helper()
	for _, table := range []string{"users", "credentials", "memberships", "links", "api_keys", "oauth_grants", "webhooks", "plans", "agents", "orders", "audit_log"} {
		var n int64
		must.Do(t, server.StoreOf(o.s).QueryRow(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n))
		all = append(all, fmt.Sprint(table, " ", n))
	}
	return all
}

type documentedOperation struct {
	method, path string
	session      bool
}

// operations are those of the API, with ids that name nothing.
func (o *town) operations() (all []documentedOperation) {
	o.t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string
		}
	}
	must.Do(o.t, json.Unmarshal([]byte(o.plainly(http.MethodGet, "/openapi.json", "").body), &document))
	for path, methods := range document.Paths {
		path = strings.NewReplacer("{id}", "0x"+strings.Repeat("a", 64), "{userId}", "me").Replace(path)
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "00000000-0000-4000-8000-000000000000")
		for method, op := range methods {
			session := slices.ContainsFunc(op.Security, func(s map[string][]string) bool { _, ok := s["session"]; return ok })
			all = append(all, documentedOperation{strings.ToUpper(method), path, session})
		}
	}
	return all
}

// TestPageThreats_Framing: no page can be framed, with any status.
// T155
func TestPageThreats_Framing(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice, nobody := o.signUp("alice", ""), newVisitor(t, o.address)
	paths := append(getPages(t, o, map[string]string{"workspace": alice.workspace()}), "/docs", "/docs/errors", "/w/0x0000/plans", "/oauth/authorize?client_id=x")
	for _, path := range paths {
		for who, v := range map[string]*visitor{"a person": alice, "nobody": nobody} {
			res := v.get(path)
			if !strings.HasPrefix(res.header.Get("Content-Type"), "text/html") {
				continue
			}
			if policy := res.header.Get("Content-Security-Policy"); !strings.Contains(policy, "frame-ancestors 'none'") {
				t.Errorf("%s for %s: %d, policy %q", path, who, res.status, policy)
			}
			if !strings.HasPrefix(path, "/docs") && res.header.Get("X-Frame-Options") != "DENY" { // which show what everybody may read
				t.Errorf("%s for %s: %d, old browsers frame it", path, who, res.status)
			}
		}
	}
}

// TestPageThreats_Forms: the service ignores fields that a form does not have. They make nobody an operator, owner or member, and a record
// belongs to the workspace of the page, at the price of its plan.
// T156
func TestPageThreats_Forms(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice := o.seller("alice")
	w := alice.workspace()
	eve := newVisitor(t, o.address)
	extra := func(p page, alsoRole bool) page {
		for _, name := range []string{
			"owner", "ownerAddress", "address", "workspace_id", "organization", "subscriber", "payer", "holder_id", "member", "userId", "user_id",
		} {
			p = p.with(name, w)
		}
		for _, name := range []string{"operator", "isOperator", "is_operator", "Operator", "admin", "verified", "proved_at", "isListed"} {
			p = p.with(name, "true")
		}
		if alsoRole {
			p = p.with("role", "owner").with("environment", "live")
		}
		return p.with("balance", "999").with("amounts", "0").with("madeBy", "local").with("proof", "passkey").with("id", "7")
	}
	if res := eve.submit(extra(formOf(t, eve.get("/sign-up")), true).with("name", "Eve").with("login", "eve").with("password", goodPassword)); res.status != http.StatusSeeOther {
		t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
	}
	own := "/w/" + eve.workspace()
	key := formWith(t, eve.get(own+"/keys/new"), "make").with("name", "k").with("rights", "read")
	agent := formWith(t, eve.get(own+"/agents/new"), "register").with("name", "a").with("endpoints", "https://agent.example.com/ask")
	plan := formWith(t, eve.get(own+"/plans/new"), "make").with("name", "p")
	for what, form := range map[string]page{"a key": key, "an agent": agent, "a plan": plan} {
		if res := eve.submit(extra(form, true)); res.status != http.StatusSeeOther {
			t.Errorf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
		}
	}
	invited := extra(page{own + "/members", url.Values{"act": {"invite"}, "role": {"viewer"}}}, false)
	invited = invited.with("ticket", ticketOf.FindStringSubmatch(mainPart.FindString(eve.get(own + "/members").body))[1])
	link := linkIn.FindStringSubmatch(eve.submit(invited).body)
	if link == nil {
		t.Fatal("no link")
	}
	dan := o.signUp("dan", "")
	if res := dan.submit(extra(formOf(t, dan.get("/join?link="+link[1])), true)); res.status != http.StatusSeeOther {
		t.Errorf("joining: %d %s", res.status, mainPart.FindString(res.body))
	}
	at := strings.ToLower(strings.TrimPrefix(own, "/w/"))
	for what, query := range map[string]string{
		"operators":                 "SELECT COUNT(*) FROM users WHERE is_operator",
		"members of another":        "SELECT COUNT(*) - 1 FROM memberships WHERE workspace = '" + strings.ToLower(w) + "'",
		"owners by an invitation":   "SELECT COUNT(*) - 1 FROM memberships WHERE workspace = '" + at + "' AND role <> 'viewer'",
		"agents of another":         "SELECT COUNT(*) FROM agents WHERE owner <> '" + at + "'",
		"plans of another":          "SELECT COUNT(*) FROM plans WHERE owner <> '" + at + "'",
		"keys of another, or local": "SELECT COUNT(*) - 1 FROM api_keys WHERE made_by = 'local' OR address = '" + strings.ToLower(w) + "'",
	} {
		var n int
		if err := server.StoreOf(o.s).QueryRow(t.Context(), query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s: %d %v", what, n, err)
		}
	}
	c := o.client(eve)
	for p, err := range c.Plans(t.Context()) {
		if err != nil || len(p.Price.Amounts) != 1 || p.Price.Amounts[0].String() != "1000000" || !p.IsListed {
			t.Errorf("%+v %v", p, err)
		}
	}
}

// TestForeignOrigins: no answer lets a page of another origin read it with the cookies of a person.
// T159
func TestForeignOrigins(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice := o.signUp("alice", "")
	w := alice.workspace()
	paths := getPages(t, o, map[string]string{"workspace": w})
	for _, op := range o.operations() {
		if op.method == http.MethodGet && !strings.HasSuffix(op.path, "/stream") {
			paths = append(paths, op.path)
		}
	}
	for _, origin := range []string{"https://evil.example", "null", o.address + ".evil.example", strings.Replace(o.address, "127.0.0.1", "127.0.0.1.evil.example", 1)} {
		for _, path := range paths {
			for _, method := range []string{http.MethodGet, http.MethodOptions} {
				res := alice.visit(method, path, "", []string{
					"Origin", origin, "Sec-Fetch-Site", "cross-site", "Access-Control-Request-Method", "POST",
					"Access-Control-Request-Headers", "authorization,x-current-org-id",
				})
				h := res.header
				if h.Get("Access-Control-Allow-Credentials") != "" {
					t.Errorf("%s %s lets %s send cookies", method, path, origin)
				}
				if allowed := h.Get("Access-Control-Allow-Origin"); allowed != "" && allowed != "*" || allowed != "" && strings.HasPrefix(h.Get("Content-Type"), "text/html") && strings.Contains(res.body, "alice") {
					t.Errorf("%s %s allows %q for %s", method, path, allowed, origin)
				}
			}
		}
	}
	// A read with the cookie works for the page itself, so the cookie counts.
	if res := alice.visit(http.MethodGet, "/api/v1/members", "", []string{"X-Current-Org-Id", w}); res.status != http.StatusOK {
		t.Errorf("with the cookie: %d %s", res.status, res.body)
	}
}

// TestSecretsOnPages: a secret is shown once, on an answer that nobody stores, and its address tells nobody.
// T160
func TestSecretsOnPages(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice := o.signUp("alice", "")
	w := "/w/" + alice.workspace()
	members := w + "/members"
	for what, c := range map[string]struct {
		path  string
		form  []string
		value *regexp.Regexp
	}{
		"an invitation":           {members, []string{"act", "invite", "role", "viewer"}, linkIn},
		"recovery codes":          {"/account/security", []string{"act", "codes"}, recoveryCode},
		"an API key":              {w + "/keys/new", []string{"act", "make", "rights", "read"}, keyIn},
		"the secret of a webhook": {w + "/webhooks/new", []string{"act", "make", "url", "https://hooks.example.com/"}, regexp.MustCompile(`data-copy="(whsec_[^"]*)"`)},
		"the key of the wallet":   {w + "/wallet", []string{"act", "export"}, regexp.MustCompile(`data-copy="(0x[0-9a-f]{64})"`)},
	} {
		res := alice.act(c.path, c.form...)
		if to := res.header.Get("Location"); res.status == http.StatusSeeOther {
			res = alice.get(to)
			if again := alice.get(to); c.value.MatchString(again.body) {
				t.Errorf("%s: a reload shows it", what)
			}
		}
		secret := c.value.FindStringSubmatch(res.body)
		if secret == nil || res.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d, %q", what, res.status, res.header.Get("Cache-Control"))
			continue
		}
		for _, path := range getPages(t, o, map[string]string{"workspace": alice.workspace()}) {
			again := alice.get(path)
			if strings.Contains(again.body, secret[1]) {
				t.Errorf("%s is on %s once more", what, path)
			}
			if html := strings.HasPrefix(again.header.Get("Content-Type"), "text/html"); html && (again.header.Get("Cache-Control") != "no-store" || again.header.Get("Referrer-Policy") != "same-origin") {
				t.Errorf("%s: %v", path, again.header)
			}
		}
	}
	// The text of a page has no map to its source.
	for _, path := range regexp.MustCompile(`(?:src|href)="(/[^"]*\.(?:js|css))"`).FindAllStringSubmatch(alice.get(members).body, -1) {
		file := alice.get(path[1])
		if file.status != http.StatusOK || strings.Contains(file.body, "sourceMappingURL") || file.header.Get("Sourcemap") != "" {
			t.Errorf("%s names a map of its source", path[1])
		}
		if res := alice.get(path[1] + ".map"); res.status == http.StatusOK {
			t.Errorf("%s.map: %d", path[1], res.status)
		}
	}
}
