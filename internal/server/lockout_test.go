package server_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

const atHome = "198.51.100.7"

// password tries to sign in from an address, in the browser of the visitor.
func (v *visitor) password(source, login, password string) int {
	return v.post("/sign-in", url.Values{"login": {login}, "password": {password}}, "X-Forwarded-For", source).status
}

// signUpAt signs a person up from an address.
func (o *town) signUpAt(source, login string) *visitor {
	v := newVisitor(o.t, o.address)
	form := formOf(o.t, v.get("/sign-up")).with("name", login).with("login", login).with("password", goodPassword)
	if res := v.submit(form, "X-Forwarded-For", source); res.status != http.StatusSeeOther {
		o.t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
	}
	return v
}

// TestLockOut: strangers who try passwords do not keep the owner of an account out: not from an address or in a browser of an
// earlier sign-in, nor from the step-up, and not by tries that their own limit refuses.
// T157
func TestLockOut(t *testing.T) {
	o := newTown(t, storetest.SQLite, func(c *server.Config) { c.TrustedProxies = "127.0.0.1" })
	alice := o.signUpAt(atHome, "alice")
	o.signUpAt(atHome, "bob")
	o.signUpAt(atHome, "carl")

	// 100 tries at once count as 100: 20 are checked, and one more in 30 s.
	began := time.Now()
	var wait sync.WaitGroup
	statuses := make([]int, 100)
	for i := range statuses {
		wait.Go(func() {
			statuses[i] = newVisitor(t, o.address).password(fmt.Sprint("203.0.113.", i%10), "alice", "wrong words are not")
		})
	}
	wait.Wait()
	count := map[int]int{}
	for _, status := range statuses {
		count[status]++
	}
	most := 20 + int(time.Since(began)/(30*time.Second))
	if count[http.StatusUnauthorized] < 20 || count[http.StatusUnauthorized] > most || count[http.StatusTooManyRequests] != 100-count[http.StatusUnauthorized] {
		t.Errorf("100 wrong tries: %v", count)
	}
	in := map[string]int{}
	for range 45 { // a success gives its try back
		if newVisitor(t, o.address).password(atHome, "alice", goodPassword) == http.StatusSeeOther {
			in["address"]++
		}
		if alice.password("192.0.2.1", "alice", goodPassword) == http.StatusSeeOther {
			in["browser"]++
		}
	}
	if in["address"] != 45 || in["browser"] != 45 {
		t.Errorf("the owner got in %v of 45 times", in)
	}
	if status := alice.post("/confirm", url.Values{"password": {goodPassword}}, "X-Forwarded-For", "192.0.2.1").status; status == http.StatusTooManyRequests {
		t.Errorf("step-up: %d", status)
	}
	if status := alice.password("203.0.113.1", "bob", "wrong words are not"); status != http.StatusUnauthorized {
		t.Errorf("the browser of one person tries the password of another: %d", status)
	}
	for range 25 { // the bucket of the browser is for its own person
		alice.password("203.0.113.2", "bob", "wrong words are not")
	}
	if status := alice.password("203.0.113.3", "bob", "wrong words are not"); status != http.StatusTooManyRequests {
		t.Errorf("the browser of one person has a bucket for another: %d", status)
	}

	for i := range 40 { // empty the bucket of this address
		newVisitor(t, o.address).password("203.0.113.77", fmt.Sprint("name", i), "wrong words are not")
	}
	for range 30 {
		newVisitor(t, o.address).password("203.0.113.77", "carl", "wrong words are not")
	}
	if status := newVisitor(t, o.address).password("192.0.2.9", "carl", goodPassword); status != http.StatusSeeOther {
		t.Errorf("after tries that the limit of their source refused: %d", status)
	}
}

var stopLink = regexp.MustCompile(`https?://\S+(/sign-in/mail/stop\?state=\S+)`)

// TestMailLockOut: strangers who ask for codes cause at most 10 unused mails a day to an address, its owner can stop them for good,
// and a person still gets codes where they signed in before.
// T157
func TestMailLockOut(t *testing.T) {
	eachMailTown(t, func(c *server.Config) { c.TrustedProxies = "127.0.0.1" }, func(o *town, post *postOffice) {
		t := o.t
		alice := o.signUpAt(atHome, "alice")
		const amy = "amy@example.com"
		for i, address := range []string{"ann@example.com", amy} {
			res := alice.act("/account/security", "act", "mail", "mail", address)
			if res = alice.submit(formOf(t, res).with("code", post.code(i+1, address))); res.status != http.StatusOK {
				t.Fatalf("adding an address: %d", res.status)
			}
		}
		sent := func(hash []byte, n int, before time.Duration) {
			t.Helper()
			if err := server.StoreOf(o.s).Tx(t.Context(), func(tx *store.Tx) error {
				for i := range n {
					c := store.MailCode{ID: append([]byte{byte(i)}, hash...), Mail: hash, Code: []byte{1}, EndsAt: time.Now().Add(time.Duration(o.ahead.Load())).Add(10*time.Minute - before)}
					if err := store.InsertMailCode(t.Context(), tx, c); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		ask := func(v *visitor, source, mail string) int {
			t.Helper()
			_, res := v.askCode(mail, "X-Forwarded-For", source)
			return res.status
		}
		stranger := newVisitor(t, o.address)
		sent(mailHash("ann@example.com"), 9, 20*time.Hour)
		if status := ask(stranger, "203.0.113.1", "ann@example.com"); status != http.StatusOK {
			t.Errorf("the tenth mail of a day: %d", status)
		}
		if status := ask(stranger, "203.0.113.2", "ann@example.com"); status != http.StatusTooManyRequests {
			t.Errorf("the eleventh mail of a day: %d", status)
		}
		if status := ask(newVisitor(t, o.address), atHome, "ann@example.com"); status != http.StatusOK {
			t.Errorf("the owner at an earlier address: %d", status)
		}
		post.code(3, "ann@example.com")
		form, _ := alice.askCode("ann@example.com", "X-Forwarded-For", "192.0.2.1")
		code := post.code(5, "ann@example.com")
		for i := range 50 { // strangers try other codes from the same address
			stranger.submit(form.with("state", "AAAA").with("code", fmt.Sprint("0000 00", i)), "X-Forwarded-For", "192.0.2.1")
		}
		if res := alice.submit(form.with("code", code), "X-Forwarded-For", "192.0.2.1"); res.status != http.StatusSeeOther {
			t.Errorf("the owner in an earlier browser: %d %s", res.status, mainPart.FindString(res.body))
		}

		for end := time.Now().Add(patience); post.count() < 7; time.Sleep(10 * time.Millisecond) { // the notices of the sign-in
			if time.Now().After(end) {
				t.Fatal("no notices of the sign-in")
			}
		}
		if status := ask(stranger, "203.0.113.3", amy); status != http.StatusOK {
			t.Fatalf("a code: %d", status)
		}
		post.code(8, amy)
		link := stopLink.FindStringSubmatch(decodedMail(t, post, 8))
		if link == nil {
			t.Fatalf("no link in:\n%s", post.sent[7].text)
		}
		stranger.get(link[1])
		page := stranger.get(link[1]) // a scanner that opens the link stops nothing
		if page.status != http.StatusOK || !strings.Contains(page.body, "Stop codes") {
			t.Errorf("the page: %d %s", page.status, mainPart.FindString(page.body))
		}
		stopped := stranger.submit(formOf(t, page).with("act", "stop"))
		if !strings.Contains(stopped.body, "Allow codes again") {
			t.Errorf("stop: %d %s", stopped.status, mainPart.FindString(stopped.body))
		}
		if status := ask(stranger, "203.0.113.4", amy); status != http.StatusOK {
			t.Errorf("a stopped address answers %d", status)
		}
		if status := ask(alice, "192.0.2.1", amy); status != http.StatusOK {
			t.Errorf("the owner of a stopped address: %d", status)
		}
		post.code(9, amy)
		allowed := stranger.submit(formOf(t, stopped).with("act", "allow"))
		if !strings.Contains(allowed.body, "Stop codes") || ask(stranger, "203.0.113.5", amy) != http.StatusOK {
			t.Errorf("allow: %d", allowed.status)
		}
		post.code(10, amy)
		if n := post.count(); n != 10 {
			t.Errorf("%d mails, want 10: a stopped address got one", n)
		}
		for _, bad := range []string{"", "?state=AAAA", "?state=" + strings.Repeat("A", 2000)} {
			if res := stranger.get("/sign-in/mail/stop" + bad); res.status != http.StatusBadRequest {
				t.Errorf("%q: %d", bad, res.status)
			}
		}
	})
}

// decodedMail returns the text of the n-th mail.
func decodedMail(t *testing.T, post *postOffice, n int) string {
	t.Helper()
	_, body, _ := strings.Cut(post.sent[n-1].text, "\n\n")
	text := must.Get(io.ReadAll(quotedprintable.NewReader(strings.NewReader(body))))(t)
	return string(text)
}

func mailHash(address string) []byte {
	sum := sha256.Sum256([]byte(address))
	return sum[:]
}
