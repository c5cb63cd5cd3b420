package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/outbound"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/store"
)

const goodPassword = "four words are enough"

// human is a person with a session in a terminal.
type human struct {
	s         *stack
	id        toll.UUID
	login     string
	token     string
	workspace string // in which the person calls
}

// human signs a person up.
func (s *stack) human(login string) *human {
	s.t.Helper()
	a := s.do(actor{}, "POST", base+"/people", `{"login":"`+login+`","password":"`+goodPassword+`"}`)
	var in toll.SignedIn
	must.Do(s.t, json.Unmarshal(a.body, &in))
	if a.status != 201 || len(in.Organizations) != 1 {
		s.t.Fatalf("%d %s", a.status, a.body)
	}
	return &human{s, in.Person.ID, login, in.Token, in.Organizations[0].ID}
}

func (p *human) do(method, path, body string, headers ...string) answer {
	p.s.t.Helper()
	if p.workspace != "" {
		headers = append([]string{"X-Current-Org-Id", p.workspace}, headers...)
	}
	return p.s.do(actor{key: p.token}, method, base+path, body, headers...)
}

// in returns the person in another workspace.
func (p *human) in(workspace string) *human {
	other := *p
	other.workspace = workspace
	return &other
}

// key returns an API key that the person made.
func (p *human) key() actor {
	p.s.t.Helper()
	return actor{key: p.do("POST", "/api-keys", "{}").text(p.s.t, "key")}
}

// invites invites a person to a workspace of another one, and has them join.
func (p *human) invites(other *human, role toll.Role) *human {
	p.s.t.Helper()
	p.s.clock.advance(time.Second)
	i := p.do("POST", "/invitations", `{"role":"`+string(role)+`"}`)
	if i.status != 201 {
		p.s.t.Fatalf("%d %s", i.status, i.body)
	}
	if a := other.do("POST", "/invitations/accept", `{"link":"`+i.text(p.s.t, "link")+`"}`); a.status != 200 || a.text(p.s.t, "id") != p.workspace {
		p.s.t.Fatalf("%d %s", a.status, a.body)
	}
	return other.in(p.workspace)
}

const fiveDollars = `{"provider":"erc4337","spendingLimitCents":500,"durationSecs":3600,"currency":"usdc"}`

// thrifty returns a developer who may spend 400 cents in a month, in the workspace of somebody else.
func (s *stack) thrifty(login string) *human {
	s.t.Helper()
	boss := s.human(login + "s-boss")
	dev := boss.invites(s.human(login), toll.RoleDeveloper)
	if a := boss.do("PATCH", "/members/"+dev.id.String(), `{"spendLimitCents":"400"}`); a.status != 200 {
		s.t.Fatalf("%d %s", a.status, a.body)
	}
	return dev
}

// TestSpendLimit: whatever a developer calls with, their limit counts; what is refused leaves nothing.
func TestSpendLimit(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		boss := s.human("boss")
		dev := boss.invites(s.human("dev"), toll.RoleDeveloper)
		if a := boss.do("PATCH", "/members/"+dev.id.String(), `{"spendLimitCents":"400"}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		plan := s.plan(s.b1, pricedPlan)
		token := func(who actor, config string) answer {
			return s.do(who, "POST", base+"/x402/permissions", `{"planId":"`+plan+`","delegationConfig":`+config+`}`)
		}
		bosses := s.do(boss.key(), "POST", base+"/delegation/create", fiveDollars).text(t, "delegationId")
		key := dev.key()
		for name, who := range map[string]actor{"a key": key, "a key of the key": s.child(key, `{}`)} {
			for act, a := range map[string]answer{
				"a delegation":     s.do(who, "POST", base+"/delegation/create", fiveDollars),
				"one with a token": token(who, `{"spendingLimitCents":500}`),
			} {
				if a.status != 402 || a.code() != string(toll.CodeSpendLimit) {
					t.Errorf("%s by %s: %d %s", act, name, a.status, a.body)
				}
			}
			for act, a := range map[string]answer{
				"a token": token(who, `{"delegationId":"`+bosses+`"}`),
				"orders":  s.do(who, "POST", base+"/protocol/plans/"+plan+"/order", `{"delegationId":"`+bosses+`"}`),
			} {
				if a.status != 402 || a.code() != string(toll.CodeSpendLimitDelegation) {
					t.Errorf("%s with the delegation of the boss by %s: %d %s", act, name, a.status, a.body)
				}
			}
		}
		for _, path := range []string{"/x402/permissions", "/protocol/orders"} {
			if a := s.do(key, "GET", base+path, ""); a.member(t, "total").(json.Number) != "0" {
				t.Errorf("%s: %s", path, a.body)
			}
		}
		if a := s.do(key, "GET", base+"/delegation?accessible=true", ""); a.member(t, "total").(json.Number) != "0" {
			t.Errorf("the delegation of the boss is offered: %s", a.body)
		}
		if a := token(key, `{"spendingLimitCents":400}`); a.status != 201 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do(key, "GET", base+"/delegation?accessible=true", ""); a.member(t, "total").(json.Number) != "1" {
			t.Errorf("the own delegation is not offered: %s", a.body)
		}
		// The limit goes with the role, and a new one comes with it.
		change := func(body string) answer { return boss.do("PATCH", "/members/"+dev.id.String(), body) }
		if a := change(`{"role":"billing"}`); a.status != 200 || bytes.Contains(a.body, []byte("spendLimitCents")) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := change(`{"role":"developer","spendLimitCents":10}`); a.status != 200 || a.text(t, "spendLimitCents") != "10" || a.text(t, "spentCents") != "400" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestSessionOfEveryRoute: the session of a person gets past each row that takes one and whose right the role has, past what is
// about the person with any role, and past nothing else; what asks for a fresh proof refuses without one.
// T17
func TestSessionOfEveryRoute(t *testing.T) {
	s := newStack(t)
	ctx := context.Background()
	p := s.human("somebody")
	second := store.User{ID: toll.NewTimeUUID(time.Now()), Name: "Second", CreatedAt: time.Now()}
	at := toll.MustAddress(p.workspace)
	must.Do(t, s.store.Tx(ctx, func(tx *store.Tx) error { // an owner who stays
		return errors.Join(store.InsertUser(ctx, tx, second), store.InsertMembership(ctx, tx, store.Membership{Workspace: at, UserID: second.ID, Role: toll.RoleOwner, CreatedAt: time.Now()}))
	}))
	for _, fresh := range []bool{true, false} {
		if !fresh {
			s.clock.advance(people.FreshTime)
		}
		for _, role := range toll.Roles() {
			must.Do(t, s.store.Tx(ctx, func(tx *store.Tx) error {
				return store.UpdateMembership(ctx, tx, store.Membership{Workspace: at, UserID: p.id, Role: role})
			}))
			for _, r := range api.Routes() {
				if r.Operation == "signOut" || r.Operation == "exportWallet" && fresh && role == toll.RoleOwner {
					continue // they would do it
				}
				path := strings.NewReplacer("{transaction}", "x", "{state}", "x", "{id}", "0x"+strings.Repeat("a", 64)).Replace(r.Path)
				for strings.Contains(path, "{") {
					path = path[:strings.Index(path, "{")] + "x" + path[strings.Index(path, "}")+1:]
				}
				method := r.Method
				if r.Operation == "followEvents" {
					method = http.MethodHead
				}
				a := s.do(actor{key: p.token}, method, path, "[]", "X-Current-Org-Id", p.workspace)
				var want toll.Code
				switch {
				case r.Right == "public":
				case !r.Session:
					want = toll.CodeKeyMalformed
				case r.Right == "own":
					if r.Fresh && !fresh {
						want = toll.CodeProofNeeded
					}
				case r.OwnMail: // the action looks whose mails they are: TestOwnMails
				case !role.Rights().Has(r.Right):
					want = toll.CodeRightMissing
				case r.Fresh && !fresh:
					want = toll.CodeProofNeeded
				}
				got := toll.Code(a.code())
				refused := slices.Contains([]toll.Code{toll.CodeRightMissing, toll.CodeProofNeeded, toll.CodePersonNeeded, toll.CodeWrongWorkspace, toll.CodeNotAuthenticated, toll.CodeKeyMalformed}, got)
				if method == http.MethodHead {
					refused, got = a.status == 401, want
				}
				if refused != (want != "") || refused && got != want {
					t.Errorf("%s as %s, fresh %t: %d %s, want %q", r.Operation, role, fresh, a.status, a.body, want)
				}
			}
		}
	}
}

// mailing is the same service with a mail server, to which it does not connect.
func (s *stack) mailing() *stack {
	s.t.Helper()
	other := *s
	d := &other.built
	var err error
	d.People, err = people.New(people.Deps{
		Store: s.store, Auth: s.auth, PublicURL: publicURL, Seal: d.Vault.Seal, Open: d.Vault.Open, Clock: s.clock.now, Log: d.Telemetry.Log,
		Mail: people.MailConfig{URL: "smtp://127.0.0.1:1", From: "toll@example.com"},
	})
	must.Do(s.t, err)
	d.Events = events.New(events.Config{
		Store: s.store, Seal: d.Vault.Seal, Open: d.Vault.Open, Mail: d.People.Notices, Outbound: outbound.Config{Loopback: true}, Clock: s.clock.now, Log: d.Telemetry.Log,
	})
	server := s.serve(api.New(other.built))
	s.t.Cleanup(server.Close)
	other.url = server.URL
	return &other
}

// mail proves a mail address of a person, named by the login name.
func (p *human) mail() (url string) {
	p.s.t.Helper()
	address := p.login + "@example.com"
	must.Do(p.s.t, p.s.store.Tx(p.s.t.Context(), func(tx *store.Tx) error {
		return store.InsertCredential(p.s.t.Context(), tx, store.Credential{
			ID: toll.NewTimeUUID(p.s.clock.now()), UserID: p.id, Kind: people.Mail, Subject: address, Name: address, CreatedAt: p.s.clock.now(),
		})
	}))
	return "mailto:" + address
}

// TestOwnMails: with any role a person has mails sent to their own address, about all that is mailed. Without the right to manage
// they touch no other webhook, and an API key of theirs touches none.
// T17
func TestOwnMails(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		s = s.mailing()
		all := must.Get(json.Marshal(events.MailTypes()))(t)
		hook := func(url string) string { return `{"url":"` + url + `","types":` + string(all) + `}` }
		const plain = "https://hooks.example.com/toll"
		owner := s.human("owner")
		colleague := owner.invites(s.human("colleague"), toll.RoleAdmin)
		others := colleague.mail()
		for _, role := range toll.Roles() {
			p := owner
			if role != toll.RoleOwner {
				p = owner.invites(s.human(string(role)), role)
			}
			manages := role.Rights().Has(toll.RightManage)
			expect := func(what string, a answer, status int, code toll.Code) {
				t.Helper()
				if a.status != status || a.code() != string(code) {
					t.Errorf("%s as %s: %d %s, want %d %s", what, role, a.status, a.body, status, code)
				}
			}
			// unless is what a member without the right to manage gets in place of an answer.
			unless := func(what string, a answer, status int, code toll.Code) {
				t.Helper()
				if !manages {
					status, code = http.StatusForbidden, toll.CodeRightMissing
				}
				expect(what, a, status, code)
			}
			own := p.mail()
			made := p.do("POST", "/webhooks", hook(own))
			expect("own mails", made, http.StatusCreated, "")
			expect("own mails twice", p.do("POST", "/webhooks", hook(own)), http.StatusConflict, toll.CodeWebhookTooMany)
			expect("mails to a colleague", p.do("POST", "/webhooks", hook(others)), http.StatusBadRequest, toll.CodeWebhookURL)
			unless("a webhook", p.do("POST", "/webhooks", hook(plain)), http.StatusCreated, "")

			mine, theirs := made.text(t, "id"), colleague.do("POST", "/webhooks", hook(others)).text(t, "id")
			urls := owner.do("POST", "/webhooks", hook(plain)).text(t, "id")
			k := must.Get(s.auth.CreateKey(t.Context(), auth.Caller{
				Address: toll.MustAddress(p.workspace), UserID: p.id, Rights: role.Rights(),
			}.Maker(), auth.KeyParams{}, nil))(t)
			key := func(method, path, body string) answer { return s.do(actor{key: k.Key}, method, base+path, body) }
			unless("own mails by a key", key("POST", "/webhooks", hook(own)), http.StatusForbidden, toll.CodePersonNeeded)
			const change = `{"types":["credits.low"],"status":"paused"}`
			for _, r := range api.Routes() {
				if !r.OwnMail || r.Operation == "createWebhook" {
					continue
				}
				body, ok := map[string]string{"updateWebhook": change, "deleteWebhook": ""}[r.Operation]
				if !ok {
					t.Fatalf("%s is not in this test", r.Operation)
				}
				at := func(id string) string { return strings.TrimPrefix(strings.Replace(r.Path, "{webhookId}", id, 1), base) }
				if !manages {
					unless(r.Operation+" of own mails by a key", key(r.Method, at(mine), body), 0, "")
				}
				unless(r.Operation+" of a colleague", p.do(r.Method, at(theirs), body), http.StatusOK, "")
				unless(r.Operation+" of a url", p.do(r.Method, at(urls), body), http.StatusOK, "")
				expect(r.Operation+" of own mails", p.do(r.Method, at(mine), body), http.StatusOK, "")
			}
			unless("a test", p.do("POST", "/webhooks/"+urls+"/test", ""), http.StatusNotFound, toll.CodeWebhookNotFound)
			colleague.do("DELETE", "/webhooks/"+theirs, "")
		}
	})
}

// TestSession_Workspace: a person names the workspace of each call, and another one than theirs is not told from none.
func TestSession_Workspace(t *testing.T) {
	s := newStack(t)
	p, other := s.human("one"), s.human("two")
	for workspace, want := range map[string]int{
		p.workspace: 200, strings.ToUpper(p.workspace[2:]): 403, "": 403, other.workspace: 403, s.b1.address.Lower(): 403, "x": 403,
	} {
		if a := p.in(workspace).do("GET", "/protocol/plans", ""); a.status != want || want == 403 && a.code() != string(toll.CodeWrongWorkspace) {
			t.Errorf("%q: %d %s", workspace, a.status, a.body)
		}
	}
	if a := p.do("GET", "/members", "", "X-Current-Org-Id", other.workspace); a.status != 403 {
		t.Errorf("two lines: %d", a.status)
	}
	both := other.invites(p, toll.RoleViewer)
	a := p.in("").do("GET", "/organizations?sortOrder=asc", "")
	want := fmt.Sprintf(`"organizations":[{"id":"%s","name":"","role":"owner"},{"id":"%s","name":"","role":"viewer"}],"total":2`, p.workspace, both.workspace)
	if a.status != 200 || !strings.Contains(string(a.body), want) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if got := p.in("").pages("/organizations", "organizations", "id"); !slices.Equal(got, []string{both.workspace, p.workspace}) {
		t.Errorf("%v", got)
	}
}

// TestSession_ReadsWithoutWrites: a person reads a workspace while the use of the session there cannot be noted.
func TestSession_ReadsWithoutWrites(t *testing.T) {
	s := newStack(t)
	p := s.human("one")
	must.Do(t, s.store.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.Exec(t.Context(), "ALTER TABLE session_uses RENAME TO moved")
		return err
	}))
	if a := p.in(p.workspace).do("GET", "/protocol/plans", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// pages is [stack.everyPage] for a person.
func (p *human) pages(path, list, member string) (all []string) {
	p.s.t.Helper()
	for cursor := ""; ; {
		a := p.do("GET", path+"?pageSize=1"+cursor, "")
		var got map[string]json.RawMessage
		var items []map[string]any
		must.Do(p.s.t, json.Unmarshal(a.body, &got))
		must.Do(p.s.t, json.Unmarshal(got[list], &items))
		for _, item := range items {
			all = append(all, fmt.Sprint(item[member]))
		}
		next, ok := a.member(p.s.t, "nextCursor").(string)
		if !ok || len(all) > 100 {
			return all
		}
		cursor = "&cursor=" + url.QueryEscape(next)
	}
}

// TestPeople_Sessions: the token of a terminal opens nothing as a cookie, and a cookie nothing as a token; a browser sends changes only from
// a page of the service; what has ended opens nothing.
// T08
func TestPeople_Sessions(t *testing.T) {
	s := newStack(t)
	p := s.human("one")
	ctx := context.Background()
	secret := "a-cookie-of-a-browser"
	row := store.BrowserSession{
		Token: people.Hashed(secret), Data: []byte{1}, ExpiresAt: s.clock.now().Add(time.Hour), UserID: p.id, ID: toll.NewUUID(), Proof: people.Password,
		Since: s.clock.now(), AuthenticatedAt: s.clock.now(),
	}
	must.Do(t, s.store.Tx(ctx, func(tx *store.Tx) error { return store.InsertBrowserSession(ctx, tx, row, s.clock.now()) }))
	cookie := []string{"Cookie", "__Host-session=" + secret, "X-Current-Org-Id", p.workspace}
	for name, c := range map[string]struct {
		a    answer
		want int
	}{
		"a cookie reads": {s.do(actor{}, "GET", base+"/members", "", cookie...), 200},
		"a cookie from another site": {s.do(actor{}, "POST", base+"/invitations", `{"role":"viewer"}`,
			append([]string{"Sec-Fetch-Site", "same-site", "Origin", "https://evil.example"}, cookie...)...), 403},
		"a cookie from nowhere":       {s.do(actor{}, "POST", base+"/invitations", `{"role":"viewer"}`, cookie...), 403},
		"a cookie from a page":        {s.do(actor{}, "POST", base+"/invitations", `{"role":"viewer"}`, append([]string{"Sec-Fetch-Site", "same-origin"}, cookie...)...), 201},
		"a cookie under another name": {s.do(actor{}, "GET", base+"/members", "", "Cookie", "session="+secret, "X-Current-Org-Id", p.workspace), 401},
		"a cookie beside a key":       {s.do(s.b1, "GET", base+"/session", "", "Cookie", "__Host-session="+secret), 403},
		"a cookie as a token":         {p.with("session:"+secret).do("GET", "/members", ""), 401},
		"a token as a cookie":         {s.do(actor{}, "GET", base+"/members", "", "Cookie", "__Host-session="+p.token, "X-Current-Org-Id", p.workspace), 401},
		"a secret as a cookie": {s.do(actor{}, "GET", base+"/members", "", "Cookie", "__Host-session="+strings.TrimPrefix(p.token, "session:"),
			"X-Current-Org-Id", p.workspace), 401},
		"a token without its prefix": {p.with(strings.TrimPrefix(p.token, "session:")).do("GET", "/members", ""), 401},
		"a token that is too long":   {p.with(p.token+strings.Repeat("x", 10_000)).do("GET", "/members", ""), 401},
		"a token where a key is":     {p.do("POST", "/protocol/plans", freePlan), 401},
		"a browser's proof by call": {s.do(actor{}, "POST", base+"/session/proof", `{"password":"`+goodPassword+`"}`,
			append([]string{"Sec-Fetch-Site", "same-origin"}, cookie...)...), 400},
	} {
		if c.a.status != c.want {
			t.Errorf("%s: %d %s", name, c.a.status, c.a.body)
		}
	}
	again := s.do(actor{}, "POST", base+"/session", `{"login":"one","password":"`+goodPassword+`"}`)
	if again.status != 201 || p.with(again.text(t, "token")).do("DELETE", "/session", "").status != 200 ||
		p.with(again.text(t, "token")).do("GET", "/session", "").status != 401 || p.do("GET", "/session", "").status != 200 {
		t.Errorf("%d %s", again.status, again.body)
	}
	s.clock.advance(12 * time.Hour)
	if a := p.do("GET", "/session", ""); a.status != 401 || a.code() != string(toll.CodeNotAuthenticated) {
		t.Errorf("after its end: %d %s", a.status, a.body)
	}
	if log := s.log.String(); strings.Contains(log, p.token[10:]) || strings.Contains(log, secret) {
		t.Error("a session is in the log")
	}
}

func (p *human) with(token string) *human {
	other := *p
	other.token = token
	return &other
}

// TestStepUp: what changes who has access asks for a fresh proof, which a password is.
func TestStepUp(t *testing.T) {
	s := newStack(t)
	p := s.human("one")
	invite := func() answer { return p.do("POST", "/invitations", `{"role":"viewer","note":"for a test"}`) }
	if a := invite(); a.status != 201 || a.text(t, "note") != "for a test" {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.clock.advance(people.FreshTime)
	if a := invite(); a.status != 403 || a.code() != string(toll.CodeProofNeeded) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := p.do("POST", "/session/proof", `{"password":"wrong wrong wrong"}`); a.status != 401 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := p.do("POST", "/session/proof", `{"password":"`+goodPassword+`"}`); a.status != 200 || a.text(t, "proof") != "password" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := invite(); a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestMembers: roles and removals as the design says, on both engines.
func TestMembers(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		owner := s.human("owner")
		admin, dev := owner.invites(s.human("admin"), toll.RoleAdmin), owner.invites(s.human("developer"), toll.RoleDeveloper)
		role := func(by *human, of toll.UUID, role string) answer {
			return by.do("PATCH", "/members/"+of.String(), `{"role":"`+role+`"}`)
		}
		refused := func(what string, a answer, status int, code toll.Code) {
			t.Helper()
			if a.status != status || a.code() != string(code) {
				t.Errorf("%s: %d %s", what, a.status, a.body)
			}
		}
		if got := admin.pages("/members", "members", "userId"); !slices.Equal(got, []string{dev.id.String(), admin.id.String(), owner.id.String()}) {
			t.Errorf("%v", got)
		}
		refused("above the own role", role(admin, dev.id, "owner"), 403, toll.CodeForbidden)
		refused("of an owner", role(admin, owner.id, "viewer"), 403, toll.CodeForbidden)
		refused("by a developer", role(dev, dev.id, "admin"), 403, toll.CodeRightMissing)
		refused("the last owner", role(owner, owner.id, "admin"), 409, toll.CodeLastOwner)
		refused("the last owner leaves", owner.do("DELETE", "/members/me", ""), 409, toll.CodeLastOwner)
		refused("an unknown role", role(owner, dev.id, "god"), 400, toll.CodeBadRequest)
		refused("nobody", role(owner, toll.NewTimeUUID(time.Now()), "viewer"), 404, toll.CodePersonNotFound)
		refused("no id", role(owner, toll.UUID{}, "viewer"), 404, toll.CodePersonNotFound)
		if a := owner.do("DELETE", "/members/x", ""); a.status != 400 {
			t.Errorf("%d %s", a.status, a.body)
		}
		refused("an operator's key beside people", s.do(s.keyOf(toll.MustAddress(owner.workspace), ""), "GET", base+"/members", ""), 403, toll.CodePersonNeeded)

		// A key of the developer, and one that it made; then the developer is removed.
		keys := func() (first, kid actor) {
			k := must.Get(s.auth.CreateKey(context.Background(), auth.Caller{
				Address: toll.MustAddress(owner.workspace), UserID: dev.id, Rights: toll.RoleDeveloper.Rights(),
			}.Maker(), auth.KeyParams{}, nil))(t)
			first = actor{k.Address, k.Key, k.ID}
			return first, s.child(first, `{"rights":["read"]}`)
		}
		works := func(k actor) bool { return s.do(k, "GET", base+"/protocol/plans", "").status == 200 }
		first, kid := keys()
		const hook = `{"url":"https://hooks.example"}`
		hooks := func() string {
			t.Helper()
			var list struct{ Webhooks []toll.Webhook }
			a := owner.do("GET", "/webhooks?sort=created", "")
			must.Do(t, json.Unmarshal(a.body, &list))
			text := ""
			for _, w := range list.Webhooks {
				text += fmt.Sprintln(w.ID, w.Status, w.UserID)
			}
			return text
		}
		byDev, byKey := dev.do("POST", "/webhooks", hook).text(t, "id"), s.do(first, "POST", base+"/webhooks", hook).text(t, "id")
		moved, stays := owner.do("POST", "/webhooks", hook).text(t, "id"), owner.do("POST", "/webhooks", hook).text(t, "id")
		if a := dev.do("PATCH", "/webhooks/"+moved, `{"url":"https://hooks.example/dev"}`); a.status != 200 { // to the developer's own server
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := role(owner, dev.id, "viewer"); a.status != 200 || a.text(t, "role") != "viewer" {
			t.Errorf("%d %s", a.status, a.body)
		}
		refused("with keep by the person who leaves", dev.do("DELETE", "/members/me?keep=true", ""), 403, toll.CodeForbidden)
		a := admin.do("DELETE", "/members/"+dev.id.String()+"?keep=true", "")
		if a.status != 200 || fmt.Sprint(a.member(t, "kept.apiKeys")) != "2" || fmt.Sprint(a.member(t, "ended.apiKeys")) != "0" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if !works(first) || !works(kid) {
			t.Error("a kept key does not work")
		}
		if got := hooks(); strings.Count(got, "active "+admin.id.String()) != 3 || !strings.Contains(got, stays+" active "+owner.id.String()) {
			t.Errorf("kept webhooks:\n%s", got)
		}
		// The person was a viewer at the end, so the key is one of a viewer.
		if k := s.do(first, "GET", base+"/api-keys/"+first.keyID.String(), ""); k.text(t, "userId") != admin.id.String() || strings.Contains(string(k.body), "manage") {
			t.Errorf("%d %s", k.status, k.body)
		}
		refused("after the removal", dev.do("GET", "/protocol/plans", ""), 403, toll.CodeWrongWorkspace)
		owner.invites(dev.in(""), toll.RoleDeveloper)
		first, kid = keys()
		for _, id := range []string{byDev, byKey, moved} {
			if a := dev.do("PATCH", "/webhooks/"+id, `{"url":"https://hooks.example/`+id+`"}`); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		a = admin.do("DELETE", "/members/"+dev.id.String(), "")
		if a.status != 200 || fmt.Sprint(a.member(t, "ended.apiKeys")) != "2" || strings.Contains(string(a.body), "kept") || works(first) || works(kid) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if got := hooks(); strings.Count(got, "paused "+dev.id.String()) != 3 || !strings.Contains(got, stays+" active") || strings.Count(string(a.body), `"url":"https://hooks.example/`) != 3 {
			t.Errorf("webhooks of a removed developer:\n%s%s", got, a.body)
		}
		// Who leaves needs no right, and no proof.
		owner.invites(dev.in(""), toll.RoleViewer)
		s.clock.advance(people.FreshTime)
		refused("an old proof", admin.do("DELETE", "/members/"+dev.id.String(), ""), 403, toll.CodeProofNeeded)
		if a := dev.do("DELETE", "/members/me", ""); a.status != 200 || a.text(t, "userId") != dev.id.String() {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// TestDevelopers_CardsOfOthers: a developer can change only the cards and delegations that they created. Owners, admins, and keys of
// the operator can change all cards and delegations of the workspace.
func TestDevelopers_CardsOfOthers(t *testing.T) {
	s := newStack(t)
	owner := s.human("owner")
	admin, dev := owner.invites(s.human("admin"), toll.RoleAdmin), owner.invites(s.human("developer"), toll.RoleDeveloper)
	workspace := actor{address: toll.MustAddress(owner.workspace)}
	owns, admins, key := owner.key(), admin.key(), dev.key()
	delegation := func(by actor) string {
		t.Helper()
		return s.do(by, "POST", base+"/delegation/create", fiveDollars).text(t, "delegationId")
	}
	of, own := delegation(owns), delegation(key)
	s.card(workspace, "pm_1")
	s.card(workspace, "pm_2")
	const only = `{"allowedApiKeyIds":null}`
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/delegation/" + of + "/unfreeze", ""}, {"DELETE", "/delegation/" + of, ""}, {"PATCH", "/payment-methods/pm_1", only},
		{"PATCH", "/payment-methods/" + owner.workspace, only}, {"DELETE", "/payment-methods/pm_1", ""},
	} {
		if a := s.do(key, c.method, base+c.path, c.body); a.status != 403 || a.code() != string(toll.CodeForbidden) {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
	}
	for _, c := range []struct {
		who                actor
		method, path, body string
	}{
		{key, "POST", "/delegation/" + own + "/unfreeze", ""}, {key, "DELETE", "/delegation/" + own, ""},
		{admins, "POST", "/delegation/" + of + "/unfreeze", ""}, {owns, "DELETE", "/delegation/" + of, ""},
		{owns, "PATCH", "/payment-methods/pm_1", only}, {admins, "DELETE", "/payment-methods/pm_2", ""},
		{s.keyOf(workspace.address, ""), "DELETE", "/payment-methods/pm_1", ""}, // an operator's key stands for the workspace
	} {
		if a := s.do(c.who, c.method, base+c.path, c.body); a.status != 200 {
			t.Errorf("%s %s: %d %s", c.method, c.path, a.status, a.body)
		}
	}
}

// TestInvitations: a link works once, ends when it is revoked, and is listed without its secret.
func TestInvitations(t *testing.T) {
	s := newStack(t)
	owner, guest := s.human("owner"), s.human("guest")
	i := owner.do("POST", "/invitations", `{"role":"developer"}`)
	link, id := i.text(t, "link"), i.text(t, "id")
	if !strings.HasPrefix(link, publicURL+"/join?link=") {
		t.Errorf("%s", i.body)
	}
	list := owner.do("GET", "/invitations", "")
	if fmt.Sprint(list.member(t, "total")) != "1" || strings.Contains(string(list.body), "link") || !strings.Contains(string(list.body), id) {
		t.Errorf("%s", list.body)
	}
	if a := guest.in(guest.workspace).do("DELETE", "/invitations/"+id, ""); a.status != 404 {
		t.Errorf("of another workspace: %d %s", a.status, a.body)
	}
	if a := guest.do("POST", "/invitations/accept", `{"link":"`+link+`"}`); a.status != 200 || a.text(t, "role") != "developer" {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, body := range []string{`{"link":"` + link + `"}`, `{"link":"x"}`, `{}`} {
		if a := s.human("third"+fmt.Sprint(len(body))).do("POST", "/invitations/accept", body); a.status != 404 {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	second := owner.do("POST", "/invitations", `{"role":"viewer"}`)
	if a := owner.do("DELETE", "/invitations/"+second.text(t, "id"), ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.human("late").do("POST", "/invitations/accept", `{"link":"`+second.text(t, "link")+`"}`); a.status != 404 {
		t.Errorf("a revoked invitation: %d %s", a.status, a.body)
	}
	if a := owner.do("POST", "/invitations", `{"role":"viewer","note":"`+strings.Repeat("x", 1000)+`"}`); a.status != 201 || len(a.text(t, "note")) > 100 {
		t.Errorf("%d %s", a.status, a.body)
	}
	// The operator's key lets the first person into an account that only has keys, and no further one.
	invite := func() answer { return s.do(s.b1, "POST", base+"/invitations", `{"role":"owner"}`) }
	first := invite()
	if first.status != 201 {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if a := guest.do("POST", "/invitations/accept", `{"link":"`+first.text(t, "link")+`"}`); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := invite(); a.status != 403 || a.code() != string(toll.CodePersonNeeded) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// TestSessions: a person lists and ends their own sessions, and an admin those of members below.
func TestSessions(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		owner, member := s.human("owner"), s.human("member")
		dev := owner.invites(member, toll.RoleDeveloper)
		second := s.do(actor{}, "POST", base+"/session", `{"login":"member","password":"`+goodPassword+`"}`)
		mine, other := dev.do("GET", "/session", "").text(t, "session.id"), second.text(t, "session.id")
		s.clock.advance(time.Second)
		list := dev.pages("/sessions", "sessions", "id")
		slices.Sort(list)
		want := []string{mine, other}
		if slices.Sort(want); !slices.Equal(list, want) {
			t.Errorf("%v, not %v", list, want)
		}
		if a := dev.do("GET", "/sessions", ""); strings.Count(string(a.body), `"current":true`) != 1 {
			t.Errorf("%s", a.body)
		}
		for path, status := range map[string]int{
			"/sessions/" + owner.do("GET", "/session", "").text(t, "session.id"): 404, "/sessions/x": 400, "/sessions/" + toll.NewUUID(): 404, "/sessions/" + other: 200,
		} {
			if a := dev.do("DELETE", path, ""); a.status != status {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
		if a := dev.with(second.text(t, "token")).do("GET", "/session", ""); a.status != 401 {
			t.Errorf("an ended session: %d %s", a.status, a.body)
		}
		of := "/members/" + owner.id.String() + "/sessions"
		if a := dev.do("GET", of, ""); a.status != 403 || a.code() != string(toll.CodeRightMissing) {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := owner.do("PATCH", "/members/"+dev.id.String(), `{"role":"admin"}`); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if a := dev.do("GET", of, ""); a.status != 403 || a.code() != string(toll.CodeForbidden) {
			t.Errorf("of an owner: %d %s", a.status, a.body)
		}
		if a := dev.do("DELETE", of, ""); a.status != 403 || owner.do("GET", "/session", "").status != 200 {
			t.Errorf("of an owner: %d %s", a.status, a.body)
		}
		of = "/members/" + dev.id.String() + "/sessions"
		if a := owner.do("GET", of, ""); a.status != 200 || !strings.Contains(string(a.body), mine) || strings.Contains(string(a.body), `"current":true`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		// Sessions that were never used in the workspace are none of its owner's business, and end for it all the same.
		third := s.do(actor{}, "POST", base+"/session", `{"login":"member","password":"`+goodPassword+`"}`).text(t, "token")
		if a := member.with(third).do("GET", "/protocol/plans", ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := owner.do("GET", of, ""); fmt.Sprint(a.member(t, "total")) != "1" {
			t.Errorf("%d %s", a.status, a.body)
		}
		if a := owner.do("DELETE", of, ""); a.status != 200 || fmt.Sprint(a.member(t, "ended")) != "1" {
			t.Errorf("%d %s", a.status, a.body)
		}
		for what, p := range map[string]*human{"the session": dev, "an unused session": dev.with(third)} {
			if a := p.do("GET", "/protocol/plans", ""); a.status != 403 || a.code() != string(toll.CodeWrongWorkspace) {
				t.Errorf("%s after the end: %d %s", what, a.status, a.body)
			}
			if a := p.in(member.workspace).do("GET", "/protocol/plans", ""); a.status != 200 {
				t.Errorf("%s elsewhere: %d %s", what, a.status, a.body)
			}
		}
		if a := owner.do("GET", of, ""); fmt.Sprint(a.member(t, "total")) != "0" {
			t.Errorf("%d %s", a.status, a.body)
		}
		s.clock.advance(time.Second)
		again := s.do(actor{}, "POST", base+"/session", `{"login":"member","password":"`+goodPassword+`"}`).text(t, "token")
		if a := dev.with(again).do("GET", "/protocol/plans", ""); a.status != 200 {
			t.Errorf("after another sign-in: %d %s", a.status, a.body)
		}
	})
}

// TestCredentials: the last credential stays, and a change of them ends all other sessions.
func TestCredentials(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		p := s.human("one")
		other := s.do(actor{}, "POST", base+"/session", `{"login":"one","password":"`+goodPassword+`"}`)
		list := p.do("GET", "/credentials", "")
		password := list.member(t, "credentials").([]any)[0].(map[string]any)
		if list.status != 200 || password["kind"] != "password" || password["name"] != "one" || fmt.Sprint(list.member(t, "total")) != "1" {
			t.Fatalf("%d %s", list.status, list.body)
		}
		if a := p.do("DELETE", "/credentials/"+password["id"].(string), ""); a.status != 403 || a.code() != string(toll.CodeForbidden) {
			t.Errorf("the last one: %d %s", a.status, a.body)
		}
		codes := p.do("POST", "/credentials/recovery-codes", "")
		if codes.status != 200 || len(codes.member(t, "codes").([]any)) != 10 {
			t.Errorf("%d %s", codes.status, codes.body)
		}
		s.clock.advance(time.Second)
		again := p.do("POST", "/credentials/recovery-codes", "")
		if strings.Contains(string(again.body), fmt.Sprint(codes.member(t, "codes").([]any)[0])) {
			t.Error("a code came twice")
		}
		if all := p.pages("/credentials", "credentials", "id"); len(all) != 11 {
			t.Errorf("%v", all)
		}
		code := p.do("GET", "/credentials", "").member(t, "credentials").([]any)[0].(map[string]any)
		stranger := s.human("stranger")
		if a := stranger.do("DELETE", "/credentials/"+code["id"].(string), ""); a.status != 404 {
			t.Errorf("of somebody else: %d %s", a.status, a.body)
		}
		if a := p.do("DELETE", "/credentials/"+code["id"].(string), ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		if p.do("GET", "/session", "").status != 200 || p.with(other.text(t, "token")).do("GET", "/session", "").status != 401 {
			t.Error("the wrong sessions ended")
		}
		s.clock.advance(people.FreshTime)
		for method, path := range map[string]string{"POST": "/credentials/recovery-codes", "DELETE": "/credentials/" + password["id"].(string)} {
			if a := p.do(method, path, ""); a.status != 403 || a.code() != string(toll.CodeProofNeeded) {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	})
}

// TestAuditLog: each act stands in the log of its workspace once, with who did it, and is not done when it cannot be noted.
func TestAuditLog(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		owner := s.human("owner")
		key := s.keyOf(toll.MustAddress(owner.workspace), "")
		plan := s.plan(key, freePlan)
		do := func(method, path, body string) answer {
			t.Helper()
			a := s.do(key, method, base+path, body)
			if a.status >= 300 {
				t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
			}
			return a
		}
		mint := `{"planId":"` + plan + `","amount":"7","creditsReceiver":"` + s.s1.address.String() + `"}`
		minted := do("POST", "/protocol/plans/mint", mint).text(t, "txHash")
		began := s.clock.now()
		s.clock.advance(2 * time.Minute)
		hook := do("POST", "/webhooks", `{"url":"https://hooks.example.com/toll"}`)
		id := hook.text(t, "id")
		do("PATCH", "/webhooks/"+id, `{"description":"new"}`)
		do("POST", "/webhooks/"+id+"/rotate", "")
		do("DELETE", "/webhooks/"+id, "")
		do("PATCH", "/api-keys/"+key.keyID.String(), `{"name":"renamed"}`)
		read := func(query string) (all []toll.Act) {
			t.Helper()
			a := owner.do("GET", "/audit-log?sortOrder=asc&pageSize=100&"+query, "")
			var got struct{ Acts []toll.Act }
			must.Do(t, json.Unmarshal(a.body, &got))
			if a.status != 200 || strings.Contains(string(a.body), hook.text(t, "secret")) {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
			return got.Acts
		}
		all := read("")
		count := map[string]int{}
		for i, a := range all {
			count[a.Act]++
			if a.Number != int64(i+1) {
				t.Errorf("number %d at %d", a.Number, i)
			}
		}
		for _, act := range []string{"workspace.created", "plan.created", "credits.minted", "webhook.created", "webhook.updated", "webhook.rotated", "webhook.deleted", "api_key.updated"} {
			if count[act] != 1 {
				t.Errorf("%d × %s in %v", count[act], act, count)
			}
		}
		one := read("act=credits.minted")
		if len(one) != 1 || one[0].Object != minted || one[0].ActorKind != "key" || one[0].Actor != key.keyID.String() || one[0].Source == "" || !strings.Contains(string(one[0].Detail), `"amount":"7"`) {
			t.Errorf("%+v", one)
		}
		later := read("since=" + url.QueryEscape(began.Add(time.Minute).Format(time.RFC3339)))
		if len(later) != 5 || len(read("until="+url.QueryEscape(began.Add(time.Minute).Format(time.RFC3339))))+5 != len(all) {
			t.Errorf("%d acts later, of %d", len(later), len(all))
		}
		if got := owner.pages("/audit-log", "acts", "number"); len(got) != len(all) || got[0] != fmt.Sprint(len(all)) {
			t.Errorf("%v", got)
		}
		for query, code := range map[string]string{"act=Drop%20Table": "BCK.HTTP.400", "act=" + strings.Repeat("x", 100): "BCK.HTTP.400", "since=yesterday": "BCK.HTTP.400", "sortBy=name": "BCK.COMMON.0904"} {
			if a := owner.do("GET", "/audit-log?"+query, ""); a.code() != code {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
		}
		other := s.human("other")
		if a := other.do("GET", "/audit-log", ""); a.status != 200 || strings.Contains(string(a.body), "minted") {
			t.Errorf("%d %s", a.status, a.body)
		}
		viewer := owner.invites(other, toll.RoleViewer)
		if a := viewer.do("GET", "/audit-log", ""); a.status != 403 || a.code() != string(toll.CodeRightMissing) {
			t.Errorf("%d %s", a.status, a.body)
		}
		faults, err := store.AuditChains(t.Context(), s.store)
		if err != nil || len(faults) > 0 {
			t.Errorf("%v %v", faults, err)
		}

		// What cannot be noted is not done.
		rename := func(from, to string) {
			t.Helper()
			must.Do(t, s.store.Tx(t.Context(), func(tx *store.Tx) error {
				_, err := tx.Exec(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to)
				return err
			}))
		}
		balance := func() string {
			return s.do(actor{}, "GET", base+"/protocol/plans/"+plan+"/balance/"+s.s1.address.Lower(), "").text(t, "balance")
		}
		rename("audit_log", "audit_gone")
		for path, body := range map[string]string{"/protocol/plans/mint": mint, "/webhooks": `{"url":"https://hooks.example.com/toll"}`} {
			if a := s.do(key, "POST", base+path, body); a.status < 500 {
				t.Errorf("%s without a log: %d %s", path, a.status, a.body)
			}
		}
		rename("audit_gone", "audit_log")
		if got := balance(); got != "7" || !strings.Contains(string(s.do(key, "GET", base+"/webhooks", "").body), `"webhooks":[]`) {
			t.Errorf("balance %s", got)
		}
	})
}
