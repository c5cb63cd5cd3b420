package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// terminal runs commands with a configuration file of their own.
type terminal struct {
	t   *testing.T
	env map[string]string
}

func (term terminal) run(onErr func(line string), args ...string) (out, err string, code int) {
	r, w := io.Pipe()
	var stdout, stderr bytes.Buffer
	var wg sync.WaitGroup
	wg.Go(func() {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			stderr.WriteString(lines.Text() + "\n")
			if onErr != nil {
				onErr(lines.Text())
			}
		}
	})
	code = run(term.t.Context(), args, &app{console: console{in: strings.NewReader(""), out: &stdout, err: w, getenv: func(n string) string { return term.env[n] }}})
	_ = w.Close()
	wg.Wait()
	return stdout.String(), stderr.String(), code
}

// approve does what a person does on the page: it returns the address to which the form leads.
func approve(t *testing.T, page, key string) string {
	u := must.Get(url.Parse(page))(t)
	form := u.Query()
	form.Set("api_key", key)
	req := must.Get(http.NewRequest(http.MethodPost, u.Scheme+"://"+u.Host+u.Path, strings.NewReader(form.Encode())))(t)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", u.Scheme+"://"+u.Host)
	res := must.Get(http.DefaultTransport.RoundTrip(req))(t)
	_ = res.Body.Close()
	return res.Header.Get("Location")
}

func visit(t *testing.T, address string, change func(*http.Request)) int {
	req := must.Get(http.NewRequest(http.MethodGet, address, nil))(t)
	if change != nil {
		change(req)
	}
	res := must.Get(http.DefaultClient.Do(req))(t)
	_ = res.Body.Close()
	return res.StatusCode
}

// TestCallbackOfTheCommandLine: what is no answer to this sign-in changes nothing, and the answer leaves a key in the
// profile and nowhere else.
// T125
func TestCallbackOfTheCommandLine(t *testing.T) {
	svc := tolltest.New(t)
	person := must.Get(svc.NewKey("builder"))(t)
	path := filepath.Join(t.TempDir(), "toll", "config.json")
	term := terminal{t, map[string]string{"TOLL_CONFIG": path, "TOLL_URL": svc.URL()}}

	if _, stderr, code := term.run(nil, "whoami"); code != exitFailed && code != exitNotSignedIn {
		t.Errorf("before: %d %s", code, stderr)
	}
	if _, stderr, code := term.run(nil, "login", "-e", "live", "--no-browser"); code != exitFailed || !strings.Contains(stderr, "sandbox") {
		t.Errorf("another environment: %d %s", code, stderr)
	}
	var oneTime string
	approves := func(line string) {
		_, page, ok := strings.Cut(line, "Sign in at ")
		if !ok {
			return
		}
		answer := approve(t, page, person.Key)
		u, err := url.Parse(answer)
		if err != nil || u.Hostname() != "127.0.0.1" {
			t.Errorf("the page leads to %q", answer)
			return
		}
		oneTime = u.Query().Get("code")
		with := func(change func(url.Values)) string {
			c, q := *u, u.Query()
			change(q)
			c.RawQuery = q.Encode()
			return c.String()
		}
		for _, c := range []struct {
			what    string
			address string
			change  func(*http.Request)
			status  int
		}{
			{"no state", with(func(q url.Values) { q.Del("state") }), nil, 400},
			{"wrong state", with(func(q url.Values) { q.Set("state", "x") }), nil, 400},
			{"two states", with(func(q url.Values) { q.Add("state", "x") }), nil, 400},
			{"no code", with(func(q url.Values) { q.Del("code") }), nil, 400},
			{"another host", answer, func(r *http.Request) { r.Host = "evil.example.com" }, 404},
			{"another path", strings.Replace(answer, "/callback", "/other", 1), nil, 404},
			{"another method", answer, func(r *http.Request) { r.Method = http.MethodPost }, 405},
			{"the answer", answer, nil, 200},
		} {
			if got := visit(t, c.address, c.change); got != c.status {
				t.Errorf("%s: %d, want %d", c.what, got, c.status)
			}
		}
	}
	out, stderr, code := term.run(approves, "login", "--no-browser", "-o", "json", "-e", "sandbox")
	var in signedIn
	if code != 0 || json.Unmarshal([]byte(out), &in) != nil || in.Address != person.Address || in.Profile != "default" || in.URL != svc.URL() {
		t.Fatalf("%d %s %s", code, out, stderr)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	b, _ := os.ReadFile(path)
	var file struct {
		Profiles map[string]struct{ APIKey string }
	}
	must.Do(t, json.Unmarshal(b, &file))
	key := file.Profiles["default"].APIKey
	if key == "" || key == person.Key || strings.Contains(out+stderr, key) || strings.Contains(string(b), oneTime) {
		t.Errorf("%s", out+stderr)
	}

	delete(term.env, "TOLL_URL") // the profile has it
	out, stderr, code = term.run(nil, "whoami", "-o", "json")
	var who identity
	if code != 0 || json.Unmarshal([]byte(out), &who) != nil || who.Address != person.Address || who.KeyName == nil || *who.KeyName != signInClient || who.URL != svc.URL() {
		t.Fatalf("%d %s %s", code, out, stderr)
	}

	if out, stderr, code = term.run(nil, "logout", "--all-profiles"); code != 0 {
		t.Fatalf("%d %s %s", code, out, stderr)
	}
	if b, _ = os.ReadFile(path); strings.Contains(string(b), key) {
		t.Error("the key is still in the file")
	}
	k, err := svc.Client().Key(context.Background(), who.KeyID)
	if err != nil || k.Status != toll.StatusRevoked {
		t.Errorf("%+v, %v", k, err)
	}
	if _, stderr, code := term.run(nil, "whoami", "--url", svc.URL()); code != exitNotSignedIn || !strings.Contains(stderr, "toll login") {
		t.Errorf("after: %d %s", code, stderr)
	}

	// A key that a person brought stays valid.
	for _, args := range [][]string{{"config", "set", "apiKey", person.Key}, {"config", "set", "url", svc.URL()}, {"logout"}} {
		if out, stderr, code := term.run(nil, args...); code != 0 {
			t.Fatalf("%v: %d %s %s", args[:2], code, out, stderr)
		}
	}
	if _, err := svc.Client().Versions(context.Background()); err != nil {
		t.Errorf("the key of the person: %v", err)
	}
}
