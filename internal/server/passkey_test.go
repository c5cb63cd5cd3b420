package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

// authenticator is a passkey in software (WebAuthn Level 2, attestation none).
type authenticator struct {
	key     *ecdsa.PrivateKey
	id      []byte
	user    []byte
	rp      string
	origin  string
	counter uint32
	still   bool // the counter stays at zero, as that of many passkeys does
}

var base64url = base64.RawURLEncoding

func newAuthenticator(t *testing.T, origin string) *authenticator {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	a := &authenticator{key: key, id: make([]byte, 32), rp: "localhost", origin: origin}
	_, _ = rand.Read(a.id)
	return a
}

func (a *authenticator) data(flags byte) []byte {
	rp := sha256.Sum256([]byte(a.rp))
	if !a.still {
		a.counter++
	}
	return binary.BigEndian.AppendUint32(append(rp[:], flags), a.counter)
}

func (a *authenticator) client(t *testing.T, kind, challenge string) []byte {
	t.Helper()
	return must.Get(json.Marshal(map[string]any{"type": kind, "challenge": challenge, "origin": a.origin, "crossOrigin": false}))(t)
}

func answerOf(t *testing.T, id []byte, response map[string]string) string {
	t.Helper()
	b := must.Get(json.Marshal(map[string]any{
		"id": base64url.EncodeToString(id), "rawId": base64url.EncodeToString(id), "type": "public-key",
		"response": response, "clientExtensionResults": map[string]any{},
	}))(t)
	return string(b)
}

// create answers a registration.
func (a *authenticator) create(t *testing.T, options map[string]any) string {
	t.Helper()
	user, _ := options["user"].(map[string]any)
	a.user, _ = base64url.DecodeString(user["id"].(string))
	public := must.Get(a.key.PublicKey.Bytes())(t)
	cose := append([]byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32}, public[1:33]...)
	cose = append(append(cose, 0x22, 0x58, 32), public[33:65]...)
	data := append(a.data(0x45), make([]byte, 16)...)
	data = append(append(append(data, 0, 32), a.id...), cose...)
	object := []byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58")
	object = append(append(object, byte(len(data))), data...)
	return answerOf(t, a.id, map[string]string{
		"clientDataJSON":    base64url.EncodeToString(a.client(t, "webauthn.create", options["challenge"].(string))),
		"attestationObject": base64url.EncodeToString(object),
	})
}

// get answers a sign-in.
func (a *authenticator) get(t *testing.T, options map[string]any) string {
	t.Helper()
	data := a.data(0x05)
	said := a.client(t, "webauthn.get", options["challenge"].(string))
	sum := sha256.Sum256(said)
	signed := sha256.Sum256(append(append([]byte{}, data...), sum[:]...))
	signature := must.Get(ecdsa.SignASN1(rand.Reader, a.key, signed[:]))(t)
	return answerOf(t, a.id, map[string]string{
		"clientDataJSON": base64url.EncodeToString(said), "authenticatorData": base64url.EncodeToString(data),
		"signature": base64url.EncodeToString(signature), "userHandle": base64url.EncodeToString(a.user),
	})
}

var passkeyForm = regexp.MustCompile(`(?s)<form method="post" action="([^"]*)" data-passkey="([^"]*)" hidden>(.*?)</form>`)

// passkeyOf reads the form of a page that asks for a passkey.
func passkeyOf(t *testing.T, s shown) (page, map[string]any) {
	t.Helper()
	m := passkeyForm.FindStringSubmatch(s.body)
	if m == nil {
		t.Fatalf("%d, no passkey is asked for:\n%s", s.status, mainPart.FindString(s.body))
	}
	if policy := s.header.Get("Content-Security-Policy"); !strings.Contains(policy, "; script-src 'self';") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %s", policy)
	}
	var options map[string]any
	must.Do(t, json.Unmarshal([]byte(html.UnescapeString(m[2])), &options))
	return formOf(t, shown{status: s.status, body: `<html lang="en"><main><h1></h1><form method="post" action="` + m[1] + `">` + m[3] + "</main>"}), options
}

// passkeyTown is a service that calls itself localhost, so that its pages ask for passkeys; ip is its address without a name.
func passkeyTown(t *testing.T, v storetest.Variant) (o *town, ip string) {
	t.Helper()
	ln := listenAnywhere(t)
	db := storetest.Config(t, v)
	o = &town{t: t, address: "http://localhost" + ln.Addr().String()[strings.LastIndex(ln.Addr().String(), ":"):], ahead: new(atomic.Int64)}
	cfg := server.Config{Data: db.Data, Database: db.Database, Listen: ln.Addr().String()}
	cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(o.ahead.Load())) }
	if db.Database != "" {
		cfg.MasterKeyFile = freshMasterKey(t)
	}
	o.s, ip = startOn(t, cfg, ln)
	if o.s.PublicURL() != o.address {
		t.Fatalf("public address %s, want %s", o.s.PublicURL(), o.address)
	}
	return o, ip
}

// TestPasskey: a person adds a passkey, signs in and proves themselves with it. T157: another origin, another service, an answer
// twice, one of another form, a copied passkey and an unknown one are refused.
// T157
func TestPasskey(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) {
			o, ip := passkeyTown(t, v)
			address := o.address
			alice := o.signUpPlain("alice")
			key := newAuthenticator(t, address)
			form, options := passkeyOf(t, alice.get("/account/security"))
			res := alice.submit(form.with("name", "Phone").with("answer", key.create(t, options)))
			if res.status != http.StatusOK || !strings.Contains(res.body, "Passkey Phone") {
				t.Fatalf("%d %s", res.status, mainPart.FindString(res.body))
			}
			try := func(a *authenticator, change func(page) page) shown {
				t.Helper()
				n := newVisitor(t, address)
				form, options := passkeyOf(t, n.get("/sign-in?next=/device"))
				form = form.with("answer", a.get(t, options))
				if change != nil {
					form = change(form)
				}
				return n.submit(form)
			}
			if res := try(key, nil); res.status != http.StatusSeeOther || res.header.Get("Location") != "/device" {
				t.Fatalf("sign-in: %d %s", res.status, mainPart.FindString(res.body))
			}
			other := *key
			other.origin = "http://localhost:1"
			stranger := newAuthenticator(t, address)
			stranger.user = key.user
			elsewhere := *key
			elsewhere.rp = "evil.example.com"
			var used page
			for what, res := range map[string]shown{
				"another origin":  try(&other, nil),
				"another service": try(&elsewhere, nil),
				"an unknown key":  try(stranger, nil),
				"no answer":       try(key, func(p page) page { return p.with("answer", "{}") }),
				"another state":   try(key, func(p page) page { return p.with("state", "AAAA") }),
			} {
				if res.status != http.StatusUnauthorized || len(res.header.Values("Set-Cookie")) > 0 {
					t.Errorf("%s: %d", what, res.status)
				}
			}
			key.counter += 10
			if res := try(key, func(p page) page { used = p; return p }); res.status != http.StatusSeeOther {
				t.Errorf("sign-in: %d", res.status)
			}
			if res := newVisitor(t, address).submit(used); res.status != http.StatusUnauthorized {
				t.Errorf("an answer twice: %d", res.status)
			}
			copied := *key
			copied.counter -= 5
			if res := try(&copied, nil); res.status != http.StatusUnauthorized {
				t.Errorf("a copy: %d", res.status)
			}
			still := newAuthenticator(t, address)
			still.still = true
			form, options = passkeyOf(t, alice.get("/account/security"))
			alice.submit(form.with("name", "Cloud").with("answer", still.create(t, options)))
			if res := try(still, func(p page) page { used = p; return p }); res.status != http.StatusSeeOther {
				t.Errorf("a passkey without a counter: %d", res.status)
			}
			if res := newVisitor(t, address).submit(used); res.status != http.StatusUnauthorized {
				t.Errorf("an answer of a passkey without a counter, twice: %d", res.status)
			}
			// Another person cannot prove themselves with it, and its owner can.
			bob := o.signUpPlain("bob")
			for who, want := range map[*visitor]int{bob: http.StatusUnauthorized, alice: http.StatusSeeOther} {
				form, options := passkeyOf(t, who.get("/confirm"))
				if res := who.submit(form.with("answer", key.get(t, options))); res.status != want {
					t.Errorf("proof: %d, want %d", res.status, want)
				}
			}
			// On the IP address no passkey is offered, and the page says where.
			at := newVisitor(t, ip)
			for _, path := range []string{"/sign-in", "/account/security"} {
				if body := at.get(path).body; strings.Contains(body, "data-passkey") || !strings.Contains(body, `href="`+address+path) {
					t.Errorf("%s on the IP address:\n%s", path, mainPart.FindString(body))
				}
				if path == "/sign-in" {
					at.submit(formOf(t, at.get(path)).with("login", "alice").with("password", goodPassword).with("api_key"))
				}
			}
			for i := range 45 { // a success gives its try back
				if res := try(still, nil); res.status != http.StatusSeeOther {
					t.Fatalf("sign-in %d: %d", i, res.status)
				}
			}
			// One source tries 40 times, and then four times a minute.
			limited := 0
			for range 50 {
				if res := newVisitor(t, address).post("/sign-in", url.Values{"state": {"AAAA"}, "answer": {"{}"}}); res.status == http.StatusTooManyRequests {
					limited++
				}
			}
			if limited < 10 {
				t.Errorf("%d of 50 tries are refused", limited)
			}
		})
	}
}

// TestPasskeySignUp: a person signs up with a passkey alone, signs in with it, and gets a login name by a recovery code. An answer
// of another origin, one for another ceremony, one from too long ago and one that was used make nobody.
// T157
func TestPasskeySignUp(t *testing.T) {
	for _, variant := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(variant), func(t *testing.T) {
			o, ip := passkeyTown(t, variant)
			var used page
			signUp := func(path string, a *authenticator, change func(page) page) (*visitor, shown) {
				t.Helper()
				v := newVisitor(t, o.address)
				form, options := passkeyOf(t, v.get(path))
				form = change(form.with("name", "Alice").with("answer", a.create(t, options)))
				return v, v.submit(form)
			}
			same := func(p page) page { return p }
			refused := func(what string, res shown) {
				t.Helper()
				if res.status != http.StatusUnauthorized || len(res.header.Values("Set-Cookie")) > 0 {
					t.Errorf("%s: %d", what, res.status)
				}
			}
			ofSecurity, _ := passkeyOf(t, o.signUpPlain("bob").get("/account/security"))
			_, res := signUp("/sign-up", newAuthenticator(t, "http://localhost:1"), same)
			refused("another origin", res)
			for what, change := range map[string]func(page) page{
				"no answer":        func(p page) page { return p.with("answer", "{}") },
				"another ceremony": func(p page) page { return p.with("state", ofSecurity.values.Get("state")) },
				"no state":         func(p page) page { return p.with("state") },
				"too late":         func(p page) page { o.ahead.Add(int64(11 * time.Minute)); return p },
			} {
				_, res := signUp("/sign-up", newAuthenticator(t, o.address), change)
				refused(what, res)
			}

			key := newAuthenticator(t, o.address)
			alice, res := signUp("/sign-up?next=/device", key, func(p page) page { used = p; return p })
			if res.status != http.StatusSeeOther || res.header.Get("Location") != "/device" {
				t.Fatalf("sign-up: %d %s", res.status, mainPart.FindString(res.body))
			}
			body := alice.get("/account/security").body
			if !strings.Contains(body, "Alice") || !strings.Contains(body, "Passkey from sign-up") || !strings.Contains(body, "owner") {
				t.Errorf("after the sign-up:\n%s", mainPart.FindString(body))
			}
			refused("an answer twice", newVisitor(t, o.address).submit(used))
			second := *key // which has the user of the second sign-up
			_, res = signUp("/sign-up", &second, same)
			refused("a passkey that is somebody's", res)

			n := newVisitor(t, o.address)
			form, options := passkeyOf(t, n.get("/sign-in"))
			if res := n.submit(form.with("answer", key.get(t, options))); res.status != http.StatusSeeOther || n.workspace() != alice.workspace() {
				t.Errorf("sign-in: %d", res.status)
			}

			// With an invitation the person joins, once.
			link := "/sign-up?link=" + alice.invite(alice.workspace(), "developer")
			dan, res := signUp(link, newAuthenticator(t, o.address), same)
			if body := dan.get("/w/" + alice.workspace() + "/members").body; res.status != http.StatusSeeOther || strings.Count(body, "developer since") != 1 {
				t.Errorf("invited: %d %s", res.status, mainPart.FindString(body))
			}

			// Without the passkey: a recovery code, and a login name that is chosen with it.
			codes := recoveryCode.FindAllStringSubmatch(alice.act("/account/security", "act", "codes").body, -1)
			recover := func(login, code string) shown {
				n := newVisitor(t, o.address)
				return n.submit(formOf(t, n.get("/recover")).with("login", login).with("code", code).with("password", goodPassword))
			}
			for login, want := range map[string]int{"b b": http.StatusBadRequest, "bob": http.StatusConflict} {
				if res := recover(login, codes[0][1]); res.status != want {
					t.Errorf("recovery as %q: %d", login, res.status)
				}
			}
			refused("a wrong code", recover("alice", "aaaa-aaaa-aaaa-aaaa"))
			if res := recover("alice", codes[0][1]); res.status != http.StatusSeeOther {
				t.Errorf("recovery: %d %s", res.status, mainPart.FindString(res.body))
			}
			refused("another name", recover("mallory", codes[1][1]))

			// The operator names a person who has no login name by the id.
			id := userIn.FindStringSubmatch(dan.get("/w/" + dan.workspace() + "/members").body)
			path := must.Get(o.s.RecoverLink(t.Context(), id[1]))(t)
			n = newVisitor(t, o.address)
			form = formOf(t, n.get(strings.TrimPrefix(path, o.s.PublicURL()))).with("login", "dan").with("password", goodPassword)
			if res := n.submit(form); res.status != http.StatusSeeOther {
				t.Errorf("recovery by a link: %d %s", res.status, mainPart.FindString(res.body))
			}

			// Where browsers take no passkey, the page says where they do.
			if body := newVisitor(t, ip).get("/sign-up").body; strings.Contains(body, "data-passkey") || !strings.Contains(body, `href="`+o.address+"/sign-up") {
				t.Errorf("on the IP address:\n%s", mainPart.FindString(body))
			}
		})
	}
}

// signUpPlain is signUp where pages also ask for passkeys.
func (o *town) signUpPlain(login string) *visitor {
	o.t.Helper()
	v := newVisitor(o.t, o.address)
	if res := v.submit(formOf(o.t, v.get("/sign-up")).with("name", login).with("login", login).with("password", goodPassword)); res.status != http.StatusSeeOther {
		o.t.Fatalf("%d %s", res.status, mainPart.FindString(res.body))
	}
	return v
}

// TestClaim: an account without people gets its owner by the key of the operator, once. A key of a workspace with people lets no
// program have a key.
func TestClaim(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		key, other := keys(t, o.s)
		limited := keyOf(t, o.s, server.KeyRequest{Account: "builder", Rights: toll.Rights{toll.RightRead, toll.RightKeys}})
		alice, bob := o.signUp("alice", ""), o.signUp("bob", "")
		if res := alice.act("/account/security", "act", "claim", "api_key", limited.Key); res.status != http.StatusForbidden {
			t.Errorf("a key with few rights: %d", res.status)
		}
		child := must.Get(client.New(key.Key, client.WithURL(o.address)).CreateKey(t.Context(), client.KeyParams{}))(t)
		if res := alice.act("/account/security", "act", "claim", "api_key", child.Key); res.status != http.StatusForbidden {
			t.Errorf("a key that a key made: %d", res.status)
		}
		done := make(chan int, 2)
		for _, v := range []*visitor{alice, bob} {
			form := ticketed(v, "/account/security", "act", "claim", "api_key", key.Key)
			go func() { done <- v.post("/account/security", form).status }()
		}
		if a, b := <-done, <-done; a+b != http.StatusOK+http.StatusConflict {
			t.Errorf("two claims: %d %d", a, b)
		}
		if res := bob.act("/account/security", "act", "claim", "api_key", other.Key); res.status != http.StatusOK {
			t.Errorf("another account: %d", res.status)
		}
		// The key works on, and opens a session that lets no program have a key.
		k := newVisitor(t, o.address)
		s := client.NewSignIn(callback, "toll-cli")
		at := strings.TrimPrefix(s.URL(client.New("", client.WithURL(o.address))), o.address)
		if res := k.submit(formOf(t, k.get(at)).with("api_key", key.Key)); res.status != http.StatusForbidden || !strings.Contains(res.body, "Only a member of this workspace") {
			t.Errorf("a key for a program: %d %s", res.status, mainPart.FindString(res.body))
		}
	})
}
