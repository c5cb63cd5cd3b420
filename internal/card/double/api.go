package double

import (
	"cmp"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// route is one operation of the API.
type route struct {
	method, path string // below /v1/
	takes        schema
	run          func(*call) (any, error)
}

// call is one operation while it runs. It holds d.mu.
type call struct {
	d    *Double
	st   *state
	p    params
	r    *http.Request // nil for what runs by itself
	id   string        // req_…
	key  string        // idempotency key
	now  int64
	base string // of the pages
}

func (d *Double) newCall(r *http.Request) *call {
	c := &call{d: d, st: d.st, r: r, now: d.now().Unix(), base: d.opts.PublicURL}
	if r != nil && c.base == "" {
		c.base = "http://" + r.Host
		if r.TLS != nil {
			c.base = "https://" + r.Host
		}
	}
	return c
}

// answer is what a request gets.
type answer struct {
	Status   int
	Body     json.RawMessage
	replayed string // id of the request that got it first
}

func newAnswer(v any, err error) answer {
	status := http.StatusOK
	if err != nil {
		var f *failure
		if !errors.As(err, &f) {
			f = apiError("The double had an internal error.")
		}
		status, v = f.status, map[string]any{"error": f}
	}
	b, err := json.Marshal(v)
	if err != nil {
		body := json.RawMessage(`{"error":{"type":"api_error"}}`)
		return answer{Status: http.StatusInternalServerError, Body: body}
	}
	return answer{Status: status, Body: b}
}

// serve answers one route of the API. A restricted key needs the permission with _read for GET, and with _write for the others.
func (d *Double) serve(rt *route, permission string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := newID("req_", 14)
		w.Header().Set("Request-Id", id)
		if err := d.authorize(r, permission); err != nil {
			writeJSON(w, nil, err)
			return
		}
		key := ""
		if r.Method == http.MethodPost {
			key = r.Header.Get("Idempotency-Key")
		}
		a, ok := d.perform(w, r, rt, id, key)
		if !ok {
			panic(http.ErrAbortHandler) // cuts the connection without an answer
		}
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "no-cache, no-store")
		h.Set("Stripe-Version", cmp.Or(r.Header.Get("Stripe-Version"), Version))
		if key != "" {
			h.Set("Idempotency-Key", key)
			original := id
			if a.replayed != "" {
				h.Set("Idempotent-Replayed", "true")
				original = a.replayed
			}
			h.Set("Original-Request", original)
		}
		if a.Status == http.StatusTooManyRequests || a.Status == http.StatusConflict {
			h.Set("Stripe-Should-Retry", "true")
		}
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body) // which other requests with this key get, too
	}
}

// perform runs a request, with the fault that waits for it. It returns false when the connection has to be cut.
func (d *Double) perform(
	w http.ResponseWriter, r *http.Request, rt *route, id, key string,
) (answer, bool) {
	p, err := d.accept(w, r, rt, key)
	if err != nil {
		return newAnswer(nil, err), true
	}
	f := d.takeHTTPFault(r)
	if f.is("429") {
		return newAnswer(nil, tooMany("Request rate limit exceeded.")), true
	}
	if f.is("cut") && !f.After {
		return answer{}, false
	}
	if key != "" {
		if a, done := d.begin(r, p, key); done {
			return a, !f.is("cut")
		}
		defer d.end(key)
	}
	if f.is("hang") && !f.After && !d.wait(time.Duration(f.Seconds)*time.Second) {
		return answer{}, false
	}
	a := d.execute(r, rt, p, id, key, f)
	if f.is("hang") && f.After && !d.wait(time.Duration(f.Seconds)*time.Second) {
		return answer{}, false
	}
	return a, !f.is("cut")
}

// accept checks version and parameters: what comes before execution.
func (d *Double) accept(
	w http.ResponseWriter, r *http.Request, rt *route, key string,
) (params, error) {
	if v := r.Header.Get("Stripe-Version"); v != "" && v != Version && v != nodeVersion {
		return nil, invalidParam("", "", "Invalid Stripe API version: %s. Use %s", v, Version)
	}
	if r.Header.Get("Stripe-Account") != "" {
		return nil, invalidParam("", "", "The double does not support connected accounts")
	}
	if len(key) > 255 {
		return nil, invalidParam("", "", "Idempotency keys can be up to 255 characters long")
	}
	form := r.URL.RawQuery
	if r.Method == http.MethodPost {
		media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		if media != "" && media != "application/x-www-form-urlencoded" ||
			r.Header.Get("Content-Encoding") != "" {
			return nil, invalidParam("", "", "Invalid request: the body must be application/x-www-form-urlencoded")
		}
		b, err := readAll(w, r, maxBody)
		if err != nil {
			return nil, invalidParam("", "", "Invalid request: the body must be complete, and at most %d bytes", maxBody)
		}
		form = strings.Trim(form+"&"+string(b), "&")
	}
	if len(form) > maxBody {
		return nil, invalidParam("", "", "Invalid request: the parameters must be at most %d bytes", maxBody)
	}
	p, f := parseParams(form)
	if f == nil {
		f = rt.takes.check(p)
	}
	if f != nil {
		return nil, f
	}
	return p, nil
}

// authorize accepts a key of the test mode, as a bearer token.
func (d *Double) authorize(r *http.Request, permission string) error {
	key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	granted, restricted := d.opts.RestrictedKeys[key]
	switch {
	case !bearer || key == "":
		return unauthorized("You did not provide an API key in the Authorization header.")
	case strings.Contains(key, "_live_"):
		return unauthorized("Invalid API Key provided: %s. The double supports only test mode", redacted(key))
	case restricted:
	case !strings.HasPrefix(key, "sk_test_") || len(key) > 255,
		d.opts.SecretKey != "" && !equal(key, d.opts.SecretKey):
		return unauthorized("Invalid API Key provided: %s", redacted(key))
	default:
		return nil
	}
	need, write := permission+"_read", permission+"_write" // which includes reading
	if r.Method != http.MethodGet {
		need = write
	}
	if !slices.Contains(granted, need) && !slices.Contains(granted, write) {
		f := unauthorized("The provided key '%s' does not have the required permissions for this "+
			"endpoint. Enabling ('%s') permissions on it would allow this request to continue.",
			redacted(key), need)
		f.status = http.StatusForbidden
		return f
	}
	return nil
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// redacted shows of a key its kind and its end.
func redacted(key string) string {
	if len(key) < 16 {
		return "****"
	}
	return key[:8] + "****" + key[len(key)-4:]
}

// execute runs an operation and saves what it changed, with its outcome under the idempotency key.
func (d *Double) execute(r *http.Request, rt *route, p params, id, key string, f *Fault) answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.newCall(r)
	c.p, c.id, c.key = p, id, key
	changed := c.advance()
	var a answer
	switch {
	case f.is("500") && !f.After:
		a = newAnswer(nil, apiError("An unknown error occurred"))
	case r.Method != http.MethodGet && c.st.size() >= d.opts.MaxRows:
		a = newAnswer(nil, tooMany("The double has reached the limit Options.MaxRows"))
	default:
		v, err := rt.run(c)
		if err == nil {
			v, err = c.expand(v)
		}
		a = newAnswer(v, err)
		if f.is("500") {
			a = newAnswer(nil, apiError("An unknown error occurred"))
		}
		var refused *failure
		if errors.As(err, &refused) && refused.invalid {
			key = ""
		}
	}
	if key != "" && a.Status != http.StatusTooManyRequests {
		c.keep(key, p, a)
	}
	if changed || r.Method != http.MethodGet {
		if err := d.save(); err != nil {
			return newAnswer(nil, apiError("The double cannot save its state"))
		}
		d.wakeAll()
	}
	return a
}
