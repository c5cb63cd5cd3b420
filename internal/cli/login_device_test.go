package cli

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
	"github.com/tollhq/toll/tolltest"
)

// visitor is somebody with a browser and an API key.
type visitor struct {
	t    *testing.T
	url  string
	http *http.Client
}

func newVisitor(t *testing.T, service, key string) *visitor {
	jar := must.Get(cookiejar.New(nil))(t)
	p := &visitor{t, service, &http.Client{Jar: jar, Transport: servertest.FromPages{}}}
	p.post("/sign-in", url.Values{"api_key": {key}, "next": {"/device"}})
	return p
}

func (p *visitor) post(path string, form url.Values) string {
	res, err := p.http.PostForm(p.url+path, form)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		p.t.Errorf("%s: %d %s, %v", path, res.StatusCode, b, err)
	}
	return string(b)
}

var mainTicket = regexp.MustCompile(`(?s)<main>.*name="ticket" value="([^"]+)"`)

// decide types the code on the page and presses a button.
func (p *visitor) decide(code, decision string) {
	res, err := p.http.Get(p.url + "/device")
	if err != nil {
		p.t.Error(err)
		return
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	ticket := func(page string) string {
		m := mainTicket.FindStringSubmatch(page)
		if m == nil {
			p.t.Errorf("no form:\n%s", page)
			return ""
		}
		return m[1]
	}
	page := p.post("/device", url.Values{"user_code": {strings.ToLower(code)}, "ticket": {ticket(string(b))}})
	if !strings.Contains(page, code) || !strings.Contains(page, "with the rights that you select") || !strings.Contains(page, signInClient) {
		p.t.Errorf("the page does not say what is asked for:\n%s", page)
	}
	p.post("/device", url.Values{"request": {code}, "ticket": {ticket(page)}, "decision": {decision}, "right": {"read", "spend"}})
}

// TestLoginByDevice: without a browser the command line shows a code, and has what the person who types it elsewhere
// decided.
// T123
func TestLoginByDevice(t *testing.T) {
	svc := tolltest.New(t)
	key := must.Get(svc.NewKey("builder"))(t)
	p := newVisitor(t, svc.URL(), key.Key)
	for _, decision := range []string{"deny", "approve"} {
		var out, errOut strings.Builder
		asked := 0
		a := &app{console: console{in: strings.NewReader(""), out: &out, err: &errOut, getenv: func(n string) string {
			return map[string]string{"TOLL_CONFIG": t.TempDir() + "/toll.json", "TOLL_URL": svc.URL()}[n]
		}}}
		shown := regexp.MustCompile(`Open (\S+) and enter the code ([B-Z]{4}-[B-Z]{4})`)
		a.pause = func(_ context.Context, d time.Duration) error {
			m := shown.FindStringSubmatch(errOut.String())
			if m == nil || m[1] != svc.URL()+"/device" || d < 5*time.Second {
				t.Fatalf("after %v: %s", d, errOut.String())
			}
			switch asked++; asked {
			case 2:
				return nil // too early, which the service says
			case 3:
				if d != 10*time.Second {
					t.Errorf("it asks every %v after it was told to slow down", d)
				}
				p.decide(m[2], decision)
			}
			svc.Advance(d)
			return nil
		}
		code := run(t.Context(), []string{"login", "--device", "-o", "json"}, a)
		var in signedIn
		switch {
		case decision == "deny":
			if code != exitFailed || !strings.Contains(errOut.String(), "denied") || out.Len() > 0 {
				t.Errorf("refused: %d %s", code, errOut.String())
			}
		case code != 0 || json.Unmarshal([]byte(out.String()), &in) != nil || in.Address != key.Address:
			t.Errorf("%d %s %s", code, out.String(), errOut.String())
		}
	}
}

// TestCallbackEnds: nobody else can wait where the answer comes, and after its time, or its answer, nobody waits there.
// T125
func TestCallbackEnds(t *testing.T) {
	svc := tolltest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var address string
	a := &app{console: console{err: writerFunc(func(b []byte) (int, error) {
		_, page, _ := strings.Cut(strings.TrimSpace(string(b)), "Sign in at ")
		u, err := url.Parse(page)
		if err != nil {
			t.Error(err)
			return len(b), nil
		}
		address = u.Query().Get("callback_url")
		callback, err := url.Parse(address)
		if err != nil {
			t.Error(err)
			return len(b), nil
		}
		if ln, err := net.Listen("tcp", callback.Host); err == nil {
			_ = ln.Close()
			t.Error("another program listens on the port of the callback")
		}
		cancel()
		return len(b), nil
	}), getenv: func(string) string { return "" }}}
	if _, _, err := askPerson(late{ctx}, &a.console, client.New("", client.WithURL(svc.URL())), true); err == nil || !strings.Contains(err.Error(), "not completed within 5 minutes") {
		t.Errorf("%v", err)
	}
	if signInTime != 5*time.Minute {
		t.Errorf("a person has %v", signInTime)
	}
	res, err := http.Get(address)
	if err == nil {
		_ = res.Body.Close()
		t.Errorf("%s still answers: %d", address, res.StatusCode)
	}
}

// late is a context whose end is that of its time.
type late struct{ context.Context }

func (c late) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
