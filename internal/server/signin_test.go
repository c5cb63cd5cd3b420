package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
)

const callback = "http://127.0.0.1:51234/callback"

// browser sends what a browser would send, and follows nothing.
type browser struct {
	t   *testing.T
	url string
}

type shown struct {
	status int
	header http.Header
	body   string
}

func (b browser) send(method, path, body string, header ...string) shown {
	b.t.Helper()
	req := must.Get(http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body)))(b.t)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res := must.Get(http.DefaultTransport.RoundTrip(req))(b.t)
	defer res.Body.Close()
	text := must.Get(io.ReadAll(res.Body))(b.t)
	return shown{res.StatusCode, res.Header, string(text)}
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`)

// submit opens the page of a sign-in, pastes a key and sends the form as the page has it.
func (b browser) submit(s *client.SignIn, key string, header ...string) shown {
	b.t.Helper()
	page := b.send(http.MethodGet, strings.TrimPrefix(s.URL(client.New("", client.WithURL(b.url))), b.url), "")
	if page.status != http.StatusOK || !strings.Contains(page.body, "127.0.0.1:51234") || !strings.Contains(page.body, "sandbox") {
		b.t.Fatalf("%d %s", page.status, page.body)
	}
	form := url.Values{"api_key": {key}}
	for _, m := range hiddenField.FindAllStringSubmatch(page.body, -1) {
		form.Set(m[1], strings.NewReplacer("&#43;", "+", "&amp;", "&").Replace(m[2]))
	}
	return b.send(http.MethodPost, "/auth/cli", form.Encode(), append([]string{"Origin", b.url, "Sec-Fetch-Site", "same-origin"}, header...)...)
}

// code signs a person in and returns the code that the callback gets.
func (b browser) code(s *client.SignIn, key string) string {
	b.t.Helper()
	res := b.submit(s, key)
	u, err := url.Parse(res.header.Get("Location"))
	if err != nil || res.status != http.StatusSeeOther || u.Scheme+"://"+u.Host+u.Path != callback || u.Query().Get("state") != s.State || len(u.Query()) != 2 {
		b.t.Fatalf("%d, Location %q, %v\n%s", res.status, res.header.Get("Location"), err, res.body)
	}
	return u.Query().Get("code")
}

// TestSignInOfTheCommandLine: a code is all that a callback gets, once and for a minute, and only the program that
// began the sign-in can use it.
// T125
func TestSignInOfTheCommandLine(t *testing.T) {
	for _, v := range []storetest.Variant{storetest.SQLite, storetest.Postgres} {
		t.Run(string(v), func(t *testing.T) { signInOn(t, v) })
	}
}

func signInOn(t *testing.T, v storetest.Variant) {
	db := storetest.Config(t, v)
	var offset atomic.Int64
	var log syncBuffer
	cfg := server.Config{
		Data: db.Data, Database: db.Database, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
	}
	if db.Database != "" {
		cfg.MasterKeyFile = freshMasterKey(t)
	}
	s, address := start(t, cfg)
	person, _ := keys(t, s)
	b := browser{t, address}
	anonymous := client.New("", client.WithURL(address), client.WithRetries(0))
	begin := func() *client.SignIn { return client.NewSignIn(callback, "toll-cli") }

	si := begin()
	code := b.code(si, person.Key)
	key, life, err := anonymous.ExchangeCode(t.Context(), si, code)
	if err != nil || life != 90*24*time.Hour || key == person.Key {
		t.Fatalf("%v, life %v", err, life)
	}
	own := client.New(key, client.WithURL(address))
	names := map[string]bool{}
	for k, err := range own.Keys(t.Context()) {
		if err != nil || k.Address != person.Address {
			t.Fatalf("%+v, %v", k, err)
		}
		if k.Name != nil {
			names[*k.Name] = true
			if k.ExpiresAt == nil || k.ExpiresAt.Sub(k.CreatedAt.Time) > 90*24*time.Hour {
				t.Errorf("the key ends %v", k.ExpiresAt)
			}
		}
	}
	if !names["toll-cli"] {
		t.Errorf("names %v", names)
	}

	refused := func(what string, s *client.SignIn, code string) {
		t.Helper()
		_, _, err := anonymous.ExchangeCode(t.Context(), s, code)
		if e := toll.AsError(err); err == nil || e.HTTPStatus() != 400 || e.Params["error"] != "invalid_grant" {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("a code again", si, code)
	refused("a code that nobody got", begin(), "AAAA")
	two := begin()
	code = b.code(two, person.Key)
	refused("another program", &client.SignIn{Callback: callback, Verifier: begin().Verifier, ClientID: "x"}, code)
	refused("the right program after a wrong one", two, code)
	code = b.code(two, person.Key)
	refused("another callback", &client.SignIn{Callback: "http://127.0.0.1:51235/callback", Verifier: two.Verifier, ClientID: "x"}, code)
	code = b.code(two, person.Key)
	offset.Store(int64(time.Minute))
	refused("after a minute", two, code)

	// One of many exchanges at the same time.
	code = b.code(two, person.Key)
	var won atomic.Int64
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, _, err := anonymous.ExchangeCode(t.Context(), two, code); err == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 20 got a key", won.Load())
	}

	// The page.
	if res := b.submit(two, "sandbox:not.a.key"); res.status != http.StatusUnauthorized || res.header.Get("Location") != "" || strings.Contains(res.body, "not.a.key") ||
		!strings.Contains(res.body, `role="alert"`) {
		t.Errorf("a wrong key: %d %s", res.status, res.body)
	}
	for what, header := range map[string][]string{
		"foreign origin": {"Origin", "https://evil.example.com", "Sec-Fetch-Site", ""},
		"null origin":    {"Origin", "null", "Sec-Fetch-Site", ""},
		"cross-site":     {"Sec-Fetch-Site", "cross-site"},
		"json":           {"Content-Type", "application/json"},
	} {
		if res := b.submit(two, person.Key, header...); res.header.Get("Location") != "" || res.status != 403 && res.status != 400 {
			t.Errorf("%s: %d to %q", what, res.status, res.header.Get("Location"))
		}
	}
	good := func() url.Values {
		u, _ := url.Parse(two.URL(anonymous))
		return u.Query()
	}
	for _, c := range []struct {
		name  string
		value []string
	}{
		{"code_challenge", nil},
		{"code_challenge", []string{"short"}},
		{"code_challenge_method", []string{"plain"}},
		{"state", nil},
		{"state", []string{"a\nb"}},
		{"state", []string{"a", "b"}},
		{"callback_url", nil},
		{"callback_url", []string{"https://127.0.0.1:1/x"}},
		{"callback_url", []string{"http://127.0.0.1/x"}},
		{"callback_url", []string{"http://evil.example.com:80/callback"}},
		{"callback_url", []string{"http://127.0.0.1.evil.example.com:80/"}},
		{"callback_url", []string{"http://127.0.0.1:80@evil.example.com/"}},
		{"callback_url", []string{"http://user@127.0.0.1:80/"}},
		{"callback_url", []string{"http://127.0.0.1:080/"}},
		{"callback_url", []string{"http://127.0.0.1:99999/"}},
		{"callback_url", []string{"http://10.0.0.1:80/"}},
		{"callback_url", []string{"http://127.0.0.1:80/?a=b"}},
		{"callback_url", []string{"http://127.0.0.1:80/#a"}},
		{"callback_url", []string{"javascript:alert(1)"}},
	} {
		q := good()
		q[c.name] = c.value
		get := b.send(http.MethodGet, "/auth/cli?"+q.Encode(), "")
		q.Set("api_key", person.Key)
		post := b.send(http.MethodPost, "/auth/cli", q.Encode())
		if get.status != 400 || post.status != 400 || post.header.Get("Location") != "" || strings.Contains(get.body, "<form") {
			t.Errorf("%s=%q: %d, %d to %q", c.name, c.value, get.status, post.status, post.header.Get("Location"))
		}
	}
	q := good()
	q.Set("state", `"><script>alert(1)</script>`)
	page := b.send(http.MethodGet, "/auth/cli?"+q.Encode(), "")
	policy := page.header.Get("Content-Security-Policy")
	if page.status != 200 || strings.Contains(page.body, "<script") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") ||
		!strings.Contains(policy, "form-action 'self' http://127.0.0.1:51234;") || page.header.Get("X-Frame-Options") != "DENY" ||
		page.header.Get("Cache-Control") != "no-store" || page.header.Get("Service-Version") == "" || page.header.Get("X-Correlation-Id") == "" {
		t.Errorf("%d %v\n%s", page.status, page.header, page.body)
	}
	if log := log.String(); strings.Contains(log, person.Key) || strings.Contains(log, key) || strings.Contains(log, code) {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

// TestKeysOfSignIns: a sign-in cannot fill the database either, and a key that is refused leaves nothing.
// T177
func TestKeysOfSignIns(t *testing.T) {
	s, address := start(t, server.Config{Data: storetest.Dir(t), Quotas: api.Quotas{APIKeys: 2}})
	person := must.Get(s.CreateKey(t.Context(), server.KeyRequest{Account: "person"}))(t)
	b, anonymous := browser{t, address}, client.New("", client.WithURL(address))
	for n := range 3 {
		in := client.NewSignIn(callback, "toll-cli")
		_, _, err := anonymous.ExchangeCode(t.Context(), in, b.code(in, person.Key))
		if n == 0 && err != nil || n > 0 && (err == nil || toll.AsError(err).Params["error"] != "access_denied") {
			t.Errorf("key %d: %v", n+2, err)
		}
	}
	n := 0
	for range client.New(person.Key, client.WithURL(address)).Keys(t.Context()) {
		n++
	}
	if n != 2 {
		t.Errorf("%d keys", n)
	}
}

// TestTokenEndpoint: errors are those of RFC 6749.
func TestTokenEndpoint(t *testing.T) {
	_, address := start(t, server.Config{Data: storetest.Dir(t)})
	b := browser{t, address}
	good := url.Values{
		"grant_type": {"authorization_code"}, "code": {"c"}, "redirect_uri": {callback}, "code_verifier": {strings.Repeat("v", 43)}, "client_id": {"toll-cli"},
	}
	for _, c := range []struct {
		set    string
		value  []string
		status int
		word   string
	}{
		{"x", nil, 400, "invalid_grant"},
		{"resource", []string{"http://agent.example.com/mcp"}, 400, "invalid_target"},
		{"grant_type", nil, 400, "invalid_request"},
		{"grant_type", []string{"password"}, 400, "unsupported_grant_type"},
		{"grant_type", []string{"refresh_token"}, 400, "invalid_request"},
		{"code", nil, 400, "invalid_request"},
		{"code", []string{"a", "b"}, 400, "invalid_request"},
		{"redirect_uri", nil, 400, "invalid_request"},
		{"code_verifier", nil, 400, "invalid_request"},
		{"code_verifier", []string{"short"}, 400, "invalid_request"},
		{"client_id", nil, 401, "invalid_client"},
		{"client_id", []string{"a b"}, 401, "invalid_client"},
		{"scope", []string{strings.Repeat("s", 20<<10)}, 400, "invalid_request"},
	} {
		form := url.Values{}
		for k, v := range good {
			form[k] = v
		}
		form[c.set] = c.value
		res := b.send(http.MethodPost, "/oauth/token", form.Encode())
		var body struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}
		if err := json.Unmarshal([]byte(res.body), &body); err != nil || res.status != c.status || body.Error != c.word || body.Description == "" ||
			res.header.Get("Cache-Control") != "no-store" || res.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s=%.20q: %d %s", c.set, c.value, res.status, res.body)
		}
	}
	// A code in the query is none, and another method is an error of the API.
	if res := b.send(http.MethodPost, "/oauth/token?"+good.Encode(), ""); res.status != 400 || !strings.Contains(res.body, "invalid_request") {
		t.Errorf("%d %s", res.status, res.body)
	}
	if res := b.send(http.MethodGet, "/oauth/token", ""); res.status != 405 || !strings.Contains(res.header.Get("Allow"), "POST") {
		t.Errorf("%d %v", res.status, res.header)
	}
}

// syncBuffer is written by many.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestSignIn_PlainCallback: a command line that asks for the key itself is told how to get one
// otherwise.
func TestSignIn_PlainCallback(t *testing.T) {
	_, address := start(t, server.Config{Data: storetest.Dir(t)})
	b := browser{t, address}
	for _, q := range []url.Values{
		{"callback_url": {"http://127.0.0.1:51234/callback"}},
		{"callback_url": {"http://127.0.0.1:51234/callback"}, "state": {"s"}},
		{"callback_url": {"http://localhost:51234/callback"}, "code_challenge": {""}},
	} {
		res := b.send(http.MethodGet, "/auth/cli?"+q.Encode(), "")
		text := mainPart.FindString(res.body)
		if res.status != http.StatusBadRequest || strings.Contains(res.body, "<form") {
			t.Errorf("%v: %d %s", q, res.status, text)
		}
		for _, want := range []string{"expects the API key itself", "toll login", "toll keys create", "toll keys create --local"} {
			if !strings.Contains(text, want) {
				t.Errorf("%v: the page does not say %q:\n%s", q, want, text)
			}
		}
		if strings.Contains(text, "Start again from the app") {
			t.Errorf("%v: the page sends the person back to what cannot work:\n%s", q, text)
		}
	}
}

// TestSignIn_Faults: the page says what is wrong with what was pasted, in words of a person and not
// of HTTP.
func TestSignIn_Faults(t *testing.T) {
	ahead := &atomic.Int64{}
	s, address := start(
		t,
		server.Config{
			Data:  storetest.Dir(t),
			Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		},
	)
	person, other := keyOf(
		t,
		s,
		server.KeyRequest{Account: "person"},
	), keyOf(
		t,
		s,
		server.KeyRequest{Account: "person", ExpiresIn: time.Minute},
	)
	c := client.New(person.Key, client.WithURL(address))
	reg := must.Get(c.RegisterPlan(
		t.Context(),
		client.PlanParams{
			Metadata: toll.Metadata{Name: "Free"},
			Price:    toll.PriceFree(),
			Credits:  toll.CreditsFixed(5, 1),
		},
	))(t)
	token := must.Get(c.AccessToken(t.Context(), reg.PlanID))(t)
	revoked := keyOf(t, s, server.KeyRequest{Account: "person"})
	must.Get(c.RevokeKey(t.Context(), revoked.ID))(t)
	elsewhere, _ := start(t, server.Config{Data: storetest.Dir(t)})
	foreign := keyOf(t, elsewhere, server.KeyRequest{Account: "person"})
	ahead.Store(int64(2 * time.Minute))

	_, jwt, _ := strings.Cut(person.Key, ":")
	for pasted, want := range map[string]string{
		"":                             "Paste an API key.",
		"abc":                          "This is not an API key",
		"sandbox:":                     "This is not an API key",
		"Bearer " + person.Key:         "without the word Bearer",
		person.Key[:len(person.Key)/2]: "This is not an API key",
		"live:" + jwt:                  "This API key belongs to the other environment",
		token.AccessToken:              "This is an access token",
		revoked.Key:                    "unknown, expired, or revoked",
		other.Key:                      "unknown, expired, or revoked",
		foreign.Key:                    "This API key was not created by this service",
		strings.Repeat("a", 15<<10):    "This is not an API key",
	} {
		v := newVisitor(t, address)
		page := formOf(t, v.get("/sign-in"))
		res := v.submit(page.with("api_key", pasted))
		text := mainPart.FindString(res.body)
		if res.status < 400 || res.status >= 500 || !strings.Contains(text, want) {
			t.Errorf("%.30q: %d, want %q:\n%s", pasted, res.status, want, text)
		}
		for _, jargon := range []string{"Authorization", "header", "JWT", "jti", "o11y"} {
			if strings.Contains(text, jargon) {
				t.Errorf("%.30q: the page speaks of %s:\n%s", pasted, jargon, text)
			}
		}
	}
}
