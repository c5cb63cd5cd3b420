package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/tolltest"
)

// rig is a core with the account of a person at a service of its own.
type rig struct {
	t       *testing.T
	svc     *tolltest.Service
	core    *gateway.Core
	wire    *recorder
	address toll.Address
	account string
	opts    gateway.Options
	clock   *clock
}

// newRig starts a service; set changes the configuration of the core.
func newRig(t *testing.T, set func(*gateway.Config), opts ...tolltest.Option) *rig {
	t.Helper()
	return rigOf(t, tolltest.New(t, opts...), "ann", set)
}

func rigOf(t *testing.T, svc *tolltest.Service, account string, set func(*gateway.Config)) *rig {
	t.Helper()
	key := must.Get(svc.NewKey(account))(t)
	r := &rig{t: t, svc: svc, wire: &recorder{}, address: key.Address, account: account, clock: newClock()}
	cfg := gateway.Config{APIKey: key.Key, BaseURL: svc.URL(), PlanID: svc.Plan()}
	if set != nil {
		set(&cfg)
	}
	r.opts = gateway.Options{Config: cfg, Dir: t.TempDir(), CoreToken: testToken, ServiceClient: &http.Client{Transport: r.wire}}
	r.start()
	return r
}

// start makes the core, on the clock of the rig.
func (r *rig) start() {
	r.t.Helper()
	r.opts.Now = r.clock.now
	var err error
	if r.core, err = gateway.New(r.opts); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) wait(d time.Duration) { r.clock.advance(d) }

// clock is a time that a test moves.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// owner is the person of most tests, in one conversation.
var owner = gateway.Caller{SessionKey: "chat", SenderID: "ann", SenderIsOwner: true}

// result is the JSON of an answer.
type result map[string]any

func (r result) text(t *testing.T, name string) string {
	t.Helper()
	s, ok := r[name].(string)
	if !ok {
		t.Errorf("%s is %v (%T), want text", name, r[name], r[name])
	}
	return s
}

func (r result) warnings() string {
	all, _ := r["warnings"].([]any)
	var text []string
	for _, w := range all {
		text = append(text, w.(string))
	}
	return strings.Join(text, "\n")
}

// try runs a tool in the conversation of a caller, with the id of a call or "".
func (r *rig) try(caller gateway.Caller, id, tool, params string) (result, error) {
	got, err := r.core.Call(r.t.Context(), "service_"+tool, []byte(params), id, caller)
	if err != nil {
		return nil, err
	}
	var out result
	return out, json.Unmarshal(got, &out)
}

// run is try for the owner, and must work.
func (r *rig) run(tool, params string) result {
	r.t.Helper()
	out, err := r.try(owner, "", tool, params)
	if err != nil {
		r.t.Fatalf("%s %s: %v", tool, params, err)
	}
	return out
}

// refused is try for the owner, and must be refused with a code.
func (r *rig) refused(code gateway.Word, tool, params string) *gateway.Error {
	r.t.Helper()
	got, err := r.try(owner, "", tool, params)
	e, ok := errors.AsType[*gateway.Error](err)
	if !ok || e.Code != code {
		r.t.Fatalf("%s %s: %v, %v; want %s", tool, params, got, err, code)
	}
	return e
}

// recorder records what the core asks of the service.
type recorder struct {
	mu   sync.Mutex
	seen []string
	keys map[string]string // the last Idempotency-Key by call
	// change edits an answer, nil leaves it. An error of it replaces the answer.
	change func(req *http.Request, body []byte) ([]byte, error)
}

func (w *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	call := req.Method + " " + strings.TrimPrefix(req.URL.Path, "/api/v1")
	w.mu.Lock()
	w.seen = append(w.seen, call)
	if w.keys == nil {
		w.keys = map[string]string{}
	}
	w.keys[call] = req.Header.Get("Idempotency-Key")
	change := w.change
	w.mu.Unlock()
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || change == nil {
		return res, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil {
		body, err = change(req, body)
	}
	if refused, ok := errors.AsType[refusedBy](err); ok {
		res.StatusCode, body, err = int(refused), []byte(`{}`), nil
	}
	if err != nil {
		return nil, err
	}
	res.Body, res.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
	return res, nil
}

// refusedBy is an answer with this status in place of the one of the service.
type refusedBy int

func (refusedBy) Error() string { return "refused" }

// alter sets what edits answers.
func (w *recorder) alter(f func(*http.Request, []byte) ([]byte, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change = f
}

// acts returns the calls that change something, since the last time.
func (w *recorder) acts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, call := range w.seen {
		if !strings.HasPrefix(call, "GET ") {
			all = append(all, call)
		}
	}
	w.seen = nil
	return all
}
