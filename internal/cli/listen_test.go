package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// hooks is a server on the user's machine. It keeps deliveries by path.
type hooks struct {
	*httptest.Server
	arrived map[string]chan *http.Request // with the raw body in its context
}

type rawBody struct{}

func newHooks(t *testing.T, paths ...string) *hooks {
	h := &hooks{arrived: map[string]chan *http.Request{}}
	for _, path := range paths {
		h.arrived[path] = make(chan *http.Request, 100)
	}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		h.arrived[r.URL.Path] <- r.Clone(context.WithValue(context.Background(), rawBody{}, string(body)))
	}))
	t.Cleanup(h.Close)
	return h
}

// next returns the next delivery to a path, verified with a secret in both formats, and its body.
func (h *hooks) next(t *testing.T, path, secret string) (*http.Request, *toll.Event, string) {
	t.Helper()
	var r *http.Request
	select {
	case r = <-h.arrived[path]:
	case <-time.After(time.Minute):
		t.Fatalf("nothing arrives at %s", path)
	}
	body := r.Context().Value(rawBody{}).(string)
	r.Body = io.NopCloser(strings.NewReader(body))
	e := must.Get(client.New("").ReadDelivery(r, secret))(t)
	standard := r.Clone(context.Background())
	maps.DeleteFunc(standard.Header, func(name string, _ []string) bool { return strings.HasPrefix(name, "Service-") })
	standard.Body = io.NopCloser(strings.NewReader(body))
	must.Get(client.New("").ReadDelivery(standard, secret))(t)
	return r, e, body
}

// listening is a run of toll listen.
type listening struct {
	out, said *bufio.Scanner
	secret    string
	stop      context.CancelFunc
	ended     chan int
}

func startListening(t *testing.T, getenv func(string) string, args ...string) *listening {
	t.Helper()
	out, toOut := io.Pipe()
	said, toSaid := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	l := &listening{bufio.NewScanner(out), bufio.NewScanner(said), "", stop, make(chan int, 1)}
	a := &app{console: console{in: strings.NewReader(""), out: toOut, err: toSaid, getenv: getenv}}
	go func() {
		l.ended <- run(ctx, append([]string{"listen", "-o", "json"}, args...), a)
		_ = toOut.Close()
		_ = toSaid.Close()
	}()
	for l.secret == "" && l.said.Scan() {
		l.secret, _ = strings.CutPrefix(l.said.Text(), "signing secret: ")
		if !strings.HasPrefix(l.secret, "whsec_") {
			l.secret = ""
		}
	}
	if l.secret == "" {
		t.Fatalf("no secret: exit %d", <-l.ended)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return l
}

func (l *listening) line(t *testing.T) (f forwarded) {
	t.Helper()
	if !l.out.Scan() {
		t.Fatalf("no line: exit %d", <-l.ended)
	}
	must.Do(t, json.Unmarshal(l.out.Bytes(), &f))
	return f
}

// TestListen: toll listen forwards an event as a webhook delivers it, with headers that the SDK verifies. toll trigger sends samples in the
// same form, and the service has no new event.
func TestListen(t *testing.T) {
	svc := tolltest.New(t)
	h := newHooks(t, "/webhook", "/hooks", "/other")
	key := must.Get(svc.NewKey("builder"))(t)
	variables := map[string]string{"HOME": t.TempDir(), "TOLL_URL": svc.URL(), "TOLL_API_KEY": key.Key}
	getenv := func(name string) string { return variables[name] }
	hook := must.Get(svc.Client().CreateWebhook(t.Context(), client.WebhookParams{URL: h.URL + "/webhook", Types: []toll.EventType{toll.EventCreditsMinted}}))(t)
	l := startListening(t, getenv, "--forward-to", strings.TrimPrefix(h.URL, "http://")+"/hooks", "--events", "credits.minted,order.paid")
	svc.Mint(toll.Address{9}, 7)

	delivered, _, want := h.next(t, "/webhook", hook.Secret)
	r, e, body := h.next(t, "/hooks", l.secret)
	if body != want || e.Type != toll.EventCreditsMinted {
		t.Errorf("forwarded\n%s\ndelivered\n%s", body, want)
	}
	if got, want := headerNames(r), headerNames(delivered); !slices.Equal(got, want) {
		t.Errorf("forwarded with %q, delivered with %q", got, want)
	}
	if f := l.line(t); f.ID != e.ID || f.Type != e.Type || f.Status == nil || *f.Status != 200 || f.Error != nil || f.DurationMicros <= 0 {
		t.Errorf("%+v", f)
	}

	before := eventCount(t, svc)
	other := startListening(t, getenv, "--forward-to", h.URL+"/other", "--secret", "whsec_bXkgb3duIHNlY3JldA==")
	code, out, said := runWith(t, map[string]string{"HOME": variables["HOME"]}, "trigger", "order.paid", "-o", "json") // without the service
	if code != 0 || strings.Count(out, `"type":"order.paid"`) != 2 {
		t.Errorf("exit %d, %s, %s", code, out, said)
	}
	for path, secret := range map[string]string{"/hooks": l.secret, "/other": "whsec_bXkgb3duIHNlY3JldA=="} {
		_, e, _ := h.next(t, path, secret)
		var order toll.Order
		must.Do(t, json.Unmarshal(e.Data, &order))
		if e.Type != toll.EventOrderPaid || e.Sequence != 0 || order.OrderID != e.Object.ID || order.Status != toll.OrderConfirmed {
			t.Errorf("%+v", e)
		}
	}
	if after := eventCount(t, svc); after != before {
		t.Errorf("%d events before the sample, %d after", before, after)
	}
	for _, l := range []*listening{l, other} {
		l.stop()
		if code := <-l.ended; code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	if left := must.Get(filepath.Glob(filepath.Join(variables["HOME"], ".config", "toll", "*")))(t); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
	if code, _, said := runWith(t, variables, "trigger", "order.paid"); code != exitFailed || !strings.Contains(said, "toll listen --forward-to") {
		t.Errorf("without a server: exit %d, %s", code, said)
	}
}

func headerNames(r *http.Request) (names []string) {
	for name := range r.Header {
		if strings.Contains(strings.ToLower(name), "webhook") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return append(names, r.Method, r.Header.Get("Content-Type"), r.Header.Get("User-Agent"))
}

func eventCount(t *testing.T, svc *tolltest.Service) (n int) {
	t.Helper()
	for _, err := range svc.Client().Events(t.Context()) {
		must.Do(t, err)
		n++
	}
	return n
}

func runWith(t *testing.T, variables map[string]string, args ...string) (code int, out, said string) {
	t.Helper()
	var stdout, stderr strings.Builder
	a := &app{console: console{in: strings.NewReader(""), out: &stdout, err: &stderr, getenv: func(name string) string { return variables[name] }}}
	return run(t.Context(), args, a), stdout.String(), stderr.String()
}

// TestTrigger_Fails: redirects are not followed, failures are printed and not retried, and an unknown type is corrected.
func TestTrigger_Fails(t *testing.T) {
	h := newHooks(t, "/moved", "/elsewhere")
	defer func(d time.Duration) { hookClient.Timeout = d }(hookClient.Timeout)
	hookClient.Timeout = 2 * time.Second
	for _, c := range []struct {
		to     string
		status int
		error  string
	}{
		{h.URL + "/moved", http.StatusTemporaryRedirect, ""},
		{"127.0.0.1:1/hooks", 0, "refused"}, {h.URL + "/slow", 0, "no response within 2s"},
	} {
		code, out, said := runWith(t, nil, "trigger", "plan.created", "--forward-to", c.to, "--secret", "s", "-o", "json")
		var f forwarded
		must.Do(t, json.Unmarshal([]byte(out), &f))
		if code != exitFailed || said != "" || (f.Status == nil) != (c.status == 0) || f.Status != nil && *f.Status != c.status ||
			(f.Error == nil) != (c.error == "") || f.Error != nil && !strings.Contains(*f.Error, c.error) {
			t.Errorf("%s: exit %d, %s, %s", c.to, code, out, said)
		}
	}
	if n, m := len(h.arrived["/moved"]), len(h.arrived["/elsewhere"]); n != 1 || m != 0 {
		t.Errorf("%d requests, %d after a redirect", n, m)
	}
	code, _, said := runWith(t, nil, "trigger", "order.pad")
	if code != exitUsage || !regexp.MustCompile(`unknown event type "order.pad"; did you mean .*order.paid.*\? Event types: agent.created, .*webhook.disabled`).MatchString(said) {
		t.Errorf("exit %d, %s", code, said)
	}
	for _, args := range [][]string{
		{"trigger", "order.paid", "--forward-to", h.URL}, {"trigger", "order.paid", "--forward-to", "ftp://localhost", "--secret", "s"},
		{"listen", "--secret", "s"}, {"listen", "--events", "order.pad"}, {"listen", "--forward-to", "http://"},
	} {
		if code, _, said := runWith(t, nil, args...); code != exitUsage {
			t.Errorf("%s: exit %d, %s", fmt.Sprint(args), code, said)
		}
	}
}
