package server_test

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/events"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
)

// mail waits for the n-th mail and returns it.
func (o *postOffice) mail(n int) sentMail {
	o.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		o.mu.Lock()
		all := o.sent
		o.mu.Unlock()
		if len(all) >= n {
			return all[n-1]
		}
		if time.Now().After(end) {
			o.t.Fatalf("%d mails, want %d", len(all), n)
		}
	}
}

// addMail proves a mail address of a person, by the n-th mail of the post office.
func (o *town) addMail(v *visitor, post *postOffice, n int, address string) {
	o.t.Helper()
	res := v.act("/account/security", "act", "mail", "mail", address)
	res = v.submit(formOf(o.t, res).with("code", post.code(n, address)))
	if res.status != http.StatusOK || !strings.Contains(res.body, "is added") {
		o.t.Fatalf("adding an address: %d %s", res.status, mainPart.FindString(res.body))
	}
}

// TestNotifications: a person chooses on a page what they are told by mail, and is told. The page makes one webhook, changes it, and
// removes it. A member who leaves is told nothing more.
func TestNotifications(t *testing.T) {
	eachMailTown(t, nil, func(o *town, post *postOffice) {
		t := o.t
		alice := o.seller("alice")
		w := alice.workspace()
		page := "/w/" + w + "/notifications"
		if body := alice.get(page).body; !strings.Contains(body, "You have no confirmed mail address yet") {
			t.Errorf("without an address:\n%s", mainPart.FindString(body))
		}
		bob := o.signUp("bob", alice.invite(w, "developer"))
		o.addMail(alice.visitor, post, 1, "alice@example.com")
		o.addMail(bob, post, 2, "bob@example.com")
		if _, err := alice.api.CreateWebhook(t.Context(), client.WebhookParams{
			URL: "mailto:alice@example.com", Types: []toll.EventType{toll.EventCreditsLow},
		}); !errors.Is(err, toll.NewError(toll.CodePersonNeeded)) {
			t.Errorf("mails asked for by an API key: %v", err)
		}
		choose := func(v *visitor, tells ...string) {
			t.Helper()
			if res := v.submit(formWith(t, v.get(page), "choose").with("tells", tells...)); res.status != http.StatusSeeOther {
				t.Fatalf("%v: %d %s", tells, res.status, mainPart.FindString(res.body))
			}
		}
		hooks := func(where string) (n int) {
			t.Helper()
			must.Do(t, server.StoreOf(o.s).QueryRow(t.Context(), "SELECT COUNT(*) FROM webhooks"+where).Scan(&n))
			return n
		}
		// Somebody else's address is refused.
		res := bob.submit(formWith(t, bob.get(page), "choose").with("to", "alice@example.com").with("tells", "low"))
		if res.status != http.StatusBadRequest {
			t.Errorf("the address of another member: %d", res.status)
		}
		choose(alice.visitor, "low", "keys")
		choose(alice.visitor, "keys")
		choose(bob, "keys", "orders")
		if n := hooks(""); n != 2 {
			t.Errorf("%d webhooks, want one of each member", n)
		}
		if body := alice.get(page).body; strings.Count(body, " checked") != 1 || !regexp.MustCompile(`value="keys" checked`).MatchString(body) {
			t.Errorf("after the choice:\n%s", mainPart.FindString(body))
		}
		key := func() {
			t.Helper()
			res := alice.submit(formWith(t, alice.get("/w/"+w+"/keys/new"), "make").with("name", "Robot").with("rights", "read"))
			if res.status != http.StatusSeeOther {
				t.Fatalf("a new key: %d %s", res.status, mainPart.FindString(res.body))
			}
		}
		key()
		to := map[string]string{}
		for n := 3; n <= 4; n++ {
			l := post.mail(n)
			to[l.to] = l.text
		}
		for _, who := range []string{"alice@example.com", "bob@example.com"} {
			if text := to[who]; !strings.Contains(text, "Subject: New API key") || !strings.Contains(text, "Robot") ||
				!strings.Contains(text, "Auto-Submitted") || !strings.Contains(text, "Message-ID: ") || strings.Contains(text, "@localhost>") {
				t.Errorf("to %s:\n%s", who, text)
			}
		}
		// An API key reads the webhooks, and sees no address of a person.
		body := alice.get("/w/" + w + "/webhooks").body
		if strings.Contains(body, "alice@") || !strings.Contains(body, "mailto:a***@example.com") {
			t.Errorf("the list of webhooks:\n%s", mainPart.FindString(body))
		}
		// Bob leaves. His next mail is not sent, and his webhook is paused.
		members := alice.get("/w/" + w + "/members")
		id := regexp.MustCompile(`/members/([0-9a-f-]{36})"`).FindAllStringSubmatch(members.body, -1)
		for _, m := range id {
			res := alice.act("/w/"+w+"/members", "act", "remove", "user", m[1])
			if res.status == http.StatusOK && strings.Contains(res.body, "Member removed.") {
				break
			}
		}
		key()
		if l := post.mail(5); l.to != "alice@example.com" {
			t.Errorf("%+v", l)
		}
		for end := time.Now().Add(patience); hooks(" WHERE status = 'paused'") != 1; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the webhook of a person who left is not paused")
			}
		}
		choose(alice.visitor)
		if n := hooks(""); n != 1 || post.count() != 5 {
			t.Errorf("%d webhooks, %d mails", n, post.count())
		}
	})
}

// TestNotifications_ByRole: a member with any role chooses all that the page offers, and may open the page to which each mail leads.
func TestNotifications_ByRole(t *testing.T) {
	eachMailTown(t, nil, func(o *town, post *postOffice) {
		t := o.t
		owner := o.signUp("owner", "")
		w := owner.workspace()
		people := map[string]*visitor{} // by mail address
		for _, role := range toll.Roles() {
			v := owner
			if role != toll.RoleOwner {
				v = o.signUp(string(role), owner.invite(w, string(role)))
			}
			address := string(role) + "@example.com"
			people[address] = v
			o.addMail(v, post, len(people), address)
			page := "/w/" + w + "/notifications"
			tells := regexp.MustCompile(`name="tells" value="([a-z]+)"`).FindAllStringSubmatch(v.get(page).body, -1)
			form := formWith(t, v.get(page), "choose").with("tells")
			for _, box := range tells {
				form.values.Add("tells", box[1])
			}
			if res := v.submit(form); len(tells) < 5 || res.status != http.StatusSeeOther {
				t.Fatalf("%s chooses %d: %d %s", role, len(tells), res.status, mainPart.FindString(res.body))
			}
		}
		for _, kind := range events.MailTypes() {
			data, id := toll.Order{PlanID: "7", SubscriberAddress: toll.MustAddress(w)}, "7"
			if kind == toll.EventCreditsLow {
				id += "/" + strings.ToLower(w) // who has few credits
			}
			must.Do(t, server.StoreOf(o.s).Tx(t.Context(), func(tx *store.Tx) error {
				return store.InsertEvent(t.Context(), tx, store.NewEvent{
					Principal: toll.MustAddress(w), Type: kind, Kind: "x", ID: id, Data: data, At: time.Now(),
				})
			}))
		}
		leads := regexp.MustCompile(o.s.PublicURL() + `(/w/\S+)`)
		seen := map[string]int{}
		for n := range len(people) * len(events.MailTypes()) {
			l := post.mail(len(people) + n + 1)
			to := leads.FindStringSubmatch(l.text)
			if to == nil || strings.HasSuffix(to[1], "/notifications") {
				t.Fatalf("the mail leads nowhere:\n%s", l.text)
			}
			seen[l.to]++
			res := people[l.to].get(to[1])
			if res.status != http.StatusOK && res.status != http.StatusNotFound { // of what there is not
				t.Errorf("%s opens %s: %d", l.to, to[1], res.status)
			}
		}
		for address := range people {
			if seen[address] != len(events.MailTypes()) {
				t.Errorf("%d mails to %s", seen[address], address)
			}
		}
	})
}

// TestNotifications_NoServer: where no mail server is set, the page says so.
func TestNotifications_NoServer(t *testing.T) {
	eachTown(t, func(o *town) {
		alice := o.signUp("alice", "")
		if body := alice.get("/w/" + alice.workspace() + "/notifications").body; !strings.Contains(body, "This service cannot send mail") {
			o.t.Errorf("%s", mainPart.FindString(body))
		}
	})
}

// TestNewSignIn: a person is told of a sign-in from a network from which they did not sign in for 90 days, at every address of
// theirs, and of no other. T157: the browser writes nothing into the mail.
func TestNewSignIn(t *testing.T) {
	proxied := func(cfg *server.Config) { cfg.TrustedProxies = "127.0.0.1" }
	eachMailTown(t, proxied, func(o *town, post *postOffice) {
		t := o.t
		alice := o.signUp("alice", "")
		o.addMail(alice, post, 1, "alice@example.com")
		o.addMail(alice, post, 2, "alice@example.org")
		from := func(source string) {
			t.Helper()
			v := newVisitor(t, o.address)
			form := formOf(t, v.get("/sign-in")).with("login", "alice").with("password", goodPassword).with("api_key")
			res := v.submit(form, "X-Forwarded-For", source, "User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0 evil.example.com")
			if res.status != http.StatusSeeOther {
				t.Fatalf("from %s: %d %s", source, res.status, mainPart.FindString(res.body))
			}
		}
		told := 2
		both := func(source string) {
			t.Helper()
			got := map[string]string{}
			for range 2 {
				told++
				l := post.mail(told)
				got[l.to] = l.text
			}
			for _, to := range []string{"alice@example.com", "alice@example.org"} {
				if text := got[to]; !strings.Contains(text, "Address: "+source) || !strings.Contains(text, "with your password") ||
					!strings.Contains(text, "Firefox on Linux") || !strings.Contains(text, "/account/security") || strings.Contains(text, "evil") {
					t.Errorf("to %s:\n%s", to, text)
				}
			}
		}
		from("127.0.0.1") // that of the sign-up
		from("203.0.113.7")
		both("203.0.113.7")
		from("203.0.113.7")
		from("2001:db8:1:2::3")
		both("2001:db8:1:2::3")
		from("2001:db8:1:2:aaaa::4") // the same network
		o.ahead.Add(int64(91 * 24 * time.Hour))
		from("203.0.113.7")
		both("203.0.113.7")
		// A sign-in that fails, and a second proof in the same session, are none.
		if _, res := o.signIn("alice", "wrong"); res.status != http.StatusUnauthorized {
			t.Errorf("a wrong password: %d", res.status)
		}
		from("203.0.113.9")
		both("203.0.113.9") // the mails come in the order of the sign-ins: no other has come before
		if n := post.count(); n != told {
			t.Errorf("%d mails, want %d", n, told)
		}
	})
}

// TestMailsAreBounded: mails that a person did not ask for just now are bounded for an address, whatever they are about. Those of
// events wait.
// T157
func TestMailsAreBounded(t *testing.T) {
	proxied := func(cfg *server.Config) { cfg.TrustedProxies = "127.0.0.1" }
	eachMailTown(t, proxied, func(o *town, post *postOffice) {
		t := o.t
		alice := o.signUp("alice", "")
		o.addMail(alice, post, 1, "alice@example.com")
		w := "/w/" + alice.workspace()
		alice.submit(formWith(t, alice.get(w+"/notifications"), "choose").with("tells", "low"))
		hook := regexp.MustCompile(`href="(` + w + `/webhooks/[0-9a-f-]{36})"`).FindStringSubmatch(alice.get(w + "/webhooks").body)
		if hook == nil {
			t.Fatal("no webhook")
		}
		for i := range 25 {
			if res := alice.submit(formWith(t, alice.get(hook[1]), "test")); res.status != http.StatusSeeOther {
				t.Fatalf("test %d: %d %s", i, res.status, mainPart.FindString(res.body))
			}
		}
		post.mail(1 + 20)
		v := newVisitor(t, o.address)
		form := formOf(t, v.get("/sign-in")).with("login", "alice").with("password", goodPassword).with("api_key")
		if res := v.submit(form, "X-Forwarded-For", "203.0.113.7"); res.status != http.StatusSeeOther {
			t.Fatalf("%d", res.status)
		}
		o.addMail(alice, post, 22, "alice@example.org") // a code is asked for, and comes
		v = newVisitor(t, o.address)
		form = formOf(t, v.get("/sign-in")).with("login", "alice").with("password", goodPassword).with("api_key")
		v.submit(form, "X-Forwarded-For", "203.0.113.8")
		// The other address has its own bound. Its mail shows that the sign-in before was looked at, and not told; to the other address
		// it may have been, if it was looked at only after that one came.
		told := post.mail(23)
		if told.to == "alice@example.org" && strings.Contains(told.text, "203.0.113.7") {
			told = post.mail(24)
		}
		if told.to != "alice@example.org" || !strings.Contains(told.text, "203.0.113.8") {
			t.Errorf("%+v", told)
		}
		var waiting int
		if err := server.StoreOf(o.s).QueryRow(t.Context(), "SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'pending' AND attempts = 0").
			Scan(&waiting); err != nil || waiting != 5 {
			t.Errorf("%d mails wait, %v", waiting, err)
		}
	})
}
