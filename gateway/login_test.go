package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/tolltest"
)

// signer is a core whose owner logs in at a service, and the person with a browser who does.
type signer struct {
	*controlled
	svc   *tolltest.Service
	dir   string
	ahead time.Duration // of the clock of the core
	ticks chan bool     // let it ask the service again; true: after its interval
	log   *syncBuffer
	said  strings.Builder // all answers
	web   *http.Client
	mine  toll.APIKey // with which the person signs in on pages
}

type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func newSigner(t *testing.T, edit ...func(*gateway.Config)) *signer {
	t.Helper()
	s := &signer{svc: tolltest.New(t), dir: t.TempDir(), ticks: make(chan bool), log: new(syncBuffer)}
	s.start(t, edit...)
	key, err := s.svc.NewKey("chatter")
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.mine, s.web = key, &http.Client{Jar: jar}
	s.page("/sign-in", url.Values{"api_key": {key.Key}, "next": {"/device"}})
	return s
}

// start starts a core on the directory, as after a restart.
func (s *signer) start(t *testing.T, edit ...func(*gateway.Config)) {
	t.Helper()
	config := gateway.Config{BaseURL: s.svc.URL()}
	for _, e := range edit {
		e(&config)
	}
	core, err := gateway.New(gateway.Options{
		Config:    config,
		Dir:       s.dir,
		CoreToken: testToken,
		Log:       slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:       func() time.Time { return s.svc.Now().Add(s.ahead) },
	})
	if err != nil {
		t.Fatal(err)
	}
	core.SetPause(func(ctx context.Context, d time.Duration) error {
		select {
		case whole := <-s.ticks:
			if whole {
				s.svc.Advance(d)
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	server := httptest.NewServer(core.Handler())
	t.Cleanup(func() {
		server.Close()
		core.Close()
	})
	s.controlled = &controlled{t, core, server.URL}
	if status, body := s.hello(`{}`); status != 200 {
		t.Fatal(body)
	}
}

// command runs a slash command as the owner.
func (s *signer) command(name, args string) string { return s.commandOf(name, args, true) }

func (s *signer) commandOf(name, args string, owner bool) string {
	s.t.Helper()
	in, err := json.Marshal(map[string]any{
		"args":   args,
		"caller": gateway.Caller{SessionKey: "s", SenderIsOwner: owner},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	status, body := s.do("POST", "/gateway/v1/commands/"+name, string(in))
	var out struct{ Text string }
	if err := json.Unmarshal([]byte(body), &out); err != nil || status != 200 || out.Text == "" {
		s.t.Fatalf("%s %s: %d %s", name, args, status, body)
	}
	s.said.WriteString(out.Text + "\n")
	return out.Text
}

var loginAnswer = regexp.MustCompile(`Open (\S+) and check that it shows the code ([B-Z]{4}-[B-Z]{4})`)

// begin starts a browser login and returns its code.
func (s *signer) begin(args string) string {
	s.t.Helper()
	text := s.command("svc_login", args)
	m := loginAnswer.FindStringSubmatch(text)
	if m == nil || m[1] != s.svc.URL()+"/device?user_code="+m[2] || !strings.Contains(text, "10 minutes") ||
		!strings.Contains(text, "sandbox at "+s.svc.URL()) {
		s.t.Fatalf("%q", text)
	}
	return m[2]
}

var pageTicket = regexp.MustCompile(`(?s)<main>.*name="ticket" value="([^"]+)"`)

func (s *signer) page(path string, form url.Values) string {
	s.t.Helper()
	res, err := s.web.PostForm(s.svc.URL()+path, form)
	if form == nil {
		res, err = s.web.Get(s.svc.URL() + path)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %d %s, %v", path, res.StatusCode, b, err)
	}
	return string(b)
}

// decide types the code on the page, and presses a button.
func (s *signer) decide(code, decision string, rights ...string) {
	s.t.Helper()
	ticket := func(page string) string {
		m := pageTicket.FindStringSubmatch(page)
		if m == nil {
			s.t.Fatalf("no form:\n%s", page)
		}
		return m[1]
	}
	page := s.page("/device", url.Values{"user_code": {code}, "ticket": {ticket(s.page("/device", nil))}})
	if !strings.Contains(page, "The chat gateway of Toll") {
		s.t.Errorf("the page does not name the chat gateway:\n%s", page)
	}
	s.page("/device", url.Values{
		"request":  {code},
		"ticket":   {ticket(page)},
		"decision": {decision},
		"right":    rights,
	})
}

// balance calls a tool and returns the code of its error and its hint.
func (s *signer) balance() (code, hint string) {
	s.t.Helper()
	_, body := s.do("POST", "/gateway/v1/tools/service_checkBalance", `{"params":{"planId":"`+string(s.svc.Plan())+`"},"caller":{}}`)
	var out struct{ Error gateway.Error }
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		s.t.Fatal(body, err)
	}
	s.said.WriteString(body + "\n")
	return string(out.Error.Code), out.Error.Hint
}

// works reports whether a key opens the API.
func (s *signer) works(key string) bool {
	s.t.Helper()
	_, err := client.New(key, client.WithURL(s.svc.URL())).Versions(s.t.Context())
	return err == nil
}

// holdsNot fails the test when a key stands in an answer, in the log or in a file.
func (s *signer) holdsNot(keys ...string) {
	s.t.Helper()
	texts := map[string]string{"an answer": s.said.String(), "the log": s.log.String()}
	files, err := filepath.Glob(filepath.Join(s.dir, "*"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		texts[path] = string(b)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			s.t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
		}
	}
	for _, key := range keys {
		secret := key[strings.LastIndex(key, ".")+1:]
		for where, text := range texts {
			if secret == "" || strings.Contains(text, secret) {
				s.t.Errorf("a key stands in %s:\n%s", where, text)
			}
		}
	}
}

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

// saysOnce wants a warning in the first result of the owner, and in no other: somebody else could have
// approved the code.
func (s *signer) saysOnce(want string) {
	s.t.Helper()
	for i, owner := range []string{"false", "true", "true"} {
		_, body := s.do("POST", "/gateway/v1/tools/service_listPlans", `{"caller":{"senderIsOwner":`+owner+`}}`)
		if strings.Contains(body, want) != (i == 1) || strings.Contains(body, `"error"`) {
			s.t.Errorf("result %d: %s", i, body)
		}
	}
}

func (s *signer) hasRights(key, want string) {
	s.t.Helper()
	for k, err := range client.New(s.mine.Key, client.WithURL(s.svc.URL())).Keys(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
		if k.Name != nil && *k.Name == "toll-chat" {
			left := k.ExpiresAt.Sub(s.svc.Now())
			if k.Rights.String() != want || left < 89*24*time.Hour || left > 90*24*time.Hour {
				s.t.Errorf("%+v, %v left", k, left)
			}
			return
		}
	}
	s.t.Error("no key has the name of the chat gateway")
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
	none("denied", "refused")

	s.begin("SANDBOX ")
	s.svc.Advance(11 * time.Minute)
	s.ticks <- true
	none("expired", "in time")

	first := s.begin("")
	second := s.begin("")
	s.decide(first, "approve", "read")
	s.ticks <- true // the first one asks no more
	s.decide(second, "approve", "read", "spend")
	s.ticks <- true
	s.core.WaitLogin()
	key, _, _, _, err := s.core.LoginKey()
	if err != nil {
		t.Fatal(err)
	}
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
	if !strings.Contains(text, "not of the environment live but of sandbox") || !strings.Contains(text, "baseUrl") {
		t.Errorf("%q", text)
	}
	s.svc.Close()
	if text := s.command("svc_login", ""); !strings.Contains(text, "cannot be reached") {
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
	if err != nil {
		t.Fatal(err)
	}
	s.hasRights(key, "read sell spend manage")
}

// TestT143_Paste: a pasted key counts when the service accepts it, the operator allows it and the
// guards are active. No answer, log or readable file holds it.
func TestT143_Paste(t *testing.T) {
	s := newSigner(t)
	key := s.mine.Key
	_, bare, _ := strings.Cut(key, ":")
	dead, err := s.svc.NewKey("chatter")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.New(key, client.WithURL(s.svc.URL())).RevokeKey(t.Context(), dead.ID); err != nil {
		t.Fatal(err)
	}
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
	refused("revoked", "sandbox:"+deadJWT, "does not accept this key")
	refused("forged", "sandbox:"+forged, "does not accept this key")
	refused("wrong environment", "live:"+bare, "not of the environment live")
	refused("no key", "sandbox:hello", "is not an API key. Write /svc_login")
	refused("bare key", bare, "Write /svc_login")
	refused("text", "please log me in", "Write /svc_login")
	refused("key and text", "sandbox:"+bare+" thanks", "Write /svc_login")
	refused("too long", "sandbox:"+strings.Repeat("x", 9000), "Write /svc_login")
	for _, guards := range []string{`{"write":true,"run":false}`, `{"write":false,"run":true}`, `{}`} {
		if status, body := s.do("POST", "/gateway/v1/hello", `{"registry":"`+s.registry()+`","guards":`+guards+`}`); status != 200 {
			t.Fatal(body)
		}
		refused("guards "+guards, "sandbox:"+bare, "guards")
	}
	s.hello(`{"allowKeyPaste":false}`)
	refused("not allowed", "sandbox:"+bare, "takes no keys")
	s.hello(`{}`)
	if text := s.commandOf("svc_login", "sandbox:"+bare, false); !strings.Contains(text, "Only the owner") {
		t.Errorf("of somebody else: %q", text)
	}

	text := s.command("svc_login", "Sandbox:"+bare)
	if !strings.Contains(text, "Logged in to sandbox as "+s.mine.Address.String()) || !strings.Contains(text, "revoke it") {
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

// TestT145_LoginOfOthers: nobody but the owner logs in or out, whoever may spend.
func TestT145_LoginOfOthers(t *testing.T) {
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
	sealed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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
			if err := os.WriteFile(file, sealed, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
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
	configured, err := s.svc.NewKey("operator")
	if err != nil {
		t.Fatal(err)
	}
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
	if text := s.command("svc_logout", ""); !strings.Contains(text, "key of the configuration is in use") {
		t.Errorf("%q", text)
	}
	using(configured.Address)
}

// TestT145_AfterLogout: nothing of an account is told once it is logged out, or another one is logged
// in: no balance in a prompt, and no answer of a tool.
func TestT145_AfterLogout(t *testing.T) {
	s := newSigner(t)
	s.start(t, func(c *gateway.Config) { c.PlanID = s.svc.Plan() })
	s.svc.Mint(s.mine.Address, 7)
	other, err := s.svc.NewKey("somebody else")
	if err != nil {
		t.Fatal(err)
	}
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
