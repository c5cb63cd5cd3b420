package gateway_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
)

// TestLogin_Browser: a person approves the code of the chat on a page of the service. The login
// survives a restart, and a logout ends it here and at the service.
func TestLogin_Browser(t *testing.T) {
	s := newSigner(t)
	if code, _ := s.balance(); code != "not_authenticated" {
		t.Fatal(code)
	}
	code := s.begin("")
	if word, hint := s.balance(); word != "not_authenticated" || !strings.Contains(hint, "A login is pending") {
		t.Errorf("%s %q", word, hint)
	}
	s.ticks <- true  // the first question: nobody has decided
	s.ticks <- false // too early, which the service says
	s.decide(code, "approve", "read", "spend", "manage")
	s.ticks <- true
	s.core.WaitLogin()
	key, warning, environment, address, err := s.core.LoginKey()
	if err != nil || environment != toll.Sandbox || address != s.mine.Address || key == s.mine.Key || warning != "" {
		t.Fatalf("%s %s %q %v", environment, address, warning, err)
	}
	s.hasRights(key, "read spend manage")
	s.saysOnce("Logged in to sandbox as " + address.String())
	s.restart(t, key)

	if text := s.command("svc_logout", ""); text != "Logged out." {
		t.Errorf("%q", text)
	}
	if s.works(key) || !s.works(s.mine.Key) {
		t.Error("a logout ends the key of the login, and that alone")
	}
	if _, err := os.Stat(filepath.Join(s.dir, "login.sealed")); !os.IsNotExist(err) {
		t.Error("the stored login is still there")
	}
	if word, hint := s.balance(); word != "not_authenticated" || hint != "" {
		t.Errorf("%s %q", word, hint)
	}
	if text := s.command("svc_logout", ""); text != "Logged out." {
		t.Errorf("%q", text)
	}
	s.holdsNot(key, s.mine.Key)
}

// restart shows that the login outlives the core, warns before its end, and ends.
func (s *signer) restart(t *testing.T, key string) {
	t.Helper()
	s.start(t)
	for _, at := range []struct {
		days          int
		warns, logged bool
	}{{0, false, true}, {82, false, true}, {84, true, true}, {91, false, false}} {
		s.ahead = time.Duration(at.days) * 24 * time.Hour
		got, warning, _, _, err := s.core.LoginKey()
		if (err == nil) != at.logged || at.logged && got != key || (warning != "") != at.warns {
			t.Errorf("after %d days: %q %v", at.days, warning, err)
		}
	}
	s.ahead = 0
}

// TestLogin_Ends: a login that is refused, that nobody decides, or that another one replaces, gives
// no key.
func TestLogin_Ends(t *testing.T) {
	s := newSigner(t)
	none := func(what, hint string) {
		t.Helper()
		s.core.WaitLogin()
		if word, got := s.balance(); word != "not_authenticated" || !strings.Contains(got, hint) {
			t.Errorf("%s: %s %q", what, word, got)
		}
	}
	s.decide(s.begin("sandbox"), "deny")
	s.ticks <- true
	none("denied", "denied")

	s.begin("SANDBOX ")
	s.svc.Advance(11 * time.Minute)
	s.ticks <- true
	none("expired", "expired before it was approved")

	first := s.begin("")
	second := s.begin("")
	s.decide(first, "approve", "read")
	s.ticks <- true // the first one asks no more
	s.decide(second, "approve", "read", "spend")
	s.ticks <- true
	s.core.WaitLogin()
	key, _, _, _, err := s.core.LoginKey()
	must.Do(t, err)
	s.hasRights(key, "read spend")

	// Another login replaces the key; the earlier one is of no use to anybody.
	s.decide(s.begin(""), "approve", "read")
	s.ticks <- true
	s.core.WaitLogin()
	if now, _, _, _, err := s.core.LoginKey(); err != nil || now == key || s.works(key) || !s.works(now) {
		t.Errorf("the key of the earlier login works on, or the new one does not: %v", err)
	}

	s.begin("")
	s.command("svc_logout", "")
	none("cancelled by a logout", "")

	text := s.command("svc_login", "live")
	if !strings.Contains(text, "is not a live service: its environment is sandbox") || !strings.Contains(text, "baseUrl") {
		t.Errorf("%q", text)
	}
	s.svc.Close()
	if text := s.command("svc_login", ""); !strings.Contains(text, "could not be reached") {
		t.Errorf("%q", text)
	}
	s.holdsNot(key)
}

// TestLogin_Rights: a key of a core that sells asks for the right to sell.
func TestLogin_Rights(t *testing.T) {
	on := true
	s := newSigner(t, func(c *gateway.Config) { c.EnablePaidEndpoint = &on })
	s.decide(s.begin(""), "approve", "read", "sell", "spend", "manage")
	s.ticks <- true
	s.core.WaitLogin()
	key, _, _, _, err := s.core.LoginKey()
	must.Do(t, err)
	s.hasRights(key, "read sell spend manage")
}

// TestLogin_Paste: a pasted key counts when the service accepts it, the operator allows it and the
// guards are active. No answer, log or readable file holds it.
// T143
func TestLogin_Paste(t *testing.T) {
	s := newSigner(t)
	key := s.mine.Key
	_, bare, _ := strings.Cut(key, ":")
	dead := must.Get(s.svc.NewKey("chatter"))(t)
	must.Get(client.New(key, client.WithURL(s.svc.URL())).RevokeKey(t.Context(), dead.ID))(t)
	_, deadJWT, _ := strings.Cut(dead.Key, ":")
	forged := bare[:len(bare)-8] + "AAAAAAAA"
	refused := func(what, args, want string) {
		t.Helper()
		text := s.command("svc_login", args)
		if !strings.Contains(text, want) || strings.Contains(text, "Logged in") {
			t.Errorf("%s: %q", what, text)
		}
		if word, _ := s.balance(); word != "not_authenticated" {
			t.Errorf("%s: %s", what, word)
		}
	}
	refused("revoked", "sandbox:"+deadJWT, "rejected this key")
	refused("forged", "sandbox:"+forged, "rejected this key")
	refused("wrong environment", "live:"+bare, "is not a live service")
	refused("no key", "sandbox:hello", "is not an API key. Use /svc_login")
	refused("bare key", bare, "Use /svc_login")
	refused("text", "please log me in", "Use /svc_login")
	refused("key and text", "sandbox:"+bare+" thanks", "Use /svc_login")
	refused("too long", "sandbox:"+strings.Repeat("x", 9000), "Use /svc_login")
	for _, guards := range []string{`{"write":true,"run":false}`, `{"write":false,"run":true}`, `{}`} {
		if status, body := s.do("POST", "/gateway/v1/hello", `{"registry":"`+s.registry()+`","guards":`+guards+`}`); status != 200 {
			t.Fatal(body)
		}
		refused("guards "+guards, "sandbox:"+bare, "because a key could reach the model or the transcript")
	}
	s.hello(`{"allowKeyPaste":false}`)
	refused("not allowed", "sandbox:"+bare, "does not accept keys")
	s.hello(`{}`)
	if text := s.commandOf("svc_login", "sandbox:"+bare, false); !strings.Contains(text, "Only the owner") {
		t.Errorf("of somebody else: %q", text)
	}

	text := s.command("svc_login", "Sandbox:"+bare)
	if !strings.Contains(text, "Logged in to sandbox as "+s.mine.Address.String()) || !strings.Contains(text, "Revoke it") {
		t.Errorf("%q", text)
	}
	if got, _, _, address, err := s.core.LoginKey(); err != nil || got != "sandbox:"+bare || address != s.mine.Address {
		t.Errorf("%v %v", address, err)
	}
	if text := s.command("svc_logout", ""); !strings.Contains(text, "stays valid") || !s.works(key) {
		t.Errorf("%q", text)
	}
	s.holdsNot(key, dead.Key, forged)
}

// TestLoginOfOthers: nobody but the owner logs in or out, whoever may spend.
// T145
func TestLoginOfOthers(t *testing.T) {
	off := false
	s := newSigner(t, func(c *gateway.Config) { c.OwnerOnlySpending = &off })
	s.decide(s.begin(""), "approve", "read", "spend")
	s.ticks <- true
	s.core.WaitLogin()
	for _, name := range []string{"svc_login", "svc_logout"} {
		if text := s.commandOf(name, "", false); text != "Only the owner of this gateway can log in or out." {
			t.Errorf("%s: %q", name, text)
		}
	}
	if _, _, _, _, err := s.core.LoginKey(); err != nil {
		t.Error(err)
	}
}

// TestLogin_Store: what is stored is bound to its directory, and processes on one directory agree.
func TestLogin_Store(t *testing.T) {
	s := newSigner(t)
	_, bare, _ := strings.Cut(s.mine.Key, ":")
	first := s.core
	s.start(t)
	s.command("svc_login", "sandbox:"+bare)
	if _, _, _, _, err := first.LoginKey(); err != nil {
		t.Errorf("another core on the directory does not see the login: %v", err)
	}
	s.start(t)
	s.command("svc_logout", "")
	if _, _, _, _, err := first.LoginKey(); err == nil {
		t.Error("another core on the directory does not see the logout")
	}
	s.command("svc_login", "sandbox:"+bare)
	file := filepath.Join(s.dir, "login.sealed")
	sealed := must.Get(os.ReadFile(file))(t)
	for what, spoil := range map[string]func() error{
		"a changed byte": func() error {
			return os.WriteFile(file, append(bytes.Clone(sealed[:len(sealed)-1]), sealed[len(sealed)-1]^1), 0o600)
		},
		"cut off":        func() error { return os.WriteFile(file, sealed[:20], 0o600) },
		"empty":          func() error { return os.WriteFile(file, nil, 0o600) },
		"open to others": func() error { return os.Chmod(file, 0o644) },
		"a directory":    func() error { return os.Mkdir(file, 0o700) },
	} {
		_ = os.Remove(file)
		if what == "open to others" {
			must.Do(t, os.WriteFile(file, sealed, 0o600))
		}
		must.Do(t, spoil())
		s.start(t)
		if word, hint := s.balance(); word != "not_authenticated" || !strings.Contains(hint, "/svc_logout") {
			t.Errorf("%s: %s %q", what, word, hint)
		}
		if text := s.command("svc_logout", ""); text != "Logged out." {
			t.Errorf("%s: %q", what, text)
		}
		if word, hint := s.balance(); word != "not_authenticated" || hint != "" {
			t.Errorf("%s, after a logout: %s %q", what, word, hint)
		}
	}
	s.holdsNot(s.mine.Key)
}

// TestLogin_Precedence: a login wins over the key of the configuration, which is in use again after
// a logout, and the answer says so.
func TestLogin_Precedence(t *testing.T) {
	s := newSigner(t)
	configured := must.Get(s.svc.NewKey("operator"))(t)
	s.start(t, func(c *gateway.Config) { c.APIKey = configured.Key })
	using := func(want toll.Address) {
		t.Helper()
		if _, _, _, address, err := s.core.LoginKey(); err != nil || address != want {
			t.Errorf("%s, %v", address, err)
		}
	}
	using(configured.Address)
	_, bare, _ := strings.Cut(s.mine.Key, ":")
	s.command("svc_login", "sandbox:"+bare)
	using(s.mine.Address)
	if text := s.command("svc_logout", ""); !strings.Contains(text, "now uses the API key in its configuration") {
		t.Errorf("%q", text)
	}
	using(configured.Address)
}

// TestAfterLogout: nothing of an account is told once it is logged out, or another one is logged
// in: no balance in a prompt, and no answer of a tool.
// T145
func TestAfterLogout(t *testing.T) {
	s := newSigner(t)
	s.start(t, func(c *gateway.Config) { c.PlanID = s.svc.Plan() })
	s.svc.Mint(s.mine.Address, 7)
	other := must.Get(s.svc.NewKey("somebody else"))(t)
	s.svc.Mint(other.Address, 3)
	context := func() string {
		t.Helper()
		status, body := s.do("POST", "/gateway/v1/context", `{"caller":{"sessionKey":"s"}}`)
		if status != 200 {
			t.Fatal(body)
		}
		return body
	}
	login := func(key string) {
		t.Helper()
		_, bare, _ := strings.Cut(key, ":")
		if text := s.command("svc_login", "sandbox:"+bare); !strings.Contains(text, "Logged in") {
			t.Fatal(text)
		}
	}
	none := func(when string) {
		t.Helper()
		if text := context(); text != "{}" {
			t.Errorf("%s: %s", when, text)
		}
		if word, _ := s.balance(); word != "not_authenticated" {
			t.Errorf("%s: %s", when, word)
		}
	}
	none("before")
	login(s.mine.Key)
	if text := context(); !strings.Contains(text, "7 credits") {
		t.Errorf("logged in: %s", text)
	}
	s.command("svc_logout", "")
	none("logged out")
	login(other.Key)
	if text := context(); !strings.Contains(text, "3 credits") {
		t.Errorf("of another account: %s", text)
	}
	login(s.mine.Key)
	if text := context(); !strings.Contains(text, "7 credits") {
		t.Errorf("logged in again: %s", text)
	}
}
