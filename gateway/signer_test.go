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
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
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
	key := must.Get(s.svc.NewKey("chatter"))(t)
	jar := must.Get(cookiejar.New(nil))(t)
	s.mine, s.web = key, &http.Client{Jar: jar, Transport: servertest.FromPages{}}
	return s
}

// start starts a core on the directory, as after a restart.
func (s *signer) start(t *testing.T, edit ...func(*gateway.Config)) {
	t.Helper()
	config := gateway.Config{BaseURL: s.svc.URL()}
	for _, e := range edit {
		e(&config)
	}
	core := must.Get(gateway.New(gateway.Options{
		Config:    config,
		Dir:       s.dir,
		CoreToken: testToken,
		Log:       slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now:       func() time.Time { return s.svc.Now().Add(s.ahead) },
	}))(t)
	core.SetPause(func(ctx context.Context, d time.Duration) bool {
		select {
		case whole := <-s.ticks:
			if whole {
				s.svc.Advance(d)
			}
			return true
		case <-ctx.Done():
			return false
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
	in := must.Get(json.Marshal(map[string]any{
		"args":   args,
		"caller": gateway.Caller{SessionKey: "s", SenderIsOwner: owner},
	}))(s.t)
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
	must.Do(s.t, err)
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
	s.page("/sign-in", url.Values{"api_key": {s.mine.Key}, "next": {"/device"}}) // a sign-in counts for ten minutes
	page := s.page("/device", url.Values{"user_code": {code}, "ticket": {ticket(s.page("/device", nil))}})
	if !strings.Contains(page, "Toll chat gateway") {
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
	files := must.Get(filepath.Glob(filepath.Join(s.dir, "*")))(s.t)
	for _, path := range files {
		b := must.Get(os.ReadFile(path))(s.t)
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
		must.Do(s.t, err)
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
