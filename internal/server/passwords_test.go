package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/server"
)

// TestNoPasswords: where the operator turns passwords off, no page asks for one and none is taken, in the API neither. Whoever has only
// a password gets in by a code by mail, a recovery code or a link of the operator, and may then add another credential.
func TestNoPasswords(t *testing.T) {
	eachMailTown(t, nil, func(o *town, post *postOffice) {
		t := o.t
		alice, bob, carl := o.signUp("alice", ""), o.signUp("bob", ""), o.signUp("carl", "")
		o.addMail(alice, post, 1, "alice@example.com")
		codes := recoveryCode.FindAllStringSubmatch(bob.act("/account/security", "act", "codes").body, -1)
		nobody := newVisitor(t, o.address)
		signIn, signUp := formOf(t, nobody.get("/sign-in")), formOf(t, nobody.get("/sign-up"))
		changed := ticketed(alice, "/account/security", "act", "password", "password", "another good one")
		server.RefusePasswords(o.s, true)

		for _, path := range []string{"/sign-in", "/sign-up", "/recover", "/account/security"} {
			v := nobody
			if path == "/account/security" {
				v = alice
			}
			if res := v.get(path); res.status != http.StatusOK || strings.Contains(res.body, `name="password"`) {
				t.Errorf("%s: %d\n%s", path, res.status, mainPart.FindString(res.body))
			}
		}
		for _, path := range []string{"/sign-in", "/sign-up"} {
			if body := nobody.get(path).body; !strings.Contains(body, "does not accept passwords") {
				t.Errorf("%s does not say so", path)
			}
		}
		for what, res := range map[string]shown{
			"a sign-in":      nobody.submit(signIn.with("login", "alice").with("password", goodPassword)),
			"a sign-up":      nobody.submit(signUp.with("name", "Eve").with("login", "eve").with("password", goodPassword)),
			"a new password": alice.post("/account/security", changed),
		} {
			if res.status != http.StatusForbidden || !strings.Contains(res.body, "does not accept passwords") {
				t.Errorf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
			}
		}
		if res := nobody.send("POST", "/api/v1/session", `{"login":"alice","password":"`+goodPassword+`"}`, "Content-Type", "application/json"); res.status != http.StatusForbidden || !strings.Contains(res.body, "BCK.PEOPLE.0006") {
			t.Errorf("the API: %d %s", res.status, res.body)
		}

		// A code by mail.
		byMail := newVisitor(t, o.address)
		form, _ := byMail.askCode("alice@example.com")
		if res := byMail.submit(form.with("code", post.code(2, "alice@example.com"))); res.status != http.StatusSeeOther {
			t.Fatalf("a code by mail: %d %s", res.status, mainPart.FindString(res.body))
		}
		if res := byMail.act("/account/security", "act", "passkey"); strings.Contains(res.body, "Confirm that it is you") {
			t.Error("who has only a password and mail may not add a passkey")
		}

		// A recovery code, and a link of the operator. The password ends.
		byCode := newVisitor(t, o.address)
		if res := byCode.submit(formOf(t, byCode.get("/recover")).with("login", "bob").with("code", codes[0][1])); res.status != http.StatusSeeOther {
			t.Fatalf("a recovery code: %d %s", res.status, mainPart.FindString(res.body))
		}
		path := must.Get(o.s.RecoverLink(t.Context(), "carl"))(t)
		byLink := newVisitor(t, o.address)
		if res := byLink.submit(formOf(t, byLink.get(strings.TrimPrefix(path, o.s.PublicURL())))); res.status != http.StatusSeeOther {
			t.Fatalf("a link of the operator: %d %s", res.status, mainPart.FindString(res.body))
		}
		for who, v := range map[string]*visitor{"bob": byCode, "carl": byLink} {
			if res := v.act("/account/security", "act", "codes"); len(recoveryCode.FindAllString(res.body, -1)) != 10 {
				t.Errorf("%s may not change the account: %d %s", who, res.status, mainPart.FindString(res.body))
			}
		}
		if res := carl.get("/account/security"); strings.Contains(res.body, "How you sign in") {
			t.Error("a session goes on after the recovery")
		}

		server.RefusePasswords(o.s, false)
		if _, res := o.signIn("alice", goodPassword); res.status != http.StatusSeeOther {
			t.Errorf("alice, with passwords on again: %d", res.status)
		}
		for _, who := range []string{"bob", "carl"} {
			if _, res := o.signIn(who, goodPassword); res.status != http.StatusUnauthorized {
				t.Errorf("the password of %s from before the recovery: %d", who, res.status)
			}
		}
	})
}

// TestNoPasswords_Nothing: a service without any way to sign in does not start.
func TestNoPasswords_Nothing(t *testing.T) {
	for address, ok := range map[string]bool{"http://10.0.0.1": false, "https://pay.example.com": true} {
		_, err := people.New(people.Deps{Registration: people.Open, NoPasswords: true, PublicURL: address})
		if (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}
