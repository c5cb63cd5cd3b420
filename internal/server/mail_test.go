package server_test

import (
	"bufio"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// postOffice is a mail server that keeps what it is given.
type postOffice struct {
	t    *testing.T
	url  string
	auth string // password that EHLO offers to check by CRAM-MD5 (RFC 2195), "" for none
	mu   sync.Mutex
	sent []sentMail
}

type sentMail struct{ to, text string }

func newPostOffice(t *testing.T) *postOffice {
	ln := listenAnywhere(t)
	o := &postOffice{t: t, url: "smtp://" + ln.Addr().String()}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go o.serve(c)
		}
	}()
	return o
}

// serve speaks as much of SMTP (RFC 5321) as a client needs.
func (o *postOffice) serve(c net.Conn) {
	defer c.Close()
	r := textproto.NewReader(bufio.NewReader(c))
	say := func(line string) { fmt.Fprintf(c, "%s\r\n", line) }
	say("220 test")
	var to string
	for {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.ToUpper(line), " "); verb {
		case "EHLO":
			if o.auth != "" {
				say("250-test")
				say("250 AUTH CRAM-MD5")
				continue
			}
			say("250 ok")
		case "AUTH":
			say("334 " + base64.StdEncoding.EncodeToString([]byte("<1@test>")))
			answer, _ := r.ReadLine()
			sum := hmac.New(md5.New, []byte(o.auth))
			sum.Write([]byte("<1@test>"))
			if answer == base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "pay %x", sum.Sum(nil))) {
				say("235 ok")
				continue
			}
			say("535 \x1b[31mwrong " + strings.Repeat("x", 400))
		case "DATA":
			say("354 go on")
			text, err := r.ReadDotBytes()
			if err != nil {
				return
			}
			o.mu.Lock()
			o.sent = append(o.sent, sentMail{to, string(text)})
			o.mu.Unlock()
			say("250 ok")
		case "RCPT":
			to = strings.Trim(line[len("RCPT TO:"):], "<> ")
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

var codeIn = regexp.MustCompile(`(?m)^    (\d{4} \d{4})\r?$`)

// code waits for the n-th mail, which has to be to an address, and returns the code in it.
func (o *postOffice) code(n int, to string) string {
	o.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		o.mu.Lock()
		all := o.sent
		o.mu.Unlock()
		if len(all) >= n {
			m := codeIn.FindStringSubmatch(all[n-1].text)
			if m == nil || all[n-1].to != to {
				o.t.Fatalf("mail %d: %+v", n, all[n-1])
			}
			return m[1]
		}
		if time.Now().After(end) {
			o.t.Fatalf("%d mails, want %d", len(all), n)
		}
	}
}

func (o *postOffice) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sent)
}

func eachMailTown(t *testing.T, change func(*server.Config), f func(o *town, post *postOffice)) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			post := newPostOffice(t)
			f(newTown(t, v, func(cfg *server.Config) {
				cfg.Mail = people.MailConfig{URL: post.url, From: "Toll <toll@example.com>"}
				if change != nil {
					change(cfg)
				}
			}), post)
		})
	}
}

// askCode asks for a code and returns the form into which it is typed.
func (v *visitor) askCode(mail string, header ...string) (page, shown) {
	v.t.Helper()
	res := v.submit(formOf(v.t, v.get("/sign-in/mail?next=/device")).with("mail", mail), header...)
	if res.status != http.StatusOK {
		return page{}, res
	}
	return formOf(v.t, res), res
}

// TestMailCode: a person signs up with a code by mail, and signs in with one, without a script. T157: a code works once, for a time,
// and five wrong ones end it; the mail names the public address, whatever Host says.
// T157
func TestMailCode(t *testing.T) {
	eachMailTown(t, nil, func(o *town, post *postOffice) {
		t := o.t
		v := newVisitor(t, o.address)
		form, _ := v.askCode("Ann@Example.com")
		code := post.code(1, "ann@example.com")
		if text := post.sent[0].text; !strings.Contains(text, o.s.PublicURL()) || strings.Contains(text, "evil") {
			t.Errorf("the mail:\n%s", text)
		}
		res := v.submit(form.with("code", code))
		if res.status != http.StatusOK || !strings.Contains(res.body, "Create account") {
			t.Fatalf("a new address: %d %s", res.status, mainPart.FindString(res.body))
		}
		if again := v.submit(form.with("code", code)); again.status != http.StatusUnauthorized {
			t.Errorf("a code twice: %d", again.status)
		}
		made := formOf(t, res).with("name", "Ann")
		o.ahead.Add(int64(11 * time.Minute))
		if late := newVisitor(t, o.address).submit(made); late.status != http.StatusUnauthorized {
			t.Errorf("a sign-up eleven minutes after the code: %d", late.status)
		}
		o.ahead.Add(-int64(11 * time.Minute))
		if res = v.submit(made); res.status != http.StatusSeeOther || res.header.Get("Location") != "/device" {
			t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
		}
		if res := newVisitor(t, o.address).submit(made); res.status != http.StatusUnauthorized {
			t.Errorf("a sign-up twice: %d", res.status)
		}
		workspace := v.workspace()

		again := newVisitor(t, o.address)
		form, _ = again.askCode("ann@example.com")
		code = post.code(2, "ann@example.com")
		for i := range 2 {
			if res := again.submit(form.with("code", fmt.Sprint("0000 000", i))); res.status != http.StatusUnauthorized {
				t.Errorf("a wrong code: %d", res.status)
			}
		}
		if res := again.submit(form.with("code", code)); res.status != http.StatusSeeOther || again.workspace() != workspace {
			t.Errorf("sign-in: %d", res.status)
		}
		five := newVisitor(t, o.address)
		form, _ = five.askCode("ann@example.com")
		code = post.code(3, "ann@example.com")
		for range 5 {
			five.submit(form.with("code", "00000000"))
		}
		if res := five.submit(form.with("code", code)); res.status != http.StatusUnauthorized {
			t.Errorf("after five wrong codes: %d", res.status)
		}
		late := newVisitor(t, o.address)
		form, _ = late.askCode("ann@example.com")
		code = post.code(4, "ann@example.com")
		o.ahead.Add(int64(10 * time.Minute))
		if res := late.submit(form.with("code", code)); res.status != http.StatusUnauthorized {
			t.Errorf("after ten minutes: %d", res.status)
		}
		if res := late.submit(form.with("state", "AAAA").with("code", code)); res.status != http.StatusUnauthorized {
			t.Errorf("another state: %d", res.status)
		}
		if _, res := late.askCode("ann@example.com", "Host", "evil.example.com"); res.status != http.StatusOK {
			t.Errorf("another Host: %d", res.status)
		}
		post.code(5, "ann@example.com")
		if text := post.sent[4].text; strings.Contains(text, "evil") {
			t.Errorf("Host is in the mail:\n%s", text)
		}
	})
}

// TestMailCode_Bounds: T157 and T176: one address and one source get few mails, and few rows are made; what is no address is refused.
// T176
func TestMailCodeBounds(t *testing.T) {
	eachMailTown(t, nil, func(o *town, post *postOffice) {
		t := o.t
		v := newVisitor(t, o.address)
		for _, bad := range []string{"", "ann", "@example.com", "a b@example.com", "ann@example.com\r\nBcc: x@example.com", "ann@exa mple.com", strings.Repeat("a", 65) + "@example.com"} {
			if _, res := v.askCode(bad); res.status != http.StatusBadRequest {
				t.Errorf("%q: %d", bad, res.status)
			}
		}
		for i := range 6 {
			_, res := v.askCode("ann@example.com")
			if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 5]; res.status != want {
				t.Errorf("mail %d to one address: %d, want %d", i+1, res.status, want)
			}
		}
		o.ahead.Add(int64(time.Hour)) // no code is open any more, and the mails count all the same
		if _, res := v.askCode("ann@example.com"); res.status != http.StatusTooManyRequests {
			t.Errorf("a mail more after the codes have ended: %d", res.status)
		}
		// Codes of other processes count.
		mail := sha256.Sum256([]byte("bob@example.com"))
		must.Do(t, server.StoreOf(o.s).Tx(t.Context(), func(tx *store.Tx) (err error) {
			for i := range byte(5) {
				err = errors.Join(err, store.InsertMailCode(t.Context(), tx, store.MailCode{
					ID: []byte{i}, Mail: mail[:], Code: []byte{1}, EndsAt: time.Now().Add(2 * time.Hour),
				}))
			}
			return err
		}))
		if _, res := v.askCode("bob@example.com"); res.status != http.StatusTooManyRequests {
			t.Errorf("a code more than other processes have sent: %d", res.status)
		}
		refused := 0
		for i := range 20 {
			if _, res := v.askCode(fmt.Sprintf("ann%d@example.com", i)); res.status == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused < 15 {
			t.Errorf("one source: %d of 20 mails are refused", refused)
		}
		post.code(5, "ann@example.com")
		var rows int
		if err := server.StoreOf(o.s).QueryRow(t.Context(), "SELECT COUNT(*) FROM mail_codes WHERE mail <> $1", mail[:]).Scan(&rows); err != nil || rows > 10 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

// TestMailCode_Strangers: where registration is closed, an address that is nobody's gets no mail, and the page says the same. A link
// lets its person in.
// T157
func TestMailCodeOfStrangers(t *testing.T) {
	invited := func(cfg *server.Config) { cfg.Registration = people.Invited }
	eachMailTown(t, invited, func(o *town, post *postOffice) {
		t := o.t
		link := must.Get(o.s.SignUpLink(t.Context()))(t)
		_, link, _ = strings.Cut(link, "link=")
		v := newVisitor(t, o.address)
		_, res := v.askCode("nobody@example.com")
		unknown := strings.ReplaceAll(res.body, "nobody@", "ann@")
		form := formOf(t, v.submit(formOf(t, v.get("/sign-in/mail?link="+link)).with("mail", "ann@example.com")))
		res = v.submit(form.with("code", post.code(1, "ann@example.com")))
		if res = v.submit(formOf(t, res).with("name", "Ann")); res.status != http.StatusSeeOther {
			t.Fatalf("with a link: %d %s", res.status, mainPart.FindString(res.body))
		}
		_, res = newVisitor(t, o.address).askCode("ann@example.com")
		post.code(2, "ann@example.com")
		state := regexp.MustCompile(`name="state" value="[^"]*"`)
		if a, b := state.ReplaceAllString(unknown, ""), state.ReplaceAllString(res.body, ""); a != b || res.status != http.StatusOK {
			t.Errorf("a known address:\n%s\nan unknown one:\n%s", b, a)
		}
		if post.count() != 2 {
			t.Errorf("%d mails", post.count())
		}
	})
}

// TestMailCode_IsWeak: a code by mail is no fresh proof: it changes nothing for who has more than that, lets no program in, and never
// joins an account by the name of its login. Who has a code alone adds a credential first.
// T157
func TestMailCodeIsNoProof(t *testing.T) {
	eachMailTown(t, nil, func(o *town, post *postOffice) {
		t := o.t
		byMail := func(n int) (*visitor, shown) {
			v := newVisitor(t, o.address)
			form, _ := v.askCode("bob@example.com")
			return v, v.submit(form.with("code", post.code(n, "bob@example.com")))
		}
		alice := o.signUp("bob@example.com", "") // a login name that looks like an address
		if _, res := byMail(1); !strings.Contains(res.body, "Create account") {
			t.Errorf("an account was joined by its login name: %d", res.status)
		}
		res := alice.act("/account/security", "act", "mail", "mail", "bob@example.com")
		if res = alice.submit(formOf(t, res).with("code", post.code(2, "bob@example.com"))); res.status != http.StatusOK || !strings.Contains(res.body, "is added") {
			t.Fatalf("adding an address: %d %s", res.status, mainPart.FindString(res.body))
		}
		weak, res := byMail(3)
		if res.status != http.StatusSeeOther {
			t.Fatalf("sign-in by mail: %d", res.status)
		}
		for _, act := range [][]string{
			{"/account/security", "act", "password", "password", "another good one"}, {"/account/security", "act", "codes"},
			{"/account/security", "act", "mail", "mail", "eve@example.com"}, {"/w/" + weak.workspace() + "/members", "act", "invite", "role", "owner"},
		} {
			if res := weak.act(act[0], act[1:]...); !strings.Contains(res.body, "Confirm that it is you") {
				t.Errorf("%v after a code by mail: %d %s", act, res.status, mainPart.FindString(res.body))
			}
		}
		if body := weak.get("/device").body; !strings.Contains(body, "not enough here") {
			t.Errorf("a device after a code by mail:\n%s", mainPart.FindString(body))
		}
		// Another person cannot take the address, nor finish what this one began.
		eve := o.signUp("eve", "")
		begun := eve.act("/account/security", "act", "mail", "mail", "bob@example.com")
		code := post.code(4, "bob@example.com")
		if res := weak.submit(formOf(t, begun).with("code", code)); res.status != http.StatusForbidden {
			t.Errorf("a code of another person: %d", res.status)
		}
		if res := eve.submit(formOf(t, begun).with("code", code)); res.status != http.StatusConflict {
			t.Errorf("an address that is somebody's: %d", res.status)
		}
		// Who has nothing but mail adds a password with it.
		only := newVisitor(t, o.address)
		form, _ := only.askCode("only@example.com")
		made := only.submit(form.with("code", post.code(5, "only@example.com")))
		only.submit(formOf(t, made).with("name", "Only"))
		if res := only.act("/account/security", "act", "codes"); !strings.Contains(res.body, "None of your sign-in methods can confirm this") {
			t.Errorf("recovery codes after a code by mail: %d %s", res.status, mainPart.FindString(res.body))
		}
		if res := only.act("/account/security", "act", "password", "login", "only", "password", goodPassword); res.status != http.StatusOK || !strings.Contains(res.body, "The password is set") {
			t.Errorf("a first password: %d %s", res.status, mainPart.FindString(res.body))
		}
	})
}
